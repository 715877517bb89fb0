//! A wanted wait at the lowest cost. One knob, `max_wait`: the wait that 95 of 100 jobs shall not
//! exceed. Everything else is learnt. Two regimes, chosen at every look:
//!
//! **Deadline-drain**, while a worker ordered now still saves a job that comes now (`max_wait` is at
//! least 1.15 start-up times and two polls). The queue is played forward on the workers there are:
//! idle now, busy ones after the rest that jobs of that age usually have, starting ones when starts
//! usually end. The fewest workers are ordered that start every job in time; none for a job that a
//! busy worker will take in time. An idle worker goes when keeping it no longer pays (`levels`).
//!
//! **Level-hazard**, below that: capacity must be there before the job comes. As above, and workers
//! are kept warm as far as a missed job's price pays for them: those of levels that are needed again
//! soon (`levels`), as many more as the need often rises by while a worker starts (`jumps`), and
//! those that the clock brings (`clock`). The price moves until about one job in twenty misses
//! (`price`).
//!
//! No cooldown, no CPU rule, and no scale-in while jobs wait.

mod clock;
mod deadline;
mod idle;
mod jumps;
mod levels;
mod need;
mod price;
mod reason;
#[cfg(test)]
mod tests;
mod waiting;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decision::{Rule, Why};
use crate::estimate::{Estimate, News};
use crate::guard::{Look, Range};
use crate::policy::Wish;
use crate::reading::QueueReading;
use crate::rules::MOST_WORKERS;
use crate::time::{Span, seconds, span_of_seconds};
use clock::Clock;
use jumps::Jumps;
use levels::Levels;
use need::{Need, Place};
use price::Price;
pub use reason::{Reason, Regime, What};

/// Shorter start-ups are believed no more: each is at least a round trip to the target.
const SHORTEST_START: f64 = 1.0;
/// A start takes longer than the 70th percentile in three of ten cases, but rarely by more than this:
/// with it, and a poll until a job is seen and one until its worker is, an order is still in time.
const LATE_STARTS: f64 = 1.15;
/// A second of waiting costs at most so many seconds of a worker.
const MOST_PRICE: f64 = 100.0;

/// The parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Slo {
    /// The wait that 95 of 100 jobs shall not exceed. Default: twice the time that a worker takes to
    /// start, as learnt, and a poll.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_wait: Option<Span>,
    /// The longest rest between two looks.
    pub poll: Span,
    /// What a start costs besides its time, as so much time of a worker: CPU burnt, an image pulled,
    /// the unrest. More means fewer and larger steps and idle workers that stay longer.
    pub price_per_start: Span,
    /// What a second of a job's waiting costs, in seconds of a worker: 0.05 for work that nobody
    /// waits for, 1 where a person's time is as dear as a worker's. With it more is ordered than
    /// `max_wait` asks for, as far as that pays; without `max_wait` the price alone decides.
    pub price_of_waiting: f64,
    /// The least time that the platform bills for a worker.
    pub minimum_billing: Span,
}

/// What the policy remembers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SloState {
    /// What is learnt of jobs and workers.
    pub estimate: Estimate,
    /// When each level was needed.
    pub levels: Levels,
    /// How far the need rises.
    pub jumps: Jumps,
    /// What the clock brings.
    pub clock: Clock,
    /// What a missed job costs.
    pub price: Price,
    /// Busy slots, averaged over about one wanted wait.
    pub load: f64,
}

/// What is known at one look; times in seconds.
struct Facts {
    wait: f64,
    start_up: f64,
    /// The longest rest until the next look.
    poll: f64,
    slots: f64,
    /// What a start costs, in seconds of a worker.
    start_price: f64,
    /// What a second of a job's waiting costs, in seconds of a worker.
    waiting_price: f64,
    regime: Regime,
}

impl Default for Slo {
    fn default() -> Self {
        Self {
            max_wait: None,
            poll: Span::from_secs(5),
            price_per_start: Span::ZERO,
            price_of_waiting: 0.0,
            minimum_billing: Span::ZERO,
        }
    }
}

