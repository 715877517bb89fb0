//! What is scaled, as the API tells it: the object itself, or only its scale. An answer that lacks
//! what makes it one is no answer: zeros are absent in a status, and in the `spec` of a scale, but
//! an absent `spec` is never zero workers.

use headcount_core::Span;
use headcount_core::rules::MOST_WORKERS;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ApiResource, DynamicObject, Selector};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::targets::kubernetes::config::Kind;
use crate::targets::kubernetes::selector::{self, Picks};

/// What is scaled, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Workload {
    /// The number of pods that is asked for.
    pub(super) desired: u32,
    /// Pods that are there by its status, without terminating ones.
    pub(super) replicas: u32,
    /// Of these, the ready ones; absent where only the scale is known.
    pub(super) ready: Option<u32>,
    /// Pods that terminate by its status.
    pub(super) terminating: u32,
    /// The version of the object, which a change must name.
    pub(super) version: String,
    /// Which pods are its own; absent where nobody says.
    pub(super) picks: Option<Picks>,
    /// How long a pod may take to end before it is killed.
    pub(super) grace: Option<Span>,
    /// It is being deleted.
    pub(super) deleting: bool,
    /// Why the controller cannot make pods.
    pub(super) failure: Option<String>,
}

/// The parts of an object that matter.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    /// The API server fills it in where nobody set it.
    replicas: u32,
    #[serde(default)]
    selector: Option<LabelSelector>,
    #[serde(default)]
    template: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    observed_generation: i64,
    replicas: u32,
    ready_replicas: u32,
    terminating_replicas: u32,
    conditions: Vec<Condition>,
}

/// A scale, whose zeros are absent.
#[derive(Deserialize)]
struct ScaleSpec {
    #[serde(default)]
    replicas: u32,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ScaleStatus {
    replicas: u32,
    selector: String,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    message: String,
}

/// Why an answer is not understood.
type Flaw = &'static str;

impl Workload {
    /// From the object of this kind and name.
    ///
    /// # Errors
    /// What is wrong with the answer.
    pub(super) fn of_object(object: DynamicObject, kind: &str, name: &str) -> Result<Self, Flaw> {
        let version = version(&object, kind, name)?;
        let DynamicObject { metadata, mut data, .. } = object;
        let spec: Spec = part(&mut data, "spec")?.ok_or("it has no spec")?;
        let status: Status = part(&mut data, "status")?.unwrap_or_default();
        let numbers =
            [spec.replicas, status.replicas, status.ready_replicas, status.terminating_replicas];
        plausible(&numbers)?;
        // What it says of failures may be about an older number.
        let caught_up = status.observed_generation >= metadata.generation.unwrap_or(0);
        let failed = |c: &Condition| c.kind == "ReplicaFailure" && c.status == "True";
        let failure = status.conditions.into_iter().find(failed).filter(|_| caught_up);
        Ok(Self {
            desired: spec.replicas,
            replicas: status.replicas,
            ready: Some(status.ready_replicas),
            terminating: status.terminating_replicas,
            version,
            picks: spec.selector.and_then(|s| Selector::try_from(s).ok()).map(Picks::from),
            grace: spec.template["spec"]["terminationGracePeriodSeconds"]
                .as_i64()
                .map(Span::from_secs),
            deleting: metadata.deletion_timestamp.is_some(),
            failure: failure.map(|condition| condition.message),
        })
    }

    /// From the scale of what has this name.
    ///
    /// # Errors
    /// What is wrong with the answer.
    pub(super) fn of_scale(scale: DynamicObject, name: &str) -> Result<Self, Flaw> {
        let version = version(&scale, "Scale", name)?;
        let DynamicObject { metadata, mut data, .. } = scale;
        let spec: ScaleSpec = part(&mut data, "spec")?.ok_or("it has no spec")?;
        let status: ScaleStatus = part(&mut data, "status")?.unwrap_or_default();
        plausible(&[spec.replicas, status.replicas])?;
        let picks = Some(status.selector.as_str()).filter(|text| !text.is_empty());
        Ok(Self {
            desired: spec.replicas,
            replicas: status.replicas,
            version,
            picks: picks.and_then(|text| selector::parse(text).ok()),
            deleting: metadata.deletion_timestamp.is_some(),
            ..Self::default()
        })
    }
}

/// The version of an answer that is about what was asked for.
fn version(object: &DynamicObject, kind: &str, name: &str) -> Result<String, Flaw> {
    if object.types.as_ref().is_none_or(|types| types.kind != kind) {
        return Err("it is of another kind");
    }
    if object.metadata.name.as_deref() != Some(name) {
        return Err("it has another name");
    }
    let version = object.metadata.resource_version.clone();
    version.filter(|version| !version.is_empty()).ok_or("it has no resourceVersion")
}

/// One part of an object; `None` if it is absent.
fn part<T: DeserializeOwned>(data: &mut Value, name: &str) -> Result<Option<T>, Flaw> {
    match data.get_mut(name).map(Value::take) {
        None | Some(Value::Null) => Ok(None),
        // A list of values would be taken for a struct.
        Some(part) if part.is_object() => {
            serde_json::from_value(part).map(Some).map_err(|_| "its numbers make no sense")
        }
        Some(_) => Err("its numbers make no sense"),
    }
}

fn plausible(numbers: &[u32]) -> Result<(), Flaw> {
    match numbers.iter().all(|number| *number <= MOST_WORKERS) {
        true => Ok(()),
        false => Err("it has more workers than can be"),
    }
}

impl Kind {
    /// Where the API keeps such objects.
    pub(super) fn resource(&self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Deployment => ("apps", "v1", "Deployment", "deployments"),
            Self::StatefulSet => ("apps", "v1", "StatefulSet", "statefulsets"),
            Self::Custom { group, version, plural } => {
                (group.as_str(), version.as_str(), plural.as_str(), plural.as_str())
            }
        };
        ApiResource {
            group: group.into(),
            version: version.into(),
            api_version: format!("{group}/{version}"),
            kind: kind.into(),
            plural: plural.into(),
        }
    }

