//! The command line. Each verb is one file with its arguments and its `run`.

pub mod check;
pub mod completions;
pub mod demo;
pub mod events;
pub mod explain;
pub mod once;
pub mod out;
pub mod pause;
pub mod replay;
pub mod run;
pub mod scale;
pub mod schema;
pub mod status;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Decides how many queue workers should be running, makes it so, and says why.
#[derive(Debug, Parser)]
#[command(name = "headcount", version, propagate_version = true, after_help = EXIT_CODES)]
pub struct Cli {
    /// Flags of every verb.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 it did not work; 2 wrong arguments or configuration; \
3 `check` found a problem.";

/// Flags of every verb.
#[derive(Clone, Debug, clap::Args)]
pub struct Globals {
    /// The configuration file [default: headcount.yaml here, else /etc/headcount/headcount.yaml]
    #[arg(short, long, global = true, env = "HEADCOUNT_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where state is kept, instead of the configuration's folder
    #[arg(long, global = true, env = "HEADCOUNT_STATE_DIR", value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Print JSON. What is wrong with a configuration is JSON too
    #[arg(long, global = true)]
    pub json: bool,
}

/// Arguments that make no sense with this configuration: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUse(pub String);

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Scale, until told to stop
    Run(run::Args),
    /// See it work: an embedded queue, real workers, a bursty load
    Demo(demo::Args),
    /// Look and decide once, act, and end
    Once(once::Args),
    /// Check the configuration and everything it names
    Check(check::Args),
    /// Show the groups as they are now
    Status(status::Args),
    /// Show what was changed, and why
    Events(events::Args),
    /// Show why a group has the number of workers it has
    Explain(explain::Args),
    /// Set a group's number of workers for a time
    Scale(scale::Args),
    /// Stop scaling a group, in one direction or both
    Pause(pause::PauseArgs),
    /// Take back `pause` and `scale`
    Resume(pause::ResumeArgs),
    /// Decide again what recorded observations lead to
    Replay(replay::Args),
    /// Print the JSON Schema of the configuration file
    Schema(schema::Args),
    /// Print shell completions
    Completions(completions::Args),
}

impl Cli {
    /// Does what the arguments say.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let globals = &self.globals;
        match self.verb {
            Verb::Run(args) => args.run(globals),
            Verb::Demo(args) => args.run(globals),
            Verb::Once(args) => args.run(globals),
            Verb::Check(args) => args.run(globals),
            Verb::Status(args) => args.run(globals),
            Verb::Events(args) => args.run(globals),
            Verb::Explain(args) => args.run(globals),
            Verb::Scale(args) => args.run(globals),
            Verb::Pause(args) => args.run(globals),
            Verb::Resume(args) => args.run(globals),
            Verb::Replay(args) => args.run(globals),
            Verb::Schema(args) => args.run(globals),
            Verb::Completions(args) => args.run(globals),
        }
    }
}
