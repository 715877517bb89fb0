//! What happened when: how many jobs waited, what the workers did and how busy the machine was, over
//! the time of a run.
//!
//! A run may last minutes or years, so time is cut into buckets of equal length, at most
//! [`MOST_BUCKETS`]: when they are full, each two become one. A bucket keeps the least, the mean and
//! the most of each level, so that no peak is lost. The world tells each change; between two changes
//! the levels hold, however long that is and whether anybody looks or not.

use crate::moment::Moment;
use crate::trace::{Job, Trace};

/// The most buckets. A power of two times a second is the length of each.
pub const MOST_BUCKETS: usize = 2000;
/// The most points of [`Timeline::waits`], but for the steps of the last hundredth.
const WAIT_STEPS: usize = 200;
/// The length of a bucket at the start of a run.
const SHORTEST: Moment = Moment::from_micros(1_000_000);

/// The course of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// How long each bucket is.
    pub width: Moment,
    /// The buckets, from the start of the run to its end.
    pub buckets: Vec<Bucket>,
    /// How the waits are distributed: (a wait in seconds, the share of jobs that waited no longer),
    /// both increasing.
    pub waits: Vec<(f64, f64)>,
}

/// A level that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Jobs that wait.
    Waiting,
    /// Workers that serve, busy or not.
    Ready,
    /// Those of them that hold a job.
    Busy,
    /// Workers that start.
    Starting,
    /// Workers that finish their last job.
    Draining,
    /// What the machine is asked for, percent of its cores; beyond 100 all work is slower. 0 if the
    /// world has no machine.
    Cpu,
}

/// What was during one stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bucket {
    ranges: [Range; LEVELS],
    /// For how much of it the run lasted: all, but for the last one.
    pub held: Moment,
    /// The longest wait of a job that arrived in it, seconds; `None` if none did.
    pub longest_wait: Option<f64>,
}

/// What came, whatever the workers did: for the same stretches of time as a [`Timeline`]'s.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// How long each bucket is.
    pub width: Moment,
    /// Jobs that arrived in each.
    pub arrivals: Vec<u64>,
    /// The mean number of jobs that would run if each started when it arrived.
    pub load: Vec<f64>,
}

/// A value of each [`Level`].
pub(crate) type Levels = [f64; LEVELS];

/// Follows the levels of one group.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    width: Moment,
    buckets: Vec<Bucket>,
    levels: Levels,
    since: Moment,
}

const LEVELS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Range {
    min: f64,
    max: f64,
    /// Level times microseconds.
    sum: f64,
}

impl Bucket {
    /// The least that `level` was; 0 if the bucket is empty.
    pub fn min(&self, level: Level) -> f64 {
        if self.held == Moment::default() { 0.0 } else { self.ranges[level as usize].min }
    }

    /// The most that `level` was.
    pub fn max(&self, level: Level) -> f64 {
        self.ranges[level as usize].max
    }

    /// The mean of `level` over the time.
    pub fn mean(&self, level: Level) -> f64 {
        self.ranges[level as usize].sum / self.held.as_micros().max(1) as f64
    }

    fn hold(&mut self, levels: &Levels, length: Moment) {
        for (range, level) in self.ranges.iter_mut().zip(levels) {
            range.min = range.min.min(*level);
            range.max = range.max.max(*level);
            range.sum = level.mul_add(length.as_micros() as f64, range.sum);
        }
        self.held = self.held.plus(length);
    }

    /// With what was in the bucket behind it.
    fn and(mut self, next: &Self) -> Self {
        for (range, other) in self.ranges.iter_mut().zip(&next.ranges) {
            range.min = range.min.min(other.min);
            range.max = range.max.max(other.max);
            range.sum += other.sum;
        }
        self.held = self.held.plus(next.held);
        self
    }
}

impl Default for Range {
    fn default() -> Self {
        Self { min: f64::INFINITY, max: 0.0, sum: 0.0 }
    }
}

impl Recorder {
    /// Nothing is there yet.
    pub(crate) const fn new() -> Self {
        Self {
            width: SHORTEST,
            buckets: Vec::new(),
            levels: [0.0; LEVELS],
            since: Moment::from_micros(0),
        }
    }

    /// From now on the levels are these; until now they were those told last.
    pub(crate) fn note(&mut self, now: Moment, levels: Levels) {
        if self.levels != levels {
            self.pass(now);
            self.levels = levels;
        }
    }

