//! What a look does to the memory of `slo` where it can change no number. What [`Slo::wish`] learns
//! at every look must be learnt here too; `sim/tests/rests.rs` compares them.

use super::{Regime, Slo, SloState};
use crate::guard::Look;

impl Slo {
    /// Called where nothing waits, runs or starts and there are as few workers as may be: whether
    /// they stay that few. If so the memory is as after [`Slo::wish`], if not it is untouched.
    ///
    /// Without jobs no worker is needed, and in deadline-drain none is wanted beyond. In
    /// level-hazard some may be, for jobs that have not come.
    pub(crate) fn idles(&self, state: &mut SloState, look: &Look<'_>) -> bool {
        let Some(queue) = look.queue else { return false };
        let facts = self.facts(state, look);
        if facts.regime != Regime::DeadlineDrain {
            return false;
        }
        let news = state.estimate.observe(look, queue);
        state.follow_load(0.0, news.gap, facts.wait);
        state.levels.observe(0, look.current, look.now, facts.start_up);
        true
    }
}
