//! What goes wrong, and what a user reads then. Nothing is assumed, and the next look recovers.

use std::time::Duration;

use headcount::targets::TargetError;
use headcount::targets::ecs::EcsConfig;
use headcount_core::Silence;
use serde_json::json;

use super::{look, open, running, settled, shrink};
use crate::support::ecs_api::{EcsApi, Fault};
use crate::support::wait::until;
use crate::support::workers::order;

const fn all(status: u16, code: &'static str) -> Fault {
    Fault::Error("*", status, code)
}

#[tokio::test]
async fn each_failure_of_a_look_has_its_kind_and_its_message() {
    let table = [
        (Fault::Down, Silence::Refused, "http://127.0.0.1:"),
        (Fault::Slow(Duration::from_secs(30)), Silence::Timeout, "DescribeServices took too long"),
        (
            all(400, "AccessDeniedException"),
            Silence::Denied,
            "not authorized to perform: ecs:DescribeServices; allow ecs:DescribeServices",
        ),
        (all(400, "ExpiredTokenException"), Silence::Denied, "the credentials have expired"),
        (all(403, "InvalidSignatureException"), Silence::Denied, "this machine's clock"),
        (
            all(400, "ThrottlingException"),
            Silence::Unreachable,
            "ecs:DescribeServices failed: ThrottlingException: a test says so",
        ),
        (all(400, "ClusterNotFoundException"), Silence::NotFound, "ClusterNotFoundException"),
        (all(500, "ServerException"), Silence::Unreachable, "ServerException"),
        (all(503, ""), Silence::Unreachable, "ecs:DescribeServices failed: status 503"),
    ];
    let fails = |(fault, why, text): (Fault, Silence, &'static str)| async move {
        let (mut api, mut target) = running(2).await;
        api.break_by(fault.clone());
        // A connection that was kept ends first.
        let mut missing = target.status().await.unwrap_err();
        if fault == Fault::Down {
            missing = target.status().await.unwrap_err();
        }
        assert_eq!(missing.why, why, "{fault:?}: {missing}");
        assert!(missing.detail.contains(text), "{fault:?}: {missing}");
        let error = target.scale(&order(2, 3, &[])).await;
        error.expect_err("nothing is known");
        api.mend().await;
        assert_eq!(api.world().desired, 2);
        settled(&mut target, 2).await;
    };
    futures_util::future::join_all(table.map(fails)).await;
}

#[tokio::test]
async fn a_service_that_does_not_tell_its_number_is_never_none() {
    let table = [
        (json!({ "desiredCount": null }), "missing field `desiredCount`"),
        (json!({ "runningCount": null }), "missing field `runningCount`"),
        (json!({ "pendingCount": null }), "missing field `pendingCount`"),
        (json!({ "serviceName": null }), "missing field `serviceName`"),
        (json!({ "serviceName": "other" }), "ECS answers about \"other\""),
        (json!({ "desiredCount": 10_001 }), "counts 10001 tasks, above the limit of 10000"),
        (json!({ "status": null }), "has no status in the answer"),
    ];
    let (mut api, mut target) = running(5).await;
    for (values, text) in table {
        api.break_by(Fault::Odd(values));
        let missing = target.status().await.unwrap_err();
        assert_eq!(missing.why, Silence::Malformed, "{missing}");
        assert!(missing.detail.contains(text), "{missing}");
        target.scale(&order(0, 2, &[])).await.expect_err("nothing is known");
        assert_eq!(api.world().desired, 5);
    }
    api.mend().await;
}

#[tokio::test]
async fn each_failure_of_a_change_has_its_message_and_changes_nothing() {
    let update = |status, code| Fault::Error("UpdateService", status, code);
    let table = [
        (update(400, "AccessDeniedException"), "allow ecs:UpdateService"),
        (update(400, "ServiceNotFoundException"), "ServiceNotFoundException"),
        (update(400, "ServiceNotActiveException"), "ServiceNotActiveException"),
        (update(400, "InvalidParameterException"), "InvalidParameterException: a test says so"),
        (update(500, "ServerException"), "ServerException"),
    ];
    for (fault, text) in table {
        let (mut api, mut target) = running(2).await;
        api.break_by(fault.clone());
        let error = target.scale(&order(2, 3, &[])).await.unwrap_err();
        assert!(matches!(error, TargetError::Failed { .. }), "{error:?}");
        let said = error.to_string();
        assert!(said.starts_with("scaling service main/worker to 3: "), "{said}");
        assert!(said.contains(text), "{fault:?}: {said}");
        api.mend().await;
        settled(&mut target, 2).await;
        target.scale(&order(2, 3, &[])).await.unwrap();
        settled(&mut target, 3).await;
    }
}

