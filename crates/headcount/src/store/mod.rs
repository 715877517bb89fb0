//! What Headcount remembers across restarts, in one SQLite file: each group's state, the events,
//! samples of what was seen, how many workers were online, and what people asked for. If the file cannot be written, Headcount
//! goes on, says so, and writes what it kept once it can.

mod clean;
mod past;
mod rows;
mod schema;
mod usage;

use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headcount_core::state::{Controls, VERSION};
use headcount_core::{Alert, Decision, Observation, Outcome, Span, State, Timestamp};
use rusqlite::{Connection, OpenFlags, params};
use serde::Serialize;

use crate::clock;
use crate::limits::{BUFFERED_EVENTS, BUFFERED_JOBS, BUFFERED_SAMPLES};
use crate::queues::Finished;
pub use past::{Counts, Look};
use rows::{Batch, Sample, json, outcome_name, read_controls, write_all};
use usage::Ledger;
pub use usage::{HOUR, Minutes, Online, UsageHour, minute_of};

/// The store of one Headcount.
#[derive(Debug)]
pub struct Store {
    inner: Mutex<Inner>,
}

/// A decision that changed, or did not manage to change, a number of workers; or an alert.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// When it was decided.
    pub t: Timestamp,
    /// Which group.
    pub group: String,
    /// It was only pretended.
    pub dry: bool,
    /// What became of it; absent while it is under way, or if Headcount was killed meanwhile.
    pub outcome: Option<Outcome>,
    /// What the target said.
    pub note: String,
    /// What was seen.
    pub observation: Observation,
    /// What was decided, and why.
    pub decision: Decision,
    /// It tells of this alert, and of no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<Alert>,
}

/// What was seen and decided last in a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Latest {
    /// Which group.
    pub group: String,
    /// What was seen.
    pub observation: Observation,
    /// What was decided, and why.
    pub decision: Decision,
    /// What is remembered.
    pub state: State,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    keep: Span,
    db: Option<Connection>,
    /// Device and inode of the file that is open.
    file: Option<(u64, u64)>,
    tried_at: Option<Instant>,
    trouble: Option<String>,
    cleaned_at: Option<Instant>,
    events: VecDeque<Event>,
    latest: HashMap<String, Latest>,
    /// Groups whose `latest` is not written yet.
    dirty: HashSet<String>,
    samples: VecDeque<Sample>,
    jobs: VecDeque<(String, Finished)>,
    sampled: HashMap<String, Sample>,
    usage: Ledger,
    controls: HashMap<String, Controls>,
    controls_read_at: Option<Instant>,
}

/// A sample is written when its numbers changed, or after this long.
const SAMPLE_AT_LEAST_EVERY: Span = Span::from_secs(10);
/// A clock that is set back by more was wrong before or is wrong now: nothing is forgotten.
const MOST_FORGOTTEN: Span = Span::from_hours(24);
/// A file that could not be opened is tried again after this long.
const RETRY: Duration = Duration::from_secs(5);
/// What people asked for is read again after this long.
const CONTROLS_AGE: Duration = Duration::from_millis(500);

impl Event {
    /// What kind of event it is: that of its decision, or `alert`.
    pub fn kind(&self) -> &'static str {
        if self.alert.is_some() { "alert" } else { self.decision.kind.name() }
    }
}

impl Store {
    /// The store in `folder`, made if it is not there. Never fails: trouble is told by
    /// [`Store::trouble`] and mended as soon as its cause is gone.
    pub fn open(folder: &Path, keep_days: u32) -> Self {
        let mut inner = Inner::new(folder, keep_days);
        inner.connect();
        Self { inner: Mutex::new(inner) }
    }

