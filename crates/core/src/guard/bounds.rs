//! The number never leaves [min, max] by our doing, and comes back when something else moved it.

use crate::decision::{Kind, Rule, Why};
use crate::guard::{Draft, Range};

/// Clamps to the bounds in force, but not under the floor.
pub(crate) fn apply(draft: &mut Draft) {
    let Range { min, max } = draft.range;
    let after = draft.wanted.min(max).max(min).max(draft.floor);
    if after == draft.wanted {
        return;
    }
    let why = Why::OutOfBounds { min, max };
    let was_inside = (min..=max).contains(&draft.current);
    if was_inside || draft.kind == Kind::Override {
        // Cut short, but still the same kind of change.
        draft.say(Rule::Bounds, after, why);
    } else {
        draft.rule(Kind::Bounds, Rule::Bounds, after, why);
    }
}
