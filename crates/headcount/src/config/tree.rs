//! A YAML document as a tree in which each key and value knows its place, so that everything that
//! is wrong can be told at once.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Location, NonFiniteFloatPolicy, Spanned};

use super::errors::ConfigError;
use crate::limits::{CONFIG_DEPTH, CONFIG_NODES};

/// A parsed document and its text.
pub(super) struct Document {
    /// The file as it was named.
    pub(super) name: String,
    /// Its text.
    pub(super) source: String,
    /// Its content.
    pub(super) root: Node,
}

/// A value and its place.
#[derive(Debug)]
pub(super) struct Node {
    /// Where it is.
    pub(super) at: At,
    /// What it is.
    pub(super) shape: Shape,
}

/// What a value is, before anybody knows what it should be.
#[derive(Debug)]
pub(super) enum Shape {
    /// Nothing was written.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(serde_json::Number),
    /// A text, variables not yet expanded.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys and values; a key may come twice.
    Map(Vec<(Key, Node)>),
}

/// A key and its place.
#[derive(Debug)]
pub(super) struct Key {
    /// Where it is.
    pub(super) at: At,
    /// Its name.
    pub(super) name: String,
}

/// A place in the text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct At {
    /// The line, from 1.
    pub(super) line: u32,
    /// The column, from 1, in characters.
    pub(super) column: u32,
    start: usize,
    length: usize,
}

/// One step of a path through the tree: a key, or an index as `[0]`.
pub(super) type Path = Vec<String>;

impl Document {
    /// Reads one document of YAML or JSON.
    ///
    /// # Errors
    /// It is no YAML, or nested too deeply, or too large: one error, at its place.
    pub(super) fn parse(text: &str, name: &str) -> Result<Self, Box<ConfigError>> {
        let options = serde_saphyr::options! {
            budget: serde_saphyr::budget! {
                max_depth: CONFIG_DEPTH,
                flow_nesting_limit: CONFIG_DEPTH,
                max_nodes: CONFIG_NODES,
            },
            alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: CONFIG_NODES },
            duplicate_keys: DuplicateKeyPolicy::PassThrough,
            non_finite_float_policy: NonFiniteFloatPolicy::AsString,
            strict_booleans: true,
            emit_comments: false,
        };
        let source = text.to_string();
        match serde_saphyr::from_str_with_options::<Node>(text, options) {
            Ok(root) => Ok(Self { name: name.into(), source, root }),
            Err(e) => Err(Box::new(syntax_error(&e, text, name))),
        }
    }

    /// The text at a place, as it was written.
    pub(super) fn text(&self, at: At) -> &str {
        self.source.get(at.start..at.start.saturating_add(at.length)).unwrap_or_default().trim()
    }

    /// The line of a place, and how many of its characters are meant.
    pub(super) fn line(&self, at: At) -> Option<(String, usize)> {
        let meant = self.text(at).lines().next().unwrap_or_default().chars().count();
        line_of(&self.source, at.line).map(|line| (line, meant))
    }

    /// The deepest node on the way along `path` that exists, with its key if it has one.
    pub(super) fn deepest(&self, path: &[String]) -> At {
        let mut at = self.root.at;
        let mut node = &self.root;
        for (i, step) in path.iter().enumerate() {
            let Some((key, child)) = node.child(step) else { return at };
            at = match (key, &child.shape) {
                // A collection is shown by its key, a value by itself.
                (Some(key), Shape::Map(_) | Shape::List(_) | Shape::Null) => key,
                (Some(key), _) if i + 1 < path.len() => key,
                _ => child.at,
            };
            node = child;
        }
        at
    }
}

