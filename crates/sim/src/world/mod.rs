//! The world: groups of workers, each with its queue, on a machine that they may share.

mod group;
mod host;
mod look;
mod rules;
mod start_up;

use headcount_core::Observation;

use crate::autoscaler::Victims;
use crate::events::{Event, Events};
use crate::moment::Moment;
use crate::score::Tally;
use crate::timeline::Recorder;
use crate::trace::Trace;
use group::Group;
use host::Host;

pub use rules::{HostRules, MOST_OUTAGES, MostWorkers, OfTrace, Outage, Source, WorldRules};

/// Everything at one moment.
#[derive(Debug)]
pub struct World<'a> {
    groups: Vec<Group<'a>>,
    place: Place,
}

/// What the groups share: the time, what is going to happen, the machine.
#[derive(Debug, Default)]
struct Place {
    now: Moment,
    /// What does not depend on how fast the machine is.
    events: Events,
    host: Option<Host>,
}

impl Place {
    /// Lets the time pass, with nothing happening until then.
    fn advance(&mut self, now: Moment) {
        self.now = now;
        if let Some(host) = &mut self.host {
            host.advance(now);
        }
    }

    /// Plans the end of a piece of work, which takes longer on a busy machine.
    fn work(&mut self, length: Moment, event: Event) {
        match &mut self.host {
            Some(host) => host.begin(length, event),
            None => self.events.plan(self.now.plus(length), event),
        }
    }
}

impl<'a> World<'a> {
    /// No worker, and nothing has arrived. The machine is that of the first group that has one.
    pub fn new(groups: &[(&'a Trace, &WorldRules)], seed: u64) -> Self {
        let host = groups.iter().find_map(|(_, rules)| rules.host.clone()).map(Host::new);
        let made = groups.iter().zip(0..).map(|((trace, rules), number)| {
            // Each group draws its own start-up times, so that none sees another's luck.
            Group::new(number, trace, rules, seed.wrapping_add(u64::from(number) << 32))
        });
        Self { groups: made.collect(), place: Place { host, ..Place::default() } }
    }

    /// Whether every job of a group is finished.
    pub fn is_done(&self, group: usize) -> bool {
        self.groups[group].is_done()
    }

    /// Whether every job is finished.
    pub fn all_done(&self) -> bool {
        self.groups.iter().all(Group::is_done)
    }

    /// Jobs of a group that wait.
    pub fn waiting(&self, group: usize) -> usize {
        self.groups[group].queue.len()
    }

    /// Lets everything happen up to and at `until`, or until the last job is finished. At the same
    /// moment, what ends or becomes ready comes before what arrives.
    pub fn advance(&mut self, until: Moment) {
        while !self.all_done() {
            let (arrival, of) = self.next_arrival();
            let event = self.place.events.next_at().unwrap_or(NEVER);
            let work = self.place.host.as_ref().and_then(Host::next_at).unwrap_or(NEVER);
            let next = arrival.min(event).min(work);
            if next > until || next == NEVER {
                break;
            }
            self.place.advance(next);
            if work == next {
                let event = self.place.host.as_mut().and_then(Host::pop);
                event.into_iter().for_each(|event| self.happen(event));
            } else if event == next {
                let event = self.place.events.pop();
                event.into_iter().for_each(|(_, event)| self.happen(event));
            } else {
                self.groups[of].arrive(&mut self.place);
            }
            self.share();
            self.note();
        }
        if !self.all_done() {
            self.place.advance(until);
        }
    }

    fn next_arrival(&self) -> (Moment, usize) {
        let each = self.groups.iter().enumerate();
        let next = each.map(|(number, group)| (group.next_arrival().unwrap_or(NEVER), number));
        next.min().unwrap_or((NEVER, 0))
    }

    fn happen(&mut self, event: Event) {
        self.groups[event.group() as usize].happen(event, &mut self.place);
    }

    /// Tells the machine who wants its cores.
    fn share(&mut self) {
        let Some(host) = &mut self.place.host else { return };
        let (mut jobs, mut starting) = (0, 0);
        for group in &self.groups {
            jobs += group.running;
            starting += group.booting;
        }
        host.want(jobs, starting);
    }

    /// Orders workers of a group, or tells some to go, until `to` serve or start.
    pub fn scale(&mut self, group: usize, to: u32, victims: Victims) {
        let crowd = self.crowd();
        self.groups[group].scale(to, victims, crowd, &mut self.place);
        self.share();
        self.note();
    }

    /// Follows what happens when, from now on.
    pub(crate) fn record(&mut self) {
        self.groups.iter_mut().for_each(|group| group.recorder = Some(Box::new(Recorder::new())));
    }

    /// Tells the recorders, if any, how it is now.
    fn note(&mut self) {
        for group in &mut self.groups {
            group.note(&self.place);
        }
    }

    /// Workers of all groups that are not gone.
    fn crowd(&self) -> usize {
        self.groups.iter().map(|group| group.live.len()).sum()
    }

    /// Whether a look at a group would find what the last one found, but for its times. Said only
    /// where it leaves no trace: without a machine, whose load is measured from look to look, and
    /// where all sources always answer.
    pub fn is_still(&self, group: usize) -> bool {
        self.place.host.is_none() && self.groups[group].is_still()
    }

    /// Writes into `seen` what a group's sources would tell, reusing its lists.
    pub fn observe(&mut self, group: usize, seen: &mut Observation) {
        let crowd = self.crowd();
        self.groups[group].observe(crowd, &mut self.place, seen);
    }

    /// Pays the workers that are still there; returns the end and what was counted of each group.
    pub(crate) fn close(mut self) -> (Moment, Vec<Tally>) {
        let overloaded = self.place.host.as_ref().map(|host| host.overloaded).unwrap_or_default();
        let place = &self.place;
        let close = |group: &mut Group<'_>| {
            let mut tally = group.close(place.now);
            tally.overloaded = overloaded;
            tally
        };
        (place.now, self.groups.iter_mut().map(close).collect())
    }
}

/// After everything else.
const NEVER: Moment = Moment::from_micros(u64::MAX);

#[cfg(test)]
mod tests;
