//! So many jobs per worker, as KEDA and the Kubernetes Horizontal Pod Autoscaler (HPA) do it.
//!
//! Every poll, with m the metric (`count`) and n the workers:
//!
//! 1. *Activation* (KEDA). Active is m > `activation`. At n = 0: active goes to max(min, 1), else
//!    nothing. With min 0 and n > 0: not active for `cooldown` goes straight to 0, past all limits
//!    below.
//! 2. *Ratio* (HPA). Within `tolerance` of m / (`jobs_per_worker` x n) = 1 the recommendation is n,
//!    else ceil(m / `jobs_per_worker`).
//! 3. *Stabilisation* (HPA). Growth goes to the lowest recommendation of the scale-up window at
//!    most, shrinking to the highest of the scale-down window at least.
//! 4. *Rate* (HPA). `behavior` limits the change per period. Without `behavior`: one window of
//!    300 s, highest recommendation, and growth to max(2n, 4) at most.
//! 5. Within max(min, 1) and max.
//!
//! Source: KEDA 2.20 `scale_scaledobjects.go` and Kubernetes 1.36 `horizontal.go`. One difference:
//! the first look at idle workers starts the cooldown, where KEDA stops them at once.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decision::{Rule, Why};
use crate::guard::{Look, Range};
use crate::policy::Wish;
use crate::reading::QueueReading;
use crate::state::Pending;
use crate::time::{Span, Timestamp, seconds};
use crate::words::counted;

/// The most recommendations and changes that are kept; older ones are merged.
const MOST_KEPT: usize = 256;
/// The stabilisation window of the HPA without `behavior`, and of its scale-down.
const STABILISATION: Span = Span::from_secs(300);
/// The period of the HPA's default limits.
const PERIOD: Span = Span::from_secs(15);

/// The parameters; the defaults are KEDA's and the HPA's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ratio {
    /// How often to decide. The HPA's sync period.
    pub poll: Span,
    /// Jobs that one worker is to have (KEDA's target value, such as `listLength`), above 0.
    pub jobs_per_worker: f64,
    /// No change while the ratio differs from 1 by no more than this.
    pub tolerance: f64,
    /// What is counted: `waiting`, or `waiting_and_active`.
    pub count: Count,
    /// From zero, and to zero, workers are wanted only while the count is above this.
    pub activation: u64,
    /// How long the count must have been at or below `activation` before the step to zero.
    pub cooldown: Span,
    /// Limits on the speed. Default: the HPA's own without `behavior`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behavior: Option<Behavior>,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Jobs that wait. As KEDA counts a Redis list.
    Waiting,
    /// Jobs that wait or run. As KEDA counts RabbitMQ and SQS; a busy worker is not idle.
    #[default]
    WaitingAndActive,
}

/// Limits on the speed, as in a HorizontalPodAutoscaler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Behavior {
    /// Growth. Default: at once, 4 workers or 100 % per 15 s, whichever is more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<Speed>,
    /// Shrinking. Default: a window of 300 s, 100 % per 15 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<Speed>,
}

/// The limits of one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Speed {
    /// How long a recommendation must hold. Default: 0 s up, 300 s down; at most an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stabilization_window: Option<Span>,
    /// Which of the limits counts.
    pub select: Select,
    /// The limits. Default: those of the HPA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<Vec<Allowance>>,
}

/// Which limit counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Select {
    /// The one that allows the largest change.
    #[default]
    Max,
    /// The one that allows the smallest change.
    Min,
    /// No change in this direction.
    Disabled,
}

/// How much may change per period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// So many workers, or so many percent of those at the start of the period.
    #[serde(flatten)]
    pub amount: Amount,
    /// The period, at most half an hour.
    pub period: Span,
}

/// So many workers or percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Workers.
    Workers(u32),
    /// Percent of the workers at the start of the period.
    Percent(u32),
}

