//! What is learnt of a group's jobs and workers: how long jobs take, how long workers take to start.
//!
//! Works with whatever a source tells. Where it tells no durations, they are inferred from the
//! counts of active jobs; where it tells no waits, jobs are followed by their first sight.

use serde::{Deserialize, Serialize};

use crate::guard::Look;
use crate::reading::{QueueReading, WorkerState};
use crate::time::{Span, Timestamp, seconds};

/// Durations that are remembered: enough for a 99th percentile of four samples.
const DURATIONS: usize = 400;
/// Start-up times that are remembered: the host's caches and images change within days.
const START_UPS: usize = 50;
/// Workers whose start is followed, and waiting jobs whose first sight is.
const FOLLOWED: usize = 256;
/// With fewer start-ups than this the hint has its say.
const FEW: usize = 5;
/// A start that took longer than this was no start.
const LONGEST_START: f64 = 3600.0;
/// A job takes this long until one has finished.
const UNKNOWN_DURATION: f64 = 30.0;

/// The last so many values of something, also in order of size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<f64>", into = "Vec<f64>")]
pub struct Sample {
    values: Vec<f64>,
    sorted: Vec<f64>,
}

impl From<Vec<f64>> for Sample {
    fn from(mut values: Vec<f64>) -> Self {
        values.retain(|x| x.is_finite() && *x >= 0.0);
        values.drain(..values.len().saturating_sub(DURATIONS));
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        Self { values, sorted }
    }
}

impl From<Sample> for Vec<f64> {
    fn from(sample: Sample) -> Self {
        sample.values
    }
}

impl Sample {
    fn add(&mut self, value: f64, most: usize) {
        if !(value.is_finite() && value >= 0.0) {
            return;
        }
        // Milliseconds are exact enough, and short in JSON.
        let value = (value * 1000.0).round() / 1000.0;
        if self.values.len() >= most {
            let oldest = self.values.remove(0);
            let place = self.sorted.partition_point(|x| *x < oldest);
            self.sorted.remove(place);
        }
        self.values.push(value);
        let place = self.sorted.partition_point(|x| *x < value);
        self.sorted.insert(place, value);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The value that a share (0 to 1) of them does not exceed.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (share * self.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied()
    }

    /// The mean of the values, each at most `limit`.
    pub fn mean_up_to(&self, limit: f64) -> Option<f64> {
        if self.is_empty() {
            return None;
        }
        let sum: f64 = self.sorted.iter().map(|x| x.min(limit)).sum();
        Some(sum / self.len() as f64)
    }

    /// Half of those that are above `age` are above `age` plus this.
    fn median_rest(&self, age: f64) -> Option<f64> {
        let above = &self.sorted[self.sorted.partition_point(|x| *x <= age)..];
        // None has ever taken so long: as long again, as things of unknown length do.
        above.get(above.len() / 2).map(|x| x - age).or((!self.is_empty()).then_some(age))
    }
}

/// All that is learnt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Estimate {
    /// How long jobs took, s, oldest first.
    pub durations: Sample,
    /// How long workers took to start, s, oldest first.
    pub start_ups: Sample,
    /// When the workers that are starting were started, oldest first.
    launches: Vec<Timestamp>,
    /// When the waiting jobs were first seen, where the source does not tell.
    sighted: Vec<Timestamp>,
    /// Work done since the last job finished, s, where the source tells no durations.
    unfinished: f64,
    last: Option<Last>,
}

/// The counts of the last look.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Last {
    at: Timestamp,
    waiting: u64,
    active: u64,
    ready: u32,
    finished_total: Option<u64>,
}

/// What happened since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct News {
    /// Seconds since then; 0 at the first look.
    pub(crate) gap: f64,
    /// Jobs that came.
    pub(crate) arrived: u64,
}

impl Estimate {
    /// Takes in what is seen.
    pub(crate) fn observe(&mut self, look: &Look<'_>, queue: &QueueReading) -> News {
        let last = self.last.filter(|last| last.at < look.now);
        let gap = last.map_or(0.0, |last| seconds(look.now.since(last.at)));
        self.follow_launches(look, gap, last);
        let finished = last.map_or(0, |last| finished(&last, queue));
        self.learn_durations(queue, gap, last, finished);
        let here = queue.waiting.saturating_add(queue.active);
        let arrived = last.map_or(here, |last| {
            let before = last.waiting.saturating_add(last.active);
            here.saturating_add(finished).saturating_sub(before)
        });
        self.follow_waiting(look.now, queue, last, finished);
        self.last = Some(Last {
            at: look.now,
            waiting: queue.waiting,
            active: queue.active,
            ready: look.fleet.ready,
            finished_total: queue.finished_total,
        });
        News { gap, arrived }
    }

    /// Nothing is known of some time.
    pub(crate) fn interrupted(&mut self) {
        self.last = None;
        self.launches.clear();
        self.unfinished = 0.0;
    }

