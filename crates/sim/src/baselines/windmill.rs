//! Windmill's worker-group autoscaling, after its public documentation and pull requests (#8930: no
//! cooldown on clamping; #9234: below min with a large backlog to max; thresholds are `>=` since
//! 1.423.1). Its Enterprise source is not public and was not read.
//!
//! Every 30 s: outside of the bounds: clamp. waiting >= full and n < max: to max, cooldown or not.
//! Within the cooldown (1500 s after a jump to max, else 300 s): nothing. waiting >= 1: one step
//! more. Else the occupancy of the last 15 s, 5 min and 30 min: all below 25 %: one step less; all
//! above 75 %: one step more. A step is (max - min) / 5. Kubernetes is told by pod-deletion-cost to
//! stop idle workers first.
//!
//! Occupancy is the share of busy workers, sampled every 5 s; a window that is not full yet is as
//! long as there are samples, as Windmill's own (until 1.629 and where only old workers report).

use headcount_core::{Observation, Span};

use super::window::Window;
use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters; s and shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Cooldown after a step.
    pub cooldown: f64,
    /// Cooldown after a jump to max.
    pub full_cooldown: f64,
    /// Waiting jobs from which one step is added.
    pub step_waiting: f64,
    /// Waiting jobs from which it jumps to max; absent: as many as max.
    pub full_waiting: Option<f64>,
    /// Occupancy below which a step goes.
    pub low: f64,
    /// Occupancy above which a step comes.
    pub high: f64,
    /// A step as a share of max - min.
    pub step: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            cooldown: 300.0,
            full_cooldown: 1500.0,
            step_waiting: 1.0,
            full_waiting: None,
            low: 0.25,
            high: 0.75,
            step: 0.2,
        }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct Windmill {
    bounds: Bounds,
    parameters: Parameters,
    occupancy: [Window; 3],
    decided_at: Option<f64>,
    /// The last event, and whether it was a jump to max.
    event: Option<(f64, bool)>,
}

/// It decides this often, s.
const DECIDES: f64 = 30.0;
/// The windows of the occupancy, s.
const WINDOWS: [f64; 3] = [15.0, 300.0, 1800.0];

impl Windmill {
    /// Nothing seen yet.
    pub fn new(bounds: Bounds, parameters: Parameters) -> Self {
        let occupancy = WINDOWS.map(Window::new);
        Self { bounds, parameters, occupancy, decided_at: None, event: None }
    }

    fn watch(&mut self, sight: &Sight) {
        // Without a worker there is no occupancy.
        if sight.ready > 0 {
            let share = f64::from(sight.busy) / f64::from(sight.ready);
            self.occupancy.iter_mut().for_each(|window| window.add(sight.now, share));
        } else {
            self.occupancy.iter_mut().for_each(Window::clear);
        }
    }

    /// The number wanted, and whether it is a jump to max.
    fn decide(&self, sight: &Sight) -> Option<(u32, bool)> {
        let Bounds { min, max } = self.bounds;
        let Parameters { step, .. } = self.parameters;
        let full = self.parameters.full_waiting.unwrap_or(f64::from(max));
        let n = sight.live;
        if n > max {
            return Some((max, false));
        }
        if n < max && sight.waiting >= full {
            return Some((max, true));
        }
        if n < min {
            return Some((min, false));
        }
        if self.cools(sight.now) {
            return None;
        }
        let step = ((f64::from(max - min) * step) as u32).max(1);
        let all = |test: &dyn Fn(f64) -> bool| {
            sight.ready > 0 && self.occupancy.iter().all(|window| test(window.mean()))
        };
        let Parameters { step_waiting, low, high, .. } = self.parameters;
        let wanted = if sight.waiting >= step_waiting {
            n.saturating_add(step).min(max)
        } else if all(&|occupancy| occupancy < low) {
            n.saturating_sub(step).max(min)
        } else if all(&|occupancy| occupancy > high) {
            n.saturating_add(step).min(max)
        } else {
            n
        };
        (wanted != n).then_some((wanted, false))
    }

    fn cools(&self, now: f64) -> bool {
        let Parameters { cooldown, full_cooldown, .. } = self.parameters;
        let still = |(at, full)| now - at < if full { full_cooldown } else { cooldown };
        self.event.is_some_and(still)
    }
}

impl Autoscaler for Windmill {
    fn name(&self) -> &str {
        "Windmill"
    }

    fn poll(&self) -> Span {
        Span::from_secs(5)
    }

    fn victims(&self) -> Victims {
        Victims::IdleFirst
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let sight = Sight::of(seen)?;
        self.watch(&sight);
        if self.decided_at.is_some_and(|at| sight.now - at < DECIDES) {
            return None;
        }
        self.decided_at = Some(sight.now);
        let (wanted, full) = self.decide(&sight)?;
        self.event = Some((sight.now, full));
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    fn rule(min: u32, max: u32) -> Windmill {
        Windmill::new(Bounds { min, max }, Parameters::default())
    }

    #[test]
    fn bounds_come_first_and_know_no_cooldown() {
        check(&mut rule(2, 10), &[(0.0, 0, 0, 0, 0, Some(2)), (30.0, 0, 0, 12, 0, Some(10))]);
        check(&mut rule(2, 10), &[(0.0, 10, 0, 0, 0, Some(10))]);
    }

    #[test]
    fn a_backlog_of_max_goes_to_max_in_spite_of_the_cooldown() {
        check(
            &mut rule(0, 10),
            &[
                (0.0, 1, 0, 0, 0, Some(2)),
                (30.0, 9, 0, 0, 2, None),
                (35.0, 10, 0, 2, 0, None),
                (60.0, 10, 0, 2, 0, Some(10)),
                (90.0, 0, 0, 10, 0, None),
                (1530.0, 0, 0, 10, 0, None),
                (1560.0, 0, 0, 10, 0, Some(8)),
                (1860.0, 0, 0, 8, 0, Some(6)),
            ],
        );
    }

    #[test]
    fn occupancy_moves_it_when_all_windows_agree() {
        check(
            &mut rule(0, 10),
            &[
                (0.0, 0, 4, 4, 0, Some(6)),
                // 5 min: (1 + 0.5 + 0.5) / 3 and so on: between the limits.
                (300.0, 0, 3, 6, 0, None),
                (330.0, 0, 0, 6, 0, None),
            ],
        );
    }
}
