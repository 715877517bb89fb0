//! What the sources say: one typed answer each, known or missing, never a made-up zero.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::{Span, Timestamp, as_seconds, as_seconds_list, as_seconds_lists};
use crate::words::counted;

/// The most entries a list inside a reading may have; sources cut longer ones.
pub const LIST_LIMIT: usize = 256;

/// Lists up to this length are searched from the front.
const FEW: usize = 16;

/// One answer of a source.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading<T> {
    /// The source answered.
    Known {
        /// What it said.
        value: T,
        /// When it said so.
        taken_at: Timestamp,
    },
    /// The source did not answer, or not credibly.
    Missing(Missing),
}

impl<T> Reading<T> {
    /// A known reading.
    pub const fn known(value: T, taken_at: Timestamp) -> Self {
        Self::Known { value, taken_at }
    }

    /// A missing reading.
    pub fn missing(why: Silence, detail: impl Into<String>) -> Self {
        Self::Missing(Missing { why, detail: detail.into() })
    }

    /// The value, unless it is missing or dated more than `stale_after` before or after `now`.
    ///
    /// # Errors
    /// What is missing, or that it is stale.
    pub fn fresh(&self, now: Timestamp, stale_after: Span) -> Result<&T, Missing> {
        match self {
            Self::Missing(missing) => Err(missing.clone()),
            Self::Known { value, taken_at } => {
                let age = now.since(*taken_at);
                let detail = if age > stale_after {
                    format!("last answer is {} s old", age.as_secs())
                } else if taken_at.since(now) > stale_after {
                    format!("last answer is dated {} s ahead", age.as_secs().unsigned_abs())
                } else {
                    return Ok(value);
                };
                Err(Missing { why: Silence::Stale, detail })
            }
        }
    }

    /// Why it is missing, if it is.
    pub const fn why_missing(&self) -> Option<&Missing> {
        match self {
            Self::Known { .. } => None,
            Self::Missing(missing) => Some(missing),
        }
    }

    /// The value, however old.
    pub const fn value(&self) -> Option<&T> {
        match self {
            Self::Known { value, .. } => Some(value),
            Self::Missing(_) => None,
        }
    }
}

/// Why a reading is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The kind of silence.
    pub why: Silence,
    /// What the source or the network said, without secrets.
    pub detail: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.detail.is_empty() {
            return write!(f, "{}", self.why);
        }
        write!(f, "{}: {}", self.why, self.detail)
    }
}

/// The kinds of silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Silence {
    /// No route, name or listener.
    Unreachable,
    /// The other side refused the connection.
    Refused,
    /// Wrong or missing credentials or permissions.
    Denied,
    /// No answer within the limit.
    Timeout,
    /// The server answers, but has no such queue, service or group.
    NotFound,
    /// The answer makes no sense.
    Malformed,
    /// Two parts of the answer cannot both be true.
    Contradictory,
    /// The last answer is too old.
    Stale,
    /// Nobody asked, or the source cannot tell.
    Absent,
}

impl Silence {
    const ALL: [Self; 9] = [
        Self::Unreachable,
        Self::Refused,
        Self::Denied,
        Self::Timeout,
        Self::NotFound,
        Self::Malformed,
        Self::Contradictory,
        Self::Stale,
        Self::Absent,
    ];

    /// The name used in JSON and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Denied => "denied",
            Self::Timeout => "timeout",
            Self::NotFound => "not_found",
            Self::Malformed => "malformed",
            Self::Contradictory => "contradictory",
            Self::Stale => "stale",
            Self::Absent => "absent",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a queue says. What a source cannot tell is absent, not zero.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueReading {
    /// Jobs that more workers could take now.
    pub waiting: u64,
    /// Jobs that a live worker really holds.
    pub active: u64,
    /// Jobs that become due later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed: Option<u64>,
    /// Jobs that look active but whose worker is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphaned: Option<u64>,
    /// The queue hands out no jobs at all; more workers cannot help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Jobs that wait in a paused queue. None of `waiting`: nobody can take them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// How long the oldest waiting job has waited.
    #[serde(default, rename = "oldest_wait_s", with = "as_seconds")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_wait: Option<Span>,
    /// How long the oldest waiting jobs have waited, at most [`LIST_LIMIT`] of them.
    #[serde(default, rename = "waits_s", with = "as_seconds_list")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Span>,
    /// How long the running jobs have run, at most [`LIST_LIMIT`] of them.
    #[serde(default, rename = "ages_s", with = "as_seconds_list")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ages: Vec<Span>,
    /// How long jobs took that finished since the last look, at most [`LIST_LIMIT`] of them.
    #[serde(default, rename = "durations_s", with = "as_seconds_list")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub durations: Vec<Span>,
    /// Those of `durations` of which the source tells the tag, by the names that `tags` uses.
    #[serde(default, rename = "durations_by_tag_s", with = "as_seconds_lists")]
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub durations_by_tag: BTreeMap<String, Vec<Span>>,
    /// Jobs finished since some fixed point in the past.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_total: Option<u64>,
    /// Waiting jobs per tag or priority.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, u64>,
    /// How busy the workers are, where the source measures it (Windmill).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<Occupancies>,
}

/// The share of time in which the workers were busy, percent of it, over the last 15 s, 5 min and
/// 30 min. A window that is not full is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Occupancies {
    /// Over 15 s.
    #[serde(alias = "15s", skip_serializing_if = "Option::is_none")]
    pub s15: Option<f64>,
    /// Over 5 min.
    #[serde(alias = "5m", skip_serializing_if = "Option::is_none")]
    pub m5: Option<f64>,
    /// Over 30 min.
    #[serde(alias = "30m", skip_serializing_if = "Option::is_none")]
    pub m30: Option<f64>,
}

