//! `headcount events`.

use std::process::ExitCode;

use crate::cli::Globals;

/// Arguments of `headcount events`.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Does it.
    pub fn run(self, _globals: &Globals) -> anyhow::Result<ExitCode> {
        anyhow::bail!("not there yet")
    }
}
