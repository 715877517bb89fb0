//! The pods of a namespace, listed once for all groups that look at about the same time.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use headcount_core::{Span, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod as ApiPod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams};
use tokio::time::Instant;

use crate::limits::{
    KUBERNETES_LOOK, POD_LIST_AGE, POD_LIST_AGE_MAX, POD_LIST_SHARE, POD_PAGE_AGE, POD_PAGES,
    PODS_PER_PAGE,
};
use crate::targets::kubernetes::client::{ApiError, Cluster};
use crate::targets::kubernetes::deletion_cost::COST;
use crate::targets::kubernetes::selector::{Labels, Picks, written};

/// Why a container waits although nothing is on its way that could change it soon.
const STUCK: [&str; 9] = [
    "CrashLoopBackOff",
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ErrImagePull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
];

/// The lists of all namespaces of a cluster.
#[derive(Debug, Default)]
pub(super) struct Pods(Mutex<HashMap<String, Arc<Namespace>>>);

#[derive(Debug, Default)]
struct Namespace {
    /// The labels of the pods that each looks for, as long as it is there.
    wanted: Mutex<Vec<(Weak<()>, Labels)>>,
    /// The last list. Whoever holds it asks for the next one.
    list: tokio::sync::Mutex<Option<List>>,
}

#[derive(Debug)]
struct List {
    /// Until when it serves.
    until: Instant,
    /// It has only pods with these labels.
    narrowed: Labels,
    pods: Arc<Vec<Pod>>,
}

/// What matters of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) labels: BTreeMap<String, String>,
    /// The kind and name of its controller.
    pub(super) owner: Option<(String, String)>,
    pub(super) created_at: Option<Timestamp>,
    /// When the first container that runs started.
    pub(super) started_at: Option<Timestamp>,
    pub(super) phase: Phase,
    /// It is told to go.
    pub(super) deleting: bool,
    /// A node has taken it.
    pub(super) scheduled: bool,
    /// Why no node takes it, and since when.
    pub(super) unschedulable: Option<(String, Option<Timestamp>)>,
    pub(super) ready: bool,
    /// Since when it is ready, or is not.
    pub(super) ready_since: Option<Timestamp>,
    /// Its annotation, absent as 0.
    pub(super) cost: i32,
    /// Why a container does not run.
    pub(super) stuck: Option<String>,
    pub(super) restarts: i32,
    /// How long the life before the last restart took.
    pub(super) lived: Option<Span>,
    /// Its own host name and addresses; none where it has those of the node.
    pub(super) hostname: Option<String>,
    pub(super) addresses: Vec<IpAddr>,
    /// The ids of its containers.
    pub(super) containers: Vec<String>,
    /// How long it may take to end before it is killed.
    pub(super) grace: Option<Span>,
}

/// Where a pod is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Not all containers have been started.
    #[default]
    Pending,
    /// Its node does not answer.
    Unknown,
    /// It runs.
    Running,
    /// It has ended well.
    Succeeded,
    /// It has ended badly, or was evicted.
    Failed,
}

impl Pods {
    /// The pods that `who` looks for, listed not long ago.
    ///
    /// # Errors
    /// Why they cannot be listed.
    pub(super) async fn list(
        &self,
        cluster: &Cluster,
        namespace: &str,
        who: &Arc<()>,
        picks: &Picks,
    ) -> Result<Vec<Pod>, ApiError> {
        let space = self.namespace(namespace);
        let wanted = picks.labels();
        let narrow = space.want(who, &wanted);
        let mut list = space.list.lock().await;
        let serves = |list: &&List| Instant::now() < list.until && list.narrowed.is_subset(&wanted);
        let pods = match list.as_ref().filter(serves) {
            Some(list) => Arc::clone(&list.pods),
            None => {
                // Nobody gets an old list after a failure.
                *list = None;
                let at = Instant::now();
                let pods = Arc::new(fetch(cluster, namespace, &narrow).await?);
                let until = at + age_limit(at.elapsed(), pods.len());
                *list = Some(List { until, narrowed: narrow, pods: Arc::clone(&pods) });
                pods
            }
        };
        Ok(pods.iter().filter(|pod| picks.matches(&pod.labels)).cloned().collect())
    }

    /// After a change the last list is of no use.
    pub(super) async fn outdate(&self, namespace: &str) {
        *self.namespace(namespace).list.lock().await = None;
    }

    fn namespace(&self, name: &str) -> Arc<Namespace> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(name.to_owned()).or_default())
    }
}

