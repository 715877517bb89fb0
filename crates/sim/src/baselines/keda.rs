//! KEDA's queue-length scalers with the Horizontal Pod Autoscaler that they drive
//! (`kedacore/keda@8b4f083c:pkg/scaling/executor/scale_scaledobjects.go`,
//! `kubernetes@1.36:pkg/controller/podautoscaler/{horizontal,replica_calculator}.go`).
//!
//! The operator, every 30 s: from 0 to max(min, 1) when the queue is active (above 0); to 0 when it
//! has not been for the cooldown (300 s). The HPA, every 15 s while there are workers: within a
//! tolerance of 10 % of the target for the present number nothing, else ceil(jobs / target); never
//! below the highest recommendation of the last 300 s; at most max(2 n, 4) at once. With `behavior`
//! its default policies hold instead: up by 4 or 100 % in 15 s, whichever is more. The ReplicaSet
//! picks the victims: the youngest.

use headcount_core::{Observation, Span};

use super::window::Window;
use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters; s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Jobs per worker that are aimed at.
    pub target: f64,
    /// Whether running jobs count, as `excludeUnacknowledged: false` and `scaleOnInFlight` do.
    pub counts_active: bool,
    /// Between two looks of the operator.
    pub polling_interval: f64,
    /// From the last activity to 0 workers.
    pub cooldown: f64,
    /// The HPA's downscale stabilisation window.
    pub stabilization: f64,
    /// `behavior` is set: its up policies limit instead of the old rule.
    pub behavior: bool,
    /// No change within this share of the target.
    pub tolerance: f64,
    /// Whether idle workers go first, as with a pod-deletion-cost that somebody keeps.
    pub idle_first: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            target: 5.0,
            counts_active: false,
            polling_interval: 30.0,
            cooldown: 300.0,
            stabilization: 300.0,
            behavior: false,
            tolerance: 0.1,
            idle_first: false,
        }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct Keda {
    bounds: Bounds,
    parameters: Parameters,
    operated_at: Option<f64>,
    active_at: Option<f64>,
    recommendations: Window,
}

impl Keda {
    /// Nothing seen yet.
    pub const fn new(bounds: Bounds, parameters: Parameters) -> Self {
        let recommendations = Window::new(parameters.stabilization);
        Self { bounds, parameters, operated_at: None, active_at: None, recommendations }
    }

    /// Between 0 and the first worker.
    fn operate(&mut self, sight: &Sight, jobs: f64) -> Option<u32> {
        let Parameters { polling_interval, cooldown, .. } = self.parameters;
        if self.operated_at.is_some_and(|at| sight.now - at < polling_interval) {
            return None;
        }
        self.operated_at = Some(sight.now);
        if jobs > 0.0 {
            self.active_at = Some(sight.now);
            return (sight.live == 0).then_some(self.bounds.min.max(1));
        }
        // A cooldown of which no start is known is over.
        let over = self.active_at.is_none_or(|at| sight.now - at > cooldown);
        (self.bounds.min == 0 && sight.live > 0 && over).then_some(0)
    }

    fn recommend(&mut self, sight: &Sight, jobs: f64) -> u32 {
        let Parameters { target, behavior, tolerance, .. } = self.parameters;
        let n = sight.live;
        let ratio = jobs / (target * f64::from(n));
        let desired = if (1.0 - tolerance..=1.0 + tolerance).contains(&ratio) {
            f64::from(n)
        } else {
            (jobs / target).ceil()
        };
        self.recommendations.add(sight.now, desired);
        let stable = if desired < f64::from(n) {
            self.recommendations.max().min(f64::from(n))
        } else {
            desired
        };
        let most = if behavior { n.saturating_add(4) } else { 4 }.max(n.saturating_mul(2));
        let bounds = Bounds { min: self.bounds.min.max(1), max: self.bounds.max.min(most) };
        bounds.clamp(stable)
    }
}

impl Autoscaler for Keda {
    fn name(&self) -> &str {
        "KEDA + HPA"
    }

    /// The HPA's; the operator looks at its own interval.
    fn poll(&self) -> Span {
        Span::from_secs(15)
    }

    fn victims(&self) -> Victims {
        if self.parameters.idle_first { Victims::IdleFirst } else { Victims::Youngest }
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let sight = Sight::of(seen)?;
        let jobs = sight.waiting + if self.parameters.counts_active { sight.active } else { 0.0 };
        if let Some(wanted) = self.operate(&sight, jobs) {
            if wanted == 0 {
                self.recommendations.clear();
            }
            return Some(wanted);
        }
        // The HPA rests while there are no workers.
        (sight.live > 0).then(|| self.recommend(&sight, jobs))
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    fn rule(parameters: Parameters) -> Keda {
        Keda::new(Bounds { min: 0, max: 20 }, parameters)
    }

    #[test]
    fn from_zero_by_the_operator_then_by_the_hpa_at_most_doubling() {
        let target = Parameters { target: 1.0, ..Parameters::default() };
        check(
            &mut rule(target),
            &[
                (0.0, 0, 0, 0, 0, None),
                (15.0, 50, 0, 0, 0, None),
                (30.0, 50, 0, 0, 0, Some(1)),
                (45.0, 50, 0, 0, 1, Some(4)),
                (60.0, 50, 0, 4, 0, Some(8)),
                (75.0, 50, 0, 8, 0, Some(16)),
                (90.0, 50, 0, 16, 0, Some(20)),
            ],
        );
        let behavior = Parameters { behavior: true, ..target };
        check(
            &mut rule(behavior),
            &[
                (0.0, 50, 0, 0, 0, Some(1)),
                (15.0, 50, 0, 1, 0, Some(5)),
                (30.0, 50, 0, 5, 0, Some(10)),
            ],
        );
    }

    #[test]
    fn within_the_tolerance_nothing_changes() {
        let parameters = Parameters { target: 1.0, ..Parameters::default() };
        for (jobs, expected) in [(9, None), (10, None), (11, None), (12, Some(12))] {
            check(
                &mut rule(parameters),
                &[(0.0, 10, 0, 10, 0, None), (15.0, jobs, 0, 10, 0, expected)],
            );
        }
    }

    #[test]
    fn the_highest_recommendation_of_the_window_holds() {
        let parameters = Parameters { target: 1.0, counts_active: true, ..Parameters::default() };
        check(
            &mut rule(parameters),
            &[
                (0.0, 2, 6, 8, 0, None),
                (15.0, 0, 5, 8, 0, None),
                (285.0, 0, 2, 8, 0, None),
                // The 8 of t = 0 has left the window; the 5 of t = 15 has not.
                (300.0, 0, 2, 8, 0, Some(5)),
                (315.0, 0, 2, 5, 0, Some(2)),
            ],
        );
    }

    #[test]
    fn to_zero_after_the_cooldown_and_past_the_window() {
        let parameters = Parameters { target: 1.0, ..Parameters::default() };
        check(
            &mut rule(parameters),
            &[(0.0, 3, 0, 3, 0, None), (300.0, 0, 3, 3, 0, Some(1)), (330.0, 0, 1, 1, 0, Some(0))],
        );
    }
}
