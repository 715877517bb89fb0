//! Rules as YAML, ready to paste: what differs from the defaults, with a word on what has changed.

use headcount_core::{Rules, Span};
use headcount_sim::search::space::Change;
use serde_json::{Map, Value, json};

use crate::cli::out;

/// These are always written: who reads the file wants to know.
const ALWAYS: [&str; 2] = ["workers.min", "workers.max"];
/// Keys that come first, in this order, as people write them.
const FIRST: [&str; 3] = ["workers", "min", "max"];
/// Where remarks begin, if there is room.
const COLUMN: usize = 32;

/// The rules without styles.
pub(super) fn plain(rules: &Rules, changes: &[Change]) -> String {
    anstream::adapter::strip_str(&styled(rules, changes)).to_string()
}

/// The rules, with changes in bold.
pub(super) fn styled(rules: &Rules, changes: &[Change]) -> String {
    let kind = rules.policy.name();
    let usual: Rules = serde_json::from_value(json!({"policy": {kind: {}}})).unwrap_or_default();
    let [mut value, usual] = [rules, &usual].map(|r| serde_json::to_value(r).unwrap_or_default());
    if let (Value::Object(map), Value::Object(usual)) = (&mut value, &usual) {
        prune(map, usual, "", changes);
        // A policy without parameters is a policy, too.
        map.entry("policy").or_insert_with(|| json!({kind: {}}));
    }
    let mut text = String::new();
    write(&value, "", 0, changes, &mut text);
    text
}

/// Drops what is as usual.
fn prune(map: &mut Map<String, Value>, usual: &Map<String, Value>, path: &str, changes: &[Change]) {
    let nothing = Map::new();
    map.retain(|key, value| {
        let path = join(path, key);
        if ALWAYS.contains(&&*path) || changes.iter().any(|change| change.key == path) {
            return true;
        }
        match value {
            Value::Object(inner) => {
                let usual = usual.get(key).and_then(Value::as_object).unwrap_or(&nothing);
                prune(inner, usual, &path, changes);
                !inner.is_empty()
            }
            Value::Null => false,
            other => usual.get(key) != Some(other),
        }
    });
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}

fn write(value: &Value, path: &str, depth: usize, changes: &[Change], text: &mut String) {
    let Value::Object(map) = value else { return };
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    let rank = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    entries.sort_by_key(|(key, _)| rank(key));
    for (key, value) in entries {
        let (indent, path) = ("  ".repeat(depth), join(path, key));
        if value.as_object().is_some_and(|inner| !inner.is_empty()) {
            text.push_str(&format!("{indent}{key}:\n"));
            write(value, &path, depth + 1, changes, text);
            continue;
        }
        let line = format!("{indent}{key}: {}", scalar(value));
        match changes.iter().find(|change| change.key == path) {
            Some(change) => {
                let was = change
                    .from
                    .as_deref()
                    .map_or("was not set".into(), |from| format!("was {from}"));
                let remark = out::styled(out::DIM, format!("# {was}"));
                let room = " ".repeat(COLUMN.saturating_sub(line.len()).max(2));
                text.push_str(&format!("{}{room}{remark}\n", out::styled(out::BOLD, line)));
            }
            None => text.push_str(&format!("{line}\n")),
        }
    }
}

/// Lists and texts as JSON, which is YAML; times and whole numbers as people write them.
fn scalar(value: &Value) -> String {
    let Value::String(text) = value else {
        let text = value.to_string();
        return text.strip_suffix(".0").map_or(text.clone(), String::from);
    };
    let span = || text.parse::<Span>().ok().map(|span| format!("{span:#}"));
    let word = text.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
    match span() {
        Some(span) => span,
        None if word && !text.is_empty() => text.clone(),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(json: Value) -> Rules {
        serde_json::from_value(json).unwrap()
    }

    fn change(key: &'static str, from: Option<&str>, to: &str) -> Change {
        Change { key, from: from.map(String::from), to: to.into(), more: "" }
    }

    #[test]
    fn what_is_as_usual_is_left_out_and_what_changed_is_marked() {
        let rules = rules(json!({
            "workers": {"min": 1, "max": 6, "slots": 5},
            "policy": {"cpu_aware": {"cooldown": "30s", "idle": "60s", "emergency": 81.0}},
            "busy": "drain",
            "schedule": {"zone": "Europe/Berlin", "windows": [{"days": ["mon"], "from": "08:00", "to": "18:00", "min": 2}]},
        }));
        let changes = [
            change("workers.max", Some("4"), "6"),
            change("policy.cpu_aware.cooldown", Some("1m 30s"), "30s"),
        ];
        let text = plain(&rules, &changes);
        assert!(text.contains("  max: 6                        # was 4\n"), "{text}");
        assert!(text.contains("    cooldown: 30s               # was 1m 30s\n"), "{text}");
        assert!(
            text.contains("    emergency: 81\n    idle: 1m\n") && text.contains("busy: drain\n"),
            "{text}"
        );
        assert!(!text.contains("poll") && !text.contains("brake"), "{text}");
        let again: Rules = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(again, rules, "{text}");
    }

    #[test]
    fn every_policy_can_be_read_again() {
        for policy in ["cpu_aware", "occupancy", "ratio", "slo"] {
            let rules = rules(json!({"policy": {policy: {}}}));
            let text = plain(&rules, &[]);
            let again: Rules = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(again, rules, "{text}");
        }
        let same = rules(json!({"policy": {"slo": {"max_wait": "60s"}}}));
        let text = plain(&same, &[change("policy.slo.max_wait", None, "1m")]);
        assert!(text.contains("max_wait: 1m                # was not set"), "{text}");
    }
}
