//! What was decided and the steps that led there. Reasons are data; text is made at the edge.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::policy::{occupancy, ratio, slo};
use crate::time::{Span, Timestamp, as_seconds};
use crate::words::counted;

/// How many workers should be running, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// When.
    pub t: Timestamp,
    /// Workers that serve or soon will (ready + starting); the last known number if the target is
    /// silent, absent if it was never known.
    pub current: Option<u32>,
    /// What the policy wanted, before the guards.
    pub policy_wanted: Option<u32>,
    /// What should be done.
    pub wanted: Option<u32>,
    /// What kind of decision this is.
    pub kind: Kind,
    /// The rule that had the last word.
    pub rule: Rule,
    /// That rule's reason as a sentence.
    pub reason: String,
    /// Every rule that spoke, in order.
    pub trail: Vec<Step>,
    /// The workers that may be stopped, best first. Empty where the target picks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub victims: Vec<String>,
    /// When to look again at the latest.
    #[serde(default, rename = "look_again_s", with = "as_seconds")]
    pub look_again: Option<Span>,
}

impl Decision {
    /// The change to make, as (from, to), if there is one.
    pub fn change(&self) -> Option<(u32, u32)> {
        let (from, to) = (self.current?, self.wanted?);
        (from != to).then_some((from, to))
    }

    /// Whether the policy was not due, so that only guards had a say.
    pub fn is_between_polls(&self) -> bool {
        self.trail.first().is_some_and(|step| step.rule == Rule::Waiting)
    }

    /// The kind of the change as Windmill calls it.
    pub fn event_type(&self) -> Option<&'static str> {
        self.change().map(|(from, to)| self.kind.event_type(from, to))
    }
}

/// The kinds of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// More workers.
    ScaleOut,
    /// As many as allowed, at once.
    FullScaleOut,
    /// Fewer workers.
    ScaleIn,
    /// Fewer workers because the host is overloaded.
    EmergencyScaleIn,
    /// Back into the bounds.
    Bounds,
    /// No change.
    #[default]
    Hold,
    /// A person asked for this number.
    Override,
    /// The sources have been silent for too long.
    Fallback,
}

