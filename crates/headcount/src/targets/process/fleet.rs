//! The workers and their ends. Each worker has one task that waits for its main process to end, by
//! itself or because it was told to, and then clears away what is left of its process group.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use headcount_core::reading::{Worker, WorkerState};
use headcount_core::{Span, Timestamp};
use rustix::process::Signal;
use tokio::process::Child;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::logs::Logs;
use super::record::{Record, Records};
use crate::clock;
use crate::hosts::processes;
use crate::limits::{EARLY_DEATH, LEFTOVERS_GRACE};

/// How often a process that is not our child is looked at, to see its end.
const LOOK: Duration = Duration::from_millis(300);
/// So many workers that are gone are remembered, to tell "gone" from "never heard of".
const GONE: usize = 1024;

/// The workers of one group.
#[derive(Debug)]
pub(super) struct Fleet {
    pub(super) records: Records,
    pub(super) logs: Logs,
    pub(super) grace: Span,
    pub(super) ready_after: Span,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    workers: BTreeMap<String, Kept>,
    gone: VecDeque<String>,
    died: u32,
    /// The records could not be written, and that was said.
    complained: bool,
}

#[derive(Debug)]
struct Kept {
    record: Record,
    /// Rung when the worker was told to go.
    told: Arc<Notify>,
}

/// The main process of a worker.
#[derive(Debug)]
pub(super) enum Leader {
    /// Our child: its result must be fetched.
    Child(Child),
    /// Started by an earlier run of Headcount.
    Adopted,
    /// Ended while nobody watched.
    Gone,
}

impl Fleet {
    pub(super) fn new(records: Records, logs: Logs, grace: Span, ready_after: Span) -> Self {
        Self { records, logs, grace, ready_after, state: Mutex::default() }
    }

    /// Adds a worker that started or was found; `None` if it is known already.
    pub(super) fn add(&self, record: Record) -> Option<Arc<Notify>> {
        let mut state = self.state();
        if state.workers.contains_key(&record.id) || state.gone.contains(&record.id) {
            return None;
        }
        let told = Arc::new(Notify::new());
        if record.draining_since.is_some() {
            told.notify_one();
        }
        let kept = Kept { record, told: Arc::clone(&told) };
        state.workers.insert(kept.record.id.clone(), kept);
        Some(told)
    }

    /// Takes over that somebody else told a worker to go, from its record on disk.
    pub(super) fn heed(&self, written: &Record) {
        let mut state = self.state();
        let Some(kept) = state.workers.get_mut(&written.id) else { return };
        if kept.record.draining_since.is_none() && written.draining_since.is_some() {
            kept.record.draining_since = written.draining_since;
            kept.told.notify_one();
        }
    }

    /// Writes a record down. A full disk must not stop the work: it is said once, and the worker's
    /// own environment is what a later run finds it by.
    pub(super) fn write(&self, record: &Record) {
        let written = self.records.write(record);
        let mut state = self.state();
        match written {
            Ok(()) => state.complained = false,
            Err(_) if state.complained => {}
            Err(error) => {
                state.complained = true;
                tracing::warn!(worker = record.id, %error,
                    "workers cannot be recorded in the state folder: after a restart they are \
                     found by their environment, but not that they were told to go; free or \
                     unlock the disk");
            }
        }
    }

    /// The workers as they are at `now`, with the process group of each.
    pub(super) fn workers(&self, now: Timestamp) -> Vec<(Worker, u32)> {
        let state = self.state();
        let seen = |kept: &Kept| {
            let record = &kept.record;
            let state = match (record.draining_since, record.leader()) {
                (Some(_), _) => WorkerState::Draining,
                (None, None) => return None,
                (None, Some(process)) if process.is_stopped() => WorkerState::Broken,
                (None, Some(_)) if self.is_starting(record, now) => WorkerState::Starting,
                (None, Some(_)) => WorkerState::Ready,
            };
            let (id, started_at) = (record.id.clone(), Some(record.started_at));
            Some((Worker { id, state, busy: None, started_at, version: None }, record.pid))
        };
        state.workers.values().filter_map(seen).collect()
    }

    /// Whether a worker's id was ever known.
    pub(super) fn knows(&self, id: &str) -> bool {
        let state = self.state();
        state.workers.contains_key(id) || state.gone.iter().any(|gone| gone == id)
    }

    /// Whether a worker is there.
    pub(super) fn is_listed(&self, id: &str) -> bool {
        self.state().workers.contains_key(id)
    }

    /// Whether a worker is there and was not told to go.
    pub(super) fn serves(&self, id: &str) -> bool {
        self.state().workers.get(id).is_some_and(|kept| kept.record.draining_since.is_none())
    }

