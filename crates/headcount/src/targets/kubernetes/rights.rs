//! What this account may do. The API is asked, and if it cannot tell, it is tried: a Role may allow
//! the object or only its scale, pods or not.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use tokio::time::Instant;

use crate::limits::{ACCESS_REVIEW_EVERY, KUBERNETES_LOOK, WARN_EVERY};
use crate::targets::kubernetes::client::{ApiError, Cluster};
use crate::targets::kubernetes::config::Kind;

/// One thing that may be allowed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Action {
    /// `get`, `patch`, `list`, `create`, `update`.
    pub verb: &'static str,
    /// The API group; empty for the core.
    pub group: String,
    /// `deployments`, `pods`.
    pub resource: String,
    /// `scale`, or empty.
    pub subresource: &'static str,
}

/// What may be done. What is not known may be tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    /// The object may be read; else its scale is.
    pub(super) get_object: bool,
    /// The object may be changed; else its scale is.
    pub(super) patch_object: bool,
    pub(super) list_pods: bool,
    pub(super) patch_pods: bool,
    /// When the API was last asked.
    pub(super) reviewed: Option<Instant>,
    /// Something was refused: ask again soon.
    pub(super) in_doubt: bool,
}

impl Action {
    fn new(verb: &'static str, group: &str, resource: &str, subresource: &'static str) -> Self {
        Self { verb, group: group.into(), resource: resource.into(), subresource }
    }

    /// As in a Role: `patch deployments/scale`.
    pub fn shown(&self) -> String {
        let Self { verb, resource, subresource, .. } = self;
        let slash = if subresource.is_empty() { "" } else { "/" };
        format!("{verb} {resource}{slash}{subresource}")
    }

    /// Whether it is allowed in `namespace`, of the object `name` if one is named.
    ///
    /// # Errors
    /// The API does not tell.
    pub(super) async fn is_allowed(
        &self,
        cluster: &Cluster,
        namespace: &str,
        name: Option<&str>,
    ) -> Result<bool, ApiError> {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let asked = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: some(namespace),
                    verb: some(self.verb),
                    group: some(&self.group),
                    resource: some(&self.resource),
                    subresource: some(self.subresource),
                    name: name.and_then(some),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let asked = &asked;
        let answer = cluster.ask(KUBERNETES_LOOK, |client| async move {
            let reviews = Api::<SelfSubjectAccessReview>::all(client);
            reviews.create(&PostParams::default(), asked).await
        });
        // A denial has no other key than this.
        Ok(answer.await?.status.is_some_and(|status| status.allowed))
    }
}

/// Everything that scaling `kind` can make use of, in the order of `Rights`.
pub fn actions(kind: &str) -> Option<[Action; 6]> {
    let config = super::KubernetesConfig { kind: kind.into(), ..<_>::default() };
    Some(of_kind(&config.kind()?))
}

/// Everything that a lease needs.
pub fn of_leases() -> [Action; 3] {
    ["get", "create", "update"].map(|verb| Action::new(verb, "coordination.k8s.io", "leases", ""))
}

/// Everything that is needed to see who else scales the same.
pub fn of_rivals() -> [Action; 2] {
    [("autoscaling", "horizontalpodautoscalers"), ("keda.sh", "scaledobjects")]
        .map(|(group, resource)| Action::new("list", group, resource, ""))
}

pub(super) fn of_kind(kind: &Kind) -> [Action; 6] {
    let resource = kind.resource();
    let (group, plural) = (resource.group.as_str(), resource.plural.as_str());
    [
        Action::new("get", group, plural, ""),
        Action::new("patch", group, plural, ""),
        Action::new("get", group, plural, "scale"),
        Action::new("patch", group, plural, "scale"),
        Action::new("list", "", "pods", ""),
        Action::new("patch", "", "pods", ""),
    ]
}

impl Rights {
    /// Before anything is known.
    pub(super) fn unknown() -> Self {
        Self {
            get_object: true,
            patch_object: true,
            list_pods: true,
            patch_pods: true,
            reviewed: None,
            in_doubt: false,
        }
    }

    /// Whether it is time to ask.
    pub(super) fn are_due(&self) -> bool {
        let every = if self.in_doubt { WARN_EVERY } else { ACCESS_REVIEW_EVERY };
        self.reviewed.is_none_or(|at| at.elapsed() >= every)
    }

    /// What the API says now; what it does not say stays to be tried.
    pub(super) async fn review(
        cluster: &Cluster,
        namespace: &str,
        kind: &Kind,
        name: &str,
    ) -> Self {
        let mut rights = Self::unknown();
        let actions = of_kind(kind);
        let asked = actions.iter().map(|action| {
            let name = (action.resource != "pods").then_some(name);
            action.is_allowed(cluster, namespace, name)
        });
        let told = futures_util::future::join_all(asked).await;
        let told: Vec<bool> = told.into_iter().map(|answer| answer.unwrap_or(true)).collect();
        let [object, change, _, _, list, annotate] = told[..] else { return rights };
        (rights.get_object, rights.patch_object) = (object, change);
        (rights.list_pods, rights.patch_pods) = (list, annotate);
        rights.reviewed = Some(Instant::now());
        rights
    }
}
