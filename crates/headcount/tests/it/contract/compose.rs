//! The contract with a Docker daemon and Compose.

use std::path::PathBuf;

use async_trait::async_trait;
use headcount::targets::Target;
use headcount::targets::compose::ComposeConfig;
use headcount_core::Span;

use super::door::{Door, Place};
use super::{Fault, Rig, contract};
use crate::support::docker::{CAREFUL, Project};

/// A service of a project.
struct Compose {
    project: Project,
    door: Door,
    ready_after: Span,
}

impl Compose {
    async fn new() -> Self {
        let project = Project::new(CAREFUL, "    volumes: [\"./jobs:/jobs\"]\n");
        std::fs::create_dir(project.path("jobs")).unwrap();
        let daemon = project.docker.host.strip_prefix("unix://").expect("it has a socket");
        let (front, back) = (project.path("door.sock"), PathBuf::from(daemon));
        let door = Door::open(Place::Unix(front), Place::Unix(back)).await;
        Self { project, door, ready_after: Span::ZERO }
    }

    fn job(&self, id: &str) -> PathBuf {
        self.project.path(&format!("jobs/{}", &id[..12]))
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
        for id in ids {
            std::fs::write(self.job(id), "").unwrap();
        }
        true
    }

    async fn finish(&mut self, ids: &[String]) {
        for id in ids {
            let _ = std::fs::remove_file(self.job(id));
        }
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
