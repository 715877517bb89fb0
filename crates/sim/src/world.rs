//! The world: a queue, and the workers that take from it.
//!
//! Jobs are taken in the order they came, by the slot that has been free for longest, as blocked
//! clients of Redis are served. A worker takes a log-normal time to start. One that is told to go
//! takes no more jobs; it ends with its last job, or is killed after the grace, and then its jobs
//! wait again at the front.

use std::cmp::Reverse;
use std::collections::VecDeque;

use fastrand::Rng;
use headcount_core::reading::{
    FleetReading, LIST_LIMIT, QueueReading, Worker as Listed, WorkerState,
};
use headcount_core::{Observation, Reading, Span};
use serde::Deserialize;

use crate::autoscaler::Victims;
use crate::events::{Event, Events};
use crate::moment::Moment;
use crate::score::Tally;
use crate::trace::{Job, Trace};

/// What the world is like, as a file says it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorldRules {
    /// The mean time from order to ready.
    pub start_up: Span,
    /// Its spread: standard deviation as a share of the mean.
    pub start_up_spread: f64,
    /// What a worker costs at least.
    pub minimum_billing: Span,
    /// Instead of the policy file's min.
    pub min_workers: Option<u32>,
    /// Instead of the policy file's max.
    pub max_workers: Option<MostWorkers>,
    /// Jobs that one worker runs at once; instead of the policy file's slots.
    pub slots: Option<u32>,
    /// How long a worker that is told to go may finish its job; absent: for ever.
    pub grace: Option<Span>,
}

/// The most workers: a number, or `peak`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum MostWorkers {
    /// So many.
    Number(u32),
    /// What the trace says.
    OfTrace(OfTrace),
}

/// What a trace can say of the most workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfTrace {
    /// As many as ever run at once if each job starts on arrival; at least 4.
    Peak,
}

/// The queue and the workers at one moment.
#[derive(Debug)]
pub struct World<'a> {
    jobs: &'a [Job],
    arrived: usize,
    finished: usize,
    now: Moment,
    /// Waiting jobs; those whose worker was killed come back to the front.
    queue: VecDeque<u32>,
    /// A worker's number for each of its free slots, free for longest first. Slots of workers that
    /// are told to go stay here until their turn comes.
    free: VecDeque<u32>,
    /// All workers that ever were.
    workers: Vec<Worker>,
    /// Those that are not gone, in the order of their starts.
    live: Vec<u32>,
    events: Events,
    /// What finished since the last look, at most [`LIST_LIMIT`].
    durations: Vec<Span>,
    /// The workers on the list that was last handed out.
    listed: Vec<u32>,
    slots: u32,
    start_up: StartUp,
    minimum_billing: Moment,
    grace: Option<Moment>,
    pub(crate) tally: Tally,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Starting,
    Ready,
    Draining,
    Gone,
}

impl State {
    const fn seen(self) -> WorkerState {
        match self {
            Self::Starting => WorkerState::Starting,
            Self::Ready => WorkerState::Ready,
            Self::Draining => WorkerState::Draining,
            Self::Gone => WorkerState::Stopped,
        }
    }
}

#[derive(Debug)]
struct Worker {
    state: State,
    ordered_at: Moment,
    /// The jobs it holds, and since when.
    running: Vec<(u32, Moment)>,
    has_worked: bool,
}

/// Draws start-up times.
#[derive(Debug)]
struct StartUp {
    rng: Rng,
    /// Mean and standard deviation of the logarithm; absent for a start that takes no time.
    log: Option<(f64, f64)>,
}

impl Default for WorldRules {
    fn default() -> Self {
        Self {
            start_up: Span::from_secs(15),
            start_up_spread: 0.2,
            minimum_billing: Span::ZERO,
            min_workers: None,
            max_workers: None,
            slots: None,
            grace: None,
        }
    }
}

impl WorldRules {
    /// The most workers for this trace, if these rules say so.
    pub fn most_workers(&self, trace: &Trace) -> Option<u32> {
        self.max_workers.map(|most| match most {
            MostWorkers::Number(n) => n,
            MostWorkers::OfTrace(OfTrace::Peak) => trace.peak_concurrency().max(4),
        })
    }
}

