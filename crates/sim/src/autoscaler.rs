//! Whoever says how many workers there should be: the core that runs in production, or a rule to
//! compare it with.

use headcount_core::state::Outcome;
use headcount_core::{Cadence, Observation, Rules, Span, State, decide};

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
        let decision = decide(&self.rules, &mut self.state, seen, Cadence::EveryLook, seen.t);
        let (_, to) = decision.change()?;
        self.state.note(Outcome::Done, seen.t);
        Some(to)
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
