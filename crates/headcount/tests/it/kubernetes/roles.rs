//! Who goes when a workload shrinks, under every Role that allows it to.

use std::time::Duration;

use headcount::targets::kubernetes::KubernetesConfig;
use headcount::targets::{Promise, TargetError};
use headcount_core::Span;

use super::six_of_which_three_are_busy;
use super::{
    MINIMAL, NO_PODS, SCALE_ONLY, SCALE_WITHOUT_PODS, listen, look, open, settled, shrink,
};
use crate::support::kube_api::world::Ill;
use crate::support::kube_api::{Fault, KubeApi, NAMESPACE};
use crate::support::workers::order;

#[tokio::test]
async fn the_idle_ones_go_under_every_role_that_allows_it() {
    for (name, rules) in [("minimal", MINIMAL), ("scale-only", SCALE_ONLY)] {
        let (api, busy) = six_of_which_three_are_busy().await;
        api.account(name, rules);
        let mut target = open(&api.config(name));
        assert_eq!(target.promise(), Promise::DrainedVictims);
        settled(&mut target, 6).await;
        let order = shrink(&api, 3, &busy);
        let scaled = target.scale(&order).await.unwrap();
        let mut removed = scaled.removed.clone();
        removed.sort();
        assert_eq!(removed, order.victims, "{name}: {scaled:?}");
        settled(&mut target, 3).await;
        let stay: Vec<String> = busy.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(api.staying(), stay, "{name}");
        let costs: Vec<_> = api.pods().into_iter().map(|pod| pod.cost.unwrap()).collect();
        assert_eq!(costs, ["40", "3610", "86410"], "{name}");
    }
}

#[tokio::test]
async fn without_permission_for_pods_it_warns_once_and_scales_all_the_same() {
    // A scale does not tell who terminates.
    for (name, rules, draining) in
        [("no-pods", NO_PODS, 3), ("scale-without-pods", SCALE_WITHOUT_PODS, 0)]
    {
        let (api, busy) = six_of_which_three_are_busy().await;
        api.account(name, rules);
        let mut target = open(&api.config(name));
        let (log, _guard) = listen();
        let seen = look(&mut target).await;
        assert_eq!((seen.ready, seen.workers.len(), seen.desired), (6, 0, Some(6)), "{name}");
        let scaled = target.scale(&shrink(&api, 3, &busy)).await.unwrap();
        let expected = "Kubernetes picks who goes: pods cannot be listed";
        assert_eq!((scaled.note.as_str(), scaled.removed.len()), (expected, 0), "{name}");
        assert_eq!(api.desired(), 3, "{name}");
        super::until("three left", async || {
            let now = look(&mut target).await;
            (now.capacity(), now.draining) == (3, draining)
        })
        .await;
        assert!(api.pods().iter().all(|pod| pod.cost.is_none()));
        assert_eq!(api.pods().len(), 6, "the busy ones finish first");
        target.scale(&order(3, 2, &[])).await.unwrap();
        assert_eq!(api.desired(), 2);
        let told = log.lock().unwrap().clone();
        assert_eq!(told.matches("is known by its numbers only").count(), 1, "{told}");
        assert!(told.contains("its pods cannot be listed (the Role lacks: pods list)"), "{told}");
        assert!(told.contains("a busy pod that is picked has its grace period"), "{told}");
    }
}

#[tokio::test]
async fn where_pods_may_be_listed_but_not_annotated_it_warns_once() {
    let (api, busy) = six_of_which_three_are_busy().await;
    api.account("looks", &[("apps", "deployments", &["get", "patch"]), ("", "pods", &["list"])]);
    let mut target = open(&api.config("looks"));
    let (log, _guard) = listen();
    for to in [5, 4] {
        super::until("a look", async || target.status().await.is_ok()).await;
        let scaled = target.scale(&shrink(&api, to, &busy)).await.unwrap();
        assert!(scaled.note.starts_with("Kubernetes picks who goes: pods cannot"), "{scaled:?}");
        super::until("done", async || api.staying().len() == to as usize).await;
    }
    let told = log.lock().unwrap().clone();
    assert_eq!(told.matches("Kubernetes picks who goes when").count(), 1, "{told}");
    let strict = KubernetesConfig { require_victims: true, ..api.config("looks") };
    let mut strict = open(&strict);
    look(&mut strict).await;
    let refused = strict.scale(&shrink(&api, 3, &busy)).await.unwrap_err();
    assert!(matches!(refused, TargetError::NotNow { .. }), "{refused:?}");
    let refused = refused.to_string();
    assert!(refused.contains("refused, since `require_victims` is set: pods cannot"), "{refused}");
    assert_eq!(api.desired(), 4);
}

