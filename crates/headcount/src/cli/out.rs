//! What the verbs print: text and tables, in colour on a terminal only, and JSON.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use headcount_core::{Decision, Kind, Rule, Span, Step, Timestamp, Why, time};
use serde::Serialize;

use crate::cli::WrongUse;
use crate::config::ConfigErrors;
use crate::telemetry::complain;

/// As it should be.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Something is lost.
pub const WARNING: Style = AnsiColor::Yellow.on_default();
/// Does not work.
pub const PROBLEM: Style = AnsiColor::Red.on_default();
/// Less important.
pub const DIM: Style = Style::new().dimmed();
/// Headings.
pub const BOLD: Style = Style::new().bold();

/// The program's exit code for wrong arguments or configuration.
pub const EXIT_USAGE: u8 = 2;

/// Prints text to standard output. Styles are dropped where they are not wanted: not a terminal, or
/// `NO_COLOR` is set.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints a value as JSON, indented, to standard output.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json<T: Serialize>(value: &T) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints a value as JSON on one line to standard output, at once.
///
/// # Errors
/// Standard output cannot be written.
pub fn print_json_line<T: Serialize>(value: &T) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, value)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Prints one line to standard output.
///
/// # Errors
/// Standard output cannot be written.
pub fn line(text: impl fmt::Display) -> io::Result<()> {
    print(&format!("{text}\n"))
}

/// A cell of a [`Table`] without a style.
pub fn plain(text: impl fmt::Display) -> Cell {
    (Style::new(), text.to_string())
}

/// A cell of a [`Table`] in a style.
pub fn cell(style: Style, text: impl fmt::Display) -> Cell {
    (style, text.to_string())
}

/// A text in a style.
pub fn styled(style: Style, text: impl fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Tells why the program fails; returns its exit code. With `json`, what is wrong with a
/// configuration goes to standard output as JSON.
pub fn fail(error: &anyhow::Error, json: bool) -> ExitCode {
    #[derive(Serialize)]
    struct Wrong<'a> {
        errors: &'a ConfigErrors,
    }
    let io = error.chain().find_map(|e| e.downcast_ref::<io::Error>());
    if io.is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
        // Whoever read our output has seen enough: `headcount events | head`.
        return ExitCode::SUCCESS;
    }
    if let Some(errors) = error.downcast_ref::<ConfigErrors>() {
        // Nothing more can be said if this cannot be written.
        let _ = if json {
            print_json(&Wrong { errors })
        } else if io::stderr().is_terminal() {
            anstream::stderr().write_all(errors.with_lines().as_bytes())
        } else {
            writeln!(io::stderr(), "{errors}")
        };
        return EXIT_USAGE.into();
    }
    complain(error);
    if error.is::<WrongUse>() { EXIT_USAGE.into() } else { ExitCode::FAILURE }
}

/// One cell of a table: its style and its text.
pub type Cell = (Style, String);

/// Columns, aligned; the last one is as long as it likes.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Self {
        let mut table = Self::default();
        if !headings.is_empty() {
            table.row(headings.iter().map(|heading| (BOLD, (*heading).to_string())));
        }
        table
    }

    /// Adds a row of styled cells. Control characters become spaces.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let plain = |text: String| text.replace(char::is_control, " ");
        self.rows.push(cells.into_iter().map(|(style, text)| (style, plain(text))).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = |text: &str| text.chars().count();
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cells = |i: usize| self.rows.iter().filter_map(move |row| row.get(i));
        let width = |i| cells(i).map(|(_, text)| length(text)).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let last = row.iter().rposition(|(_, text)| !text.is_empty());
            for (i, (style, text)) in row.iter().enumerate().take(last.map_or(0, |last| last + 1)) {
                f.write_str(&styled(*style, text))?;
                if Some(i) != last {
                    write!(f, "{:1$}", "", widths[i] - length(text) + 2)?;
                }
            }
            f.write_str("\n")?;
        }
        Ok(())
    }
}

/// A decision as JSON: its own keys, and each step of the trail also as a sentence.
#[derive(Serialize)]
pub struct DecisionJson<'a> {
    t: Timestamp,
    current: Option<u32>,
    policy_wanted: Option<u32>,
    wanted: Option<u32>,
    kind: Kind,
    rule: Rule,
    reason: &'a str,
    trail: Vec<StepJson<'a>>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    victims: &'a [String],
    #[serde(rename = "look_again_s", with = "time::as_seconds")]
    look_again: Option<Span>,
}

#[derive(Serialize)]
struct StepJson<'a> {
    rule: Rule,
    before: u32,
    after: u32,
    why: &'a Why,
    text: String,
}

impl<'a> From<&'a Decision> for DecisionJson<'a> {
    fn from(decision: &'a Decision) -> Self {
        let step = |step: &'a Step| StepJson {
            rule: step.rule,
            before: step.before,
            after: step.after,
            why: &step.why,
            text: step.why.to_string(),
        };
        Self {
            t: decision.t,
            current: decision.current,
            policy_wanted: decision.policy_wanted,
            wanted: decision.wanted,
            kind: decision.kind,
            rule: decision.rule,
            reason: &decision.reason,
            trail: decision.trail.iter().map(step).collect(),
            victims: &decision.victims,
            look_again: decision.look_again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_characters() {
        let mut table = Table::new(&["group", "what"]);
        table.row([(GOOD, "über".into()), (DIM, "a\nb".into())]);
        table.row([(Style::new(), "worker-long".into()), (DIM, String::new())]);
        let plain = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(plain, "group        what\nüber         a b\nworker-long\n");
    }
}
