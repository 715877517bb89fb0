//! Judoscale (its documentation, judoscale.com; `judoscale/judoscale-ruby@26d2486` reports the
//! latency). The service itself is closed.
//!
//! Every 10 s: the oldest waiting job has waited for longer than the upper limit: one more, but only
//! 3 min after the last such step; for less than the lower limit throughout 10 min: one less. The
//! limits are the user's; 60 s and 5 s here. Where busy jobs are tracked nothing shrinks while there
//! are any. The platform picks the victim; here the youngest.

use headcount_core::{Observation, Span};

use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters; s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// The upper limit of the wait.
    pub upper: f64,
    /// The lower limit.
    pub lower: f64,
    /// From one step up to the next.
    pub out_every: f64,
    /// How long the wait must have been below the lower limit.
    pub in_after: f64,
    /// How many a step up adds.
    pub jump: u32,
    /// Whether it does not shrink while jobs run.
    pub tracks_busy: bool,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            upper: 60.0,
            lower: 5.0,
            out_every: 180.0,
            in_after: 600.0,
            jump: 1,
            tracks_busy: false,
        }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct Judoscale {
    bounds: Bounds,
    parameters: Parameters,
    grown_at: Option<f64>,
    /// Since when the wait has been below the lower limit.
    calm_since: Option<f64>,
}

impl Judoscale {
    /// Nothing seen yet.
    pub const fn new(bounds: Bounds, parameters: Parameters) -> Self {
        Self { bounds, parameters, grown_at: None, calm_since: None }
    }

    fn decide(&mut self, sight: &Sight, latency: f64) -> Option<u32> {
        let Parameters { upper, lower, out_every, in_after, jump, tracks_busy } = self.parameters;
        let Bounds { min, max } = self.bounds;
        if sight.live < min {
            return Some(min);
        }
        let calm = latency < lower && !(tracks_busy && sight.active > 0.0);
        self.calm_since = self.calm_since.filter(|_| calm).or(calm.then_some(sight.now));
        let grows = self.grown_at.is_none_or(|at| sight.now - at >= out_every);
        if latency > upper && sight.live < max && grows {
            self.grown_at = Some(sight.now);
            return Some(sight.live.saturating_add(jump).min(max));
        }
        let rested = self.calm_since.is_some_and(|at| sight.now - at >= in_after);
        if !rested || sight.live <= min {
            return None;
        }
        // The next step must be waited for anew.
        self.calm_since = Some(sight.now);
        Some(sight.live - 1)
    }
}

impl Autoscaler for Judoscale {
    fn name(&self) -> &str {
        "Judoscale"
    }

    fn poll(&self) -> Span {
        Span::from_secs(10)
    }

    fn victims(&self) -> Victims {
        Victims::Youngest
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let sight = Sight::of(seen)?;
        let oldest = seen.queue.value().and_then(|queue| queue.oldest_wait);
        self.decide(&sight, oldest.map_or(0.0, |wait| wait.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks at moments of (s, the oldest wait, active, live).
    fn ask(tracks_busy: bool, rows: &[(f64, f64, f64, u32, Option<u32>)]) {
        let parameters = Parameters { tracks_busy, ..Parameters::default() };
        let mut rule = Judoscale::new(Bounds { min: 1, max: 4 }, parameters);
        for &(now, latency, active, live, expected) in rows {
            let sight = Sight { now, active, live, ..Sight::default() };
            assert_eq!(rule.decide(&sight, latency), expected, "{now}");
        }
    }

    #[test]
    fn up_by_latency_every_three_minutes_and_down_after_ten_calm_ones() {
        ask(
            false,
            &[
                (0.0, 0.0, 0.0, 0, Some(1)),
                (10.0, 60.0, 1.0, 1, None),
                (20.0, 61.0, 1.0, 1, Some(2)),
                (190.0, 200.0, 2.0, 2, None),
                (200.0, 200.0, 2.0, 2, Some(3)),
                (210.0, 4.0, 3.0, 3, None),
                (800.0, 4.0, 3.0, 3, None),
                (810.0, 4.0, 3.0, 3, Some(2)),
                (1400.0, 0.0, 0.0, 2, None),
                (1405.0, 6.0, 0.0, 2, None),
                (1410.0, 0.0, 0.0, 2, None),
                (2010.0, 0.0, 0.0, 2, Some(1)),
                (9999.0, 0.0, 0.0, 1, None),
            ],
        );
    }

    #[test]
    fn with_busy_jobs_tracked_it_shrinks_only_when_none_runs() {
        ask(true, &[(0.0, 0.0, 1.0, 3, None), (700.0, 0.0, 0.0, 3, None)]);
        ask(true, &[(0.0, 0.0, 0.0, 3, None), (600.0, 0.0, 0.0, 3, Some(2))]);
    }
}
