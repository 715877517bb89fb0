//! The contract with a Docker daemon and Compose.

use async_trait::async_trait;
use headcount::targets::Target;
use headcount::targets::compose::ComposeConfig;
use headcount_core::Span;

use super::door::Door;
use super::{Fault, Rig, contract};
use crate::support::docker::{CAREFUL, Jobs, Project};

/// A service of a project.
struct Compose {
    project: Project,
    jobs: Jobs,
    door: Door,
    ready_after: Span,
}

impl Compose {
    async fn new() -> Self {
        let project = Project::new(CAREFUL, "    volumes: [\"./jobs:/jobs\"]\n");
        let jobs = Jobs::new(project.folder.path());
        let door = Door::before_docker(&project.docker, project.folder.path()).await;
        Self { project, jobs, door, ready_after: Span::ZERO }
    }
}

#[async_trait]
impl Rig for Compose {
    fn open(&self) -> Box<dyn Target> {
        let config = ComposeConfig {
            docker_host: Some(self.door.address()),
            ready_after: self.ready_after,
            grace: Span::from_secs(300),
            up_timeout: Span::from_secs(60),
            ..self.project.config()
        };
        self.project.open(&config)
    }

    async fn really(&mut self) -> Vec<String> {
        let label = format!("label=com.docker.compose.project={}", self.project.name);
        let status = "status=running";
        let running = ["ps", "-q", "--no-trunc", "--filter", &label, "--filter", status];
        self.project.docker.ask(&running).lines().map(str::to_owned).collect()
    }

    async fn set_outside(&mut self, n: u32) -> bool {
        let scale = format!("worker={n}");
        self.project.compose(&["up", "-d", "--no-recreate", "--scale", &scale]);
        true
    }

    async fn break_it(&mut self, fault: Fault) -> bool {
        self.door.set(Some(fault)).await;
        true
    }

    async fn mend(&mut self) {
        self.door.set(None).await;
    }

    async fn busy(&mut self, ids: &[String]) -> bool {
        self.jobs.begin(ids);
        true
    }

    async fn finish(&mut self, ids: &[String]) {
        self.jobs.end(ids);
    }

    async fn start_slowly(&mut self) -> bool {
        self.ready_after = Span::from_hours(1);
        true
    }

    async fn cripple(&mut self, id: &str) -> bool {
        self.project.docker.ask(&["pause", id]);
        true
    }
}

contract!(Compose::new().await);
