//! `headcount schema`.

use std::process::ExitCode;

use crate::cli::{Globals, out};
use crate::config;

/// Arguments of `headcount schema`.
#[derive(Debug, clap::Args)]
pub struct Args {}

impl Args {
    /// Prints the schema. Editors check the file against it with a first line of
    /// `# yaml-language-server: $schema=PATH`.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn run(self, _globals: &Globals) -> anyhow::Result<ExitCode> {
        out::print_json(&config::json_schema())?;
        Ok(ExitCode::SUCCESS)
    }
}
