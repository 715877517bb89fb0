//! What one look at a Windmill database brings, of all groups at once.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::era::Era;
use crate::limits::WINDMILL_ROWS;

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Snapshot {
    pub(super) era: Era,
    pub(super) base: Base,
    pub(super) waiting: Vec<Waiting>,
    pub(super) running: Vec<Running>,
    pub(super) workers: Vec<WorkerRow>,
    pub(super) groups: Vec<GroupRow>,
    /// Empty unless it was asked for.
    pub(super) resumable: Vec<Waiting>,
}

/// The database itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Base {
    /// Its clock, Unix time in seconds.
    pub(super) now: f64,
    /// Who we are there, quoted for SQL.
    pub(super) role: String,
    /// Whether it follows another server.
    pub(super) standby: bool,
    /// Of a standby: how old the last change is that it has followed, seconds.
    pub(super) behind: Option<f64>,
    /// Tables of which row-level security may hide rows.
    pub(super) hidden: Vec<String>,
}

/// Jobs of one tag that do not run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    pub(super) tag: String,
    pub(super) waiting: u64,
    /// Due, but sent back by a concurrency gate.
    pub(super) held: u64,
    pub(super) later: u64,
    /// How long the oldest has been due, seconds.
    pub(super) oldest: Option<f64>,
}

/// A job that is marked as running and not suspended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Running {
    /// More than one row has it where it is not certain who runs it.
    pub(super) id: String,
    pub(super) tag: String,
    /// Who took it.
    pub(super) worker: Option<String>,
    /// Whether anything is known of its run.
    pub(super) known: bool,
    /// Since when it runs, seconds.
    pub(super) age: Option<f64>,
    /// How long ago its worker said that it runs, seconds; never, for a flow whose steps run.
    pub(super) ping: Option<f64>,
}

/// One worker, as it told of itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct WorkerRow {
    pub(super) worker: String,
    /// The name of its host: of a pod or container.
    pub(super) instance: String,
    pub(super) group: String,
    pub(super) tags: Vec<String>,
    pub(super) native: bool,
    /// How long ago it told, seconds.
    pub(super) ping: f64,
    /// How long ago it was started, seconds.
    pub(super) up: f64,
    /// Jobs that it has done since.
    pub(super) executed: u64,
    /// The share of time in which it was busy over 15 s, 5 min and 30 min, from 0 to 1.
    pub(super) rates: [Option<f64>; 3],
}

/// What was set up for a worker group; JSON as a user may have written it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct GroupRow {
    pub(super) name: String,
    pub(super) worker_tags: Value,
    pub(super) dedicated_workers: Value,
    pub(super) dedicated_worker: Value,
    pub(super) custom_tags: Value,
    /// Windmill's own autoscaling is switched on.
    pub(super) autoscaling: Option<bool>,
}

impl Snapshot {
    /// From the rows that [`Era::look`] brings.
    ///
    /// # Errors
    /// What makes no sense.
    pub(super) fn parse(era: &Era, rows: &[String]) -> Result<Self, String> {
        let mut rows = rows.iter();
        let mut next = |what| rows.next().ok_or_else(|| format!("no answer about {what}"));
        let snapshot = Self {
            era: era.clone(),
            base: parsed("itself", next("itself")?)?,
            waiting: parsed("waiting jobs", next("waiting jobs")?)?,
            running: parsed("running jobs", next("running jobs")?)?,
            workers: parsed("workers", next("workers")?)?,
            groups: parsed("worker groups", next("worker groups")?)?,
            resumable: rows.next().map_or(Ok(Vec::new()), |row| parsed("suspended jobs", row))?,
        };
        for (what, count) in
            [("running jobs", snapshot.running.len()), ("workers", snapshot.workers.len())]
        {
            if count > WINDMILL_ROWS {
                return Err(format!("more than {WINDMILL_ROWS} {what}"));
            }
        }
        Ok(snapshot)
    }

    /// The workers of a group, however old their last word.
    pub(super) fn workers_of<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a WorkerRow> {
        self.workers.iter().filter(move |worker| worker.group == group)
    }

    /// All groups that are set up or have workers, in alphabetical order.
    pub(super) fn group_names(&self) -> Vec<&str> {
        let set_up = self.groups.iter().map(|group| group.name.as_str());
        let mut names: Vec<_> =
            set_up.chain(self.workers.iter().map(|worker| worker.group.as_str())).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn parsed<T: DeserializeOwned>(what: &str, row: &str) -> Result<T, String> {
    serde_json::from_str(row).map_err(|error| format!("the answer about {what}: {error}"))
}
