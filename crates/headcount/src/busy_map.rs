//! Who is busy: joins the workers a target lists with the consumers a queue knows.
//!
//! A worker is idle only if some consumer that shares a name with it says so and none says
//! otherwise; a worker nobody vouches for stays unknown, which the busy guard counts as busy.

use std::collections::HashMap;
use std::net::SocketAddr;

use headcount_core::reading::{Worker, WorkerState};
use headcount_core::{FleetReading, Span, Timestamp};

use crate::hosts::sockets::peers_of_groups;
use crate::queues::{Consumer, Identity};
use crate::targets::FleetSeen;

/// A worker that takes no jobs for this long, while jobs wait and others do take them, is stuck.
const STUCK_AFTER: Span = Span::from_secs(60);

/// Remembers since when workers do not consume.
#[derive(Debug, Default)]
pub struct BusyMap {
    absent_since: HashMap<String, Timestamp>,
    /// The age of the oldest job of each worker, as of the last join.
    oldest_jobs: HashMap<String, Span>,
}

impl BusyMap {
    /// The fleet with `busy` and the states that only the queue knows filled in.
    ///
    /// `waiting` is the number of waiting jobs, `start_up` how long a worker may take to start.
    pub fn join(
        &mut self,
        fleet: FleetSeen,
        consumers: Option<&[Consumer]>,
        waiting: u64,
        start_up: Span,
        now: Timestamp,
    ) -> FleetReading {
        let FleetSeen { reading, known_as } = fleet;
        self.oldest_jobs.clear();
        let Some(consumers) = consumers.filter(|_| !reading.workers.is_empty()) else {
            self.absent_since.clear();
            return reading;
        };
        let names = Names::of(&known_as, consumers);
        let unlisted = Unlisted::of(&reading);
        let mut workers = reading.workers;
        let mut consuming = HashMap::new();
        for worker in &mut workers {
            let same: Vec<&Consumer> =
                consumers.iter().filter(|c| names.match_any(&worker.id, c)).collect();
            // A target may know by itself: busy if anyone says so.
            worker.busy = match (worker.busy, busy(&same)) {
                (Some(true), _) => Some(true),
                (own, heard) => heard.or(own),
            };
            if let Some(age) = same.iter().filter_map(|c| c.oldest_job).max() {
                self.oldest_jobs.insert(worker.id.clone(), age);
            }
            if worker.is_capacity() && same.iter().any(|c| c.draining) {
                worker.state = WorkerState::Draining;
            }
            consuming.insert(worker.id.clone(), same.iter().any(|c| c.consuming == Some(true)));
        }
        self.mark_stuck(&mut workers, &consuming, waiting, start_up, now);
        let joined = unlisted.beside(FleetReading::of(workers));
        FleetReading { died: reading.died, desired: reading.desired, ..joined }
    }

    /// The listed workers that hold a job or may hold one, with the age of the oldest where it is
    /// known.
    pub fn busy(&self, fleet: &FleetReading) -> HashMap<String, Option<Span>> {
        let may_be_busy = fleet.workers.iter().filter(|worker| worker.busy != Some(false));
        let age = |worker: &Worker| self.oldest_jobs.get(&worker.id).copied();
        may_be_busy.map(|worker| (worker.id.clone(), age(worker))).collect()
    }

    /// Marks workers that take no jobs although jobs wait and others do take them.
    fn mark_stuck(
        &mut self,
        workers: &mut [Worker],
        consuming: &HashMap<String, bool>,
        waiting: u64,
        start_up: Span,
        now: Timestamp,
    ) {
        let takes = |w: &Worker| consuming.get(&w.id).copied().unwrap_or(false);
        // If nobody is seen to consume, the names may not match at all: that proves nothing.
        let others_do = workers.iter().any(takes);
        let is_absent = |w: &Worker| {
            let old_enough = w.started_at.is_some_and(|at| now.since(at) > start_up);
            waiting > 0 && others_do && w.state == WorkerState::Ready && old_enough && !takes(w)
        };
        self.absent_since.retain(|id, _| workers.iter().any(|w| w.id == *id && is_absent(w)));
        for worker in workers.iter_mut() {
            if !is_absent(worker) {
                continue;
            }
            let since = *self.absent_since.entry(worker.id.clone()).or_insert(now);
            if now.since(since) >= STUCK_AFTER {
                if now.since(since) < STUCK_AFTER.saturating_mul(2) {
                    tracing::warn!(
                        worker = worker.id,
                        "runs but takes no jobs: stuck, not counted"
                    );
                }
                worker.state = WorkerState::Broken;
            }
        }
    }
}

