//! `headcount once`: look and decide once, act, and end.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use headcount_core::Outcome;

use crate::cli::{Globals, out, pick_group, runtime};
use crate::config;
use crate::daemon::Shared;
use crate::group::Tick;
use crate::telemetry;

/// Arguments of `headcount once`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this group
    pub group: Option<String>,
    /// Decide, but change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// The host needs two samples, half a second apart, before its CPU is known.
const FIRST_SAMPLE: Duration = Duration::from_millis(700);

impl Args {
    /// One tick of every group. Fails if a change failed or somebody else holds the lease.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let config = config::find(globals)?.config;
        telemetry::start(config.log.format, config.log.level);
        let wanted = self.group.as_deref();
        if wanted.is_some() {
            pick_group(wanted, config.groups.iter().map(|g| g.name.as_str()))?;
        }
        let groups = config.groups.iter().filter(|g| wanted.is_none_or(|name| g.name == name));
        let ticks = runtime()?.block_on(async {
            let shared = Shared::new(&config, self.dry_run);
            tokio::time::sleep(FIRST_SAMPLE).await;
            let mut ticks = Vec::new();
            for config in groups {
                let mut group = shared.open(config)?;
                let mut told = shared.ticks.subscribe();
                group.tick().await;
                group.settle().await;
                ticks.push(told.recv().await?);
            }
            shared.store.flush();
            anyhow::Ok(ticks)
        })?;
        for tick in &ticks {
            if globals.json {
                out::print_json_line(&tick.to_json())?;
            } else {
                out::line(tick)?;
            }
        }
        let failed =
            |t: &Arc<Tick>| t.stand_by.is_some() || matches!(t.outcome, Some((Outcome::Failed, _)));
        Ok(if ticks.iter().any(failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
