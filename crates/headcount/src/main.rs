//! The headcount program.

use std::process::ExitCode;

use clap::Parser;
use headcount::cli::Cli;

fn main() -> ExitCode {
    match Cli::parse().run() {
        Ok(code) => code,
        Err(error) => {
            headcount::telemetry::complain(&error);
            ExitCode::FAILURE
        }
    }
}
