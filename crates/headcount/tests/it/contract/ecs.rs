//! The contract with ECS: all of it with the stand-in whose scheduler honours protection; with moto,
//! which has services but no tasks, what can be told by numbers; with ministack, whose tasks are real
//! containers and whose scheduler protects nobody, what does not need that.

use async_trait::async_trait;
use headcount::targets::Target;
use headcount::targets::ecs::EcsConfig;
use serde_json::{Value, json};

use super::door::Door;
use super::{Fault, Rig};
use crate::support::ecs_api::world::Phase;
use crate::support::ecs_api::{EcsApi, write_key};
use crate::support::emulators::{Emulator, ask};
use crate::support::workers::place;

/// The stand-in.
struct StandIn {
    api: EcsApi,
    door: Door,
    folder: tempfile::TempDir,
}

impl StandIn {
    async fn new() -> Self {
        let api = EcsApi::start(0).await;
        let door = Door::before(api.address()).await;
        Self { api, door, folder: tempfile::tempdir().unwrap() }
    }
}

/// Opens it behind the door, with its memory in the folder.
fn open(config: &EcsConfig, door: &Door, folder: &tempfile::TempDir) -> Box<dyn Target> {
    let endpoint = Some(format!("http://{}", door.address()));
    let config = EcsConfig { endpoint, ..config.clone() };
    assert_eq!(config.problems(), []);
    config.open(&place(folder.path(), "g")).unwrap()
}

#[async_trait]
impl Rig for StandIn {
    fn open(&self) -> Box<dyn Target> {
        open(&self.api.config(), &self.door, &self.folder)
    }

    async fn really(&mut self) -> Vec<String> {
        let world = self.api.world();
        let there = world.tasks.iter().filter(|task| task.phase < Phase::Stopped);
        there.map(|task| task.id.clone()).collect()
    }

    async fn set_outside(&mut self, n: u32) -> bool {
        let mut world = self.api.world();
        world.desired = n;
        world.schedule();
        true
    }

    async fn break_it(&mut self, fault: Fault) -> bool {
        self.door.set_undivided(fault).await
    }

    async fn mend(&mut self) {
        self.door.set(None).await;
    }

    async fn busy(&mut self, ids: &[String]) -> bool {
        for id in ids {
            self.api.world().task(id).busy = true;
        }
        true
    }

    async fn finish(&mut self, ids: &[String]) {
        for id in ids {
            self.api.world().task(id).busy = false;
        }
    }

    async fn start_slowly(&mut self) -> bool {
        self.api.world().slow = true;
        true
    }

    async fn cripple(&mut self, id: &str) -> bool {
        self.api.world().task(id).healthy = false;
        true
    }
}

mod stand_in {
    super::super::contract!(super::StandIn::new().await);
}

/// A service of a cluster of its own in moto or ministack.
struct Emulated {
    emulator: Emulator,
    cluster: String,
    door: Door,
    folder: tempfile::TempDir,
}

impl Emulated {
    async fn new(emulator: Emulator) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_key(folder.path(), "AKIATEST");
        let cluster = emulator.service().await;
        let door = Door::before(emulator.address).await;
        Self { emulator, cluster, door, folder }
    }

    async fn ask(&self, action: &str, input: Value) -> Value {
        ask(self.emulator.address, action, &input).await
    }
}

#[async_trait]
impl Rig for Emulated {
    fn open(&self) -> Box<dyn Target> {
        let config = EcsConfig {
            cluster: self.cluster.clone(),
            service: "worker".into(),
            region: Some("eu-central-1".into()),
            credentials_file: Some(self.folder.path().join("credentials")),
            ..EcsConfig::default()
        };
        open(&config, &self.door, &self.folder)
    }

    async fn really(&mut self) -> Vec<String> {
        match self.emulator.docker() {
            Some(docker) => {
                let cluster = format!(
                    "label=com.amazonaws.ecs.cluster=arn:aws:ecs:eu-central-1:000000000000:cluster/{}",
                    self.cluster
                );
                let format = "{{.Label \"com.amazonaws.ecs.task-arn\"}}";
                let arns = docker.ask(&["ps", "--filter", &cluster, "--format", format]);
                let id = |arn: &str| arn.rsplit('/').next().unwrap().to_owned();
                arns.lines().map(id).collect()
            }
            None => {
                let input = json!({ "cluster": self.cluster, "services": ["worker"] });
                let answer = self.ask("DescribeServices", input).await;
                let count = answer["services"][0]["desiredCount"].as_u64().unwrap();
                (0..count).map(|n| format!("place {n}")).collect()
            }
        }
    }

    async fn set_outside(&mut self, n: u32) -> bool {
        let input = json!({ "cluster": self.cluster, "service": "worker", "desiredCount": n });
        self.ask("UpdateService", input).await;
        true
    }

    async fn break_it(&mut self, fault: Fault) -> bool {
        self.door.set_undivided(fault).await
    }

    async fn mend(&mut self) {
        self.door.set(None).await;
    }
}

/// All but the cases that need tasks that can be protected or hold jobs.
macro_rules! by_number {
    ($emulator:expr) => {
        super::super::contract!(super::Emulated::new($emulator).await;
            reaches_every_number_from_any,
            the_same_number_again_changes_nothing,
            down_is_no_answer_and_no_change,
            slow_is_no_answer_and_no_change,
            a_refusal_is_no_answer_and_no_change,
            a_failure_is_no_answer_and_no_change,
            what_somebody_else_does_is_seen_and_can_be_undone,
            check_finds_a_broken_back_end,
            a_dry_run_changes_nothing,
        );
        super::super::contract!(in group, super::Emulated::new($emulator).await;
            a_lost_lease_stops_everything,
            the_events_of_a_dry_run_are_marked,
            the_loop_recovers_from_an_outage,
        );
    };
}

mod moto {
    by_number!(crate::support::emulators::Emulator::moto());
}

mod ministack {
    by_number!(crate::support::emulators::Emulator::ministack());
}
