//! The right to act as a Lease object.

use headcount::config::Place;
use headcount::lease::{Held, Lease};
use headcount::targets::kubernetes::lease::KubernetesLease;
use serde_json::json;

use crate::support::kube_api::{Fault, KubeApi, NAMESPACE};
use crate::support::wait::until;

fn lease(api: &KubeApi, account: &str) -> KubernetesLease {
    let place = Place {
        group: "g".into(),
        state_dir: "/nonexistent".into(),
        base_dir: std::env::temp_dir(),
    };
    KubernetesLease::new(Some(&api.config(account)), "", false, &place).unwrap()
}

fn key() -> (String, String, String) {
    ("leases".into(), NAMESPACE.into(), "headcount-deployments-worker".into())
}

#[tokio::test]
async fn one_holds_and_the_next_gets_a_higher_token() {
    let api = KubeApi::start(1).await;
    let (mut first, mut second) = (lease(&api, "admin"), lease(&api, "admin"));
    assert_eq!(first.hold().await, Ok(1));
    api.asked();
    assert_eq!(first.hold().await, Ok(1));
    assert!(api.asked().is_empty(), "a fresh lease is not asked for again");
    assert!(matches!(second.hold().await, Err(Held::ByOther(_))));
    first.release().await;
    assert_eq!(second.hold().await, Ok(2));
    assert!(first.hold().await.is_err());
    let spec = api.world().objects[&key()]["spec"].clone();
    assert_eq!((&spec["leaseTransitions"], &spec["leaseDurationSeconds"]), (&json!(1), &json!(30)));
}

#[tokio::test]
async fn a_holder_that_gives_no_sign_loses_it() {
    let api = KubeApi::start(1).await;
    let mut ours = lease(&api, "admin");
    let theirs = json!({
        "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": { "name": key().2, "namespace": NAMESPACE, "uid": "u" },
        "spec": { "holderIdentity": "gone", "leaseDurationSeconds": 1, "leaseTransitions": 4,
            "renewTime": "2026-11-30T13:09:35.849885Z" },
    });
    api.world().put(key(), theirs);
    assert_eq!(ours.hold().await, Err(Held::ByOther("gone".into())), "by its own clock");
    until("it is taken", async || ours.hold().await == Ok(6)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_means_that_it_is_lost() {
    let api = KubeApi::start(1).await;
    let mut ours = lease(&api, "admin");
    assert_eq!(ours.hold().await, Ok(1));
    let mut stolen = api.world().objects[&key()].clone();
    stolen["spec"]["holderIdentity"] = json!("thief");
    stolen["spec"]["leaseTransitions"] = json!(1);
    api.world().put(key(), stolen);
    // It is noticed by the renewal in the background, long before the lease would end by itself.
    until("it is lost", async || ours.hold().await == Err(Held::ByOther("thief".into()))).await;
}

#[tokio::test]
async fn without_permission_or_server_nobody_acts() {
    let mut api = KubeApi::start(1).await;
    api.account("minimal", super::MINIMAL);
    let refused = lease(&api, "minimal").hold().await.unwrap_err().to_string();
    let expected = "lease jobs/headcount-deployments-worker cannot be looked at: \
                    leases.coordination.k8s.io \"headcount-deployments-worker\" is forbidden";
    assert!(refused.starts_with(expected), "{refused}");
    let findings = lease(&api, "minimal").check().await;
    assert!(findings[0].what.ends_with("the Role lacks get leases, create leases, update leases"));
    assert!(lease(&api, "admin").check().await[0].fix.is_none());
    api.break_by(Fault::Down);
    let down = lease(&api, "admin").hold().await;
    assert!(matches!(down, Err(Held::Unusable(_))), "{down:?}");
}
