//! The rules of one group: bounds, policy and safety limits, as a user writes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::Policy;
use crate::schedule::Schedule;
use crate::time::Span;

/// The most workers one group may have; a typo of one digit more is an error, not a bill.
pub const MOST_WORKERS: u32 = 10_000;

/// Everything that shapes a group's decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rules {
    /// How many workers there may be.
    pub workers: Bounds,
    /// The rule that wants a number.
    pub policy: Policy,
    /// The host's limits: no growth beyond them.
    pub brake: Brake,
    /// How full of workers the host may get, by what they are known to take.
    pub capacity: Capacity,
    /// How far one decision may go.
    pub limits: Limits,
    /// Other bounds at certain times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// Whether scale-in may stop a worker that holds a job.
    pub busy: Busy,
    /// Where to go when the sources stay silent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Fallback>,
    /// After this long a reading counts as missing. Default: three polls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_after: Option<Span>,
    /// After an outage, readings must be known for this long before a scale-in. Default: two polls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settle: Option<Span>,
}

impl Rules {
    /// How old a reading may be.
    pub fn stale_after(&self) -> Span {
        self.stale_after.unwrap_or(self.policy.poll().saturating_mul(3))
    }

    /// How long readings must be known after an outage before a scale-in.
    pub fn settle(&self) -> Span {
        self.settle.unwrap_or(self.policy.poll().saturating_mul(2))
    }

    /// How long a new worker may take until it is ready: the hint, or 30 s.
    pub fn start_up(&self) -> Span {
        self.workers.start_up.unwrap_or(Span::from_secs(30))
    }

    /// Everything that makes no sense, as (key, what is wrong and what to do).
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        self.workers.problems(&mut found);
        self.policy.problems(&mut found);
        self.brake.problems(&mut found);
        self.capacity.problems(&mut found);
        self.limits.problems(&mut found);
        if let Some(schedule) = &self.schedule {
            schedule.problems(&self.workers, &mut found);
        }
        if let Some(fallback) = &self.fallback
            && !(self.workers.min..=self.workers.max).contains(&fallback.workers)
        {
            let (min, max) = (self.workers.min, self.workers.max);
            let what = format!("{} is outside {min} to {max}", fallback.workers);
            found.push(("fallback.workers".into(), what));
        }
        for (key, span) in [("stale_after", self.stale_after), ("settle", self.settle)] {
            if span.is_some_and(|s| s.is_negative()) {
                found.push((key.into(), "must not be negative".into()));
            }
        }
        if self.stale_after.is_some_and(|span| span < self.policy.poll()) {
            let what = "is shorter than one poll, so every reading would be stale; use three polls";
            found.push(("stale_after".into(), what.into()));
        }
        found
    }
}

/// How many workers a group may have and what one worker is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Bounds {
    /// The fewest workers (0 or more).
    pub min: u32,
    /// The most workers.
    pub max: u32,
    /// Jobs one worker runs at once. n8n: its concurrency limit.
    pub slots: u32,
    /// How long a worker takes to start; a hint until it is learnt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_up: Option<Span>,
}

impl Default for Bounds {
    /// As the reference autoscaler: 1 to 4 workers of one slot.
    fn default() -> Self {
        Self { min: 1, max: 4, slots: 1, start_up: None }
    }
}

impl Bounds {
    fn problems(&self, found: &mut Vec<(String, String)>) {
        if self.min > self.max {
            let what = format!("min {} is above max {}; swap them?", self.min, self.max);
            found.push(("workers.min".into(), what));
        }
        if self.max == 0 {
            found.push(("workers.max".into(), "must be at least 1".into()));
        }
        if self.max > MOST_WORKERS {
            let what = format!("{} is above the limit of {MOST_WORKERS}", self.max);
            found.push(("workers.max".into(), what));
        }
        if self.slots == 0 || self.slots > 10_000 {
            found.push(("workers.slots".into(), "must be 1 to 10000".into()));
        }
        if self.start_up.is_some_and(|s| s.is_negative()) {
            found.push(("workers.start_up".into(), "must not be negative".into()));
        }
    }
}

/// The host's limits in percent. Growth stops when one is reached and resumes below `resume`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Brake {
    /// CPU averaged over a poll, and its EWMA. Off for a policy with an emergency rule of its own.
    pub cpu: Option<Pressure>,
    /// Memory in use.
    pub memory: Option<MemoryPressure>,
    /// Share of time in which tasks wait for a CPU (PSI `some avg10`); not watched unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<Pressure>,
    /// No brake at all.
    #[serde(skip_serializing_if = "is_false")]
    pub off: bool,
}

