//! Practo's worker pod autoscaler
//! (`practo/k8s-worker-pod-autoscaler@55e14ac:pkg/controller/controller.go`).
//!
//! Every 20 s: ceil((waiting + running) / target), at least what the arrival rate keeps busy where
//! the user says how long a job takes; within 10 % of the present number nothing. Up at once; down
//! 600 s after the last change, by at most `max_disruption` of the workers, and to min only when all
//! are idle. The replica set's victims are as good as random.

use headcount_core::{Observation, Span};

use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Jobs per worker that are aimed at.
    pub target: f64,
    /// After any change until it shrinks, s.
    pub cooldown: f64,
    /// The share of the workers that may go at once.
    pub max_disruption: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { target: 1.0, cooldown: 600.0, max_disruption: 1.0 }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct Practo {
    bounds: Bounds,
    parameters: Parameters,
    acted_at: Option<f64>,
}

impl Practo {
    /// Nothing seen yet.
    pub const fn new(bounds: Bounds, parameters: Parameters) -> Self {
        Self { bounds, parameters, acted_at: None }
    }

    fn decide(&self, sight: &Sight) -> Option<u32> {
        let Parameters { target, cooldown, max_disruption } = self.parameters;
        let jobs = sight.waiting + sight.active;
        let desired = (jobs / target).ceil();
        let n = f64::from(sight.live);
        let near = n > 0.0 && (1.0 - desired / n).abs() <= 0.1;
        let wanted = if near { sight.live } else { self.bounds.clamp(desired) };
        if wanted >= sight.live {
            return Some(wanted);
        }
        let cools = self.acted_at.is_some_and(|at| sight.now - at < cooldown);
        if cools || (wanted <= self.bounds.min && jobs > 0.0) {
            return None;
        }
        let most = ((n * max_disruption).ceil() as u32).max(1);
        Some(wanted.max(sight.live.saturating_sub(most)))
    }
}

impl Autoscaler for Practo {
    fn name(&self) -> &str {
        "Practo"
    }

    fn poll(&self) -> Span {
        Span::from_secs(20)
    }

    fn victims(&self) -> Victims {
        Victims::Random
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
    fn up_at_once_and_down_after_ten_minutes_to_min_only_when_idle() {
        let mut rule = Practo::new(Bounds { min: 1, max: 20 }, Parameters::default());
        check(
            &mut rule,
            &[
                (0.0, 8, 0, 0, 0, Some(8)),
                (20.0, 14, 0, 0, 8, Some(14)),
                (40.0, 14, 1, 14, 0, None),
                (60.0, 0, 3, 14, 0, None),
                (620.0, 0, 3, 14, 0, Some(3)),
                (1220.0, 0, 1, 3, 0, None),
                (1240.0, 0, 0, 3, 0, Some(1)),
            ],
        );
    }

    #[test]
    fn no_more_than_it_may_disrupt() {
        let parameters = Parameters { max_disruption: 0.25, ..Parameters::default() };
        let mut rule = Practo::new(Bounds { min: 0, max: 20 }, parameters);
        check(&mut rule, &[(0.0, 0, 0, 10, 0, Some(7)), (600.0, 0, 0, 7, 0, Some(5))]);
    }
}
