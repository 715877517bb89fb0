//! The worker groups in a piece of JSON, in any of the shapes that people have at hand.

use serde_json::{Deserializer, Map, Value, json};

/// What the keys of a group's configuration are in the `config` table.
const PREFIX: &str = "worker__";
/// Keys by which a group's configuration is known; Windmill has no others.
pub(super) const GROUP_KEYS: [&str; 15] = [
    "additional_python_paths",
    "autoscaling",
    "cache_clear",
    "dedicated_worker",
    "dedicated_workers",
    "env_vars_allowlist",
    "env_vars_static",
    "init_bash",
    "min_alive_workers_alert_threshold",
    "native_mode",
    "periodic_script_bash",
    "periodic_script_interval_seconds",
    "pip_local_dependencies",
    "priority_tags",
    "worker_tags",
];
/// Keys by which `autoscaling` alone is known.
const SCALING_KEYS: [&str; 5] =
    ["enabled", "min_workers", "max_workers", "integration", "cooldown_seconds"];

/// A worker group.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    /// Its name, if it is told.
    pub(super) name: Option<String>,
    pub(super) config: Map<String, Value>,
    /// Its live workers, if they are told.
    pub(super) live: Option<u32>,
}

/// The groups in `text`; several values one after another are one list.
///
/// # Errors
/// Why there are none.
pub(super) fn parse(text: &str) -> Result<Vec<Row>, String> {
    let values = Deserializer::from_str(text).into_iter::<Value>().collect::<Result<Vec<_>, _>>();
    let mut values = values.map_err(|e| format!("is not JSON: {e}"))?;
    let rows = match values.len() {
        0 => return Err("is empty; paste a group's configuration".into()),
        1 => of_value(values.remove(0))?,
        _ => of_list(values)?,
    };
    let mut names: Vec<&str> = rows.iter().filter_map(|row| row.name.as_deref()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("worker group {:?} is there twice", pair[0]));
    }
    if rows.is_empty() { Err("holds no worker group".into()) } else { Ok(rows) }
}

fn of_value(value: Value) -> Result<Vec<Row>, String> {
    match value {
        Value::Array(values) => of_list(values),
        Value::Object(map) if is_row(&map) => of_list(vec![Value::Object(map)]),
        Value::Object(map) => match config(map) {
            Ok(config) => Ok(vec![Row { name: None, config, live: None }]),
            Err(map) => of_map(map),
        },
        _ => Err("is no worker group: write a JSON object, or a list of them".into()),
    }
}

fn of_list(values: Vec<Value>) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for (number, value) in (1..).zip(values) {
        let Value::Object(mut row) = value else {
            return Err(format!("item {number} is no object with `name` and `config`"));
        };
        let (Some(Value::String(name)), Some(config)) = (row.remove("name"), row.remove("config"))
        else {
            return Err(format!("item {number} has no `name` and `config`"));
        };
        let live = row.get("live").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        rows.extend(named(&name, config, live)?);
    }
    Ok(rows)
}

/// Groups by their names.
fn of_map(map: Map<String, Value>) -> Result<Vec<Row>, String> {
    if map.is_empty() || !map.values().all(|value| value.is_object() || value.is_null()) {
        return Err(format!(
            "is no worker group: it has none of {}",
            ["autoscaling", "worker_tags"]
                .iter()
                .chain(&SCALING_KEYS)
                .copied()
                .collect::<Vec<_>>()
                .join(", ")
        ));
    }
    let mut rows = Vec::new();
    for (name, value) in map {
        rows.extend(named(&name, value, None)?);
    }
    Ok(rows)
}

