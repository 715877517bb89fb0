//! What the configuration file says of a Docker target.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use headcount_core::Span;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::secret::Secret;
use crate::targets::docker_engine::Engine;
use crate::targets::program;

/// Containers of a Docker Engine, without Compose.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DockerConfig {
    /// Where the Docker Engine is: `unix:///path` or `tcp://host:port`. Default: the environment
    /// variable `DOCKER_HOST`, else the standard socket.
    pub host: Option<String>,
    /// The image of the workers. It must be there: nothing is pulled. Required, unless `like` is
    /// given.
    pub image: Option<String>,
    /// The name of a container whose image, command, environment, mounts, networks, labels and
    /// limits the workers get; its published ports, host name and addresses they do not. It is not
    /// counted and never touched. The other keys go before it.
    pub like: Option<String>,
    /// The command and its arguments, `[worker, --concurrency=5]`. Default: the image's.
    pub command: Option<Vec<String>>,
    /// Environment variables.
    pub env: BTreeMap<String, Secret>,
    /// A file with more of them, `NAME=value` a line, relative to this file. It is read at each
    /// start.
    pub env_file: Option<PathBuf>,
    /// Volumes and folders of the host: `data:/data`, `/srv/in:/in:ro`; `./x:/x` starts at the
    /// folder of this file.
    pub mounts: Vec<String>,
    /// The networks that the workers join, or one of `none`, `host`, `bridge`. Default: Docker's.
    pub networks: Vec<String>,
    /// Labels, besides `headcount.group`, which tells whose workers they are.
    pub labels: BTreeMap<String, String>,
    /// How they are called: `{n}` is the lowest number that is free, `{group}` the group.
    pub name: String,
    /// The signal that tells a worker to go. Default: the image's, else SIGTERM.
    pub stop_signal: Option<String>,
    /// How long a worker that was told to go may take to finish its job, before it is killed.
    /// Must exceed the longest job.
    pub grace: Span,
    /// What Docker does with a worker that ends by itself: `no`, `on-failure`, `always`,
    /// `unless-stopped`.
    pub restart: Option<String>,
    /// The most CPUs that one worker may use, as `1.5`.
    pub cpus: Option<f64>,
    /// The most memory that one worker may use, as `512m` or `2g`.
    pub memory: Option<String>,
    /// How long after its start a container without a health check counts as starting. One with a
    /// health check is starting until that passes.
    pub ready_after: Span,
}

impl Default for DockerConfig {
    fn default() -> Self {
        Self {
            host: None,
            image: None,
            like: None,
            command: None,
            env: BTreeMap::new(),
            env_file: None,
            mounts: Vec::new(),
            networks: Vec::new(),
            labels: BTreeMap::new(),
            name: "{group}-{n}".into(),
            stop_signal: None,
            grace: Span::from_secs(60),
            restart: None,
            cpus: None,
            memory: None,
            ready_after: Span::ZERO,
        }
    }
}

impl DockerConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut bad = |key: &str, what: String| problems.push((key.to_owned(), what));
        if let Some(why) = self.host.as_deref().and_then(Engine::problem_with) {
            bad("host", why);
        }
        match (&self.image, &self.like) {
            (None, None) => bad(
                "image",
                "is missing: write the workers' image, or `like` with a container's name".into(),
            ),
            (Some(image), _) if !is_image(image) => bad("image", format!("{image:?} is no image")),
            _ => {}
        }
        if let Some(like) = self.like.as_ref().filter(|like| !is_name(like)) {
            bad("like", format!("{like:?} is no name of a container"));
        }
        if self.command.as_ref().is_some_and(|words| words.iter().all(String::is_empty)) {
            bad("command", "is empty: leave it out to run the image's".into());
        }
        for name in self.env.keys() {
            if let Some(what) = program::fault_of_variable(name) {
                bad(&format!("env.{name}"), what);
            }
        }
        for mount in self.mounts.iter().filter(|mount| bind(mount, Path::new("/")).is_none()) {
            bad("mounts", format!("{mount:?} is not source:/target or source:/target:options"));
        }
        self.problems_of_names(&mut bad);
        self.problems_of_limits(&mut bad);
        problems
    }

    fn problems_of_names(&self, bad: &mut impl FnMut(&str, String)) {
        let alone = |name: &String| ["none", "host"].contains(&name.as_str());
        if self.networks.len() > 1 && self.networks.iter().any(alone) {
            bad("networks", "`none` and `host` allow no other network".into());
        }
        for name in self.networks.iter().filter(|name| !is_name(name)) {
            bad("networks", format!("{name:?} is no name of a network"));
        }
        for name in self.labels.keys().filter(|name| name.is_empty() || is_reserved(name)) {
            bad(&format!("labels.{name}"), "says whose container it is; use another name".into());
        }
        let name = &self.name;
        if !name.contains("{n}") {
            bad("name", format!("{name:?} is the same for all: write {{n}} where the number goes"));
        } else if !is_name(&self.called("g", 1)) {
            bad("name", format!("{name:?} must be letters, digits, ., - and _ only"));
        }
    }

    fn problems_of_limits(&self, bad: &mut impl FnMut(&str, String)) {
        let is_signal = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-".contains(c))
        };
        if let Some(signal) = self.stop_signal.as_ref().filter(|signal| !is_signal(signal)) {
            bad("stop_signal", format!("{signal:?} is no signal such as SIGTERM or 15"));
        }
        let day = Span::from_hours(24);
        let spans = [
            ("grace", self.grace, Span::from_secs(1)),
            ("ready_after", self.ready_after, Span::ZERO),
        ];
        for (key, span, least) in spans {
            if span < least || span > day {
                bad(key, format!("{span:#} is outside {least:#} to {day:#}"));
            }
        }
        let known = ["no", "on-failure", "always", "unless-stopped"];
        if let Some(restart) = self.restart.as_ref().filter(|r| !known.contains(&r.as_str())) {
            bad("restart", format!("{restart:?} is not one of {}", known.join(", ")));
        }
        if self.cpus.is_some_and(|cpus| !(0.01..=10_000.0).contains(&cpus)) {
            bad("cpus", "is outside 0.01 to 10000".into());
        }
        if let Some(memory) = self.memory.as_ref().filter(|text| bytes(text).is_none()) {
            bad("memory", format!("{memory:?} is no size of at least 6m, such as 512m or 2g"));
        }
    }

    /// The name of number `n` of the group.
    pub(super) fn called(&self, group: &str, n: u32) -> String {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let group: String = group.chars().map(|c| if plain(c) { c } else { '-' }).collect();
        self.name.replace("{group}", &group).replace("{n}", &n.to_string())
    }
}

