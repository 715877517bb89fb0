//! Queue depth per tag and how busy the workers are over 15 s, 5 min and 30 min: Windmill's rule.
//!
//! Every poll, the first match counts; `inc` is `inc_num_workers`:
//!
//! 1. outside the bounds: back to them, or to max if a tag's backlog is full and n < min;
//! 2. a tag has `full_scale_jobs_waiting` or more and n < max: max. No cooldown holds 1 and 2 back;
//! 3. the last change is younger than its cooldown (another one after a full scale-out): nothing;
//! 4. a tag has `inc_scale_num_jobs_waiting` or more: n + inc;
//! 5. all three windows below `dec_scale_occupancy_rate`: n - inc; all above
//!    `inc_scale_occupancy_rate`: n + inc. A window that is not known decides nothing.
//!
//! The windows are those of the observation if it has any, else our own samples; the loop passes a
//! source's windows on only with `parity`.
//!
//! Source: Windmill's public documentation and pull requests. "More than" in the documentation is
//! "or more" in the program since its version 1.423.1; backlogs are compared tag by tag.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decision::{Kind, Rule, Why};
use crate::guard::{Look, Range};
use crate::policy::Wish;
use crate::reading::{Occupancies, QueueReading, WorkerState};
use crate::smooth::one_decimal;
use crate::state::Pending;
use crate::time::{Span, Timestamp, seconds};
use crate::words::counted;

/// How often the share of busy workers is sampled where the source has no windows.
pub const SAMPLE: Span = Span::from_secs(5);
/// The windows.
const WINDOWS: [Span; 3] = [Span::from_secs(15), Span::from_secs(300), Span::from_secs(1800)];
/// The longest window in samples, and one to see that it is full.
const MOST_SAMPLES: usize = 361;

/// The parameters, named as Windmill names them; the defaults are Windmill's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Occupancy {
    /// How often to decide.
    pub poll: Span,
    /// The least time after a change until the next, in seconds.
    pub cooldown_seconds: u32,
    /// The same after a full scale-out.
    pub full_scale_cooldown_seconds: u32,
    /// Waiting jobs of one tag from which on `inc_num_workers` are added.
    #[serde(alias = "inc_scale_jobs_waiting")]
    pub inc_scale_num_jobs_waiting: u64,
    /// Waiting jobs of one tag from which on all workers are started at once. Default: max.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full_scale_jobs_waiting: Option<u64>,
    /// Remove workers when all three windows are below this, percent.
    pub dec_scale_occupancy_rate: f64,
    /// Add workers when all three windows are above this, percent.
    pub inc_scale_occupancy_rate: f64,
    /// Workers added or removed in one step. Default: a fifth of max - min, at least 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inc_num_workers: Option<u32>,
    /// Only jobs with these tags count. Default: all that the queue tells of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub custom_tags: Vec<String>,
    /// Compare the sum over the tags instead of each tag.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sum_tags: bool,
    /// Whose windows count. Default: those that are sampled here, every 5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity: Option<Parity>,
}

/// Another system whose own measurement is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parity {
    /// The means that Windmill's workers write into their pings. After half an hour of rest all
    /// three rise together, since a resting worker keeps only its last 15 s.
    Windmill,
}

impl Default for Occupancy {
    fn default() -> Self {
        Self {
            poll: Span::from_secs(30),
            cooldown_seconds: 300,
            full_scale_cooldown_seconds: 1500,
            inc_scale_num_jobs_waiting: 1,
            full_scale_jobs_waiting: None,
            dec_scale_occupancy_rate: 25.0,
            inc_scale_occupancy_rate: 75.0,
            inc_num_workers: None,
            custom_tags: Vec::new(),
            sum_tags: false,
            parity: None,
        }
    }
}

/// What the policy remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OccupancyState {
    /// The last successful change.
    pub acted_at: Option<Timestamp>,
    /// It was a full scale-out.
    pub was_full: bool,
    /// The busy share of the workers, percent, oldest first; at most 361 of them.
    pub samples: Vec<(Timestamp, f64)>,
}

