//! Busy tasks are protected before the number is lowered, and released when their job is done.

use std::collections::HashSet;

use headcount::targets::{Order, TargetError};
use headcount_core::Kind;

use super::{busy_map, look, open, open_in, settled, shrink, six_of_which_three_are_busy};
use crate::support::ecs_api::Fault;
use crate::support::wait::until;
use crate::support::workers::{order, sorted};

#[tokio::test]
async fn three_busy_ones_of_six_stay() {
    let (api, busy) = six_of_which_three_are_busy().await;
    let mut target = open(&api.config());
    settled(&mut target, 6).await;
    api.asked();
    let order = shrink(&api, 3, &busy);
    let scaled = target.scale(&order).await.unwrap();
    assert_eq!(api.asked(), ["UpdateTaskProtection", "UpdateService"], "protected first");
    assert_eq!(sorted(scaled.removed), sorted(order.victims));
    assert!(scaled.note.ends_with(" will go"), "{}", scaled.note);
    settled(&mut target, 3).await;
    assert_eq!(api.world().staying(), busy);

    // Released when the job is done, not before.
    target.watch_over(&busy_map(&busy)).await;
    assert_eq!(api.world().protected(), busy);
    target.watch_over(&busy_map(&busy[1..])).await;
    assert_eq!(api.world().protected(), busy[1..]);
    target.watch_over(&busy_map(&[])).await;
    assert_eq!(api.world().protected(), [""; 0]);
    api.asked();
    target.watch_over(&busy_map(&busy)).await;
    assert_eq!(api.asked(), [""; 0], "nobody is to go: nobody needs protection");
}

#[tokio::test]
async fn a_job_that_comes_while_ecs_still_picks_is_safe_too() {
    let (api, busy) = six_of_which_three_are_busy().await;
    let mut target = open(&api.config());
    settled(&mut target, 6).await;
    api.world().asleep = true;
    target.scale(&shrink(&api, 5, &busy)).await.unwrap();
    look(&mut target).await;
    // The one that would go first takes a job.
    let all = api.world().staying();
    let now_busy = [&busy[..], &all[1..3]].concat();
    target.watch_over(&busy_map(&now_busy)).await;
    api.world().asleep = false;
    settled(&mut target, 5).await;
    assert_eq!(api.world().staying(), all[1..], "the only idle one went");
}

#[tokio::test]
async fn whoever_may_go_although_busy_is_not_protected() {
    let (api, busy) = six_of_which_three_are_busy().await;
    let mut target = open(&api.config());
    settled(&mut target, 6).await;
    let mut order = shrink(&api, 5, &busy);
    (order.victims, order.kind) = (vec![busy[0].clone()], Kind::EmergencyScaleIn);
    // By number the newest, busy as well, would go; of the idle ones the newest.
    target.scale(&order).await.unwrap();
    target.watch_over(&busy_map(&busy)).await;
    assert_eq!(api.world().protected(), busy[1..]);
}

#[tokio::test]
async fn with_require_victims_exactly_the_chosen_ones_go() {
    let (api, busy) = six_of_which_three_are_busy().await;
    let config = headcount::targets::ecs::EcsConfig { require_victims: true, ..api.config() };
    let mut target = open(&config);
    settled(&mut target, 6).await;
    let all = api.world().staying();
    let mut order = shrink(&api, 5, &busy);
    // The oldest, which ECS itself would stop last.
    order.victims = vec![all[0].clone()];
    api.world().asleep = true;
    let scaled = target.scale(&order).await.unwrap();
    assert_eq!(scaled.removed, all[..1]);
    target.watch_over(&busy_map(&busy)).await;
    assert_eq!(api.world().protected(), all[1..], "until ECS has picked");
    api.world().asleep = false;
    settled(&mut target, 5).await;
    assert_eq!(api.world().staying(), all[1..]);
    target.watch_over(&busy_map(&busy)).await;
    assert_eq!(api.world().protected(), busy, "then the idle ones are released");
}

#[tokio::test]
async fn a_restart_releases_what_was_protected_before() {
    let (api, busy) = six_of_which_three_are_busy().await;
    let folder = tempfile::tempdir().unwrap();
    let mut target = open_in(&api.config(), folder.path());
    settled(&mut target, 6).await;
    target.scale(&shrink(&api, 3, &busy)).await.unwrap();
    settled(&mut target, 3).await;
    drop(target);
    let mut target = open_in(&api.config(), folder.path());
    settled(&mut target, 3).await;
    target.watch_over(&busy_map(&busy[..1])).await;
    assert_eq!(api.world().protected(), busy[..1]);
}