    /// A worker that was starting and is ready now tells how long a start takes.
    fn follow_launches(&mut self, look: &Look<'_>, gap: f64, last: Option<Last>) {
        let fleet = look.fleet;
        if self.launches.is_empty() && fleet.starting == 0 {
            return;
        }
        // It became ready some time since the last look.
        let took = |start: Timestamp| seconds(look.now.since(start)) - gap / 2.0;
        let mut learnt = Vec::new();
        let listed = fleet.workers.iter().any(|w| w.started_at.is_some());
        if listed {
            let now = |state| {
                let workers = fleet.workers.iter().filter(move |w| w.state == state);
                // Another machine's clock may be anywhere.
                let recent = |at: &Timestamp| seconds(look.now.since(*at)).abs() <= LONGEST_START;
                workers.filter_map(|w| w.started_at).filter(recent)
            };
            if last.is_some() {
                let ready = |start: &Timestamp| now(WorkerState::Ready).any(|at| at == *start);
                learnt.extend(self.launches.iter().copied().filter(ready).map(took));
            }
            self.launches = now(WorkerState::Starting).take(FOLLOWED).collect();
            self.launches.sort_unstable();
        } else {
            let starting = (fleet.starting as usize).min(FOLLOWED);
            let done = self.launches.len().saturating_sub(starting);
            let ready = last.map_or(0, |last| fleet.ready.saturating_sub(last.ready) as usize);
            learnt.extend(self.launches.drain(..done.min(ready)).map(took));
            // They were ordered at the last look; what is gone was taken back, the youngest first.
            let ordered_at = last.map_or(look.now, |last| last.at);
            self.launches.resize(starting, ordered_at);
        }
        for took in learnt.into_iter().filter(|took| *took <= LONGEST_START) {
            self.start_ups.add(took.max(0.0), START_UPS);
        }
    }

    /// Durations as told, or the work done per finished job.
    fn learn_durations(
        &mut self,
        queue: &QueueReading,
        gap: f64,
        last: Option<Last>,
        finished: u64,
    ) {
        for duration in &queue.durations {
            self.durations.add(seconds(*duration), DURATIONS);
        }
        if !queue.durations.is_empty() || !queue.ages.is_empty() {
            self.unfinished = 0.0;
            return;
        }
        let active = last.map_or(0, |last| last.active.min(1_000_000));
        self.unfinished += gap * active as f64;
        if finished > 0 && self.unfinished > 0.0 {
            let each = self.unfinished / finished as f64;
            (0..finished.min(32)).for_each(|_| self.durations.add(each, DURATIONS));
            self.unfinished = 0.0;
        }
    }

    fn follow_waiting(
        &mut self,
        now: Timestamp,
        queue: &QueueReading,
        last: Option<Last>,
        finished: u64,
    ) {
        if queue.oldest_wait.is_some() || !queue.waits.is_empty() || queue.waiting == 0 {
            self.sighted.clear();
            return;
        }
        let active_before = last.map_or(0, |last| last.active);
        let started = queue.active.saturating_add(finished).saturating_sub(active_before);
        let left = usize::try_from(started).unwrap_or(usize::MAX).min(self.sighted.len());
        self.sighted.drain(..left);
        let waiting = usize::try_from(queue.waiting).unwrap_or(usize::MAX).min(FOLLOWED);
        let too_many = self.sighted.len().saturating_sub(waiting);
        self.sighted.drain(..too_many);
        self.sighted.resize(waiting, now);
    }

    /// How long the oldest waiting jobs have waited, oldest first; the last one also stands for
    /// those behind it.
    pub(crate) fn waits(&self, queue: &QueueReading, now: Timestamp) -> Vec<f64> {
        if !queue.waits.is_empty() {
            return queue.waits.iter().map(|wait| seconds(*wait)).collect();
        }
        if let Some(oldest) = queue.oldest_wait.map(seconds) {
            // Jobs that came evenly since then.
            let n = queue.waiting.clamp(1, FOLLOWED as u64);
            return (0..n).map(|i| oldest * (1.0 - i as f64 / n as f64)).collect();
        }
        self.sighted.iter().map(|at| seconds(now.since(*at)).max(0.0)).collect()
    }

    /// How long a job of this age will still run, s.
    pub(crate) fn rest(&self, age: f64) -> f64 {
        self.durations.median_rest(age).unwrap_or(age.max(UNKNOWN_DURATION))
    }

    /// How long a job keeps a worker from its next within `limit`, s; above 0.
    pub(crate) fn duration(&self, limit: f64) -> f64 {
        self.durations.mean_up_to(limit).unwrap_or(UNKNOWN_DURATION).max(0.001)
    }

    /// How long a worker takes to start, s: the 70th percentile, so that most are in time; the hint
    /// counts as the first few.
    pub(crate) fn start_up(&self, hint: Span) -> f64 {
        let hint = seconds(hint).max(0.0);
        let learnt = self.start_ups.quantile(0.7).unwrap_or(hint);
        let weight = (self.start_ups.len() as f64 / FEW as f64).min(1.0);
        weight * learnt + (1.0 - weight) * hint
    }