impl Slo {
    pub(crate) fn problems(&self, found: &mut Vec<(String, String)>) {
        let mut say = |key: &str, what: String| found.push((format!("policy.slo.{key}"), what));
        if self.poll < Span::from_millis(100) {
            say("poll", format!("{:#} is too short; use 100ms or more", self.poll));
        }
        if self.max_wait.is_some_and(|wait| wait <= Span::ZERO) {
            say("max_wait", "must be above 0".into());
        }
        if !(0.0..=MOST_PRICE).contains(&self.price_of_waiting) {
            say("price_of_waiting", format!("{} must be 0 to {MOST_PRICE}", self.price_of_waiting));
        }
        let costs =
            [("price_per_start", self.price_per_start), ("minimum_billing", self.minimum_billing)];
        for (key, cost) in costs {
            if !(Span::ZERO..=Span::from_hours(24)).contains(&cost) {
                say(key, format!("{cost:#} must be 0s to 24h"));
            }
        }
    }

    pub(crate) fn wish(&self, state: &mut SloState, look: &Look<'_>) -> Wish {
        let Some(queue) = look.queue else {
            let why = Why::AtLeast { min: look.bounds.min };
            return Wish::new(look.current, Rule::Steady, why);
        };
        let news = state.estimate.observe(look, queue);
        let facts = self.facts(state, look);
        let place = Place::of(look, queue, &state.estimate, &facts);
        state.follow_load(place.busy, news.gap, facts.wait);
        let mut need = place.need(&state.estimate, &facts, state.load);
        // What can never be there teaches nothing.
        need.workers = need.workers.min(look.bounds.max.max(look.current)).min(MOST_WORKERS);
        let jobs_wait = queue.waiting > 0;

        let n = look.current;
        let starts = state.levels.observe(need.workers, n, look.now, facts.start_up);
        let warm = match facts.regime {
            Regime::DeadlineDrain => 0,
            Regime::LevelHazard => self.warm(state, look, queue, &facts, need, news, starts),
        };
        let ordered = if self.rests(&need, &facts) { n } else { n.saturating_add(need.order) };
        let (wanted, what) = if ordered.max(warm) > n {
            let (more, late, wait_s) = (need.order, need.late, facts.wait);
            let what = match (ordered >= warm, need.worthwhile) {
                (true, false) => What::Order { more, late, wait_s },
                (true, true) => {
                    What::Worthwhile { more, waiting: queue.waiting, price: facts.waiting_price }
                }
                (false, _) => What::warm(warm, &facts, &state.price),
            };
            (ordered.max(warm), what)
        } else if jobs_wait {
            (n, What::InTime { waiting: queue.waiting, wait_s: facts.wait })
        } else {
            self.surplus(state, look, &facts, need.workers, warm)
        };
        self.reason(look, &facts, wanted, what, state.estimate.durations.is_empty())
    }

    fn facts(&self, state: &SloState, look: &Look<'_>) -> Facts {
        let start_up = state.estimate.start_up(look.rules.start_up()).max(SHORTEST_START);
        let poll = seconds(self.poll);
        // What is billed anyhow is no saving: a start costs at least the part that no job uses.
        let billed = match seconds(self.minimum_billing) {
            billed if billed > start_up => billed - state.estimate.duration(f64::INFINITY),
            _ => 0.0,
        };
        let start_price = start_up.max(billed) + seconds(self.price_per_start);
        let waiting_price = self.price_of_waiting;
        let in_time = LATE_STARTS * start_up + 2.0 * poll;
        let wait = match self.max_wait {
            Some(wait) => seconds(wait),
            // A single job had better wait for a busy worker than for a new one of that price.
            None if waiting_price > 0.0 => (start_up + start_price / waiting_price).max(in_time),
            None => 2.0 * (start_up + poll),
        };
        let regime = match wait >= in_time {
            true => Regime::DeadlineDrain,
            false => Regime::LevelHazard,
        };
        let slots = f64::from(look.rules.workers.slots.max(1));
        Facts { wait, start_up, poll, slots, start_price, waiting_price, regime }
    }

    /// Whether orders rest, to be made together with later ones. Only if starts have a price, and
    /// only as long as the first job can still be saved with certainty.
    fn rests(&self, need: &Need, facts: &Facts) -> bool {
        let price = seconds(self.price_per_start);
        if facts.regime == Regime::LevelHazard || price <= 0.0 {
            return false;
        }
        let slack = facts.wait - LATE_STARTS * facts.start_up - 2.0 * facts.poll;
        // The dearer a start beside its time, the more of the slack is used.
        let share = price / (price + facts.start_up / 2.0);
        need.first_due > facts.wait - slack * share
    }

