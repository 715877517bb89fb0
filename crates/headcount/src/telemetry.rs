//! Logs: structured, as text or JSON, on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for log collectors.
    Json,
}

/// The least important lines that are logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Only what does not work.
    Error,
    /// Also what is lost.
    Warn,
    /// Also each change and what led to it.
    #[default]
    Info,
    /// Also each decision.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The name used in filters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Overrides the configured level: a level, or a filter such as `headcount=debug,redis=trace`.
pub const LOG_VARIABLE: &str = "HEADCOUNT_LOG";

/// Starts logging to standard error. Does nothing if logging was started before.
///
/// Libraries say nothing, unless `HEADCOUNT_LOG` asks for it: what fails comes back to us as an
/// error, which is told once and in our words. A filter that makes no sense is ignored with a
/// warning.
pub fn start(format: LogFormat, level: LogLevel) {
    let configured = || EnvFilter::new(ours(level));
    let wanted = std::env::var(LOG_VARIABLE).ok().filter(|text| !text.trim().is_empty());
    let parsed = wanted.as_deref().map(filter);
    let (filter, wrong) = match parsed {
        None => (configured(), None),
        Some(Ok(filter)) => (filter, None),
        Some(Err(e)) => (configured(), Some(e)),
    };
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && !plain);
    let _ = match format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).with_target(false).try_init(),
    };
    if let Some(error) = wrong {
        tracing::warn!(%error, "{LOG_VARIABLE} is ignored; write a level or target=level");
    }
}

/// The filter that lets through our own lines of this level, and nobody else's.
fn ours(level: LogLevel) -> String {
    format!("off,headcount={}", level.name())
}

/// A level alone is for Headcount; anything else is a filter as it stands.
fn filter(text: &str) -> Result<EnvFilter, tracing_subscriber::filter::ParseError> {
    match LogLevel::from_str(text.trim(), true) {
        Ok(level) => EnvFilter::try_new(ours(level)),
        Err(_) => EnvFilter::try_new(text),
    }
}

/// Tells a person at the terminal what went wrong, with its causes.
#[expect(clippy::print_stderr, reason = "the last word of the program, after logging may be gone")]
pub fn complain(error: &anyhow::Error) {
    eprintln!("headcount: {error:#}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_for_headcount_and_a_filter_is_itself() {
        let read = |text: &str| filter(text).map(|f| f.to_string()).map_err(|_| ());
        assert_eq!(read(" Debug ").as_deref(), Ok("headcount=debug,off"));
        assert_eq!(read("redis=trace").as_deref(), Ok("redis=trace"));
        assert_eq!(read("headcount=loud"), Err(()));
    }
}