/// Workers that a target counts but does not list: places whose worker is not made yet.
struct Unlisted {
    ready: u32,
    starting: u32,
    draining: u32,
    broken: u32,
}

impl Unlisted {
    fn of(reading: &FleetReading) -> Self {
        let listed = FleetReading::of(reading.workers.clone());
        Self {
            ready: reading.ready.saturating_sub(listed.ready),
            starting: reading.starting.saturating_sub(listed.starting),
            draining: reading.draining.saturating_sub(listed.draining),
            broken: reading.broken.saturating_sub(listed.broken),
        }
    }

    fn beside(self, listed: FleetReading) -> FleetReading {
        FleetReading {
            ready: listed.ready.saturating_add(self.ready),
            starting: listed.starting.saturating_add(self.starting),
            draining: listed.draining.saturating_add(self.draining),
            broken: listed.broken.saturating_add(self.broken),
            ..listed
        }
    }
}

/// Busy if anyone says so; idle if someone says so and nobody is unsure.
fn busy(same: &[&Consumer]) -> Option<bool> {
    if same.iter().any(|c| c.busy == Some(true)) {
        return Some(true);
    }
    same.iter().any(|c| c.busy == Some(false)).then_some(false)
}

/// The names of the listed workers, with the sockets of their processes.
struct Names<'a> {
    known_as: &'a HashMap<String, Vec<Identity>>,
    sockets: HashMap<SocketAddr, u32>,
}

impl<'a> Names<'a> {
    fn of(known_as: &'a HashMap<String, Vec<Identity>>, consumers: &[Consumer]) -> Self {
        let has_peer = |c: &Consumer| c.known_as.iter().any(|n| matches!(n, Identity::Peer(_)));
        let groups: Vec<u32> = known_as
            .values()
            .flatten()
            .filter_map(|name| if let Identity::Process(pid) = name { Some(*pid) } else { None })
            .collect();
        let wanted = !groups.is_empty() && consumers.iter().any(has_peer);
        let sockets = if wanted { peers_of_groups(&groups) } else { HashMap::new() };
        Self { known_as, sockets }
    }

    fn match_any(&self, worker: &str, consumer: &Consumer) -> bool {
        let Some(names) = self.known_as.get(worker) else { return false };
        let same = |name, other| self.same(name, other);
        consumer.known_as.iter().any(|other| names.iter().any(|name| same(name, other)))
    }

