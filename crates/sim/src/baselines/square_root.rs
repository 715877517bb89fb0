//! Square-root staffing: for an offered load R (arrival rate times service time) R + beta sqrt(R)
//! servers (Halfin and Whitt, "Heavy-traffic limits for queues with many exponential servers",
//! Operations Research 29(3), 1981). The classical rule for call centres, with idle workers going
//! first.
//!
//! Every 5 s: R is the mean of the demand (waiting and running jobs) over a window, or the demand
//! of the moment where it is higher: the rule is for a steady load and would sit out each burst.

use headcount_core::{Observation, Span};

use super::window::Window;
use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// How many square roots of the load are held in reserve.
    pub beta: f64,
    /// The window of the mean, s.
    pub window: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { beta: 1.0, window: 300.0 }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct SquareRoot {
    bounds: Bounds,
    beta: f64,
    demand: Window,
}

impl SquareRoot {
    /// Nothing seen yet.
    pub const fn new(bounds: Bounds, parameters: Parameters) -> Self {
        let Parameters { beta, window } = parameters;
        Self { bounds, beta, demand: Window::new(window) }
    }

    fn decide(&mut self, sight: &Sight) -> u32 {
        let demand = sight.waiting + sight.active;
        self.demand.add(sight.now, demand);
        let load = self.demand.mean();
        let staffed = self.beta.mul_add(load.sqrt(), load);
        self.bounds.clamp(staffed.max(demand).ceil())
    }
}

impl Autoscaler for SquareRoot {
    fn name(&self) -> &str {
        "square-root staffing"
    }

    fn poll(&self) -> Span {
        Span::from_secs(5)
    }

    fn victims(&self) -> Victims {
        Victims::IdleFirst
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let sight = Sight::of(seen)?;
        Some(self.decide(&sight))
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn the_load_and_its_root() {
        let mut rule = SquareRoot::new(Bounds { min: 0, max: 50 }, Parameters::default());
        check(
            &mut rule,
            &[
                (0.0, 0, 0, 0, 0, None),
                (5.0, 2, 6, 6, 0, Some(8)),
                // (0 + 8 + 10) / 3 = 6, and 2.4.
                (10.0, 0, 10, 12, 0, Some(10)),
                (15.0, 0, 6, 10, 0, Some(9)),
                // Only the 9 of now is left of the window.
                (400.0, 0, 9, 9, 0, Some(12)),
            ],
        );
    }
}
