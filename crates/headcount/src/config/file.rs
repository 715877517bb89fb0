//! The configuration as written: `headcount.yaml`.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headcount_core::rules::{Bounds, Brake, Busy, Capacity, Fallback, Limits};
use headcount_core::schedule::Schedule;
use headcount_core::{Policy, Rules, Span};
use schemars::JsonSchema;
use serde::Deserialize;

use super::alerts::AlertsFile;
use super::read::{Findings, Read};
use super::tree::{Document, Path as KeyPath, Shape};
use super::{Config, GroupConfig, LogConfig, MetricsList, Overrides};
use crate::budget;
use crate::lease::LeaseKind;
use crate::limits::KEEP_DAYS;
use crate::queues::QueueConfig;
use crate::queues::redis::RedisConfig;
use crate::registry::not_built_in;
use crate::targets::{TargetConfig, docker};
use crate::usage;

/// Where health and metrics are served unless configured.
const LISTEN: &str = "127.0.0.1:9411";
/// The longest time between two looks unless configured.
const LOOK: Span = Span::from_secs(5);
/// Looks closer together than this would only cost CPU.
const LEAST_LOOK: Span = Span::from_millis(100);
/// Looks further apart than this would make every reading stale.
const MOST_LOOK: Span = Span::from_secs(3600);

/// Headcount decides how many workers each group should have, and makes it so. Texts may contain
/// `${NAME}` or `${NAME:-default}` for a variable of the environment; `$$` is a plain dollar.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "headcount.yaml", extend("required" = ["groups"], "patternProperties" = {"^x-": true}))]
pub(super) struct File {
    /// Where state, logs of worker processes and the like are kept. Default: /var/lib/headcount for
    /// root, else $XDG_STATE_HOME/headcount or ~/.local/state/headcount.
    #[serde(default)]
    state_dir: Option<PathBuf>,
    /// Health and metrics over HTTP.
    #[serde(default)]
    http: Http,
    /// Logs on standard error.
    #[serde(default)]
    log: LogConfig,
    /// How many days samples and events are kept.
    #[serde(default = "keep_days")]
    #[schemars(range(min = 1, max = 3650))]
    keep_days: u32,
    /// What all groups share.
    #[serde(default)]
    budget: Option<Budget>,
    /// The groups of workers, by name.
    #[serde(default)]
    groups: BTreeMap<String, Group>,
}

/// Health and metrics over HTTP.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Http {
    /// An address of this machine only, `127.0.0.1:9411`, or `none`.
    listen: String,
}

impl Default for Http {
    fn default() -> Self {
        Self { listen: LISTEN.into() }
    }
}

/// A limit on the workers of all groups together. Each group has its min, and of the rest a part by its
/// `weight`; what one does not want is lent to those that do, and comes back as its workers get idle.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Budget {
    /// The most workers.
    #[schemars(range(min = 1, max = 10_000))]
    workers: u32,
}

/// One group of identical workers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Group {
    /// How many workers there may be.
    #[serde(default)]
    workers: Bounds,
    /// The rule that wants a number.
    #[serde(default)]
    policy: Policy,
    /// The host's limits: no growth beyond them.
    #[serde(default)]
    brake: Brake,
    /// How full of workers the host may get, by what they are known to take.
    #[serde(default)]
    capacity: Capacity,
    /// How far one decision may go.
    #[serde(default)]
    limits: Limits,
    /// Other bounds at certain times.
    #[serde(default)]
    schedule: Option<Schedule>,
    /// Whether scale-in may stop a worker that holds a job.
    #[serde(default)]
    busy: Busy,
    /// Where to go when the sources stay silent.
    #[serde(default)]
    fallback: Option<Fallback>,
    /// After this long a reading counts as missing. Default: three polls.
    #[serde(default)]
    stale_after: Option<Span>,
    /// After an outage, readings must be known for this long before a scale-in. Default: two polls.
    #[serde(default)]
    settle: Option<Span>,
    /// The longest time between two looks when all is quiet. Default: 5s.
    #[serde(default)]
    look: Option<Span>,
    /// Its part of the `budget`, against the other groups'.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1000))]
    weight: u32,
    /// What you want to hear of: too many jobs waiting, too few workers.
    #[serde(default)]
    alerts: AlertsFile,
    /// The memory that one worker has, as `2g` or `512m`, for `headcount usage`. Default: 2g.
    #[serde(default)]
    worker_memory: Option<String>,
    /// Where the right to act is kept: of several Headcounts with the same target, one acts.
    #[serde(default)]
    lease: LeaseKind,
    /// Where demand is read.
    #[schemars(with = "QueueConfig")]
    queue: Option<QueueConfig>,
    /// What runs the workers.
    #[schemars(with = "TargetConfig")]
    target: Option<TargetConfig>,
    /// Keeps the list of snapshots in Redis that the reference n8n autoscaler keeps.
    #[serde(default)]
    metrics_list: Option<MetricsListFile>,
}