#[tokio::test]
async fn a_back_end_without_protection_still_shrinks_unless_victims_are_required() {
    let faults = [
        Fault::Stub,
        Fault::Error("UpdateTaskProtection", 500, ""),
        Fault::Error("UpdateTaskProtection", 400, "UnknownOperationException"),
        Fault::Error("UpdateTaskProtection", 400, "AccessDeniedException"),
    ];
    for fault in faults {
        let (mut api, busy) = six_of_which_three_are_busy().await;
        api.break_by(fault.clone());
        let strict = headcount::targets::ecs::EcsConfig { require_victims: true, ..api.config() };
        let mut target = open(&strict);
        settled(&mut target, 6).await;
        let refused = target.scale(&shrink(&api, 4, &busy)).await.unwrap_err().to_string();
        assert!(refused.starts_with("not now: "), "{refused}");
        assert!(refused.contains("refused, since `require_victims` is set"), "{refused}");
        assert_eq!(api.world().desired, 6);

        let mut target = open(&api.config());
        settled(&mut target, 6).await;
        let scaled = target.scale(&shrink(&api, 4, &busy)).await.unwrap();
        assert!(scaled.note.starts_with("ECS picks who goes: "), "{fault:?}: {}", scaled.note);
        assert_eq!((api.world().desired, scaled.removed), (4, vec![]));
    }
}

#[tokio::test]
async fn a_task_that_cannot_be_protected_stops_the_change() {
    let (mut api, busy) = six_of_which_three_are_busy().await;
    let mut target = open(&api.config());
    settled(&mut target, 6).await;
    api.break_by(Fault::Blocked(HashSet::from([busy[1].clone()])));
    let error = target.scale(&shrink(&api, 3, &busy)).await.unwrap_err();
    assert!(matches!(error, TargetError::NotNow { .. }), "a deployment passes: {error:?}");
    let error = error.to_string();
    assert!(error.ends_with(&format!("{} could not be protected", busy[1])), "{error}");
    api.break_by(Fault::Error("UpdateTaskProtection", 500, "ServerException"));
    target.scale(&shrink(&api, 3, &busy)).await.unwrap_err();
    assert_eq!(api.world().desired, 6, "nothing was lowered");
    api.mend().await;
    target.scale(&shrink(&api, 3, &busy)).await.unwrap();
    settled(&mut target, 3).await;
    assert_eq!(api.world().staying(), busy);
}

#[tokio::test]
async fn a_task_that_ended_meanwhile_needs_no_protection() {
    let (api, busy) = six_of_which_three_are_busy().await;
    let mut target = open(&api.config());
    settled(&mut target, 6).await;
    let order = shrink(&api, 3, &busy);
    // ECS still describes it, and names it TASK_NOT_VALID.
    api.world().asleep = true;
    api.world().crash(&busy[1], 3_600.0);
    api.asked();
    target.scale(&order).await.unwrap();
    assert_eq!(api.asked(), ["UpdateTaskProtection", "DescribeTasks", "UpdateService"]);
    assert_eq!(api.world().desired, 3);
}

#[tokio::test]
async fn with_require_victims_a_task_that_does_not_run_yet_is_waited_for() {
    let (api, busy) = six_of_which_three_are_busy().await;
    let config = headcount::targets::ecs::EcsConfig { require_victims: true, ..api.config() };
    let mut target = open(&config);
    settled(&mut target, 6).await;
    let victims = shrink(&api, 6, &busy).victims;
    api.world().slow = true;
    target.scale(&order(6, 7, &[])).await.unwrap();
    look(&mut target).await;
    let back = Order { victims, busy: busy_map(&busy), ..order(7, 6, &[]) };
    let error = target.scale(&back).await.unwrap_err();
    assert!(matches!(error, TargetError::NotNow { .. }), "{error:?}");
    assert_eq!(api.world().desired, 7);
    api.world().slow = false;
    settled(&mut target, 7).await;
    target.scale(&back).await.unwrap();
    settled(&mut target, 6).await;
}

#[tokio::test]
async fn protected_ones_only_go_when_their_job_is_done() {
    let (api, busy) = six_of_which_three_are_busy().await;
    let mut target = open(&api.config());
    settled(&mut target, 6).await;
    target.scale(&shrink(&api, 2, &busy)).await.unwrap();
    // Two of three serve by the number asked for; nobody is cut short.
    until("the idle ones are gone", async || {
        let now = look(&mut target).await;
        target.watch_over(&busy_map(&busy)).await;
        (now.capacity(), now.draining) == (2, 1)
    })
    .await;
    assert_eq!(api.world().staying(), busy);
    api.world().task(&busy[0]).busy = false;
    target.watch_over(&busy_map(&busy[1..])).await;
    settled(&mut target, 2).await;
    assert_eq!(api.world().staying(), busy[1..]);
}