/// The policy's reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are named after what they hold")]
pub enum Reason {
    /// More workers than there may be; in Windmill's words.
    AboveMax { count: u32, max: u32 },
    /// Fewer workers than there must be.
    BelowMin { count: u32, min: u32 },
    /// A full backlog; all workers at once.
    FullBacklog { waiting: u64, limit: u64, max: u32 },
    /// A backlog; one step more.
    Backlog { waiting: u64, limit: u64, inc: u32 },
    /// All windows are low; one step less.
    Low { windows: [f64; 3], limit: f64 },
    /// All windows are high; one step more.
    High { windows: [f64; 3], limit: f64 },
    /// The windows do not agree.
    Between { windows: [f64; 3], low: f64, high: f64 },
    /// A window is not full yet, or no worker has been ready.
    NotKnown { minutes: f64 },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |w: &[f64; 3]| format!("{:.1}, {:.1} and {:.1} %", w[0], w[1], w[2]);
        match self {
            Self::AboveMax { count, max } => {
                write!(f, "count of {count} > max_workers of {max}, setting to max_workers")
            }
            Self::BelowMin { count, min } => {
                write!(f, "count of {count} < min_workers of {min}, setting to min_workers")
            }
            Self::FullBacklog { waiting, limit, max } => {
                write!(
                    f,
                    "{waiting} waiting is a full backlog ({limit} or more): all {}",
                    counted(*max, "worker")
                )
            }
            Self::Backlog { waiting, limit, inc } => {
                write!(f, "{waiting} waiting ({limit} or more): {inc} more")
            }
            Self::Low { windows, limit } => {
                write!(
                    f,
                    "occupancy over 15 s, 5 min, 30 min is {}, below {limit} %",
                    list(windows)
                )
            }
            Self::High { windows, limit } => {
                write!(
                    f,
                    "occupancy over 15 s, 5 min, 30 min is {}, above {limit} %",
                    list(windows)
                )
            }
            Self::Between { windows, low, high } => write!(
                f,
                "occupancy over 15 s, 5 min, 30 min is {}: not all below {low} or above {high} %",
                list(windows)
            ),
            Self::NotKnown { minutes } => {
                write!(f, "occupancy is not known yet over {minutes} min")
            }
        }
    }
}

impl Occupancy {
    pub(crate) fn problems(&self, found: &mut Vec<(String, String)>) {
        let mut say =
            |key: &str, what: String| found.push((format!("policy.occupancy.{key}"), what));
        if self.poll < Span::from_millis(100) {
            say("poll", format!("{:#} is too short; use 100ms or more", self.poll));
        }
        let (low, high) = (self.dec_scale_occupancy_rate, self.inc_scale_occupancy_rate);
        for (key, rate) in [("dec_scale_occupancy_rate", low), ("inc_scale_occupancy_rate", high)] {
            if !(0.0..=100.0).contains(&rate) {
                say(key, format!("{rate} must be a percentage, 0 to 100"));
            }
        }
        if low > high {
            let what = format!("{low} is above inc_scale_occupancy_rate {high}");
            say("dec_scale_occupancy_rate", what);
        }
        let at_least_one = [
            ("inc_scale_num_jobs_waiting", Some(self.inc_scale_num_jobs_waiting)),
            ("full_scale_jobs_waiting", self.full_scale_jobs_waiting),
            ("inc_num_workers", self.inc_num_workers.map(u64::from)),
        ];
        for (key, number) in at_least_one {
            if number == Some(0) {
                say(key, "must be at least 1".into());
            }
        }
    }

    /// Samples how busy the workers are; called at every look.
    pub(crate) fn watch(&self, state: &mut OccupancyState, look: &Look<'_>) {
        let Some(queue) = look.queue.filter(|q| q.occupancy.is_none()) else { return };
        let gap = state.samples.last().map(|(at, _)| look.now.since(*at));
        if gap.is_some_and(|gap| gap > look.rules.stale_after() || gap.is_negative()) {
            // Nobody knows what was in between.
            state.samples.clear();
        } else if gap.is_some_and(|gap| gap < SAMPLE) {
            return;
        }
        let Some(share) = busy_share(look, queue) else { return };
        state.samples.push((look.now, share));
        let longest = WINDOWS[2];
        let outside =
            |(at, _): &(Timestamp, f64)| look.now.since(*at) > longest.saturating_add(SAMPLE);
        let first = state.samples.iter().position(|sample| !outside(sample)).unwrap_or(0);
        // One that is older than the window shows that it is full.
        let extra = state.samples.len().saturating_sub(MOST_SAMPLES);
        state.samples.drain(..first.saturating_sub(1).max(extra));
    }

