//! What the configuration file says of a Kubernetes target. Built in or not, the keys are known, so
//! that a file that needs what was left out is told so.

use std::path::PathBuf;

use headcount_core::Span;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::registry::not_built_in;

/// Where a pod finds its token, the cluster's certificate and its namespace.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The pods of a Deployment, a StatefulSet or of a resource with a scale.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KubernetesConfig {
    /// What is scaled: `deployment`, `stateful_set`, or another resource that has a scale, as
    /// `plural.version.group`: `rollouts.v1alpha1.argoproj.io`.
    pub kind: String,
    /// Its name. Default: `windmill-workers-` and the group's name, as Windmill's chart has it.
    pub name: Option<String>,
    /// Its namespace. Default: Headcount's own in a cluster, else the context's.
    pub namespace: Option<String>,
    /// Labels that its pods have, `app=worker,tier in (a,b)`. Default: its own selector.
    pub selector: Option<String>,
    /// A file that says how to reach the cluster, relative to this file. Default: the service
    /// account of the pod that Headcount runs in; outside of a cluster the files in `KUBECONFIG`,
    /// else `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// Which context of that file. Default: its current one.
    pub context: Option<String>,
    /// The folder with `token`, `ca.crt` and `namespace` of the service account.
    pub service_account: PathBuf,
    /// Refuse to shrink where it is not certain that only idle pods go: pods cannot be annotated or are
    /// of no ReplicaSet, a rollout is under way, or a StatefulSet's last pod is busy. It is tried again
    /// at the next look.
    pub require_victims: bool,
    /// A pod that no node has room for counts as starting for this long, since a node may be on its
    /// way; then it counts as broken.
    pub unschedulable_after: Span,
}

/// What is scaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Pods by way of ReplicaSets: the deletion cost decides who goes.
    Deployment,
    /// Numbered pods: the last one goes.
    StatefulSet,
    /// Anything else, only by its scale.
    Custom {
        /// As in the API's paths: `rollouts`.
        plural: String,
        /// `v1alpha1`.
        version: String,
        /// `argoproj.io`.
        group: String,
    },
}

impl Default for KubernetesConfig {
    fn default() -> Self {
        Self {
            kind: "deployment".into(),
            name: None,
            namespace: None,
            selector: None,
            kubeconfig: None,
            context: None,
            service_account: SERVICE_ACCOUNT.into(),
            require_victims: false,
            unschedulable_after: Span::from_mins(3),
        }
    }
}

impl KubernetesConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut bad = |key: &str, what: String| problems.push((key.to_owned(), what));
        if cfg!(not(feature = "kubernetes")) {
            bad("", not_built_in("kubernetes"));
        }
        if self.kind().is_none() {
            let kind = &self.kind;
            bad(
                "kind",
                format!(
                    "{kind:?} is neither `deployment` nor `stateful_set` nor a `plural.version.group` \
                 such as `rollouts.v1alpha1.argoproj.io`"
                ),
            );
        }
        for (key, name) in [("name", &self.name), ("namespace", &self.namespace)] {
            if let Some(name) = name.as_deref().filter(|name| !is_name(name)) {
                bad(key, format!("{name:?} must be lower-case letters, digits, - and . only"));
            }
        }
        #[cfg(feature = "kubernetes")]
        if let Some(text) = &self.selector
            && let Err(what) = super::selector::parse(text)
        {
            bad("selector", what);
        }
        let hour = Span::from_mins(60);
        if self.unschedulable_after < Span::ZERO || self.unschedulable_after > hour {
            let span = self.unschedulable_after;
            bad("unschedulable_after", format!("{span:#} is outside 0s to {hour:#}"));
        }
        problems
    }

    /// What is scaled, if it makes sense.
    pub(crate) fn kind(&self) -> Option<Kind> {
        let plain: String = self.kind.chars().filter(|c| !"_-".contains(*c)).collect();
        match plain.to_ascii_lowercase().as_str() {
            "deployment" => return Some(Kind::Deployment),
            "statefulset" => return Some(Kind::StatefulSet),
            _ => {}
        }
        let mut parts = self.kind.splitn(3, '.');
        let mut part = || parts.next().filter(|part| is_name(part)).map(str::to_owned);
        let (plural, version, group) = (part()?, part()?, part()?);
        let is_version =
            version.starts_with('v') && version[1..].starts_with(|c: char| c.is_ascii_digit());
        (is_version && group.contains('.')).then_some(Kind::Custom { plural, version, group })
    }

    /// The name of what is scaled for `group`.
    #[cfg(feature = "kubernetes")]
    pub(crate) fn name_for(&self, group: &str) -> String {
        self.name.clone().unwrap_or_else(|| format!("windmill-workers-{group}"))
    }
}

/// A name as Kubernetes has them: of a DNS subdomain.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let inner = |c: char| plain(c) || c == '-' || c == '.';
    (1..=253).contains(&name.len())
        && name.starts_with(plain)
        && name.ends_with(plain)
        && name.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_that_can_be_scaled() {
        let kind = |text: &str| KubernetesConfig { kind: text.into(), ..<_>::default() }.kind();
        for text in ["deployment", "Deployment"] {
            assert_eq!(kind(text), Some(Kind::Deployment), "{text}");
        }
        for text in ["stateful_set", "StatefulSet", "statefulset"] {
            assert_eq!(kind(text), Some(Kind::StatefulSet), "{text}");
        }
        let custom = |plural: &str, version: &str, group: &str| {
            Some(Kind::Custom {
                plural: plural.into(),
                version: version.into(),
                group: group.into(),
            })
        };
        let rollout = custom("rollouts", "v1alpha1", "argoproj.io");
        assert_eq!(kind("rollouts.v1alpha1.argoproj.io"), rollout);
        for text in
            ["", "job", "rollouts.argoproj.io", "a.v1", "rollouts.v1.", "x.v1.one", "a.b.c.d"]
        {
            assert_eq!(kind(text), None, "{text}");
        }
    }

    #[test]
    fn what_was_left_out_is_named_by_its_feature() {
        let problems = KubernetesConfig::default().problems();
        let told = problems.iter().any(|(_, what)| what.contains("--features kubernetes"));
        assert_eq!(told, cfg!(not(feature = "kubernetes")));
    }

    #[test]
    fn nonsense_is_named_by_its_key() {
        let config = KubernetesConfig {
            kind: "cron_job".into(),
            name: Some("A".into()),
            namespace: Some("-x".into()),
            unschedulable_after: Span::from_secs(-1),
            ..KubernetesConfig::default()
        };
        let keys: Vec<String> = config.problems().into_iter().map(|(key, _)| key).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).filter(|k| !k.is_empty()).collect();
        assert_eq!(keys, ["kind", "name", "namespace", "unschedulable_after"]);
    }
}
