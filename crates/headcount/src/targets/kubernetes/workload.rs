//! What is scaled, as the API tells it: the object itself, or only its scale. Zeros are absent in
//! both.

use headcount_core::Span;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{ApiResource, DynamicObject, Selector};
use serde::Deserialize;
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
    pub(super) version: Option<String>,
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
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    /// Absent means one; the API server fills it in.
    replicas: Option<u32>,
    selector: Option<LabelSelector>,
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

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    message: String,
}

impl Workload {
    /// From the object. `None` if it makes no sense.
    pub(super) fn of_object(object: DynamicObject) -> Option<Self> {
        let DynamicObject { metadata, mut data, .. } = object;
        let spec: Spec = serde_json::from_value(data["spec"].take()).ok()?;
        let told = Some(data["status"].take()).filter(|status| !status.is_null());
        let status: Status =
            told.map_or_else(|| Some(<_>::default()), |s| serde_json::from_value(s).ok())?;
        // What it says of failures may be about an older number.
        let caught_up = status.observed_generation >= metadata.generation.unwrap_or(0);
        let failed = |c: &Condition| c.kind == "ReplicaFailure" && c.status == "True";
        let failure = status.conditions.into_iter().find(failed).filter(|_| caught_up);
        Some(Self {
            desired: spec.replicas.unwrap_or(1),
            replicas: status.replicas,
            ready: Some(status.ready_replicas),
            terminating: status.terminating_replicas,
            version: metadata.resource_version,
            picks: spec.selector.and_then(|s| Selector::try_from(s).ok()).map(Picks::from),
            grace: spec.template["spec"]["terminationGracePeriodSeconds"]
                .as_i64()
                .map(Span::from_secs),
            deleting: metadata.deletion_timestamp.is_some(),
            failure: failure.map(|condition| condition.message),
        })
    }

    /// From its scale. `None` if it makes no sense.
    pub(super) fn of_scale(scale: Scale) -> Option<Self> {
        let desired = scale.spec.and_then(|spec| spec.replicas).unwrap_or(0);
        let status = scale.status.unwrap_or_default();
        let picks = status.selector.as_deref().filter(|text| !text.is_empty());
        Some(Self {
            desired: u32::try_from(desired).ok()?,
            replicas: u32::try_from(status.replicas).ok()?,
            version: scale.metadata.resource_version,
            picks: picks.and_then(|text| selector::parse(text).ok()),
            deleting: scale.metadata.deletion_timestamp.is_some(),
            ..Self::default()
        })
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

    fn object(json: Value) -> Workload {
        Workload::of_object(serde_json::from_value(json).unwrap()).unwrap()
    }

    #[test]
    fn absent_numbers_are_zero_in_a_status_and_one_in_a_spec() {
        let zero = object(json!({
            "metadata": { "generation": 178, "resourceVersion": "2736" },
            "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "w" } },
                "template": { "spec": { "terminationGracePeriodSeconds": 30 } } },
            "status": { "observedGeneration": 178, "terminatingReplicas": 0 },
        }));
        assert_eq!((zero.desired, zero.replicas, zero.ready), (0, 0, Some(0)));
        assert_eq!(zero.grace, Some(Span::from_secs(30)));
        assert_eq!(zero.version.as_deref(), Some("2736"));
        let bare = object(json!({ "metadata": {}, "spec": {} }));
        assert_eq!((bare.desired, bare.replicas), (1, 0));
        let scale = |json| Workload::of_scale(serde_json::from_value(json).unwrap()).unwrap();
        let nothing = scale(json!({
            "metadata": { "name": "w" }, "spec": {}, "status": { "replicas": 0, "selector": "app=w" },
        }));
        assert_eq!((nothing.desired, nothing.replicas, nothing.ready), (0, 0, None));
        assert!(nothing.picks.is_some());
    }

    #[test]
    fn a_failure_counts_only_if_it_is_about_the_number_asked_for() {
        let failing = |observed: i64| {
            object(json!({
                "metadata": { "generation": 3 },
                "spec": { "replicas": 4 },
                "status": { "observedGeneration": observed, "conditions": [
                    { "type": "ReplicaFailure", "status": "True", "message": "exceeded quota" },
                ] },
            }))
        };
        assert_eq!(failing(3).failure.as_deref(), Some("exceeded quota"));
        assert_eq!(failing(2).failure, None);
    }
}
