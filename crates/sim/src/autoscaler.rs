//! Whoever says how many workers there should be: the core that runs in production, or a rule to
//! compare it with.

use headcount_core::state::Outcome;
use headcount_core::{Observation, Rules, Span, State, Timestamp, rests, wanted};

/// A rule that looks at its own poll and wants a number of workers.
pub trait Autoscaler {
    /// Its name in tables.
    fn name(&self) -> &str;

    /// The time between two looks.
    fn poll(&self) -> Span;

    /// Who goes when it wants fewer.
    fn victims(&self) -> Victims;

    /// The number of workers that should serve or start; `None` leaves it as it is. Whatever it
    /// says is done at once.
    fn wanted(&mut self, seen: &Observation) -> Option<u32>;

    /// Whether a look at `now` that finds what the last one found would change nothing, but for what
    /// it leaves in the autoscaler's memory; if so that has been done. `seen` is what the last look
    /// found.
    fn rests(&mut self, _seen: &Observation, _now: Timestamp) -> bool {
        false
    }
}

/// Which workers go when there are too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victims {
    /// Idle ones, starting before ready, the youngest of each first; busy ones last.
    #[default]
    IdleFirst,
    /// The youngest, whatever it is doing.
    Youngest,
    /// Any, whatever it is doing.
    Random,
}

/// The core with its rules and what it remembers.
#[derive(Clone, Debug)]
pub struct Core {
    rules: Rules,
    state: State,
}

/// An autoscaler that never goes below a number of workers, for rules that know no such bound.
pub struct AtLeast {
    min: u32,
    scaler: Box<dyn Autoscaler>,
}

impl AtLeast {
    /// `scaler` with at least `min` workers.
    pub fn new(min: u32, scaler: Box<dyn Autoscaler>) -> Self {
        Self { min, scaler }
    }
}

impl Core {
    /// Nothing learnt yet.
    pub fn new(rules: Rules) -> Self {
        Self { rules, state: State::default() }
    }

    /// What it remembers.
    pub const fn state(&self) -> &State {
        &self.state
    }
}

impl Autoscaler for Core {
    fn name(&self) -> &str {
        self.rules.policy.name()
    }

    fn poll(&self) -> Span {
        self.rules.policy.poll()
    }

    fn victims(&self) -> Victims {
        Victims::IdleFirst
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let to = wanted(&self.rules, &mut self.state, seen, seen.t)?;
        self.state.note(Outcome::Done, seen.t);
        Some(to)
    }

    fn rests(&mut self, seen: &Observation, now: Timestamp) -> bool {
        rests(&self.rules, &mut self.state, seen, now)
    }
}

impl Autoscaler for AtLeast {
    fn name(&self) -> &str {
        self.scaler.name()
    }

    fn poll(&self) -> Span {
        self.scaler.poll()
    }

    fn victims(&self) -> Victims {
        self.scaler.victims()
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        match self.scaler.wanted(seen) {
            Some(wanted) => Some(wanted.max(self.min)),
            None => seen.fleet.value().filter(|f| f.capacity() < self.min).map(|_| self.min),
        }
    }
}
