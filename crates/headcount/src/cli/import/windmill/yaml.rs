//! The configuration as text, with a word on where everything comes from.

use std::collections::BTreeSet;
use std::path::Path;

use super::Group;
use super::scaling::{Integration, Number, Scaling};

/// Where remarks begin, if there is room.
const COLUMN: usize = 44;

const HEAD: &str = "\
# Written by `headcount import windmill`. The rules of each group are those of its autoscaling in
# Windmill. Before anything is scaled:
#   1. Put Windmill's DATABASE_URL into the file below, best for a role that may only read
#      (deploy/windmill/role.sql).
#   2. `headcount check` says what is missing; `headcount run --dry-run` shows what would be done.
#   3. Turn autoscaling off in Windmill's settings of these groups: two would undo each other's work.
";

const NO_BRAKE: [&str; 4] = [
    "    # Windmill does not look at the host. Remove these two, and no worker is started that this",
    "    # host cannot carry.",
    "    brake: { off: true }",
    "    capacity: { off: true }",
];

/// The whole file.
pub(super) fn write(groups: &[Group], url_file: &Path) -> String {
    let mut text = HEAD.to_owned();
    let file = scalar(&url_file.to_string_lossy());
    text.push_str(&format!("x-windmill: &windmill\n  url_file: {file}\ngroups:\n"));
    let mut taken = BTreeSet::new();
    for group in groups {
        let mut name = fitting(&group.name);
        for number in 2.. {
            if taken.insert(name.clone()) {
                break;
            }
            let stem: String = fitting(&group.name).chars().take(58).collect();
            name = format!("{stem}-{number}");
        }
        group.write(&name, &mut text);
    }
    text
}

impl Group {
    /// The group, with `name` as its key.
    fn write(&self, name: &str, text: &mut String) {
        let Scaling { enabled, min, max, custom_tags, worker_tags, notes, .. } = &self.scaling;
        text.push_str(&format!("  {}:\n", scalar(name)));
        let state = match enabled {
            Some(true) => "",
            Some(false) => "Autoscaling is off in Windmill: this is only a dry run.",
            None => {
                "Windmill keeps no autoscaling of this group (its Community Edition never does): these \
                 are Windmill's defaults, and only a dry run."
            }
        };
        remark(text, state);
        for note in notes {
            remark(text, &format!("Note: {note}."));
        }
        if !worker_tags.is_empty() {
            remark(
                text,
                &format!("Its tags in Windmill: {}.", worker_tags.join(", ").escape_debug()),
            );
        }
        let slots = if self.native { ", slots: 8" } else { "" };
        let why = if self.native { "a native worker runs 8 jobs at once" } else { "" };
        line(text, &format!("    workers: {{ min: {min}, max: {max}{slots} }}"), why);
        text.push_str("    policy:\n      occupancy:\n");
        for Number { key, value, default } in &self.scaling.numbers {
            line(text, &format!("        {key}: {value}"), default.unwrap_or_default());
        }
        text.push_str(
            "        # parity: windmill   # judge by the occupancy that Windmill's workers report\n",
        );
        NO_BRAKE.iter().for_each(|part| line(text, part, ""));
        if let Some(least) = self.scaling.least_alive {
            line(text, "    # min_alive_workers_alert_threshold; add a webhook to be told.", "");
            let alert =
                format!("    alerts: {{ live_workers_under: {{ workers: {least}, for: 2m }} }}");
            line(text, &alert, "");
        }
        text.push_str("    queue:\n      windmill:\n        <<: *windmill\n");
        if name != self.name {
            text.push_str(&format!("        group: {}\n", scalar(&self.name)));
        }
        if !custom_tags.is_empty() {
            let tags: Vec<String> = custom_tags.iter().map(|tag| scalar(tag)).collect();
            line(text, &format!("        tags: [{}]", tags.join(", ")), "custom_tags");
        }
        let scaling = &self.scaling;
        if scaling.enabled == Some(true) && scaling.integration == Integration::Kubernetes {
            text.push_str("    lease: kubernetes\n");
        }
        text.push_str("    target:\n");
        self.write_target(name, text);
    }