impl Namespace {
    /// Notes what `who` looks for; the labels that all have in common.
    fn want(&self, who: &Arc<()>, labels: &Labels) -> Labels {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.retain(|(other, _)| {
            other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), Arc::as_ptr(who))
        });
        wanted.push((Arc::downgrade(who), labels.clone()));
        let in_all =
            |label: &&(String, String)| wanted.iter().all(|(_, other)| other.contains(label));
        labels.iter().filter(in_all).cloned().collect()
    }
}

/// How long a list serves that took this long and has so many pods: one that costs the API server
/// much is asked for less often.
fn age_limit(took: Duration, pods: usize) -> Duration {
    let pages = u32::try_from(pods).unwrap_or(u32::MAX).div_ceil(PODS_PER_PAGE);
    let age = (took * POD_LIST_SHARE).max(POD_PAGE_AGE.saturating_mul(pages));
    age.clamp(POD_LIST_AGE, POD_LIST_AGE_MAX)
}

/// All pods with these labels, page by page.
async fn fetch(cluster: &Cluster, namespace: &str, labels: &Labels) -> Result<Vec<Pod>, ApiError> {
    let mut pods = Vec::new();
    let mut next: Option<String> = None;
    for _ in 0..POD_PAGES {
        let mut params = ListParams::default().limit(PODS_PER_PAGE);
        if !labels.is_empty() {
            params = params.labels(&written(labels));
        }
        if let Some(token) = &next {
            params = params.continue_token(token);
        }
        let params = &params;
        let page = cluster.ask(KUBERNETES_LOOK, |client| async move {
            Api::<ApiPod>::namespaced(client, namespace).list(params).await
        });
        let page = page.await?;
        pods.extend(page.items.into_iter().map(Pod::from));
        next = page.metadata.continue_.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok(pods);
        }
    }
    Err(ApiError {
        why: headcount_core::Silence::Malformed,
        status: None,
        detail: format!(
            "namespace {namespace} has more than {} pods with these labels",
            pods.len()
        ),
        server: cluster.server.clone(),
    })
}

impl Pod {
    /// Whether it holds a place: those that ended or are told to go do not.
    pub(super) fn is_active(&self) -> bool {
        !self.deleting && !self.has_ended()
    }

    /// Whether it will run no more.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether all that it lacks is a node with room for it.
    pub(super) fn waits_for_a_node(&self) -> bool {
        self.phase == Phase::Pending && self.stuck.is_none() && self.unschedulable.is_some()
    }

    /// Whether a container runs, as far as its node has told.
    pub(super) fn is_running(&self) -> bool {
        self.started_at.is_some()
    }

    /// What tells pods of one template from those of another.
    pub(super) fn revision(&self) -> Option<&str> {
        let label = |name| self.labels.get(name).map(String::as_str);
        ["pod-template-hash", "rollouts-pod-template-hash", "controller-revision-hash"]
            .into_iter()
            .find_map(label)
    }
}

fn timestamp(time: &Time) -> Timestamp {
    Timestamp::from_millis(time.0.as_millisecond())
}

