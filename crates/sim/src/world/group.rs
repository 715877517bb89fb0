//! A group: a queue, and the workers that take from it.
//!
//! Jobs are taken in the order they came, by the slot that has been free for longest, as blocked
//! clients of Redis are served. A worker takes a log-normal time to start. One that is told to go
//! takes no more jobs; it ends with its last job, or is killed after the grace, and then its jobs
//! wait again at the front.

use std::cmp::Reverse;
use std::collections::VecDeque;

use fastrand::Rng;
use headcount_core::Span;
use headcount_core::reading::{LIST_LIMIT, WorkerState};

use super::Place;
use super::host::Host;
use super::rules::WorldRules;
use super::start_up::StartUp;
use crate::autoscaler::Victims;
use crate::events::Event;
use crate::moment::Moment;
use crate::score::Tally;
use crate::timeline::Recorder;
use crate::trace::{Job, Trace};

/// A queue and its workers.
#[derive(Debug)]
pub(super) struct Group<'a> {
    number: u32,
    pub(super) jobs: &'a [Job],
    pub(super) rules: WorldRules,
    arrived: usize,
    pub(super) finished: usize,
    /// Waiting jobs; those whose worker was killed come back to the front.
    pub(super) queue: VecDeque<u32>,
    /// A worker's number for each of its free slots, free for longest first. Slots of workers that
    /// are told to go stay here until their turn comes.
    free: VecDeque<u32>,
    /// All workers that ever were.
    pub(super) workers: Vec<Worker>,
    /// Those that are not gone, in the order of their starts.
    pub(super) live: Vec<u32>,
    pub(super) census: Census,
    /// Jobs that run.
    pub(super) running: usize,
    /// Starting workers that keep the machine busy.
    pub(super) booting: usize,
    /// What finished since the last look, at most [`LIST_LIMIT`].
    pub(super) durations: Vec<Span>,
    /// Workers that died since the last look.
    pub(super) died: u32,
    /// The workers on the list that was last handed out.
    pub(super) listed: Vec<u32>,
    /// How much had happened at the last look.
    pub(super) looked_after: Option<(u64, u64)>,
    slots: u32,
    start_up: StartUp,
    /// Picks victims where nobody knows whom the target picks.
    picks: Rng,
    minimum_billing: Moment,
    grace: Option<Moment>,
    pub(super) tally: Tally,
    /// Follows what happens when, if somebody wants to know.
    pub(super) recorder: Option<Box<Recorder>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Starting,
    Ready,
    Draining,
    Gone,
}

#[derive(Debug)]
pub(super) struct Worker {
    pub(super) state: State,
    pub(super) ordered_at: Moment,
    /// The jobs it holds, and since when.
    pub(super) running: Vec<(u32, Moment)>,
    /// What is left of its start once the machine has done its part.
    rest: Moment,
    /// It keeps the machine busy with its start.
    boots: bool,
    has_worked: bool,
}

/// How many workers do what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Census {
    pub(super) starting: u32,
    pub(super) ready: u32,
    pub(super) draining: u32,
    /// Ready ones that hold a job.
    pub(super) busy: u32,
}

impl State {
    pub(super) const fn seen(self) -> WorkerState {
        match self {
            Self::Starting => WorkerState::Starting,
            Self::Ready => WorkerState::Ready,
            Self::Draining => WorkerState::Draining,
            Self::Gone => WorkerState::Stopped,
        }
    }
}

