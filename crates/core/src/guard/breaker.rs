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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{Worker, WorkerState};
    use crate::scene::{Scene, worker};

    fn judge(scene: &Scene, state: &mut BreakerState, wanted: u32) -> Draft {
        scene.judge(wanted, |look, draft| apply(state, look, draft))
    }

    #[test]
    fn each_failure_in_a_row_waits_longer() {
        // failures in a row, minutes of back-off
        for (failures, minutes) in [(1, 0), (2, 1), (3, 15), (4, 30), (5, 60), (6, 60), (999, 60)] {
            let mut scene = Scene::new(2);
            let mut state = BreakerState::default();
            (0..failures).for_each(|_| state.action_failed(scene.now));
            if minutes > 0 {
                scene.later(minutes * 60 - 1);
                for wanted in [1, 3] {
                    let held = judge(&scene, &mut state, wanted);
                    assert_eq!((held.wanted, held.trail[0].rule), (2, Rule::Breaker), "{failures}");
                }
                scene.later(1);
            }
            assert_eq!(judge(&scene, &mut state, 3).wanted, 3, "{failures} failures");
        }
    }

    #[test]
    fn a_success_ends_the_row() {
        let (scene, mut state) = (Scene::new(2), BreakerState::default());
        (0..5).for_each(|_| state.action_failed(scene.now));
        state.action_succeeded();
        state.action_failed(scene.now);
        assert_eq!(judge(&scene, &mut state, 3).wanted, 3);
    }

    #[test]
    fn a_held_scale_in_names_no_victims() {
        let (scene, mut state) = (Scene::new(3), BreakerState::default());
        (0..2).for_each(|_| state.action_failed(scene.now));
        let draft = scene.judge(2, |look, draft| {
            draft.victims = vec!["a".into()];
            apply(&mut state, look, draft);
        });
        assert_eq!((draft.wanted, draft.victims.len()), (3, 0));
    }

    /// Two looks, a second apart, that found a worker dead.
    fn after_two_deaths() -> (Scene, BreakerState) {
        let (mut scene, mut state) = (Scene::new(2), BreakerState::default());
        for _ in 0..2 {
            scene.fleet.died = 1;
            scene.later(1);
            judge(&scene, &mut state, 3);
        }
        scene.fleet.died = 0;
        (scene, state)
    }

    #[test]
    fn dying_workers_stop_growth_but_not_shrinking() {
        let (mut scene, mut state) = after_two_deaths();
        assert_eq!(judge(&scene, &mut state, 3).wanted, 2);
        assert_eq!(judge(&scene, &mut state, 1).wanted, 1);
        scene.later(60);
        assert_eq!(judge(&scene, &mut state, 3).wanted, 3);
    }

    #[test]
    fn a_worker_that_outlived_its_start_ends_the_row_of_deaths() {
        // name, its state, seconds that it started before the last death, its age, whether it ends it
        let table = [
            ("young", WorkerState::Ready, -1, 60, false),
            ("old enough", WorkerState::Ready, -1, 61, true),
            ("started before the deaths", WorkerState::Ready, 1, 70, false),
            ("broken", WorkerState::Broken, -1, 70, false),
        ];
        for (name, worker_state, before, age, ends) in table {
            let (mut scene, mut state) = after_two_deaths();
            let last_death = state.deaths.last_at.unwrap();
            let started_at = Some(last_death.plus(Span::from_secs(-before)));
            let born = Worker { started_at, ..worker("a", worker_state, None, 0) };
            scene.fleet.workers = vec![born];
            scene.now = last_death.plus(Span::from_secs(age - before));
            judge(&scene, &mut state, 2);
            assert_eq!(state.deaths.count == 0, ends, "{name}");
        }
    }

    #[test]
    fn deaths_of_two_hours_ago_are_forgotten() {
        let (mut scene, mut state) = after_two_deaths();
        scene.later(7200);
        judge(&scene, &mut state, 2);
        assert_eq!(state.deaths.count, 2);
        scene.later(1);
        judge(&scene, &mut state, 2);
        assert_eq!(state.deaths.count, 0);
    }
}
