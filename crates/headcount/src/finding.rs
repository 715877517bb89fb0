//! What `headcount check` finds: one line each, with its fix.

use headcount_core::Span;
use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Good,
    /// Works, but something is lost.
    Warning,
    /// Does not work.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was looked at: `queue`, `target`, `host`.
    pub about: String,
    /// What was found.
    pub what: String,
    /// What to do, for anything but a good finding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// What it says in numbers, for comparisons that neither source can make alone.
    #[serde(skip)]
    pub fact: Option<Fact>,
}

/// A number that one source knows and that must agree with what others know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact {
    /// Workers that a queue knows.
    Consumers(usize),
    /// How long a worker may take to end before it is killed.
    Grace(Span),
    /// The longest that a job was seen to run.
    LongestJob(Span),
    /// Jobs that one worker of the target runs at once.
    Slots(u32),
    /// Workers that a target knows.
    Workers(usize),
}

impl Finding {
    /// Something is as it should be.
    pub fn good(about: &str, what: impl Into<String>) -> Self {
        Self { level: Level::Good, about: about.into(), what: what.into(), fix: None, fact: None }
    }

    /// Something is lost.
    pub fn warning(about: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        let (what, fix) = (what.into(), Some(fix.into()));
        Self { level: Level::Warning, about: about.into(), what, fix, fact: None }
    }

    /// Something does not work.
    pub fn problem(about: &str, what: impl Into<String>, fix: impl Into<String>) -> Self {
        let (what, fix) = (what.into(), Some(fix.into()));
        Self { level: Level::Problem, about: about.into(), what, fix, fact: None }
    }

    /// The same with its number.
    #[must_use]
    pub fn stating(self, fact: Fact) -> Self {
        Self { fact: Some(fact), ..self }
    }
}