    /// The store that a daemon keeps in `folder`.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn open_existing(folder: &Path) -> anyhow::Result<Self> {
        let mut inner = Inner::new(folder, crate::limits::KEEP_DAYS);
        anyhow::ensure!(
            inner.path.exists(),
            "there is no {}: is `headcount run` using another --state-dir, or not running yet?",
            inner.path.display()
        );
        inner.connect();
        match inner.trouble.take() {
            Some(trouble) => anyhow::bail!("{trouble}"),
            None => Ok(Self { inner: Mutex::new(inner) }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What keeps the store from being written, if anything does.
    pub fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    /// The state a group had when it was last written; `None` if there is none, or none that this
    /// version understands.
    pub fn load(&self, group: &str) -> Option<State> {
        let mut inner = self.lock();
        let in_memory = inner.latest.get(group).filter(|_| inner.dirty.contains(group)).cloned();
        let state = in_memory.or_else(|| inner.latest_from_file(Some(group)).pop())?.state;
        if state.version != VERSION {
            tracing::warn!(
                "the stored state of {group} has layout {}: starting anew",
                state.version
            );
            return None;
        }
        Some(state)
    }

    /// Keeps what was seen and decided. A change is written at once, before it is acted on, with
    /// the state that remembers it; everything else goes with the next [`Store::flush`]. A change
    /// that is not `news` is no event.
    pub fn record(
        &self,
        group: &str,
        dry: bool,
        news: bool,
        observation: &Observation,
        decision: &Decision,
        state: &State,
    ) {
        let mut inner = self.lock();
        inner.sample(group, observation, decision, state);
        let latest = Latest {
            group: group.into(),
            observation: observation.clone(),
            decision: decision.clone(),
            state: state.clone(),
        };
        inner.latest.insert(group.into(), latest);
        inner.dirty.insert(group.into());
        if news && decision.change().is_some() {
            let event = Event {
                t: decision.t,
                group: group.into(),
                dry,
                outcome: None,
                note: String::new(),
                observation: observation.clone(),
                decision: decision.clone(),
                alert: None,
            };
            inner.events.push_back(event);
            inner.write();
        }
    }

    /// Keeps an event that is no change, at once.
    pub fn record_event(&self, event: Event) {
        let mut inner = self.lock();
        inner.events.push_back(event);
        inner.write();
    }

    /// Keeps jobs that finished; they go with the next [`Store::flush`].
    pub fn record_jobs(&self, group: &str, finished: Vec<Finished>) {
        let mut inner = self.lock();
        inner.jobs.extend(finished.into_iter().map(|job| (group.into(), job)));
        let too_many = inner.jobs.len().saturating_sub(BUFFERED_JOBS);
        inner.jobs.drain(..too_many);
    }

    /// Keeps what became of a change, and the state that knows it.
    pub fn settle(&self, group: &str, t: Timestamp, outcome: Outcome, note: &str, state: &State) {
        let mut inner = self.lock();
        if let Some(latest) = inner.latest.get_mut(group) {
            latest.state = state.clone();
            inner.dirty.insert(group.into());
        }
        let buffered =
            inner.events.iter_mut().find(|e| e.group == group && e.t == t && e.alert.is_none());
        if let Some(event) = buffered {
            event.outcome = Some(outcome);
            event.note = note.into();
        } else {
            inner.with(|db| {
                let sql = "UPDATE events SET outcome = ?1, note = ?2
                           WHERE name = ?3 AND t_ms = ?4 AND alert IS NULL";
                db.execute(sql, params![outcome_name(outcome), note, group, t.as_millis()])
            });
        }
        inner.write();
    }

    /// Takes back the event of a change that was not made after all and is no news, and keeps the
    /// state that knows it.
    pub fn withdraw(&self, group: &str, t: Timestamp, state: &State) {
        let mut inner = self.lock();
        if let Some(latest) = inner.latest.get_mut(group) {
            latest.state = state.clone();
            inner.dirty.insert(group.into());
        }
        inner.events.retain(|e| e.group != group || e.t != t || e.alert.is_some());
        inner.with(|db| {
            let sql = "DELETE FROM events
                       WHERE name = ?1 AND t_ms = ?2 AND outcome IS NULL AND alert IS NULL";
            db.execute(sql, params![group, t.as_millis()])
        });
        inner.write();
    }

    /// Writes what is buffered. Call it every second or two.
    pub fn flush(&self) {
        self.lock().write();
    }

    /// What people asked for in a group. Read from the file at most twice a second.
    pub fn controls(&self, group: &str) -> Controls {
        let mut inner = self.lock();
        if inner.controls_read_at.is_none_or(|at| at.elapsed() >= CONTROLS_AGE) {
            inner.controls_read_at = Some(Instant::now());
            if let Some(controls) = inner.with(read_controls) {
                inner.controls = controls;
            }
        }
        let mut controls = inner.controls.get(group).cloned().unwrap_or_default();
        controls.expire(clock::now());
        controls
    }

    /// Keeps what people ask for in a group, in place of what they asked for before.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_controls(&self, group: &str, controls: &Controls) -> anyhow::Result<()> {
        let json = serde_json::to_string(controls)?;
        let mut inner = self.lock();
        inner.controls_read_at = None;
        let written = inner.with(|db| {
            let sql = "INSERT OR REPLACE INTO controls (name, controls) VALUES (?1, ?2)";
            db.execute(sql, [group, &json])
        });
        match written {
            Some(_) => Ok(()),
            None => anyhow::bail!("{}", inner.trouble.clone().unwrap_or_default()),
        }
    }

    /// What was seen and decided last, of every group or of one.
    pub fn latest(&self, group: Option<&str>) -> Vec<Latest> {
        let mut inner = self.lock();
        inner.write();
        inner.latest_from_file(group)
    }
}

impl Inner {
    fn new(folder: &Path, keep_days: u32) -> Self {
        Self {
            path: folder.join("state.db"),
            keep: Span::from_hours(24 * i64::from(keep_days)),
            db: None,
            file: None,
            tried_at: None,
            trouble: None,
            cleaned_at: None,
            events: VecDeque::new(),
            latest: HashMap::new(),
            dirty: HashSet::new(),
            samples: VecDeque::new(),
            jobs: VecDeque::new(),
            sampled: HashMap::new(),
            usage: Ledger::default(),
            controls: HashMap::new(),
            controls_read_at: None,
        }
    }