const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Brake {
    /// The limits for CPU: as given, else 65 and 88 percent.
    pub fn cpu(&self) -> Pressure {
        self.cpu.clone().unwrap_or_default()
    }

    /// The limits for memory: as given, else 85 and 95 percent.
    pub fn memory(&self) -> Pressure {
        self.memory.clone().unwrap_or_default().into()
    }

    fn problems(&self, found: &mut Vec<(String, String)>) {
        let pairs = [
            ("brake.cpu", Some(self.cpu())),
            ("brake.memory", Some(self.memory())),
            ("brake.cpu_pressure", self.cpu_pressure.clone()),
        ];
        for (key, pressure) in pairs {
            let Some(Pressure { resume, emergency, .. }) = pressure else { continue };
            let percent = |x: f64| (0.0..=100.0).contains(&x);
            if !percent(resume) || !percent(emergency) || resume > emergency {
                let what = format!(
                    "resume {resume} and emergency {emergency} must be percentages, resume the lower"
                );
                found.push((key.into(), what));
            }
        }
    }
}

/// Two limits in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pressure {
    /// Growth resumes below this.
    pub resume: f64,
    /// From here growth stops, and one idle worker at a time is removed.
    pub emergency: f64,
    /// This gauge is not watched.
    #[serde(skip_serializing_if = "is_false")]
    pub off: bool,
}

impl Default for Pressure {
    /// The thresholds of the reference autoscaler.
    fn default() -> Self {
        Self { resume: 65.0, emergency: 88.0, off: false }
    }
}

/// Two limits of memory in percent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryPressure {
    /// Growth resumes below this.
    pub resume: f64,
    /// From here growth stops, and one idle worker at a time is removed.
    pub emergency: f64,
    /// This gauge is not watched.
    #[serde(skip_serializing_if = "is_false")]
    pub off: bool,
}

impl Default for MemoryPressure {
    /// Above these a Linux host starts to swap or to kill: 85 and 95 percent.
    fn default() -> Self {
        Self { resume: 85.0, emergency: 95.0, off: false }
    }
}

impl From<MemoryPressure> for Pressure {
    fn from(limits: MemoryPressure) -> Self {
        let MemoryPressure { resume, emergency, off } = limits;
        Self { resume, emergency, off }
    }
}

/// How full of workers the host may get, in percent, by what each is known to take. No worker is added
/// beyond; nothing happens until that is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Capacity {
    /// CPU: the last worker may start below this. Default: 90, and none for a policy with a CPU rule
    /// of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Memory: the last worker must fit below this. Default: 90.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<f64>,
    /// No such limit at all.
    #[serde(skip_serializing_if = "is_false")]
    pub off: bool,
}

impl Capacity {
    /// Above this CPU has no room for work that comes in bursts, and memory none for a job that
    /// takes more than others.
    const MOST: f64 = 90.0;

    /// The limit of CPU, percent: as given, else 90.
    pub fn cpu(&self) -> f64 {
        self.cpu.unwrap_or(Self::MOST)
    }

    /// The limit of memory, percent: as given, else 90.
    pub fn memory(&self) -> f64 {
        self.memory.unwrap_or(Self::MOST)
    }

    fn problems(&self, found: &mut Vec<(String, String)>) {
        for (key, limit) in [("capacity.cpu", self.cpu), ("capacity.memory", self.memory)] {
            if limit.is_some_and(|limit| !(1.0..=100.0).contains(&limit)) {
                let what = "must be a percentage, 1 to 100; `capacity: off` switches both off";
                found.push((key.into(), what.into()));
            }
        }
    }
}

/// How far one decision may go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The most workers one decision adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_out: Option<u32>,
    /// The most workers one decision removes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_in: Option<u32>,
}

impl Limits {
    fn problems(&self, found: &mut Vec<(String, String)>) {
        for (key, step) in [("limits.step_out", self.step_out), ("limits.step_in", self.step_in)] {
            if step == Some(0) {
                found.push((key.into(), "0 would stop all scaling; use `pause` for that".into()));
            }
        }
    }
}

/// Whether scale-in may stop a worker that holds a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Busy {
    /// Only workers that are known to be idle are stopped.
    #[default]
    Protect,
    /// As many workers as are idle by count may be told to go, even if nobody can say which ones
    /// are idle. For workers that finish their job when they get SIGTERM.
    Drain,
    /// Any worker may be stopped, as the reference autoscaler does.
    Any,
}

/// Where to go when the sources stay silent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// How long they must be silent.
    pub after: Span,
    /// At least this many workers then.
    pub workers: u32,
}
