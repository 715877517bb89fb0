//! After failed actions, or workers that die soon after their start, wait longer and longer before
//! the next try. Failing fast for ever costs money and hides the cause. Each direction has a row of
//! its own: that no worker can be added is no reason to keep those that are not needed, and the
//! other way round. A person who has mended the cause ends the wait.

use serde::{Deserialize, Serialize};

use crate::decision::{Rule, Trouble, Why};
use crate::guard::{Draft, Look};
use crate::reading::FleetReading;
use crate::state::Pending;
use crate::time::{Span, Timestamp, seconds};

/// The wait after the first, second, ... failure in a row; the last holds from there on.
const LADDER: [Span; 5] =
    [Span::ZERO, Span::from_mins(1), Span::from_mins(15), Span::from_mins(30), Span::from_mins(60)];
/// Deaths are forgotten after twice the longest wait.
const FORGIVEN_AFTER: Span = Span::from_mins(120);

/// After this long no wait can be left.
pub(crate) const LONGEST: Span = LADDER[LADDER.len() - 1];
/// The most characters that are kept of what a target said.
const MOST_SAID: usize = 300;

/// Failures in a row, of each kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BreakerState {
    /// Changes to more workers that failed.
    #[serde(alias = "actions")]
    pub additions: Failures,
    /// Changes to fewer workers that failed.
    pub removals: Failures,
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
    /// What was said to the last one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub said: String,
}

impl Failures {
    fn add(&mut self, said: &str, now: Timestamp) {
        self.count = self.count.saturating_add(1);
        self.last_at = Some(now);
        self.said = said.chars().take(MOST_SAID).collect();
    }

    /// How long the present wait still lasts.
    fn wait(&self, now: Timestamp) -> Option<Span> {
        let rung = (self.count as usize).checked_sub(1)?.min(LADDER.len() - 1);
        let left = LADDER[rung].saturating_sub(now.since(self.last_at?));
        (left > Span::ZERO).then_some(left)
    }
}

impl BreakerState {
    /// A change was made, either way: the target works, so both rows end.
    pub(crate) fn succeeded(&mut self) {
        self.additions = Failures::default();
        self.removals = Failures::default();
    }

    /// A change failed; the target `said` why.
    pub(crate) fn failed(&mut self, change: &Pending, said: &str, now: Timestamp) {
        self.of(change).add(said, now);
    }

    const fn of(&mut self, change: &Pending) -> &mut Failures {
        if change.to > change.from { &mut self.additions } else { &mut self.removals }
    }

    /// A person wanted a new try at `asked`: what failed before that counts no more.
    fn retry(&mut self, asked: Timestamp) {
        for failures in [&mut self.additions, &mut self.removals, &mut self.deaths] {
            if failures.last_at.is_some_and(|at| at <= asked) {
                *failures = Failures::default();
            }
        }
    }

