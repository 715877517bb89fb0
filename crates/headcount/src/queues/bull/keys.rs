//! The names of everything Bull and n8n keep in Redis for one queue.

use base64::Engine;

use super::BullConfig;

/// The names of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    /// Prefix and name: `bull:jobs`.
    pub(super) queue: String,
    /// The name without the prefix: `jobs`.
    pub(super) name: String,
    /// What each worker calls the connection on which it waits for jobs.
    pub(super) client_name: String,
    /// Where n8n takes requests.
    pub(super) commands: String,
    /// Where n8n's workers answer.
    pub(super) responses: String,
}

impl Keys {
    /// The names that follow from `config`.
    pub(super) fn new(config: &BullConfig, cluster: bool) -> Self {
        let tag = cluster && hash_tag(&config.prefix).is_none();
        let prefix = if tag { format!("{{{}}}", config.prefix) } else { config.prefix.clone() };
        let encoded = base64::engine::general_purpose::STANDARD.encode(&config.queue);
        Self {
            queue: format!("{prefix}:{}", config.queue),
            name: config.queue.clone(),
            client_name: format!("{prefix}:{encoded}"),
            commands: format!("{}:n8n.commands", config.n8n_prefix),
            responses: format!("{}:n8n.worker-response", config.n8n_prefix),
        }
    }

    /// A key of the queue.
    pub(super) fn key(&self, part: &str) -> String {
        format!("{}:{part}", self.queue)
    }

    /// The list of waiting jobs.
    pub(super) fn wait(&self) -> String {
        self.key("wait")
    }

    /// A pattern for the channels of the queue that begin with `part`.
    pub(super) fn pattern(&self, part: &str) -> String {
        let mut pattern = String::new();
        for c in self.key(part).chars() {
            if "*?[]\\".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern.push('*');
        pattern
    }
}

/// What a cluster hashes of a key that holds braces.
pub(super) fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_bull_and_n8n_make_them() {
        let keys = Keys::new(&BullConfig::default(), false);
        assert_eq!(keys.wait(), "bull:jobs:wait");
        assert_eq!(keys.client_name, "bull:am9icw==");
        assert_eq!(keys.responses, "n8n:n8n.worker-response");
    }

    #[test]
    fn a_cluster_needs_a_hash_tag() {
        let with = |prefix: &str| {
            let config = BullConfig { prefix: prefix.into(), ..BullConfig::default() };
            Keys::new(&config, true).client_name
        };
        assert_eq!(with("acme"), "{acme}:am9icw==");
        assert_eq!(with("{acme}"), "{acme}:am9icw==");
        assert_eq!(with("a{c}me"), "a{c}me:am9icw==");
    }

    #[test]
    fn patterns_match_literally() {
        let config = BullConfig { prefix: "b*[l".into(), ..BullConfig::default() };
        assert_eq!(Keys::new(&config, false).pattern("waiting@"), "b\\*\\[l:jobs:waiting@*");
    }
}
