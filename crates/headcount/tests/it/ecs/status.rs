//! What a look shows, and what it costs.

use std::collections::HashSet;

use headcount::queues::Identity;
use headcount::targets::TargetError;
use headcount_core::reading::WorkerState;

use super::{look, open, running, settled, shrink};
use crate::support::ecs_api::EcsApi;
use crate::support::ecs_api::world::{Phase, SimTask};
use crate::support::wait::until;
use crate::support::workers::{ids, order};

#[tokio::test]
async fn the_number_goes_up_and_down_and_to_nothing() {
    let (api, mut target) = running(0).await;
    for (from, to) in [(0, 1), (1, 5), (5, 2), (2, 0), (0, 7), (7, 1)] {
        let order = if to < from { shrink(&api, to, &[]) } else { order(from, to, &[]) };
        target.scale(&order).await.unwrap();
        let again = target.scale(&order).await.unwrap();
        assert_eq!(again.note, format!("{to} are asked for already"));
        settled(&mut target, to).await;
        assert_eq!(look(&mut target).await.desired, Some(to));
    }
}

#[tokio::test]
async fn a_look_and_a_change_cost_two_requests_while_there_is_nothing_to_list() {
    let (api, mut target) = running(0).await;
    api.asked();
    for _ in 0..3 {
        look(&mut target).await;
    }
    assert_eq!(api.asked(), ["DescribeServices"; 3], "nothing runs");
    target.scale(&order(0, 2, &[])).await.unwrap();
    assert_eq!(api.asked(), ["UpdateService"]);
    settled(&mut target, 2).await;
    // It may have read the numbers just before they changed.
    look(&mut target).await;
    api.asked();
    for _ in 0..3 {
        look(&mut target).await;
    }
    assert_eq!(api.asked(), ["DescribeServices"; 3], "no number has changed");
    target.scale(&order(2, 3, &[])).await.unwrap();
    settled(&mut target, 3).await;
    let asked = api.asked();
    let count = |action: &str| asked.iter().filter(|asked| *asked == action).count();
    // One list for the new number, and one for each step of the task that starts.
    assert!((1..=4).contains(&count("DescribeTasks")), "{asked:?}");
    assert_eq!(count("ListTasks"), 2 * count("DescribeTasks"), "{asked:?}");
}

#[tokio::test]
async fn every_page_is_read_and_a_task_is_known_by_all_its_names() {
    let api = EcsApi::start(7).await;
    let mut target = open(&api.config());
    let seen = target.status().await.unwrap();
    let mut listed = ids(&seen, WorkerState::Ready);
    listed.sort_unstable();
    let staying = api.world().staying();
    assert_eq!(listed, staying);
    let names = &seen.known_as[&staying[0]];
    let host = |name: &str| Identity::Hostname(name.into());
    for name in [
        Identity::Name(staying[0].clone()),
        host("ip-10-0-0-2.eu-central-1.compute.internal"),
        host("ip-10-0-0-2"),
        Identity::Peer("10.0.0.2:0".parse().unwrap()),
        Identity::Container(format!("{}-3000000001", staying[0])),
    ] {
        assert!(names.contains(&name), "{name:?} in {names:?}");
    }
    let worker = seen.reading.workers.iter().find(|w| w.id == staying[0]).unwrap();
    assert_eq!(worker.version.as_deref(), Some("worker:1"));
}

#[tokio::test]
async fn each_state_is_told_and_a_task_that_goes_is_no_capacity() {
    let (api, mut target) = running(4).await;
    let all = api.world().staying();
    {
        let mut world = api.world();
        world.asleep = true;
        world.task(&all[0]).healthy = false;
        world.task(&all[1]).phase = Phase::Pending;
        world.slow = true;
        let task = world.task(&all[2]);
        (task.busy, task.stopping, task.stop_code) = (true, true, "UserInitiated");
    }
    until("it drains", async || look(&mut target).await.draining == 1).await;
    let seen = target.status().await.unwrap();
    assert_eq!(ids(&seen, WorkerState::Starting), [all[1].as_str()]);
    assert_eq!(ids(&seen, WorkerState::Draining), [all[2].as_str()]);
    assert_eq!(ids(&seen, WorkerState::Ready), [all[3].as_str()]);
    // One place of the four is not filled again yet.
    let now = &seen.reading;
    assert_eq!((now.ready, now.starting, now.draining, now.broken), (1, 2, 1, 1));
    // A new Headcount sees the one that drains too.
    let now = look(&mut open(&api.config())).await;
    assert_eq!((now.capacity(), now.draining), (3, 1));
}

