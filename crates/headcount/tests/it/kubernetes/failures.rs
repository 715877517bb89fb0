//! What goes wrong, and what a user reads then. Nothing is assumed, and the next look recovers.

use std::time::Duration;

use futures_util::future::join_all;
use headcount::targets::TargetError;
use headcount_core::Silence;
use serde_json::json;

use super::{look, open, running, settled, shrink};
use crate::support::kube_api::{Fault, KubeApi};
use crate::support::workers::order;

#[tokio::test]
async fn each_failure_of_a_look_has_its_kind_and_its_message() {
    let table = [
        (Fault::Down, Silence::Unreachable, "http://127.0.0.1:"),
        (Fault::Slow(Duration::from_secs(6)), Silence::Timeout, "no answer within 4.5 s"),
        (
            Fault::Status(401),
            Silence::Denied,
            "the API server does not accept the credentials (401)",
        ),
        (
            Fault::Status(403),
            Silence::Denied,
            "cannot get resource \"deployments\" in API group \"apps\" in the namespace \
             \"jobs\"; let its Role get deployments or deployments/scale",
        ),
        (Fault::Status(404), Silence::NotFound, "deployments.apps \"worker\" not found"),
        (
            Fault::Status(500),
            Silence::Unreachable,
            "the API server answers 500: an error on the server has prevented the request from",
        ),
        (Fault::Status(503), Silence::Unreachable, "the API server answers 503: the server is"),
        (Fault::Status(504), Silence::Timeout, "request did not complete"),
        (Fault::Status(429), Silence::Unreachable, "the API server answers 429: too many requests"),
        (Fault::Refuse("list", "pods", 503), Silence::Unreachable, "answers 503"),
    ];
    join_all(table.map(|(fault, why, text)| a_look_fails(fault, why, text))).await;
}

async fn a_look_fails(fault: Fault, why: Silence, text: &str) {
    let (mut api, mut target) = running(2).await;
    // Until no list is kept any more.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    api.break_by(fault.clone());
    let mut missing = target.status().await.unwrap_err();
    if fault == Fault::Down {
        missing = target.status().await.unwrap_err();
    }
    assert_eq!(missing.why, why, "{fault:?}: {missing}");
    assert!(missing.detail.contains(text), "{fault:?}: {missing}");
    api.mend().await;
    settled(&mut target, 2).await;
}

#[tokio::test]
async fn each_failure_of_a_change_has_its_message_and_changes_nothing() {
    let refuse = |code| Fault::Refuse("patch", "deployments", code);
    let table = [
        (refuse(403), "scaling Deployment jobs/worker to 3: "),
        (
            refuse(422),
            "scaling Deployment jobs/worker to 3: Deployment.apps \"worker\" is invalid: \
             spec.replicas: Invalid value: 3: must be even",
        ),
        (
            refuse(500),
            "scaling Deployment jobs/worker to 3: the API server answers 500: an error on the",
        ),
        (refuse(409), "scaling Deployment jobs/worker to 3: it was changed 3 times by others"),
        (Fault::Status(401), "scaling Deployment jobs/worker to 3: the API server does not accept"),
        (
            Fault::Slow(Duration::from_secs(12)),
            "scaling Deployment jobs/worker to 3 did not finish",
        ),
        (Fault::Down, "the API server http://127.0.0.1:"),
    ];
    join_all(table.map(|(fault, text)| a_change_fails(fault, text))).await;
}

async fn a_change_fails(fault: Fault, text: &str) {
    let mut api = KubeApi::start(2).await;
    // Without the way by the scale, as the minimal Role has it.
    api.account("minimal", super::MINIMAL);
    let mut target = open(&api.config("minimal"));
    settled(&mut target, 2).await;
    api.break_by(fault.clone());
    let failed = target.scale(&order(2, 3, &[])).await.unwrap_err().to_string();
    assert!(failed.starts_with(text), "{fault:?}: {failed}");
    assert_eq!(api.desired(), 2, "{fault:?}");
    api.mend().await;
    settled(&mut target, 2).await;
    target.scale(&order(2, 3, &[])).await.unwrap();
    settled(&mut target, 3).await;
}

#[tokio::test]
async fn a_change_whose_answer_is_lost_is_not_made_twice() {
    let (mut api, mut target) = running(2).await;
    api.break_by(Fault::Cut);
    let failed = target.scale(&order(2, 3, &[])).await.unwrap_err();
    assert!(matches!(failed, TargetError::Unreachable { .. }), "{failed}");
    assert_eq!(api.desired(), 3, "half done");
    api.mend().await;
    settled(&mut target, 3).await;
}

#[tokio::test]
async fn a_number_that_somebody_else_changed_is_not_overwritten() {
    let (api, mut target) = running(4).await;
    api.set_outside(6);
    let contradicted = target.scale(&shrink(&api, 3, &[])).await.unwrap_err();
    let expected = TargetError::Contradiction { there: 6, decided_for: 4 };
    assert_eq!(contradicted, expected);
    settled(&mut target, 6).await;
    assert_eq!(look(&mut target).await.desired, Some(6));
}

