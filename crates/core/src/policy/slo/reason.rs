//! The policy's reasons.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Facts;
use super::price::Price;

/// Why the policy wants its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// Which of its two rules decides.
    pub regime: Regime,
    /// No job has finished yet: durations are guessed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub learning: bool,
    /// What it found.
    pub what: What,
}

/// The two rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Regime {
    /// A worker ordered now still saves a job that comes now.
    DeadlineDrain,
    /// Capacity must be there before the job comes.
    LevelHazard,
}

/// What the policy found. Times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum What {
    /// Jobs would start too late.
    Order { more: u32, late: u64, wait_s: f64 },
    /// Jobs would start in time, but what they wait costs more than starts do.
    Worthwhile { more: u32, waiting: u64, price: f64 },
    /// Capacity for jobs that have not come yet.
    Warm { warm: u32, wait_s: f64, start_up_s: f64, cost_percent: f64 },
    /// There may be no more workers.
    MaxTooLow { max: u32, short: u32, wait_s: f64 },
    /// All waiting jobs start in time.
    InTime { waiting: u64, wait_s: f64 },
    /// Idle workers that do not pay any more.
    Surplus { need: u32, idle: u32 },
    /// Idle workers that still pay.
    Kept { idle: u32, need: u32 },
    /// Nobody is idle.
    Busy { need: u32 },
}

impl What {
    pub(super) fn warm(warm: u32, facts: &Facts, price: &Price) -> Self {
        let cost_percent = (100.0 * price.overhead()).round();
        Self::Warm { warm, wait_s: facts.wait, start_up_s: facts.start_up, cost_percent }
    }
}

impl fmt::Display for Regime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeadlineDrain => "deadline-drain",
            Self::LevelHazard => "level-hazard",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.regime, self.what)?;
        if self.learning {
            write!(f, " (cautious: no job has finished yet)")?;
        }
        Ok(())
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { more, late, wait_s } => {
                write!(f, "{late} waiting would start after more than {wait_s:.0} s: {more} more")
            }
            Self::Worthwhile { more, waiting, price } => write!(
                f,
                "{waiting} waiting, each second of it worth {price} s of a worker: {more} more"
            ),
            Self::Warm { warm, wait_s, start_up_s, cost_percent } => write!(
                f,
                "{wait_s:.0} s are too short for a start of {start_up_s:.0} s: \
                 keeping {warm} warm, expected cost +{cost_percent:.0} %"
            ),
            Self::MaxTooLow { max, short, wait_s } => {
                write!(f, "max {max} is {short} short for {wait_s:.0} s")
            }
            Self::InTime { waiting, wait_s } => {
                write!(f, "{waiting} waiting will start within {wait_s:.0} s, or as soon as can be")
            }
            Self::Surplus { need, idle } => {
                write!(f, "{need} needed, {idle} beyond that idle for longer than a start is worth")
            }
            Self::Kept { idle, need } => {
                write!(f, "{need} needed, {idle} idle: keeping them costs less than a new start")
            }
            Self::Busy { need } => write!(f, "{need} needed, as many as there are"),
        }
    }
}
