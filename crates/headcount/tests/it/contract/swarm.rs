//! The contract with a service of a Docker Swarm.

use std::collections::HashMap;
use std::path::PathBuf;

use async_trait::async_trait;
use headcount::targets::Target;
use headcount::targets::swarm::SwarmConfig;
use headcount_core::Span;

use super::door::{Door, Place};
use super::{Fault, Rig, contract};
use crate::support::docker::{CAREFUL, SwarmService};

/// A service.
struct Swarm {
    service: SwarmService,
    folder: tempfile::TempDir,
    door: Door,
    ready_after: Span,
    /// The file that says that a task holds a job: its container may be gone by the time it ends.
    jobs: HashMap<String, PathBuf>,
}

impl Swarm {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("no temporary folder");
        let jobs = folder.path().join("jobs");
        std::fs::create_dir(&jobs).unwrap();
        let mount = format!("type=bind,source={},target=/jobs", jobs.display());
        let service = SwarmService::with(
            CAREFUL,
            &["--replicas", "0", "--stop-grace-period", "300s", "--mount", &mount],
        );
        let daemon = service.docker.host.strip_prefix("unix://").expect("it has a socket");
        let (front, back) = (folder.path().join("door.sock"), PathBuf::from(daemon));
        let door = Door::open(Place::Unix(front), Place::Unix(back)).await;
        Self { service, folder, door, ready_after: Span::ZERO, jobs: HashMap::new() }
    }

    fn job(&self, task: &str) -> PathBuf {
        let container = self.service.container(task);
        self.folder.path().join("jobs").join(&container[..12])
    }
}

#[async_trait]
impl Rig for Swarm {
    fn open(&self) -> Box<dyn Target> {
        let config = SwarmConfig {
            host: Some(self.door.address()),
            ready_after: self.ready_after,
            ..self.service.config()
        };
        self.service.open(&config)
    }

    async fn really(&mut self) -> Vec<String> {
        let label = format!("label=com.docker.swarm.service.name={}", self.service.name);
        let task = "{{.Label \"com.docker.swarm.task.id\"}}";
        let running = ["ps", "--format", task, "--filter", &label, "--filter", "status=running"];
        self.service.docker.ask(&running).lines().map(str::to_owned).collect()
    }

    async fn set_outside(&mut self, n: u32) -> bool {
        self.service.set(n);
        true
    }

    /// A change is one request: it cannot be half done.
    async fn break_it(&mut self, fault: Fault) -> bool {
        if fault == Fault::HalfDone {
            return false;
        }
        self.door.set(Some(fault)).await;
        true
    }

    async fn mend(&mut self) {
        self.door.set(None).await;
    }

    async fn busy(&mut self, ids: &[String]) -> bool {
        for id in ids {
            let job = self.job(id);
            std::fs::write(&job, "").unwrap();
            self.jobs.insert(id.clone(), job);
        }
        true
    }

    async fn finish(&mut self, ids: &[String]) {
        for id in ids {
            if let Some(job) = self.jobs.remove(id) {
                let _ = std::fs::remove_file(job);
            }
        }
    }

    async fn start_slowly(&mut self) -> bool {
        self.ready_after = Span::from_hours(1);
        true
    }

    fn picks_blindly(&self) -> bool {
        true
    }
}

contract!(Swarm::new().await);