#[tokio::test]
async fn another_change_of_the_same_object_is_no_reason_to_give_up() {
    let (api, mut target) = running(2).await;
    api.change_outside(|object| object["metadata"]["annotations"] = json!({ "touch": "1" }));
    target.scale(&order(2, 3, &[])).await.unwrap();
    settled(&mut target, 3).await;
}

#[tokio::test]
async fn a_deployment_that_is_being_deleted_is_not_scaled() {
    let api = KubeApi::start(2).await;
    let mut target = open(&api.config("admin"));
    api.change_outside(|object| {
        object["metadata"]["deletionTimestamp"] = json!("2026-11-30T13:09:32Z");
    });
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::NotFound);
    assert_eq!(missing.detail, "Deployment jobs/worker is being deleted");
}

#[tokio::test]
async fn terminating_pods_are_not_capacity() {
    let (api, mut target) = running(3).await;
    let busy = api.staying();
    api.world().busy.extend(busy.clone());
    target.scale(&order(3, 1, &[&busy[0], &busy[1]])).await.unwrap();
    super::until("two drain", async || look(&mut target).await.draining == 2).await;
    assert_eq!(look(&mut target).await.capacity(), 1);
    // Growth makes new pods; the leaving ones do not come back.
    target.scale(&order(1, 2, &[])).await.unwrap();
    super::until("two serve", async || {
        let now = look(&mut target).await;
        (now.ready, now.draining) == (2, 2)
    })
    .await;
    api.world().busy.clear();
    settled(&mut target, 2).await;
}

/// An account that may only do this to the scale.
fn by_scale(api: &KubeApi) -> headcount::targets::kubernetes::KubernetesConfig {
    api.account("scaler", &[("apps", "deployments/scale", &["get", "patch", "update"])]);
    api.config("scaler")
}

#[tokio::test]
async fn an_answer_without_its_parts_is_never_a_number_to_scale_from() {
    let named = json!({ "metadata": { "name": "worker" }, "spec": {} });
    let of_kind = |kind: &str, api: &str, rest: serde_json::Value| {
        let mut all = json!({ "kind": kind, "apiVersion": api,
            "metadata": { "name": "worker", "resourceVersion": "1" } });
        all.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        all
    };
    let scale = |rest| of_kind("Scale", "autoscaling/v1", rest);
    let object = |rest| of_kind("Deployment", "apps/v1", rest);
    for (resource, bodies) in [
        (
            "deployments/scale",
            vec![scale(json!({})), scale(json!({ "spec": { "replicas": 10_001 } }))],
        ),
        (
            "deployments",
            vec![object(json!({ "spec": {} })), object(json!({ "spec": { "replicas": 10_001 } }))],
        ),
    ] {
        for body in [json!({}), json!({ "ok": true }), named.clone()].into_iter().chain(bodies) {
            let mut api = KubeApi::start(5).await;
            let config =
                if resource == "deployments" { api.config("admin") } else { by_scale(&api) };
            api.break_by(Fault::Says("get", resource, 200, body.clone()));
            let mut target = open(&config);
            let missing = target.status().await.unwrap_err();
            assert_eq!(missing.why, Silence::Malformed, "{resource} {body}: {missing}");
            let more = order(0, 2, &[]);
            let refused = target.scale(&more).await.unwrap_err();
            assert!(refused.to_string().contains("is not understood"), "{body}: {refused}");
            assert_eq!(api.desired(), 5, "{resource} {body}");
        }
    }
}

#[tokio::test]
async fn the_status_of_an_answer_counts_whatever_its_body_says() {
    for body in [json!({}), json!({ "code": 200 }), json!(null), json!("<html>")] {
        let says = |verb, code| Fault::Says(verb, "deployments", code, body.clone());
        for (code, why) in [
            (401, Silence::Denied),
            (403, Silence::Denied),
            (404, Silence::NotFound),
            (503, Silence::Unreachable),
        ] {
            let mut api = KubeApi::start(2).await;
            let mut target = open(&api.config("admin"));
            api.break_by(says("get", code));
            // With 403 its scale is tried, too, which works here.
            let answer = target.status().await;
            match code {
                403 => assert!(answer.is_ok(), "{body}: {answer:?}"),
                _ => assert_eq!(answer.unwrap_err().why, why, "{code} {body}"),
            }
        }
        let (mut api, mut target) = running(2).await;
        api.break_by(says("patch", 409));
        let error = target.scale(&order(2, 3, &[])).await.unwrap_err().to_string();
        assert!(error.contains("it was changed 3 times by others"), "{body}: {error}");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_refused() {
    let (mut api, mut target) = running(2).await;
    api.break_by(Fault::Endless);
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Malformed, "{missing}");
    assert!(missing.detail.contains("larger than"), "{missing}");
    api.mend().await;
    settled(&mut target, 2).await;
}