    /// Opens the file, unless that was tried a moment ago.
    fn connect(&mut self) {
        if self.db.is_some() || self.tried_at.is_some_and(|at| at.elapsed() < RETRY) {
            return;
        }
        self.tried_at = Some(Instant::now());
        match open(&self.path) {
            Ok(db) => {
                self.db = Some(db);
                self.file = identity(&self.path);
            }
            Err(why) => self.complain(&why),
        }
    }

    /// Runs `work` on the file; on an error remembers the trouble and gives nothing.
    fn with<T>(&mut self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        self.connect();
        match work(self.db.as_ref()?) {
            Ok(value) => Some(value),
            Err(error) => {
                self.complain(&error.to_string());
                // A damaged or vanished file needs a new connection; a full disk does not mind one.
                self.db = None;
                None
            }
        }
    }

    fn complain(&mut self, why: &str) {
        let hint = if why.contains("not a database") { "; move it away to start anew" } else { "" };
        let trouble = format!("{} cannot be used: {why}{hint}", self.path.display());
        if self.trouble.as_deref() != Some(&trouble) {
            tracing::warn!(
                "{trouble}; going on, nothing is remembered across a restart until it can"
            );
        }
        self.trouble = Some(trouble);
    }

    fn recovered(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!("{} can be written again", self.path.display());
        }
    }

    fn sample(&mut self, group: &str, seen: &Observation, decision: &Decision, state: &State) {
        let sample = Sample {
            group: group.into(),
            t: decision.t,
            queue: seen
                .queue
                .value()
                .map(|q| (q.waiting, q.active, q.oldest_wait, q.finished_total)),
            fleet: seen.fleet.value().map(|f| (f.ready, f.starting, f.draining, f.busy)),
            host: seen.host.value().map(|h| (h.cpu_raw, h.mem)),
            cpu_ema: state.cpu_ema(),
            wanted: decision.wanted,
        };
        let fresh = self.sampled.get(group).is_some_and(|last| {
            let same = (&last.queue, &last.fleet, last.wanted)
                == (&sample.queue, &sample.fleet, sample.wanted);
            same && (Span::ZERO..SAMPLE_AT_LEAST_EVERY).contains(&sample.t.since(last.t))
        });
        if fresh {
            return;
        }
        self.forget_the_future(group, sample.t);
        self.sampled.insert(group.into(), sample.clone());
        self.samples.push_back(sample);
        if self.samples.len() > BUFFERED_SAMPLES {
            self.samples.pop_front();
        }
    }

