//! What is written down of each worker process, so that the next run of Headcount finds it again,
//! also after a `kill -9` of this one: one small file each. Where the files are missing or could
//! not be written, the workers' own environment tells.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use headcount_core::Timestamp;
use serde::{Deserialize, Serialize};

use crate::hosts::processes::{self, Process};

/// The environment variable that holds a worker's id.
pub(super) const WORKER: &str = "HEADCOUNT_WORKER";
/// The environment variable that holds the group's name.
pub(super) const GROUP: &str = "HEADCOUNT_GROUP";
/// The environment variable that tells our workers from those of another Headcount: the folder
/// that the group's state is in.
pub(super) const FLEET: &str = "HEADCOUNT_FLEET";

/// One worker process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) id: String,
    /// The main process; its process group has the same number.
    pub(super) pid: u32,
    /// When the main process started, in clock ticks since the machine did.
    pub(super) started: u64,
    /// The run of the machine that `started` belongs to.
    pub(super) boot_id: String,
    pub(super) started_at: Timestamp,
    /// When it was told to go.
    pub(super) draining_since: Option<Timestamp>,
}

impl Record {
    /// The main process, while it runs. A process that got the same id later is not it.
    pub(super) fn leader(&self) -> Option<Process> {
        processes::running(self.pid, self.started)
    }

    /// Whether the main process has surely ended.
    pub(super) fn has_ended(&self) -> bool {
        processes::has_ended(self.pid, self.started)
    }

    /// The rest of its process group after the main process has ended. If nobody watched the end,
    /// the number may belong to somebody else by now: then the group must hold a process that the
    /// worker started.
    pub(super) fn leftovers(&self, watched: bool) -> Vec<Process> {
        if Process::find(self.pid).is_some_and(|p| p.runs()) {
            return Vec::new();
        }
        let mark = format!("{WORKER}={}", self.id);
        let members = processes::members(self.pid);
        let ours = watched || members.iter().any(|p| p.environment().contains(&mark));
        if ours { members } else { Vec::new() }
    }
}

/// The folder of the records.
#[derive(Clone, Debug)]
pub(super) struct Records(PathBuf);

impl Records {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// Writes or replaces one record: wholly or not at all.
    pub(super) fn write(&self, record: &Record) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.0)?;
        let draft = self.0.join(format!("{}.new", record.id));
        std::fs::write(&draft, serde_json::to_vec(record)?)?;
        std::fs::rename(&draft, self.file(&record.id))
    }

    /// Forgets a worker that is gone. A file that stays is told apart by its start time.
    pub(super) fn forget(&self, id: &str) {
        let _ = std::fs::remove_file(self.file(id));
    }

    /// Every record of this run of the machine.
    pub(super) fn read(&self) -> Vec<Record> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::NotFound => return Vec::new(),
            Err(e) => {
                tracing::debug!(folder = %self.0.display(), error = %e,
                    "the records of worker processes cannot be read");
                return Vec::new();
            }
        };
        let boot_id = processes::boot_id();
        let files = entries.flatten().map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|e| e == "json"));
        files.filter_map(|path| read_one(&path)).filter(|r| r.boot_id == boot_id).collect()
    }

    /// Whether something is written down of a worker, legible or not.
    pub(super) fn has(&self, id: &str) -> bool {
        self.file(id).exists()
    }

    fn file(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }
}

fn read_one(path: &Path) -> Option<Record> {
    let text = std::fs::read(path).ok()?;
    match serde_json::from_slice::<Record>(&text) {
        Ok(record) => Some(record),
        Err(e) => {
            tracing::debug!(file = %path.display(), error = %e,
                "the record of a worker process is damaged; its environment tells instead");
            None
        }
    }
}

/// The workers of this fleet that run, found by their environment. Of several processes with one
/// worker's id the oldest is the worker, the others are groups that it made itself.
pub(super) fn search(fleet: &str, now: Timestamp) -> Vec<Record> {
    let boot_id = processes::boot_id();
    let mut leaders: Vec<Process> =
        processes::all().into_iter().filter(|p| p.pid == p.group && p.runs()).collect();
    leaders.sort_by_key(|p| p.started);
    let mut found: Vec<Record> = Vec::new();
    let mark = format!("{FLEET}={fleet}");
    for leader in leaders {
        let environment = leader.environment();
        let id = environment.iter().find_map(|e| e.strip_prefix(WORKER)?.strip_prefix('='));
        let Some(id) = id.filter(|_| environment.contains(&mark)) else { continue };
        if found.iter().any(|r| r.id == id) {
            continue;
        }
        found.push(Record {
            id: id.to_owned(),
            pid: leader.pid,
            started: leader.started,
            boot_id: boot_id.clone(),
            started_at: leader.started_at(now),
            draining_since: None,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(id: &str, boot_id: &str) -> Record {
        Record {
            id: id.into(),
            pid: 4242,
            started: 99,
            boot_id: boot_id.into(),
            started_at: Timestamp::from_millis(1000),
            draining_since: Some(Timestamp::from_millis(2000)),
        }
    }

    #[test]
    fn records_come_back_except_damaged_ones_and_those_before_a_reboot() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().join("workers"));
        assert_eq!(records.read(), []);
        let now = record("now", &processes::boot_id());
        records.write(&now).unwrap();
        records.write(&record("before", "another boot")).unwrap();
        std::fs::write(folder.path().join("workers/cut.json"), "{\"id\":").unwrap();
        assert_eq!(records.read(), [now]);
        records.forget("now");
        assert_eq!(records.read(), []);
    }

    #[test]
    fn a_number_that_is_used_again_is_not_the_worker() {
        let mine = Process::find(std::process::id()).unwrap();
        let mut me = record("me", "");
        (me.pid, me.started) = (mine.pid, mine.started);
        assert_eq!(me.leader().map(|p| p.pid), Some(mine.pid));
        me.started += 1;
        assert_eq!(me.leader(), None);
        assert_eq!(me.leftovers(true), []);
    }
}