/// What a host says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostReading {
    /// CPU in use over the last sample, percent of all cores, 0 to 100.
    pub cpu_raw: f64,
    /// CPU in use averaged since the policy's last poll, percent. The brake prefers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_mean: Option<f64>,
    /// CPU taken by other virtual machines, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steal: Option<f64>,
    /// CPU idle while waiting for disks, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iowait: Option<f64>,
    /// Memory in use, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem: Option<f64>,
    /// Share of the last 10 s in which some task waited for a CPU, percent (PSI `some avg10`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_pressure: Option<f64>,
    /// The same for memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_pressure: Option<f64>,
    /// Cores that the workers may use: the machine's, or fewer under a cgroup limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<f64>,
    /// The workers run on another machine, of which this says nothing.
    #[serde(default, skip_serializing_if = "is_false")]
    pub elsewhere: bool,
}

const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl HostReading {
    /// Itself, if each number is finite and a percentage where it must be one.
    ///
    /// # Errors
    /// That it is malformed.
    pub fn credible(&self) -> Result<&Self, Missing> {
        if self.is_credible() {
            return Ok(self);
        }
        Err(Missing { why: Silence::Malformed, detail: "a percentage is outside 0 to 100".into() })
    }

    /// Whether each number is finite and a percentage where it must be one.
    pub fn is_credible(&self) -> bool {
        let percent = |x: f64| (0.0..=100.0).contains(&x);
        let optional = [
            self.cpu_mean,
            self.steal,
            self.iowait,
            self.mem,
            self.cpu_pressure,
            self.mem_pressure,
        ];
        let cores = self.cores.is_none_or(|cores| cores.is_finite() && cores > 0.0);
        percent(self.cpu_raw) && optional.into_iter().flatten().all(percent) && cores
    }
}

/// What a target says of its workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FleetReading {
    /// Workers that run and can take jobs.
    pub ready: u32,
    /// Workers that were started and are not ready yet. They count as capacity.
    pub starting: u32,
    /// Workers that were told to go and finish their job. They do not count as capacity.
    #[serde(skip_serializing_if = "is_zero")]
    pub draining: u32,
    /// Workers that exist but take no jobs: crashed, restarting, stuck.
    #[serde(skip_serializing_if = "is_zero")]
    pub broken: u32,
    /// Workers that died by themselves soon after their start, since the last look.
    #[serde(skip_serializing_if = "is_zero")]
    pub died: u32,
    /// Ready and starting workers that hold a job; absent when nobody knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy: Option<u32>,
    /// The number the target itself aims at, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub desired: Option<u32>,
    /// The workers one by one, where the target can list them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<Worker>,
}

const fn is_zero(n: &u32) -> bool {
    *n == 0
}

impl FleetReading {
    /// Counts a list of workers. `busy` is known only if it is known of at least one worker;
    /// a worker of whom it is not known then counts as busy.
    pub fn of(workers: Vec<Worker>) -> Self {
        let count = |state| {
            u32::try_from(workers.iter().filter(|w| w.state == state).count()).unwrap_or(u32::MAX)
        };
        let capacity: Vec<_> = workers.iter().filter(|w| w.is_capacity()).collect();
        let mapped = capacity.iter().any(|w| w.busy.is_some());
        let busy = capacity.iter().filter(|w| w.busy != Some(false)).count();
        Self {
            ready: count(WorkerState::Ready),
            starting: count(WorkerState::Starting),
            draining: count(WorkerState::Draining),
            broken: count(WorkerState::Broken),
            died: 0,
            busy: mapped.then(|| u32::try_from(busy).unwrap_or(u32::MAX)),
            desired: None,
            workers,
        }
    }

    /// Workers that serve or soon will: ready + starting.
    pub const fn capacity(&self) -> u32 {
        self.ready.saturating_add(self.starting)
    }

    /// Workers that are there, also those that finish their last job.
    pub const fn online(&self) -> u32 {
        self.capacity().saturating_add(self.draining)
    }