/// What the policy remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RatioState {
    /// When the count was last above `activation`.
    pub active_at: Option<Timestamp>,
    /// What was recommended, oldest first: when, lowest, highest; at most 256 of them.
    pub recommended: Vec<(Timestamp, u32, u32)>,
    /// The changes that were made, oldest first: when, by how many; at most 256 of them.
    pub changes: Vec<(Timestamp, i64)>,
}

/// The policy's reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum Reason {
    /// Jobs for a fleet of zero.
    Activated { jobs: u64, activation: u64 },
    /// Not enough jobs to leave zero.
    NotActive { jobs: u64, activation: u64 },
    /// Not active for so long; to zero.
    IdleToZero { idle_s: f64, cooldown_s: f64 },
    /// The ratio is near enough to 1.
    WithinTolerance { jobs: u64, per_worker: f64, tolerance: f64 },
    /// So many workers for so many jobs.
    Needs { jobs: u64, per_worker: f64, workers: u32 },
    /// No jobs, but a fleet of one goes to zero only after the cooldown.
    LastStays { idle_s: f64, cooldown_s: f64 },
    /// Within the window another recommendation counts.
    Stabilised { workers: u32, window_s: f64, recommended: u32 },
    /// Faster than allowed.
    TooFast { limit: u32, recommended: u32 },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Activated { jobs, activation } => {
                write!(f, "{}, more than {activation}: the first workers", counted(*jobs, "job"))
            }
            Self::NotActive { jobs, activation } => {
                write!(f, "{}, not more than {activation}: stays at zero", counted(*jobs, "job"))
            }
            Self::IdleToZero { idle_s, cooldown_s } => {
                write!(f, "not active for {idle_s:.0} s (limit {cooldown_s:.0} s): to zero")
            }
            Self::WithinTolerance { jobs, per_worker, tolerance } => write!(
                f,
                "{} at {per_worker} a worker is within {tolerance} of what is there",
                counted(*jobs, "job")
            ),
            Self::Needs { jobs, per_worker, workers } => {
                let need = if *jobs == 1 { "needs" } else { "need" };
                write!(f, "{} at {per_worker} a worker {need} {workers}", counted(*jobs, "job"))
            }
            Self::LastStays { idle_s, cooldown_s } => write!(
                f,
                "the last worker stays until not active for {cooldown_s:.0} s ({idle_s:.0} s so far)"
            ),
            Self::Stabilised { workers, window_s, recommended } => write!(
                f,
                "would go to {recommended}, but within {window_s:.0} s {workers} was recommended"
            ),
            Self::TooFast { limit, recommended } => {
                write!(f, "would go to {recommended}, but {limit} is as far as the rate allows")
            }
        }
    }
}

impl Default for Ratio {
    fn default() -> Self {
        Self {
            poll: Span::from_secs(15),
            jobs_per_worker: 5.0,
            tolerance: 0.1,
            count: Count::default(),
            activation: 0,
            cooldown: Span::from_secs(300),
            behavior: None,
        }
    }
}

impl Ratio {
    pub(crate) fn problems(&self, found: &mut Vec<(String, String)>) {
        let mut say = |key: &str, what: &str| {
            found.push((format!("policy.ratio.{key}"), what.to_string()));
        };
        if self.poll < Span::from_millis(100) {
            say("poll", "is too short; use 100ms or more");
        }
        if !(self.jobs_per_worker.is_finite() && self.jobs_per_worker > 0.0) {
            say("jobs_per_worker", "must be above 0");
        }
        if !(0.0..=10.0).contains(&self.tolerance) {
            say("tolerance", "must be 0 to 10; 0.1 is 10 percent");
        }
        if self.cooldown.is_negative() {
            say("cooldown", "must not be negative");
        }
        let behavior = self.behavior.clone().unwrap_or_default();
        for (key, speed) in [("scale_up", behavior.scale_up), ("scale_down", behavior.scale_down)] {
            let Some(speed) = speed else { continue };
            let hour = Span::ZERO..=Span::from_hours(1);
            if speed.stabilization_window.is_some_and(|window| !hour.contains(&window)) {
                say(&format!("behavior.{key}.stabilization_window"), "must be 0s to 1h");
            }
            let Some(policies) = speed.policies else { continue };
            let periods = Span::from_millis(1)..=Span::from_mins(30);
            if policies.is_empty() || policies.len() > 16 {
                say(&format!("behavior.{key}.policies"), "must be 1 to 16 limits");
            }
            if policies.iter().any(|p| !periods.contains(&p.period) || p.amount.is_zero()) {
                let what = "each needs 1 or more workers or percent, and a period of 30m or less";
                say(&format!("behavior.{key}.policies"), what);
            }
        }
    }