#[tokio::test]
async fn a_lost_answer_is_an_error_and_the_next_look_tells() {
    let (mut api, mut target) = running(2).await;
    api.break_by(Fault::Cut);
    target.scale(&order(2, 3, &[])).await.unwrap_err();
    api.mend().await;
    settled(&mut target, 3).await;
}

#[tokio::test]
async fn half_a_change_is_none_and_the_rest_follows() {
    let (mut api, mut target) = running(4).await;
    let busy = api.world().staying().split_off(2);
    api.break_by(Fault::Error("UpdateService", 500, "ServerException"));
    target.scale(&shrink(&api, 2, &busy)).await.unwrap_err();
    assert_eq!(api.world().protected(), busy);
    assert_eq!(api.world().desired, 4);
    api.mend().await;
    look(&mut target).await;
    target.scale(&shrink(&api, 2, &busy)).await.unwrap();
    settled(&mut target, 2).await;
    assert_eq!(api.world().staying(), busy);
}

#[tokio::test]
async fn who_asks_too_often_asks_again_a_little_later() {
    let mut api = EcsApi::start(2).await;
    let mut target = open(&api.config());
    api.break_by(Fault::Throttled(2));
    assert_eq!(look(&mut target).await.ready, 2);
    api.break_by(Fault::Throttled(1_000));
    api.asked();
    let missing = target.status().await.unwrap_err();
    assert!(missing.detail.contains("ThrottlingException: Rate exceeded"), "{missing}");
    assert_eq!(api.asked().len(), 4, "but not for ever");
}

#[tokio::test]
async fn new_keys_are_found_and_old_ones_are_said_to_be_so() {
    let (api, mut target) = running(2).await;
    api.change_key("AKIANEXT");
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Denied);
    assert!(missing.detail.contains("does not know the credentials"), "{missing}");
    api.write_key("AKIANEXT");
    until("the file is read again", async || target.status().await.is_ok()).await;
}

#[tokio::test]
async fn services_that_cannot_be_scaled_are_refused() {
    let api = EcsApi::start(2).await;
    let detail = async |config: &EcsConfig| {
        let missing = open(config).status().await.unwrap_err();
        assert_eq!(missing.why, Silence::NotFound, "{missing}");
        missing.detail
    };
    let other = EcsConfig { service: "other".into(), ..api.config() };
    assert_eq!(detail(&other).await, "service main/other is not there (MISSING)");
    api.world().strategy = "DAEMON";
    assert!(detail(&api.config()).await.contains("(DAEMON): it has no number to set"));
    api.world().strategy = "REPLICA";
    api.world().status = "DRAINING";
    assert!(detail(&api.config()).await.contains("is being deleted (DRAINING)"));
    assert!(open(&api.config()).scale(&order(2, 3, &[])).await.is_err());
}

#[tokio::test]
async fn without_credentials_nothing_is_asked() {
    let api = EcsApi::start(2).await;
    let file = tempfile::NamedTempFile::new().unwrap();
    let credentials_file = Some(file.path().to_owned());
    let config = EcsConfig { credentials_file, profile: Some("nobody".into()), ..api.config() };
    let missing = open(&config).status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Denied, "{missing}");
    assert!(missing.detail.starts_with("no credentials: "), "{missing}");
    assert_eq!(api.asked(), [""; 0]);
}

#[tokio::test]
async fn without_lists_the_numbers_do_and_nobody_is_protected() {
    let mut api = EcsApi::start(3).await;
    api.break_by(Fault::Error("ListTasks", 400, "AccessDeniedException"));
    let mut target = open(&api.config());
    let now = look(&mut target).await;
    assert_eq!((now.ready, now.workers.len(), now.desired), (3, 0, Some(3)));
    let scaled = target.scale(&order(3, 2, &[])).await.unwrap();
    assert_eq!(scaled.note, "ECS picks who goes: its tasks cannot be listed");
    settled(&mut target, 2).await;
}

#[tokio::test]
async fn ecs_is_not_said_to_pick_more_than_are_idle() {
    let (api, mut target) = running(3).await;
    let all = api.world().staying();
    for (busy, idle) in [(&all[..], 0), (&all[1..], 1)] {
        let scaled = target.scale(&shrink(&api, 1, busy)).await.unwrap();
        let note = format!("ECS picks who goes: {idle} of its tasks are known to hold no job");
        assert_eq!(scaled.note, note);
        api.world().desired = 3;
        settled(&mut target, 3).await;
    }
}
