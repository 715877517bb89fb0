//! `headcount scale`: a person sets a number for a time.

use std::process::ExitCode;

use headcount_core::state::{Controls, Fixed};

use crate::cli::{For, Globals, WrongUse, control};

/// Arguments of `headcount scale`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which group
    pub group: String,
    /// How many workers
    pub workers: u32,
    /// For how long, for example `1h 30m`; without it until `resume`
    #[arg(long = "for", value_name = "DURATION")]
    pub until: Option<For>,
}

impl Args {
    /// Keeps the number; the daemon follows within a second. Busy workers are not stopped for it.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let fixed = Fixed { workers: self.workers, until: self.until.map(For::from_now) };
        control(globals, Some(&self.group), |group, old| {
            let bounds = group.map(|g| (g.rules.workers.min, g.rules.workers.max));
            let n = fixed.workers;
            if let Some((min, max)) = bounds
                && !(min..=max).contains(&n)
            {
                let why = format!(
                    "{n} is outside the group's {min} to {max}: change workers.min or workers.max for that"
                );
                return Err(WrongUse(why).into());
            }
            Ok(Controls { fixed: Some(fixed), ..old })
        })
    }
}