/// A list of snapshots in Redis, as the reference n8n autoscaler keeps it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct MetricsListFile {
    /// Which Redis. Default: the queue's.
    redis: Option<RedisConfig>,
    /// The list's key.
    #[schemars(length(min = 1))]
    key: String,
    /// How many snapshots are kept.
    #[schemars(range(min = 1, max = 100_000))]
    keep: u32,
}

impl Default for MetricsListFile {
    fn default() -> Self {
        Self { redis: None, key: "autoscaler:metrics".into(), keep: 200 }
    }
}

const fn one() -> u32 {
    1
}

const fn keep_days() -> u32 {
    KEEP_DAYS
}

/// The configuration that a file means, or everything that is wrong with it in `read`'s findings.
pub(super) fn meant<'a>(
    read: Read<'a, File>,
    doc: &Document,
    base_dir: &Path,
    overrides: &Overrides,
) -> (Option<Config>, Findings<'a>) {
    let Read { value, mut findings } = read;
    let Some(mut file) = value else { return (None, findings) };
    if file.groups.is_empty() && findings.is_empty() {
        findings.problem(&[], "groups", "no groups; name at least one under `groups:`");
    }
    let listen = match address(&file.http.listen) {
        Ok(listen) => listen,
        Err(what) => {
            findings.problem(&[], "http.listen", &what);
            None
        }
    };
    let state_dir = match (&overrides.state_dir, &file.state_dir) {
        // On the command line a path starts at the working directory.
        (Some(folder), _) => std::path::absolute(folder).unwrap_or_else(|_| folder.clone()),
        (None, Some(folder)) => base_dir.join(folder),
        (None, None) => default_state_dir(),
    };
    let mut groups = Vec::new();
    for name in group_names(doc) {
        let path = vec!["groups".to_string(), name.clone()];
        if let Some(what) = bad_name(&name) {
            findings.problem(&path, "", what);
        }
        if let Some(group) = file.groups.remove(&name) {
            groups.extend(group.meant(name, &path, doc, base_dir, &mut findings));
        }
    }
    no_two_scale_the_same(&groups, &state_dir, &mut findings);
    let budget = file.budget.map(|budget| budget.workers);
    if let Some(workers) = budget {
        fits(workers, &groups, &mut findings);
    }
    let (log, keep_days) = (file.log, file.keep_days);
    (Some(Config { groups, state_dir, listen, log, keep_days, budget }), findings)
}