    /// A reading that has a list and no counts gets its counts from the list.
    pub(crate) fn counted(self) -> Self {
        if self.workers.is_empty() || self.capacity() > 0 || self.draining > 0 || self.broken > 0 {
            return self;
        }
        let Self { died, busy, desired, workers, .. } = self;
        let counts = Self::of(workers);
        Self { died, busy: busy.or(counts.busy), desired, ..counts }
    }

    /// Itself, if its parts can all be true at once.
    ///
    /// # Errors
    /// Which parts contradict each other.
    pub fn credible(&self) -> Result<&Self, Missing> {
        let contradictory = |detail| Err(Missing { why: Silence::Contradictory, detail });
        let most = self.capacity().saturating_add(self.draining);
        if let Some(busy) = self.busy.filter(|busy| *busy > most) {
            return contradictory(format!("{busy} busy of {}", counted(most, "worker")));
        }
        let listed = self.workers.iter().filter(|w| w.is_capacity()).count();
        if listed > self.capacity() as usize {
            return contradictory(format!(
                "{listed} listed of {}",
                counted(self.capacity(), "worker")
            ));
        }
        match twice(&self.workers) {
            Some(id) => contradictory(format!("worker {id} is listed twice")),
            None => Ok(self),
        }
    }
}

/// A name that two workers have.
fn twice(workers: &[Worker]) -> Option<&str> {
    let mut names = workers.iter().map(|worker| worker.id.as_str());
    if workers.len() <= FEW {
        // Quicker than a set, and most lists are short.
        let before = |i: usize, id: &str| workers[..i].iter().any(|w| w.id == id);
        return names.enumerate().find(|(i, id)| before(*i, id)).map(|(_, id)| id);
    }
    let mut seen = HashSet::with_capacity(workers.len());
    names.find(|id| !seen.insert(*id))
}

/// One worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// The target's own name for it: container id, pod name, process id.
    pub id: String,
    /// Where it is in its life.
    pub state: WorkerState,
    /// Whether it holds a job; absent when nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy: Option<bool>,
    /// When it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    /// What it runs: image, version or configuration hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl Worker {
    /// Whether it serves or soon will.
    pub const fn is_capacity(&self) -> bool {
        matches!(self.state, WorkerState::Ready | WorkerState::Starting)
    }
}

/// Where a worker is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Started, not ready yet.
    Starting,
    /// Takes jobs.
    Ready,
    /// Told to go, finishing its job.
    Draining,
    /// Gone, its remains still listed.
    Stopped,
    /// Exists but takes no jobs.
    Broken,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(state: WorkerState, busy: Option<bool>) -> Worker {
        Worker { id: "w".into(), state, busy, started_at: None, version: None }
    }

    #[test]
    fn a_worker_nobody_can_vouch_for_counts_as_busy() {
        let fleet = FleetReading::of(vec![
            worker(WorkerState::Ready, Some(false)),
            worker(WorkerState::Ready, None),
            worker(WorkerState::Draining, Some(true)),
        ]);
        assert_eq!((fleet.capacity(), fleet.draining, fleet.busy), (2, 1, Some(1)));
    }

    #[test]
    fn without_any_busy_sign_busy_is_unknown() {
        assert_eq!(FleetReading::of(vec![worker(WorkerState::Ready, None)]).busy, None);
    }

    #[test]
    fn an_old_answer_is_missing() {
        let at = Timestamp::from_millis(0);
        let reading = Reading::known(1, at);
        let ninety = Span::from_secs(90);
        assert!(reading.fresh(at.plus(ninety), ninety).is_ok());
        let late = at.plus(Span::from_secs(91));
        assert_eq!(reading.fresh(late, ninety).unwrap_err().why, Silence::Stale);
        let clock_went_back = at.plus(Span::from_secs(-91));
        assert_eq!(reading.fresh(clock_went_back, ninety).unwrap_err().why, Silence::Stale);
    }

    #[test]
    fn what_cannot_be_true_is_not_believed() {
        let fleet = |ready, draining, busy| FleetReading {
            ready,
            draining,
            busy: Some(busy),
            ..FleetReading::default()
        };
        assert!(fleet(2, 1, 3).credible().is_ok());
        assert_eq!(fleet(2, 1, 4).credible().unwrap_err().why, Silence::Contradictory);
        let listed = vec![worker(WorkerState::Ready, None), worker(WorkerState::Draining, None)];
        let twice = FleetReading::of(listed).credible().unwrap_err().to_string();
        assert_eq!(twice, "contradictory: worker w is listed twice");
        let listed = vec![worker(WorkerState::Ready, None), worker(WorkerState::Ready, None)];
        let one = FleetReading { ready: 1, workers: listed, ..FleetReading::default() };
        assert_eq!(one.credible().unwrap_err().to_string(), "contradictory: 2 listed of 1 worker");
        let host = |cpu_raw| HostReading { cpu_raw, ..HostReading::default() };
        assert!(host(100.0).credible().is_ok());
        for cpu in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
            assert_eq!(host(cpu).credible().unwrap_err().why, Silence::Malformed, "{cpu}");
        }
    }
}
