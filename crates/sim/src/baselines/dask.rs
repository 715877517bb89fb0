//! Dask's adaptive deployment (`dask/distributed@40fcd99a8:distributed/deploy/adaptive.py`,
//! `adaptive_core.py`, `scheduler.py: adaptive_target`).
//!
//! Every second: ceil((expected time of the running tasks + waiting tasks x their mean time) /
//! target duration), at most one worker per task. Up at once; down when three looks in a row say
//! so, idle workers only. Its doubling above 60 % memory is left out: here jobs hold none between
//! them.

use headcount_core::{Observation, Span};

use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// A task of unknown length is expected to take this long, s.
const UNKNOWN: f64 = 0.5;

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// In this time the work there is shall be done, s.
    pub target_duration: f64,
    /// Looks in a row until it shrinks.
    pub wait_count: u32,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { target_duration: 5.0, wait_count: 3 }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct Dask {
    bounds: Bounds,
    parameters: Parameters,
    /// The mean time of the tasks that are finished; Dask weighs the latest half.
    mean: Option<f64>,
    /// Looks in a row at which fewer would do.
    fewer: u32,
}

impl Dask {
    /// Nothing seen yet.
    pub const fn new(bounds: Bounds, parameters: Parameters) -> Self {
        Self { bounds, parameters, mean: None, fewer: 0 }
    }

    fn decide(&mut self, sight: &Sight) -> Option<u32> {
        let tasks = sight.waiting + sight.active;
        let work = tasks * self.mean.unwrap_or(UNKNOWN);
        let workers = (work / self.parameters.target_duration).ceil().min(tasks);
        let wanted = self.bounds.clamp(workers);
        if wanted >= sight.live {
            self.fewer = 0;
            return (wanted > sight.live).then_some(wanted);
        }
        self.fewer += 1;
        if self.fewer < self.parameters.wait_count {
            return None;
        }
        let idle = sight.live.saturating_sub(sight.busy);
        Some(wanted.max(sight.live - idle)).filter(|wanted| *wanted < sight.live)
    }
}

impl Autoscaler for Dask {
    fn name(&self) -> &str {
        "Dask adaptive"
    }

    fn poll(&self) -> Span {
        Span::from_secs(1)
    }

    fn victims(&self) -> Victims {
        Victims::IdleFirst
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let sight = Sight::of(seen)?;
        for duration in &seen.queue.value()?.durations {
            let duration = duration.as_secs_f64();
            self.mean = Some(self.mean.map_or(duration, |mean| 0.5 * (mean + duration)));
        }
        self.decide(&sight)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn as_many_as_do_the_work_in_time_and_fewer_after_three_looks() {
        let mut rule = Dask::new(Bounds { min: 0, max: 20 }, Parameters::default());
        check(
            &mut rule,
            &[(0.0, 3, 0, 0, 0, Some(1)), (1.0, 30, 0, 0, 1, Some(3)), (2.0, 29, 1, 1, 2, None)],
        );
        rule.mean = Some(10.0);
        check(
            &mut rule,
            &[
                (3.0, 4, 3, 3, 0, Some(7)),
                (4.0, 0, 2, 7, 0, None),
                (5.0, 0, 2, 7, 0, None),
                (6.0, 0, 2, 7, 0, Some(2)),
                (7.0, 0, 3, 7, 0, Some(3)),
                (8.0, 9, 7, 7, 0, Some(16)),
                (9.0, 0, 0, 7, 0, None),
            ],
        );
    }

    #[test]
    fn busy_ones_stay() {
        let mut rule = Dask::new(Bounds { min: 0, max: 20 }, Parameters::default());
        check(
            &mut rule,
            &[(0.0, 0, 3, 3, 0, None), (1.0, 0, 3, 3, 0, None), (2.0, 0, 3, 3, 0, None)],
        );
    }
}