impl Group {
    /// The group that is meant; `None` if it has no queue or target.
    fn meant(
        self,
        name: String,
        path: &KeyPath,
        doc: &Document,
        base_dir: &Path,
        findings: &mut Findings<'_>,
    ) -> Option<GroupConfig> {
        let (look, base_dir) = (self.look.unwrap_or(LOOK), base_dir.to_path_buf());
        if !(LEAST_LOOK..=MOST_LOOK).contains(&look) {
            let what = format!("{look:#} is not between {LEAST_LOOK:#} and {MOST_LOOK:#}");
            findings.problem(path, "look", &what);
        }
        let rules = Rules {
            workers: self.workers,
            policy: self.policy,
            brake: self.brake,
            capacity: self.capacity,
            limits: self.limits,
            schedule: self.schedule,
            busy: self.busy,
            fallback: self.fallback,
            stale_after: self.stale_after,
            settle: self.settle,
        };
        findings.problems(path, rules.problems());
        if let Some(queue) = &self.queue {
            findings.problems(&kind_path(doc, path, "queue"), queue.problems());
        }
        if let Some(target) = &self.target {
            findings.problems(&kind_path(doc, path, "target"), target.problems());
        }
        let metrics_list = self.metrics_list.and_then(|list| {
            if let Some(redis) = &list.redis {
                let key = ["metrics_list", "redis"].map(str::to_string);
                findings.problems(&[path.as_slice(), &key].concat(), redis.problems());
            }
            let of_queue = match &self.queue {
                Some(QueueConfig::Bull(bull)) => Some(bull.redis.clone()),
                _ => None,
            };
            let redis = list.redis.or(of_queue);
            if redis.is_none() && self.queue.is_some() {
                let what = "the queue has no Redis; say which one under `redis:`";
                findings.problem(path, "metrics_list", what);
            }
            Some(MetricsList { redis: redis?, key: list.key, keep: list.keep })
        });
        let (mut queue, target) = (self.queue?, self.target?);
        if let QueueConfig::Bull(bull) = &mut queue {
            bull.slots.get_or_insert(rules.workers.slots);
        }
        findings.problems(path, count_custom_tags(&mut queue, &rules.policy));
        if cfg!(not(feature = "kubernetes")) && self.lease == LeaseKind::Kubernetes {
            findings.problem(path, "lease", &not_built_in("kubernetes"));
        }
        let worker_memory = self.worker_memory.as_deref().map_or(Ok(usage::UNIT), memory);
        if let Err(what) = &worker_memory {
            findings.problem(path, "worker_memory", what);
        }
        let (alerts, alert_webhook, problems) = self.alerts.meant();
        findings.problems(&[path.as_slice(), &["alerts".to_string()]].concat(), problems);
        let (lease, weight) = (self.lease, self.weight);
        Some(GroupConfig {
            name,
            rules,
            queue,
            target,
            lease,
            look,
            weight,
            worker_memory: worker_memory.unwrap_or(usage::UNIT),
            alerts,
            alert_webhook,
            metrics_list,
            base_dir,
        })
    }
}

/// Windmill's own field of that name says which jobs count; jobs that the queue does not count the
/// policy cannot see.
fn count_custom_tags(queue: &mut QueueConfig, policy: &Policy) -> Vec<(String, String)> {
    let (QueueConfig::Windmill(windmill), Policy::Occupancy(policy)) = (queue, policy) else {
        return Vec::new();
    };
    if windmill.tags.is_empty() {
        windmill.tags.clone_from(&policy.custom_tags);
    }
    let unseen = policy.custom_tags.iter().filter(|tag| !windmill.tags.contains(tag));
    let problem = |tag| {
        let what = format!("{tag} is not among the tags of the queue; add it there");
        ("policy.occupancy.custom_tags".to_owned(), what)
    };
    unseen.map(problem).collect()
}

/// A worker's memory in bytes.
fn memory(text: &str) -> Result<u64, String> {
    docker::bytes(text).map(i64::unsigned_abs).ok_or_else(|| {
        format!("{text:?} is no size of at least 6m; write it as 2g or 512m, 1024 m in a g")
    })
}

/// The fewest workers that must be have to fit into the budget.
fn fits(budget: u32, groups: &[GroupConfig], findings: &mut Findings<'_>) {
    let takes_part = groups.iter().filter(|group| budget::takes_part(group));
    let least: u64 = takes_part.map(|group| u64::from(group.rules.workers.min)).sum();
    if least > u64::from(budget) {
        let what = format!(
            "{budget} is less than the {least} workers that the groups have at least; raise it, or \
             lower their min"
        );
        findings.problem(&[], "budget.workers", &what);
    }
}