    fn pass(&mut self, now: Moment) {
        while self.since < now {
            let number = place(self.since, self.width);
            if number >= MOST_BUCKETS {
                self.widen();
                continue;
            }
            if number >= self.buckets.len() {
                self.buckets.resize(number + 1, Bucket::default());
            }
            let end = Moment::from_micros((number as u64 + 1) * self.width.as_micros()).min(now);
            self.buckets[number].hold(&self.levels, end.since(self.since));
            self.since = end;
        }
    }

    /// Makes one bucket of each two.
    fn widen(&mut self) {
        let one = |two: &[Bucket]| match two {
            [first, second] => first.and(second),
            rest => rest[0],
        };
        self.buckets = self.buckets.chunks(2).map(one).collect();
        self.width = self.width.plus(self.width);
    }

    /// The run is over: `jobs` waited so long.
    pub(crate) fn finish(mut self, now: Moment, jobs: &[Job], waits: &[Moment]) -> Timeline {
        self.pass(now);
        for (job, wait) in jobs.iter().zip(waits) {
            let number = place(job.at, self.width).min(self.buckets.len().saturating_sub(1));
            if let Some(bucket) = self.buckets.get_mut(number) {
                let longest = bucket.longest_wait.get_or_insert(0.0);
                *longest = longest.max(wait.as_seconds());
            }
        }
        Timeline { width: self.width, buckets: self.buckets, waits: distribution(waits) }
    }
}

/// Which bucket a moment is in.
fn place(at: Moment, width: Moment) -> usize {
    usize::try_from(at.as_micros() / width.as_micros()).unwrap_or(usize::MAX)
}

/// Waits, and the share of jobs that waited no longer; finer in the last hundredth.
fn distribution(waits: &[Moment]) -> Vec<(f64, f64)> {
    let mut waits = waits.to_vec();
    waits.sort_unstable();
    let n = waits.len();
    let even = (1..=WAIT_STEPS).map(|step| step as f64 / WAIT_STEPS as f64);
    let shares = even.chain([0.996, 0.997, 0.998, 0.999, 0.9995, 0.9999]);
    let rank = |share: f64| ((share * n as f64).ceil() as usize).clamp(1, n.max(1)) - 1;
    let mut ranks: Vec<usize> = shares.map(rank).collect();
    ranks.sort_unstable();
    let mut points: Vec<(f64, f64)> = Vec::new();
    for wait in ranks.into_iter().filter_map(|rank| waits.get(rank)) {
        let seconds = wait.as_seconds();
        if points.last().is_none_or(|(last, _)| *last < seconds) {
            let no_longer = waits.partition_point(|other| other <= wait);
            points.push((seconds, no_longer as f64 / n as f64));
        }
    }
    points
}