#[tokio::test]
async fn what_dies_young_is_counted_once_and_what_cannot_be_placed_is_broken() {
    let api = EcsApi::start(3).await;
    let mut target = open(&api.config());
    let all = api.world().staying();
    api.world().crash(&all[0], 1.0);
    assert_eq!(look(&mut target).await.died, 0, "it may have died long ago");
    settled(&mut target, 3).await;
    api.world().crash(&all[1], 2.0);
    let mut died = 0;
    until("a death", async || {
        died += look(&mut target).await.died;
        died > 0
    })
    .await;
    settled(&mut target, 3).await;
    api.world().crash(&all[2], 3_600.0);
    settled(&mut target, 3).await;
    assert_eq!(died + look(&mut target).await.died, 1, "the other one lived long");
    {
        let mut world = api.world();
        world.full = true;
        world.events.push(
            "(service worker) was unable to place a task because no container \
                           instance met all of its requirements."
                .into(),
        );
    }
    target.scale(&order(3, 5, &[])).await.unwrap();
    let now = look(&mut target).await;
    assert_eq!((now.ready, now.starting, now.broken), (3, 0, 2));
    let error = target.scale(&order(3, 4, &[])).await.unwrap_err();
    assert!(matches!(error, TargetError::NotNow { .. }), "room may come: {error:?}");
    let error = error.to_string();
    assert!(
        error.contains("5 are asked for already") && error.contains("unable to place"),
        "{error}"
    );
}

#[tokio::test]
async fn a_thousand_tasks_are_all_read() {
    let api = EcsApi::start(1_000).await;
    // As many as the API puts into one page.
    api.world().page = 100;
    let mut target = open(&api.config());
    let seen = target.status().await.unwrap();
    let ids: HashSet<&str> = seen.reading.workers.iter().map(|w| w.id.as_str()).collect();
    assert_eq!((seen.reading.ready, ids.len()), (1_000, 1_000));
    let described = api.asked().iter().filter(|asked| *asked == "DescribeTasks").count();
    assert_eq!(described, 10);
}

#[tokio::test]
async fn several_deployments_count_once() {
    let (api, mut target) = running(3).await;
    {
        // A rollout starts its own tasks beside the old ones.
        let mut world = api.world();
        (world.asleep, world.slow, world.deployment) = (true, false, 2);
        let new = |n: u32| SimTask {
            id: format!("{n:032x}"),
            number: 100 + n,
            deployment: 2,
            phase: Phase::Running,
            ..world.tasks[0].clone()
        };
        let new: Vec<SimTask> = (0..2).map(new).collect();
        world.tasks.extend(new);
    }
    let now = look(&mut target).await;
    assert_eq!((now.capacity(), now.draining, now.desired), (3, 2, Some(3)), "{now:?}");
    let seen = target.status().await.unwrap();
    let version = |state| {
        let all = seen.reading.workers.iter().filter(|w| w.state == state);
        let mut all: Vec<_> = all.map(|w| w.version.clone().unwrap()).collect();
        all.sort();
        all
    };
    assert_eq!(version(WorkerState::Ready), ["worker:1", "worker:2", "worker:2"]);
    assert_eq!(version(WorkerState::Draining), ["worker:1", "worker:1"], "the old ones go");
}

#[tokio::test]
async fn what_somebody_else_did_is_seen_and_not_overwritten_blindly() {
    let (api, mut target) = running(2).await;
    api.world().desired = 4;
    settled(&mut target, 4).await;
    let error = target.scale(&order(2, 3, &[])).await.unwrap_err().to_string();
    assert_eq!(error, "contradiction: there are 4 workers already, decided for 2");
    assert_eq!(api.world().desired, 4);
}
