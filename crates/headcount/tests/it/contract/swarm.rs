//! The contract with a service of a Docker Swarm.

use std::collections::HashMap;

use async_trait::async_trait;
use headcount::targets::Target;
use headcount::targets::swarm::SwarmConfig;
use headcount_core::Span;

use super::door::Door;
use super::{Fault, Rig, contract};
use crate::support::docker::{CAREFUL, Jobs, SwarmService};

/// A service.
struct Swarm {
    service: SwarmService,
    _folder: tempfile::TempDir,
    jobs: Jobs,
    door: Door,
    ready_after: Span,
    /// The containers of tasks that hold a job: one may be gone by the time its job ends.
    busy: HashMap<String, String>,
}

impl Swarm {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("no temporary folder");
        let jobs = Jobs::new(folder.path());
        let mount = format!("type=bind,source={}/jobs,target=/jobs", folder.path().display());
        let service = SwarmService::with(
            CAREFUL,
            &["--replicas", "0", "--stop-grace-period", "300s", "--mount", &mount],
        );
        let door = Door::before_docker(&service.docker, folder.path()).await;
        let (ready_after, busy) = (Span::ZERO, HashMap::new());
        Self { service, _folder: folder, jobs, door, ready_after, busy }
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

    async fn break_it(&mut self, fault: Fault) -> bool {
        self.door.set_undivided(fault).await
    }

    async fn mend(&mut self) {
        self.door.set(None).await;
    }

    async fn busy(&mut self, ids: &[String]) -> bool {
        let containers: Vec<String> = ids.iter().map(|id| self.service.container(id)).collect();
        self.jobs.begin(&containers);
        self.busy.extend(ids.iter().cloned().zip(containers));
        true
    }

    async fn finish(&mut self, ids: &[String]) {
        let containers: Vec<String> = ids.iter().filter_map(|id| self.busy.remove(id)).collect();
        self.jobs.end(&containers);
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