    pub(crate) fn wish(&self, state: &OccupancyState, look: &Look<'_>) -> Wish {
        let hold = |rule, why| Wish::new(look.current, rule, why);
        let Some(queue) = look.queue else {
            return hold(Rule::Steady, Why::AtLeast { min: look.bounds.min });
        };
        let (n, Range { min, max }) = (look.current, look.bounds);
        let waiting = self.waiting(queue);
        let full = self.full_scale_jobs_waiting.unwrap_or(u64::from(max));
        let backlog_is_full = waiting >= full.max(1);
        if backlog_is_full && n < max {
            let why = Reason::FullBacklog { waiting, limit: full, max };
            return Wish::new(max, Rule::FullBacklog, Why::Occupancy(why));
        }
        if !(min..=max).contains(&n) {
            let above = Reason::AboveMax { count: n, max };
            let why = if n > max { above } else { Reason::BelowMin { count: n, min } };
            let (wanted, why) = (n.clamp(min, max), Why::Occupancy(why));
            return Wish::new(wanted, Rule::Bounds, why);
        }
        let inc = self.inc_num_workers.unwrap_or((max - min) / 5).max(1);
        let (asked, rule, why) = self.step(state, look, waiting, inc);
        let wish = Wish::within(asked, look.bounds, rule, why);
        match self.cools_for(state, look.now) {
            Some(left) if wish.wanted != n => {
                let wanted = wish.wanted;
                hold(Rule::Cooldown, Why::TooSoon { left_s: seconds(left), wanted })
            }
            _ => wish,
        }
    }

    /// Rules 4 and 5, not yet within the bounds.
    fn step(
        &self,
        state: &OccupancyState,
        look: &Look<'_>,
        waiting: u64,
        inc: u32,
    ) -> (u32, Rule, Why) {
        let n = look.current;
        let limit = self.inc_scale_num_jobs_waiting;
        if waiting >= limit {
            if n >= look.bounds.max {
                return (n, Rule::Backlog, Why::AtMost { waiting, max: look.bounds.max });
            }
            let why = Reason::Backlog { waiting, limit, inc };
            return (n.saturating_add(inc), Rule::Backlog, Why::Occupancy(why));
        }
        let (low, high) = (self.dec_scale_occupancy_rate, self.inc_scale_occupancy_rate);
        let known = state.windows(look);
        let (wanted, why) = match known {
            [Some(a), Some(b), Some(c)] => {
                let windows = [a, b, c];
                if windows.iter().all(|w| *w < low) {
                    (n.saturating_sub(inc), Reason::Low { windows, limit: low })
                } else if windows.iter().all(|w| *w > high) {
                    (n.saturating_add(inc), Reason::High { windows, limit: high })
                } else {
                    (n, Reason::Between { windows, low, high })
                }
            }
            _ => {
                let missing = known.iter().position(Option::is_none).unwrap_or(0);
                (n, Reason::NotKnown { minutes: seconds(WINDOWS[missing]) / 60.0 })
            }
        };
        (wanted, Rule::Occupancy, Why::Occupancy(why))
    }

    /// The jobs that wait for one tag, the most of all tags; or their sum.
    fn waiting(&self, queue: &QueueReading) -> u64 {
        if queue.tags.is_empty() || (self.custom_tags.is_empty() && self.sum_tags) {
            return queue.waiting;
        }
        let counts = queue
            .tags
            .iter()
            .filter(|(tag, _)| self.custom_tags.is_empty() || self.custom_tags.contains(tag))
            .map(|(_, waiting)| *waiting);
        if self.sum_tags { counts.fold(0, u64::saturating_add) } else { counts.max().unwrap_or(0) }
    }

