//! Orders to a target, and the processes of a `process` target's workers.

use std::path::Path;

use headcount::config::Place;
use headcount::hosts::processes::{self, Process};
use headcount::queues::Identity;
use headcount::targets::process::ProcessConfig;
use headcount::targets::{FleetSeen, Order, Target, TargetConfig};
use headcount_core::Kind;
use headcount_core::reading::{Worker, WorkerState};
use rustix::process::Signal;
use tempfile::TempDir;

/// A folder of a `process` target. What still runs of its workers ends with it.
pub struct WorkersFolder(TempDir);

impl WorkersFolder {
    /// An empty one.
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for WorkersFolder {
    fn drop(&mut self) {
        for process in processes_of(self.path()) {
            processes::signal(process.pid, process.started, Signal::KILL);
        }
    }
}

/// Where a connector of the group `group` is, with everything below `folder`.
pub fn place(folder: &Path, group: &str) -> Place {
    let state_dir = folder.join("state").join(group);
    Place { group: group.into(), state_dir, base_dir: folder.into() }
}

/// An order to go from one number to another, with the workers that may go.
pub fn order(from: u32, to: u32, victims: &[&str]) -> Order {
    Order {
        busy: <_>::default(),
        group: "g".into(),
        from,
        to,
        max: 10_000,
        victims: victims.iter().map(|v| (*v).to_string()).collect(),
        kind: if to > from { Kind::ScaleOut } else { Kind::ScaleIn },
        reason: "a test says so".into(),
        token: 1,
    }
}

/// Workers that run a shell script.
pub fn shell(script: &str) -> ProcessConfig {
    let command = ["sh", "-c", script].map(String::from).to_vec();
    ProcessConfig { command, ..ProcessConfig::default() }
}

/// A `process` target of the group `g` in `folder`.
pub fn open(config: &ProcessConfig, folder: &Path) -> Box<dyn Target> {
    TargetConfig::Process(config.clone())
        .open(&place(folder, "g"))
        .expect("nothing is read at this time")
}

/// The ids of the workers that are in this state.
pub fn ids(seen: &FleetSeen, state: WorkerState) -> Vec<&str> {
    let workers = seen.reading.workers.iter().filter(|w| w.state == state);
    workers.map(|w: &Worker| w.id.as_str()).collect()
}

/// In an order of their own: the lists of some targets have none.
pub fn sorted<T: Ord>(ids: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut ids: Vec<T> = ids.into_iter().collect();
    ids.sort();
    ids
}

/// The process group of a worker.
pub fn group_of(seen: &FleetSeen, id: &str) -> u32 {
    let found = seen.known_as[id].iter().find_map(|name| match name {
        Identity::Process(pid) => Some(*pid),
        _ => None,
    });
    found.expect("a worker process is known by its process")
}

/// The processes that run in the state folder below `folder`, told by their environment.
pub fn processes_of(folder: &Path) -> Vec<Process> {
    let mark = format!("HEADCOUNT_FLEET={}", folder.join("state").join("g").display());
    processes::all().into_iter().filter(|p| p.runs() && p.environment().contains(&mark)).collect()
}
