//! What a group's sources tell: no more than a real queue, target and host do.

use headcount_core::reading::{
    FleetReading, HostReading, LIST_LIMIT, QueueReading, Worker as Listed,
};
use headcount_core::{Observation, Reading, Silence, Timestamp};

use super::Place;
use super::group::{Census, Group, State, Worker};
use super::rules::Source;
use crate::moment::Moment;

impl Group<'_> {
    /// Writes into `seen` what the sources tell, reusing its lists; `crowd` workers of all groups
    /// are on the machine.
    pub(super) fn observe(&mut self, crowd: usize, place: &mut Place, seen: &mut Observation) {
        let now = place.now;
        self.looked_after = Some(self.happenings());
        let t = self.rules.time(now);
        seen.t = t;
        if self.answers(Source::Host, now, &mut seen.host) {
            tell(&mut seen.host, t, |host| observe_host(crowd, place, host));
        }
        if self.answers(Source::Fleet, now, &mut seen.fleet) {
            tell(&mut seen.fleet, t, |fleet| self.observe_fleet(fleet));
        }
        if self.answers(Source::Queue, now, &mut seen.queue) {
            tell(&mut seen.queue, t, |queue| self.observe_queue(now, queue));
        }
    }

    /// Whether nothing has happened since the last look, and every source always answers.
    pub(super) fn is_still(&self) -> bool {
        self.looked_after == Some(self.happenings()) && self.rules.outages.is_empty()
    }

    /// How much has happened so far: events, and changes of the number of workers.
    const fn happenings(&self) -> (u64, u64) {
        (self.tally.events, self.tally.scale_outs + self.tally.scale_ins)
    }

    /// Whether a source answers. If not, its reading becomes a missing one, or stays as it is where
    /// it repeats itself.
    fn answers<T>(&self, source: Source, now: Moment, reading: &mut Reading<T>) -> bool {
        match self.rules.outage(source, now) {
            None => return true,
            Some(true) => {}
            Some(false) => *reading = Reading::missing(Silence::Unreachable, "an outage"),
        }
        false
    }

    /// The workers by what they do.
    pub(super) fn count(&self) -> FleetReading {
        debug_assert_eq!(self.census, self.recount(), "the census is kept as workers change");
        let Census { starting, ready, draining, busy } = self.census;
        FleetReading { starting, ready, draining, busy: Some(busy), ..FleetReading::default() }
    }

    fn recount(&self) -> Census {
        let mut census = Census::default();
        for worker in self.live.iter().map(|number| &self.workers[*number as usize]) {
            match worker.state {
                State::Starting => census.starting += 1,
                State::Ready => {
                    census.ready += 1;
                    census.busy += u32::from(!worker.running.is_empty());
                }
                State::Draining => census.draining += 1,
                State::Gone => {}
            }
        }
        census
    }

    fn observe_fleet(&mut self, fleet: &mut FleetReading) {
        let mut list = std::mem::take(&mut fleet.workers);
        *fleet = self.count();
        fleet.died = std::mem::take(&mut self.died);
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
            started_at: Some(self.rules.time(*ordered_at)),
            version: None,
        }
    }

    fn observe_queue(&mut self, now: Moment, queue: &mut QueueReading) {
        queue.waiting = self.queue.len() as u64;
        queue.active = self.running as u64;
        queue.finished_total = Some(self.finished as u64);
        queue.waits.clear();
        let oldest = self.queue.iter().take(LIST_LIMIT);
        let wait = |job: &u32| now.since(self.jobs[*job as usize].at).as_span();
        queue.waits.extend(oldest.map(wait));
        queue.oldest_wait = queue.waits.first().copied();
        queue.ages.clear();
        for worker in self.live.iter().map(|number| &self.workers[*number as usize]) {
            let room = LIST_LIMIT - queue.ages.len();
            let ages = worker.running.iter().take(room);
            queue.ages.extend(ages.map(|(_, since)| now.since(*since).as_span()));
        }
        queue.durations.clear();
        queue.durations.append(&mut self.durations);
    }
}

/// Without a machine in the world its CPU is never in use.
fn observe_host(crowd: usize, place: &mut Place, seen: &mut HostReading) {
    let Some(host) = &mut place.host else { return };
    let (cpu_raw, cpu_mean) = host.cpu(place.now);
    seen.cpu_raw = cpu_raw;
    seen.cpu_mean = Some(cpu_mean);
    seen.mem = host.memory(crowd);
    seen.cores = Some(host.rules().cores);
}

/// Has `write` bring a reading up to date, or make one.
fn tell<T: Default>(reading: &mut Reading<T>, now: Timestamp, write: impl FnOnce(&mut T)) {
    if let Reading::Known { value, taken_at } = reading {
        *taken_at = now;
        return write(value);
    }
    let mut value = T::default();
    write(&mut value);
    *reading = Reading::known(value, now);
}