#[tokio::test]
async fn a_permission_that_comes_or_goes_is_noticed() {
    let api = KubeApi::start(2).await;
    api.account("moody", MINIMAL);
    let mut target = open(&api.config("moody"));
    settled(&mut target, 2).await;
    api.account("moody", SCALE_ONLY);
    settled(&mut target, 2).await;
    target.scale(&order(2, 3, &[])).await.unwrap();
    settled(&mut target, 3).await;
    api.account("moody", NO_PODS);
    settled(&mut target, 3).await;
    api.account("moody", &[]);
    assert_eq!(target.status().await.unwrap_err().why, headcount_core::Silence::Denied);
    api.account("moody", MINIMAL);
    settled(&mut target, 3).await;
}

#[tokio::test]
async fn annotations_are_written_only_where_they_differ() {
    let (mut api, busy) = six_of_which_three_are_busy().await;
    let mut target = open(&api.config("admin"));
    settled(&mut target, 6).await;
    let patches = |api: &KubeApi| api.asked().iter().filter(|a| *a == "patch pods").count();
    patches(&api);
    target.scale(&shrink(&api, 5, &busy)).await.unwrap();
    assert_eq!(patches(&api), 3, "the busy ones; no annotation costs nothing");
    settled(&mut target, 5).await;
    target.scale(&shrink(&api, 4, &busy)).await.unwrap();
    assert_eq!(patches(&api), 0, "nothing has changed");
    settled(&mut target, 4).await;
    // One is done, another still works: best effort, so an error does not stop the change.
    api.break_by(Fault::Refuse("patch", "pods", 500));
    let scaled = target.scale(&shrink(&api, 3, &busy[1..])).await.unwrap();
    assert!(
        scaled.note.contains("pods cannot be annotated (the API server answers 500"),
        "{scaled:?}"
    );
    assert_eq!(api.desired(), 3);
}

#[tokio::test]
async fn pods_that_take_no_jobs_are_no_capacity_and_say_why() {
    for (ill, why) in [
        (Ill::CrashLoop, "CrashLoopBackOff: exit code 1"),
        (Ill::NoImage, "ImagePullBackOff: container worker, image example/worker:1"),
        (Ill::NoNode, "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu."),
    ] {
        let api = KubeApi::start(2).await;
        let config = KubernetesConfig { unschedulable_after: Span::ZERO, ..api.config("admin") };
        let mut target = open(&config);
        settled(&mut target, 2).await;
        api.world().next_ill = Some(ill);
        let (log, _guard) = listen();
        target.scale(&order(2, 3, &[])).await.unwrap();
        super::until("one is broken", async || {
            let now = look(&mut target).await;
            (now.ready, now.starting, now.broken) == (2, 0, 1)
        })
        .await;
        let told = log.lock().unwrap().clone();
        assert_eq!(told.matches(why).count(), 1, "{told}");
        let stuck = target.scale(&order(2, 3, &[])).await.unwrap_err();
        // A node may come at any time.
        let (TargetError::Failed { detail, .. } | TargetError::NotNow { detail, .. }) = &stuck
        else {
            panic!("{stuck}")
        };
        let passes = matches!(stuck, TargetError::NotNow { .. });
        assert_eq!(passes, ill == Ill::NoNode, "{stuck}");
        assert!(detail.starts_with("3 are asked for already, but not all take jobs:"), "{stuck}");
        assert!(detail.ends_with(why), "{stuck}");
        // It goes before those that work, whatever it costs.
        let ill = api.staying().last().unwrap().clone();
        look(&mut target).await;
        target.scale(&order(2, 1, &[&api.staying()[0]])).await.unwrap();
        settled(&mut target, 1).await;
        assert!(!api.staying().contains(&ill));
    }
}

