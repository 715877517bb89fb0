//! Who else sets the number of the same workload: two that do undo each other's changes.

use futures_util::future::join;
use kube::api::{Api, ListParams};
use kube::core::{ApiResource, DynamicObject};
use serde::Deserialize;

use crate::finding::Finding;
use crate::limits::KUBERNETES_LOOK;
use crate::targets::kubernetes::client::ApiError;
use crate::targets::kubernetes::rights::{Action, of_rivals};
use crate::targets::kubernetes::target::Kubernetes;

/// An autoscaler that scales the same workload.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rival {
    /// A HorizontalPodAutoscaler of this name.
    Hpa(String),
    /// A ScaledObject of KEDA, which makes a HorizontalPodAutoscaler.
    Keda(String),
}

/// What an autoscaler scales.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TargetRef {
    api_version: Option<String>,
    /// Absent means a Deployment; KEDA allows that.
    kind: Option<String>,
    name: String,
}

impl Kubernetes {
    /// Says of each who scales the same workload that it does and what to do about it. Where nobody
    /// may ask, says so.
    pub(super) async fn rivals(&self) -> Vec<Finding> {
        let [hpas, scaled] = of_rivals();
        let (hpas, scaled) = join(
            self.autoscalers(&hpas, "v2", "HorizontalPodAutoscaler"),
            self.autoscalers(&scaled, "v1alpha1", "ScaledObject"),
        )
        .await;
        // Most clusters have no KEDA, and what it makes shows among the others.
        let mut rivals: Vec<Rival> = scaled.iter().flatten().filter_map(keda).collect();
        rivals.extend(hpas.iter().flatten().map(hpa));
        rivals.sort();
        rivals.dedup();
        let mut findings: Vec<Finding> = rivals.iter().map(|rival| self.warning(rival)).collect();
        if let Err(error) = hpas {
            let why = match error.is(403) {
                true => "the Role lacks: list horizontalpodautoscalers".into(),
                false => error.to_string(),
            };
            let what =
                format!("whether a HorizontalPodAutoscaler scales it too is not seen ({why})");
            findings.push(Finding::good("target", what));
        }
        findings
    }

    fn warning(&self, rival: &Rival) -> Finding {
        let (namespace, shown) = (&self.namespace, self.shown());
        let undo = "each undoes what the other does";
        match rival {
            Rival::Hpa(name) => Finding::warning(
                "target",
                format!("HorizontalPodAutoscaler {name} scales {shown} too: {undo}"),
                format!(
                    "kubectl delete hpa -n {namespace} {name}, or let Headcount leave it alone"
                ),
            ),
            Rival::Keda(name) => Finding::warning(
                "target",
                format!("ScaledObject {name} of KEDA scales {shown} too: {undo}"),
                format!(
                    "kubectl annotate scaledobject -n {namespace} {name} \
                     autoscaling.keda.sh/paused=true, or delete it"
                ),
            ),
        }
    }

    /// The autoscalers of this kind that scale the workload.
    async fn autoscalers(
        &self,
        action: &Action,
        version: &str,
        kind: &str,
    ) -> Result<Vec<DynamicObject>, ApiError> {
        let resource = ApiResource {
            group: action.group.clone(),
            version: version.into(),
            api_version: format!("{}/{version}", action.group),
            kind: kind.into(),
            plural: action.resource.clone(),
        };
        let (namespace, resource) = (&*self.namespace, &resource);
        let listed = self.cluster.ask(KUBERNETES_LOOK, |client| async move {
            let all = Api::<DynamicObject>::namespaced_with(client, namespace, resource);
            all.list(&ListParams::default().limit(500)).await
        });
        let mut all = listed.await?.items;
        all.retain(|object| self.is_scaled_by(object));
        Ok(all)
    }

    fn is_scaled_by(&self, object: &DynamicObject) -> bool {
        let told = object.data["spec"].get("scaleTargetRef");
        let target = told.and_then(|told| TargetRef::deserialize(told).ok()).unwrap_or_default();
        let resource = self.kind.resource();
        let kind = target.kind.unwrap_or_else(|| "Deployment".into()).to_ascii_lowercase();
        let group = target.api_version.as_deref().and_then(|api| api.split_once('/'));
        // The kind of another resource is not known, but its plural begins like it.
        target.name == self.name
            && resource.plural.starts_with(&kind)
            && group.is_none_or(|(group, _)| group == resource.group)
    }
}

fn name(object: &DynamicObject) -> String {
    object.metadata.name.clone().unwrap_or_default()
}

fn hpa(object: &DynamicObject) -> Rival {
    let owners = object.metadata.owner_references.iter().flatten();
    match owners.into_iter().find(|owner| owner.kind == "ScaledObject") {
        Some(owner) => Rival::Keda(owner.name.clone()),
        None => Rival::Hpa(name(object)),
    }
}

/// A ScaledObject that is not paused.
fn keda(object: &DynamicObject) -> Option<Rival> {
    let annotations = object.metadata.annotations.as_ref();
    let paused = annotations.and_then(|all| all.get("autoscaling.keda.sh/paused"));
    paused.is_none_or(|paused| paused != "true").then(|| Rival::Keda(name(object)))
}
