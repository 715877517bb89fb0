//! `headcount status`: the groups as they are now.

use std::process::ExitCode;

use headcount_core::{Reading, Rule, Span};
use serde::Serialize;

use crate::cli::out::{self, Cell, DIM, Table, WARNING, cell, plain};
use crate::cli::{Globals, open_store, since_now};
use crate::clock;
use crate::store::Latest;

/// Arguments of `headcount status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this group
    pub group: Option<String>,
}

/// A group that was not looked at for this long is probably not being run.
const OLD: Span = Span::from_secs(180);

impl Args {
    /// Prints them.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let store = open_store(globals)?;
        let latest = store.latest(self.group.as_deref());
        if let Some(name) = &self.group {
            anyhow::ensure!(!latest.is_empty(), "there is no group `{name}` in the store");
        }
        if globals.json {
            #[derive(Serialize)]
            struct Status<'a> {
                group: &'a str,
                observation: &'a headcount_core::Observation,
                decision: &'a headcount_core::Decision,
                controls: headcount_core::state::Controls,
            }
            for Latest { group, observation, decision, .. } in &latest {
                let controls = store.controls(group);
                out::print_json_line(&Status { group, observation, decision, controls })?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let headings = ["group", "workers", "wanted", "waiting", "active", "cpu", "seen", "why"];
        let mut table = Table::new(&headings);
        latest.iter().for_each(|latest| table.row(row(latest)));
        out::print(&table.to_string())?;
        for latest in latest.iter().filter(|l| clock::now().since(l.observation.t) > OLD) {
            let seen = since_now(latest.observation.t);
            out::line(format!("{}: last seen {seen}; is `headcount run` running?", latest.group))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn row(latest: &Latest) -> [Cell; 8] {
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
    let troubled = matches!(decision.rule, Rule::Unknown | Rule::Breaker);
    let why = decision.trail.iter().rfind(|s| s.before != s.after).map(|s| s.why.to_string());
    let why = why.unwrap_or_else(|| decision.reason.clone());
    [
        plain(group),
        workers,
        decision.wanted.map_or_else(unknown, plain),
        queue.map_or_else(unknown, |q| plain(q.waiting)),
        queue.map_or_else(unknown, |q| plain(q.active)),
        cpu,
        cell(DIM, since_now(observation.t)),
        if troubled { cell(WARNING, why) } else { plain(why) },
    ]
}
