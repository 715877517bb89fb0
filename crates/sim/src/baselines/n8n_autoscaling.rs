//! The autoscaler for n8n under Docker Compose that many copy
//! (`conor-is-my-name/n8n-autoscaling@043b3f3:autoscaler/autoscaler.py`).
//!
//! Every 10 s: more than 5 waiting: one more; less than 1: one less; 10 s between two changes; 1 to 5
//! workers. Running jobs do not count, and a queue that does not answer counts as empty. Compose
//! removes the youngest.

use headcount_core::{Observation, Span};

use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// More waiting jobs than this: one more.
    pub out_above: f64,
    /// Fewer than this: one less.
    pub in_below: f64,
    /// After any change, s.
    pub cooldown: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { out_above: 5.0, in_below: 1.0, cooldown: 10.0 }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct N8nAutoscaling {
    bounds: Bounds,
    parameters: Parameters,
    acted_at: Option<f64>,
}

impl N8nAutoscaling {
    /// Nothing seen yet; at least one worker, or a few waiting jobs would wait for ever.
    pub fn new(bounds: Bounds, parameters: Parameters) -> Self {
        let bounds = Bounds { min: bounds.min.max(1), ..bounds };
        Self { bounds, parameters, acted_at: None }
    }

    fn decide(&self, now: f64, waiting: f64, live: u32) -> Option<u32> {
        let Parameters { out_above, in_below, cooldown } = self.parameters;
        let Bounds { min, max } = self.bounds;
        if live < min {
            return Some(min);
        }
        if self.acted_at.is_some_and(|at| now - at < cooldown) {
            return None;
        }
        if waiting > out_above && live < max {
            return Some(live + 1);
        }
        (waiting < in_below && live > min).then(|| live - 1)
    }
}

impl Autoscaler for N8nAutoscaling {
    fn name(&self) -> &str {
        "n8n-autoscaling"
    }

    fn poll(&self) -> Span {
        Span::from_secs(10)
    }

    fn victims(&self) -> Victims {
        Victims::Youngest
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let live = seen.fleet.value()?.capacity();
        let waiting = Sight::of(seen).map_or(0.0, |sight| sight.waiting);
        let now = seen.t.as_seconds();
        let wanted = self.decide(now, waiting, live)?;
        self.acted_at = Some(now);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use headcount_core::{Reading, Silence, Timestamp};

    use super::super::check;
    use super::*;

    fn rule() -> N8nAutoscaling {
        N8nAutoscaling::new(Bounds { min: 0, max: 3 }, Parameters::default())
    }

    #[test]
    fn one_more_above_five_and_one_less_below_one() {
        check(
            &mut rule(),
            &[
                (0.0, 0, 0, 0, 0, Some(1)),
                (5.0, 9, 0, 1, 0, None),
                (10.0, 5, 1, 1, 0, None),
                (20.0, 6, 1, 1, 0, Some(2)),
                (30.0, 60, 1, 1, 1, Some(3)),
                (40.0, 60, 3, 3, 0, None),
                (50.0, 1, 3, 3, 0, None),
                (60.0, 0, 3, 3, 0, Some(2)),
                (70.0, 0, 2, 2, 0, Some(1)),
                (80.0, 0, 1, 1, 0, None),
            ],
        );
    }

    #[test]
    fn a_silent_queue_counts_as_empty() {
        let t = Timestamp::from_millis(1_000_000);
        let fleet = headcount_core::FleetReading { ready: 3, ..Default::default() };
        let seen = Observation {
            t,
            queue: Reading::missing(Silence::Refused, ""),
            host: Reading::missing(Silence::Absent, ""),
            fleet: Reading::known(fleet, t),
            budget: None,
        };
        assert_eq!(rule().wanted(&seen), Some(2));
    }
}
