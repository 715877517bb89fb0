//! Compares a document with a schema, all of it, and makes the values that the types are read from.
//! Scalars become what the schema wants: a variable's content is a number where one is expected and
//! stays a text where a text is.

use std::collections::{BTreeSet, HashMap};

use headcount_core::Span;
use serde_json::{Map, Number, Value};

use super::errors::ConfigError;
use super::expand::{Lookup, expand};
use super::schema::{DURATION, Part};
use super::tree::{At, Document, Key, Node, Path, Shape, joined};

/// The walk along a document, and everything it finds.
pub(super) struct Walk<'a> {
    doc: &'a Document,
    lookup: Lookup<'a>,
    path: Path,
    /// What is wrong.
    pub(super) errors: Vec<ConfigError>,
    /// The paths of what is wrong: what depends on them is not judged.
    pub(super) bad: Vec<Path>,
    /// Contents of variables and how they were written, to be kept out of messages.
    hidden: Vec<(String, String)>,
    secret_lines: BTreeSet<u32>,
}

impl<'a> Walk<'a> {
    /// A walk along `doc`, with variables from `lookup`.
    pub(super) fn new(doc: &'a Document, lookup: Lookup<'a>) -> Self {
        let (path, errors, bad, hidden) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { doc, lookup, path, errors, bad, hidden, secret_lines: BTreeSet::new() }
    }

    /// The document's value, without what is wrong in it.
    pub(super) fn whole(&mut self, schema: &Value) -> Option<Value> {
        self.value(&self.doc.root, Part::root(schema))
    }

    /// Notes something that is wrong with the key at `path`.
    pub(super) fn wrong_at(&mut self, path: Path, what: impl Into<String>) {
        self.wrong(path.clone(), self.doc.deepest(&path), what.into());
    }

    /// Notes that a type refused what is at `path`.
    pub(super) fn refused(&mut self, path: Path, why: &str) {
        let at = self.doc.deepest(&path);
        let text = self.doc.text(at);
        let plain = text.trim_matches(['"', '\'']);
        let what = if why.contains("duration format") {
            duration(plain).err().unwrap_or_else(|| why.to_string())
        } else if why.starts_with("failed to parse two digit integer as") {
            let instead = match plain.starts_with("24:") {
                true => "write \"00:00\" for midnight",
                false => "write e.g. \"08:00\"",
            };
            format!("`{}` is not a time of day; {instead}", clip(plain))
        } else if text.is_empty() || why.contains(plain) {
            why.to_string()
        } else {
            format!("{} does not fit here: {why}", clip(text))
        };
        self.wrong(path, at, what);
    }

    fn wrong(&mut self, path: Path, at: At, what: String) {
        let what = self.hide(what);
        self.errors.push(ConfigError {
            file: self.doc.name.clone(),
            line: Some(at.line),
            column: Some(at.column),
            key: joined(&path),
            what,
            shown: self.doc.line(at),
        });
        self.bad.push(path);
    }

    /// All errors; lines that hold a secret are not shown.
    pub(super) fn into_errors(mut self) -> Vec<ConfigError> {
        for error in &mut self.errors {
            if error.line.is_some_and(|line| self.secret_lines.contains(&line)) {
                error.shown = None;
            }
        }
        self.errors
    }

    /// A message with the contents of variables as they were written.
    fn hide(&self, what: String) -> String {
        let hide = |what: String, (value, written): &(String, String)| {
            what.replace(value.as_str(), written)
                .replace(&value.escape_debug().to_string(), written)
        };
        self.hidden.iter().fold(what, hide)
    }

    fn here(&mut self, at: At, what: impl Into<String>) -> Option<Value> {
        self.wrong(self.path.clone(), at, what.into());
        None
    }

    fn value(&mut self, node: &Node, part: Part<'_>) -> Option<Value> {
        if part.says("writeOnly") == &Value::Bool(true) {
            self.secret_lines.insert(node.at.line);
        }
        if part.allows_null() && matches!(node.shape, Shape::Null) {
            return Some(Value::Null);
        }
        let variants = part.variants();
        if !variants.is_empty() {
            return self.variant(node, &variants);
        }
        if let Some(branch) = part.branch_for(&node.shape) {
            return self.value(node, branch);
        }
        let types: Vec<&str> = part.types().into_iter().filter(|t| *t != "null").collect();
        match types.as_slice() {
            ["object"] => self.mapping(node, part),
            ["array"] => self.list(node, part),
            ["string"] => self.string(node, part),
            ["integer"] => self.number(node, part, true),
            ["number"] => self.number(node, part, false),
            ["boolean"] => self.boolean(node),
            _ => self.anything(node),
        }
    }

