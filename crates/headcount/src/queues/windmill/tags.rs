//! Which tags a worker group listens to: what is set here, Windmill's `custom_tags` for autoscaling,
//! what its live workers say, what its configuration says; in this order.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use aws_lc_rs::digest::{SHA256, digest};
use headcount_core::{Missing, Silence};
use serde_json::Value;

use super::snapshot::{GroupRow, Snapshot};

/// A tag may be this long, bytes; Windmill shortens the tags of dedicated workers that are longer.
const TAG_BYTES: usize = 50;
/// As much stays of a shortened one, bytes.
const KEPT_BYTES: usize = 33;

/// The tags of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tags {
    pub(super) tags: BTreeSet<String>,
    pub(super) from: From,
}

/// Where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    Key,
    CustomTags,
    LiveWorkers,
    WorkerTags,
    Dedicated,
}

impl fmt::Display for From {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "the key `tags`",
            Self::CustomTags => "custom_tags of the group's autoscaling in windmill",
            Self::LiveWorkers => "its live workers",
            Self::WorkerTags => "worker_tags of the group in windmill",
            Self::Dedicated => "the scripts its workers are dedicated to",
        })
    }
}

impl Tags {
    /// The tags of `group`; workers count as live that told of themselves in the last `alive`
    /// seconds.
    ///
    /// # Errors
    /// Nobody knows them.
    pub(super) fn of(
        snapshot: &Snapshot,
        group: &str,
        given: &[String],
        alive: f64,
    ) -> Result<Self, Missing> {
        let row = snapshot.groups.iter().find(|row| row.name == group);
        let live = snapshot.workers_of(group).filter(|worker| worker.ping <= alive);
        let live: Vec<String> = live.flat_map(|worker| worker.tags.clone()).collect();
        let of_row = |list: fn(&GroupRow) -> Vec<String>| row.map(list).unwrap_or_default();
        let found = [
            (From::Key, given.to_vec()),
            (From::CustomTags, of_row(|row| texts(&row.custom_tags))),
            (From::LiveWorkers, live),
            (From::WorkerTags, of_row(|row| texts(&row.worker_tags))),
            (From::Dedicated, of_row(dedicated)),
        ]
        .into_iter()
        .find(|(_, tags)| !tags.is_empty());
        match found {
            Some((from, tags)) => Ok(Self { tags: tags.into_iter().collect(), from }),
            None => Err(unknown(snapshot, group)),
        }
    }
}

fn unknown(snapshot: &Snapshot, group: &str) -> Missing {
    let names = snapshot.group_names();
    let detail = if names.contains(&group) {
        format!(
            "no tags known: worker group {group} has no live workers and no tags in its \
             configuration; set `tags`, or start one of its workers"
        )
    } else {
        let others = match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        format!(
            "no tags known: windmill has no worker group {group}; those it has: {others}; correct \
             `group`, or set `tags`"
        )
    };
    Missing { why: Silence::NotFound, detail }
}

/// The texts of a list; nothing of anything else.
fn texts(value: &Value) -> Vec<String> {
    let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

fn dedicated(row: &GroupRow) -> Vec<String> {
    let many = texts(&row.dedicated_workers);
    let one = row.dedicated_worker.as_str().map(str::to_owned);
    let scripts = if many.is_empty() { one.into_iter().collect() } else { many };
    scripts.iter().map(|script| tag_of(script)).collect()
}

/// The tag of a script with workers of its own, `workspace:path`.
fn tag_of(script: &str) -> String {
    if script.len() <= TAG_BYTES {
        return script.to_owned();
    }
    let kept = script.floor_char_boundary(KEPT_BYTES);
    let mut tag = format!("{}#", &script[..kept]);
    for byte in &digest(&SHA256, script.as_bytes()).as_ref()[..8] {
        write!(tag, "{byte:02x}").expect("a text can be written to");
    }
    tag
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::queues::windmill::snapshot::WorkerRow;

    fn worker(group: &str, tags: &[&str], ping: f64) -> WorkerRow {
        let tags = tags.iter().map(|tag| (*tag).into()).collect();
        WorkerRow { group: group.into(), tags, ping, ..WorkerRow::default() }
    }

    fn snapshot() -> Snapshot {
        let row = |name: &str| GroupRow { name: name.into(), ..GroupRow::default() };
        Snapshot {
            groups: vec![
                GroupRow {
                    custom_tags: json!(["narrow"]),
                    worker_tags: json!(["wide"]),
                    ..row("custom")
                },
                GroupRow { worker_tags: json!(["bash", "go"]), ..row("set") },
                GroupRow { dedicated_worker: json!("w:f/one"), ..row("one") },
                GroupRow { dedicated_workers: json!(["w:f/a", "w:f/b"]), ..row("many") },
                row("bare"),
            ],
            workers: vec![
                worker("custom", &["live"], 1.0),
                worker("set", &["live", "bash"], 1.0),
                worker("set", &["other"], 30.0),
                worker("set", &["gone"], 30.1),
                worker("one", &["gone"], 31.0),
            ],
            ..Snapshot::default()
        }
    }

    #[test]
    fn the_first_that_knows_counts() {
        for (group, given, expected, from) in [
            ("custom", &["mine"][..], &["mine"][..], From::Key),
            ("nobody", &["mine"], &["mine"], From::Key),
            ("custom", &[], &["narrow"], From::CustomTags),
            ("set", &[], &["bash", "live", "other"], From::LiveWorkers),
            ("one", &[], &["w:f/one"], From::Dedicated),
            ("many", &[], &["w:f/a", "w:f/b"], From::Dedicated),
        ] {
            let given: Vec<String> = given.iter().map(|tag| (*tag).into()).collect();
            let tags = Tags::of(&snapshot(), group, &given, 30.0).unwrap();
            let list: Vec<_> = tags.tags.iter().map(String::as_str).collect();
            assert_eq!((list.as_slice(), tags.from), (expected, from), "{group}");
        }
        let mut later = snapshot();
        later.workers.clear();
        let tags = Tags::of(&later, "set", &[], 30.0).unwrap();
        assert_eq!((tags.tags.len(), tags.from), (2, From::WorkerTags));
    }

    #[test]
    fn unknown_tags_are_no_empty_queue() {
        let said = |group| Tags::of(&snapshot(), group, &[], 30.0).unwrap_err().to_string();
        assert_eq!(
            said("bare"),
            "not_found: no tags known: worker group bare has no live workers and no tags in its \
             configuration; set `tags`, or start one of its workers"
        );
        assert_eq!(
            said("defualt"),
            "not_found: no tags known: windmill has no worker group defualt; those it has: bare, \
             custom, many, one, set; correct `group`, or set `tags`"
        );
    }

    #[test]
    fn a_long_tag_is_shortened_as_windmill_does_it() {
        assert_eq!(tag_of("demo:f/reports/daily"), "demo:f/reports/daily");
        let long = "workspace:f/a_folder/with_a_very_long_path/to_a_script";
        // printf '%s' "$long" | sha256sum | cut -c 1-16
        assert_eq!(tag_of(long), "workspace:f/a_folder/with_a_very_#de1aeb63eaf6bddd");
        let fifty = "x".repeat(50);
        assert_eq!(tag_of(&fifty), fifty);
    }
}
