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
    let was_inside = (min..=max).contains(&draft.current);
    let why = match was_inside {
        true if after < draft.wanted => Why::CutToMax { max },
        true => Why::CutToMin { min },
        false => Why::OutOfBounds { min, max },
    };
    if was_inside || draft.kind == Kind::Override {
        // Cut short, but still the same kind of change.
        draft.say(Rule::Bounds, after, why);
    } else {
        draft.rule(Kind::Bounds, Rule::Bounds, after, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{Scene, range};

    #[test]
    fn the_bounds_have_their_way_but_not_under_the_floor() {
        // name, current, wanted, floor, bounds, (expected number, kind)
        let table = [
            ("inside", 3, 4, 0, range(1, 5), (4, Kind::ScaleOut)),
            ("a step cut to max stays a scale-out", 3, 9, 0, range(1, 5), (5, Kind::ScaleOut)),
            ("above max", 8, 8, 0, range(1, 5), (5, Kind::Bounds)),
            ("above max, the policy goes down", 8, 7, 0, range(1, 5), (5, Kind::Bounds)),
            ("below min", 0, 0, 0, range(2, 5), (2, Kind::Bounds)),
            ("below min, the policy goes beyond it", 0, 3, 0, range(2, 5), (3, Kind::ScaleOut)),
            ("above max, but a floor holds", 8, 8, 8, range(1, 5), (8, Kind::ScaleOut)),
            ("below min with a floor", 1, 1, 1, range(2, 5), (2, Kind::Bounds)),
        ];
        for (name, current, wanted, floor, bounds, expected) in table {
            let draft = Scene::new(current).judge(wanted, |_, draft| {
                (draft.range, draft.floor, draft.kind) = (bounds, floor, Kind::ScaleOut);
                apply(draft);
            });
            assert_eq!((draft.wanted, draft.kind), expected, "{name}");
        }
    }
}