    /// A value of which the schema says nothing: as YAML sees it.
    fn anything(&mut self, node: &Node) -> Option<Value> {
        match &node.shape {
            Shape::Null => Some(Value::Null),
            Shape::Bool(b) => Some(Value::Bool(*b)),
            Shape::Number(n) => Some(Value::Number(n.clone())),
            Shape::Text(text) => self.expanded(node, text).map(|(text, _)| Value::String(text)),
            Shape::List(items) => {
                let items: Vec<_> = items.iter().map(|item| self.anything(item)).collect();
                items.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
            }
            Shape::Map(entries) => {
                let entry =
                    |(key, node): &(Key, Node)| Some((key.name.clone(), self.anything(node)?));
                let entries: Vec<_> = entries.iter().map(entry).collect();
                entries.into_iter().collect::<Option<Map<_, _>>>().map(Value::Object)
            }
        }
    }

    /// A text with its variables replaced, and whether it had any.
    fn expanded(&mut self, node: &Node, text: &str) -> Option<(String, bool)> {
        match expand(text, self.lookup) {
            Ok(done) => {
                let whole = done.named.then(|| done.text.clone());
                for value in done.values.into_iter().chain(whole) {
                    // Short ones would garble messages and tell nothing.
                    if value.len() > 2 {
                        self.hidden.push((value, text.to_string()));
                    }
                }
                Some((done.text, done.named))
            }
            Err(wrong) => {
                for what in wrong {
                    self.here(node.at, what);
                }
                None
            }
        }
    }

    fn mapping(&mut self, node: &Node, part: Part<'_>) -> Option<Value> {
        let entries: &[(Key, Node)] = match &node.shape {
            Shape::Map(entries) => entries,
            Shape::Null => &[],
            _ if part.property("off").is_some() => return self.switched_off(node),
            _ => return self.here(node.at, format!("must be a mapping, not {}", node.kind())),
        };
        let mut first: HashMap<&str, u32> = HashMap::new();
        let mut map = Map::new();
        for (key, child) in entries {
            self.path.push(key.name.clone());
            if let Some(line) = first.get(key.name.as_str()) {
                let what = format!("is given twice, first in line {line}; keep one");
                self.here(key.at, what);
            } else if let Some(part) = part.property(&key.name) {
                map.extend(self.value(child, part).map(|value| (key.name.clone(), value)));
            } else if part.allows_extensions() && key.name.starts_with("x-") {
                // The user's own, for anchors and notes.
            } else if let Some(part) = part.other_properties() {
                map.extend(self.value(child, part).map(|value| (key.name.clone(), value)));
            } else {
                self.unknown_key(key, &part.properties());
            }
            first.entry(&key.name).or_insert(key.at.line);
            self.path.pop();
        }
        for name in part.required().into_iter().filter(|name| !first.contains_key(name)) {
            let at = self.doc.deepest(&self.path);
            let kinds = part.property(name).map(|p| names(&p.variants())).unwrap_or_default();
            let hint = if kinds.is_empty() {
                String::new()
            } else {
                format!("; write `{name}: {{ KIND: ... }}` with one of {}", kinds.join(", "))
            };
            self.here(at, format!("key `{name}` is missing{hint}"));
        }
        Some(Value::Object(map))
    }

    /// A part with a key `off` may be that word alone, or what YAML 1.1 made of it.
    fn switched_off(&mut self, node: &Node) -> Option<Value> {
        let is_off = match &node.shape {
            Shape::Bool(value) => !value,
            Shape::Text(text) => matches!(self.expanded(node, text)?.0.trim(), "off" | "false"),
            _ => false,
        };
        if is_off {
            return Some(Value::Object(Map::from_iter([("off".into(), Value::Bool(true))])));
        }
        let what = format!("must be a mapping, or `off` (also `false`), not {}", node.kind());
        self.here(node.at, what)
    }

