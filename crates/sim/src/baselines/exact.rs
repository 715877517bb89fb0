//! Exact demand: as many workers as there are waiting and running jobs, as GitHub's runner
//! controller (`actions/actions-runner-controller@2ee6b3b8:cmd/ghalistener/scaler/scaler.go`:
//! min(min runners + assigned, max), idle ones go first) and Buildkite's scaler
//! (`buildkite/buildkite-agent-scaler@49c4145:scaler/`: the same with a cooldown of an hour before
//! it shrinks) do.

use headcount_core::{Observation, Span};

use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// After any change until it shrinks, s.
    pub cooldown: f64,
    /// Who goes.
    pub victims: Victims,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { cooldown: 0.0, victims: Victims::IdleFirst }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct ExactDemand {
    bounds: Bounds,
    parameters: Parameters,
    acted_at: Option<f64>,
}

impl ExactDemand {
    /// Nothing seen yet.
    pub const fn new(bounds: Bounds, parameters: Parameters) -> Self {
        Self { bounds, parameters, acted_at: None }
    }
}

impl Autoscaler for ExactDemand {
    fn name(&self) -> &str {
        "exact demand"
    }

    fn poll(&self) -> Span {
        Span::from_secs(10)
    }

    fn victims(&self) -> Victims {
        self.parameters.victims
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let sight = Sight::of(seen)?;
        let demand = sight.waiting + sight.active;
        let wanted = self.bounds.clamp(f64::from(self.bounds.min) + demand);
        let cools = self.acted_at.is_some_and(|at| sight.now - at < self.parameters.cooldown);
        if wanted == sight.live || (wanted < sight.live && cools) {
            return None;
        }
        self.acted_at = Some(sight.now);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn min_idle_ones_above_demand() {
        let mut rule = ExactDemand::new(Bounds { min: 2, max: 9 }, Parameters::default());
        check(
            &mut rule,
            &[
                (0.0, 0, 0, 0, 0, Some(2)),
                (10.0, 3, 2, 2, 0, Some(7)),
                (20.0, 30, 7, 7, 0, Some(9)),
                (30.0, 0, 1, 9, 0, Some(3)),
            ],
        );
    }

    #[test]
    fn with_a_cooldown_it_keeps_what_it_has_for_an_hour() {
        let parameters = Parameters { cooldown: 3600.0, ..Parameters::default() };
        let mut rule = ExactDemand::new(Bounds { min: 0, max: 9 }, parameters);
        check(
            &mut rule,
            &[
                (0.0, 3, 0, 0, 0, Some(3)),
                (3590.0, 0, 1, 3, 0, None),
                (3600.0, 0, 1, 3, 0, Some(1)),
                (3610.0, 1, 1, 1, 0, Some(2)),
            ],
        );
    }
}