    /// What people call it.
    pub(super) fn noun(&self) -> &str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::Custom { plural, .. } => plural,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(json: Value) -> Result<Workload, Flaw> {
        let object = serde_json::from_value(json).map_err(|_| "no object")?;
        Workload::of_object(object, "Deployment", "w")
    }

    fn scale(json: Value) -> Result<Workload, Flaw> {
        let scale = serde_json::from_value(json).map_err(|_| "no object")?;
        Workload::of_scale(scale, "w")
    }

    #[test]
    fn absent_numbers_are_zero_in_a_status_and_in_the_spec_of_a_scale() {
        let zero = object(json!({
            "kind": "Deployment", "apiVersion": "apps/v1",
            "metadata": { "name": "w", "generation": 178, "resourceVersion": "2736" },
            "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "w" } },
                "template": { "spec": { "terminationGracePeriodSeconds": 30 } } },
            "status": { "observedGeneration": 178, "terminatingReplicas": 0 },
        }))
        .unwrap();
        assert_eq!((zero.desired, zero.replicas, zero.ready), (0, 0, Some(0)));
        assert_eq!(zero.grace, Some(Span::from_secs(30)));
        assert_eq!(zero.version, "2736");
        let nothing = scale(json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": { "name": "w", "resourceVersion": "7" },
            "spec": {}, "status": { "replicas": 0, "selector": "app=w" },
        }))
        .unwrap();
        assert_eq!((nothing.desired, nothing.replicas, nothing.ready), (0, 0, None));
        assert!(nothing.picks.is_some());
    }

    #[test]
    fn an_answer_that_lacks_what_makes_it_one_is_never_a_number() {
        type Read = fn(Value) -> Result<Workload, Flaw>;
        for (kind, api, read) in
            [("Deployment", "apps/v1", object as Read), ("Scale", "autoscaling/v1", scale as Read)]
        {
            let good = json!({
                "kind": kind, "apiVersion": api,
                "metadata": { "name": "w", "resourceVersion": "7" },
                "spec": { "replicas": 5 }, "status": { "replicas": 5 },
            });
            assert_eq!(read(good.clone()).map(|workload| workload.desired), Ok(5));
            for nothing in [json!({}), json!({ "ok": true }), json!([]), json!(null), json!(5)] {
                assert!(read(nothing.clone()).is_err(), "{nothing}");
            }
            let changes = [
                ("/kind", json!("Status")),
                ("/kind", json!(null)),
                ("/metadata/name", json!("other")),
                ("/metadata/name", json!(null)),
                ("/metadata/resourceVersion", json!("")),
                ("/metadata/resourceVersion", json!(null)),
                ("/spec", json!(null)),
                ("/spec", json!([5])),
                ("/spec/replicas", json!(null)),
                ("/spec/replicas", json!(-1)),
                ("/spec/replicas", json!("5")),
                ("/spec/replicas", json!(MOST_WORKERS + 1)),
                ("/status", json!([5])),
                ("/status/replicas", json!(MOST_WORKERS + 1)),
                ("/status/replicas", json!(4_294_967_296_u64)),
            ];
            for (place, value) in changes {
                let mut bad = good.clone();
                *bad.pointer_mut(place).unwrap() = value.clone();
                assert!(read(bad).is_err(), "{kind} with {place} {value}");
            }
        }
        let bare = json!({ "kind": "Deployment", "apiVersion": "apps/v1",
            "metadata": { "name": "w", "resourceVersion": "7" }, "spec": {} });
        assert!(object(bare).is_err(), "the API server fills the number in");
    }

    #[test]
    fn a_failure_counts_only_if_it_is_about_the_number_asked_for() {
        let failing = |observed: i64| {
            object(json!({
                "kind": "Deployment", "apiVersion": "apps/v1",
                "metadata": { "name": "w", "generation": 3, "resourceVersion": "7" },
                "spec": { "replicas": 4 },
                "status": { "observedGeneration": observed, "conditions": [
                    { "type": "ReplicaFailure", "status": "True", "message": "exceeded quota" },
                ] },
            }))
            .unwrap()
        };
        assert_eq!(failing(3).failure.as_deref(), Some("exceeded quota"));
        assert_eq!(failing(2).failure, None);
    }
}
