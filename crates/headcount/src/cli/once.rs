//! `headcount once`: look and decide once, act, and end.

use std::process::ExitCode;
use std::sync::Arc;

use headcount_core::{Outcome, Rule};

use crate::cli::{Globals, WrongUse, block_on, out};
use crate::config;
use crate::daemon::Shared;
use crate::group::Tick;
use crate::telemetry::{self, LogLevel};

/// Arguments of `headcount once`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this group
    pub group: Option<String>,
    /// Decide, but change nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl Args {
    /// One tick of every group. Fails if a change failed, a source is silent, or somebody else holds
    /// the lease.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let config = config::find(globals)?.config;
        // The result goes to standard output; only what is wrong is told beside it.
        telemetry::start(config.log.format, LogLevel::Warn);
        let wanted = self.group.as_deref();
        if let Some(name) = wanted.filter(|name| config.group(name).is_none()) {
            return Err(WrongUse(format!("there is no group `{name}` in the configuration")).into());
        }
        let groups = config.groups.iter().filter(|g| wanted.is_none_or(|name| g.name == name));
        let ticks = block_on(async {
            let shared = Shared::new(&config, self.dry_run);
            shared.know_host().await;
            let mut ticks = Vec::new();
            for config in groups {
                let mut group = shared.open(config)?;
                let mut told = shared.ticks.subscribe();
                group.tick().await;
                group.settle().await;
                group.leave().await;
                ticks.push(told.recv().await?);
            }
            shared.store.flush();
            anyhow::Ok(ticks)
        })??;
        for tick in &ticks {
            if globals.json {
                out::print_json_line(&tick.to_json())?;
            } else {
                out::line(tick)?;
            }
        }
        let blind = |t: &Arc<Tick>| t.decision.as_ref().is_none_or(|d| d.rule == Rule::Unknown);
        let failed = |t: &Arc<Tick>| blind(t) || matches!(t.outcome, Some((Outcome::Failed, _)));
        Ok(if ticks.iter().any(failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
