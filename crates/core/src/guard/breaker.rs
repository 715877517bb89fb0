//! After failed actions, or workers that die soon after their start, wait longer and longer before
//! the next try. Failing fast for ever costs money and hides the cause.

use serde::{Deserialize, Serialize};

use crate::decision::{Rule, Trouble, Why};
use crate::guard::{Draft, Look};
use crate::reading::FleetReading;
use crate::time::{Span, Timestamp, seconds};

/// The wait after the first, second, ... failure in a row; the last holds from there on.
const LADDER: [Span; 5] =
    [Span::ZERO, Span::from_mins(1), Span::from_mins(15), Span::from_mins(30), Span::from_mins(60)];
/// Deaths are forgotten after twice the longest wait.
const FORGIVEN_AFTER: Span = Span::from_mins(120);

/// Failures in a row, of two kinds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BreakerState {
    /// Scaling actions that failed.
    pub actions: Failures,
    /// Looks that found workers dead soon after their start.
    pub deaths: Failures,
}

/// Failures in a row of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Failures {
    /// How many.
    pub count: u32,
    /// The last one.
    pub last_at: Option<Timestamp>,
}

impl Failures {
    fn add(&mut self, now: Timestamp) {
        self.count = self.count.saturating_add(1);
        self.last_at = Some(now);
    }

    /// How long the present wait still lasts.
    fn wait(&self, now: Timestamp) -> Option<Span> {
        let rung = (self.count as usize).checked_sub(1)?.min(LADDER.len() - 1);
        let left = LADDER[rung].saturating_sub(now.since(self.last_at?));
        (left > Span::ZERO).then_some(left)
    }
}

impl BreakerState {
    pub(crate) fn action_succeeded(&mut self) {
        self.actions = Failures::default();
    }

    pub(crate) fn action_failed(&mut self, now: Timestamp) {
        self.actions.add(now);
    }

    /// Counts deaths; a worker that outlived its start since the last death ends the row, and so
    /// does a long time without one, for targets that do not list their workers.
    pub(crate) fn watch(&mut self, fleet: &FleetReading, start_up: Span, now: Timestamp) {
        if fleet.died > 0 {
            self.deaths.add(now);
            return;
        }
        let Some(last_death) = self.deaths.last_at else { return };
        let outlived = |started: Timestamp| {
            started >= last_death && now.since(started) > start_up.saturating_mul(2)
        };
        let mut serving = fleet.workers.iter().filter(|w| w.is_capacity());
        if now.since(last_death) > FORGIVEN_AFTER
            || serving.any(|w| w.started_at.is_some_and(outlived))
        {
            self.deaths = Failures::default();
        }
    }

    pub(crate) fn times(&mut self) -> [&mut Option<Timestamp>; 2] {
        [&mut self.actions.last_at, &mut self.deaths.last_at]
    }
}

/// Holds the number while a wait lasts: after failed actions any change, after deaths growth.
pub(crate) fn apply(state: &mut BreakerState, look: &Look<'_>, draft: &mut Draft) {
    state.watch(look.fleet, look.rules.start_up(), look.now);
    let troubles = [
        (&state.actions, Trouble::FailedActions, draft.wanted != draft.current),
        (&state.deaths, Trouble::DyingWorkers, draft.grows()),
    ];
    for (failures, what, applies) in troubles {
        if let Some(left) = failures.wait(look.now).filter(|_| applies) {
            let why = Why::BackOff { failures: failures.count, left_s: seconds(left), what };
            draft.say(Rule::Breaker, draft.current, why);
            draft.victims.clear();
        }
    }
}
