//! What it would have cost to know the future: the cheapest schedule that is found for a trace, in
//! which 95 of 100 jobs start within the wanted wait.
//!
//! A worker is paid from order to stop; each start costs B paid seconds without work, and it may be
//! ordered ahead of time, so that it is ready when its job comes. Jobs are not interrupted. Where no
//! job may wait the optimum is known exactly; else a greedy schedule is tried in some 70 variants.
//! It is feasible, so the true optimum costs no more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::moment::Moment;
use crate::trace::{Job, Trace};

/// How long jobs may wait that are among the 5 of 100, seconds: as long as anybody would still call
/// waiting, and two shorter ones for traces where late jobs get into the way of others.
const EXEMPT_WAITS: [u64; 3] = [600, 3600, 14_400];
/// Up to this share of B an idle worker is kept for a job that could also wait, in percent.
const BRIDGES: [u64; 4] = [0, 25, 50, 100];
/// How often the exempt jobs are chosen anew.
const ROUNDS: usize = 6;

/// A schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Work, starts and gaps.
    pub cost: Moment,
    /// Workers started.
    pub starts: u32,
    /// Each job's worker and start, in the order of the trace.
    pub places: Vec<Place>,
}

/// Where and when a job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The worker, in the order of their starts.
    pub worker: u32,
    /// When it starts.
    pub at: Moment,
}

/// The cost of the cheapest schedule in which no job waits, in O(n log n).
///
/// The worker that became free last takes each job (last in, first out), which splits the load into
/// levels; an idle gap g of a level costs min(g, B). Giving a job to a worker that was free for
/// longer never costs less, since the cost of a gap is concave in its length.
pub fn zero_wait(trace: &Trace, start_up: Moment) -> Moment {
    let mut workers = Workers::default();
    let mut cost = trace.work();
    for job in &trace.jobs {
        workers.free_until(job.at);
        let gap = workers.idle.last().map_or(start_up, |idle| job.at.since(idle.at).min(start_up));
        cost = cost.plus(gap);
        let worker = workers.idle.pop().unwrap_or_default();
        workers.take(Place { at: job.at.plus(job.service), ..worker });
    }
    cost
}

/// The cheapest schedule found in which 95 of 100 jobs wait at most `wait`, and any other at most
/// four hours.
pub fn clairvoyant(trace: &Trace, start_up: Moment, wait: Moment) -> Schedule {
    let mut search = Search::new(trace, start_up, wait);
    for bridge in BRIDGES {
        let bridge = Moment::from_micros(start_up.as_micros() / 100 * bridge);
        for exempt_wait in EXEMPT_WAITS {
            let exempt_wait = Moment::from_micros(exempt_wait * 1_000_000).max(wait);
            search.exempt.fill(false);
            for _ in 0..ROUNDS {
                search.pass(bridge, exempt_wait);
                search.choose_exempt();
            }
        }
    }
    search.best
}

/// Workers by when they are free.
#[derive(Debug, Default)]
struct Workers {
    /// Those that are free, the one that became so last at the end.
    idle: Vec<Place>,
    /// When the others will be, the first at the top.
    busy: BinaryHeap<Reverse<(Moment, u32)>>,
}

struct Search<'a> {
    jobs: &'a [Job],
    work: Moment,
    start_up: Moment,
    wait: Moment,
    /// How many jobs may wait for longer.
    late: usize,
    exempt: Vec<bool>,
    /// What each job added to the cost in the last pass.
    overheads: Vec<Moment>,
    order: Vec<u32>,
    now: Schedule,
    best: Schedule,
}

impl Workers {
    fn free_until(&mut self, now: Moment) {
        while let Some(Reverse((at, worker))) = self.busy.peek().copied()
            && at <= now
        {
            self.busy.pop();
            self.idle.push(Place { worker, at });
        }
    }

    fn take(&mut self, until: Place) {
        self.busy.push(Reverse((until.at, until.worker)));
    }
}

