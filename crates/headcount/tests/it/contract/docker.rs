//! The contract with the containers of a Docker daemon.

use async_trait::async_trait;
use headcount::targets::Target;
use headcount::targets::docker::DockerConfig;
use headcount_core::Span;

use super::door::Door;
use super::{Fault, Rig, contract};
use crate::support::docker::{CAREFUL, Containers, Jobs};

/// A group of containers.
struct Docker {
    all: Containers,
    jobs: Jobs,
    door: Door,
    ready_after: Span,
}

impl Docker {
    async fn new() -> Self {
        let all = Containers::new();
        let jobs = Jobs::new(all.folder.path());
        let door = Door::before_docker(&all.docker, all.folder.path()).await;
        Self { all, jobs, door, ready_after: Span::ZERO }
    }
}

#[async_trait]
impl Rig for Docker {
    fn open(&self) -> Box<dyn Target> {
        let config = DockerConfig {
            host: Some(self.door.address()),
            mounts: vec!["./jobs:/jobs".into()],
            ready_after: self.ready_after,
            grace: Span::from_secs(300),
            ..self.all.config(CAREFUL)
        };
        self.all.open(&config)
    }

    async fn really(&mut self) -> Vec<String> {
        self.all.running()
    }

    /// Somebody who stops workers, and who starts some by hand under our label.
    async fn set_outside(&mut self, n: u32) -> bool {
        let there = self.all.running();
        for id in there.iter().skip(n as usize) {
            self.all.docker.ask(&["rm", "-f", id]);
        }
        let label = format!("headcount.group={}", self.all.group);
        for _ in there.len()..n as usize {
            let run = ["run", "-d", "--network", "none", "-l", &label, "bb:1", "sh", "-c"];
            let script = CAREFUL.replace("$$", "$");
            self.all.docker.ask(&[&run[..], &[&script]].concat());
        }
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
        self.all.docker.ask(&["pause", id]);
        true
    }
}

contract!(Docker::new().await);
