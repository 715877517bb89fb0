//! AWS target tracking on backlog per task or instance
//! (`amazon-ec2-auto-scaling-user-guide:doc_source/as-using-sqs-queue.md`,
//! `as-scaling-target-tracking.md`).
//!
//! A metric x = waiting / ready a minute; the target is the acceptable latency over the mean
//! processing time. Out when the last 3 are above it: to ceil(ready x / target). In when the last 15
//! are below 90 % of it and the cooldown (300 s) is over: towards ceil(ready x / target). How far is
//! not published; here at most half. With nothing ready there is no metric and no change, so it
//! needs a worker at all times. The youngest goes.

use std::collections::VecDeque;

use headcount_core::{Observation, Span};

use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// What is aimed at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// So many jobs per worker.
    Backlog(f64),
    /// This latency, s, over the mean of the processing times seen so far.
    Latency(f64),
}

/// The parameters; s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// What is aimed at.
    pub target: Target,
    /// Data points above it until it grows.
    pub out_after: usize,
    /// Data points below 90 % of it until it shrinks.
    pub in_after: usize,
    /// After either until it shrinks.
    pub cooldown: f64,
    /// Whether running jobs count.
    pub counts_active: bool,
}

impl Parameters {
    /// The documented ones for a target.
    pub const fn published(target: Target) -> Self {
        Self { target, out_after: 3, in_after: 15, cooldown: 300.0, counts_active: false }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct TargetTracking {
    bounds: Bounds,
    parameters: Parameters,
    points: VecDeque<f64>,
    /// Sum and number of the processing times seen.
    processed: (f64, f64),
    acted_at: Option<f64>,
}

impl TargetTracking {
    /// Nothing seen yet; at least one worker.
    pub fn new(bounds: Bounds, parameters: Parameters) -> Self {
        let bounds = Bounds { min: bounds.min.max(1), ..bounds };
        Self { bounds, parameters, points: VecDeque::new(), processed: (0.0, 0.0), acted_at: None }
    }

    fn learn(&mut self, seen: &Observation) {
        let Some(queue) = seen.queue.value() else { return };
        self.processed.0 += queue.durations.iter().map(|d| d.as_secs_f64()).sum::<f64>();
        self.processed.1 += queue.durations.len() as f64;
    }

    fn target(&self) -> Option<f64> {
        match self.parameters.target {
            Target::Backlog(jobs) => Some(jobs),
            Target::Latency(_) if self.processed.1 == 0.0 => None,
            Target::Latency(latency) => Some(latency * self.processed.1 / self.processed.0),
        }
    }

    fn decide(&mut self, sight: &Sight) -> Option<u32> {
        let Parameters { out_after, in_after, cooldown, counts_active, .. } = self.parameters;
        if sight.live < self.bounds.min {
            return Some(self.bounds.min);
        }
        if sight.ready == 0 {
            self.points.clear();
            return None;
        }
        let jobs = sight.waiting + if counts_active { sight.active } else { 0.0 };
        let ready = f64::from(sight.ready);
        self.points.push_back(jobs / ready);
        while self.points.len() > out_after.max(in_after) {
            self.points.pop_front();
        }
        let target = self.target()?;
        let last = |n: usize, test: &dyn Fn(f64) -> bool| {
            self.points.len() >= n && self.points.iter().rev().take(n).all(|x| test(*x))
        };
        let proportional = self.bounds.clamp((jobs / target).ceil());
        if last(out_after, &|x| x > target) && proportional > sight.live {
            return Some(proportional);
        }
        let cools = self.acted_at.is_some_and(|at| sight.now - at < cooldown);
        let shrinks = last(in_after, &|x| x < 0.9 * target) && proportional < sight.live;
        (shrinks && !cools).then(|| proportional.max(sight.live / 2))
    }
}

impl Autoscaler for TargetTracking {
    fn name(&self) -> &str {
        "AWS target tracking"
    }

    fn poll(&self) -> Span {
        Span::from_secs(60)
    }

    fn victims(&self) -> Victims {
        Victims::Youngest
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        self.learn(seen);
        let sight = Sight::of(seen)?;
        let wanted = self.decide(&sight)?;
        self.acted_at = Some(sight.now);
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    fn rule(min: u32, backlog: f64) -> TargetTracking {
        let parameters = Parameters::published(Target::Backlog(backlog));
        TargetTracking::new(Bounds { min, max: 20 }, parameters)
    }

    #[test]
    fn out_after_three_data_points_above_in_proportion() {
        check(
            &mut rule(0, 5.0),
            &[
                (0.0, 0, 0, 0, 0, Some(1)),
                (60.0, 40, 0, 0, 1, None),
                (120.0, 40, 1, 1, 0, None),
                (180.0, 40, 1, 1, 0, None),
                (240.0, 40, 1, 1, 0, Some(8)),
                (300.0, 41, 1, 1, 7, Some(9)),
                (360.0, 40, 8, 9, 0, None),
            ],
        );
    }

    #[test]
    fn in_after_fifteen_below_ninety_percent_by_half_at_most() {
        let mut rows: Vec<_> =
            (0..14).map(|minute| (60.0 * f64::from(minute), 8, 8, 16, 0, None)).collect();
        rows.push((840.0, 8, 8, 16, 0, Some(8)));
        rows.push((900.0, 8, 8, 8, 0, None));
        rows.push((1140.0, 8, 8, 8, 0, Some(4)));
        check(&mut rule(1, 5.0), &rows);
    }

    #[test]
    fn the_target_is_latency_over_processing_time() {
        let mut rule = rule(1, 1.0);
        rule.parameters.target = Target::Latency(60.0);
        assert_eq!(rule.target(), None);
        rule.processed = (24.0, 2.0);
        assert_eq!(rule.target(), Some(5.0));
    }
}
