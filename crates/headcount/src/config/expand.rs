//! `${NAME}`, `${NAME:-default}` and `$$` inside scalars. Done on single values after the file is
//! parsed, so that no variable's content can change the file's structure.

use std::env::VarError;

/// Where variables come from: the environment, or a table in tests.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Result<String, VarError>;

/// A text with its variables replaced.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Expanded {
    /// The result.
    pub(super) text: String,
    /// The values that came from outside, to be kept out of messages.
    pub(super) values: Vec<String>,
    /// Whether the text named a variable at all.
    pub(super) named: bool,
}

/// Replaces all variables in `text`.
///
/// # Errors
/// Everything that is wrong with them.
pub(super) fn expand(text: &str, lookup: Lookup<'_>) -> Result<Expanded, Vec<String>> {
    let mut done = Expanded::default();
    let mut wrong = Vec::new();
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        let (before, from) = rest.split_at(dollar);
        done.text += before;
        rest = if let Some(after) = from.strip_prefix("$$") {
            done.text.push('$');
            after
        } else if let Some(after) = from.strip_prefix("${") {
            let Some((inside, after)) = after.split_once('}') else {
                wrong.push("`${` without `}`; for a plain dollar write `$$`".into());
                break;
            };
            done.named = true;
            match value(inside, lookup) {
                Ok((value, from_outside)) => {
                    done.text += &value;
                    done.values.extend(from_outside.then_some(value));
                }
                Err(what) => wrong.push(what),
            }
            after
        } else {
            done.text.push('$');
            &from[1..]
        };
    }
    done.text += rest;
    if wrong.is_empty() { Ok(done) } else { Err(wrong) }
}

/// The value of what stands between the braces, and whether it came from outside.
fn value(inside: &str, lookup: Lookup<'_>) -> Result<(String, bool), String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(fits) || name.starts_with(|c: char| c.is_numeric()) {
        return Err(format!(
            "`${{{inside}}}` is no variable; write ${{NAME}} or ${{NAME:-default}}, and `$$` for a plain dollar"
        ));
    }
    match (lookup(name), default) {
        (Ok(value), Some(default)) if value.is_empty() => Ok((default.into(), false)),
        (Ok(value), _) => Ok((value, true)),
        (Err(VarError::NotPresent), Some(default)) => Ok((default.into(), false)),
        (Err(VarError::NotPresent), None) => Err(format!(
            "variable {name} is not set; set it, or give a default: ${{{name}:-default}}"
        )),
        (Err(VarError::NotUnicode(_)), _) => Err(format!("variable {name} is not valid UTF-8")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> Result<String, VarError> {
        match name {
            "HOST" => Ok("redis".into()),
            "EMPTY" => Ok(String::new()),
            "NESTED" => Ok("${HOST}".into()),
            _ => Err(VarError::NotPresent),
        }
    }

    #[test]
    fn replaces_variables_once() {
        let cases = [
            ("plain", "plain"),
            ("${HOST}", "redis"),
            ("redis://${HOST}:${PORT:-6379}/0", "redis://redis:6379/0"),
            ("${EMPTY}", ""),
            ("${EMPTY:-x}", "x"),
            ("${NONE:-}", ""),
            ("${NONE:-a:-b}", "a:-b"),
            ("${NESTED}", "${HOST}"),
            ("$HOST costs 5$", "$HOST costs 5$"),
            ("$$", "$"),
            ("$${HOST}", "${HOST}"),
            ("$$$${HOST}", "$${HOST}"),
            ("ä${HOST}ö", "äredisö"),
        ];
        for (text, wanted) in cases {
            assert_eq!(expand(text, &table).map(|e| e.text), Ok(wanted.into()), "{text}");
        }
    }

    #[test]
    fn tells_everything_that_is_wrong() {
        let wrong = expand("${NONE} ${} ${1A} ${A B} ${open", &table).unwrap_err();
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        assert_eq!(
            wrong[0],
            "variable NONE is not set; set it, or give a default: ${NONE:-default}"
        );
        assert!(wrong[4].starts_with("`${` without `}`"), "{wrong:?}");
    }
}