impl StartUp {
    fn new(mean: Span, spread: f64, seed: u64) -> Self {
        let mean = Moment::from_span(mean).as_seconds();
        let variance = spread.mul_add(spread, 1.0).ln();
        let log = (mean > 0.0).then(|| (mean.ln() - variance / 2.0, variance.sqrt()));
        Self { rng: Rng::with_seed(seed), log }
    }

    fn draw(&mut self) -> Moment {
        let Some((mean, deviation)) = self.log else { return Moment::default() };
        // Box-Muller; 1 - u is never 0.
        let radius = (-2.0 * (1.0 - self.rng.f64()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.rng.f64()).cos();
        Moment::from_seconds(deviation.mul_add(normal, mean).exp()).unwrap_or_default()
    }
}

impl<'a> World<'a> {
    /// No worker, and nothing has arrived.
    pub fn new(trace: &'a Trace, rules: &WorldRules, seed: u64) -> Self {
        Self {
            jobs: &trace.jobs,
            arrived: 0,
            finished: 0,
            now: Moment::default(),
            queue: VecDeque::new(),
            free: VecDeque::new(),
            workers: Vec::new(),
            live: Vec::new(),
            events: Events::default(),
            durations: Vec::new(),
            listed: Vec::new(),
            slots: rules.slots.unwrap_or(1).max(1),
            start_up: StartUp::new(rules.start_up, rules.start_up_spread, seed),
            minimum_billing: Moment::from_span(rules.minimum_billing),
            grace: rules.grace.map(Moment::from_span),
            tally: Tally::new(trace.jobs.len()),
        }
    }

    /// Whether every job is finished.
    pub const fn is_done(&self) -> bool {
        self.finished == self.jobs.len()
    }

    /// Jobs that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Lets everything happen up to and at `until`, or until the last job is finished. At the same
    /// moment, what ends or becomes ready comes before what arrives.
    pub fn advance(&mut self, until: Moment) {
        while !self.is_done() {
            let arrival = self.jobs.get(self.arrived).map(|job| job.at);
            let event = self.events.next_at();
            let is_arrival = match (arrival, event) {
                (Some(arrival), Some(event)) => arrival < event,
                (arrival, _) => arrival.is_some(),
            };
            let Some(next) = (if is_arrival { arrival } else { event }) else { break };
            if next > until {
                break;
            }
            self.now = next;
            self.tally.events += 1;
            if is_arrival {
                self.arrive();
            } else if let Some((_, event)) = self.events.pop() {
                self.happen(event);
            }
        }
        if !self.is_done() {
            self.now = until;
        }
    }

    fn arrive(&mut self) {
        let job = u32::try_from(self.arrived).unwrap_or(u32::MAX);
        self.arrived += 1;
        while let Some(worker) = self.free.pop_front() {
            if self.workers[worker as usize].state == State::Ready {
                self.begin(worker, job);
                return;
            }
        }
        self.queue.push_back(job);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Ready { worker } => {
                let state = &mut self.workers[worker as usize].state;
                if *state == State::Starting {
                    *state = State::Ready;
                    (0..self.slots).for_each(|_| self.next_job(worker));
                }
            }
            Event::End { worker, job } => self.end(worker, job),
            Event::Kill { worker } => self.kill(worker),
        }
    }

    fn end(&mut self, worker: u32, job: u32) {
        let Worker { state, running, .. } = &mut self.workers[worker as usize];
        // A job that was killed with its worker has no place any more.
        let Some(place) = running.iter().position(|(held, _)| *held == job) else { return };
        running.swap_remove(place);
        let (state, rests) = (*state, running.is_empty());
        self.finished += 1;
        if self.durations.len() < LIST_LIMIT {
            self.durations.push(self.jobs[job as usize].service.as_span());
        }
        match state {
            State::Draining if rests => self.leave(worker),
            State::Ready => self.next_job(worker),
            _ => {}
        }
    }

    /// A slot of this worker is free.
    fn next_job(&mut self, worker: u32) {
        match self.queue.pop_front() {
            Some(job) => self.begin(worker, job),
            None => self.free.push_back(worker),
        }
    }