    pub(crate) fn wish(&self, state: &mut RatioState, look: &Look<'_>) -> Wish {
        let n = look.current;
        let say = |wanted, rule, why| Wish::new(wanted, rule, Why::Ratio(why));
        let Some(queue) = look.queue else {
            let why = Why::AtLeast { min: look.bounds.min };
            return Wish::new(n, Rule::Steady, why);
        };
        let (jobs, activation) = (self.jobs(queue), self.activation);
        let active = jobs > activation;
        if active || state.active_at.is_none() {
            state.active_at = Some(look.now);
        }
        if n == 0 {
            let least = look.bounds.min.max(1);
            return match active || look.bounds.min > 0 {
                true => say(least, Rule::Activation, Reason::Activated { jobs, activation }),
                false => say(0, Rule::Activation, Reason::NotActive { jobs, activation }),
            };
        }
        let idle = state.active_at.map_or(Span::ZERO, |at| look.now.since(at));
        if look.bounds.min == 0 && !active && idle > self.cooldown {
            let (idle_s, cooldown_s) = (seconds(idle), seconds(self.cooldown));
            return say(0, Rule::Activation, Reason::IdleToZero { idle_s, cooldown_s });
        }
        let mut wish = self.horizontal(state, look, jobs);
        if let Some((0, limit)) = &mut wish.cut
            && look.bounds.min == 0
        {
            let (idle_s, cooldown_s) = (seconds(idle), seconds(self.cooldown));
            *limit = Why::Ratio(Reason::LastStays { idle_s, cooldown_s });
        }
        wish
    }

    fn jobs(&self, queue: &QueueReading) -> u64 {
        match self.count {
            Count::Waiting => queue.waiting,
            Count::WaitingAndActive => queue.waiting.saturating_add(queue.active),
        }
    }

    /// Rules 2 to 5: what the HPA does from one worker on.
    fn horizontal(&self, state: &mut RatioState, look: &Look<'_>, jobs: u64) -> Wish {
        let n = look.current;
        let per_worker = self.jobs_per_worker;
        let ratio = jobs as f64 / (per_worker * f64::from(n));
        let near = 1.0 - self.tolerance <= ratio && ratio <= 1.0 + self.tolerance;
        let (desired, rule, why) = if near {
            let tolerance = self.tolerance;
            (n, Rule::Steady, Reason::WithinTolerance { jobs, per_worker, tolerance })
        } else {
            // `as` saturates: an absurd backlog wants as many workers as there can be.
            let workers = (jobs as f64 / per_worker).ceil() as u32;
            (workers, Rule::Ratio, Reason::Needs { jobs, per_worker, workers })
        };
        let (up, down) = self.speeds();
        let stable = match &self.behavior {
            None => state.recommend(desired, n, STABILISATION, Span::ZERO, look.now).1,
            Some(_) => {
                let (up, down) = (up.window(Span::ZERO), down.window(STABILISATION));
                let (lowest, highest) = state.recommend(desired, n, down, up, look.now);
                n.max(lowest).min(highest)
            }
        };
        let bounds = Range { min: look.bounds.min.max(1), max: look.bounds.max.max(1) };
        let clamped = |workers: u32| workers.min(bounds.max).max(bounds.min);
        let within = clamped(stable);
        let wanted = match &self.behavior {
            None => within.min(n.saturating_mul(2).max(4)),
            Some(_) if within > n => within.min(up.most(n, &state.changes, look.now).max(n)),
            Some(_) if within < n => within.max(down.least(n, &state.changes, look.now).min(n)),
            Some(_) => within,
        };
        let (asked, rule, why) = if wanted != within {
            (wanted, Rule::Rate, Reason::TooFast { limit: wanted, recommended: within })
        } else if within != clamped(desired) {
            let window =
                if stable < desired { up.window(Span::ZERO) } else { down.window(STABILISATION) };
            let (workers, window_s) = (stable, seconds(window));
            let why = Reason::Stabilised { workers, window_s, recommended: desired };
            (stable, Rule::Stabilization, why)
        } else {
            (desired, rule, why)
        };
        match wanted != within {
            // Within the bounds already, and no further than the rate says.
            true => Wish::new(wanted, rule, Why::Ratio(why)),
            false => Wish::within(asked, bounds, rule, Why::Ratio(why)),
        }
    }

