//! `headcount completions SHELL`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, Globals, out};

/// Arguments of `headcount completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which shell; load the output from its start-up file
    shell: Shell,
}

impl Args {
    /// Prints the completions.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn run(self, _globals: &Globals) -> anyhow::Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "headcount", &mut script);
        out::print(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