impl From<ApiPod> for Pod {
    fn from(pod: ApiPod) -> Self {
        let (meta, spec) = (pod.metadata, pod.spec.unwrap_or_default());
        let status = pod.status.unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let condition = |kind: &str| conditions.iter().find(|c| c.type_ == kind);
        let is = |c: &PodCondition, value: &str| c.status == value;
        let since = |c: &PodCondition| c.last_transition_time.as_ref().map(timestamp);
        let ready = condition("Ready");
        let unschedulable = condition("PodScheduled")
            .filter(|c| is(c, "False") && c.reason.as_deref() == Some("Unschedulable"))
            .map(|c| (format!("Unschedulable: {}", c.message.as_deref().unwrap_or("")), since(c)));
        let containers = status.container_statuses.unwrap_or_default();
        let all = || containers.iter().chain(status.init_container_statuses.iter().flatten());
        let own_network = spec.host_network != Some(true);
        let name = meta.name.unwrap_or_default();
        // The kernel cuts a host name.
        let hostname = spec.hostname.unwrap_or_else(|| name.chars().take(63).collect());
        let cost = meta.annotations.as_ref().and_then(|a| a.get(COST)?.parse().ok());
        let owner = meta.owner_references.unwrap_or_default();
        let owner =
            owner.into_iter().find(|o| o.controller == Some(true)).map(|o| (o.kind, o.name));
        let address = |ip: &k8s_openapi::api::core::v1::PodIP| ip.ip.parse().ok();
        let id = |c: &ContainerStatus| {
            c.container_id.as_deref().and_then(|id| Some(id.split_once("://")?.1.to_owned()))
        };
        Self {
            uid: meta.uid.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            owner,
            created_at: meta.creation_timestamp.as_ref().map(timestamp),
            started_at: containers.iter().filter_map(running_since).min(),
            phase: match status.phase.as_deref() {
                Some("Running") => Phase::Running,
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                Some("Unknown") => Phase::Unknown,
                _ => Phase::Pending,
            },
            deleting: meta.deletion_timestamp.is_some(),
            scheduled: spec.node_name.is_some_and(|node| !node.is_empty()),
            unschedulable,
            ready: ready.is_some_and(|c| is(c, "True")),
            ready_since: ready.and_then(since),
            cost: cost.unwrap_or(0),
            stuck: all().find_map(stuck),
            restarts: containers.iter().fold(0, |sum, c| sum.saturating_add(c.restart_count)),
            lived: containers.iter().filter_map(last_life).min(),
            addresses: match own_network {
                true => status.pod_ips.iter().flatten().filter_map(address).collect(),
                false => Vec::new(),
            },
            hostname: own_network.then_some(hostname),
            containers: containers.iter().filter_map(id).collect(),
            grace: spec.termination_grace_period_seconds.map(Span::from_secs),
            name,
        }
    }
}

fn running_since(container: &ContainerStatus) -> Option<Timestamp> {
    container.state.as_ref()?.running.as_ref()?.started_at.as_ref().map(timestamp)
}

/// Why a container waits for something that will hardly come.
fn stuck(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().filter(|reason| STUCK.contains(reason))?;
    // It changes between the two with each try.
    let reason = if reason == "ErrImagePull" { "ImagePullBackOff" } else { reason };
    let last = container.last_state.as_ref().and_then(|last| last.terminated.as_ref());
    Some(match (last, reason) {
        (Some(last), "CrashLoopBackOff") => format!("{reason}: exit code {}", last.exit_code),
        _ => format!("{reason}: container {}, image {}", container.name, container.image),
    })
}

/// How long its last life took.
fn last_life(container: &ContainerStatus) -> Option<Span> {
    let ended = container.last_state.as_ref()?.terminated.as_ref()?;
    let (start, end) = (ended.started_at.as_ref()?, ended.finished_at.as_ref()?);
    Some(timestamp(end).since(timestamp(start)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;

    use super::*;

    #[test]
    fn a_list_that_costs_much_is_asked_for_less_often() {
        let table = [
            (5, 200, 1_000),
            (5, 1_000, 1_000),
            (50, 5_000, 5_000),
            (700, 900, 3_500),
            (5, 20_000, 10_000),
            (60_000, 1, 10_000),
        ];
        for (took, pods, serves) in table {
            let limit = age_limit(Duration::from_millis(took), pods);
            assert_eq!(limit, Duration::from_millis(serves), "{took} ms, {pods} pods");
        }
    }

    #[test]
    fn what_those_look_for_who_are_gone_widens_no_list() {
        let space = Namespace::default();
        let labels = |labels: &[(&str, &str)]| -> Labels {
            labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
        };
        let own = labels(&[("app", "worker"), ("tier", "a")]);
        let (first, second) = (Arc::new(()), Arc::new(()));
        assert_eq!(space.want(&first, &own), own);
        let others = labels(&[("app", "worker"), ("tier", "b")]);
        assert_eq!(space.want(&second, &others), labels(&[("app", "worker")]));
        assert_eq!(space.want(&first, &own), labels(&[("app", "worker")]));
        drop(second);
        assert_eq!(space.want(&first, &own), own);
    }

    #[test]
    fn the_template_of_an_argo_rollout_is_known() {
        let labels = [("rollouts-pod-template-hash".to_owned(), "5f7d".to_owned())].into();
        assert_eq!(Pod { labels, ..Pod::default() }.revision(), Some("5f7d"));
    }

    #[test]
    fn absurd_restarts_are_as_many_as_can_be_counted() {
        let often = ContainerStatus { restart_count: i32::MAX, ..ContainerStatus::default() };
        let container_statuses = Some(vec![often.clone(), often]);
        let status = Some(PodStatus { container_statuses, ..PodStatus::default() });
        assert_eq!(Pod::from(ApiPod { status, ..ApiPod::default() }).restarts, i32::MAX);
    }
}
