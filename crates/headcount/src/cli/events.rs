//! `headcount events`: what was changed, and why; and which alerts there were.

use std::process::ExitCode;

use headcount_core::alert::AlertNews;
use headcount_core::{Alert, Decision, Outcome, Timestamp};
use serde::Serialize;

use crate::cli::kept::Kept;
use crate::cli::out::{self, Cell, DIM, GOOD, PROBLEM, Table, WARNING, cell, plain};
use crate::cli::{For, Globals, since_now};
use crate::store::Event;
use crate::targets::webhook::rfc3339;

/// Arguments of `headcount events`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this group
    pub group: Option<String>,
    /// Only the last DURATION, for example `1h`
    #[arg(long, value_name = "DURATION")]
    pub since: Option<For>,
    /// At most this many
    #[arg(short = 'n', long, default_value_t = 50)]
    pub limit: u32,
    /// Only changes, in the columns and words of Windmill's page
    #[arg(long)]
    pub windmill: bool,
}

impl Args {
    /// Prints them, the newest last.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let kept = Kept::open(globals)?;
        let since = self.since.map(For::ago);
        let group = self.group.as_deref();
        let mut events = match self.windmill {
            true => kept.store.changes(group, since, self.limit),
            false => kept.store.events(group, since, self.limit),
        };
        events.reverse();
        if let Some(name) = self.group.as_deref().filter(|_| events.is_empty()) {
            kept.pick(Some(name))?;
        }
        if globals.json {
            events.iter().map(Line::of).try_for_each(|line| out::print_json_line(&line))?;
            return Ok(ExitCode::SUCCESS);
        }
        if events.is_empty() {
            out::line("no events: no number of workers was changed")?;
            return Ok(ExitCode::SUCCESS);
        }
        let table = if self.windmill { windmill(&events) } else { table(&events) };
        out::print(&table.to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// One event, as `--json` prints it.
#[derive(Serialize)]
struct Line<'a> {
    kind: &'static str,
    /// As Windmill has it: `full_scaleout`, `scaleout` or `scalein`. The next three too.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    desired_workers: Option<u32>,
    reason: String,
    applied_at: String,
    #[serde(flatten)]
    event: &'a Event,
}

impl<'a> Line<'a> {
    fn of(event: &'a Event) -> Self {
        let change = event.alert.is_none().then_some(&event.decision);
        Self {
            kind: event.kind(),
            event_type: change.and_then(Decision::event_type),
            desired_workers: change.and_then(|decision| decision.wanted),
            reason: reason(event),
            applied_at: rfc3339(event.t),
            event,
        }
    }
}

fn reason(event: &Event) -> String {
    match &event.alert {
        Some(alert) => format!("{}: {alert}", alert.name),
        None => event.decision.reason.clone(),
    }
}

fn table(events: &[Event]) -> Table {
    let mut table = Table::new(&["when", "group", "kind", "workers", "outcome", "why"]);
    events.iter().for_each(|event| table.row(row(event)));
    table
}

/// The columns of Windmill's page; it has one for each group.
fn windmill(events: &[Event]) -> Table {
    let headings = ["worker group", "event type", "desired workers", "time", "reason"];
    let mut table = Table::new(&headings);
    for event in events {
        let desired = event.decision.wanted.unwrap_or_default();
        let kind = event.decision.event_type().unwrap_or_default();
        let mut why = reason(event);
        // Windmill has no column for it.
        match event.outcome {
            _ if event.dry => why += " (dry run)",
            Some(Outcome::Failed) => why += " (failed)",
            Some(Outcome::NotNow) => why += " (not now)",
            Some(Outcome::Done | Outcome::Pretended) | None => {}
        }
        let group = plain(&event.group);
        table.row([group, plain(kind), plain(desired), plain(when(event.t)), plain(why)]);
    }
    table
}

fn row(event: &Event) -> [Cell; 6] {
    if let Some(alert) = &event.alert {
        return of_alert(event, alert);
    }
    let (from, to) = event.decision.change().unwrap_or_default();
    let outcome = match event.outcome {
        _ if event.dry => cell(DIM, "dry run"),
        Some(Outcome::Done) => cell(GOOD, "done"),
        Some(Outcome::Failed) => cell(PROBLEM, "failed"),
        Some(Outcome::NotNow) => cell(WARNING, "not now"),
        Some(Outcome::Pretended) => cell(DIM, "dry run"),
        None => cell(WARNING, "unknown"),
    };
    let mut why = reason(event);
    if !event.note.is_empty() {
        why = format!("{why} ({})", event.note);
    }
    let change = format!("{from} -> {to}");
    let (group, kind) = (plain(&event.group), plain(event.decision.kind));
    [plain(when(event.t)), group, kind, plain(change), outcome, plain(why)]
}

fn of_alert(event: &Event, alert: &Alert) -> [Cell; 6] {
    let style = if alert.state == AlertNews::Resolved { GOOD } else { WARNING };
    let workers = event.decision.current.map_or_else(|| "?".into(), |n| n.to_string());
    let why = reason(event);
    let (group, kind) = (plain(&event.group), plain(event.kind()));
    [plain(when(event.t)), group, kind, plain(workers), cell(style, alert.state), plain(why)]
}

/// A time for people: the local clock, and how long ago.
pub(crate) fn when(t: Timestamp) -> String {
    let local = jiff::Timestamp::from_millisecond(t.as_millis())
        .map(|t| t.to_zoned(jiff::tz::TimeZone::system()).strftime("%F %T").to_string());
    format!("{} ({})", local.unwrap_or_default(), since_now(t))
}