    fn write_target(&self, name: &str, text: &mut String) {
        match &self.scaling.integration {
            _ if self.scaling.enabled != Some(true) => self.write_dry_run(text),
            Integration::DryRun | Integration::Other(_) => self.write_dry_run(text),
            Integration::Kubernetes => {
                text.push_str("      kubernetes:\n");
                let deployment = dns(&self.name);
                let what = match deployment == self.name {
                    true => "a Deployment",
                    false => "a Deployment; correct its name",
                };
                line(text, &format!("        name: windmill-workers-{deployment}"), what);
                text.push_str("        # namespace: windmill   # default: Headcount's own\n");
            }
            Integration::Script { path, tag } => {
                text.push_str("      windmill_script:\n");
                let url = "        url: ${WINDMILL_URL:-http://windmill_server:8000}";
                line(text, url, "Windmill's base URL");
                line(text, "        token_file: windmill-token", "of a user who may run it");
                text.push_str(&format!("        path: {}\n", scalar(path)));
                match tag {
                    Some(tag) => text.push_str(&format!("        tag: {}\n", scalar(tag))),
                    None => text.push_str(
                        "        # tag: ops   # best of another group, whose workers run the script\n",
                    ),
                }
                if name != self.name {
                    text.push_str(&format!("        group: {}\n", scalar(&self.name)));
                }
            }
        }
    }

    fn write_dry_run(&self, text: &mut String) {
        let there = self.live.unwrap_or(self.scaling.min).min(self.scaling.max);
        let run = format!("      dry_run: {{ workers: {there} }}");
        line(text, &run, "pretends to have so many at first");
        let deployment = dns(&self.name);
        text.push_str(&format!(
            "      # To act, write one of these instead (docs/windmill.md):\n      \
             # compose: {{ project: windmill, service: windmill_worker, files: [docker-compose.yml], grace: 1h }}\n      \
             # kubernetes: {{ name: windmill-workers-{deployment} }}\n      \
             # ecs: {{ cluster: windmill, service: windmill-worker }}\n"
        ));
    }
}

/// A line, with a remark if there is one.
fn line(text: &mut String, line: &str, remark: &str) {
    text.push_str(line);
    if !remark.is_empty() {
        let room = COLUMN.saturating_sub(line.chars().count()).max(2);
        text.push_str(&format!("{}# {remark}", " ".repeat(room)));
    }
    text.push('\n');
}

/// A comment of its own, broken into lines.
fn remark(text: &mut String, what: &str) {
    let mut line = String::new();
    for word in what.split_whitespace() {
        if line.len() + word.len() > 92 {
            text.push_str(&format!("    #{line}\n"));
            line.clear();
        }
        line.push_str(&format!(" {word}"));
    }
    if !line.is_empty() {
        text.push_str(&format!("    #{line}\n"));
    }
}

/// A text as a YAML scalar, in which no variable is replaced.
fn scalar(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let word = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '/');
    let reserved = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"]
        .contains(&text.to_ascii_lowercase().as_str());
    if word && !reserved && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '$' => quoted.push_str("$$"),
            c if c.is_control() || ('\u{2028}'..='\u{2029}').contains(&c) || c == '\u{feff}' => {
                quoted.push_str(&format!("\\U{:08x}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A name that a group of Headcount can have.
fn fitting(name: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
    let each = |c: char| if fits(c) { c } else { '-' };
    let name: String = name.to_lowercase().chars().map(each).take(63).collect();
    if name.chars().all(|c| c == '.') { "group".into() } else { name }
}

/// The end of a name of something in Kubernetes.
fn dns(name: &str) -> String {
    let name: String = fitting(name).chars().map(|c| if c == '_' { '-' } else { c }).collect();
    let name = name.trim_end_matches(['-', '.']);
    if name.is_empty() { "group".into() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scalar_is_read_as_the_text_it_was() {
        for text in [
            "gpu",
            "a b",
            "no",
            "1",
            "1e3",
            "",
            "~",
            "a: b",
            "a #b",
            "\"x\"",
            "\\",
            "*x",
            "-",
            "ü",
            "two\nlines",
            "\u{7f}\u{0}",
            "{a}",
            "0x1f",
            "a\u{2028}b",
            "2026-01-01",
            "/etc/x",
            "!tag",
        ] {
            let yaml = scalar(text);
            let again: String =
                serde_saphyr::from_str(&yaml).unwrap_or_else(|e| panic!("{yaml}: {e}"));
            assert_eq!(again, text, "{yaml}");
        }
        assert_eq!(scalar("$workspace"), "\"$$workspace\"");
    }

    #[test]
    fn names_fit() {
        for (name, expected) in
            [("gpu", "gpu"), ("Big Jobs", "big-jobs"), ("..", "group"), ("ü", "-")]
        {
            assert_eq!(fitting(name), expected);
        }
        assert_eq!(dns("big_jobs-"), "big-jobs");
    }
}