#[tokio::test]
async fn a_pod_that_waits_for_a_node_is_starting_for_a_while() {
    let api = KubeApi::start(1).await;
    let mut target = open(&api.config("admin"));
    api.world().next_ill = Some(Ill::NoNode);
    look(&mut target).await;
    target.scale(&order(1, 2, &[])).await.unwrap();
    super::until("one starts", async || look(&mut target).await.starting == 1).await;
    assert_eq!(look(&mut target).await.broken, 0);
}

#[tokio::test]
async fn a_quota_is_told() {
    let api = KubeApi::start(2).await;
    api.world().quota = Some(3);
    let mut target = open(&api.config("admin"));
    look(&mut target).await;
    target.scale(&order(2, 5, &[])).await.unwrap();
    super::until("two places stay empty", async || {
        let now = look(&mut target).await;
        (now.ready, now.broken) == (3, 2)
    })
    .await;
    let stuck = target.scale(&order(3, 4, &[])).await.unwrap_err();
    assert!(matches!(stuck, TargetError::NotNow { .. }), "{stuck}");
    assert!(stuck.to_string().ends_with("exceeded quota: pods"), "{stuck}");
}

#[tokio::test]
async fn a_controller_that_lags_behind_does_not_change_what_is_seen() {
    let api = KubeApi::start(4).await;
    for role in ["minimal", "no-pods"] {
        api.account(role, if role == "minimal" { MINIMAL } else { NO_PODS });
        let mut target = open(&api.config(role));
        settled(&mut target, 4).await;
        api.world().lag = Duration::from_secs(3_600);
        let names = api.staying();
        target.scale(&order(4, 3, &[&names[0]])).await.unwrap();
        let now = look(&mut target).await;
        assert_eq!((now.capacity(), now.draining, now.desired), (3, 1, Some(3)), "{role}");
        target.scale(&order(3, 5, &[])).await.unwrap();
        let now = look(&mut target).await;
        assert_eq!((now.ready, now.starting, now.desired), (4, 1, Some(5)), "{role}");
        assert!(target.scale(&order(5, 5, &[])).await.is_ok());
        look(&mut target).await;
        target.scale(&order(5, 4, &[&names[0]])).await.unwrap();
        api.world().lag = Duration::ZERO;
        settled(&mut target, 4).await;
    }
}

#[tokio::test]
async fn the_same_order_twice_changes_nothing() {
    let api = KubeApi::start(2).await;
    let mut target = open(&api.config("admin"));
    look(&mut target).await;
    for _ in 0..2 {
        target.scale(&order(2, 4, &[])).await.unwrap();
        assert_eq!(api.desired(), 4);
    }
    settled(&mut target, 4).await;
    let names = api.staying();
    for _ in 0..2 {
        target.scale(&order(4, 3, &[&names[0]])).await.unwrap();
        assert_eq!(api.desired(), 3);
    }
    settled(&mut target, 3).await;
}

#[tokio::test]
async fn to_nothing_and_back() {
    for role in ["minimal", "scale-only", "no-pods"] {
        let api = KubeApi::start(2).await;
        api.account(
            role,
            match role {
                "minimal" => MINIMAL,
                "scale-only" => SCALE_ONLY,
                _ => NO_PODS,
            },
        );
        let mut target = open(&api.config(role));
        settled(&mut target, 2).await;
        let names = api.staying();
        target.scale(&order(2, 0, &[&names[0], &names[1]])).await.unwrap();
        settled(&mut target, 0).await;
        assert_eq!((api.desired(), api.pods().len()), (0, 0), "{role}");
        assert_eq!(look(&mut target).await.desired, Some(0), "{role}");
        target.scale(&order(0, 3, &[])).await.unwrap();
        settled(&mut target, 3).await;
    }
}

