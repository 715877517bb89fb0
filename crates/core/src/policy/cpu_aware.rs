//! Queue depth and host CPU, one worker at a time: the rule of the reference n8n autoscaler.
//!
//! Every poll, with `cpu = max(ema, raw)`, the first match counts:
//!
//! 1. `cpu > emergency` and n > min: one worker less;
//! 2. jobs wait, ema and raw are both below `scale_out_below`, n < max: one more;
//! 3. nothing waiting or active for `idle`, n > min: one less.
//!
//! A change happens only if `cooldown` has passed since the last successful one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decision::{Rule, Source, Why};
use crate::guard::Look;
use crate::policy::Wish;
use crate::reading::Silence;
use crate::smooth::{AsymmetricEwma, one_decimal};
use crate::state::Pending;
use crate::time::{Span, Timestamp, seconds};

/// A limit that no CPU reaches.
pub const NO_LIMIT: f64 = 101.0;

/// The parameters; the defaults are the reference's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CpuAware {
    /// How often to decide.
    pub poll: Span,
    /// Add a worker only while CPU is below this, percent; 101 is no limit.
    pub scale_out_below: f64,
    /// Remove a worker when CPU is above this, percent; 101 is no limit.
    pub emergency: f64,
    /// Remove a worker after this long without work.
    pub idle: Span,
    /// The least time between two changes.
    pub cooldown: Span,
    /// Weight of a sample above the smoothed CPU, 0 to 1.
    pub alpha_up: f64,
    /// Weight of a sample below it, 0 to 1.
    pub alpha_down: f64,
}

impl Default for CpuAware {
    fn default() -> Self {
        Self {
            poll: Span::from_secs(30),
            scale_out_below: 65.0,
            emergency: 88.0,
            idle: Span::from_secs(120),
            cooldown: Span::from_secs(90),
            alpha_up: 0.5,
            alpha_down: 0.1,
        }
    }
}

/// What the policy remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuAwareState {
    /// Smoothed CPU, percent.
    pub ema: AsymmetricEwma,
    /// The first poll of the present time without work.
    pub idle_since: Option<Timestamp>,
    /// The last successful change.
    pub acted_at: Option<Timestamp>,
}

impl CpuAware {
    pub(crate) fn problems(&self, found: &mut Vec<(String, String)>) {
        let mut say =
            |key: &str, what: String| found.push((format!("policy.cpu_aware.{key}"), what));
        if self.poll < Span::from_millis(100) {
            say("poll", format!("{:#} is too short; use 100ms or more", self.poll));
        }
        for (key, span) in [("idle", self.idle), ("cooldown", self.cooldown)] {
            if span.is_negative() {
                say(key, "must not be negative".into());
            }
        }
        let limits = [("scale_out_below", self.scale_out_below), ("emergency", self.emergency)];
        for (key, percent) in limits {
            if !(0.0..=NO_LIMIT).contains(&percent) {
                say(key, format!("{percent} must be a percentage, 0 to 100 (101 is no limit)"));
            }
        }
        for (key, alpha) in [("alpha_up", self.alpha_up), ("alpha_down", self.alpha_down)] {
            if !(alpha > 0.0 && alpha <= 1.0) {
                say(key, format!("{alpha} must be above 0 and at most 1"));
            }
        }
        if self.scale_out_below > self.emergency {
            let what = format!("{} is above emergency {}", self.scale_out_below, self.emergency);
            say("scale_out_below", what);
        }
    }

    pub(crate) fn wish(&self, state: &mut CpuAwareState, look: &Look<'_>) -> Wish {
        let hold = |rule, why| Wish::new(look.current, rule, why);
        let (Some(queue), Some(host)) = (look.queue, look.host) else {
            let why = Why::Silent { source: Source::Host, why: Silence::Absent.to_string() };
            return hold(Rule::Unknown, why);
        };
        let raw = one_decimal(host.cpu_raw);
        let ema = state.ema.add(raw, self.alpha_up, self.alpha_down);
        let idle = state.watch_idleness(queue.waiting == 0 && queue.active == 0, look.now);
        let (wanted, rule, why) =
            self.first_match(look, queue.waiting, queue.active, ema, raw, idle);

        let cools = state.acted_at.map(|at| self.cooldown.saturating_sub(look.now.since(at)));
        match cools {
            Some(left) if wanted != look.current && left > Span::ZERO => {
                hold(Rule::Cooldown, Why::TooSoon { left_s: seconds(left), wanted })
            }
            _ => Wish::new(wanted, rule, why),
        }
    }

    fn first_match(
        &self,
        look: &Look<'_>,
        waiting: u64,
        active: u64,
        ema: f64,
        raw: f64,
        idle: Option<Span>,
    ) -> (u32, Rule, Why) {
        let (n, bounds) = (look.current, look.bounds);
        let cpu = ema.max(raw);
        let limit = self.scale_out_below;
        if cpu > self.emergency && n > bounds.min {
            let why = Why::CpuCritical { cpu, limit: self.emergency };
            return (n.saturating_sub(1), Rule::Emergency, why);
        }
        if waiting > 0 && ema < limit && raw < limit && n < bounds.max {
            return (
                n.saturating_add(1),
                Rule::Backlog,
                Why::RoomForMore { waiting, ema, raw, limit },
            );
        }
        if waiting > 0 {
            let full = n >= bounds.max;
            let why = if full {
                Why::AtMost { waiting, max: bounds.max }
            } else {
                Why::NoRoom { waiting, ema, raw, limit }
            };
            return (n, Rule::Steady, why);
        }
        let Some(idle) = idle else { return (n, Rule::Steady, Why::Working { active }) };
        let (idle_s, after_s) = (seconds(idle), seconds(self.idle));
        match (n > bounds.min, idle >= self.idle) {
            (false, _) => (n, Rule::Steady, Why::AtLeast { min: bounds.min }),
            (true, false) => (n, Rule::Idle, Why::IdleSoFar { idle_s, after_s }),
            (true, true) => (n - 1, Rule::Idle, Why::IdleLongEnough { idle_s, after_s }),
        }
    }
}

impl CpuAwareState {
    /// How long there has been no work, on the clock that any poll with work clears.
    fn watch_idleness(&mut self, idle: bool, now: Timestamp) -> Option<Span> {
        self.idle_since = idle.then(|| self.idle_since.unwrap_or(now));
        self.idle_since.map(|since| now.since(since))
    }

    /// A successful change starts the cooldown; a removal starts the idle clock anew.
    pub(crate) fn acted(&mut self, change: &Pending) {
        self.acted_at = Some(change.at);
        if change.to < change.from {
            self.idle_since = None;
        }
    }
}