impl Node {
    /// The last value with this key, or the item with this index.
    pub(super) fn child(&self, step: &str) -> Option<(Option<At>, &Self)> {
        match &self.shape {
            Shape::Map(entries) => {
                let (key, node) = entries.iter().rev().find(|(key, _)| key.name == step)?;
                Some((Some(key.at), node))
            }
            Shape::List(items) => {
                let index = step.strip_prefix('[')?.strip_suffix(']')?.parse::<usize>().ok()?;
                Some((None, items.get(index)?))
            }
            _ => None,
        }
    }

    /// What it is, for messages.
    pub(super) const fn kind(&self) -> &'static str {
        match self.shape {
            Shape::Null => "nothing",
            Shape::Bool(_) => "true or false",
            Shape::Number(_) => "a number",
            Shape::Text(_) => "a text",
            Shape::List(_) => "a list",
            Shape::Map(_) => "a mapping",
        }
    }
}

/// Splits `schedule.windows[0].min` into its steps.
pub(super) fn steps(key: &str) -> Path {
    key.replace('[', ".[").split('.').filter(|s| !s.is_empty()).map(str::to_string).collect()
}

/// Joins steps to `schedule.windows[0].min`.
pub(super) fn joined(path: &[String]) -> String {
    path.join(".").replace(".[", "[")
}

impl From<Location> for At {
    fn from(location: Location) -> Self {
        let fit = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let size = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
        let span = location.span();
        Self {
            line: fit(location.line()).max(1),
            column: fit(location.column()).max(1),
            start: size(span.byte_offset()),
            length: size(span.byte_len()),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Spanned { value, defined, .. } = Spanned::<Shape>::deserialize(from)?;
        Ok(Self { at: defined.into(), shape: value })
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ShapeVisitor)
    }
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Shape;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_none<E>(self) -> Result<Shape, E> {
        Ok(Shape::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Shape, D::Error> {
        Shape::deserialize(from)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Shape, E> {
        Ok(Shape::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Shape, E> {
        Ok(Shape::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Shape, E> {
        Ok(Shape::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Shape, E> {
        let number = serde_json::Number::from_f64(value);
        Ok(number.map_or_else(|| Shape::Text(value.to_string()), Shape::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Shape, E> {
        Ok(Shape::Text(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Shape, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Shape::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Shape, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let key = Key { at: key.defined.into(), name: key.value };
            entries.push((key, map.next_value()?));
        }
        Ok(Shape::Map(entries))
    }
}

fn line_of(text: &str, line: u32) -> Option<String> {
    let line = text.lines().nth((line as usize).checked_sub(1)?)?;
    Some(line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
}

/// The parser's complaint in one line, with the fix of the usual mistakes.
fn syntax_error(error: &Error, text: &str, name: &str) -> ConfigError {
    let at = error.location().map(At::from);
    let whole = error.without_snippet().to_string();
    let said = at.map_or(whole.as_str(), |at| {
        let suffix = format!(" at line {}, column {}", at.line, at.column);
        whole.strip_suffix(&suffix).map_or(whole.as_str(), |said| said)
    });
    let line = at.and_then(|at| text.lines().nth(at.line as usize - 1)).unwrap_or_default();
    let what = if said.starts_with("multiple YAML documents") {
        "a second document starts here; keep one, without `---` in between".into()
    } else if said.starts_with("budget breached") || said.contains("limit") {
        format!("too large or nested too deeply ({said})")
    } else if line.trim_start_matches(' ').starts_with('\t') {
        "a tab cannot indent in YAML; use spaces".into()
    } else if said.contains("flow mapping") && line.contains("${") {
        format!("{said}; inside {{ }} put variables in quotes: \"${{NAME}}\"")
    } else if said.contains("expected key") || said.contains("mapping values are not allowed") {
        format!("not valid YAML: {said}; is the line indented like its neighbours?")
    } else {
        format!("not valid YAML: {said}")
    };
    ConfigError {
        file: name.into(),
        line: at.map(|at| at.line),
        column: at.map(|at| at.column),
        key: String::new(),
        what,
        shown: at.and_then(|at| line_of(text, at.line)).map(|line| (line, 1)),
    }
}
