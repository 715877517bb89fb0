//! The target: what it knows between two calls, and its looks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use headcount_core::{Missing, Silence, Span};
use kube::api::Api;
use kube::core::DynamicObject;
use tokio::time::Instant;

use crate::clock::now;
use crate::config::Place;
use crate::finding::Finding;
use crate::limits::KUBERNETES_LOOK;
use crate::targets::kubernetes::client::{ApiError, Cluster};
use crate::targets::kubernetes::config::{Kind, KubernetesConfig};
use crate::targets::kubernetes::fleet::{self, Memory, Shown};
use crate::targets::kubernetes::pods::Pod;
use crate::targets::kubernetes::rights::Rights;
use crate::targets::kubernetes::selector::{self, Picks};
use crate::targets::kubernetes::turns::counts_until;
use crate::targets::kubernetes::workload::Workload;
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError};

/// Under this name the API notes who changed a field.
pub(super) const MANAGER: &str = "headcount";

/// Pods that fit the selector although none of them is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Strangers(String);

/// The target.
pub(super) struct Kubernetes {
    pub(super) config: KubernetesConfig,
    pub(super) kind: Kind,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) group: String,
    pub(super) cluster: Arc<Cluster>,
    pub(super) rights: Rights,
    /// What the last look showed; none after a change.
    pub(super) last: Option<Workload>,
    /// What was read last, until when it counts; none after a change.
    kept: Option<(Result<Workload, ApiError>, Instant)>,
    /// The turn to read again.
    turn: Option<Instant>,
    /// Its pods at the last look.
    pub(super) pods: Vec<Pod>,
    /// Whose pods fit the selector, if none of them is its own, for so many looks.
    pub(super) strangers: Option<(Strangers, u32)>,
    /// The change made since the last look, by its [`Order::from`] and [`Order::to`].
    pub(super) done: Option<(u32, u32)>,
    /// Who should go by the last change.
    pub(super) expected: HashSet<String>,
    /// Who was seen to go.
    gone: HashSet<String>,
    pub(super) warned_of_costs: bool,
    warned_of_list: bool,
    looked_for_rivals: bool,
    picks: Option<Picks>,
    memory: Memory,
    /// Gone with it: what it looks for counts no more.
    alive: Arc<()>,
}

impl Strangers {
    /// What to do about them.
    pub(super) const FIX: &'static str =
        "set `kind` and `name` to what owns them, or `selector` to the labels of its own pods";
}

impl std::fmt::Display for Strangers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Kubernetes {
    pub(super) fn open(config: &KubernetesConfig, place: &Place) -> anyhow::Result<Self> {
        let cluster = Cluster::open(config, &place.base_dir)?;
        let kind = config.kind().unwrap_or(Kind::Deployment);
        let picks = config.selector.as_deref().and_then(|text| selector::parse(text).ok());
        Ok(Self {
            rights: Rights::unknown(),
            name: config.name_for(&place.group),
            namespace: config.namespace.clone().unwrap_or_else(|| cluster.namespace.clone()),
            group: place.group.clone(),
            config: config.clone(),
            kind,
            cluster,
            last: None,
            kept: None,
            turn: None,
            pods: Vec::new(),
            strangers: None,
            done: None,
            expected: HashSet::new(),
            gone: HashSet::new(),
            warned_of_costs: false,
            warned_of_list: false,
            looked_for_rivals: false,
            picks,
            memory: Memory::default(),
            alive: Arc::new(()),
        })
    }

    /// What it scales, for people.
    pub(super) fn shown(&self) -> String {
        format!("{} {}/{}", self.kind.noun(), self.namespace, self.name)
    }

    pub(super) fn is_custom(&self) -> bool {
        matches!(self.kind, Kind::Custom { .. })
    }

