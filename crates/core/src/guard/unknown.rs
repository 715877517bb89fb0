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
        keep(draft, Rule::Unknown, draft.wanted, why);
    }
    if look.queue.is_some_and(|q| q.paused == Some(true)) {
        keep(draft, Rule::Unknown, draft.current, Why::QueuePaused);
    }
    if let Some(left) = state.settles_for(look.rules.settle(), look.now) {
        let why = Why::AnsweringAgain { left_s: seconds(left) };
        keep(draft, Rule::Settling, draft.wanted, why);
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
fn keep(draft: &mut Draft, rule: Rule, wanted: u32, why: Why) {
    draft.floor = draft.current;
    draft.say(rule, wanted.max(draft.current), why);
}
