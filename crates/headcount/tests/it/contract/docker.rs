//! The contract with the containers of a Docker daemon.

use std::path::PathBuf;

use async_trait::async_trait;
use headcount::targets::Target;
use headcount::targets::docker::DockerConfig;
use headcount_core::Span;

use super::door::{Door, Place};
use super::{Fault, Rig, contract};
use crate::support::docker::{CAREFUL, Containers};

/// A group of containers.
struct Docker {
    all: Containers,
    door: Door,
    ready_after: Span,
}

impl Docker {
    async fn new() -> Self {
        let all = Containers::new();
        std::fs::create_dir(all.folder.path().join("jobs")).unwrap();
        let daemon = all.docker.host.strip_prefix("unix://").expect("it has a socket");
        let (front, back) = (all.folder.path().join("door.sock"), PathBuf::from(daemon));
        let door = Door::open(Place::Unix(front), Place::Unix(back)).await;
        Self { all, door, ready_after: Span::ZERO }
    }

    fn job(&self, id: &str) -> PathBuf {
        self.all.folder.path().join("jobs").join(&id[..12])
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
        self.all.docker.ask(&["pause", id]);
        true
    }
}

contract!(Docker::new().await);