impl<'a> Search<'a> {
    fn new(trace: &'a Trace, start_up: Moment, wait: Moment) -> Self {
        let n = trace.jobs.len();
        Self {
            jobs: &trace.jobs,
            work: trace.work(),
            start_up,
            wait,
            // p95 is the ceil(0.95 n)-th smallest wait.
            late: n - (95 * n).div_ceil(100),
            exempt: vec![false; n],
            overheads: vec![Moment::default(); n],
            order: Vec::with_capacity(n),
            now: Schedule { places: vec![Place::default(); n], ..Schedule::default() },
            best: Schedule { cost: Moment::from_micros(u64::MAX), ..Schedule::default() },
        }
    }

    /// Makes a schedule in the order of arrival. A job goes to a worker that has been idle for at
    /// most `bridge`, else it waits for one that becomes free in time, else it goes to one that has
    /// been idle for less than a start costs, else a new one is started.
    fn pass(&mut self, bridge: Moment, exempt_wait: Moment) {
        let mut workers = Workers::default();
        let (mut cost, mut starts) = (self.work, 0);
        for (number, job) in self.jobs.iter().enumerate() {
            workers.free_until(job.at);
            let may_wait = if self.exempt[number] { exempt_wait } else { self.wait };
            let idle = workers.idle.last().copied();
            let gap = idle.map_or(self.start_up, |idle| job.at.since(idle.at));
            let next = workers.busy.peek().map(|Reverse((at, _))| *at);
            let waits = next.is_some_and(|at| at.since(job.at) <= may_wait);
            let (place, overhead) = match idle {
                Some(idle) if gap < self.start_up && (gap <= bridge || !waits) => {
                    workers.idle.pop();
                    (Place { at: job.at, ..idle }, gap)
                }
                _ if waits => {
                    let Some(Reverse((at, worker))) = workers.busy.pop() else { continue };
                    (Place { worker, at }, Moment::default())
                }
                _ => {
                    starts += 1;
                    // Whoever is idle is not worth keeping.
                    workers.idle.clear();
                    (Place { worker: starts - 1, at: job.at }, self.start_up)
                }
            };
            workers.take(Place { at: place.at.plus(job.service), ..place });
            cost = cost.plus(overhead);
            self.overheads[number] = overhead;
            self.now.places[number] = place;
        }
        (self.now.cost, self.now.starts) = (cost, starts);
        if cost < self.best.cost {
            self.best.clone_from(&self.now);
        }
    }

