//! `headcount run`: scale, until told to stop.

use std::process::ExitCode;

use crate::cli::{Globals, block_on};
use crate::config::{self, Overrides};
use crate::{daemon, telemetry};

/// Arguments of `headcount run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Read everything, decide everything, change nothing
    #[arg(long)]
    pub dry_run: bool,
}

impl Args {
    /// Runs the daemon until SIGTERM or SIGINT.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let found = config::find(globals)?;
        telemetry::start(found.config.log.format, found.config.log.level);
        found.notes.iter().for_each(|note| tracing::info!("{note}"));
        let (globals, file) = (globals.clone(), found.file.clone());
        let load: daemon::Load = Box::new(move || {
            // A file that is gone must not be replaced by another one, or by the environment.
            let overrides = Overrides { state_dir: globals.state_dir.clone() };
            let Some(file) = &file else { return Ok(config::find(&globals)?.config) };
            Ok(config::load(file, &overrides)?)
        });
        block_on(daemon::run(found.config, load, found.file, self.dry_run))??;
        Ok(ExitCode::SUCCESS)
    }
}
