//! The headcount program.

use std::process::ExitCode;

use clap::Parser;
use headcount::cli::{Cli, out};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let json = cli.globals.json;
    cli.run().unwrap_or_else(|error| out::fail(&error, json))
}