    fn same(&self, worker: &Identity, consumer: &Identity) -> bool {
        match (worker, consumer) {
            (Identity::Container(long), Identity::Container(short)) => {
                short.len() >= 12 && long.starts_with(short.as_str())
            }
            (Identity::Process(group), Identity::Peer(peer)) => {
                self.sockets.get(peer) == Some(group)
            }
            // A target may know only the address, not the port.
            (Identity::Peer(ours), Identity::Peer(theirs)) if ours.port() == 0 => {
                ours.ip() == theirs.ip()
            }
            (a, b) => a == b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000);
    const START_UP: Span = Span::from_secs(30);

    fn fleet(ids: &[&str]) -> FleetSeen {
        let worker = |id: &&str| Worker {
            id: (*id).into(),
            state: WorkerState::Ready,
            busy: None,
            started_at: Some(Timestamp::from_millis(0)),
            version: None,
        };
        let name = |id: &&str| ((*id).to_string(), vec![Identity::Container((*id).into())]);
        FleetSeen {
            reading: FleetReading::of(ids.iter().map(worker).collect()),
            known_as: ids.iter().map(name).collect(),
        }
    }

    fn consumer(container: &str, busy: Option<bool>) -> Consumer {
        let known_as = vec![Identity::Container(container.into())];
        Consumer { known_as, busy, consuming: Some(true), ..Consumer::default() }
    }

    #[test]
    fn tells_who_may_be_busy_and_for_how_long() {
        let ids = ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"];
        let age = |s| Some(Span::from_secs(s));
        let seen = [
            Consumer { oldest_job: age(7), ..consumer("aaaaaaaaaaaa", Some(true)) },
            Consumer { oldest_job: age(9), ..consumer("aaaaaaaaaaaa", Some(true)) },
            consumer("bbbbbbbbbbbb", Some(false)),
        ];
        let mut map = BusyMap::default();
        let joined = map.join(fleet(&ids), Some(&seen), 0, START_UP, NOW);
        let expected = [("aaaaaaaaaaaa".to_owned(), age(9)), ("cccccccccccc".to_owned(), None)];
        assert_eq!(map.busy(&joined), expected.into());
    }

    #[test]
    fn places_without_a_worker_still_count() {
        let mut fleet = fleet(&["aaaaaaaaaaaa"]);
        (fleet.reading.starting, fleet.reading.desired) = (2, Some(3));
        let seen = [consumer("aaaaaaaaaaaa", Some(true))];
        let joined = BusyMap::default().join(fleet, Some(&seen), 0, START_UP, NOW);
        assert_eq!((joined.ready, joined.starting, joined.desired), (1, 2, Some(3)));
    }

    #[test]
    fn joins_by_the_first_twelve_digits_and_trusts_the_busier_word() {
        let ids = ["aaaaaaaaaaaa1111", "bbbbbbbbbbbb2222", "cccccccccccc3333"];
        let seen = [
            consumer("aaaaaaaaaaaa", Some(false)),
            consumer("bbbbbbbbbbbb", Some(false)),
            consumer("bbbbbbbbbbbb", Some(true)),
        ];
        let joined = BusyMap::default().join(fleet(&ids), Some(&seen), 0, START_UP, NOW);
        let busy: Vec<_> = joined.workers.iter().map(|w| w.busy).collect();
        assert_eq!(busy, [Some(false), Some(true), None]);
        assert_eq!(joined.busy, Some(2), "the unknown one counts as busy");
    }

    #[test]
    fn what_the_target_knows_itself_counts_too() {
        let ids = ["aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc"];
        let mut fleet = fleet(&ids);
        for (worker, busy) in fleet.reading.workers.iter_mut().zip([true, false, false]) {
            worker.busy = Some(busy);
        }
        let seen = [consumer(ids[0], Some(false)), consumer(ids[1], Some(true))];
        let joined = BusyMap::default().join(fleet, Some(&seen), 0, START_UP, NOW);
        let busy: Vec<_> = joined.workers.iter().map(|w| w.busy).collect();
        assert_eq!(busy, [Some(true), Some(true), Some(false)]);
    }

    #[test]
    fn one_told_to_go_by_somebody_else_is_draining() {
        let mut gone = consumer("aaaaaaaaaaaa", Some(true));
        gone.draining = true;
        let fleet = fleet(&["aaaaaaaaaaaa"]);
        let joined = BusyMap::default().join(fleet, Some(&[gone]), 0, START_UP, NOW);
        assert_eq!((joined.capacity(), joined.draining), (0, 1));
    }

    #[test]
    fn a_worker_that_takes_nothing_while_others_do_is_stuck_after_a_minute() {
        let ids = ["aaaaaaaaaaaa", "bbbbbbbbbbbb"];
        let seen = [consumer("aaaaaaaaaaaa", Some(true))];
        let mut map = BusyMap::default();
        let at = |s| NOW.plus(Span::from_secs(s));
        let mut ready =
            |waiting, s| map.join(fleet(&ids), Some(&seen), waiting, START_UP, at(s)).ready;
        assert_eq!(ready(5, 0), 2);
        assert_eq!(ready(5, 59), 2);
        assert_eq!(ready(5, 60), 1);
        assert_eq!(ready(0, 61), 2, "nothing waits: nothing is proven");
        assert_eq!(ready(5, 62), 2, "and the clock starts anew");
    }

    #[test]
    fn names_that_never_match_prove_nothing() {
        let seen = [consumer("dddddddddddd", Some(true))];
        let mut map = BusyMap::default();
        for s in [0, 100, 1000] {
            let now = NOW.plus(Span::from_secs(s));
            let fleet = fleet(&["aaaaaaaaaaaa", "bbbbbbbbbbbb"]);
            assert_eq!(map.join(fleet, Some(&seen), 9, START_UP, now).ready, 2);
        }
    }
}
