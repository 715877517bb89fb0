//! The ECS target, against a stand-in whose scheduler honours protection, moto and ministack.

mod checks;
mod failures;
mod protection;
mod status;

use std::collections::HashMap;

use headcount::targets::ecs::EcsConfig;
use headcount::targets::{Order, Target, TargetConfig};
use headcount_core::Span;

use crate::support::ecs_api::EcsApi;
use crate::support::looks::{look, settled};
use crate::support::workers::{order, place};

/// Opened as a configuration opens it, with its memory in `folder`.
fn open_in(config: &EcsConfig, folder: &std::path::Path) -> Box<dyn Target> {
    assert_eq!(config.problems(), []);
    TargetConfig::Ecs(config.clone()).open(&place(folder, "g")).unwrap()
}

fn open(config: &EcsConfig) -> Box<dyn Target> {
    open_in(config, &tempfile::tempdir().unwrap().keep())
}

/// This many tasks that run, and a target that has seen them.
async fn running(count: u32) -> (EcsApi, Box<dyn Target>) {
    let api = EcsApi::start(count).await;
    let mut target = open(&api.config());
    settled(&mut target, count).await;
    (api, target)
}

/// An order to shrink: these are busy, all others are idle and may go.
fn shrink(api: &EcsApi, to: u32, busy: &[String]) -> Order {
    let names = api.world().staying();
    let marks = busy_map(busy);
    let idle: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !marks.contains_key(*name)).collect();
    let from = u32::try_from(names.len()).unwrap();
    Order { busy: marks, ..order(from, to, &idle) }
}

fn busy_map(busy: &[String]) -> HashMap<String, Option<Span>> {
    busy.iter().map(|id| (id.clone(), Some(Span::from_secs(7)))).collect()
}

/// Six tasks of which the three youngest are busy: left alone, these would go.
async fn six_of_which_three_are_busy() -> (EcsApi, Vec<String>) {
    let api = EcsApi::start(6).await;
    let busy: Vec<String> = api.world().staying().split_off(3);
    for id in &busy {
        api.world().task(id).busy = true;
    }
    (api, busy)
}
