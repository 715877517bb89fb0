//! Label selectors: which pods belong to whom. Several groups read one list of pods, so each picks
//! its own out of it here.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, Selector, SelectorExt};

/// Labels that must be equal, by name: what a list can be narrowed to for several groups at once.
pub(super) type Labels = BTreeSet<(String, String)>;

/// Which pods, by their labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Picks(Vec<Expression>);

impl Picks {
    /// Whether these labels are of one of them.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|expression| expression.matches(labels))
    }

    /// The labels that all of them have.
    pub(super) fn labels(&self) -> Labels {
        let equal = |expression: &Expression| match expression {
            Expression::Equal(name, value) => Some((name.clone(), value.clone())),
            _ => None,
        };
        self.0.iter().filter_map(equal).collect()
    }
}

impl From<Selector> for Picks {
    fn from(selector: Selector) -> Self {
        Self(selector.into_iter().collect())
    }
}

/// Labels as the API's `labelSelector` wants them.
pub(super) fn written(labels: &Labels) -> String {
    labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}

/// Reads a selector as `kubectl -l` and a scale's status write it.
///
/// # Errors
/// What makes no sense in it. An empty one would mean all pods of the namespace.
pub(super) fn parse(text: &str) -> Result<Picks, String> {
    let parts: Vec<&str> = split(text).into_iter().map(str::trim).collect();
    let parsed: Option<Vec<_>> = parts.iter().map(|part| expression(part)).collect();
    match parsed {
        Some(expressions) => Ok(Picks(expressions)),
        None => Err(format!("{text:?} is no label selector; write for example app=worker,tier=a")),
    }
}

/// Splits at the commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let is_comma = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        c == ',' && depth == 0
    };
    text.split(is_comma).collect()
}

fn expression(part: &str) -> Option<Expression> {
    let word = |text: &str| {
        let text = text.trim();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        text.chars().all(is_plain).then(|| text.to_owned())
    };
    let name = |text: &str| word(text).filter(|name| !name.is_empty());
    let values = |text: &str| {
        let inside = text.trim().strip_prefix('(')?.strip_suffix(')')?;
        inside.split(',').map(word).collect::<Option<BTreeSet<_>>>()
    };
    if let Some(absent) = part.strip_prefix('!') {
        return Some(Expression::DoesNotExist(name(absent)?));
    }
    if let Some((key, list)) = part.split_once(" notin ") {
        return Some(Expression::NotIn(name(key)?, values(list)?));
    }
    if let Some((key, list)) = part.split_once(" in ") {
        return Some(Expression::In(name(key)?, values(list)?));
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Expression::NotEqual(name(key)?, word(value)?));
    }
    match part.split_once("==").or_else(|| part.split_once('=')) {
        Some((key, value)) => Some(Expression::Equal(name(key)?, word(value)?)),
        None => Some(Expression::Exists(name(part)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_as_kubectl_does() {
        let labels = |text: &str| -> BTreeMap<String, String> {
            let pair = |pair: &str| pair.split_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
            text.split(' ').filter_map(pair).collect()
        };
        let worker = labels("app=worker tier=a");
        let table = [
            ("app=worker", true),
            ("app==worker,tier=a", true),
            ("app=worker,tier=b", false),
            ("tier in (a, b),app", true),
            ("tier notin (a,b)", false),
            ("tier notin (b)", true),
            ("zone!=x", true),
            ("app!=worker", false),
            ("!app", false),
            ("!zone", true),
            ("example.com/x=", false),
        ];
        for (text, expected) in table {
            assert_eq!(parse(text).unwrap().matches(&worker), expected, "{text}");
        }
        for text in ["", "a,,b", "a in b", "a=b c", "=b", "a in (b", "!"] {
            assert!(parse(text).is_err(), "{text}");
        }
        let common = parse("app=worker,tier in (a),x!=y").unwrap().labels();
        assert_eq!(written(&common), "app=worker");
    }
}
