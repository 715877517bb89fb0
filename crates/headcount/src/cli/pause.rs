//! `headcount pause`.

use std::process::ExitCode;

use crate::cli::Globals;

/// Arguments of `headcount pause`.
#[derive(Debug, clap::Args)]
pub struct PauseArgs {}

impl PauseArgs {
    /// Does it.
    pub fn run(self, _globals: &Globals) -> anyhow::Result<ExitCode> {
        anyhow::bail!("not there yet")
    }
}
/// Arguments of `headcount resume`.
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {}

impl ResumeArgs {
    /// Does it.
    pub fn run(self, _globals: &Globals) -> anyhow::Result<ExitCode> {
        anyhow::bail!("not there yet")
    }
}
