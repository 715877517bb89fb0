//! The JSON Schema of a configuration: generated from the types, printed by `headcount schema`, and
//! the yardstick that files are checked with.

use headcount_core::Span;
use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::tree::Shape;

/// A length of time as people write it (`30s`, `1m 30s`), or as ISO 8601 does (`PT1M30S`).
pub(super) const DURATION: &str = r"^(P.+|(\d+(\.\d+)?\s*[a-zµ]+[\s,]*)+)$";

/// A variable: `${NAME}`, `${NAME:-default}`.
const VARIABLE: &str = r"^\$\{.+\}$";

/// In place of a part that has a key of this name.
const OFF: &str = "off";

/// The schema of `T`, which a file is compared with.
pub(super) fn of<T: JsonSchema>() -> Value {
    let readable = RecursiveTransform(as_people_write);
    let settings = SchemaSettings::draft2020_12().with_transform(readable);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// The schema of `T` for editors, which see files before variables are filled in: where a number, a
/// truth value or a length of time is wanted, a variable may stand too.
pub(super) fn for_editors<T: JsonSchema>() -> Value {
    let readable = RecursiveTransform(as_people_write);
    let settings =
        SchemaSettings::draft2020_12().with_transform(readable).with_transform(Variables);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Allows [`VARIABLE`] where a type excludes it, and [`OFF`] where a part can be switched off.
#[derive(Clone, Debug)]
struct Variables;

impl Transform for Variables {
    fn transform(&mut self, schema: &mut Schema) {
        // The parts first: what is added here must not be visited.
        transform_subschemas(self, schema);
        let types = match schema.get("type") {
            Some(Value::String(one)) => vec![one.as_str()],
            Some(many) => strings(many),
            None => return,
        };
        if !schema.get("properties").is_none_or(|parts| parts["off"].is_null()) {
            let ways = [json!({ "const": OFF }), json!({ "const": false })];
            return allow(schema, ways);
        }
        let excludes = ["integer", "number", "boolean"].iter().any(|t| types.contains(t));
        if !excludes && schema.get("pattern").is_none() {
            return;
        }
        allow(schema, [json!({ "type": "string", "pattern": VARIABLE })]);
    }
}

/// Allows `others` beside what is allowed already.
fn allow(schema: &mut Schema, others: impl IntoIterator<Item = Value>) {
    let about = ["title", "description", "default", "examples", "writeOnly"];
    let parts = schema.ensure_object();
    let is_about = |key: &String| about.contains(&key.as_str());
    let (kept, value): (Map<_, _>, Map<_, _>) =
        std::mem::take(parts).into_iter().partition(|(key, _)| is_about(key));
    *parts = kept;
    let ways: Vec<_> = std::iter::once(Value::Object(value)).chain(others).collect();
    parts.insert("anyOf".into(), ways.into());
}

/// Makes it fit what people write: `format: duration` would mean ISO 8601 only.
fn as_people_write(schema: &mut Schema) {
    if let Some(Value::String(text)) = schema.get_mut("description") {
        // Links in the documentation of the program.
        *text = text.replace("[`", "`").replace("`]", "`");
    }
    if schema.get("format") == Some(&json!("duration")) {
        schema.remove("format");
        schema.insert("pattern".into(), json!(DURATION));
        schema.insert("examples".into(), json!(["30s", "1m 30s", "2h"]));
        let default = schema.get("default").and_then(Value::as_str);
        if let Some(span) = default.and_then(|text| text.parse::<Span>().ok()) {
            schema.insert("default".into(), json!(format!("{span:#}")));
        }
    }
}

/// One part of a schema, references followed.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    root: &'a Value,
    part: &'a Value,
}

/// A way to write an enum: its name, and the part for its content unless the name is all.
pub(super) type Variant<'a> = (&'a str, Option<Part<'a>>);

impl<'a> Part<'a> {
    /// The whole schema.
    pub(super) fn root(root: &'a Value) -> Self {
        Self { root, part: root }
    }

    fn sub(self, part: &'a Value) -> Self {
        let target = part["$ref"].as_str().and_then(|r| self.root.pointer(r.strip_prefix('#')?));
        match target {
            Some(target) => Self { root: self.root, part: target }.sub(target),
            None => Self { root: self.root, part },
        }
    }

    /// What the schema says under `keyword`; null if nothing.
    pub(super) fn says(self, keyword: &str) -> &'a Value {
        &self.part[keyword]
    }

    /// A number that the schema gives under `keyword`.
    pub(super) fn number(self, keyword: &str) -> Option<f64> {
        self.part[keyword].as_f64()
    }

    /// The part for the property `name`.
    pub(super) fn property(self, name: &str) -> Option<Self> {
        self.part["properties"].get(name).map(|part| self.sub(part))
    }

    /// The names of all properties.
    pub(super) fn properties(self) -> Vec<&'a str> {
        let properties = self.part["properties"].as_object();
        properties.map(|p| p.keys().map(String::as_str).collect()).unwrap_or_default()
    }

    /// The part for values of other keys; `None` if there may be none.
    pub(super) fn other_properties(self) -> Option<Self> {
        match &self.part["additionalProperties"] {
            Value::Bool(false) => None,
            part => Some(self.sub(part)),
        }
    }

    /// Whether keys that begin with `x-` are the user's own.
    pub(super) fn allows_extensions(self) -> bool {
        !self.part["patternProperties"]["^x-"].is_null()
    }

    /// The keys that must be there.
    pub(super) fn required(self) -> Vec<&'a str> {
        strings(&self.part["required"])
    }

    /// The part for the items of a list.
    pub(super) fn items(self) -> Self {
        self.sub(&self.part["items"])
    }

    /// The types that a value may have; empty if any.
    pub(super) fn types(self) -> Vec<&'a str> {
        match &self.part["type"] {
            Value::String(one) => vec![one],
            many => strings(many),
        }
    }

    /// The alternatives, without the one for "nothing".
    fn branches(self) -> Vec<Self> {
        let branches = self.part["anyOf"].as_array().or(self.part["oneOf"].as_array());
        let branches = branches.map(Vec::as_slice).unwrap_or_default().iter();
        branches.map(|part| self.sub(part)).filter(|part| part.types() != ["null"]).collect()
    }

    /// Whether nothing may stand here.
    pub(super) fn allows_null(self) -> bool {
        let branches = self.part["anyOf"].as_array().or(self.part["oneOf"].as_array());
        let mut branches = branches.map(Vec::as_slice).unwrap_or_default().iter();
        self.types().contains(&"null") || branches.any(|part| part["type"] == "null")
    }

    /// The only alternative to "nothing", or the only one that a value of this shape may fit.
    pub(super) fn branch_for(self, shape: &Shape) -> Option<Self> {
        let fits = |part: &Self| match shape {
            Shape::Null => false,
            Shape::List(_) => part.types() == ["array"],
            Shape::Map(_) => part.types() == ["object"],
            _ => !matches!(part.types().as_slice(), ["array"] | ["object"]),
        };
        let branches = self.branches();
        let mut fitting = branches.iter().filter(|part| branches.len() == 1 || fits(part));
        let first = fitting.next()?;
        fitting.next().is_none().then_some(*first)
    }

    /// The variants of an externally tagged enum; empty if this is none.
    pub(super) fn variants(self) -> Vec<Variant<'a>> {
        if let names @ [_, ..] = strings(&self.part["enum"]).as_slice() {
            return names.iter().map(|name| (*name, None)).collect();
        }
        let variants = self.branches().into_iter().map(Self::as_variant);
        variants.collect::<Option<Vec<_>>>().unwrap_or_default().concat()
    }

    fn as_variant(self) -> Option<Vec<Variant<'a>>> {
        if let Some(name) = self.part["const"].as_str() {
            return Some(vec![(name, None)]);
        }
        if let names @ [_, ..] = strings(&self.part["enum"]).as_slice() {
            return Some(names.iter().map(|name| (*name, None)).collect());
        }
        match (self.properties().as_slice(), self.required().as_slice()) {
            ([name], [required]) if name == required => {
                Some(vec![(*name, Some(self.property(name)?))])
            }
            _ => None,
        }
    }
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().map(|l| l.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::json_schema;

    /// Whether `value` fits `part`, by the keywords that decide about variables. `None` if so, else
    /// where and why not.
    fn misfit(root: &Value, part: &Value, value: &Value, at: &str) -> Option<String> {
        if let Some(to) = part["$ref"].as_str() {
            return misfit(root, root.pointer(&to[1..]).unwrap(), value, at);
        }
        if let Some(ways) = part["anyOf"].as_array().or(part["oneOf"].as_array()) {
            let wrong: Vec<_> = ways.iter().map(|way| misfit(root, way, value, at)).collect();
            let fits = wrong.iter().filter(|wrong| wrong.is_none()).count();
            let one_only = !part["oneOf"].is_null();
            return (fits == 0 || one_only && fits > 1).then(|| format!("{at}: {wrong:?}"));
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(n) if n.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let types = Part::root(part).types();
        let fits = |t: &&str| *t == kind || (*t, kind) == ("number", "integer");
        if !types.is_empty() && !types.iter().any(fits) {
            return Some(format!("{at} is {kind}, not {types:?}"));
        }
        let fits = match (part["pattern"].as_str(), value.as_str()) {
            (Some(VARIABLE), Some(text)) => text.starts_with("${") && text.ends_with('}'),
            (Some(DURATION), Some(text)) => text.parse::<Span>().is_ok(),
            (Some(other), _) => panic!("a new pattern: {other}"),
            _ => part["const"].is_null() || part["const"] == *value,
        };
        if !fits {
            return Some(format!("{at}: {value} does not fit {part}"));
        }
        let child = |(key, value): (&String, &Value)| {
            if Part::root(part).allows_extensions() && key.starts_with("x-") {
                return None;
            }
            let own = part["properties"].get(key);
            let other = part.get("additionalProperties").filter(|p| p.is_object());
            match own.or(other) {
                Some(part) => misfit(root, part, value, &format!("{at}.{key}")),
                None => (part["additionalProperties"] == false)
                    .then(|| format!("{at}.{key} is unknown")),
            }
        };
        let lacks = |key: &&str| value.get(key).is_none();
        let missing = Part::root(part).required().into_iter().find(lacks);
        let missing = missing.filter(|_| kind == "object").map(|key| format!("{at}: no {key}"));
        missing.or_else(|| value.as_object()?.iter().find_map(child)).or_else(|| {
            let items = value.as_array()?.iter().enumerate();
            items
                .into_iter()
                .find_map(|(i, item)| misfit(root, &part["items"], item, &format!("{at}[{i}]")))
        })
    }

    fn said(text: &str) -> Option<String> {
        let schema = json_schema();
        misfit(&schema, &schema, &serde_saphyr::from_str(text).unwrap(), "file")
    }

    #[test]
    fn editors_accept_the_examples_and_variables() {
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        let mut seen = 0;
        for entry in std::fs::read_dir(examples).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            if text.contains("\ngroups:") || text.starts_with("groups:") {
                assert_eq!(said(&text), None, "{path:?}");
                seen += 1;
            }
        }
        assert!(seen > 0, "no example in {examples}");
        let group = |workers: &str| {
            format!(
                "groups: {{a: {{workers: {workers}, queue: {{demo: {{database: d}}}}, target: {{dry_run: {{}}}}}}}}"
            )
        };
        assert_eq!(said(&group(r#"{max: "${N}", start_up: "${T:-30s}"}"#)), None);
        assert_eq!(said(&group("{max: 3, start_up: 30s}")), None);
        let ruled =
            |rules: &str| group("{max: 3}").replace("workers:", &format!("{rules}, workers:"));
        for off in ["brake: off", "brake: false", "capacity: off", "brake: {off: true}"] {
            assert_eq!(said(&ruled(off)), None, "{off}");
        }
        assert_eq!(said(&ruled("brake: {cpu: off, memory: {resume: 1}}")), None);
        for wrong in ["brake: on", "brake: true", "capacity: none", "brake: {cpu: on}"] {
            assert!(said(&ruled(wrong)).is_some(), "{wrong}");
        }
        for wrong in ["{max: many}", "{start_up: soon}", "{max: true}", "{mx: 3}"] {
            assert!(said(&group(wrong)).is_some(), "{wrong}");
        }
    }
}