impl Kind {
    /// The name used in JSON, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScaleOut => "scale_out",
            Self::FullScaleOut => "full_scale_out",
            Self::ScaleIn => "scale_in",
            Self::EmergencyScaleIn => "emergency_scale_in",
            Self::Bounds => "bounds",
            Self::Hold => "hold",
            Self::Override => "override",
            Self::Fallback => "fallback",
        }
    }

    /// What Windmill calls a change of this kind: it knows only three.
    pub const fn event_type(self, from: u32, to: u32) -> &'static str {
        match self {
            Self::FullScaleOut if to >= from => "full_scaleout",
            _ if to >= from => "scaleout",
            _ => "scalein",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The rules that can speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names are those of the policies' and guards' own rules")]
pub enum Rule {
    Waiting,
    Emergency,
    Backlog,
    Idle,
    Cooldown,
    Steady,
    Unknown,
    Settling,
    Fallback,
    Schedule,
    Override,
    Pause,
    Brake,
    Capacity,
    Budget,
    Limits,
    Bounds,
    Busy,
    Breaker,
    FullBacklog,
    Occupancy,
    Activation,
    Ratio,
    Stabilization,
    Rate,
    Deadline,
    Level,
}

impl Rule {
    /// The name used in JSON, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Emergency => "emergency",
            Self::Backlog => "backlog",
            Self::Idle => "idle",
            Self::Cooldown => "cooldown",
            Self::Steady => "steady",
            Self::Unknown => "unknown",
            Self::Settling => "settling",
            Self::Fallback => "fallback",
            Self::Schedule => "schedule",
            Self::Override => "override",
            Self::Pause => "pause",
            Self::Brake => "brake",
            Self::Capacity => "capacity",
            Self::Budget => "budget",
            Self::Limits => "limits",
            Self::Bounds => "bounds",
            Self::Busy => "busy",
            Self::Breaker => "breaker",
            Self::FullBacklog => "full_backlog",
            Self::Occupancy => "occupancy",
            Self::Activation => "activation",
            Self::Ratio => "ratio",
            Self::Stabilization => "stabilization",
            Self::Rate => "rate",
            Self::Deadline => "deadline",
            Self::Level => "level",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One rule's word: it saw `before`, it left `after`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Which rule.
    pub rule: Rule,
    /// The number before it.
    pub before: u32,
    /// The number after it.
    pub after: u32,
    /// Its reason.
    pub why: Why,
}

/// The reasons, with their numbers. CPU and memory in percent, times in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum Why {
    /// The policy decides at its own cadence and is not due.
    NotDue {
        in_s: f64,
        /// What it said then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<Box<Self>>,
    },
    /// The host is critically overloaded.
    CpuCritical { cpu: f64, limit: f64 },
    /// Jobs wait and the host has room.
    RoomForMore { waiting: u64, ema: f64, raw: f64, limit: f64 },
    /// Jobs wait, but the host has no room.
    NoRoom { waiting: u64, ema: f64, raw: f64, limit: f64 },
    /// Jobs wait, but there are as many workers as allowed.
    AtMost { waiting: u64, max: u32 },
    /// Nothing to do for long enough.
    IdleLongEnough { idle_s: f64, after_s: f64 },
    /// Nothing to do, but not for long enough yet.
    IdleSoFar { idle_s: f64, after_s: f64 },
    /// Nothing to do, and no worker to spare.
    AtLeast { min: u32 },
    /// Work is going on.
    Working { active: u64 },
    /// Too soon after the last change.
    TooSoon { left_s: f64, wanted: u32 },
    /// A source did not answer.
    Silent { source: Source, why: String },
    /// Sources answer again, but not for long enough to trust a scale-in.
    AnsweringAgain { left_s: f64 },
    /// Sources have been silent for longer than the user accepts.
    SilentTooLong { silent_s: f64, workers: u32 },
    /// The queue hands out no jobs.
    QueuePaused,
    /// A window of the schedule sets other bounds.
    InWindow { min: u32, max: u32 },
    /// A person asked for this number.
    Asked { workers: u32, until: Option<Timestamp> },
    /// A person stopped scaling.
    Paused { direction: Direction, until: Option<Timestamp> },
    /// A limit of the host is reached; no growth until it is below `resume`.
    HostFull { what: Gauge, now: f64, resume: f64, emergency: f64 },
    /// A limit of the host is far exceeded; one worker less.
    HostCritical { what: Gauge, now: f64, emergency: f64 },
    /// The host carries no more; `each` and `others` in percent of it.
    HostCarries {
        what: Gauge,
        carries: u32,
        wanted: u32,
        each: f64,
        others: f64,
        limit: f64,
        cores: f64,
    },
    /// The other groups have or want the rest of the budget.
    BudgetSpent { allowed: u32, total: u32 },
    /// One decision may go no further.
    StepLimit { limit: u32 },
    /// Outside the bounds.
    OutOfBounds { min: u32, max: u32 },
    /// More was wanted than there may be.
    CutToMax { max: u32 },
    /// Fewer were wanted than there must be.
    CutToMin { min: u32 },
    /// A reason whose number another one changed.
    Limited { why: Box<Self>, limit: Box<Self> },
    /// Only this many workers are known to be idle.
    OnlyIdle { idle: u32, of: u32 },
    /// Some workers are idle by count, but nobody can say which.
    WhichIsIdleUnknown { active: u64, of: u32 },
    /// How many hold a job is not known.
    BusyUnknown,
    /// After failures, wait.
    BackOff {
        failures: u32,
        left_s: f64,
        what: Trouble,
        /// What the target said to the last one.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        said: String,
    },
    /// A reason of the policy `occupancy`.
    Occupancy(occupancy::Reason),
    /// A reason of the policy `ratio`.
    Ratio(ratio::Reason),
    /// A reason of the policy `slo`.
    Slo(slo::Reason),
}

/// The sources of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Source {
    Queue,
    Host,
    Fleet,
}

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Direction {
    All,
    Out,
    In,
}

/// What the brake watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Gauge {
    Cpu,
    Memory,
    CpuPressure,
}

/// What the breaker reacts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// Scaling actions fail.
    FailedActions,
    /// Workers die soon after their start.
    DyingWorkers,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Queue => "queue",
            Self::Host => "host",
            Self::Fleet => "target",
        })
    }
}

impl fmt::Display for Gauge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::CpuPressure => "CPU pressure",
        })
    }
}

