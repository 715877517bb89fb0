//! The contract with child processes.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use headcount::hosts::processes;
use headcount::targets::Target;
use headcount::targets::process::ProcessConfig;
use headcount_core::Span;
use rustix::process::Signal;

use super::cases::PATIENCE;
use super::{Fault, Rig, contract};
use crate::support::workers::{WorkersFolder, open, order, processes_of};

/// A worker that finishes its job first when it is told to go.
const WORKER: &str = "#!/bin/sh
trap 'while [ -e job-$HEADCOUNT_WORKER ]; do sleep 0.1; done; exit 0' TERM
touch up-$HEADCOUNT_WORKER
while :; do sleep 3600 & wait $!; done
";

/// A folder with the program of the workers.
struct Processes {
    folder: WorkersFolder,
    ready_after: Span,
}

impl Processes {
    fn new() -> Self {
        let rig = Self { folder: WorkersFolder::new(), ready_after: Span::ZERO };
        rig.write_worker(0o755);
        rig
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Renamed into place: a file that is written cannot be run.
    fn write_worker(&self, mode: u32) {
        std::fs::write(self.path("new.sh"), WORKER).unwrap();
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(self.path("new.sh"), mode).unwrap();
        std::fs::rename(self.path("new.sh"), self.path("worker.sh")).unwrap();
    }
}

fn workers(folder: &Path) -> Vec<(String, processes::Process)> {
    let leaders = processes_of(folder).into_iter().filter(|p| p.pid == p.group);
    let named = leaders.filter_map(|p| {
        let environment = p.environment();
        let id = environment.iter().find_map(|v| v.strip_prefix("HEADCOUNT_WORKER="))?.to_owned();
        Some((id, p))
    });
    named.collect()
}

#[async_trait]
impl Rig for Processes {
    fn open(&self) -> Box<dyn Target> {
        let config = ProcessConfig {
            command: vec!["./worker.sh".into()],
            grace: Span::from_secs(300),
            ready_after: self.ready_after,
            ..ProcessConfig::default()
        };
        open(&config, self.folder.path())
    }

    async fn really(&mut self) -> Vec<String> {
        workers(self.folder.path()).into_iter().map(|(id, _)| id).collect()
    }

    /// By another run of Headcount, or by hand.
    async fn set_outside(&mut self, n: u32) -> bool {
        let there = workers(self.folder.path());
        let from = u32::try_from(there.len()).unwrap();
        for (_, worker) in there.iter().skip(n as usize) {
            processes::signal_group(worker.pid, Signal::KILL);
        }
        if n > from {
            self.open().scale(&order(from, n, &[])).await.unwrap();
        }
        true
    }

    async fn break_it(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Down => std::fs::remove_file(self.path("worker.sh")).unwrap(),
            Fault::Refuses => self.write_worker(0o644),
            // There is nobody who could be slow, and programs start or do not.
            Fault::Slow | Fault::Fails | Fault::HalfDone => return false,
        }
        true
    }

    async fn mend(&mut self) {
        self.write_worker(0o755);
    }

    async fn busy(&mut self, ids: &[String]) -> bool {
        for id in ids {
            std::fs::write(self.path(&format!("job-{id}")), "").unwrap();
            // Before it has set its trap it ends at once.
            let start = Instant::now();
            while !self.path(&format!("up-{id}")).exists() {
                assert!(start.elapsed() < PATIENCE, "{id} is never up");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        true
    }

    async fn finish(&mut self, ids: &[String]) {
        for id in ids {
            let _ = std::fs::remove_file(self.path(&format!("job-{id}")));
        }
    }

    async fn start_slowly(&mut self) -> bool {
        self.ready_after = Span::from_hours(1);
        true
    }

    async fn cripple(&mut self, id: &str) -> bool {
        let there = workers(self.folder.path());
        let worker = there.iter().find(|(worker, _)| worker == id).expect("it runs");
        processes::signal_group(worker.1.pid, Signal::STOP);
        true
    }
}

contract!(Processes::new());