    pub(super) fn shows(&self) -> Shown<'_> {
        let unschedulable_after = self.config.unschedulable_after;
        Shown { kind: &self.kind, unschedulable_after, now: now() }
    }

    /// Asks what is allowed, if it is time to: not all groups at the same time, after the first.
    async fn review(&mut self) {
        let is_new = self.rights.reviewed.is_none();
        if self.rights.are_due() && (is_new || self.cluster.turns.may_review(Instant::now())) {
            let Self { cluster, namespace, kind, name, .. } = &*self;
            self.rights = Rights::review(cluster, namespace, kind, name).await;
        }
    }

    /// What is scaled: as it was read last, until it is our turn to read again. Only for a look: a
    /// change reads anew, or names the version that it was decided from.
    async fn recent(&mut self) -> Result<Workload, ApiError> {
        match &self.kept {
            Some((read, until)) if Instant::now() < *until => read.clone(),
            _ => self.read().await,
        }
    }

    /// What is scaled, now.
    pub(super) async fn read(&mut self) -> Result<Workload, ApiError> {
        self.kept = None;
        let at = Instant::now();
        let turn = match self.turn {
            Some(turn) if turn > at => turn,
            _ => *self.turn.insert(self.cluster.turns.read(at)),
        };
        let read = self.read_now().await;
        self.kept = Some((read.clone(), counts_until(at, turn)));
        read
    }

    /// From now on what was read does not count any more.
    pub(super) fn forget(&mut self) {
        (self.last, self.kept) = (None, None);
    }

    /// By the object or by its scale, whichever is allowed.
    async fn read_now(&mut self) -> Result<Workload, ApiError> {
        let by_object = self.rights.get_object && !self.is_custom();
        let answer = match by_object {
            true => self.read_object().await,
            false => self.read_scale().await,
        };
        if self.is_custom() || !answer.as_ref().is_err_and(|error| error.is(403)) {
            return self.known(answer);
        }
        let other = match by_object {
            true => self.read_scale().await,
            false => self.read_object().await,
        };
        if other.as_ref().is_err_and(|error| error.is(403)) {
            return self.known(answer);
        }
        self.rights.get_object = !by_object;
        self.known(other)
    }

    fn known(&mut self, answer: Result<Workload, ApiError>) -> Result<Workload, ApiError> {
        let error = match answer {
            Ok(workload) if !workload.deleting => return Ok(workload),
            Ok(_) => self.wrong(Silence::NotFound, "is being deleted"),
            Err(error) if error.is(403) => {
                self.rights.in_doubt = true;
                let resource = self.kind.resource().plural;
                let detail = format!("{error}; let its Role get {resource} or {resource}/scale");
                ApiError { detail, ..error }
            }
            Err(error) => error,
        };
        Err(error)
    }

    /// The answer about it makes no sense.
    fn flawed(&self, flaw: &str) -> ApiError {
        self.wrong(Silence::Malformed, &format!("is not understood: in the answer, {flaw}"))
    }

    fn wrong(&self, why: Silence, what: &str) -> ApiError {
        let detail = format!("{} {what}", self.shown());
        ApiError { why, status: None, detail, server: self.cluster.server.clone() }
    }

    async fn read_object(&self) -> Result<Workload, ApiError> {
        let resource = self.kind.resource();
        let (namespace, name, resource) = (&*self.namespace, &*self.name, &resource);
        let answer = self.cluster.ask(KUBERNETES_LOOK, |client| async move {
            let all = Api::<DynamicObject>::namespaced_with(client, namespace, resource);
            all.get(name).await
        });
        let read = Workload::of_object(answer.await?, &resource.kind, name);
        read.map_err(|flaw| self.flawed(flaw))
    }

    async fn read_scale(&self) -> Result<Workload, ApiError> {
        let resource = self.kind.resource();
        let (namespace, name, resource) = (&*self.namespace, &*self.name, &resource);
        let answer = self.cluster.ask(KUBERNETES_LOOK, |client| async move {
            let all = Api::<DynamicObject>::namespaced_with(client, namespace, resource);
            all.get_subresource("scale", name).await
        });
        Workload::of_scale(answer.await?, name).map_err(|flaw| self.flawed(flaw))
    }

    /// Its pods; `None` where they cannot be listed.
    async fn list(&mut self, workload: &Workload) -> Result<Option<Vec<Pod>>, ApiError> {
        let Some(picks) = self.picks.clone().or_else(|| workload.picks.clone()) else {
            self.warn_of_list("nobody says which pods are its own: set `selector`");
            return Ok(None);
        };
        if !self.rights.list_pods {
            self.warn_of_list("its pods cannot be listed (the Role lacks: pods list)");
            return Ok(None);
        }
        match self.cluster.pods.list(&self.cluster, &self.namespace, &self.alive, &picks).await {
            Ok(pods) => Ok(self.own(pods, workload)),
            Err(error) if error.is(403) => {
                self.rights.list_pods = false;
                self.warn_of_list(&format!("its pods cannot be listed ({error})"));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Its own of the pods that fit the selector; `None` where it has some and these are none of
    /// them.
    fn own(&mut self, pods: Vec<Pod>, workload: &Workload) -> Option<Vec<Pod>> {
        let (own, others): (Vec<Pod>, Vec<Pod>) = pods.into_iter().partition(|p| self.owns(p));
        let has_some = workload.desired > 0 && workload.replicas > 0;
        let stranger = others.first().filter(|_| own.is_empty() && has_some);
        let Some(stranger) = stranger else {
            self.strangers = None;
            return Some(own);
        };
        let whose = match &stranger.owner {
            Some((kind, name)) => format!("{} is of {kind} {name}", stranger.name),
            None => format!("{} is of no controller", stranger.name),
        };
        let strangers = Strangers(format!(
            "{} pods match the selector, none of them belongs to it: {whose}",
            others.len()
        ));
        let looks = self.strangers.as_ref().map_or(1, |(_, looks)| looks.saturating_add(1));
        // Its first pods may be younger than the list.
        if looks > 1 {
            self.warn_of_list(&format!("{strangers}; {}", Strangers::FIX));
        }
        self.strangers = Some((strangers, looks));
        None
    }

    /// Whether a pod that fits the selector is its own: others may fit it too.
    fn owns(&self, pod: &Pod) -> bool {
        let owner = pod.owner.as_ref().map(|(kind, name)| (kind.as_str(), name.as_str()));
        match (&self.kind, owner) {
            (Kind::Deployment, Some(("ReplicaSet", set))) => {
                let rest = set.strip_prefix(&self.name).and_then(|rest| rest.strip_prefix('-'));
                rest.is_some_and(|hash| !hash.contains('-'))
            }
            (Kind::StatefulSet, Some(("StatefulSet", set))) => set == self.name,
            (Kind::Custom { .. }, _) => true,
            _ => false,
        }
    }

    fn warn_of_list(&mut self, why: &str) {
        if !std::mem::replace(&mut self.warned_of_list, true) {
            let (group, shown) = (&self.group, self.shown());
            tracing::warn!(
                group,
                "{shown} is known by its numbers only: {why}; Kubernetes picks who goes when it \
                 shrinks, and a busy pod that is picked has its grace period to finish"
            );
        }
    }

    async fn look(&mut self) -> Result<FleetSeen, ApiError> {
        (self.last, self.done) = (None, None);
        self.review().await;
        let workload = self.recent().await?;
        let pods = self.list(&workload).await?;
        self.last = Some(workload.clone());
        let Some(pods) = pods else {
            self.pods.clear();
            let reading = fleet::counted(&workload);
            return Ok(FleetSeen { reading, known_as: HashMap::new() });
        };
        let died = self.memory.deaths(&pods);
        self.pods = pods;
        let Self { kind, config, pods, memory, .. } = &mut *self;
        let shown = Shown { kind, unschedulable_after: config.unschedulable_after, now: now() };
        let seen = fleet::seen(&workload, pods, died, &shown);
        memory.tell(pods, &shown);
        self.watch_who_goes();
        Ok(seen)
    }

    /// Says so if Kubernetes took another pod than the one that should have gone.
    fn watch_who_goes(&mut self) {
        let going = |pod: &&Pod| pod.deleting;
        let now: HashSet<String> =
            self.pods.iter().filter(going).map(|pod| pod.name.clone()).collect();
        if !self.expected.is_empty() {
            for name in now.iter().filter(|name| !self.gone.contains(*name)) {
                if !self.expected.contains(name) {
                    let expected: Vec<&str> = self.expected.iter().map(String::as_str).collect();
                    tracing::warn!(
                        group = self.group,
                        worker = name,
                        "goes, although {} should have gone first",
                        expected.join(", ")
                    );
                }
            }
            let there =
                |name: &String| self.pods.iter().any(|pod| pod.name == *name && !pod.deleting);
            if !self.expected.iter().any(there) {
                self.expected.clear();
            }
        }
        self.gone = now;
    }

    /// How long its pods may take to end, by its template, or by themselves where only the scale is
    /// known.
    pub(super) fn grace(&self, known: Option<&Workload>) -> Option<Span> {
        let shortest = || self.pods.iter().filter_map(|pod| pod.grace).min();
        known.and_then(|known| known.grace).or_else(shortest)
    }
}

#[async_trait]
impl Target for Kubernetes {
    fn promise(&self) -> Promise {
        Promise::DrainedVictims
    }

    fn scales(&self) -> String {
        let Self { cluster, namespace, name, .. } = self;
        let resource = self.kind.resource();
        format!(
            "kubernetes:{}:{namespace}/{}.{}/{name}",
            cluster.server, resource.plural, resource.group
        )
    }

    /// Its workers run on the cluster's nodes.
    fn runs_here(&self) -> bool {
        false
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        self.look().await.map_err(ApiError::into_missing)
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        self.change(order).await
    }

    /// Nothing to guard between two changes. The first time, those who scale the same are warned of.
    async fn watch_over(&mut self, _busy: &HashMap<String, Option<Span>>) {
        if std::mem::replace(&mut self.looked_for_rivals, true) {
            return;
        }
        for Finding { what, fix, .. } in self.rivals().await {
            if let Some(fix) = fix {
                tracing::warn!(group = self.group, "{what}; {fix}");
            }
        }
    }

    async fn check(&mut self) -> Vec<Finding> {
        self.findings().await
    }
}