    fn speeds(&self) -> (Speed, Speed) {
        let behavior = self.behavior.clone().unwrap_or_default();
        let allowance = |amount| Allowance { amount, period: PERIOD };
        let with = |speed: Option<Speed>, limits: &[Amount]| {
            let mut speed = speed.unwrap_or_default();
            speed.policies.get_or_insert_with(|| limits.iter().copied().map(allowance).collect());
            speed
        };
        let up = with(behavior.scale_up, &[Amount::Workers(4), Amount::Percent(100)]);
        let down = with(behavior.scale_down, &[Amount::Percent(100)]);
        (up, down)
    }
}

impl Amount {
    const fn is_zero(self) -> bool {
        matches!(self, Self::Workers(0) | Self::Percent(0))
    }
}

impl Speed {
    fn window(&self, default: Span) -> Span {
        self.stabilization_window.unwrap_or(default)
    }

    /// The most workers that growth may reach now.
    fn most(&self, n: u32, changes: &[(Timestamp, i64)], now: Timestamp) -> u32 {
        let limit = |allowance: &Allowance| {
            let start = at_start(n, changes, now, allowance.period);
            match allowance.amount {
                Amount::Workers(workers) => start + f64::from(workers),
                Amount::Percent(percent) => (start * (1.0 + f64::from(percent) / 100.0)).ceil(),
            }
        };
        self.selected(n, limit, f64::max, f64::min)
    }

    /// The fewest workers that shrinking may reach now.
    fn least(&self, n: u32, changes: &[(Timestamp, i64)], now: Timestamp) -> u32 {
        let limit = |allowance: &Allowance| {
            let start = at_start(n, changes, now, allowance.period);
            match allowance.amount {
                Amount::Workers(workers) => start - f64::from(workers),
                Amount::Percent(percent) => (start * (1.0 - f64::from(percent) / 100.0)).floor(),
            }
        };
        self.selected(n, limit, f64::min, f64::max)
    }

    fn selected(
        &self,
        n: u32,
        limit: impl Fn(&Allowance) -> f64,
        largest: fn(f64, f64) -> f64,
        smallest: fn(f64, f64) -> f64,
    ) -> u32 {
        let pick = match self.select {
            Select::Disabled => return n,
            Select::Max => largest,
            Select::Min => smallest,
        };
        let limits = self.policies.iter().flatten().map(limit);
        // `as` saturates: below zero is zero.
        limits.reduce(pick).map_or(n, |limit| limit as u32)
    }
}

/// How many workers there were when the period began.
fn at_start(n: u32, changes: &[(Timestamp, i64)], now: Timestamp, period: Span) -> f64 {
    let recent = changes.iter().filter(|(at, _)| now.since(*at) < period);
    let change: i64 = recent.map(|(_, by)| *by).fold(0, i64::saturating_add);
    (f64::from(n) - change as f64).max(0.0)
}