    fn begin(&mut self, worker: u32, job: u32) {
        let Job { at, service, .. } = self.jobs[job as usize];
        self.tally.waits[job as usize] = self.now.since(at);
        let held = &mut self.workers[worker as usize];
        held.running.push((job, self.now));
        held.has_worked = true;
        self.events.plan(self.now.plus(service), Event::End { worker, job });
    }

    fn kill(&mut self, worker: u32) {
        let Worker { state, running, .. } = &mut self.workers[worker as usize];
        if *state != State::Draining {
            return;
        }
        self.tally.busy_kills += running.len() as u64;
        let mut lost: Vec<u32> = running.drain(..).map(|(job, _)| job).collect();
        // The oldest first, at the front.
        lost.sort_unstable_by_key(|job| Reverse(*job));
        lost.into_iter().for_each(|job| self.queue.push_front(job));
        self.leave(worker);
        self.serve_free_slots();
    }

    /// Gives waiting jobs to free slots: after a kill both can be there.
    fn serve_free_slots(&mut self) {
        while !self.queue.is_empty()
            && let Some(worker) = self.free.pop_front()
        {
            if self.workers[worker as usize].state == State::Ready {
                self.next_job(worker);
            }
        }
    }

    /// A worker is gone and paid for.
    fn leave(&mut self, worker: u32) {
        let gone = &mut self.workers[worker as usize];
        gone.state = State::Gone;
        let cost = self.now.since(gone.ordered_at).max(self.minimum_billing);
        self.tally.paid = self.tally.paid.plus(cost);
        if let Ok(place) = self.live.binary_search(&worker) {
            self.live.remove(place);
        }
    }

    /// Orders workers, or tells some to go, until `to` serve or start.
    pub fn scale(&mut self, to: u32, victims: Victims) {
        let serving = self.count().capacity();
        if to != serving {
            self.tally.changed(to > serving, self.now);
        }
        (serving..to).for_each(|_| self.order());
        if to < serving {
            self.dismiss((serving - to) as usize, victims);
        }
    }

    fn order(&mut self) {
        let worker = u32::try_from(self.workers.len()).unwrap_or(u32::MAX);
        self.workers.push(Worker {
            state: State::Starting,
            ordered_at: self.now,
            running: Vec::new(),
            has_worked: false,
        });
        self.live.push(worker);
        self.events.plan(self.now.plus(self.start_up.draw()), Event::Ready { worker });
    }

    fn dismiss(&mut self, go: usize, victims: Victims) {
        let worker = |number: &u32| &self.workers[*number as usize];
        let serves = |number: &u32| matches!(worker(number).state, State::Starting | State::Ready);
        let mut may_go: Vec<u32> = self.live.iter().copied().filter(serves).collect();
        may_go.sort_unstable_by_key(|number| {
            let Worker { state, running, .. } = worker(number);
            let by_work = (!running.is_empty(), *state == State::Ready);
            let by_work = (victims == Victims::IdleFirst).then_some(by_work);
            (by_work, Reverse(*number))
        });
        for number in may_go.into_iter().take(go) {
            let worker = &mut self.workers[number as usize];
            self.tally.wasted_starts += u64::from(!worker.has_worked);
            if worker.running.is_empty() {
                self.leave(number);
                continue;
            }
            worker.state = State::Draining;
            if let Some(grace) = self.grace {
                self.events.plan(self.now.plus(grace), Event::Kill { worker: number });
            }
        }
    }

    fn count(&self) -> FleetReading {
        let mut fleet = FleetReading::default();
        let mut busy = 0;
        for worker in self.live.iter().map(|number| &self.workers[*number as usize]) {
            match worker.state {
                State::Starting => fleet.starting += 1,
                State::Ready => {
                    fleet.ready += 1;
                    busy += u32::from(!worker.running.is_empty());
                }
                State::Draining => fleet.draining += 1,
                State::Gone => {}
            }
        }
        fleet.busy = Some(busy);
        fleet
    }

