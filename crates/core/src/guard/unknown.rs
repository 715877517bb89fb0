//! Silence never shrinks a fleet. While a source is silent, or the queue is paused, the present
//! number is a floor that no later guard goes under; after an outage it stays one for a settling
//! time. If the silence lasts, the fleet may go up to the fallback.

use serde::{Deserialize, Serialize};

use crate::decision::{Kind, Rule, Source, Why};
use crate::guard::{Draft, Look};
use crate::reading::Missing;
use crate::time::{Span, Timestamp, seconds};

/// Since when sources are silent, or answer again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnknownState {
    /// The first tick of the present silence.
    pub silent_since: Option<Timestamp>,
    /// The first tick after the last silence; absent once settled.
    pub answering_since: Option<Timestamp>,
}

impl UnknownState {
    /// Follows whether all needed sources answer; returns how long a silence that ends now was.
    pub(crate) fn watch(&mut self, silent: bool, now: Timestamp) -> Option<Span> {
        if silent {
            self.silent_since = self.silent_since.or(Some(now));
            self.answering_since = None;
            return None;
        }
        let since = self.silent_since?;
        self.interrupted(now);
        Some(now.since(since))
    }

    /// A silence ended at `now`.
    pub(crate) fn interrupted(&mut self, now: Timestamp) {
        self.silent_since = None;
        self.answering_since = Some(now);
    }

    /// How long the settling time still lasts.
    fn settles_for(&mut self, settle: Span, now: Timestamp) -> Option<Span> {
        let left = settle.saturating_sub(now.since(self.answering_since?));
        if left <= Span::ZERO {
            self.answering_since = None;
            return None;
        }
        Some(left)
    }

    pub(crate) fn times(&mut self) -> [&mut Option<Timestamp>; 2] {
        [&mut self.silent_since, &mut self.answering_since]
    }
}

/// Sets the floor, and goes to the fallback when the silence has lasted too long.
pub(crate) fn apply(
    state: &mut UnknownState,
    silent: &[(Source, Missing)],
    look: &Look<'_>,
    draft: &mut Draft,
) {
    for (source, missing) in silent {
        let why = Why::Silent { source: *source, why: missing.to_string() };
        keep(draft, Rule::Unknown, why);
    }
    if look.queue.is_some_and(|q| q.paused == Some(true)) {
        draft.floor = draft.current;
        draft.insist(Rule::Unknown, draft.current, Why::QueuePaused);
    }
    if let Some(left) = state.settles_for(look.rules.settle(), look.now) {
        let why = Why::AnsweringAgain { left_s: seconds(left) };
        keep(draft, Rule::Settling, why);
    }
    let silent_for = state.silent_since.map_or(Span::ZERO, |since| look.now.since(since));
    if let Some(fallback) = &look.rules.fallback
        && !silent.is_empty()
        && silent_for >= fallback.after
        && fallback.workers > draft.wanted
    {
        let (silent_s, workers) = (seconds(silent_for), fallback.workers);
        draft.rule(
            Kind::Fallback,
            Rule::Fallback,
            workers,
            Why::SilentTooLong { silent_s, workers },
        );
    }
}

/// The present number becomes a floor under `wanted` and under whatever later guards say.
fn keep(draft: &mut Draft, rule: Rule, why: Why) {
    draft.floor = draft.current;
    draft.say(rule, draft.wanted.max(draft.current), why);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Silence;
    use crate::rules::Fallback;
    use crate::scene::Scene;

    fn silent(source: Source, why: Silence) -> Vec<(Source, Missing)> {
        vec![(source, Missing { why, detail: String::new() })]
    }

    /// Follows the sources and judges, as `decide` does.
    fn judge(
        scene: &Scene,
        state: &mut UnknownState,
        silent: &[(Source, Missing)],
        wanted: u32,
    ) -> Draft {
        state.watch(!silent.is_empty(), scene.now);
        scene.judge(wanted, |look, draft| apply(state, silent, look, draft))
    }

    #[test]
    fn every_kind_of_silence_is_a_floor() {
        for why in [Silence::Timeout, Silence::Stale, Silence::Contradictory, Silence::Absent] {
            for source in [Source::Queue, Source::Host] {
                let gone = silent(source, why);
                let draft = judge(&Scene::new(4), &mut UnknownState::default(), &gone, 2);
                assert_eq!((draft.wanted, draft.floor), (4, 4), "{why:?}");
                assert_eq!(draft.trail.len(), 1, "{why:?}");
            }
        }
    }

    #[test]
    fn a_paused_queue_neither_grows_nor_shrinks() {
        for wanted in [2, 3, 4] {
            let mut scene = Scene::new(3);
            scene.queue.as_mut().unwrap().paused = Some(true);
            let draft = judge(&scene, &mut UnknownState::default(), &[], wanted);
            assert_eq!((draft.wanted, draft.floor), (3, 3), "wanted {wanted}");
        }
    }

    #[test]
    fn after_an_outage_nothing_shrinks_until_it_has_settled() {
        let (mut scene, mut state) = (Scene::new(4), UnknownState::default());
        assert_eq!(
            judge(&scene, &mut state, &silent(Source::Queue, Silence::Timeout), 2).wanted,
            4
        );
        // Two polls of 30 s, counted from the first answer.
        for (later, wanted, expected) in [(60, 2, 4), (30, 6, 6), (29, 2, 4), (1, 2, 2)] {
            scene.later(later);
            let draft = judge(&scene, &mut state, &[], wanted);
            assert_eq!(draft.wanted, expected, "{later} s later");
        }
        assert_eq!(state, UnknownState::default());
    }

    #[test]
    fn a_second_outage_starts_the_settling_anew() {
        let (mut scene, mut state) = (Scene::new(4), UnknownState::default());
        let gone = silent(Source::Queue, Silence::Refused);
        for (later, silent, wanted) in [
            (0, &gone[..], 4),
            (30, &[], 4),
            (30, &gone, 4),
            (30, &[], 4),
            (59, &[], 4),
            (1, &[], 2),
        ] {
            scene.later(later);
            assert_eq!(judge(&scene, &mut state, silent, 2).wanted, wanted);
        }
    }

    #[test]
    fn a_long_silence_goes_to_the_fallback_and_never_below_the_present_number() {
        let gone = silent(Source::Queue, Silence::Unreachable);
        // name, current, fallback, seconds of silence, expected
        let table = [
            ("not yet", 2, 5, 299, (2, Kind::Hold)),
            ("long enough", 2, 5, 300, (5, Kind::Fallback)),
            ("from zero", 0, 3, 300, (3, Kind::Fallback)),
            ("not below the present number", 7, 3, 900, (7, Kind::Hold)),
            ("the present number", 3, 3, 900, (3, Kind::Hold)),
        ];
        for (name, current, workers, seconds, expected) in table {
            let (mut scene, mut state) = (Scene::new(current), UnknownState::default());
            scene.rules.fallback = Some(Fallback { after: Span::from_secs(300), workers });
            judge(&scene, &mut state, &gone, current);
            scene.later(seconds);
            let draft = judge(&scene, &mut state, &gone, current);
            assert_eq!((draft.wanted, draft.kind), expected, "{name}");
        }
    }

    #[test]
    fn no_fallback_once_the_sources_answer() {
        let (mut scene, mut state) = (Scene::new(1), UnknownState::default());
        scene.rules.fallback = Some(Fallback { after: Span::from_secs(60), workers: 5 });
        judge(&scene, &mut state, &silent(Source::Host, Silence::NotFound), 1);
        scene.later(600);
        assert_eq!(judge(&scene, &mut state, &[], 1).wanted, 1);
    }
}