    /// How long the cooldown of the last change still lasts.
    fn cools_for(&self, state: &OccupancyState, now: Timestamp) -> Option<Span> {
        let cooldown = match state.was_full {
            true => self.full_scale_cooldown_seconds,
            false => self.cooldown_seconds,
        };
        let left = Span::from_secs(cooldown.into()).saturating_sub(now.since(state.acted_at?));
        (left > Span::ZERO).then_some(left)
    }
}

impl OccupancyState {
    pub(crate) fn acted(&mut self, change: &Pending) {
        self.acted_at = Some(change.at);
        self.was_full = change.kind == Kind::FullScaleOut;
    }

    /// The three windows in percent: the source's if it has them, else from the samples.
    fn windows(&self, look: &Look<'_>) -> [Option<f64>; 3] {
        if let Some(Occupancies { s15, m5, m30 }) = look.queue.and_then(|q| q.occupancy) {
            // Windmill's go a little above 100 for an instant.
            let share = |w: Option<f64>| w.filter(|w| w.is_finite() && *w >= 0.0);
            return [s15, m5, m30].map(|w| share(w).map(|w| w.min(100.0)));
        }
        WINDOWS.map(|window| self.mean_over(window, look.now))
    }

    /// The mean of the samples inside a window that is full.
    fn mean_over(&self, window: Span, now: Timestamp) -> Option<f64> {
        let start = self.samples.partition_point(|(at, _)| now.since(*at) >= window);
        let inside = &self.samples[start..];
        if start == 0 || inside.is_empty() {
            return None;
        }
        let sum: f64 = inside.iter().map(|(_, share)| share).sum();
        Some(sum / inside.len() as f64)
    }

    pub(crate) fn shift(&mut self, delta: Span) {
        self.acted_at = self.acted_at.map(|at| at.plus(delta));
        for (at, _) in &mut self.samples {
            *at = at.plus(delta);
        }
    }
}

