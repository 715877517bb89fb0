//! What is wrong with a configuration: everything at once, each with its line and its fix.

use std::fmt;

use serde::Serialize;

use crate::cli::out::{BOLD, DIM, PROBLEM, styled};
use crate::limits::CONFIG_ERRORS_SHOWN;

/// Everything that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ConfigErrors(Vec<ConfigError>);

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConfigError {
    /// The file as it was named, or `environment`.
    pub file: String,
    /// The line, from 1, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The column, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The path of the key, `groups.n8n-worker.workers.min`, or the variable; empty for the file.
    pub key: String,
    /// What is wrong and what to do.
    pub what: String,
    /// The line itself and how many characters of it are meant; absent if it holds a secret.
    #[serde(skip)]
    pub(super) shown: Option<(String, usize)>,
}

impl ConfigError {
    /// An error about a file or variable as a whole.
    pub(super) fn whole(file: &str, key: &str, what: impl Into<String>) -> Self {
        let (file, key) = (file.to_string(), key.to_string());
        Self { file, line: None, column: None, key, what: what.into(), shown: None }
    }
}

impl ConfigErrors {
    /// Puts the errors in the order of the file.
    pub(super) fn new(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by_key(|e| (e.line, e.column));
        errors.dedup();
        Self(errors)
    }

    /// The errors, in the order of the file.
    pub fn all(&self) -> &[ConfigError] {
        &self.0
    }

    /// As a compiler shows them: each error with its line and a mark under the place. In colour;
    /// whoever writes it strips that where it is not wanted.
    pub fn with_lines(&self) -> String {
        let show = |e: &ConfigError| {
            let mut text = format!("{} {}\n", styled(BOLD, Place(e)), e.what);
            if let (Some((line, length)), Some(number), Some(column)) = (&e.shown, e.line, e.column)
            {
                let skip = " ".repeat(column.saturating_sub(1) as usize);
                let mark = "^".repeat((*length).max(1));
                text += &format!("{} {line}\n", styled(DIM, format!("{number:>5} |")));
                text += &format!("{} {skip}{}\n", styled(DIM, "      |"), styled(PROBLEM, mark));
            }
            text
        };
        self.first().iter().map(show).collect::<String>() + &self.rest()
    }

    fn first(&self) -> &[ConfigError] {
        &self.0[..self.0.len().min(CONFIG_ERRORS_SHOWN)]
    }

    fn rest(&self) -> String {
        match self.0.len().saturating_sub(CONFIG_ERRORS_SHOWN) {
            0 => String::new(),
            more => format!("and {more} more errors\n"),
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.first().iter().map(ToString::to_string).collect();
        let text = lines.join("\n") + "\n" + &self.rest();
        f.write_str(text.trim_end())
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Place(self), self.what)
    }
}

/// `file:line:column key:`, as far as they are known.
struct Place<'a>(&'a ConfigError);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let e = self.0;
        f.write_str(&e.file)?;
        if let (Some(line), Some(column)) = (e.line, e.column) {
            write!(f, ":{line}:{column}")?;
        }
        if !e.key.is_empty() {
            write!(f, " {}", e.key)?;
        }
        f.write_str(":")
    }
}