    /// Counts deaths; a worker that outlived its start since the last death ends the row, and so
    /// does a long time without one, for targets that do not list their workers.
    pub(crate) fn watch(&mut self, fleet: &FleetReading, start_up: Span, now: Timestamp) {
        if fleet.died > 0 {
            self.deaths.add("", now);
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

    pub(crate) fn times(&mut self) -> [&mut Option<Timestamp>; 3] {
        [&mut self.additions.last_at, &mut self.removals.last_at, &mut self.deaths.last_at]
    }
}

/// Holds the number while a wait lasts: after failed actions changes in their direction, after deaths
/// growth. `retry` is when a person last wanted a new try.
pub(crate) fn apply(
    state: &mut BreakerState,
    retry: Option<Timestamp>,
    look: &Look<'_>,
    draft: &mut Draft,
) {
    if let Some(asked) = retry {
        state.retry(asked);
    }
    state.watch(look.fleet, look.rules.start_up(), look.now);
    let troubles = [
        (&state.additions, Trouble::FailedActions, draft.grows()),
        (&state.removals, Trouble::FailedActions, draft.shrinks()),
        (&state.deaths, Trouble::DyingWorkers, draft.grows()),
    ];
    for (failures, what, applies) in troubles {
        if let Some(left) = failures.wait(look.now).filter(|_| applies) {
            let said = failures.said.clone();
            let why = Why::BackOff { failures: failures.count, left_s: seconds(left), what, said };
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
        scene.judge(wanted, |look, draft| apply(state, None, look, draft))
    }

    /// Fails the way from 2 to `to`, or from 3 to 2.
    fn fail(state: &mut BreakerState, to: u32, now: Timestamp) {
        state.failed(&change(to), "no room", now);
    }

    fn change(to: u32) -> Pending {
        let from = if to > 2 { 2 } else { 3 };
        let kind = crate::decision::Kind::ScaleOut;
        Pending { at: Scene::new(0).now, from, to, by_policy: true, by_brake: false, kind }
    }

    #[test]
    fn each_failure_in_a_row_waits_longer() {
        // failures in a row, minutes of back-off
        for (failures, minutes) in [(1, 0), (2, 1), (3, 15), (4, 30), (5, 60), (6, 60), (999, 60)] {
            let mut scene = Scene::new(2);
            let mut state = BreakerState::default();
            (0..failures).for_each(|_| fail(&mut state, 3, scene.now));
            if minutes > 0 {
                scene.later(minutes * 60 - 1);
                let held = judge(&scene, &mut state, 3);
                assert_eq!((held.wanted, held.trail[0].rule), (2, Rule::Breaker), "{failures}");
                let why = held.trail[0].why.to_string();
                assert!(why.contains(" in a row, the last: no room: next try in 1 s"), "{why}");
                scene.later(1);
            }
            assert_eq!(judge(&scene, &mut state, 3).wanted, 3, "{failures} failures");
        }
    }

    #[test]
    fn a_success_ends_the_row() {
        let (scene, mut state) = (Scene::new(2), BreakerState::default());
        (0..5).for_each(|_| fail(&mut state, 3, scene.now));
        state.succeeded();
        fail(&mut state, 3, scene.now);
        assert_eq!(judge(&scene, &mut state, 3).wanted, 3);
    }

    #[test]
    fn failures_hold_only_their_direction() {
        // Which way failed, (more wanted, fewer wanted).
        for (to, expected) in [(3, (2, 1)), (2, (3, 2))] {
            let (scene, mut state) = (Scene::new(2), BreakerState::default());
            (0..5).for_each(|_| fail(&mut state, to, scene.now));
            let got = [3, 1].map(|wanted| judge(&scene, &mut state, wanted).wanted);
            assert_eq!((got[0], got[1]), expected);
        }
    }

    #[test]
    fn a_person_ends_the_wait() {
        let (mut scene, mut state) = after_two_deaths();
        for to in [2, 2, 3, 3] {
            fail(&mut state, to, scene.now);
        }
        scene.later(1);
        let asked = scene.now;
        let mut wanted = |scene: &Scene, wanted| {
            scene.judge(wanted, |look, draft| apply(&mut state, Some(asked), look, draft)).wanted
        };
        assert_eq!((wanted(&scene, 1), wanted(&scene, 3)), (1, 3));
        // What fails after that counts.
        scene.later(1);
        (0..2).for_each(|_| fail(&mut state, 3, scene.now));
        let held = scene.judge(3, |look, draft| apply(&mut state, Some(asked), look, draft));
        assert_eq!(held.wanted, 2);
    }

    #[test]
    fn a_held_scale_in_names_no_victims() {
        let (scene, mut state) = (Scene::new(3), BreakerState::default());
        (0..2).for_each(|_| fail(&mut state, 2, scene.now));
        let draft = scene.judge(2, |look, draft| {
            draft.victims = vec!["a".into()];
            apply(&mut state, None, look, draft);
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