    /// Writes into `seen` what a real source would tell, reusing its lists.
    pub fn observe(&mut self, seen: &mut Observation) {
        let now = self.now.as_timestamp();
        seen.t = now;
        if let Reading::Known { taken_at, .. } = &mut seen.host {
            *taken_at = now;
        }
        if let Reading::Known { value: fleet, taken_at } = &mut seen.fleet {
            *taken_at = now;
            self.observe_fleet(fleet);
        } else {
            let mut fleet = FleetReading::default();
            self.observe_fleet(&mut fleet);
            seen.fleet = Reading::known(fleet, now);
        }
        if let Reading::Known { value: queue, taken_at } = &mut seen.queue {
            *taken_at = now;
            self.observe_queue(queue);
        } else {
            let mut queue = QueueReading::default();
            self.observe_queue(&mut queue);
            seen.queue = Reading::known(queue, now);
        }
    }

    fn observe_fleet(&mut self, fleet: &mut FleetReading) {
        let mut list = std::mem::take(&mut fleet.workers);
        *fleet = self.count();
        // Names are written only where they change: most looks see the same workers.
        list.truncate(self.live.len());
        self.listed.truncate(list.len());
        for (place, number) in self.live.iter().enumerate() {
            if self.listed.get(place) != Some(number) {
                list.truncate(place);
                self.listed.truncate(place);
                list.push(self.listed_worker(*number));
                self.listed.push(*number);
            }
            let Worker { state, running, .. } = &self.workers[*number as usize];
            list[place].state = state.seen();
            list[place].busy = Some(!running.is_empty());
        }
        fleet.workers = list;
    }

    fn listed_worker(&self, number: u32) -> Listed {
        let Worker { state, ordered_at, .. } = &self.workers[number as usize];
        Listed {
            id: format!("w{number}"),
            state: state.seen(),
            busy: None,
            started_at: Some(ordered_at.as_timestamp()),
            version: None,
        }
    }

    fn observe_queue(&mut self, queue: &mut QueueReading) {
        queue.waiting = self.queue.len() as u64;
        queue.finished_total = Some(self.finished as u64);
        queue.waits.clear();
        queue.waits.extend(
            self.queue
                .iter()
                .take(LIST_LIMIT)
                .map(|job| self.now.since(self.jobs[*job as usize].at).as_span()),
        );
        queue.oldest_wait = queue.waits.first().copied();
        queue.active = 0;
        queue.ages.clear();
        for worker in self.live.iter().map(|number| &self.workers[*number as usize]) {
            queue.active += worker.running.len() as u64;
            let room = LIST_LIMIT - queue.ages.len();
            let ages = worker.running.iter().take(room);
            queue.ages.extend(ages.map(|(_, since)| self.now.since(*since).as_span()));
        }
        queue.durations.clear();
        queue.durations.append(&mut self.durations);
    }

    /// Pays the workers that are still there; returns the end and what was counted.
    pub(crate) fn close(mut self) -> (Moment, Tally) {
        for worker in std::mem::take(&mut self.live) {
            self.leave(worker);
        }
        (self.now, self.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: u64) -> Moment {
        Moment::from_micros(s * 1_000_000)
    }

    fn trace(services: &[u64]) -> Trace {
        let job = |s: &u64| Job { service: seconds(*s), ..Job::default() };
        Trace { jobs: services.iter().map(job).collect(), classes: Vec::new() }
    }

    /// Workers start in 5 s and have a grace of 10 s.
    fn world(trace: &Trace, slots: u32) -> World<'_> {
        let rules = WorldRules {
            start_up: Span::from_secs(5),
            start_up_spread: 0.0,
            grace: Some(Span::from_secs(10)),
            slots: Some(slots),
            ..WorldRules::default()
        };
        World::new(trace, &rules, 1)
    }

    #[test]
    fn a_killed_job_starts_again_on_the_next_worker() {
        let trace = trace(&[100]);
        let mut world = world(&trace, 1);
        world.scale(1, Victims::IdleFirst);
        world.advance(seconds(20));
        // Told to go at 20, killed at 30.
        world.scale(0, Victims::IdleFirst);
        world.advance(seconds(29));
        assert_eq!((world.count().draining, world.tally.busy_kills), (1, 0));
        world.advance(seconds(45));
        assert_eq!((world.waiting(), world.tally.busy_kills), (1, 1));
        world.scale(1, Victims::IdleFirst);
        world.advance(seconds(149));
        assert!(!world.is_done());
        world.advance(seconds(150));
        assert!(world.is_done());
        // Its wait is that of the attempt that finished; both workers are paid.
        let (end, tally) = world.close();
        assert_eq!((end, tally.waits[0]), (seconds(150), seconds(50)));
        assert_eq!(tally.paid, seconds(30 + 105));
    }