/// The share of the ready workers that is busy, percent; unknown while none is ready, or of none is
/// known whether it is.
fn busy_share(look: &Look<'_>, queue: &QueueReading) -> Option<f64> {
    let fleet = look.fleet;
    let ready = f64::from(Some(fleet.ready).filter(|ready| *ready > 0)?);
    let slots = look.rules.workers.slots.max(1);
    let share = match fleet.busy {
        Some(busy) if slots == 1 && fleet.workers.is_empty() => f64::from(busy) / ready,
        Some(_) if slots == 1 => {
            // One that starts, or has not told of itself yet, is neither idle nor at work.
            let ready = fleet.workers.iter().filter(|w| w.state == WorkerState::Ready);
            let known: Vec<bool> = ready.filter_map(|w| w.busy).collect();
            let busy = known.iter().filter(|busy| **busy).count();
            (!known.is_empty()).then(|| busy as f64 / known.len() as f64)?
        }
        _ => queue.active as f64 / (ready * f64::from(slots)),
    };
    Some(one_decimal(100.0 * share.min(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Policy, PolicyState};
    use crate::reading::FleetReading;
    use crate::scene::{Scene, worker};

    fn scene(n: u32, waiting: u64, windows: [Option<f64>; 3]) -> Scene {
        let mut scene = Scene::new(n);
        let queue = scene.queue.as_mut().unwrap();
        let [s15, m5, m30] = windows;
        (queue.waiting, queue.occupancy) = (waiting, Some(Occupancies { s15, m5, m30 }));
        scene
    }

    fn change(scene: &Scene, kind: Kind) -> Pending {
        Pending { at: scene.now, from: 1, to: 2, by_policy: true, by_brake: false, kind }
    }

    const fn all(percent: f64) -> [Option<f64>; 3] {
        [Some(percent); 3]
    }

    #[test]
    fn each_rule_has_its_row() {
        use Rule::{Backlog, Bounds, Cooldown, FullBacklog, Occupancy as Busyness};
        let policy = Occupancy::default();
        // Bounds 1 to 10, so a step is 1. Name and source; workers, waiting, windows; the last
        // change, if any, as (seconds ago, full); expected.
        let (docs, since) = ("documentation", "full scale-out");
        let table = [
            ("above max", "#8930", 80, 0, all(50.0), None, 10, Bounds),
            ("above max, no cooldown", "#8930", 80, 0, all(50.0), Some((1, true)), 10, Bounds),
            ("below min", "1.424", 0, 0, all(50.0), None, 1, Bounds),
            ("below min, full backlog", "#9234", 0, 10, all(50.0), None, 10, FullBacklog),
            ("full backlog", docs, 3, 10, all(50.0), None, 10, FullBacklog),
            ("one less is not full", "1.423.1: >=", 3, 9, all(50.0), None, 4, Backlog),
            ("full, no cooldown", docs, 3, 10, all(50.0), Some((1, true)), 10, FullBacklog),
            ("full at max", docs, 10, 50, all(0.0), None, 10, Backlog),
            ("cooldown", docs, 3, 1, all(50.0), Some((299, false)), 3, Cooldown),
            ("cooldown is over", docs, 3, 1, all(50.0), Some((300, false)), 4, Backlog),
            ("cooldown of a", since, 3, 1, all(50.0), Some((1499, true)), 3, Cooldown),
            ("cooldown is over of a", since, 3, 1, all(50.0), Some((1500, true)), 4, Backlog),
            ("one job waits", "1.423.1: >=", 3, 1, all(0.0), None, 4, Backlog),
            ("at max no scale-in while jobs wait", "ruling", 10, 1, all(0.0), None, 10, Backlog),
            ("all low", docs, 3, 0, all(24.9), None, 2, Busyness),
            ("all low at min", "1.423.0", 1, 0, all(0.0), None, 1, Busyness),
            ("exactly low", "own: strict", 3, 0, all(25.0), None, 3, Busyness),
            ("all high", docs, 3, 0, all(75.1), None, 4, Busyness),
            ("all high at max", docs, 10, 0, all(99.0), None, 10, Busyness),
            ("exactly high", "own: strict", 3, 0, all(75.0), None, 3, Busyness),
            ("one is not low", docs, 3, 0, [Some(0.0), Some(0.0), Some(30.0)], None, 3, Busyness),
            (
                "one is not high",
                docs,
                3,
                0,
                [Some(70.0), Some(99.0), Some(99.0)],
                None,
                3,
                Busyness,
            ),
            ("more than all", "own: 100", 3, 0, all(1e300), None, 4, Busyness),
            ("one is unknown", "NULL", 3, 0, [Some(0.0), Some(0.0), None], None, 3, Busyness),
            ("all are unknown", "NULL", 3, 0, [None; 3], None, 3, Busyness),
            ("cooldown holds a scale-in", docs, 3, 0, all(0.0), Some((10, false)), 3, Cooldown),
        ];
        for (name, source, n, waiting, windows, last, wanted, rule) in table {
            let scene = scene(n, waiting, windows);
            let mut state = OccupancyState::default();
            if let Some((ago, full)) = last {
                state.acted_at = Some(scene.now.plus(Span::from_secs(-ago)));
                state.was_full = full;
            }
            let wish = policy.wish(&state, &scene.look());
            assert_eq!((wish.wanted, wish.rule), (wanted, rule), "{name} ({source}): {}", wish.why);
        }
    }

    #[test]
    fn a_clamp_is_told_in_windmills_words() {
        for (n, words) in [
            (80, "count of 80 > max_workers of 10, setting to max_workers"),
            (0, "count of 0 < min_workers of 1, setting to min_workers"),
        ] {
            let scene = scene(n, 0, all(50.0));
            let wish = Occupancy::default().wish(&OccupancyState::default(), &scene.look());
            assert_eq!(wish.why.to_string(), words);
        }
    }

    /// One row for each field of the parameter table, against the rule that it changes.
    #[test]
    fn each_parameter_has_its_default_and_its_effect() {
        type Change = fn(&mut Occupancy, &mut Scene);
        let of_max = |scene: &mut Scene, max| scene.rules.workers.max = max;
        // Field and case; workers, waiting, windows, the last change; what is set; expected.
        let (just, long) = (Some((29, false)), Some((1_499, true)));
        type Row = (&'static str, u32, u64, [Option<f64>; 3], Option<(i64, bool)>, Change, u32);
        let table: [Row; 24] = [
            ("min_workers", 0, 0, all(0.0), None, |_, s| s.rules.workers.min = 2, 2),
            ("min_workers of 0", 1, 0, all(0.0), None, |_, s| s.rules.workers.min = 0, 0),
            ("max_workers", 9, 0, all(50.0), None, |_, s| s.rules.workers.max = 4, 4),
            ("cooldown_seconds: 300", 3, 1, all(0.0), Some((299, false)), |_, _| (), 3),
            ("cooldown_seconds, set", 3, 1, all(0.0), just, |p, _| p.cooldown_seconds = 30, 3),
            ("... is over", 3, 1, all(0.0), just, |p, _| p.cooldown_seconds = 29, 4),
            ("full_scale_cooldown_seconds: 1500", 3, 1, all(0.0), long, |_, _| (), 3),
            ("..., set", 3, 1, all(0.0), long, |p, _| p.full_scale_cooldown_seconds = 1_499, 4),
            ("inc_scale_num_jobs_waiting: 1", 3, 1, all(50.0), None, |_, _| (), 4),
            ("..., below", 3, 4, all(50.0), None, |p, _| p.inc_scale_num_jobs_waiting = 5, 3),
            ("..., reached", 3, 5, all(50.0), None, |p, _| p.inc_scale_num_jobs_waiting = 5, 4),
            ("full_scale_jobs_waiting: max_workers", 3, 10, all(50.0), None, |_, _| (), 10),
            ("..., below", 3, 10, all(0.0), None, |p, _| p.full_scale_jobs_waiting = Some(11), 4),
            ("..., set", 3, 4, all(0.0), None, |p, _| p.full_scale_jobs_waiting = Some(4), 10),
            ("dec_scale_occupancy_rate: 25", 3, 0, all(24.9), None, |_, _| (), 2),
            ("..., set", 3, 0, all(24.9), None, |p, _| p.dec_scale_occupancy_rate = 20.0, 3),
            ("inc_scale_occupancy_rate: 75", 3, 0, all(75.1), None, |_, _| (), 4),
            ("..., set", 3, 0, all(75.1), None, |p, _| p.inc_scale_occupancy_rate = 80.0, 3),
            ("inc_num_workers: a fifth", 3, 1, all(0.0), None, |_, s| s.rules.workers.max = 16, 6),
            ("... at least 1", 3, 1, all(0.0), None, |_, s| s.rules.workers.max = 5, 4),
            ("... rounded down", 3, 1, all(0.0), None, |_, s| s.rules.workers.max = 50, 12),
            ("..., set", 3, 1, all(0.0), None, |p, _| p.inc_num_workers = Some(2), 5),
            ("... to min at most", 3, 0, all(0.0), None, |p, _| p.inc_num_workers = Some(9), 1),
            ("... to max at most", 8, 0, all(99.0), None, |p, _| p.inc_num_workers = Some(9), 10),
        ];
        for (field, n, waiting, windows, last, set, wanted) in table {
            let mut scene = scene(n, waiting, windows);
            of_max(&mut scene, 10);
            let mut policy = Occupancy::default();
            set(&mut policy, &mut scene);
            let mut state = OccupancyState::default();
            if let Some((ago, full)) = last {
                state.acted_at = Some(scene.now.plus(Span::from_secs(-ago)));
                state.was_full = full;
            }
            let wish = policy.wish(&state, &scene.look());
            assert_eq!(wish.wanted, wanted, "{field}: {}", wish.why);
        }
        assert_eq!(Occupancy::default().poll, Span::from_secs(30), "every 30 s");
    }

    #[test]
    fn backlogs_are_compared_tag_by_tag() {
        let mut scene = scene(3, 12, all(50.0));
        let tags = [("a", 6_u64), ("b", 5), ("other", 1)].map(|(t, n)| (t.to_string(), n));
        scene.queue.as_mut().unwrap().tags = tags.into();
        let wanted = |custom: &[&str], sum_tags, full| {
            let custom_tags = custom.iter().map(|t| (*t).to_string()).collect();
            let full_scale_jobs_waiting = Some(full);
            let policy =
                Occupancy { custom_tags, sum_tags, full_scale_jobs_waiting, ..Default::default() };
            policy.wish(&OccupancyState::default(), &scene.look()).wanted
        };
        assert_eq!(wanted(&[], false, 7), 4);
        assert_eq!(wanted(&[], false, 6), 10);
        assert_eq!(wanted(&[], true, 12), 10);
        assert_eq!(wanted(&["b", "other"], false, 6), 4);
        assert_eq!(wanted(&["b", "other"], true, 6), 10);
        assert_eq!(wanted(&["nowhere"], false, 1), 3);
    }

    #[test]
    fn own_samples_fill_the_windows_one_after_another() {
        let policy = Policy::Occupancy(Occupancy::default());
        let (mut state, mut scene) = (PolicyState::default(), Scene::new(4));
        scene.fleet.busy = Some(4);
        let known = |state: &PolicyState, scene: &Scene| {
            state.occupancy.windows(&scene.look()).map(|w| w.is_some())
        };
        for second in 0..=1800 {
            policy.wish(&mut state, &scene.look());
            let expected = [second >= 15, second >= 300, second >= 1800];
            assert_eq!(known(&state, &scene), expected, "after {second} s");
            scene.later(1);
        }
        let wish = policy.wish(&mut state, &scene.look());
        assert_eq!(wish.wanted, 5, "{}", wish.why);
        // Half an hour of idleness later only the last window still remembers.
        scene.fleet.busy = Some(0);
        for _ in 0..1800 {
            scene.later(1);
            policy.wish(&mut state, &scene.look());
        }
        assert_eq!(policy.wish(&mut state, &scene.look()).wanted, 3);
        assert!(state.occupancy.samples.len() <= MOST_SAMPLES);
        // After a gap nothing is known.
        scene.later(91);
        policy.wish(&mut state, &scene.look());
        assert_eq!(known(&state, &scene), [false; 3]);
    }

    #[test]
    fn no_ready_worker_is_no_sample() {
        let policy = Policy::Occupancy(Occupancy::default());
        let (mut state, mut scene) = (PolicyState::default(), Scene::new(0));
        scene.fleet.starting = 2;
        policy.wish(&mut state, &scene.look());
        assert!(state.occupancy.samples.is_empty());
        scene.fleet.ready = 2;
        scene.rules.workers.slots = 4;
        scene.queue.as_mut().unwrap().active = 2;
        scene.later(30);
        policy.wish(&mut state, &scene.look());
        assert_eq!(state.occupancy.samples, [(scene.now, 25.0)]);
    }

    #[test]
    fn a_worker_that_starts_or_is_not_known_is_neither_idle_nor_busy() {
        let policy = Policy::Occupancy(Occupancy::default());
        let (ready, starting) = (WorkerState::Ready, WorkerState::Starting);
        for (workers, sample) in [
            (vec![(ready, Some(false)), (starting, None), (starting, None)], Some(0.0)),
            (vec![(ready, Some(true)), (ready, Some(false)), (ready, None)], Some(50.0)),
            (vec![(ready, None), (starting, Some(false))], None),
        ] {
            let (mut state, mut scene) = (PolicyState::default(), Scene::new(0));
            let workers = workers.into_iter().map(|(state, busy)| worker("w", state, busy, 60));
            scene.fleet = FleetReading::of(workers.collect());
            policy.wish(&mut state, &scene.look());
            let samples: Vec<f64> =
                state.occupancy.samples.iter().map(|(_, share)| *share).collect();
            assert_eq!(samples.first().copied(), sample, "{:?}", scene.fleet);
        }
    }

    #[test]
    fn the_kind_of_the_last_change_chooses_the_cooldown() {
        let (mut state, scene) = (OccupancyState::default(), Scene::new(1));
        state.acted(&change(&scene, Kind::FullScaleOut));
        assert!(state.was_full);
        state.acted(&change(&scene, Kind::Bounds));
        assert!(!state.was_full);
    }
}
