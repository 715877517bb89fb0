//! From what the queue holds to a reading: some of it only means something beside the last look.

use std::collections::{BTreeMap, HashMap};

use headcount_core::reading::LIST_LIMIT;
use headcount_core::{QueueReading, Span, Timestamp};
use tokio::time::Instant;

use super::look::Raw;
use crate::limits::SECOND_SAMPLE;

/// What is remembered from look to look.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Active jobs without a lock, by when they were first seen so.
    lockless: HashMap<String, Instant>,
    last_id: u64,
    /// Jobs that finished before the counter was last lost.
    finished_before: u64,
    finished: u64,
    was_paused: bool,
}

impl Memory {
    /// The reading of `raw`, seen at `now`, which is `at` on the steady clock.
    pub(super) fn reading(
        &mut self,
        raw: &Raw,
        queue: &str,
        now: Timestamp,
        at: Instant,
    ) -> QueueReading {
        let orphaned = self.orphans(raw, at);
        self.note_pause(raw, queue);
        let finished_total = self.finished(raw, queue);
        let mut waits: Vec<Span> = raw.added.iter().map(|t| age(*t, now)).collect();
        waits.sort_unstable_by(|a, b| b.cmp(a));
        let mut ages: Vec<Span> = raw
            .active
            .iter()
            .filter(|a| a.locked)
            .filter_map(|a| a.since)
            .map(|t| age(t, now))
            .collect();
        ages.truncate(LIST_LIMIT);
        QueueReading {
            // Nobody takes jobs from a paused queue; due jobs go back to it as well.
            waiting: if raw.paused { 0 } else { raw.waiting.saturating_add(raw.due) },
            active: raw.active_len.saturating_sub(orphaned),
            delayed: Some(raw.delayed.saturating_sub(raw.due)),
            orphaned: Some(orphaned),
            paused: Some(raw.paused),
            held: raw.paused.then(|| raw.held.saturating_add(raw.waiting).saturating_add(raw.due)),
            oldest_wait: waits.first().copied(),
            waits,
            ages,
            durations: Vec::new(),
            durations_by_tag: BTreeMap::new(),
            finished_total: Some(finished_total),
            tags: if raw.paused { BTreeMap::new() } else { tags(raw) },
            occupancy: None,
        }
    }

    /// A job without its lock lost its worker; but between taking a job and locking it there is a
    /// moment too, so a single look proves nothing.
    fn orphans(&mut self, raw: &Raw, at: Instant) -> u64 {
        let before = std::mem::take(&mut self.lockless);
        let mut orphans = 0;
        for job in raw.active.iter().filter(|job| !job.locked) {
            let first = before.get(&job.id).copied().unwrap_or(at);
            if at.duration_since(first) >= SECOND_SAMPLE {
                orphans += 1;
            }
            self.lockless.insert(job.id.clone(), first);
        }
        orphans
    }

    /// Jobs added less those unfinished. The counter starts again when Redis loses its data.
    fn finished(&mut self, raw: &Raw, queue: &str) -> u64 {
        let id = raw.id.unwrap_or(0);
        if id < self.last_id {
            tracing::warn!(
                queue,
                was = self.last_id,
                is = id,
                "the job counter fell: redis lost its data, and with it all waiting jobs"
            );
            self.finished_before = self.finished;
            self.lockless.clear();
        }
        self.last_id = id;
        let now = self.finished_before.saturating_add(id.saturating_sub(raw.unfinished()));
        self.finished = self.finished.max(now);
        self.finished
    }

    fn note_pause(&mut self, raw: &Raw, queue: &str) {
        if raw.paused && !self.was_paused {
            tracing::warn!(queue, jobs = raw.held, "the queue is paused: more workers cannot help");
        }
        self.was_paused = raw.paused;
    }
}

/// Clocks of machines differ a little; nothing was added in the future.
fn age(since: Timestamp, now: Timestamp) -> Span {
    now.since(since).max(Span::ZERO)
}