    /// Exempt stay those that used it; the others of the 5 of 100 become those that cost most.
    fn choose_exempt(&mut self) {
        let mut left = self.late;
        for (number, exempt) in self.exempt.iter_mut().enumerate() {
            let waited = self.now.places[number].at.since(self.jobs[number].at);
            *exempt &= waited > self.wait && left > 0;
            left -= usize::from(*exempt);
        }
        self.order.clear();
        let costly = |number: &u32| self.overheads[*number as usize] > Moment::default();
        let all = 0..u32::try_from(self.jobs.len()).unwrap_or(u32::MAX);
        self.order.extend(all.filter(costly));
        let by_cost = |number: &u32| (Reverse(self.overheads[*number as usize]), *number);
        if left < self.order.len() && left > 0 {
            self.order.select_nth_unstable_by_key(left - 1, by_cost);
        }
        self.order.iter().take(left).for_each(|number| self.exempt[*number as usize] = true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn seconds(s: u64) -> Moment {
        Moment::from_micros(s * 1_000_000)
    }

    /// Jobs in the order of arrival, with arrivals up to `span` and services up to `most` s.
    fn random(rng: &mut Rng, jobs: usize, span: u64, most: u64) -> Trace {
        let mut jobs: Vec<Job> = (0..jobs)
            .map(|_| Job {
                at: seconds(rng.u64(..=span)),
                service: seconds(rng.u64(1..=most)),
                class: 0,
            })
            .collect();
        jobs.sort_unstable_by_key(|job| job.at);
        Trace { jobs, classes: Vec::new() }
    }

    /// The cheapest way to give jobs without a wait to workers, by trying all; `free` says when each
    /// worker is.
    fn cheapest(jobs: &[Job], free: &mut Vec<Moment>, start_up: Moment) -> Moment {
        let Some((job, rest)) = jobs.split_first() else { return Moment::default() };
        let end = job.at.plus(job.service);
        let mut best = Moment::from_micros(u64::MAX);
        for worker in 0..=free.len() {
            let before = free.get(worker).copied();
            let gap = match before {
                Some(at) if at > job.at => continue,
                Some(at) => job.at.since(at).min(start_up),
                None => start_up,
            };
            if before.is_some() {
                free[worker] = end;
            } else {
                free.push(end);
            }
            let cost = cheapest(rest, free, start_up).plus(gap).plus(job.service);
            best = best.min(cost);
            match before {
                Some(at) => free[worker] = at,
                None => free.truncate(worker),
            }
        }
        best
    }

    #[test]
    fn without_a_wait_nothing_is_cheaper() {
        let mut rng = Rng::with_seed(1);
        for round in 0..300 {
            let trace = random(&mut rng, 1 + round % 7, 60, 30);
            let start_up = seconds(rng.u64(..20));
            let best = cheapest(&trace.jobs, &mut Vec::new(), start_up);
            assert_eq!(zero_wait(&trace, start_up), best, "{trace:?}, B {start_up:?}");
        }
    }

    /// What a schedule really costs and how long its jobs wait, from its places alone.
    fn audit(trace: &Trace, schedule: &Schedule, start_up: Moment) -> (Moment, Vec<Moment>) {
        let mut free: Vec<Option<Moment>> = vec![None; schedule.starts as usize];
        let mut order: Vec<usize> = (0..trace.jobs.len()).collect();
        order.sort_by_key(|job| schedule.places[*job].at);
        let (mut cost, mut waits) = (Moment::default(), Vec::new());
        for job in order {
            let (Job { at, service, .. }, place) = (trace.jobs[job], schedule.places[job]);
            assert!(place.at >= at, "a job starts before it comes");
            let free = &mut free[place.worker as usize];
            assert!(free.is_none_or(|free| free <= place.at), "two jobs at once");
            cost = cost.plus(free.map_or(start_up, |free| place.at.since(free))).plus(service);
            *free = Some(place.at.plus(service));
            waits.push(place.at.since(at));
        }
        waits.sort_unstable();
        (cost, waits)
    }

    #[test]
    fn schedules_are_feasible_and_cost_what_they_say() {
        let mut rng = Rng::with_seed(2);
        for jobs in [1, 2, 19, 20, 21, 400] {
            for wait in [0, 10, 60, 300] {
                let trace = random(&mut rng, jobs, 40 * jobs as u64, 60);
                let schedule = clairvoyant(&trace, seconds(15), seconds(wait));
                let (cost, waits) = audit(&trace, &schedule, seconds(15));
                assert_eq!(cost, schedule.cost);
                assert!(waits[(95 * jobs).div_ceil(100) - 1] <= seconds(wait), "{waits:?}");
                assert!(waits[jobs - 1] <= seconds(14_400));
                assert!(cost <= zero_wait(&trace, seconds(15)), "waiting may not cost more");
            }
        }
    }

    #[test]
    fn a_wait_saves_the_second_worker() {
        let jobs = [(0, 20), (10, 20)].map(|(at, s)| Job {
            at: seconds(at),
            service: seconds(s),
            class: 0,
        });
        let trace = Trace { jobs: jobs.into(), classes: Vec::new() };
        assert_eq!(zero_wait(&trace, seconds(15)), seconds(15 + 20 + 15 + 20));
        for (wait, starts) in [(9, 2), (10, 1)] {
            let schedule = clairvoyant(&trace, seconds(15), seconds(wait));
            assert_eq!(
                (schedule.starts, schedule.cost),
                (starts, seconds(40 + 15 * u64::from(starts)))
            );
        }
        assert_eq!(clairvoyant(&Trace::default(), seconds(15), seconds(1)).cost, Moment::default());
    }
}