impl<'a> Group<'a> {
    pub(super) fn new(number: u32, trace: &'a Trace, rules: &WorldRules, seed: u64) -> Self {
        Self {
            number,
            jobs: &trace.jobs,
            rules: rules.clone(),
            arrived: 0,
            finished: 0,
            queue: VecDeque::new(),
            free: VecDeque::new(),
            workers: Vec::new(),
            live: Vec::new(),
            census: Census::default(),
            running: 0,
            booting: 0,
            durations: Vec::new(),
            died: 0,
            listed: Vec::new(),
            looked_after: None,
            slots: rules.slots.unwrap_or(1).max(1),
            start_up: StartUp::new(rules, seed),
            picks: Rng::with_seed(!seed),
            minimum_billing: Moment::from_span(rules.minimum_billing),
            grace: rules.grace.map(Moment::from_span),
            tally: Tally::new(trace.jobs.len()),
            recorder: None,
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.finished == self.jobs.len()
    }

    pub(super) fn next_arrival(&self) -> Option<Moment> {
        self.jobs.get(self.arrived).map(|job| job.at)
    }

    pub(super) fn arrive(&mut self, place: &mut Place) {
        let job = u32::try_from(self.arrived).unwrap_or(u32::MAX);
        self.arrived += 1;
        self.tally.events += 1;
        self.queue.push_back(job);
        self.serve_free_slots(place);
    }

    pub(super) fn happen(&mut self, event: Event, place: &mut Place) {
        self.tally.events += 1;
        match event {
            Event::Booted { worker, .. } => self.booted(worker, place),
            Event::Ready { worker, .. } => self.ready(worker, place),
            Event::End { worker, job, .. } => self.end(worker, job, place),
            Event::Kill { worker, .. } => self.kill(worker, place),
            Event::Die { worker, .. } => {
                if self.workers[worker as usize].state == State::Starting {
                    self.died += 1;
                    self.tally.deaths += 1;
                    self.leave(worker, place.now);
                }
            }
        }
    }

    /// The machine has done its part of a start.
    fn booted(&mut self, worker: u32, place: &mut Place) {
        let starting = &mut self.workers[worker as usize];
        if starting.state == State::Starting {
            starting.boots = false;
            self.booting -= 1;
            let event = self.start_ends(worker);
            place.events.plan(place.now.plus(self.workers[worker as usize].rest), event);
        }
    }

    fn start_ends(&mut self, worker: u32) -> Event {
        let group = self.number;
        if self.start_up.fails() {
            Event::Die { group, worker }
        } else {
            Event::Ready { group, worker }
        }
    }

    fn ready(&mut self, worker: u32, place: &mut Place) {
        let state = &mut self.workers[worker as usize].state;
        if *state == State::Starting {
            *state = State::Ready;
            self.census.starting -= 1;
            self.census.ready += 1;
            (0..self.slots).for_each(|_| self.next_job(worker, place));
        }
    }

    fn end(&mut self, worker: u32, job: u32, place: &mut Place) {
        let Worker { state, running, .. } = &mut self.workers[worker as usize];
        // A job that was killed with its worker has no place any more.
        let Some(held) = running.iter().position(|(held, _)| *held == job) else { return };
        let (_, since) = running.swap_remove(held);
        let (state, rests) = (*state, running.is_empty());
        self.running -= 1;
        self.finished += 1;
        if self.durations.len() < LIST_LIMIT {
            self.durations.push(place.now.since(since).as_span());
        }
        match state {
            State::Draining if rests => self.leave(worker, place.now),
            State::Ready => {
                self.census.busy -= u32::from(rests);
                self.next_job(worker, place);
            }
            _ => {}
        }
    }

    /// A slot of this worker is free.
    fn next_job(&mut self, worker: u32, place: &mut Place) {
        match self.queue.pop_front() {
            Some(job) => self.begin(worker, job, place),
            None => self.free.push_back(worker),
        }
    }

    fn begin(&mut self, worker: u32, job: u32, place: &mut Place) {
        let Job { at, service, .. } = self.jobs[job as usize];
        self.tally.waits[job as usize] = place.now.since(at);
        let held = &mut self.workers[worker as usize];
        self.census.busy += u32::from(held.running.is_empty());
        held.running.push((job, place.now));
        held.has_worked = true;
        self.running += 1;
        place.work(service, Event::End { group: self.number, worker, job });
    }

    fn kill(&mut self, worker: u32, place: &mut Place) {
        let Worker { state, running, .. } = &mut self.workers[worker as usize];
        if *state != State::Draining {
            return;
        }
        self.tally.busy_kills += running.len() as u64;
        self.running -= running.len();
        let mut lost: Vec<u32> = running.drain(..).map(|(job, _)| job).collect();
        // The oldest first, at the front.
        lost.sort_unstable_by_key(|job| Reverse(*job));
        lost.into_iter().for_each(|job| self.queue.push_front(job));
        self.leave(worker, place.now);
        self.serve_free_slots(place);
    }

    /// Gives waiting jobs to free slots.
    fn serve_free_slots(&mut self, place: &mut Place) {
        while !self.queue.is_empty()
            && let Some(worker) = self.free.pop_front()
        {
            if self.workers[worker as usize].state == State::Ready {
                self.next_job(worker, place);
            }
        }
    }

    /// A worker is gone and paid for.
    fn leave(&mut self, worker: u32, now: Moment) {
        let gone = &mut self.workers[worker as usize];
        match gone.state {
            State::Starting => self.census.starting -= 1,
            State::Ready => self.census.ready -= 1,
            State::Draining => self.census.draining -= 1,
            State::Gone => {}
        }
        gone.state = State::Gone;
        self.booting -= usize::from(std::mem::take(&mut gone.boots));
        let cost = now.since(gone.ordered_at).max(self.minimum_billing);
        self.tally.paid = self.tally.paid.plus(cost);
        if let Ok(place) = self.live.binary_search(&worker) {
            self.live.remove(place);
        }
    }

    /// Orders workers, or tells some to go, until `to` serve or start. `crowd` workers of all groups
    /// are on the machine.
    pub(super) fn scale(&mut self, to: u32, victims: Victims, crowd: usize, place: &mut Place) {
        let serving = self.count().capacity();
        if to != serving {
            self.tally.changed(to > serving, place.now);
        }
        for (more, _) in (serving..to).enumerate() {
            self.order(crowd + more + 1, place);
        }
        if to < serving {
            self.dismiss((serving - to) as usize, victims, place);
        }
    }

    /// Starts a worker. One that the machine's memory does not hold dies when it has started.
    fn order(&mut self, crowd: usize, place: &mut Place) {
        let (group, worker) = (self.number, u32::try_from(self.workers.len()).unwrap_or(u32::MAX));
        let takes = self.start_up.draw();
        let cpu = place.host.as_ref().map(|host| Moment::from_span(host.rules().start_up_cpu));
        let cpu = cpu.unwrap_or_default().min(takes);
        self.workers.push(Worker {
            state: State::Starting,
            ordered_at: place.now,
            running: Vec::new(),
            rest: takes.since(cpu),
            boots: place.host.is_some(),
            has_worked: false,
        });
        self.live.push(worker);
        self.census.starting += 1;
        self.tally.starts += 1;
        if place.host.as_ref().is_some_and(|host| !host.holds(crowd)) {
            self.booting += 1;
            place.events.plan(place.now.plus(takes), Event::Die { group, worker });
        } else if place.host.is_some() {
            self.booting += 1;
            place.work(cpu, Event::Booted { group, worker });
        } else {
            let event = self.start_ends(worker);
            place.events.plan(place.now.plus(takes), event);
        }
    }

    fn dismiss(&mut self, go: usize, victims: Victims, place: &mut Place) {
        let worker = |number: &u32| &self.workers[*number as usize];
        let serves = |number: &u32| matches!(worker(number).state, State::Starting | State::Ready);
        let mut may_go: Vec<u32> = self.live.iter().copied().filter(serves).collect();
        may_go.sort_unstable_by_key(|number| {
            let Worker { state, running, .. } = worker(number);
            let by_work = (!running.is_empty(), *state == State::Ready);
            let by_work = (victims == Victims::IdleFirst).then_some(by_work);
            (by_work, Reverse(*number))
        });
        if victims == Victims::Random {
            self.picks.shuffle(&mut may_go);
        }
        for number in may_go.into_iter().take(go) {
            let worker = &mut self.workers[number as usize];
            self.tally.wasted_starts += u64::from(!worker.has_worked);
            if worker.running.is_empty() {
                self.leave(number, place.now);
                continue;
            }
            worker.state = State::Draining;
            self.census.ready -= 1;
            self.census.busy -= 1;
            self.census.draining += 1;
            if let Some(grace) = self.grace {
                let event = Event::Kill { group: self.number, worker: number };
                place.events.plan(place.now.plus(grace), event);
            }
        }
    }

    /// Pays the workers that are still there; returns what was counted.
    pub(super) fn close(&mut self, now: Moment) -> Tally {
        for worker in std::mem::take(&mut self.live) {
            self.leave(worker, now);
        }
        let mut tally = std::mem::take(&mut self.tally);
        let finish = |recorder: Box<Recorder>| recorder.finish(now, self.jobs, &tally.waits);
        tally.timeline = self.recorder.take().map(finish);
        tally
    }

    /// Tells the recorder, if there is one, how it is now.
    pub(super) fn note(&mut self, place: &Place) {
        let Some(recorder) = &mut self.recorder else { return };
        let Census { starting, ready, draining, busy } = self.census;
        let [ready, busy, starting, draining] = [ready, busy, starting, draining].map(f64::from);
        let cpu = place.host.as_ref().map_or(0.0, Host::asked);
        // In the order of `Level`.
        recorder.note(place.now, [self.queue.len() as f64, ready, busy, starting, draining, cpu]);
    }
}