/// Waiting jobs per priority; `priority_0` are those without one.
fn tags(raw: &Raw) -> BTreeMap<String, u64> {
    let mut tags: BTreeMap<_, _> =
        raw.priorities.iter().map(|(p, n)| (format!("priority_{p}"), *n)).collect();
    let named: u64 = raw.priorities.iter().map(|(_, n)| n).sum();
    if !tags.is_empty() && raw.waiting > named {
        tags.insert("priority_0".into(), raw.waiting - named);
    }
    tags
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::look::Active;
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    fn active(id: &str, locked: bool) -> Active {
        Active { id: id.into(), locked, since: Some(at(90)), added: None }
    }

    fn holding(jobs: Vec<Active>) -> Raw {
        Raw { id: Some(9), active_len: jobs.len() as u64, active: jobs, ..Raw::default() }
    }

    #[test]
    fn a_job_without_a_lock_is_an_orphan_from_the_second_look_on() {
        let mut memory = Memory::default();
        let start = Instant::now();
        let raw = holding(vec![active("1", true), active("2", false)]);
        let mut see = |raw: &Raw, after: u64| {
            let reading = memory.reading(raw, "q", at(100), start + Duration::from_secs(after));
            (reading.active, reading.orphaned)
        };
        assert_eq!(see(&raw, 0), (2, Some(0)));
        assert_eq!(see(&raw, 0), (2, Some(0)), "two looks at one moment are one sample");
        assert_eq!(see(&raw, 1), (1, Some(1)));
        let locked = holding(vec![active("1", true), active("2", true)]);
        assert_eq!(see(&locked, 2), (2, Some(0)));
        assert_eq!(see(&raw, 3), (2, Some(0)), "it lost its lock anew");
    }

    #[test]
    fn waits_and_ages_are_measured_from_the_job_and_never_negative() {
        let mut raw = holding(vec![active("1", true), active("2", false)]);
        raw.waiting = 3;
        raw.added = vec![at(95), at(70), at(105)];
        let reading = Memory::default().reading(&raw, "q", at(100), Instant::now());
        let seconds = |list: &[Span]| list.iter().map(Span::as_secs).collect::<Vec<_>>();
        assert_eq!(seconds(&reading.waits), [30, 5, 0]);
        assert_eq!(reading.oldest_wait, Some(Span::from_secs(30)));
        assert_eq!(seconds(&reading.ages), [10]);
    }

    #[test]
    fn a_paused_queue_has_no_demand() {
        let raw = Raw {
            id: Some(9),
            held: 6,
            paused: true,
            delayed: 2,
            due: 1,
            priorities: vec![("100".into(), 6)],
            ..Raw::default()
        };
        let reading = Memory::default().reading(&raw, "q", at(0), Instant::now());
        assert_eq!((reading.waiting, reading.paused, reading.held), (0, Some(true), Some(7)));
        assert_eq!((reading.delayed, reading.tags.len()), (Some(1), 0));
    }

    #[test]
    fn due_jobs_wait_and_priorities_are_parts_of_what_waits() {
        let raw = Raw {
            id: Some(9),
            waiting: 5,
            delayed: 3,
            due: 2,
            priorities: vec![("50".into(), 1), ("100".into(), 3)],
            ..Raw::default()
        };
        let reading = Memory::default().reading(&raw, "q", at(0), Instant::now());
        assert_eq!((reading.waiting, reading.delayed, reading.held), (7, Some(1), None));
        let tags: Vec<_> = reading.tags.into_iter().collect();
        let expected = [("priority_0", 1), ("priority_100", 3), ("priority_50", 1)];
        assert_eq!(tags, expected.map(|(tag, n)| (tag.to_string(), n)));
    }

    #[test]
    fn the_finished_total_survives_the_loss_of_the_counter() {
        let mut memory = Memory::default();
        let mut total = |id, waiting| {
            let raw = Raw { id, waiting, ..Raw::default() };
            memory.reading(&raw, "q", at(0), Instant::now()).finished_total
        };
        assert_eq!(total(Some(10), 4), Some(6));
        assert_eq!(total(Some(10), 0), Some(10));
        assert_eq!(total(None, 0), Some(10));
        assert_eq!(total(Some(3), 1), Some(12));
    }
}