    #[test]
    fn a_killed_job_goes_to_a_worker_that_is_idle() {
        let trace = trace(&[100]);
        let mut world = world(&trace, 1);
        world.scale(1, Victims::IdleFirst);
        world.advance(seconds(10));
        world.scale(0, Victims::IdleFirst);
        world.scale(1, Victims::IdleFirst);
        world.advance(seconds(20));
        assert_eq!((world.count().busy, world.waiting()), (Some(1), 0));
    }

    #[test]
    fn a_worker_that_drains_in_time_is_not_killed_and_takes_no_more() {
        let trace = trace(&[20, 1]);
        let mut world = world(&trace, 1);
        world.scale(1, Victims::IdleFirst);
        world.advance(seconds(15));
        world.scale(0, Victims::IdleFirst);
        world.advance(seconds(100));
        let fleet = world.count();
        assert_eq!((fleet.capacity(), fleet.draining, world.waiting()), (0, 0, 1));
        assert_eq!((world.tally.busy_kills, world.tally.paid), (0, seconds(25)));
    }

    #[test]
    fn idle_ones_go_first_starting_ones_before_ready_ones_and_the_youngest_of_each() {
        let trace = trace(&[1000]);
        let mut world = world(&trace, 1);
        world.scale(3, Victims::IdleFirst);
        world.advance(seconds(10));
        world.scale(5, Victims::IdleFirst);
        // 0 is busy, 1 and 2 are idle, 3 and 4 are starting.
        let mut gone = Vec::new();
        for left in (0..5).rev() {
            let before = world.live.clone();
            world.scale(left, Victims::IdleFirst);
            let went = |w: &u32| world.workers[*w as usize].state != State::Draining;
            gone.extend(before.into_iter().filter(|w| !world.live.contains(w) && went(w)));
        }
        assert_eq!(gone, [4, 3, 2, 1]);
        assert_eq!((world.count().draining, world.tally.wasted_starts), (1, 4));
    }

    #[test]
    fn a_worker_runs_as_many_jobs_as_it_has_slots() {
        let trace = trace(&[10, 10, 10]);
        let mut world = world(&trace, 2);
        world.scale(1, Victims::IdleFirst);
        world.advance(seconds(6));
        let mut seen = Observation {
            t: seconds(0).as_timestamp(),
            queue: Reading::known(QueueReading::default(), seconds(0).as_timestamp()),
            host: Reading::missing(headcount_core::Silence::Absent, ""),
            fleet: Reading::missing(headcount_core::Silence::Absent, ""),
        };
        world.observe(&mut seen);
        let queue = seen.queue.value().unwrap();
        assert_eq!((queue.waiting, queue.active), (1, 2));
        assert_eq!((queue.oldest_wait, queue.ages.len()), (Some(Span::from_secs(6)), 2));
        assert_eq!(seen.fleet.value().unwrap().busy, Some(1));
        world.advance(seconds(25));
        assert!(world.is_done());
        world.observe(&mut seen);
        assert_eq!(seen.queue.value().unwrap().durations, [Span::from_secs(10); 3]);
    }

    #[test]
    fn start_up_times_have_the_mean_and_the_spread_they_should() {
        let mut start_up = StartUp::new(Span::from_secs(90), 0.2, 1);
        let draws: Vec<f64> = (0..50_000).map(|_| start_up.draw().as_seconds()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((mean - 90.0).abs() < 0.5, "mean {mean}");
        assert!((variance.sqrt() - 18.0).abs() < 0.5, "deviation {}", variance.sqrt());
        assert_eq!(StartUp::new(Span::ZERO, 0.2, 1).draw(), Moment::default());
    }
}