#[tokio::test]
async fn a_stateful_set_loses_its_last_pods_and_waits_where_victims_are_required() {
    let api = KubeApi::with("statefulsets", 3, false).await;
    let config = KubernetesConfig { kind: "stateful_set".into(), ..api.config("admin") };
    let strict = KubernetesConfig { require_victims: true, ..config.clone() };
    let mut strict = open(&strict);
    settled(&mut strict, 3).await;
    let busy = [("worker-2".to_owned(), 5)];
    api.world().busy.insert("worker-2".into());
    let refused = strict.scale(&shrink(&api, 2, &busy)).await.unwrap_err().to_string();
    assert!(refused.ends_with("worker-2 would go, which may be busy"), "{refused}");
    let mut target = open(&config);
    settled(&mut target, 3).await;
    let scaled = target.scale(&shrink(&api, 2, &busy)).await.unwrap();
    assert_eq!(scaled.note, "worker-2 will go; busy, to finish within 30s: worker-2");
    super::until("it finishes", async || look(&mut target).await.draining == 1).await;
    assert_eq!(api.pods().len(), 3);
    api.world().busy.clear();
    settled(&mut target, 2).await;
    look(&mut strict).await;
    strict.scale(&shrink(&api, 1, &[])).await.unwrap();
    settled(&mut strict, 1).await;
}