impl RatioState {
    /// Takes in a recommendation; returns the lowest of the `up` window and the highest of the
    /// `down` window. The first one after a start comes with the present number beside it, so that
    /// a whole window must pass before a scale-in.
    fn recommend(
        &mut self,
        desired: u32,
        current: u32,
        down: Span,
        up: Span,
        now: Timestamp,
    ) -> (u32, u32) {
        if self.recommended.is_empty() {
            self.recommended.push((now, current, current));
        }
        let longest = down.max(up);
        self.recommended.retain(|(at, ..)| now.since(*at) < longest);
        // Neighbours are merged, so that the longest window fits into the list.
        let near = Span::from_millis((longest.as_millis() / MOST_KEPT as i128) as i64);
        match self.recommended.last_mut() {
            Some((at, low, high)) if now.since(*at) <= near => {
                (*low, *high) = ((*low).min(desired), (*high).max(desired));
            }
            _ => self.recommended.push((now, desired, desired)),
        }
        let extra = self.recommended.len().saturating_sub(MOST_KEPT);
        self.recommended.drain(..extra);
        let inside =
            |window: Span| self.recommended.iter().filter(move |(at, ..)| now.since(*at) < window);
        let lowest = inside(up).map(|(_, low, _)| *low).fold(desired, u32::min);
        let highest = inside(down).map(|(.., high)| *high).fold(desired, u32::max);
        (lowest, highest)
    }

    pub(crate) fn acted(&mut self, change: &Pending) {
        if self.active_at.is_none() {
            // Another policy's change.
            return;
        }
        self.changes.push((change.at, i64::from(change.to) - i64::from(change.from)));
        let longest = Span::from_mins(30);
        self.changes.retain(|(at, _)| change.at.since(*at) < longest);
        if self.changes.len() > MOST_KEPT {
            let (_, by) = self.changes.remove(0);
            self.changes[0].1 = self.changes[0].1.saturating_add(by);
        }
    }

    /// Nothing is known of some time: the cooldown and the windows start anew.
    pub(crate) fn forget_idleness(&mut self) {
        self.active_at = None;
        self.recommended.clear();
    }

    pub(crate) fn shift(&mut self, delta: Span) {
        self.active_at = self.active_at.map(|at| at.plus(delta));
        self.recommended.iter_mut().for_each(|(at, ..)| *at = at.plus(delta));
        self.changes.iter_mut().for_each(|(at, _)| *at = at.plus(delta));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Policy, PolicyState};
    use crate::scene::Scene;
    use crate::state::Pending;

    const KEDA: &str = "KEDA scale_scaledobjects.go";
    const HPA: &str = "HPA horizontal.go";
    const CALC: &str = "HPA replica_calculator.go";

    /// Looks one after another, all changes done: seconds since the last look, workers (absent: as
    /// wanted before), waiting, active; and what is wanted with the rule that says so.
    type Looks = &'static [(i64, Option<u32>, u64, u64, u32, Rule)];

