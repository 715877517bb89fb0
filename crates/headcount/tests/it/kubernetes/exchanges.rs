//! The stand-in against what a real control plane was seen to answer: the essentials of recorded
//! exchanges, here in `exchanges.json`. With HEADCOUNT_KUBERNETES_CONTRACTS=DIR the recordings
//! themselves are compared.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::kube_api::KubeApi;
use crate::support::kube_api::world::Rule;

/// The accounts of the recordings, by their names there.
fn accounts() -> Vec<(&'static str, &'static str, Vec<Rule>)> {
    let rule =
        |group: &str, resource: &str, verbs: &[&str]| Rule::new("infer", group, resource, verbs);
    vec![
        (
            "sa:autoscaler-min",
            "autoscaler",
            vec![
                rule("apps", "deployments", &["get", "patch"]),
                rule("", "pods", &["get", "list", "patch"]),
            ],
        ),
        (
            "sa:scale-only",
            "scale-only",
            vec![rule("apps", "deployments/scale", &["get", "patch", "update"])],
        ),
        ("sa:patch-only", "patch-only", vec![rule("apps", "deployments", &["patch"])]),
        ("sa:named", "named", vec![rule("apps", "deployments", &["get"])]),
        ("sa:gone", "gone", Vec::new()),
        ("sa:full", "full", vec![rule("*", "*", &["*"])]),
        ("cluster-admin", "admin", vec![Rule::new("*", "*", "*", &["*"])]),
    ]
}

/// A cluster as it was when the recordings were made.
async fn cluster() -> KubeApi {
    let api = KubeApi::start(0).await;
    let mut world = api.world();
    world.objects.clear();
    world.add_workload("deployments", "infer", "vllm", 3);
    for (token, name, rules) in accounts() {
        let user = format!("system:serviceaccount:infer:{name}");
        world.accounts.insert(token.into(), (user, rules));
    }
    world.step();
    world.step();
    let lease = json!({ "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
        "metadata": { "name": "autoscaler", "namespace": "infer", "uid": "u" },
        "spec": { "holderIdentity": "replica-a", "leaseDurationSeconds": 15,
            "renewTime": "2026-11-30T13:09:35.849885Z" } });
    world.put(("leases".into(), "infer".into(), "autoscaler".into()), lease);
    drop(world);
    api
}

/// The recorded pod's uid.
const RECORDED_UID: &str = "876da377-d000-4c60-b97a-4ba9def36199";

/// The name and uid of a pod that can stand for the recorded one.
fn first_pod(api: &KubeApi) -> (String, String) {
    let world = api.world();
    let (key, pod) = world.objects.iter().find(|(key, _)| key.0 == "pods").unwrap();
    (key.2.clone(), pod["metadata"]["uid"].as_str().unwrap().to_owned())
}

/// What the stand-in answers to a recorded request.
fn answer(api: &KubeApi, exchange: &Value) -> (u16, Value) {
    let request = &exchange["request"];
    let bearer = format!("Bearer {}", exchange["as"].as_str().unwrap());
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let kind = text(&request["headers"]["Content-Type"]);
    let mut headers = vec![("content-type", kind.as_str()), ("accept", "application/json")];
    if exchange["as"] != "anonymous" {
        headers.push(("authorization", bearer.as_str()));
    }
    let body = match &request["body"] {
        Value::Null => Vec::new(),
        Value::String(raw) => raw.clone().into_bytes(),
        body => body.to_string().replace(RECORDED_UID, &first_pod(api).1).into_bytes(),
    };
    let (pod, _) = first_pod(api);
    let path = text(&request["path"]).replace("vllm-56d67d9895-wg7lz", &pod);
    api.ask(&text(&request["method"]), &path, &headers, &body)
}

/// Everything that is expected is there and equal.
fn holds(expected: &Value, got: &Value, at: &str) -> Result<(), String> {
    match (expected, got) {
        (Value::Object(fields), Value::Object(_)) => fields
            .iter()
            .try_for_each(|(key, value)| holds(value, &got[key], &format!("{at}.{key}"))),
        _ if expected == got => Ok(()),
        _ => Err(format!("{at}: {expected} was seen, {got} is answered")),
    }
}

#[tokio::test]
async fn the_stand_in_answers_as_the_real_one_did() {
    let exchanges: Vec<Value> = serde_json::from_str(include_str!("exchanges.json")).unwrap();
    assert!(exchanges.len() >= 30);
    for exchange in exchanges {
        let api = cluster().await;
        let (status, body) = answer(&api, &exchange);
        let name = &exchange["name"];
        assert_eq!(json!(status), exchange["response"]["status"], "{name}: {body}");
        holds(&exchange["response"]["body"], &body, &name.to_string()).unwrap();
        for absent in exchange["response"]["absent"].as_array().into_iter().flatten() {
            let found = body.pointer(absent.as_str().unwrap());
            assert_eq!(found, None, "{name}: {absent}");
        }
    }
    if let Some(folder) = std::env::var_os("HEADCOUNT_KUBERNETES_CONTRACTS") {
        compare_recordings(Path::new(&folder)).await;
    }
}

/// What matters of a recorded answer: of a refusal everything, of an object what it is and its number.
fn essentials(body: &Value) -> Value {
    if body["kind"] != "Status" {
        let mut kept = json!({ "kind": body["kind"], "apiVersion": body["apiVersion"] });
        if body["kind"] == "SelfSubjectAccessReview" {
            kept["status"]["allowed"] = body["status"]["allowed"].clone();
        }
        return kept;
    }
    let mut kept = body.clone();
    // These quote the whole object of that time.
    if kept["message"].as_str().is_some_and(|message| message.contains('{')) {
        for key in ["message", "details"] {
            kept.as_object_mut().unwrap().remove(key);
        }
    }
    if kept["details"] == json!({}) {
        kept.as_object_mut().unwrap().remove("details");
    }
    kept["metadata"] = json!({});
    let text = kept.to_string().replace("vllm-56d67d9895-wg7lz", "POD");
    serde_json::from_str(&text).unwrap()
}

/// What the stand-in is used for; watches, events, other patch types and the like are not.
fn is_in_use(name: &str) -> bool {
    let unused = "watch event ssa- -ssa json-patch jsonpatch strategic continue rv0 future-rv exact-rv \
                  406 tokenrequest ssrr whoami readyz unknown yaml version delete evict 405 \
                  post-to-named resourcenames template pod-image dryrun fieldselector \
                  bad-labelselector metadata-only deleting-deployment serviceaccount-deleted pod-log \
                  pod-status limit annotation-number annotation-remove patch-renew lease-update \
                  lease-create 404-lease-get with-rv empty-patch";
    name != "INDEX" && !unused.split_whitespace().any(|part| name.contains(part))
}

/// Compares all recordings that are of use.
async fn compare_recordings(folder: &Path) {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.extension().is_none_or(|extension| extension != "json") || !is_in_use(&name) {
            continue;
        }
        let exchange: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let api = cluster().await;
        let (status, body) = answer(&api, &exchange);
        let text = body.to_string().replace(&first_pod(&api).0, "POD");
        let body: Value = serde_json::from_str(&text).unwrap();
        compared += 1;
        if json!(status) != exchange["response"]["status"] {
            wrong.push(format!("{name}: {status}: {body}"));
        } else if let Err(why) = holds(&essentials(&exchange["response"]["body"]), &body, &name) {
            wrong.push(why);
        }
    }
    assert!(compared > 40, "{compared}");
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
}