#[tokio::test]
async fn anything_with_a_scale_is_scaled_by_it() {
    let api = KubeApi::with("widgets", 2, false).await;
    let rules: super::Rules =
        &[("example.com", "widgets/scale", &["get", "patch"]), ("", "pods", &["list", "patch"])];
    api.account("widgets", rules);
    let config =
        KubernetesConfig { kind: "widgets.v1.example.com".into(), ..api.config("widgets") };
    let mut target = open(&config);
    settled(&mut target, 2).await;
    target.scale(&order(2, 4, &[])).await.unwrap();
    settled(&mut target, 4).await;
    let busy: Vec<_> = api.staying().into_iter().skip(2).map(|name| (name, 1)).collect();
    let strict = KubernetesConfig { require_victims: true, ..config };
    let mut strict = open(&strict);
    settled(&mut strict, 4).await;
    let refused = strict.scale(&shrink(&api, 2, &busy)).await.unwrap_err();
    let TargetError::NotNow { detail, .. } = &refused else { panic!("{refused}") };
    assert!(detail.contains("is of no ReplicaSet, and only these go by a pod's cost"), "{detail}");
    let scaled = target.scale(&shrink(&api, 2, &busy)).await.unwrap();
    assert!(scaled.note.starts_with("Kubernetes picks who goes: worker-"), "{scaled:?}");
    assert!(scaled.removed.is_empty(), "{scaled:?}");
    settled(&mut target, 2).await;
    assert_eq!(api.staying(), busy.into_iter().map(|(name, _)| name).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_pods_of_an_argo_rollout_are_those_of_replica_sets() {
    let api = KubeApi::with("rollouts", 3, false).await;
    let kind = "rollouts.v1alpha1.argoproj.io".into();
    let mut target = open(&KubernetesConfig { kind, require_victims: true, ..api.config("admin") });
    settled(&mut target, 3).await;
    let busy: Vec<_> = api.staying().into_iter().take(2).map(|name| (name, 1)).collect();
    let order = shrink(&api, 2, &busy);
    let key = ("pods".to_owned(), NAMESPACE.to_owned(), api.staying().remove(2));
    let hash = |hash: &str| {
        let mut pod = api.world().objects[&key].clone();
        pod["metadata"]["labels"]["rollouts-pod-template-hash"] = serde_json::json!(hash);
        api.world().put(key.clone(), pod);
    };
    hash("7c4b");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    look(&mut target).await;
    let refused = target.scale(&order).await.unwrap_err();
    let TargetError::NotNow { detail, .. } = &refused else { panic!("{refused}") };
    assert!(detail.contains("a rollout is under way"), "{detail}");
    hash("56d67d9895");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    look(&mut target).await;
    let scaled = target.scale(&order).await.unwrap();
    assert_eq!(scaled.removed, order.victims);
    settled(&mut target, 2).await;
}

#[tokio::test]
async fn of_more_idle_pods_than_go_nobody_is_named() {
    let api = KubeApi::start(6).await;
    let mut target = open(&api.config("admin"));
    settled(&mut target, 6).await;
    let names = api.staying();
    // The controller takes pods of the node that has most of them.
    for name in &names[..4] {
        let key = ("pods".to_owned(), NAMESPACE.to_owned(), name.clone());
        let mut pod = api.world().objects[&key].clone();
        pod["spec"]["nodeName"] = serde_json::json!("node-1");
        api.world().put(key, pod);
    }
    let (log, _guard) = listen();
    // Whoever is told to go stays until it was seen.
    api.world().busy.extend(names.clone());
    let scaled = target.scale(&shrink(&api, 5, &[])).await.unwrap();
    assert_eq!(scaled.note, "Kubernetes picks 1 of the 6 idle ones");
    assert!(scaled.removed.is_empty(), "{scaled:?}");
    super::until("one goes", async || look(&mut target).await.draining == 1).await;
    api.world().busy.clear();
    settled(&mut target, 5).await;
    assert_eq!(api.staying(), names[1..], "none that was made last");

    let busy: Vec<_> = names[1..3].iter().map(|name| (name.clone(), 5)).collect();
    let scaled = target.scale(&shrink(&api, 2, &busy)).await.unwrap();
    let mut removed = scaled.removed.clone();
    removed.sort();
    assert_eq!(removed, names[3..], "as many idle ones as go: {scaled:?}");
    settled(&mut target, 2).await;
    assert_eq!(api.staying(), names[1..3]);
    let told = log.lock().unwrap().clone();
    assert!(!told.contains("should have gone first"), "{told}");
}

#[tokio::test]
async fn pods_of_others_with_the_same_labels_do_not_count() {
    let api = KubeApi::start(2).await;
    api.world().add_workload("deployments", "jobs", "worker-blue", 3);
    let blue = ("deployments".into(), "jobs".into(), "worker-blue".into());
    let mut object = api.world().objects[&blue].clone();
    let labels = serde_json::json!({ "app": "worker" });
    object["spec"]["selector"]["matchLabels"] = labels.clone();
    object["spec"]["template"]["metadata"]["labels"] = labels;
    api.world().put(blue, object);
    let mut target = open(&api.config("admin"));
    settled(&mut target, 2).await;
    assert_eq!(look(&mut target).await.workers.len(), 2);
}

#[tokio::test]
async fn pods_that_are_all_of_somebody_else_are_told_once_and_the_numbers_do() {
    let api = KubeApi::start(2).await;
    api.world().add_workload("deployments", NAMESPACE, "web", 3);
    super::until("all run", async || {
        api.world().objects.keys().filter(|key| key.0 == "pods").count() == 5
    })
    .await;
    let config = KubernetesConfig { selector: Some("app=web".into()), ..api.config("admin") };
    let mut target = open(&config);
    let (log, _guard) = listen();
    let found = target.check().await;
    let warning = found.iter().find(|found| found.what.contains("none of them belongs to it"));
    let warning = warning.unwrap_or_else(|| panic!("{found:#?}"));
    assert!(warning.what.starts_with("3 pods match the selector"), "{warning:?}");
    assert!(warning.what.contains(" is of ReplicaSet web-"), "{warning:?}");
    assert!(warning.fix.as_ref().unwrap().contains("`selector`"), "{warning:?}");
    for _ in 0..3 {
        let seen = look(&mut target).await;
        assert_eq!((seen.ready, seen.starting, seen.workers.len()), (2, 0, 0));
    }
    let told = log.lock().unwrap().clone();
    assert_eq!(told.matches("none of them belongs to it").count(), 1, "{told}");
    let scaled = target.scale(&order(2, 1, &[])).await.unwrap();
    assert_eq!(scaled.note, "Kubernetes picks who goes: its own pods are not known");
    assert_eq!(api.desired(), 1);

    // With the right selector all is well again.
    let mut target = open(&api.config("admin"));
    settled(&mut target, 1).await;
}
