//! Autoscalers that scale the same workload: `check` and the start of a run warn of them.

use std::collections::HashMap;

use headcount::finding::Level;
use headcount::targets::kubernetes::KubernetesConfig;
use serde_json::{Value, json};

use super::{MINIMAL, Rules, listen, open};
use crate::support::kube_api::world::{HPAS, SCALED_OBJECTS};
use crate::support::kube_api::{Fault, KubeApi, NAMESPACE};

/// The account of `deploy/kubernetes/role.yaml`, as far as it matters here.
const SEES: Rules = &[
    ("apps", "deployments", &["get", "patch"]),
    ("", "pods", &["list", "patch"]),
    ("autoscaling", "horizontalpodautoscalers", &["list"]),
    ("keda.sh", "scaledobjects", &["list"]),
];

/// What `check` says of autoscalers: level, what, fix.
async fn told(config: &KubernetesConfig) -> Vec<(Level, String, String)> {
    let all = open(config).check().await;
    let of_autoscalers = all.into_iter().filter(|f| {
        ["HorizontalPodAutoscaler", "ScaledObject"].iter().any(|word| f.what.contains(word))
    });
    of_autoscalers.map(|f| (f.level, f.what, f.fix.unwrap_or_default())).collect()
}

fn scales(api: &str, kind: &str, name: &str) -> Value {
    json!({ "apiVersion": api, "kind": kind, "name": name })
}

#[tokio::test]
async fn check_warns_of_those_that_scale_the_same_and_of_no_others() {
    let api = KubeApi::start(1).await;
    api.account("sees", SEES);
    let add = |plural: &str, namespace: &str, name: &str, scales: Value| {
        api.world().add_autoscaler(plural, namespace, name, scales);
    };
    add(HPAS, NAMESPACE, "of-another", scales("apps/v1", "Deployment", "web"));
    add(HPAS, NAMESPACE, "of-a-set", scales("apps/v1", "StatefulSet", "worker"));
    add(HPAS, NAMESPACE, "of-a-rollout", scales("argoproj.io/v1alpha1", "Rollout", "worker"));
    add(HPAS, NAMESPACE, "of-a-stranger", scales("example.com/v1", "Deployment", "worker"));
    add(HPAS, "elsewhere", "far", scales("apps/v1", "Deployment", "worker"));
    add(SCALED_OBJECTS, NAMESPACE, "of-another", json!({ "name": "web" }));
    assert_eq!(told(&api.config("sees")).await, []);

    add(HPAS, NAMESPACE, "cpu", scales("apps/v1", "Deployment", "worker"));
    add(SCALED_OBJECTS, NAMESPACE, "queue", json!({ "name": "worker" }));
    let warning = |what: &str, fix: &str| (Level::Warning, what.to_owned(), fix.to_owned());
    let hpa = warning(
        "HorizontalPodAutoscaler cpu scales Deployment jobs/worker too: each undoes what the other \
         does",
        "kubectl delete hpa -n jobs cpu, or let Headcount leave it alone",
    );
    let keda = warning(
        "ScaledObject queue of KEDA scales Deployment jobs/worker too: each undoes what the other \
         does",
        "kubectl annotate scaledobject -n jobs queue autoscaling.keda.sh/paused=true, or delete it",
    );
    assert_eq!(told(&api.config("sees")).await, [hpa.clone(), keda.clone()]);

    // What KEDA made is KEDA's, seen in one way, in the other, or in both.
    add(HPAS, NAMESPACE, "keda-hpa-queue", scales("apps/v1", "Deployment", "worker"));
    let key = (HPAS.into(), NAMESPACE.into(), "keda-hpa-queue".into());
    let mut made = api.world().objects[&key].clone();
    made["metadata"]["ownerReferences"] = json!([{ "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject", "name": "queue", "uid": "x", "controller": true }]);
    api.world().put(key, made);
    assert_eq!(told(&api.config("sees")).await, [hpa.clone(), keda.clone()]);
    api.account("sees", &SEES[..3]);
    assert_eq!(told(&api.config("sees")).await, [hpa.clone(), keda]);

    // Paused, it does nothing.
    api.account("sees", SEES);
    api.world().objects.remove(&(HPAS.into(), NAMESPACE.into(), "keda-hpa-queue".into()));
    let key = (SCALED_OBJECTS.into(), NAMESPACE.into(), "queue".into());
    let mut paused = api.world().objects[&key].clone();
    paused["metadata"]["annotations"] = json!({ "autoscaling.keda.sh/paused": "true" });
    api.world().put(key, paused);
    assert_eq!(told(&api.config("sees")).await, [hpa]);
}

#[tokio::test]
async fn those_of_other_resources_are_told_by_group_and_kind() {
    let api = KubeApi::with("widgets", 1, false).await;
    let config = KubernetesConfig { kind: "widgets.v1.example.com".into(), ..api.config("admin") };
    for (group, kind, expected) in [
        ("apps/v1", "Deployment", 0),
        ("other.com/v1", "Widget", 0),
        ("example.com/v2", "Widget", 1),
    ] {
        api.world().add_autoscaler(HPAS, NAMESPACE, "it", scales(group, kind, "worker"));
        assert_eq!(told(&config).await.len(), expected, "{group} {kind}");
    }
}

#[tokio::test]
async fn whoever_may_not_see_them_is_told_so_and_nothing_else() {
    let mut api = KubeApi::start(1).await;
    api.account("minimal", MINIMAL);
    let note = |why: &str| {
        let what = format!("whether a HorizontalPodAutoscaler scales it too is not seen ({why})");
        [(Level::Good, what, String::new())]
    };
    let lacks = note("the Role lacks: list horizontalpodautoscalers");
    assert_eq!(told(&api.config("minimal")).await, lacks);
    api.account("sees", SEES);
    assert_eq!(told(&api.config("sees")).await, [], "a cluster without KEDA");
    api.break_by(Fault::Refuse("list", SCALED_OBJECTS, 500));
    assert_eq!(told(&api.config("sees")).await, []);
    api.break_by(Fault::Refuse("list", HPAS, 503));
    let down = "the API server answers 503: the server is currently unable to handle the request";
    assert_eq!(told(&api.config("sees")).await, note(down));
}

#[tokio::test]
async fn a_run_warns_once() {
    let api = KubeApi::start(1).await;
    let deployment = scales("apps/v1", "Deployment", "worker");
    api.world().add_autoscaler(HPAS, NAMESPACE, "cpu", deployment);
    let (log, _guard) = listen();
    let mut target = open(&api.config("admin"));
    for _ in 0..3 {
        target.status().await.unwrap();
        target.watch_over(&HashMap::new()).await;
    }
    let text = log.lock().unwrap().clone();
    let said = "HorizontalPodAutoscaler cpu scales Deployment jobs/worker too";
    assert_eq!(text.matches(said).count(), 1, "{text}");
    assert!(text.contains("WARN") && text.contains("kubectl delete hpa -n jobs cpu"), "{text}");
    assert_eq!(api.asked().iter().filter(|asked| asked.ends_with(HPAS)).count(), 1);
}