    /// How long until each starting worker is ready, s, soonest first.
    pub(crate) fn until_ready(&self, look: &Look<'_>, start_up: f64) -> Vec<f64> {
        let known = self.launches.iter().map(|at| start_up - seconds(look.now.since(*at)));
        // One that is late comes any moment.
        let mut until: Vec<f64> = known.map(|s| s.clamp(1.0, start_up.max(1.0))).collect();
        until.resize((look.fleet.starting as usize).min(FOLLOWED), start_up);
        until
    }

    pub(crate) fn shift(&mut self, delta: Span) {
        let times = self.launches.iter_mut().chain(&mut self.sighted);
        times.chain(self.last.as_mut().map(|last| &mut last.at)).for_each(|t| *t = t.plus(delta));
    }
}

/// Jobs that finished since the last look: as counted, else at least those that are gone.
fn finished(last: &Last, queue: &QueueReading) -> u64 {
    let here = queue.waiting.saturating_add(queue.active);
    let gone = last.waiting.saturating_add(last.active).saturating_sub(here);
    // A counter that went back was reset.
    let counted = queue.finished_total.zip(last.finished_total);
    let counted = counted.and_then(|(now, before)| now.checked_sub(before));
    counted.unwrap_or(gone.max(last.active.saturating_sub(queue.active))).max(gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{FleetReading, Worker};
    use crate::scene::{Scene, worker};

    fn observe(estimate: &mut Estimate, scene: &Scene) -> News {
        let queue = scene.queue.as_ref().unwrap();
        estimate.observe(&scene.look(), queue)
    }

    #[test]
    fn rests_are_the_median_of_what_lasted_longer() {
        let mut estimate = Estimate::default();
        assert_eq!((estimate.rest(5.0), estimate.rest(50.0)), (30.0, 50.0));
        for duration in [1.0, 2.0, 3.0, 10.0, 100.0] {
            estimate.durations.add(duration, DURATIONS);
        }
        assert_eq!((estimate.rest(0.0), estimate.rest(4.0)), (3.0, 96.0));
        assert_eq!(estimate.rest(400.0), 400.0, "as long again");
        assert_eq!(estimate.duration(10.0), 26.0 / 5.0, "an outlier counts as the limit");
    }

    #[test]
    fn a_sample_forgets_the_oldest_and_refuses_nonsense() {
        let mut sample = Sample::default();
        for value in [f64::NAN, -1.0, f64::INFINITY] {
            sample.add(value, 3);
        }
        assert!(sample.is_empty());
        (1..=5).for_each(|value| sample.add(f64::from(value), 3));
        assert_eq!((sample.quantile(0.5), sample.quantile(1.0)), (Some(4.0), Some(5.0)));
        let stored: Sample =
            serde_json::from_str(&serde_json::to_string(&sample).unwrap()).unwrap();
        assert_eq!(stored, sample);
    }

    #[test]
    fn start_ups_are_learnt_from_lists_and_from_counts() {
        let hint = Span::from_secs(60);
        for listed in [true, false] {
            let (mut estimate, mut scene) = (Estimate::default(), Scene::new(0));
            assert_eq!(estimate.start_up(hint), 60.0);
            observe(&mut estimate, &scene);
            for _ in 0..FEW {
                for (age, state) in [(5, WorkerState::Starting), (20, WorkerState::Ready)] {
                    scene.later(if age == 5 { 5 } else { 15 });
                    let mut one = worker("w", state, None, 0);
                    one.started_at = Some(scene.now.plus(Span::from_secs(-age)));
                    let workers: Vec<Worker> = vec![one];
                    let counts = FleetReading::of(workers.clone());
                    let workers = if listed { workers } else { Vec::new() };
                    scene.fleet = FleetReading { workers, ..counts };
                    observe(&mut estimate, &scene);
                }
                scene.later(5);
                scene.fleet = FleetReading::default();
                observe(&mut estimate, &scene);
            }
            // Ordered 20 s before, ready in the last 15 s.
            assert_eq!(estimate.start_ups.len(), FEW, "listed: {listed}");
            assert_eq!(estimate.start_up(hint), 12.5, "listed: {listed}");
        }
    }

    #[test]
    fn counts_alone_tell_durations_waits_and_arrivals() {
        let (mut estimate, mut scene) = (Estimate::default(), Scene::new(2));
        let mut look = |later, waiting, active, finished_total| {
            scene.later(later);
            let queue = scene.queue.as_mut().unwrap();
            (queue.waiting, queue.active, queue.finished_total) = (waiting, active, finished_total);
            let arrived = observe(&mut estimate, &scene).arrived;
            let waits = estimate.waits(scene.queue.as_ref().unwrap(), scene.now);
            (arrived, waits, estimate.durations.quantile(0.5))
        };
        assert_eq!(look(0, 2, 2, None), (4, vec![0.0, 0.0], None));
        // Two slots worked for 10 s and one job is gone: each took 20 s.
        assert_eq!(look(10, 1, 2, None), (0, vec![10.0], Some(20.0)));
        assert_eq!(look(10, 3, 2, Some(7)), (2, vec![20.0, 0.0, 0.0], Some(20.0)));
        // A counter sees also those that came and went; one that was reset says nothing.
        assert_eq!(look(10, 3, 2, Some(11)).0, 4);
        assert_eq!(look(10, 3, 2, Some(0)).0, 0);
    }
}
