//! Reads a typed value from a document and collects everything that is wrong on the way.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::Segment;

use super::errors::ConfigError;
use super::expand::Lookup;
use super::schema;
use super::tree::{Document, Path, steps};
use super::walk::Walk;

/// How often reading is tried again without the part that was wrong.
const TRIES: usize = 1000;

/// A value, as far as it could be read, and what is wrong.
pub(super) struct Read<'a, T> {
    /// The value without the parts that were wrong.
    pub(super) value: Option<T>,
    /// What is wrong.
    pub(super) findings: Findings<'a>,
}

/// What is wrong with a document.
pub(super) struct Findings<'a>(Walk<'a>);

/// Reads `doc` as a `T`, with variables from `lookup`.
pub(super) fn read<'a, T: DeserializeOwned + JsonSchema>(
    doc: &'a Document,
    lookup: Lookup<'a>,
) -> Read<'a, T> {
    let mut walk = Walk::new(doc, lookup);
    let value = walk.whole(&schema::of::<T>());
    let value = value.and_then(|value| typed(value, &mut walk));
    Read { value, findings: Findings(walk) }
}

/// The typed value. What only its type can tell is wrong (a time zone that does not exist) is noted
/// and left out, until the rest can be read.
fn typed<T: DeserializeOwned>(mut value: Value, walk: &mut Walk<'_>) -> Option<T> {
    for _ in 0..TRIES {
        let error = match serde_path_to_error::deserialize::<_, T>(&value) {
            Ok(typed) => return Some(typed),
            Err(error) => error,
        };
        let path = path_of(error.path());
        // Something that was left out above may be missed here.
        if !walk.bad.iter().any(|bad| bad.starts_with(&path)) {
            walk.refused(path.clone(), &error.inner().to_string());
        }
        let (last, parents) = path.split_last()?;
        let parent =
            parents.iter().try_fold(&mut value, |value, step| match step.strip_prefix('[') {
                Some(index) => value.get_mut(index.trim_end_matches(']').parse::<usize>().ok()?),
                None => value.get_mut(step),
            });
        match parent? {
            Value::Object(map) => map.remove(last)?,
            list => list.take(),
        };
    }
    None
}

fn path_of(path: &serde_path_to_error::Path) -> Path {
    let step = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(format!("[{index}]")),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { variant } => Some(variant.clone()),
        Segment::Unknown => None,
    };
    path.iter().filter_map(step).collect()
}

impl Findings<'_> {
    /// Notes what is wrong with the key `key` below `base`.
    pub(super) fn problem(&mut self, base: &[String], key: &str, what: &str) {
        self.problems(base, vec![(key.into(), what.into())]);
    }

    /// Notes a list of (key, what is wrong) below `base`, except what was compared with something
    /// that is wrong itself.
    pub(super) fn problems(&mut self, base: &[String], mut found: Vec<(String, String)>) {
        let spoilt = |path: &Path| self.0.bad.iter().any(|bad| bad.starts_with(path));
        let bounds = spoilt(&[base, &["workers".to_string()]].concat());
        found.retain(|(key, _)| {
            let first: Path = steps(key).into_iter().take(1).collect();
            first.is_empty() || !(bounds || spoilt(&[base, &first].concat()))
        });
        for (key, what) in found {
            self.0.wrong_at([base, &steps(&key)].concat(), what);
        }
    }

    /// Whether nothing is wrong so far.
    pub(super) fn is_empty(&self) -> bool {
        self.0.errors.is_empty()
    }

    /// All that is wrong.
    pub(super) fn into_errors(self) -> Vec<ConfigError> {
        self.0.into_errors()
    }
}
