//! `headcount explain`: why a group has the number of workers it has, and why not another.

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use headcount_core::state::{Fixed, Unmade};
use headcount_core::{Cadence, Decision, Outcome, State, Step, counted, decide};
use serde::Serialize;

use crate::cli::Globals;
use crate::cli::events::when;
use crate::cli::kept::Kept;
use crate::cli::out::{self, BOLD, DIM, Table, WARNING, cell, plain, styled};
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
        let kept = Kept::open(globals)?;
        let name = &kept.pick(self.group.as_deref())?;
        let not_yet = "nobody has looked at it with this state folder yet";
        let latest = kept.latest(name).context(not_yet)?;
        let last_change = kept.store.changes(Some(name), None, 1).pop();
        let other = self.why_not.map(|n| what_if(latest, n, &kept)).transpose()?;
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
            tell_why_not(n, latest, &other)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The decision if a person asked for `n` now: shows what the guards would say to it.
fn what_if(latest: &Latest, n: u32, kept: &Kept) -> anyhow::Result<Decision> {
    let no_rules = "the group's rules cannot be read: it is not in the configuration";
    let rules = &kept.config(&latest.group).context(no_rules)?.rules;
    let mut state = latest.state.clone();
    state.controls.fixed = Some(Fixed { workers: n, until: None });
    let seen = &latest.observation;
    Ok(decide(rules, &mut state, seen, Cadence::OwnPoll, seen.t))
}

fn tell(latest: &Latest, last_change: Option<&Event>) -> io::Result<()> {
    let Latest { group, decision, state, .. } = latest;
    let unmade = unmade(state);
    let verb = if unmade.is_some() { "should go" } else { "goes" };
    let head = match (decision.change(), decision.current) {
        (Some((from, to)), _) => {
            format!("{group} {verb} from {from} to {}", counted(to, "worker"))
        }
        (None, Some(n)) => format!("{group} stays at {}", counted(n, "worker")),
        (None, None) => format!("{group} stays at an unknown number of workers"),
    };
    out::line(format!("{}: {}", styled(BOLD, head), decision.reason))?;
    if let Some(what) = unmade {
        out::line(styled(WARNING, what))?;
    }
    out::line(styled(DIM, format!("decided {}", when(decision.t))))?;
    steps(&decision.trail)?;
    if let Some(event) = last_change {
        let (from, to) = event.decision.change().unwrap_or_default();
        let why = &event.decision.reason;
        let dry = if event.dry { ", only pretended" } else { "" };
        let became = match event.outcome {
            Some(outcome) => became(outcome, &event.note),
            None => Some("what became of it is not known".into()),
        };
        let became = became.map(|what| format!(": {what}")).unwrap_or_default();
        out::line(format!("\nlast change, {}{dry}: {from} -> {to}, {why}{became}", when(event.t)))?;
    }
    Ok(())
}

/// What kept the change that is wanted from being made, if something did.
pub(crate) fn unmade(state: &State) -> Option<String> {
    let Unmade { from, to, outcome, said } = state.unmade.as_ref()?;
    became(*outcome, said).map(|what| format!("{from} -> {to} {what}"))
}

/// What became of a change that was not made; nothing of one that was, or that was only pretended.
fn became(outcome: Outcome, said: &str) -> Option<String> {
    match outcome {
        Outcome::NotNow => Some(format!("not now: {said}")),
        Outcome::Failed => Some(format!("failed: {said}")),
        Outcome::Done | Outcome::Pretended => None,
    }
}

/// First why the rules did not come to `n` by themselves, then what else would be in the way.
fn tell_why_not(n: u32, latest: &Latest, other: &Decision) -> io::Result<()> {
    let decision = &latest.decision;
    out::line("")?;
    if decision.wanted == Some(n) {
        return out::line(format!("{n} is what it has, or is going to"));
    }
    let policy = decision.trail.first().map(|step| step.why.to_string()).unwrap_or_default();
    match decision.policy_wanted {
        Some(wanted) if wanted == n => {
            out::line(format!("{n} is what the policy wants ({policy}), but:"))?;
            return steps(&decision.trail);
        }
        Some(wanted) => {
            out::line(format!("{n} is not what the policy wants, {wanted} is: {policy}"))?
        }
        None => out::line(format!("the policy wants nothing: {policy}"))?,
    }
    match other.wanted {
        Some(wanted) if wanted == n => {
            let asked = format!("headcount scale {} {n}", latest.group);
            out::line(format!("nothing else is in the way: `{asked}` would do it"))
        }
        wanted => {
            let got = wanted.map_or_else(|| "unknown".into(), |w| w.to_string());
            out::line(format!("even if a person asked for {n}, it would be {got}:"))?;
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
