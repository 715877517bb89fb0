//! `headcount pause` and `headcount resume`: a person stops scaling, and lets it go on.

use std::process::ExitCode;

use clap::ValueEnum;
use headcount_core::decision::Direction;
use headcount_core::state::{Controls, Pause};

use crate::cli::{For, Globals, control};
use crate::clock;

/// Arguments of `headcount pause`.
#[derive(Debug, clap::Args)]
pub struct PauseArgs {
    /// Which group; may be left out if there is only one
    pub group: Option<String>,
    /// Which direction to stop
    #[arg(long, value_enum, default_value = "all")]
    pub direction: Way,
    /// For how long, for example `1h 30m`; without it until `resume`
    #[arg(long = "for", value_name = "DURATION")]
    pub until: Option<For>,
}

/// Arguments of `headcount resume`.
#[derive(Debug, clap::Args)]
pub struct ResumeArgs {
    /// Which group; may be left out if there is only one
    pub group: Option<String>,
}

/// Which direction a pause stops.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Way {
    /// Both.
    All,
    /// Adding workers.
    Out,
    /// Removing workers.
    In,
}

impl PauseArgs {
    /// Keeps the pause; the daemon follows within a second.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let direction = match self.direction {
            Way::All => Direction::All,
            Way::Out => Direction::Out,
            Way::In => Direction::In,
        };
        let pause = Some(Pause { direction, until: self.until.map(For::from_now) });
        control(globals, self.group.as_deref(), |_, old| Ok(Controls { pause, ..old }))
    }
}

impl ResumeArgs {
    /// Forgets pause and fixed number, and what has failed.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let retry = Some(clock::now());
        control(globals, self.group.as_deref(), |_, _| Ok(Controls { retry, ..<_>::default() }))
    }
}
