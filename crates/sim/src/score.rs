//! What a run was worth: how long jobs waited and what the workers cost.

use serde::Serialize;

use crate::moment::Moment;
use crate::timeline::Timeline;

/// An action against the last one within this time is a reversal.
const REVERSAL: Moment = Moment::from_micros(600_000_000);

/// The result of a run. Hours and seconds as the names say.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// From arrival to the start of the attempt that finished the job, seconds.
    pub waits: Waits,
    /// What the workers cost, from order to end, each at least the minimum billing.
    pub worker_hours: f64,
    /// The work in the trace.
    pub work_hours: f64,
    /// Changes that added workers.
    pub scale_outs: u64,
    /// Changes that removed workers.
    pub scale_ins: u64,
    /// Changes against the last one within 600 s.
    pub reversals: u64,
    /// Workers that were ordered.
    pub starts: u64,
    /// Workers that were stopped before they ran a job.
    pub wasted_starts: u64,
    /// Jobs that were killed with their worker.
    pub busy_kills: u64,
    /// Workers whose start failed.
    pub deaths: u64,
    /// Minutes in which more cores were wanted than the host has.
    pub overload_minutes: f64,
    /// Jobs.
    pub jobs: usize,
    /// From the start to the end of the last job.
    pub span_hours: f64,
    /// The seed.
    pub seed: u64,
    /// The policy's name.
    pub policy: String,
    /// Events that the world went through.
    pub events: u64,
}

/// How long jobs waited, seconds. A percentile p is the ceil(p n)-th smallest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Waits {
    /// The median.
    pub p50: f64,
    /// 95 of 100 waited no longer.
    pub p95: f64,
    /// 99 of 100 waited no longer.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// The mean.
    pub mean: f64,
}

/// What is counted while the world runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) waits: Vec<Moment>,
    pub(crate) paid: Moment,
    pub(crate) scale_outs: u64,
    pub(crate) scale_ins: u64,
    pub(crate) reversals: u64,
    pub(crate) starts: u64,
    pub(crate) wasted_starts: u64,
    pub(crate) busy_kills: u64,
    pub(crate) deaths: u64,
    pub(crate) overloaded: Moment,
    pub(crate) events: u64,
    /// What happened when, if it was followed.
    pub(crate) timeline: Option<Timeline>,
    last_change: Option<(bool, Moment)>,
}

impl Tally {
    /// Nothing yet of so many jobs.
    pub(crate) fn new(jobs: usize) -> Self {
        Self { waits: vec![Moment::default(); jobs], ..Self::default() }
    }

    /// Counts a change of the number of workers.
    pub(crate) fn changed(&mut self, out: bool, now: Moment) {
        if out {
            self.scale_outs += 1;
        } else {
            self.scale_ins += 1;
        }
        let against = |(last, at): (bool, Moment)| last != out && now.since(at) <= REVERSAL;
        self.reversals += u64::from(self.last_change.is_some_and(against));
        self.last_change = Some((out, now));
    }
}

impl Waits {
    /// Of all waits, in any order.
    pub fn of(mut waits: Vec<Moment>) -> Self {
        waits.sort_unstable();
        let n = waits.len();
        let Some(max) = waits.last() else { return Self::default() };
        let percentile = |percent: usize| {
            let rank = (percent * n).div_ceil(100).max(1);
            waits[rank - 1].as_seconds()
        };
        let sum: f64 = waits.iter().map(|wait| wait.as_seconds()).sum();
        Self {
            p50: percentile(50),
            p95: percentile(95),
            p99: percentile(99),
            max: max.as_seconds(),
            mean: sum / n as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Moment {
        Moment::from_micros(s * 1_000_000)
    }

    #[test]
    fn a_percentile_is_a_wait_that_some_job_had() {
        let waits = Waits::of((1..=10).rev().map(seconds).collect());
        assert_eq!((waits.p50, waits.p95, waits.p99), (5.0, 10.0, 10.0));
        assert_eq!((waits.max, waits.mean), (10.0, 5.5));
        let hundred = Waits::of((1..=100).map(seconds).collect());
        assert_eq!((hundred.p50, hundred.p95, hundred.p99), (50.0, 95.0, 99.0));
        assert_eq!(Waits::of(vec![seconds(3)]).p50, 3.0);
        assert_eq!(Waits::of(Vec::new()), Waits::default());
    }

    #[test]
    fn a_change_against_the_last_one_within_ten_minutes_is_a_reversal() {
        let mut tally = Tally::default();
        for (out, at) in [(true, 0), (true, 10), (false, 610), (true, 1211), (false, 1212)] {
            tally.changed(out, seconds(at));
        }
        assert_eq!((tally.scale_outs, tally.scale_ins, tally.reversals), (3, 2, 2));
    }
}
