//! How far one decision may go, but for the way into the bounds.

use crate::decision::{Rule, Why};
use crate::guard::{Draft, Look};

/// Cuts the step to the limits.
pub(crate) fn apply(look: &Look<'_>, draft: &mut Draft) {
    let limits = &look.rules.limits;
    if let Some(limit) = limits.step_out {
        let most = draft.current.saturating_add(limit).max(draft.range.min);
        if draft.wanted > most {
            draft.say(Rule::Limits, most, Why::StepLimit { limit });
        }
    }
    if let Some(limit) = limits.step_in {
        let least = draft.current.saturating_sub(limit).min(draft.range.max);
        if draft.wanted < least {
            draft.say(Rule::Limits, least, Why::StepLimit { limit });
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::rules::Limits;
    use crate::scene::Scene;

    #[test]
    fn a_step_goes_only_so_far() {
        let table = [
            ("growth is cut", 3, 9, 5),
            ("growth within the limit", 3, 5, 5),
            ("shrinking is cut", 9, 2, 8),
            ("shrinking within the limit", 9, 8, 8),
            ("no change", 4, 4, 4),
            ("up to min at once", 0, 7, 4),
            ("below min beyond the limit", 0, 4, 4),
            ("down to max at once", 20, 1, 10),
        ];
        for (name, current, wanted, expected) in table {
            let mut scene = Scene::new(current);
            scene.rules.workers.min = 4;
            scene.rules.limits = Limits { step_out: Some(2), step_in: Some(1) };
            let draft = scene.judge(wanted, super::apply);
            assert_eq!(draft.wanted, expected, "{name}");
        }
    }

    #[test]
    fn without_limits_any_step_goes() {
        assert_eq!(Scene::new(1).judge(10, super::apply).wanted, 10);
        assert_eq!(Scene::new(10).judge(1, super::apply).wanted, 1);
    }
}
