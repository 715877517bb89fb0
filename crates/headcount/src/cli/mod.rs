//! The command line. Each verb is one file with its arguments and its `run`.

pub mod check;
pub mod completions;
pub mod demo;
pub mod events;
pub mod explain;
pub mod import;
pub mod jobs;
pub mod kept;
pub mod once;
pub mod out;
pub mod pause;
pub mod replay;
pub mod run;
pub mod scale;
pub mod schema;
pub mod simulate;
pub mod status;
pub mod tune;
pub mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use headcount_core::state::Controls;
use headcount_core::{Span, Timestamp};

use crate::clock;
use crate::config::GroupConfig;
use crate::limits::LAST_WORDS;
use kept::Kept;

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
    /// One worker of `demo`
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
    /// Look and decide once, act, and end
    Once(once::Args),
    /// Check the configuration and everything it names
    Check(check::Args),
    /// Show the groups as they are now
    Status(status::Args),
    /// Show what was changed, and why, and the alerts
    Events(events::Args),
    /// Show why a group has the number of workers it has
    Explain(explain::Args),
    /// Set a group's number of workers for a time
    Scale(scale::Args),
    /// Stop scaling a group, in one direction or both
    Pause(pause::PauseArgs),
    /// Take back `pause` and `scale`
    Resume(pause::ResumeArgs),
    /// Show how long workers were online, by month
    Usage(usage::Args),
    /// Decide again what recorded observations lead to
    Replay(replay::Args),
    /// Run recorded jobs under rules, and tell what they would have cost
    Simulate(simulate::Args),
    /// Search for rules that keep a wanted wait at a lower cost
    Tune(tune::Args),
    /// Write a configuration from another autoscaler's settings
    Import(import::Args),
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
            Verb::DemoWorker(args) => args.run(globals),
            Verb::Once(args) => args.run(globals),
            Verb::Check(args) => args.run(globals),
            Verb::Status(args) => args.run(globals),
            Verb::Events(args) => args.run(globals),
            Verb::Explain(args) => args.run(globals),
            Verb::Scale(args) => args.run(globals),
            Verb::Pause(args) => args.run(globals),
            Verb::Resume(args) => args.run(globals),
            Verb::Usage(args) => args.run(globals),
            Verb::Replay(args) => args.run(globals),
            Verb::Simulate(args) => args.run(globals),
            Verb::Tune(args) => args.run(globals),
            Verb::Import(args) => args.run(globals),
            Verb::Schema(args) => args.run(globals),
            Verb::Completions(args) => args.run(globals),
        }
    }
}

/// A duration given on the command line.
#[derive(Clone, Copy, Debug)]
pub struct For(Span);

impl std::str::FromStr for For {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Days and weeks have 24 and 168 hours here, whatever the clock of the place does.
        let calendar = text.parse::<jiff::Span>();
        let span =
            calendar.and_then(|span| span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()));
        match span {
            Ok(span) if span > Span::ZERO => Ok(Self(span)),
            _ => Err("write a duration such as 90s, 15m, `1h 30m` or 7d".into()),
        }
    }
}

impl For {
    /// The point that is this long from now.
    pub fn from_now(self) -> Timestamp {
        clock::now().plus(self.0)
    }

    /// The point that was this long ago.
    pub fn ago(self) -> Timestamp {
        clock::now().plus(-self.0)
    }
}

/// How long ago, for people.
pub(crate) fn since_now(t: Timestamp) -> String {
    let seconds = clock::now().since(t).as_secs();
    match seconds {
        ..0 => "in the future".into(),
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86400),
    }
}

/// Runs what talks to the world. Two threads are plenty: the loops wait. What still runs at its end,
/// as a read of a file that hangs, is not waited for.
///
/// # Errors
/// Threads cannot be started.
pub(crate) fn block_on<T>(task: impl Future<Output = T>) -> std::io::Result<T> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(task);
    runtime.shutdown_timeout(LAST_WORDS);
    Ok(result)
}

/// Changes what people ask for in a group. `change` gets the group's configuration, if it can be
/// read, and what was asked for before.
pub(crate) fn control(
    globals: &Globals,
    name: Option<&str>,
    change: impl FnOnce(Option<&GroupConfig>, Controls) -> anyhow::Result<Controls>,
) -> anyhow::Result<ExitCode> {
    let kept = Kept::open(globals)?;
    let name = kept.pick(name)?;
    let controls = change(kept.config(&name), kept.controls(&name))?;
    kept.store.set_controls(&name, &controls)?;
    if globals.json {
        out::print_json_line(&controls)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(format!("{name}: {controls}"))?;
    if kept.latest(&name).is_none() {
        let what =
            "nobody has looked at it with this state folder yet; the one that acts may use another";
        out::line(out::styled(out::WARNING, what))?;
    }
    kept.warn_if_nobody_runs()?;
    Ok(ExitCode::SUCCESS)
}
