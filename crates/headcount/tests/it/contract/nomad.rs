//! The contract with a stand-in for Nomad.

use std::time::Duration;

use async_trait::async_trait;
use headcount::targets::nomad::NomadConfig;
use headcount::targets::{Target, TargetConfig};
use tempfile::TempDir;

use super::door::Door;
use super::{Fault, Rig, contract};
use crate::support::nomad_api::{GROUP, JOB, NomadApi};
use crate::support::workers::place;

struct Allocations {
    folder: TempDir,
    nomad: NomadApi,
    door: Door,
}

impl Allocations {
    async fn new() -> Self {
        let nomad = NomadApi::start().await;
        // A stop that belongs to a count comes before its evaluation.
        nomad.world().commit = Duration::from_millis(500);
        let door = Door::before(nomad.address).await;
        Self { folder: tempfile::tempdir().unwrap(), nomad, door }
    }
}

#[async_trait]
impl Rig for Allocations {
    fn open(&self) -> Box<dyn Target> {
        let config = NomadConfig {
            job: JOB.into(),
            group: GROUP.into(),
            address: Some(format!("http://{}", self.door.address())),
            ..NomadConfig::default()
        };
        assert_eq!(config.problems(), []);
        TargetConfig::Nomad(config).open(&place(self.folder.path(), "g")).unwrap()
    }

    async fn really(&mut self) -> Vec<String> {
        self.nomad.running()
    }

    async fn set_outside(&mut self, n: u32) -> bool {
        self.nomad.set_count(n);
        true
    }

    async fn break_it(&mut self, fault: Fault) -> bool {
        self.door.set_undivided(fault).await
    }

    async fn mend(&mut self) {
        self.door.set(None).await;
    }

    async fn busy(&mut self, ids: &[String]) -> bool {
        self.nomad.world().jobs.extend(ids.iter().cloned());
        true
    }

    async fn finish(&mut self, ids: &[String]) {
        self.nomad.world().jobs.retain(|id| !ids.contains(id));
    }

    async fn start_slowly(&mut self) -> bool {
        self.nomad.world().slow_start = true;
        true
    }

    async fn cripple(&mut self, id: &str) -> bool {
        let mut world = self.nomad.world();
        let alloc = world.allocs.iter_mut().find(|alloc| alloc.id == id).expect("it is there");
        alloc.healthy = Some(false);
        true
    }
}

contract!(Allocations::new().await);