    fn play(name: &str, source: &str, min: u32, yaml: &str, looks: Looks) {
        let ratio: Ratio = serde_json::from_str(yaml).unwrap();
        let mut problems = Vec::new();
        ratio.problems(&mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        let (policy, mut state) = (Policy::Ratio(ratio), PolicyState::default());
        let (mut scene, mut n) = (Scene::new(1), 1);
        (scene.rules.workers.min, scene.rules.workers.max) = (min, 100);
        for (i, (later, current, waiting, active, wanted, rule)) in looks.iter().enumerate() {
            scene.later(*later);
            n = current.unwrap_or(n);
            scene.fleet.ready = n;
            let queue = scene.queue.as_mut().unwrap();
            (queue.waiting, queue.active) = (*waiting, *active);
            let wish = policy.wish(&mut state, &scene.look());
            let found = (wish.wanted, wish.rule);
            assert_eq!(found, (*wanted, *rule), "{name} ({source}), look {i}: {}", wish.why);
            if wish.wanted != n {
                let kind = crate::decision::Kind::ScaleOut;
                let (at, to) = (scene.now, wish.wanted);
                state.acted(&Pending { at, from: n, to, by_policy: true, by_brake: false, kind });
            }
            n = wish.wanted;
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table, a row for each rule")]
    fn each_rule_has_its_row() {
        use Rule::{Activation, Rate, Ratio, Stabilization, Steady};
        let ten = r#"{"jobs_per_worker": 10}"#;
        let one = r#"{"jobs_per_worker": 1}"#;
        let quick = r#"{"jobs_per_worker": 1, "behavior": {}}"#;
        let at_once = r#"{"jobs_per_worker": 1, "behavior": {"scale_down":
            {"stabilization_window": "0s"}}}"#;
        play(
            "within the tolerance",
            CALC,
            0,
            ten,
            &[
                (0, Some(10), 110, 0, 10, Steady),
                (15, Some(10), 90, 0, 10, Steady),
                (15, Some(10), 111, 0, 12, Ratio),
            ],
        );
        play(
            "absolute: the jobs, not the ratio, are divided",
            CALC,
            0,
            ten,
            &[(0, Some(8), 55, 20, 8, Steady), (15, Some(8), 155, 0, 16, Ratio)],
        );
        play(
            "only waiting jobs",
            KEDA,
            0,
            r#"{"jobs_per_worker": 1, "count": "waiting"}"#,
            &[(0, Some(2), 3, 50, 3, Ratio)],
        );
        play(
            "from zero to one, then by the ratio",
            KEDA,
            0,
            one,
            &[
                (0, Some(0), 0, 0, 0, Activation),
                (15, Some(0), 3, 0, 1, Activation),
                (15, None, 3, 0, 3, Ratio),
            ],
        );
        play("from zero to min", KEDA, 3, one, &[(0, Some(0), 1, 0, 3, Activation)]);
        play(
            "activation wins over the ratio",
            KEDA,
            0,
            r#"{"jobs_per_worker": 10, "activation": 50}"#,
            &[
                (0, Some(0), 40, 0, 0, Activation),
                (15, Some(0), 50, 0, 0, Activation),
                (15, Some(0), 51, 0, 1, Activation),
            ],
        );
        play(
            "to zero after the cooldown, past every window",
            KEDA,
            0,
            one,
            &[
                (0, Some(4), 4, 0, 4, Steady),
                (299, Some(4), 0, 0, 4, Stabilization),
                (2, Some(4), 0, 0, 0, Activation),
            ],
        );
        play(
            "the first look starts the cooldown",
            "own",
            0,
            one,
            &[
                (0, Some(1), 0, 0, 1, Ratio),
                (300, Some(1), 0, 0, 1, Ratio),
                (1, Some(1), 0, 0, 0, Activation),
            ],
        );
        play(
            "never to zero while min is above it",
            KEDA,
            1,
            one,
            &[(0, Some(1), 0, 0, 1, Ratio), (900, Some(1), 0, 0, 1, Ratio)],
        );
        play(
            "growth doubles or goes to 4",
            HPA,
            0,
            one,
            &[
                (0, Some(1), 50, 0, 4, Rate),
                (15, None, 50, 0, 8, Rate),
                (15, None, 50, 0, 16, Rate),
                (15, None, 50, 0, 32, Rate),
                (15, None, 50, 0, 50, Ratio),
            ],
        );
        play(
            "the highest recommendation of 300 s holds",
            HPA,
            0,
            one,
            &[
                (0, Some(6), 6, 0, 6, Steady),
                (15, None, 4, 0, 6, Stabilization),
                (284, None, 2, 0, 6, Stabilization),
                (15, None, 2, 0, 4, Stabilization),
                (286, None, 2, 0, 2, Ratio),
            ],
        );
        play(
            "a start holds the present number for a whole window",
            HPA,
            0,
            one,
            &[
                (0, Some(6), 1, 0, 6, Stabilization),
                (299, None, 1, 0, 6, Stabilization),
                (1, None, 1, 0, 1, Ratio),
            ],
        );
        play(
            "behavior: 4 workers or 100 % in 15 s",
            HPA,
            0,
            quick,
            &[
                (0, Some(1), 50, 0, 5, Rate),
                (15, None, 50, 0, 10, Rate),
                (14, None, 50, 0, 10, Rate),
                (1, None, 50, 0, 20, Rate),
            ],
        );
        play(
            "behavior: shrinking at once and wholly",
            HPA,
            0,
            at_once,
            &[(0, Some(9), 2, 0, 2, Ratio)],
        );
        play(
            "behavior: one worker in 60 s down",
            HPA,
            0,
            r#"{"jobs_per_worker": 1, "behavior": {"scale_down": {"stabilization_window": "0s",
                "policies": [{"workers": 1, "period": "60s"}]}}}"#,
            &[(0, Some(9), 2, 0, 8, Rate), (59, None, 2, 0, 8, Rate), (1, None, 2, 0, 7, Rate)],
        );
        play(
            "behavior: percent down is rounded down",
            HPA,
            0,
            r#"{"jobs_per_worker": 1, "behavior": {"scale_down": {"stabilization_window": "0s",
                "policies": [{"percent": 10, "period": "60s"}]}}}"#,
            &[(0, Some(9), 2, 0, 8, Rate)],
        );
        play(
            "behavior: percent up is rounded up",
            HPA,
            0,
            r#"{"jobs_per_worker": 1, "behavior": {"scale_up": {
                "policies": [{"percent": 10, "period": "60s"}]}}}"#,
            &[(0, Some(9), 50, 0, 10, Rate)],
        );
        play(
            "behavior: the smaller limit",
            HPA,
            0,
            r#"{"jobs_per_worker": 1, "behavior": {"scale_up": {"select": "min", "policies":
                [{"workers": 2, "period": "15s"}, {"percent": 100, "period": "15s"}]}}}"#,
            &[(0, Some(9), 50, 0, 11, Rate)],
        );
        play(
            "behavior: no growth at all",
            HPA,
            0,
            r#"{"jobs_per_worker": 1, "behavior": {"scale_up": {"select": "disabled"}}}"#,
            &[(0, Some(9), 50, 0, 9, Rate)],
        );
        play(
            "behavior: growth waits for a window",
            HPA,
            0,
            r#"{"jobs_per_worker": 1, "behavior": {"scale_up": {"stabilization_window": "60s"}}}"#,
            &[
                (0, Some(2), 4, 0, 2, Stabilization),
                (59, None, 4, 0, 2, Stabilization),
                (1, None, 5, 0, 4, Stabilization),
            ],
        );
    }

    #[test]
    fn the_bounds_hold_within_the_policy() {
        play(
            "min",
            HPA,
            3,
            r#"{"jobs_per_worker": 1}"#,
            &[(0, Some(3), 0, 0, 3, Rule::Ratio), (301, None, 0, 0, 3, Rule::Ratio)],
        );
        play(
            "max",
            HPA,
            0,
            r#"{"jobs_per_worker": 1}"#,
            &[(0, Some(60), 500, 0, 100, Rule::Ratio)],
        );
    }

    #[test]
    fn memory_has_an_end() {
        let (mut state, start) = (RatioState::default(), Scene::new(0).now);
        state.active_at = Some(start);
        for i in 0..5000_u32 {
            let now = start.plus(Span::from_secs(i.into()));
            let hour = Span::from_hours(1);
            let (low, high) = state.recommend(10 + i % 7, 1, hour, hour, now);
            let full = i >= 3700;
            assert!(low <= 10 + i % 7 && high == 16.min(10 + i.max(i % 7)), "{i}: {low} {high}");
            assert!(!full || low == 10, "{i}: {low}");
            let (kind, to) = (crate::decision::Kind::ScaleOut, 2 + i % 2);
            state.acted(&Pending { at: now, from: 2, to, by_policy: true, by_brake: false, kind });
        }
        assert!(state.recommended.len() <= MOST_KEPT && state.changes.len() <= MOST_KEPT);
    }
}