impl fmt::Display for Why {
    #[expect(clippy::too_many_lines, reason = "one line for each reason, as a table")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotDue { in_s, last: Some(last) } => {
                write!(f, "{last}; decides again in {in_s:.0} s")
            }
            Self::NotDue { in_s, last: None } => write!(f, "the policy decides in {in_s:.0} s"),
            Self::CpuCritical { cpu, limit } => {
                write!(f, "CPU {cpu} % is above the emergency limit of {limit} %")
            }
            Self::RoomForMore { waiting, ema, raw, limit } => {
                write!(
                    f,
                    "{waiting} waiting, CPU {raw} % now and {ema} % smoothed are below {limit} %"
                )
            }
            Self::NoRoom { waiting, ema, raw, limit } => write!(
                f,
                "{waiting} waiting, but CPU {raw} % now or {ema} % smoothed is not below {limit} %"
            ),
            Self::AtMost { waiting, max } => {
                write!(f, "{waiting} waiting, but max {max} is reached")
            }
            Self::IdleLongEnough { idle_s, after_s } => {
                write!(f, "nothing waiting or active for {idle_s:.0} s (limit {after_s:.0} s)")
            }
            Self::IdleSoFar { idle_s, after_s } => {
                write!(f, "nothing waiting or active for {idle_s:.0} s of {after_s:.0} s")
            }
            Self::AtLeast { min } => write!(f, "nothing waiting or active, min {min} stays"),
            Self::Working { active } => write!(f, "{active} active, nothing waiting"),
            Self::TooSoon { left_s, wanted } => {
                write!(f, "would go to {wanted}, but the cooldown lasts {left_s:.0} s more")
            }
            Self::Silent { source, why } => {
                write!(f, "{source} is unknown ({why}): nothing is removed")
            }
            Self::AnsweringAgain { left_s } => {
                write!(f, "readings are back, nothing is removed for {left_s:.0} s more")
            }
            Self::SilentTooLong { silent_s, workers } => {
                write!(f, "readings have been missing for {silent_s:.0} s: fallback to {workers}")
            }
            Self::QueuePaused => write!(f, "the queue is paused, more workers cannot help"),
            Self::InWindow { min, max } => write!(f, "the schedule says {min} to {max} now"),
            Self::Asked { workers, until: Some(t) } => {
                write!(f, "{workers} was asked for until {}", clock(*t))
            }
            Self::Asked { workers, until: None } => write!(f, "{workers} was asked for"),
            Self::Paused { direction, until } => {
                let what = match direction {
                    Direction::All => "scaling is paused",
                    Direction::Out => "scale-out is paused",
                    Direction::In => "scale-in is paused",
                };
                match until {
                    Some(t) => write!(f, "{what} until {}", clock(*t)),
                    None => write!(f, "{what}"),
                }
            }
            Self::HostFull { what, now, resume, emergency } => write!(
                f,
                "{what} {now:.1} %: no growth from {emergency} % on until it is below {resume} %"
            ),
            Self::HostCritical { what, now, emergency } => {
                write!(f, "{what} {now:.1} % has reached the emergency limit of {emergency} %")
            }
            Self::HostCarries {
                what: Gauge::Memory, carries, wanted, each, others, limit, ..
            } => {
                write!(
                    f,
                    "the host carries {carries}, wanted {wanted}: {each:.1} % of memory per worker, \
                     {others:.1} % of others, limit {limit} %"
                )
            }
            Self::HostCarries { carries, wanted, each, others, limit, cores, .. } => write!(
                f,
                "the host carries {carries}, wanted {wanted}: {:.2} cores per worker, \
                 {:.2} cores of others, {limit} % of {cores} cores",
                each / 100.0 * cores,
                others / 100.0 * cores
            ),
            Self::BudgetSpent { allowed, total } => {
                write!(f, "may have {allowed} of the budget of {}", counted(*total, "worker"))
            }
            Self::StepLimit { limit } => write!(f, "at most {limit} in one step"),
            Self::OutOfBounds { min, max } => write!(f, "must be {min} to {max}"),
            Self::CutToMax { max } => write!(f, "limited by max {max}"),
            Self::CutToMin { min } => write!(f, "limited by min {min}"),
            Self::Limited { why, limit } => write!(f, "{why}; {limit}"),
            Self::OnlyIdle { idle: 0, of } => write!(f, "none of {of} is known to be idle"),
            Self::OnlyIdle { idle: 1, of } => write!(f, "only 1 of {of} is known to be idle"),
            Self::OnlyIdle { idle, of } => write!(f, "only {idle} of {of} are known to be idle"),
            Self::WhichIsIdleUnknown { active, of } => write!(
                f,
                "{active} active on {} and nobody can say which are idle (busy: drain allows it)",
                counted(*of, "worker")
            ),
            Self::BusyUnknown => write!(f, "how many workers hold a job is unknown"),
            Self::BackOff { failures, left_s, what, said } => {
                let what = match what {
                    Trouble::FailedActions => "failed actions",
                    Trouble::DyingWorkers => "starts whose workers died",
                };
                write!(f, "{failures} {what} in a row")?;
                if !said.is_empty() {
                    write!(f, ", the last: {said}")?;
                }
                write!(f, ": next try in {left_s:.0} s; `headcount resume` tries now")
            }
            Self::Occupancy(reason) => reason.fmt(f),
            Self::Ratio(reason) => reason.fmt(f),
            Self::Slo(reason) => reason.fmt(f),
        }
    }
}

/// A point in time for people, in UTC.
fn clock(t: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(t.as_millis())
        .map_or_else(|_| t.as_seconds().to_string(), |t| t.strftime("%F %T UTC").to_string())
}
