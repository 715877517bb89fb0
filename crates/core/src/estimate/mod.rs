//! What is learnt of a group's jobs and workers: how many jobs come and how long they take, how long
//! workers take to start.
//!
//! Works with whatever a source tells. Where it tells no durations, they are inferred from the
//! counts of active jobs; where it tells no waits, jobs are followed by their first sight.

mod arrivals;
mod durations;
pub mod load;
mod sample;
mod start_up;

use serde::{Deserialize, Serialize};

use crate::guard::Look;
use crate::reading::QueueReading;
use crate::time::{Span, Timestamp, seconds};

pub use arrivals::Arrivals;
pub use durations::Classes;
pub use sample::Sample;

/// Workers whose start is followed, and waiting jobs whose first sight is.
const FOLLOWED: usize = 256;

/// All that is learnt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Estimate {
    /// How long jobs took, s, oldest first.
    pub durations: Sample,
    /// The same for each class of jobs that the source tells.
    pub classes: Classes,
    /// How long workers took to start, s, oldest first.
    pub start_ups: Sample,
    /// How many jobs come.
    pub arrivals: Arrivals,
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
        self.arrivals.observe(arrived, gap);
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
    use crate::scene::Scene;

    fn observe(estimate: &mut Estimate, scene: &Scene) -> News {
        let queue = scene.queue.as_ref().unwrap();
        estimate.observe(&scene.look(), queue)
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

    #[test]
    fn a_source_that_tells_ages_but_no_durations_is_no_loss() {
        let (mut estimate, mut scene) = (Estimate::default(), Scene::new(1));
        for finished in 0..6 {
            let queue = scene.queue.as_mut().unwrap();
            (queue.active, queue.finished_total) = (1, Some(finished));
            queue.ages = vec![Span::from_secs(2)];
            observe(&mut estimate, &scene);
            scene.later(10);
        }
        assert_eq!((estimate.durations.len(), estimate.durations.quantile(0.5)), (5, Some(10.0)));
    }

    /// Numbers of any size, each as likely as another of its order of magnitude.
    fn any(rng: &mut fastrand::Rng) -> u64 {
        match rng.u8(0..40) {
            0 => u64::MAX,
            1 => rng.u64(..),
            _ => 10_f64.powf(rng.f64() * 4.0) as u64 - 1,
        }
    }

    fn spans(rng: &mut fastrand::Rng) -> Vec<Span> {
        // Jobs of no time, of days and of the age of the universe.
        let one = |rng: &mut fastrand::Rng| match rng.u8(0..20) {
            0 => Span::ZERO,
            1 => Span::from_millis(i64::MAX),
            _ => Span::from_millis(rng.i64(0..300_000_000)),
        };
        (0..rng.usize(0..6)).map(|_| one(rng)).collect()
    }

    #[test]
    fn whatever_is_seen_it_stays_small_and_sane() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut estimate, mut scene) = (Estimate::default(), Scene::new(0));
        for look in 0..100_000 {
            // Some looks are at once, and some after a clock was set.
            scene.later(match rng.u8(0..30) {
                0 => rng.i64(-1_000_000_000..1_000_000_000),
                _ => rng.i64(0..60),
            });
            let lists = rng.bool();
            scene.fleet.ready = any(&mut rng) as u32;
            scene.fleet.starting = any(&mut rng) as u32;
            let queue = scene.queue.as_mut().unwrap();
            (queue.waiting, queue.active) = (any(&mut rng), any(&mut rng));
            queue.finished_total = rng.bool().then(|| any(&mut rng));
            (queue.durations, queue.durations_by_tag) = Default::default();
            if lists {
                queue.durations = spans(&mut rng);
                let tag = format!("{:>60}", rng.u32(0..30));
                queue.durations_by_tag = [(tag, queue.durations.clone())].into();
            }
            if rng.u8(0..100) == 0 {
                estimate.interrupted();
            }
            let news = observe(&mut estimate, &scene);
            assert!(news.gap.is_finite() && news.gap >= 0.0);
            if look % 100 == 0 {
                assert_sane(&estimate, &scene);
            }
        }
        let json = serde_json::to_string(&estimate).unwrap();
        assert!(json.len() < 24 * 1024, "{} bytes", json.len());
        assert_eq!(serde_json::from_str::<Estimate>(&json).unwrap(), estimate);
    }

    fn assert_sane(estimate: &Estimate, scene: &Scene) {
        let hint = Span::from_secs(30);
        let queue = scene.queue.as_ref().unwrap();
        let start_up = estimate.start_up(hint);
        let rates = [estimate.arrivals.now(), estimate.arrivals.usual()].into_iter().flatten();
        let times = [
            start_up,
            estimate.rest(0.0),
            estimate.rest(1e9),
            estimate.duration(f64::INFINITY),
            estimate.duration_of("29", 1e5),
            estimate.duration_of_waiting(queue, 1e5),
        ];
        let others = estimate.until_ready(&scene.look(), start_up);
        let waits = estimate.waits(queue, scene.now);
        let mut all = rates.chain(times).chain(others).chain(waits);
        assert!(all.all(|x| x.is_finite() && x >= 0.0), "{estimate:?}");
    }
}