impl Demand {
    /// What a trace brings, in at most [`MOST_BUCKETS`] buckets.
    pub fn of(trace: &Trace) -> Self {
        let end = trace.jobs.iter().map(|job| job.at.plus(job.service)).max().unwrap_or_default();
        let mut width = SHORTEST;
        while place(end, width) >= MOST_BUCKETS {
            width = width.plus(width);
        }
        let buckets = place(end, width) + 1;
        let mut arrivals = vec![0; buckets];
        // Parts of buckets that a job covers, and by how much the number of jobs that cover whole
        // buckets changes at each.
        let (mut part, mut change) = (vec![0.0; buckets], vec![0.0; buckets + 1]);
        let inside = |at: Moment| (at.as_micros() % width.as_micros()) as f64;
        let whole = width.as_micros() as f64;
        for job in &trace.jobs {
            let ends = job.at.plus(job.service);
            let (first, last) = (place(job.at, width), place(ends, width));
            arrivals[first] += 1;
            part[first] -= inside(job.at) / whole;
            part[last] += inside(ends) / whole;
            change[first] += 1.0;
            change[last] -= 1.0;
        }
        let mut covering = 0.0;
        let load = part.iter().zip(&change).map(|(part, change)| {
            covering += change;
            // Sums of many parts are off by a rounding error.
            (covering + part).max(0.0)
        });
        Self { width, arrivals, load: load.collect() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seconds(s: f64) -> Moment {
        Moment::from_seconds(s).unwrap()
    }

    fn waiting(jobs: f64) -> Levels {
        [jobs, 0.0, 0.0, 0.0, 0.0, 0.0]
    }

    fn job(at: f64, service: f64) -> Job {
        Job { at: seconds(at), service: seconds(service), class: 0 }
    }

    #[test]
    fn a_bucket_knows_its_least_mean_and_most() {
        let mut recorder = Recorder::new();
        recorder.note(seconds(0.25), waiting(4.0));
        recorder.note(seconds(0.5), waiting(2.0));
        // What lasts no time is no level.
        recorder.note(seconds(1.0), waiting(9.0));
        recorder.note(seconds(1.0), waiting(1.0));
        let line = recorder.finish(seconds(2.5), &[], &[]);
        let rows = line
            .buckets
            .iter()
            .map(|b| (b.min(Level::Waiting), b.mean(Level::Waiting), b.max(Level::Waiting)));
        assert_eq!(rows.collect::<Vec<_>>(), [(0.0, 2.0, 4.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)]);
        assert_eq!(line.width, SHORTEST);
    }

    #[test]
    fn a_year_fits_and_a_peak_of_a_second_in_it_is_kept() {
        let mut recorder = Recorder::new();
        let day = 86_400.0;
        recorder.note(seconds(100.0 * day), waiting(50.0));
        recorder.note(seconds(100.0 * day + 1.0), waiting(0.0));
        let line = recorder.finish(seconds(365.0 * day), &[], &[]);
        assert!((MOST_BUCKETS / 2..=MOST_BUCKETS).contains(&line.buckets.len()));
        let peak = place(seconds(100.0 * day), line.width);
        let found = line.buckets.iter().position(|b| b.max(Level::Waiting) == 50.0);
        assert_eq!(found, Some(peak));
        let jobs: f64 = line.buckets.iter().map(|b| b.ranges[0].sum).sum();
        assert_eq!(jobs, 50e6, "50 jobs for a second");
    }

    #[test]
    fn waits_are_where_their_jobs_arrived() {
        let mut recorder = Recorder::new();
        recorder.note(seconds(0.0), waiting(1.0));
        let jobs = [job(0.0, 1.0), job(0.5, 1.0), job(2.0, 1.0)];
        let waits = [3.0, 0.0, 0.0].map(seconds);
        let line = recorder.finish(seconds(4.0), &jobs, &waits);
        let found: Vec<_> = line.buckets.iter().map(|bucket| bucket.longest_wait).collect();
        assert_eq!(found, [Some(3.0), None, Some(0.0), None]);
        assert_eq!(line.waits, [(0.0, 2.0 / 3.0), (3.0, 1.0)]);
    }

    #[test]
    fn a_distribution_is_bounded_and_ends_at_the_longest_wait() {
        assert_eq!(distribution(&[]), []);
        let waits: Vec<Moment> = (1..=10_000).rev().map(|s| seconds(f64::from(s))).collect();
        let points = distribution(&waits);
        assert!(points.len() <= WAIT_STEPS + 6);
        assert!(points.contains(&(9500.0, 0.95)) && points.contains(&(9999.0, 0.9999)));
        assert_eq!(points.last(), Some(&(10_000.0, 1.0)));
    }

    #[test]
    fn demand_is_what_would_run_if_nobody_waited() {
        let jobs = vec![job(0.0, 2.5), job(0.5, 0.25), job(4.0, 1.0)];
        let demand = Demand::of(&Trace { jobs, classes: Vec::new() });
        assert_eq!(demand.arrivals, [2, 0, 0, 0, 1, 0]);
        assert_eq!(demand.load, [1.25, 1.0, 0.5, 0.0, 1.0, 0.0]);
        assert_eq!(Demand::of(&Trace::default()).arrivals, [0]);
    }

    proptest! {
        #[test]
        fn the_mean_of_all_buckets_is_that_of_all_time(
            steps in prop::collection::vec((0.0..5000.0, 0.0..20.0), 1..60),
        ) {
            let mut recorder = Recorder::new();
            let (mut now, mut exact, mut level) = (Moment::default(), 0.0, 0.0);
            for (length, next) in steps {
                let then = now.plus(seconds(length));
                exact += level * then.since(now).as_micros() as f64;
                recorder.note(then, waiting(next));
                (now, level) = (then, next);
            }
            let line = recorder.finish(now, &[], &[]);
            let sum: f64 = line.buckets.iter().map(|b| b.ranges[0].sum).sum();
            prop_assert!((sum - exact).abs() <= 1e-9 * exact.max(1.0));
            prop_assert!(line.buckets.len() <= MOST_BUCKETS);
        }
    }
}