/// Two groups that scale the same thing would undo each other's work. One may look on, dry.
fn no_two_scale_the_same(groups: &[GroupConfig], state_dir: &Path, findings: &mut Findings<'_>) {
    let mut known: HashMap<String, &str> = HashMap::new();
    for group in groups.iter().filter(|group| group.target.problems().is_empty()) {
        // A target that cannot be opened says so when it is.
        let Ok(target) = group.target.open(&group.place(state_dir)) else { continue };
        if target.is_dry() {
            continue;
        }
        if let Some(first) = known.get(&target.scales()) {
            let what = format!(
                "groups `{first}` and `{}` scale the same workers; let one of them do it, or make \
                 the other one's target a dry_run",
                group.name
            );
            findings.problem(&["groups".to_string(), group.name.clone()], "target", &what);
        } else {
            known.insert(target.scales(), &group.name);
        }
    }
}

/// The groups' names in the order of the file.
fn group_names(doc: &Document) -> Vec<String> {
    match doc.root.child("groups").map(|(_, node)| &node.shape) {
        Some(Shape::Map(entries)) => entries.iter().map(|(key, _)| key.name.clone()).collect(),
        _ => Vec::new(),
    }
}

/// The path of the one kind under `queue` or `target`.
fn kind_path(doc: &Document, group: &[String], key: &str) -> KeyPath {
    let mut path = [group, &[key.to_string()]].concat();
    let node = path.iter().try_fold(&doc.root, |node, step| Some(node.child(step)?.1));
    if let Some(Shape::Map(entries)) = node.map(|node| &node.shape) {
        path.extend(entries.first().map(|(kind, _)| kind.name.clone()));
    }
    path
}

/// What is wrong with a group's name: it is used in file names, labels and commands.
fn bad_name(name: &str) -> Option<&'static str> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let dots = name.chars().all(|c| c == '.');
    (dots || name.len() > 63 || !name.chars().all(fits))
        .then_some("a group's name has 1 to 63 of a-z, 0-9, `.`, `_` and `-`")
}

/// Where to listen: nowhere, or on this machine only.
fn address(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "none" {
        return Ok(None);
    }
    let local = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let Ok(address) = local.as_deref().unwrap_or(text).parse::<SocketAddr>() else {
        return Err(format!("`{text}` is not an address and port; write {LISTEN} or none"));
    };
    if !address.ip().is_loopback() {
        return Err(format!(
            "{address} can be reached from elsewhere, and there is no authentication yet; \
             write 127.0.0.1:{}",
            address.port()
        ));
    }
    Ok(Some(address))
}

/// Where state is kept unless configured.
pub(crate) fn default_state_dir() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if rustix::process::geteuid().is_root() {
        return "/var/lib/headcount".into();
    }
    let state_home = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    state_home.unwrap_or_else(std::env::temp_dir).join("headcount")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listens_on_this_machine_only() {
        assert_eq!(address("none"), Ok(None));
        assert_eq!(address("localhost:80"), Ok(Some(([127, 0, 0, 1], 80).into())));
        assert!(address("[::1]:9411").is_ok());
        for (text, wanted) in [
            ("0.0.0.0:9411", "can be reached from elsewhere"),
            (":9411", "is not an address and port"),
            ("9411", "is not an address and port"),
            ("127.0.0.1:99999", "is not an address and port"),
        ] {
            let what = address(text).unwrap_err();
            assert!(what.contains(wanted), "{text}: {what}");
        }
    }

    #[test]
    fn names_fit_into_file_names_and_labels() {
        for name in ["n8n-worker", "a", "0.1_x", &"x".repeat(63)] {
            assert_eq!(bad_name(name), None, "{name}");
        }
        for name in ["", "..", "A", "a/b", "a b", "ü", &"x".repeat(64)] {
            assert!(bad_name(name).is_some(), "{name}");
        }
    }
}