    /// How many workers died soon after their start since the last time this was asked.
    pub(super) fn take_died(&self) -> u32 {
        std::mem::take(&mut self.state().died)
    }

    /// Tells a worker to go: SIGTERM to its main process, the rest is its task's. False if it is
    /// gone or going already.
    pub(super) fn drain(&self, id: &str) -> bool {
        let record = {
            let mut state = self.state();
            let Some(kept) = state.workers.get_mut(id) else { return false };
            let record = &mut kept.record;
            if record.draining_since.is_some()
                || !processes::signal(record.pid, record.started, Signal::TERM)
            {
                return false;
            }
            record.draining_since = Some(clock::now());
            kept.told.notify_one();
            kept.record.clone()
        };
        // After the signal: a worker that is written down as going has surely been told.
        self.write(&record);
        true
    }

    /// Follows a worker to its end.
    pub(super) async fn follow(
        self: Arc<Self>,
        record: Record,
        mut leader: Leader,
        told: Arc<Notify>,
    ) {
        tokio::select! {
            () = leader.end(&record) => {}
            () = told.notified() => self.outwait(&record, &mut leader).await,
        }
        let watched = !matches!(leader, Leader::Gone);
        clear(&record, watched).await;
        self.bury(&record, watched);
    }

    /// Removes those from the list that have ended, where nobody follows them.
    pub(super) fn drop_ended(&self) {
        self.state().workers.retain(|_, kept| !kept.record.has_ended());
    }

    /// Waits for a worker that was told to go; after its grace time its group is killed. The time
    /// starts anew with each run of Headcount: what the wall clock showed when an earlier run told
    /// the worker to go proves nothing, since that clock may have been set since.
    async fn outwait(&self, record: &Record, leader: &mut Leader) {
        if timeout(clock::duration(self.grace), leader.end(record)).await.is_ok() {
            return;
        }
        tracing::warn!(
            worker = record.id,
            grace_s = self.grace.as_secs(),
            "worker did not end within its grace time; its process group is killed"
        );
        if record.leader().is_some() {
            processes::signal_group(record.pid, Signal::KILL);
        }
        leader.end(record).await;
    }

    /// Takes a worker off the list. If it was watched and nobody told it to go, that is news.
    fn bury(&self, record: &Record, watched: bool) {
        self.records.forget(&record.id);
        let by_itself = watched && self.draining_since(&record.id).is_none();
        let lived = clock::now().since(record.started_at);
        let early = self.ready_after.max(Span::try_from(EARLY_DEATH).unwrap_or(Span::ZERO));
        let mut state = self.state();
        state.workers.remove(&record.id);
        if state.gone.len() == GONE {
            state.gone.pop_front();
        }
        state.gone.push_back(record.id.clone());
        if by_itself && lived < early {
            state.died = state.died.saturating_add(1);
        }
        drop(state);
        if by_itself {
            tracing::warn!(worker = record.id, lived_s = lived.as_secs(),
                output = self.logs.last_words(&record.id),
                log = %self.logs.file(&record.id).display(), "worker ended by itself");
        }
    }

    fn is_starting(&self, record: &Record, now: Timestamp) -> bool {
        let age = now.since(record.started_at);
        !age.is_negative() && age < self.ready_after
    }

    fn draining_since(&self, id: &str) -> Option<Timestamp> {
        self.state().workers.get(id).and_then(|kept| kept.record.draining_since)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }
}

impl Leader {
    /// Returns when the main process has ended.
    async fn end(&mut self, record: &Record) {
        match self {
            Self::Child(child) => {
                let _ = child.wait().await;
            }
            Self::Gone => {}
            Self::Adopted => {
                while !record.has_ended() {
                    sleep(LOOK).await;
                }
            }
        }
    }
}

/// Ends what a worker left behind in its process group: a video encoder, for example, that would
/// go on writing without anybody who wants the result.
async fn clear(record: &Record, watched: bool) {
    let left = record.leftovers(watched);
    if left.is_empty() {
        return;
    }
    tracing::info!(
        worker = record.id,
        processes = left.len(),
        "ending what the worker left behind"
    );
    processes::signal_group(record.pid, Signal::TERM);
    let deadline = Instant::now() + LEFTOVERS_GRACE;
    while Instant::now() < deadline {
        sleep_until(deadline.min(Instant::now() + LOOK)).await;
        if record.leftovers(watched).is_empty() {
            return;
        }
    }
    processes::signal_group(record.pid, Signal::KILL);
}
