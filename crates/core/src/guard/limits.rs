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