    /// If the clock was set back, what it recorded of a time to come never was: two runs through the
    /// same hour would look like one with all jobs of both.
    fn forget_the_future(&mut self, group: &str, now: Timestamp) {
        let Some(last) = self.sampled.get(group).map(|last| last.t).filter(|last| *last > now)
        else {
            return;
        };
        self.samples.retain(|sample| sample.group != group || sample.t < now);
        if last.since(now) <= MOST_FORGOTTEN {
            self.with(|db| {
                let sql = "DELETE FROM samples WHERE name = ?1 AND t_ms BETWEEN ?2 AND ?3";
                db.execute(sql, (group, now.as_millis(), last.as_millis()))
            });
        }
    }

    /// Writes everything that is buffered in one transaction; keeps it if that fails.
    fn write(&mut self) {
        let rows = self.events.len() + self.dirty.len() + self.samples.len() + self.jobs.len();
        if rows + self.usage.len() == 0 {
            return;
        }
        while self.events.len() > BUFFERED_EVENTS {
            self.events.pop_front();
        }
        self.notice_replacement();
        let events = std::mem::take(&mut self.events);
        let samples = std::mem::take(&mut self.samples);
        let jobs = std::mem::take(&mut self.jobs);
        let (latest, dirty) = (std::mem::take(&mut self.latest), std::mem::take(&mut self.dirty));
        let fresh: Vec<&Latest> = dirty.iter().filter_map(|name| latest.get(name)).collect();
        let usage = std::mem::take(&mut self.usage);
        let batch = Batch {
            events: &events,
            latest: &fresh,
            samples: &samples,
            jobs: &jobs,
            usage: &usage,
        };
        let written = self.with(|db| write_all(db, &batch));
        (self.latest, self.usage) = (latest, usage);
        if written.is_some() {
            self.usage.written();
            self.recovered();
            self.clean();
        } else {
            (self.events, self.dirty, self.samples, self.jobs) = (events, dirty, samples, jobs);
        }
    }

    /// If somebody deleted or replaced the file, what is written goes nowhere: start over with the
    /// one in place.
    fn notice_replacement(&mut self) {
        if self.db.is_some() && self.file != identity(&self.path) {
            tracing::warn!("{} was deleted or replaced: writing it anew", self.path.display());
            self.db = None;
            self.tried_at = None;
            self.dirty = self.latest.keys().cloned().collect();
        }
    }

    fn latest_from_file(&mut self, group: Option<&str>) -> Vec<Latest> {
        let read = self.with(|db| {
            let sql = "SELECT name, observation, decision, state FROM groups
                       WHERE (?1 IS NULL OR name = ?1) ORDER BY name";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map([group], |row| {
                Ok(Latest {
                    group: row.get(0)?,
                    observation: json(row, 1)?,
                    decision: json(row, 2)?,
                    state: json(row, 3)?,
                })
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        });
        read.unwrap_or_default()
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    let data = std::fs::metadata(path).ok()?;
    Some((data.dev(), data.ino()))
}

fn open(path: &Path) -> Result<Connection, String> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let broken = |e: rusqlite::Error| e.to_string();
    let mut db = Connection::open_with_flags(path, flags).map_err(broken)?;
    db.busy_timeout(Duration::from_millis(500)).map_err(broken)?;
    db.pragma_update(None, "journal_mode", "WAL").map_err(broken)?;
    db.pragma_update(None, "synchronous", "NORMAL").map_err(broken)?;
    schema::migrate(&mut db)?;
    Ok(db)
}

#[cfg(test)]
mod tests;
