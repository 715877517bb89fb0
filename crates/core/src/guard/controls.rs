//! The calendar, a person's fixed number and a pause set the bounds that are in force.

use crate::decision::{Direction, Kind, Rule, Why};
use crate::guard::{Draft, Look, Range};
use crate::rules::Rules;
use crate::state::Controls;
use crate::time::Timestamp;

/// The bounds at `now`: those of the schedule's window, else those of the rules.
pub(crate) fn bounds_at(rules: &Rules, now: Timestamp) -> (Range, bool) {
    let (min, max) = (rules.workers.min, rules.workers.max);
    match rules.schedule.as_ref().and_then(|s| s.window_at(now)) {
        Some(window) => {
            let (min, max) = (window.min.unwrap_or(min), window.max.unwrap_or(max));
            (Range { min, max }, true)
        }
        None => (Range { min, max }, false),
    }
}

/// Applies what a person asked for; what has expired is forgotten.
pub(crate) fn apply(controls: &mut Controls, in_window: bool, look: &Look<'_>, draft: &mut Draft) {
    let over = |until: Option<Timestamp>| until.is_some_and(|t| look.now >= t);
    controls.fixed.take_if(|fixed| over(fixed.until));
    controls.pause.take_if(|pause| over(pause.until));

    if in_window {
        let Range { min, max } = look.bounds;
        draft.say(Rule::Schedule, draft.wanted, Why::InWindow { min, max });
    }
    if let Some(fixed) = &controls.fixed {
        let Range { min, max } = look.bounds;
        let workers = fixed.workers.min(max).max(min);
        draft.range = Range { min: workers, max: workers };
        let why = Why::Asked { workers: fixed.workers, until: fixed.until };
        draft.rule(Kind::Override, Rule::Override, workers.max(draft.floor), why);
    }
    if let Some(pause) = &controls.pause {
        let (range, current) = (&mut draft.range, draft.current);
        let mut after = draft.wanted;
        if pause.direction != Direction::In {
            *range = Range { min: range.min.min(current), max: range.max.min(current) };
            after = after.min(current);
        }
        if pause.direction != Direction::Out {
            *range = Range { min: range.min.max(current), max: range.max.max(current) };
            after = after.max(current);
        }
        let why = Why::Paused { direction: pause.direction, until: pause.until };
        draft.say(Rule::Pause, after, why);
    }
}