    /// An unknown key. Its value is not shown: it may be a secret under a misspelt name.
    fn unknown_key(&mut self, key: &Key, known: &[&str]) {
        self.here(key.at, format!("unknown key{}", instead(&key.name, known)));
        if let Some(error) = self.errors.last_mut() {
            let end = (key.at.column as usize - 1).saturating_add(key.name.chars().count());
            let cut = |(line, meant): (String, usize)| (line.chars().take(end).collect(), meant);
            error.shown = error.shown.take().map(cut);
        }
    }

    /// An externally tagged enum: a name, or a mapping of one name to its content.
    fn variant(&mut self, node: &Node, variants: &[(&str, Option<Part<'_>>)]) -> Option<Value> {
        let known = names(variants);
        match &node.shape {
            Shape::Text(text) => {
                let (name, _) = self.expanded(node, text)?;
                match variants.iter().find(|(known, _)| *known == name) {
                    Some((_, None)) => Some(Value::String(name)),
                    Some((_, Some(_))) => {
                        self.here(node.at, format!("needs a mapping: write `{{ {text}: {{}} }}`"))
                    }
                    None => {
                        let what = format!("`{}` is unknown{}", clip(text), instead(&name, &known));
                        self.here(node.at, what)
                    }
                }
            }
            Shape::Map(entries) if entries.len() == 1 => {
                let (key, child) = &entries[0];
                self.path.push(key.name.clone());
                let value = match variants.iter().find(|(known, _)| *known == key.name) {
                    Some((_, Some(part))) => self.value(child, *part),
                    Some((name, None)) => {
                        self.here(key.at, format!("takes nothing; write only `{name}`"))
                    }
                    None => {
                        self.unknown_key(key, &known);
                        None
                    }
                };
                self.path.pop();
                Some(Value::Object(Map::from_iter([(key.name.clone(), value?)])))
            }
            Shape::Map(entries) => {
                let at = self.doc.deepest(&self.path);
                let what =
                    format!("needs exactly one of {}, has {}", known.join(", "), entries.len());
                self.here(at, what)
            }
            _ => {
                let what = format!("must be one of {}, not {}", known.join(", "), node.kind());
                self.here(node.at, what)
            }
        }
    }

    fn list(&mut self, node: &Node, part: Part<'_>) -> Option<Value> {
        let Shape::List(items) = &node.shape else {
            let what = format!("must be a list, not {}", node.kind());
            return self.here(node.at, what);
        };
        if part.number("minItems").is_some_and(|least| (items.len() as f64) < least) {
            return self.here(node.at, "must not be empty");
        }
        let mut values = Vec::new();
        for (i, item) in items.iter().enumerate() {
            self.path.push(format!("[{i}]"));
            values.push(self.value(item, part.items()));
            self.path.pop();
        }
        values.into_iter().collect::<Option<Vec<_>>>().map(Value::Array)
    }

    fn string(&mut self, node: &Node, part: Part<'_>) -> Option<Value> {
        let secret = part.says("writeOnly") == &Value::Bool(true);
        let is_duration = part.says("pattern") == DURATION;
        let text = match &node.shape {
            Shape::Text(text) => self.expanded(node, text)?.0,
            Shape::Number(_) | Shape::Bool(_) => self.doc.text(node.at).to_string(),
            Shape::Null if is_duration => return self.here(node.at, "is empty; write e.g. 30s"),
            Shape::Null => return self.here(node.at, "is empty; write a text, or remove the key"),
            _ => return self.here(node.at, format!("must be a text, not {}", node.kind())),
        };
        if secret && text.len() > 2 {
            self.hidden.push((text.clone(), "***".into()));
        }
        if is_duration && let Err(what) = duration(&text) {
            return self.here(node.at, what);
        }
        if let Some(wanted) = part.says("const").as_str().filter(|wanted| *wanted != text) {
            return self.here(node.at, format!("must be `{wanted}`"));
        }
        if part.number("minLength").is_some_and(|least| (text.chars().count() as f64) < least) {
            return self.here(node.at, "must not be empty");
        }
        Some(Value::String(text))
    }

    fn boolean(&mut self, node: &Node) -> Option<Value> {
        let value = match &node.shape {
            Shape::Bool(value) => return Some(Value::Bool(*value)),
            Shape::Text(text) => self.expanded(node, text)?,
            _ => return self.here(node.at, format!("must be true or false, not {}", node.kind())),
        };
        match (value.0.trim(), value.1) {
            ("true", true) => Some(Value::Bool(true)),
            ("false", true) => Some(Value::Bool(false)),
            _ => {
                let written = clip(self.doc.text(node.at)).to_string();
                self.here(
                    node.at,
                    format!("{written} is neither true nor false; write one of them"),
                )
            }
        }
    }

    fn number(&mut self, node: &Node, part: Part<'_>, whole: bool) -> Option<Value> {
        let noun = if whole { "a whole number" } else { "a number" };
        let written = clip(self.doc.text(node.at)).to_string();
        let number = match &node.shape {
            Shape::Number(number) => number.clone(),
            Shape::Text(text) => {
                let (text, named) = self.expanded(node, text)?;
                match parsed(&text) {
                    Some(number) if named => number,
                    Some(_) => {
                        let what = format!("{written} is a text; write {noun} without quotes");
                        return self.here(node.at, what);
                    }
                    None => return self.here(node.at, format!("{written} is not {noun}")),
                }
            }
            _ => return self.here(node.at, format!("must be {noun}, not {}", node.kind())),
        };
        if whole && !number.is_i64() && !number.is_u64() {
            return self.here(node.at, format!("{written} is not {noun}"));
        }
        match out_of_range(number.as_f64().unwrap_or(f64::NAN), part) {
            Some(what) => self.here(node.at, format!("{written} {what}")),
            None => Some(Value::Number(number)),
        }
    }
}

/// The number that a variable's content is.
fn parsed(text: &str) -> Option<Number> {
    let text = text.trim();
    let whole =
        text.parse::<u64>().map(Number::from).or_else(|_| text.parse::<i64>().map(Number::from));
    whole.ok().or_else(|| Number::from_f64(text.parse().ok()?))
}

fn out_of_range(value: f64, part: Part<'_>) -> Option<String> {
    let most = match part.says("format").as_str() {
        Some("uint8") => f64::from(u8::MAX),
        Some("uint16") => f64::from(u16::MAX),
        Some("uint32") => f64::from(u32::MAX),
        Some("int32") => f64::from(i32::MAX),
        _ => f64::INFINITY,
    };
    let most = part.number("maximum").unwrap_or(most).min(most);
    let least = part.number("minimum").unwrap_or(f64::NEG_INFINITY);
    if value < least {
        return Some(format!("is not {least} or more"));
    }
    if let Some(least) = part.number("exclusiveMinimum").filter(|least| value <= *least) {
        return Some(format!("is not above {least}"));
    }
    (value > most).then(|| format!("is above {most}, the most there may be"))
}

/// Whether a text is a length of time; if not, what to write.
fn duration(text: &str) -> Result<(), String> {
    if text.trim().parse::<f64>().is_ok() {
        return Err(format!("{text} has no unit; write {text}s for seconds, or m, h, ms"));
    }
    match text.parse::<Span>() {
        Ok(span) if span.is_negative() => Err(format!("{text} is negative; must be 0s or more")),
        Ok(_) => Ok(()),
        Err(_) => Err(format!(
            "`{}` is not a length of time; write e.g. 500ms, 30s, 1m 30s or 2h",
            clip(text)
        )),
    }
}

fn names<'a>(variants: &[(&'a str, Option<Part<'_>>)]) -> Vec<&'a str> {
    variants.iter().map(|(name, _)| *name).collect()
}

/// What was probably meant, or what there is.
pub(super) fn instead(name: &str, known: &[&str]) -> String {
    let plain = |s: &str| s.to_lowercase().replace(['-', '_'], "");
    let distance = |other: &&&str| {
        let letters = strsim::damerau_levenshtein(&plain(name), &plain(other));
        // A word too many (`grace_seconds`) is as near as a wrong letter.
        let more = plain(name).starts_with(&plain(other));
        (if more { letters.min(1) } else { letters }, letters)
    };
    let nearest = known.iter().min_by_key(distance);
    match nearest.filter(|other| distance(other).0 <= name.chars().count().div_ceil(3)) {
        Some(other) => format!("; did you mean `{other}`?"),
        None if known.is_empty() => "; there are no keys here".into(),
        None => format!("; known are {}", known.join(", ")),
    }
}

/// The beginning of a text, for messages.
fn clip(text: &str) -> std::borrow::Cow<'_, str> {
    let one_line = |c: char| if c.is_control() { ' ' } else { c };
    let short: String = text.chars().map(one_line).take(60).collect();
    if short == text { text.into() } else { format!("{short}...").into() }
}