/// A row; none if it is about something else than a worker group.
fn named(name: &str, value: Value, live: Option<u32>) -> Result<Option<Row>, String> {
    let group = match name.strip_prefix(PREFIX) {
        Some(group) => group,
        None if name.contains("__") => return Ok(None),
        None => name,
    };
    if group.is_empty() {
        return Err("a worker group has an empty name".into());
    }
    let config = match value {
        Value::Null => Map::new(),
        Value::Object(map) => config(map).unwrap_or_else(|map| map),
        _ => return Err(format!("worker group {group:?}: its configuration is no object")),
    };
    Ok(Some(Row { name: Some(group.to_owned()), config, live }))
}

fn is_row(map: &Map<String, Value>) -> bool {
    map.get("name").is_some_and(Value::is_string) && map.contains_key("config")
}

/// A group's configuration, from it or from `autoscaling` alone; or what it is instead.
fn config(map: Map<String, Value>) -> Result<Map<String, Value>, Map<String, Value>> {
    let has = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
    if has(&GROUP_KEYS) {
        return Ok(map);
    }
    if has(&SCALING_KEYS) {
        let Value::Object(config) = json!({ "autoscaling": map }) else { return Ok(Map::new()) };
        return Ok(config);
    }
    Err(map)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(Option<String>, bool)> {
        let rows = parse(text).unwrap_or_else(|what| panic!("{text}: {what}"));
        rows.into_iter().map(|row| (row.name, row.config.contains_key("autoscaling"))).collect()
    }

    #[test]
    fn every_shape_that_people_paste() {
        let gpu = |scales| (Some("gpu".to_owned()), scales);
        let table: [(&str, &[_]); 12] = [
            (r#"{"autoscaling": {"enabled": true}}"#, &[(None, true)]),
            (r#"{"worker_tags": ["a"], "init_bash": "x"}"#, &[(None, false)]),
            (r#"{"enabled": true, "min_workers": 1, "max_workers": 2}"#, &[(None, true)]),
            (r#"{"name": "worker__gpu", "config": {"autoscaling": {}}}"#, &[gpu(true)]),
            (r#"{"name": "gpu", "config": null}"#, &[gpu(false)]),
            (r#"[{"name": "worker__gpu", "config": {"worker_tags": []}}]"#, &[gpu(false)]),
            (
                r#"[{"name": "worker__gpu", "config": {}}, {"name": "alert__x", "config": {}}]"#,
                &[gpu(false)],
            ),
            (r#"{"worker__gpu": {"autoscaling": null}}"#, &[gpu(true)]),
            (r#"{"gpu": {"min_workers": 1}}"#, &[gpu(true)]),
            (r#"{"gpu": {}}"#, &[gpu(false)]),
            (
                "{\"name\": \"gpu\", \"config\": {}}\n{\"name\": \"b\", \"config\": {}}",
                &[gpu(false), (Some("b".into()), false)],
            ),
            (r#"[{"name": "gpu", "config": {"min_workers": 1}, "live": 3}]"#, &[gpu(true)]),
        ];
        for (text, expected) in table {
            assert_eq!(names(text), expected, "{text}");
        }
    }

    #[test]
    fn anything_else_is_told_what_it_lacks() {
        let table = [
            ("", "is empty"),
            ("[]", "holds no worker group"),
            ("nonsense", "is not JSON: expected ident"),
            ("3", "is no worker group"),
            ("{}", "is no worker group: it has none of autoscaling"),
            (r#"{"foo": 1}"#, "is no worker group: it has none of autoscaling"),
            (r#"[{"config": {}}]"#, "item 1 has no `name` and `config`"),
            ("[1]", "item 1 is no object"),
            (r#"{"name": "worker__", "config": {}}"#, "empty name"),
            (
                r#"{"name": "a", "config": [1]}"#,
                "worker group \"a\": its configuration is no object",
            ),
            (
                r#"[{"name": "a", "config": {}}, {"name": "worker__a", "config": {}}]"#,
                "is there twice",
            ),
        ];
        for (text, wanted) in table {
            let what = parse(text).unwrap_err();
            assert!(what.contains(wanted), "{text}: {what}");
        }
    }
}