/// Labels by which others, or we, tell whose container it is.
pub(super) fn is_reserved(label: &str) -> bool {
    ["headcount.", "com.docker.compose.", "com.docker.swarm.", "com.docker.stack."]
        .iter()
        .any(|prefix| label.starts_with(prefix))
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(plain)
}

fn is_image(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:@".contains(c))
}

/// A mount as the engine takes it: relative folders start at `base`.
pub(super) fn bind(mount: &str, base: &Path) -> Option<String> {
    let (source, rest) = mount.split_once(':')?;
    let target = rest.split(':').next()?;
    if source.is_empty() || !target.starts_with('/') || rest.matches(':').count() > 1 {
        return None;
    }
    if source.starts_with('.') {
        // By its components: without `./` in the middle.
        let source: PathBuf = base.join(source).components().collect();
        return Some(format!("{}:{rest}", source.display()));
    }
    (source.starts_with('/') || is_name(source)).then(|| mount.to_owned())
}

/// `512m` in bytes. Docker takes no less than 6 MB.
pub(crate) fn bytes(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].trim_end_matches('b').trim_end_matches('i') {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(unit).filter(|bytes| *bytes >= 6 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_named_by_its_key() {
        let config = DockerConfig {
            host: Some("ssh://host".into()),
            image: Some("a b".into()),
            like: Some("/x".into()),
            command: Some(vec![]),
            env: [("HEADCOUNT_X".to_owned(), Secret::from("x"))].into(),
            mounts: vec!["data".into()],
            networks: vec!["host".into(), "a".into(), "a b".into()],
            labels: [("headcount.group".to_owned(), "x".to_owned())].into(),
            name: "worker".into(),
            stop_signal: Some("SIG TERM".into()),
            grace: Span::ZERO,
            restart: Some("never".into()),
            cpus: Some(-1.0),
            memory: Some("lots".into()),
            ready_after: Span::from_secs(-1),
            ..DockerConfig::default()
        };
        let keys: Vec<String> = config.problems().into_iter().map(|(key, _)| key).collect();
        let expected = [
            "host",
            "image",
            "like",
            "command",
            "env.HEADCOUNT_X",
            "mounts",
            "networks",
            "networks",
            "labels.headcount.group",
            "name",
            "stop_signal",
            "grace",
            "ready_after",
            "restart",
            "cpus",
            "memory",
        ];
        assert_eq!(keys, expected);
        let keys = |config: DockerConfig| -> Vec<String> {
            config.problems().into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(keys(DockerConfig::default()), ["image"]);
        let named = DockerConfig { like: Some("a".into()), name: "{n} x".into(), ..<_>::default() };
        assert_eq!(keys(named), ["name"]);
    }

    #[test]
    fn a_group_may_have_any_name_and_a_container_may_not() {
        let config = DockerConfig::default();
        assert_eq!(config.called("n8n worker/ä", 3), "n8n-worker---3");
        let config = DockerConfig { name: "w{n}".into(), ..config };
        assert_eq!(config.called("g", 12), "w12");
    }

    #[test]
    fn mounts_as_people_write_them() {
        let base = Path::new("/etc/headcount");
        let cases = [
            ("data:/data", Some("data:/data")),
            ("/srv:/in:ro", Some("/srv:/in:ro")),
            ("./a/./b:/in", Some("/etc/headcount/a/b:/in")),
            ("../x:/in:ro,z", Some("/etc/headcount/../x:/in:ro,z")),
            ("data:data", None),
            (":/data", None),
            ("/data", None),
            ("a:/b:ro:x", None),
            ("a b:/c", None),
        ];
        for (mount, expected) in cases {
            assert_eq!(bind(mount, base).as_deref(), expected, "{mount}");
        }
    }

    #[test]
    fn sizes_as_people_write_them() {
        let cases = [
            ("512m", Some(512 << 20)),
            ("2g", Some(2 << 30)),
            ("2GiB", Some(2 << 30)),
            ("6144kb", Some(6 << 20)),
            ("6291456", Some(6 << 20)),
            ("1m", None),
            ("1.5g", None),
            ("g", None),
            ("9999999999g", None),
            ("-1g", None),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes(text), expected, "{text}");
        }
    }
}
