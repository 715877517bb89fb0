//! What `headcount check` says of a Kubernetes target: what the account may and may not do, and
//! whether what is to be scaled is there, lets its pods finish, and is scaled by nobody else.

use kube::api::{Api, ListParams};
use kube::core::{DynamicObject, PartialObjectMeta};

use crate::finding::{Fact, Finding};
use crate::limits::{KUBERNETES_LOOK, NEIGHBOURS};
use crate::targets::Target;
use crate::targets::kubernetes::client::ApiError;
use crate::targets::kubernetes::config::Kind;
use crate::targets::kubernetes::fleet::trouble;
use crate::targets::kubernetes::rights::of_kind;
use crate::targets::kubernetes::target::{Kubernetes, Strangers};

const ABOUT: &str = "target";

/// What to do about a refusal.
const ROLE: &str = "give the account a Role like deploy/kubernetes/role.yaml, in this namespace";

impl Kubernetes {
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        let server = &self.cluster.server;
        let version = self
            .cluster
            .ask(KUBERNETES_LOOK, |client| async move { client.apiserver_version().await })
            .await;
        let mut findings = vec![match version {
            Ok(version) => {
                let what = format!("Kubernetes {} at {server}", version.git_version);
                Finding::good(ABOUT, what)
            }
            Err(error) => {
                let fix =
                    "check `kubeconfig` and `context`, the network, and whether the server runs";
                let what = format!("no Kubernetes at {server}: {error}");
                return vec![Finding::problem(ABOUT, what, fix)];
            }
        }];
        match self.permissions().await {
            Ok(found) => findings.extend(found),
            Err(error) => {
                let what = format!("nobody knows what the account may do: {error}");
                let fix = match error.status {
                    Some(401) => "renew the token, or name the right `context`",
                    _ => "log in: an account that is not known may not even ask",
                };
                findings.push(Finding::problem(ABOUT, what, fix));
                return findings;
            }
        }
        match self.status().await {
            Ok(seen) => {
                let workers = seen.reading.capacity() as usize;
                findings.extend(self.found(workers));
                findings.extend(self.rivals().await);
            }
            Err(missing) => findings.push(self.not_found(&missing.to_string()).await),
        }
        findings
    }

    /// What the account may do: enough to scale, and what makes it better.
    async fn permissions(&self) -> Result<Vec<Finding>, ApiError> {
        let actions = of_kind(&self.kind);
        let mut allowed = [false; 6];
        for (action, allowed) in actions.iter().zip(&mut allowed) {
            let name = (action.resource != "pods").then_some(self.name.as_str());
            *allowed = action.is_allowed(&self.cluster, &self.namespace, name).await?;
        }
        let [mut get_object, mut patch_object, get_scale, patch_scale, list_pods, patch_pods] =
            allowed;
        if self.is_custom() {
            (get_object, patch_object) = (false, false);
        }
        let resource = self.kind.resource().plural;
        let ways = [(get_object && patch_object, ""), (get_scale && patch_scale, "/scale")];
        let ways: Vec<String> = ways
            .iter()
            .filter(|(can, _)| *can)
            .map(|(_, sub)| format!("{resource}{sub}"))
            .collect();
        let namespace = &self.namespace;
        let mut findings = Vec::new();
        let can_do = (get_object || get_scale) && (patch_object || patch_scale);
        if can_do {
            let by = if ways.is_empty() { resource.clone() } else { ways.join(", ") };
            let what = format!("may get and patch {by} in {namespace}");
            findings.push(Finding::good(ABOUT, what));
        } else {
            let lacks: Vec<String> = actions
                .iter()
                .zip(allowed)
                .take(4)
                .filter(|(_, ok)| !ok)
                .map(|(a, _)| a.shown())
                .collect();
            let what = format!(
                "the account may not scale {} in {namespace}: it lacks {}",
                self.name,
                lacks.join(", ")
            );
            findings.push(Finding::problem(ABOUT, what, ROLE));
        }
        if !list_pods {
            let what =
                "pods cannot be listed: which of them are busy, ready or broken is not known";
            let fix = "allow `list pods`, the optional rule in deploy/kubernetes/role.yaml";
            findings.push(Finding::warning(ABOUT, what, fix));
        }
        if !patch_pods && self.kind != Kind::StatefulSet {
            let what = match self.config.require_victims {
                true => "pods cannot be annotated, and with `require_victims` nothing shrinks so",
                false => "pods cannot be annotated: Kubernetes picks who goes, busy or not",
            };
            let fix = "allow `patch pods`, the optional rule in deploy/kubernetes/role.yaml";
            findings.push(Finding::warning(ABOUT, what, fix));
        }
        Ok(findings)
    }

    /// What is to be said of a workload that is there.
    fn found(&self, workers: usize) -> Vec<Finding> {
        let desired = self.last.as_ref().map_or(0, |known| known.desired);
        let what = format!("{} asks for {desired}, {workers} serve or start", self.shown());
        let mut findings = vec![Finding::good(ABOUT, what).stating(Fact::Workers(workers))];
        if let Some(why) = self.last.as_ref().and_then(|known| known.failure.as_ref()) {
            let what = format!("no more pods can be made: {why}");
            findings.push(Finding::warning(ABOUT, what, "raise the quota, or lower `workers.max`"));
        }
        if let Some((strangers, _)) = &self.strangers {
            findings.push(Finding::warning(ABOUT, strangers.to_string(), Strangers::FIX));
        }
        if let Some(grace) = self.grace(self.last.as_ref()) {
            let what =
                format!("a pod may take {grace:#} to finish (terminationGracePeriodSeconds)");
            findings.push(Finding::good(ABOUT, what).stating(Fact::Grace(grace)));
        }
        if self.kind == Kind::StatefulSet {
            let what = "a StatefulSet always removes its last pod, busy or not";
            let fix = "use a Deployment, or set `require_victims: true` to wait until it is idle";
            findings.push(Finding::warning(ABOUT, what, fix));
        }
        let shows = self.shows();
        for pod in &self.pods {
            if let Some(why) = trouble(pod, &shows) {
                let what = format!("pod {} takes no jobs: {why}", pod.name);
                let fix = format!("kubectl describe pod -n {} {}", self.namespace, pod.name);
                findings.push(Finding::warning(ABOUT, what, fix));
            }
        }
        let shared = |pod: &&crate::targets::kubernetes::pods::Pod| pod.hostname.is_none();
        if let Some(pod) = self.pods.iter().find(shared) {
            let what = format!("pod {} has its node's name and address (hostNetwork)", pod.name);
            let fix = "do without hostNetwork: its own name tells which worker is busy";
            findings.push(Finding::warning(ABOUT, what, fix));
        }
        findings
    }

    /// Why there is nothing to scale: what is there instead.
    async fn not_found(&self, missing: &str) -> Finding {
        let (noun, name, namespace) = (self.kind.noun(), &self.name, &self.namespace);
        let names = match self.neighbours(Some(namespace)).await {
            Ok(names) => names,
            Err(_) => {
                let fix = format!(
                    "set `name` and `namespace` to what `kubectl get {} -A` shows; {ROLE}",
                    self.kind.resource().plural
                );
                return Finding::problem(ABOUT, missing, fix);
            }
        };
        if names.iter().any(|(_, other)| other == name) {
            return Finding::problem(ABOUT, missing, ROLE);
        }
        let elsewhere = self.neighbours(None).await.unwrap_or_default();
        let elsewhere: Vec<&str> = elsewhere
            .iter()
            .filter(|(_, other)| other == name)
            .map(|(namespace, _)| namespace.as_str())
            .collect();
        let mut what = format!("there is no {noun} {name} in namespace {namespace}");
        if !elsewhere.is_empty() {
            let places = elsewhere.join(", ");
            let fix = format!("set `namespace: {}`", elsewhere[0]);
            return Finding::problem(ABOUT, format!("{what}, but in {places}"), fix);
        }
        let names: Vec<&str> =
            names.iter().map(|(_, name)| name.as_str()).take(NEIGHBOURS).collect();
        what += &match names.is_empty() {
            true => "; there is none at all".to_owned(),
            false => format!("; there are: {}", names.join(", ")),
        };
        Finding::problem(ABOUT, what, "set `name` to one of them, or another `namespace`")
    }

    /// What could be meant, as namespace and name; in all namespaces if none is given.
    async fn neighbours(&self, namespace: Option<&str>) -> Result<Vec<(String, String)>, ApiError> {
        let resource = self.kind.resource();
        let mut params = ListParams::default().limit(500);
        if namespace.is_none() {
            params = params.fields(&format!("metadata.name={}", self.name));
        }
        let (resource, params) = (&resource, &params);
        let listed = self.cluster.ask(KUBERNETES_LOOK, |client| async move {
            let all = match namespace {
                Some(namespace) => {
                    Api::<DynamicObject>::namespaced_with(client, namespace, resource)
                }
                None => Api::all_with(client, resource),
            };
            all.list_metadata(params).await
        });
        let name = |meta: PartialObjectMeta<DynamicObject>| {
            (meta.metadata.namespace.unwrap_or_default(), meta.metadata.name.unwrap_or_default())
        };
        Ok(listed.await?.items.into_iter().map(name).collect())
    }
}