    /// How many workers are worth keeping warm or starting ahead of the jobs.
    #[expect(clippy::too_many_arguments, reason = "each is one fact of the look")]
    fn warm(
        &self,
        state: &mut SloState,
        look: &Look<'_>,
        queue: &QueueReading,
        facts: &Facts,
        need: Need,
        news: News,
        starts: u32,
    ) -> u32 {
        let waits = state.estimate.waits(queue, look.now);
        state.price.follow(&waits, facts, &state.estimate, news, starts);
        let miss = state.price.of_a_miss();
        // An order made now helps jobs that come from then on; until the next look it is the only one.
        let horizon = (facts.start_up + facts.poll - facts.wait).max(facts.poll);
        let jump = state.jumps.observe(need.workers, look.now, (horizon, facts.poll), miss);
        let kept = state.levels.keep(facts.start_price + miss, 0.0, look.now);
        state.clock.observe(need.workers, look.now);
        let slowest = state.estimate.start_ups.quantile(0.95).unwrap_or(facts.start_up);
        let ahead = span_of_seconds(slowest.max(facts.start_up) + facts.poll).unwrap_or(Span::ZERO);
        let due = state.clock.expected(look.now, ahead);
        let warm = need.workers.saturating_add(jump).max(kept).max(due);
        state.price.spend(warm, need.workers, news.gap);
        warm
    }

    /// Idle workers that do not pay any more go; those that would go soon go with them.
    fn surplus(
        &self,
        state: &mut SloState,
        look: &Look<'_>,
        facts: &Facts,
        need: u32,
        warm: u32,
    ) -> (u32, What) {
        let n = look.current;
        let price = match facts.regime {
            // Where a gap ends with a start, the job that ends it waits for that, and the next one too.
            Regime::DeadlineDrain => facts.start_price + 2.0 * facts.waiting_price * facts.start_up,
            Regime::LevelHazard => facts.start_price + state.price.of_a_miss(),
        };
        // Half a start-up time at least: what is needed within it would have been started in vain.
        // Where waiting has a price, that has been weighed.
        let least = if facts.waiting_price > 0.0 { 0.0 } else { facts.start_up / 2.0 };
        let mut keep_at = |at| state.levels.keep(price, least, at).max(need).max(warm);
        let keep = keep_at(look.now);
        if keep >= n {
            let idle = n.saturating_sub(need);
            return (n, if idle == 0 { What::Busy { need } } else { What::Kept { idle, need } });
        }
        let soon = look.now.plus(self.price_per_start.checked_div(2).unwrap_or(Span::ZERO));
        (keep_at(soon), What::Surplus { need, idle: n.saturating_sub(need) })
    }

    fn reason(
        &self,
        look: &Look<'_>,
        facts: &Facts,
        wanted: u32,
        what: What,
        learning: bool,
    ) -> Wish {
        let (n, Range { min, max }) = (look.current, look.bounds);
        let (regime, wait_s) = (facts.regime, facts.wait);
        let short = wanted.saturating_sub(max.max(n));
        let what = if short > 0 { What::MaxTooLow { max, short, wait_s } } else { what };
        let rule = match (&what, regime) {
            (What::Surplus { .. } | What::Kept { .. }, _) => Rule::Idle,
            (_, Regime::DeadlineDrain) => Rule::Deadline,
            (_, Regime::LevelHazard) => Rule::Level,
        };
        let why = Why::Slo(Reason { regime, learning, what });
        // What is outside the bounds already is not for a policy to mend.
        let wanted = if n <= max { wanted.min(max) } else { wanted };
        // That max is too low is told already.
        let bounds = Range { min: if n >= min { min } else { 0 }, max: u32::MAX };
        Wish::within(wanted, bounds, rule, why)
    }
}

impl SloState {
    /// Averages the busy slots over about one wanted wait.
    fn follow_load(&mut self, busy: f64, gap: f64, wait: f64) {
        self.load += (busy - self.load) * (1.0 - (-gap / wait).exp());
    }

    /// Nothing is known of some time.
    pub(crate) fn interrupted(&mut self) {
        self.estimate.interrupted();
        self.levels.interrupted();
        self.jumps.interrupted();
        self.clock.interrupted();
    }

    pub(crate) fn shift(&mut self, delta: Span) {
        self.estimate.shift(delta);
        self.levels.shift(delta);
        self.jumps.shift(delta);
        self.clock.interrupted();
    }
}
