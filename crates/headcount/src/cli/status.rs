//! `headcount status`: the groups as they are now.

use std::process::ExitCode;

use headcount_core::state::{Controls, Unmade};
use headcount_core::{Decision, Observation, QueueReading, Reading, Rule, Why};
use serde::Serialize;

use crate::cli::explain::unmade;
use crate::cli::kept::Kept;
use crate::cli::out::{self, Cell, DIM, Table, WARNING, cell, plain};
use crate::cli::{Globals, since_now};
use crate::store::Latest;

/// The most characters of what a target said; `explain` tells all.
const SHORT: usize = 120;

/// Arguments of `headcount status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this group
    pub group: Option<String>,
}

/// One group, as `--json` prints it.
#[derive(Serialize)]
struct Status<'a> {
    group: &'a str,
    observation: &'a Observation,
    decision: &'a Decision,
    controls: Controls,
    /// The last change, if it was not made and is still wanted.
    unmade: Option<&'a Unmade>,
}

impl Args {
    /// Prints them.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let kept = Kept::open(globals)?;
        let only = self.group.map(|name| kept.pick(Some(&name))).transpose()?;
        let groups = only.as_deref().map_or_else(|| kept.groups(), |name| vec![name]);
        if globals.json {
            for Latest { group, observation, decision, state } in
                groups.iter().filter_map(|name| kept.latest(name))
            {
                let controls = kept.controls(group);
                let unmade = state.unmade.as_ref();
                let status = Status { group, observation, decision, controls, unmade };
                out::print_json_line(&status)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let headings = ["group", "workers", "wanted", "waiting", "active", "cpu", "seen", "why"];
        let mut table = Table::new(&headings);
        for name in groups {
            match kept.latest(name) {
                Some(latest) => table.row(row(latest, &kept.controls(name))),
                None => table.row(unseen(name)),
            }
        }
        out::print(&table.to_string())?;
        kept.warn_if_nobody_runs()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// A group that nobody has looked at with this store.
fn unseen(name: &str) -> [Cell; 8] {
    let unknown = || cell(WARNING, "?");
    let why = "not looked at yet, or another headcount acts for it";
    let [workers, wanted, waiting, active, cpu, seen] = std::array::from_fn(|_| unknown());
    [plain(name), workers, wanted, waiting, active, cpu, seen, cell(WARNING, why)]
}

fn row(latest: &Latest, controls: &Controls) -> [Cell; 8] {
    let Latest { group, observation, decision, state } = latest;
    let unknown = || cell(WARNING, "?");
    let queue = observation.queue.value();
    let workers = match &observation.fleet {
        Reading::Known { value, .. } => {
            let mut text = value.capacity().to_string();
            for (n, what) in [
                (value.starting, "starting"),
                (value.draining, "draining"),
                (value.broken, "broken"),
            ] {
                if n > 0 {
                    text += &format!(" ({n} {what})");
                }
            }
            plain(text)
        }
        Reading::Missing(_) => unknown(),
    };
    let cpu = match (observation.host.value(), state.cpu_ema()) {
        (Some(host), Some(ema)) => plain(format!("{:.0} % / {ema:.0} %", host.cpu_raw)),
        (Some(host), None) => plain(format!("{:.0} %", host.cpu_raw)),
        (None, _) => unknown(),
    };
    let troubled = matches!(decision.rule, Rule::Unknown | Rule::Breaker)
        || state.alerts.raised().iter().any(|(_, raised)| *raised)
        || unmade(state).is_some();
    let why = why(latest, controls);
    [
        plain(group),
        workers,
        decision.wanted.map_or_else(unknown, plain),
        queue.map_or_else(unknown, waiting),
        queue.map_or_else(unknown, |q| plain(q.active)),
        cpu,
        cell(DIM, since_now(observation.t)),
        if troubled { cell(WARNING, why) } else { plain(why) },
    ]
}

/// What people ask for, which alerts there are, what was not done, and why the number is what it is.
fn why(latest: &Latest, controls: &Controls) -> String {
    let Latest { decision, state, .. } = latest;
    let raised = state.alerts.raised().into_iter().filter(|(_, raised)| *raised);
    let alerts: Vec<&str> = raised.map(|(alert, _)| alert.name()).collect();
    let mut all = Vec::new();
    if controls.hold() {
        all.push(controls.to_string());
    }
    if !alerts.is_empty() {
        all.push(format!("alert {}", alerts.join(", ")));
    }
    all.extend(unmade(state).map(|what| clip(&what, SHORT)));
    // A limit alone does not say what it limits.
    let moved = decision.trail.iter().rfind(|s| s.before != s.after).filter(|_| {
        let limit = |why: &Why| matches!(why, Why::CutToMax { .. } | Why::CutToMin { .. });
        !decision.trail.iter().any(|step| limit(&step.why))
    });
    let why = moved.map_or_else(|| decision.reason.clone(), |step| step.why.to_string());
    if !all.iter().any(|said| said.contains(&why)) {
        all.push(why);
    }
    all.join("; ")
}

/// The beginning of a text of more than `most` characters.
fn clip(text: &str, most: usize) -> String {
    let short: String = text.chars().take(most).collect();
    if short == text { short } else { format!("{short}…") }
}

/// Waiting jobs; those in a paused queue, which nobody can take, are told apart.
fn waiting(queue: &QueueReading) -> Cell {
    match (queue.paused, queue.held) {
        (Some(true), Some(held)) => cell(WARNING, format!("{} (+{held} paused)", queue.waiting)),
        (Some(true), None) => cell(WARNING, format!("{} (paused)", queue.waiting)),
        _ => plain(queue.waiting),
    }
}
