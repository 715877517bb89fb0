//! Nomad Autoscaler's target-value strategy (`hashicorp/nomad-autoscaler@ede4e617:
//! plugins/builtin/strategy/target-value/plugin/plugin.go`, `policy/handler.go`).
//!
//! Every 10 s: factor = metric / target, here with the backlog per worker as the metric; within 1 %
//! of 1 nothing, else ceil(n factor); from 0, ceil(factor) if it is above 0. After any action nothing for 300 s, in
//! either direction. Nomad stops the allocations with the highest index: the youngest.

use headcount_core::{Observation, Span};

use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters; s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Jobs per worker that are aimed at.
    pub target: f64,
    /// Whether running jobs count.
    pub counts_active: bool,
    /// After an action.
    pub cooldown: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { target: 1.0, counts_active: false, cooldown: 300.0 }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct TargetValue {
    bounds: Bounds,
    parameters: Parameters,
    acted_at: Option<f64>,
}

impl TargetValue {
    /// Nothing seen yet.
    pub const fn new(bounds: Bounds, parameters: Parameters) -> Self {
        Self { bounds, parameters, acted_at: None }
    }

    fn decide(&self, sight: &Sight) -> Option<u32> {
        let Parameters { target, counts_active, cooldown } = self.parameters;
        if self.acted_at.is_some_and(|at| sight.now - at < cooldown) {
            return None;
        }
        let jobs = sight.waiting + if counts_active { sight.active } else { 0.0 };
        let n = f64::from(sight.live);
        let factor = jobs / n.max(1.0) / target;
        if sight.live > 0 && (factor - 1.0).abs() <= 0.01 {
            return None;
        }
        Some(self.bounds.clamp((n.max(1.0) * factor).ceil()))
    }
}

impl Autoscaler for TargetValue {
    fn name(&self) -> &str {
        "Nomad target-value"
    }

    fn poll(&self) -> Span {
        Span::from_secs(10)
    }

    fn victims(&self) -> Victims {
        Victims::Youngest
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let sight = Sight::of(seen)?;
        let wanted = self.decide(&sight).filter(|wanted| *wanted != sight.live)?;
        self.acted_at = Some(sight.now);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn in_proportion_and_one_cooldown_for_both_directions() {
        let mut rule = TargetValue::new(Bounds { min: 0, max: 20 }, Parameters::default());
        check(
            &mut rule,
            &[
                (-310.0, 1, 0, 0, 0, Some(1)),
                (0.0, 0, 0, 0, 0, None),
                (10.0, 7, 0, 0, 0, Some(7)),
                (20.0, 30, 0, 0, 7, None),
                (310.0, 30, 7, 7, 0, Some(20)),
                (600.0, 0, 5, 20, 0, None),
                (610.0, 0, 5, 20, 0, Some(0)),
            ],
        );
        check(
            &mut TargetValue::new(Bounds { min: 1, max: 2000 }, Parameters::default()),
            &[(0.0, 1009, 0, 1000, 0, None), (10.0, 1011, 0, 1000, 0, Some(1011))],
        );
    }
}
