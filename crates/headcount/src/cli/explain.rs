//! `headcount explain`: why a group has the number of workers it has, and why not another.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use headcount_core::state::Fixed;
use headcount_core::{Cadence, Decision, Step, decide};
use serde::Serialize;

use crate::cli::events::when;
use crate::cli::out::{self, BOLD, DIM, Table, cell, plain, styled};
use crate::cli::{Globals, open_store, pick_group};
use crate::config;
use crate::store::{Event, Latest};

/// Arguments of `headcount explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which group; may be left out if there is only one
    pub group: Option<String>,
    /// Also tell what would keep the group from having N workers
    #[arg(long, value_name = "N")]
    pub why_not: Option<u32>,
}

#[derive(Serialize)]
struct Explanation<'a> {
    group: &'a str,
    decision: &'a Decision,
    last_change: Option<&'a Event>,
    why_not: Option<&'a Decision>,
}

impl Args {
    /// Prints the last decision step by step, and the last change.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let store = open_store(globals)?;
        let known = store.latest(None);
        let name = pick_group(self.group.as_deref(), known.iter().map(|l| l.group.as_str()))?;
        let latest = known.iter().find(|l| l.group == name).context("the group is gone")?;
        let last_change = store.events(Some(name), None, 1).pop();
        let other = self.why_not.map(|n| what_if(latest, n, globals)).transpose()?;
        if globals.json {
            out::print_json_line(&Explanation {
                group: name,
                decision: &latest.decision,
                last_change: last_change.as_ref(),
                why_not: other.as_ref(),
            })?;
            return Ok(ExitCode::SUCCESS);
        }
        tell(latest, last_change.as_ref())?;
        if let (Some(n), Some(other)) = (self.why_not, other) {
            tell_why_not(n, &other)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The decision if a person asked for `n` now: shows what the guards would say to it.
fn what_if(latest: &Latest, n: u32, globals: &Globals) -> anyhow::Result<Decision> {
    let config = config::find(globals)?.config;
    let group = config.group(&latest.group).context("the group is not in the configuration")?;
    let mut state = latest.state.clone();
    state.controls.fixed = Some(Fixed { workers: n, until: None });
    let seen = &latest.observation;
    Ok(decide(&group.rules, &mut state, seen, Cadence::OwnPoll, seen.t))
}

fn tell(latest: &Latest, last_change: Option<&Event>) -> io::Result<()> {
    let Latest { group, decision, .. } = latest;
    let number =
        |n: Option<u32>| n.map_or_else(|| "an unknown number of".into(), |n| n.to_string());
    let head = match decision.change() {
        Some((from, to)) => format!("{group} goes from {from} to {to} workers"),
        None => format!("{group} stays at {} workers", number(decision.current)),
    };
    out::line(format!("{}: {}", styled(BOLD, head), decision.reason))?;
    out::line(styled(DIM, format!("decided {}", when(decision.t))))?;
    steps(&decision.trail)?;
    if let Some(event) = last_change {
        let (from, to) = event.decision.change().unwrap_or_default();
        let why = &event.decision.reason;
        out::line(format!("\nlast change, {}: {from} -> {to}, {why}", when(event.t)))?;
    }
    Ok(())
}

fn tell_why_not(n: u32, other: &Decision) -> io::Result<()> {
    out::line("")?;
    match other.wanted {
        Some(wanted) if wanted == n => {
            out::line(format!("nothing would keep it from {n}: the rules just do not ask for it"))
        }
        wanted => {
            let got = wanted.map_or_else(|| "unknown".into(), |w| w.to_string());
            out::line(format!("asked for {n} it would be {got}:"))?;
            steps(&other.trail)
        }
    }
}

fn steps(trail: &[Step]) -> io::Result<()> {
    let mut table = Table::new(&["step", "rule", "workers", "why"]);
    for (i, step) in trail.iter().enumerate() {
        let change = if step.before == step.after {
            cell(DIM, step.after)
        } else {
            cell(BOLD, format!("{} -> {}", step.before, step.after))
        };
        table.row([plain(i + 1), plain(step.rule), change, plain(&step.why)]);
    }
    out::print(&table.to_string())
}
