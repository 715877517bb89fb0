//! Changing the number. A change names the version of the object that it was decided from: if
//! somebody else changed the number meanwhile, it is not overwritten.

use std::cmp::{Ordering, Reverse};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::limits::{ANNOTATE_AT_ONCE, ANNOTATE_TIMEOUT, CONFLICTS};
use crate::targets::kubernetes::client::ApiError;
use crate::targets::kubernetes::config::Kind;
use crate::targets::kubernetes::deletion_cost::{COST, Going, class, cost, ordinal};
use crate::targets::kubernetes::fleet::{in_order, trouble};
use crate::targets::kubernetes::pods::Pod;
use crate::targets::kubernetes::workload::Workload;
use crate::targets::kubernetes::{Kubernetes, MANAGER};
use crate::targets::{Order, Scaled, TargetError};

/// The API server says so where a quota stands in the way.
const QUOTA: &str = "exceeded quota";

/// How much of the order of deletion could be steered.
enum Steered {
    /// All pods cost what they should.
    Fully,
    /// Not, and why.
    Not(String),
}

impl Kubernetes {
    pub(super) async fn change(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        let what = format!("scaling {} to {}", self.shown(), order.to);
        let known = match &self.last {
            Some(known) => known.clone(),
            None => self.read().await.map_err(|error| error.into_target_error(&what))?,
        };
        let here = known.desired;
        let contradiction = || TargetError::Contradiction { there: here, decided_for: order.from };
        let done = self.done == Some((order.from, order.to)) && here == order.to;
        match order.to.cmp(&order.from) {
            _ if done => Ok(already(here)),
            Ordering::Equal => Ok(already(here)),
            Ordering::Greater if here >= order.to => {
                Err(self.places_are_held(here, order).unwrap_or_else(contradiction))
            }
            Ordering::Less if here < order.to => Err(contradiction()),
            Ordering::Less if here == order.to => Ok(already(here)),
            Ordering::Greater => {
                self.set(known, order, &what).await?;
                let more = order.to - here;
                Ok(Scaled { note: format!("asked for {more} more"), ..Scaled::default() })
            }
            Ordering::Less => self.shrink(known, order, &what).await,
        }
    }

    /// More was asked for already, but some of it takes no jobs. A node or a quota may come at any
    /// time.
    fn places_are_held(&self, here: u32, order: &Order) -> Option<TargetError> {
        let shows = self.shows();
        let ill: Vec<(&Pod, String)> =
            self.pods.iter().filter_map(|pod| Some((pod, trouble(pod, &shows)?))).collect();
        let failure = self.last.as_ref().and_then(|known| known.failure.as_ref());
        let mut why: Vec<String> =
            ill.iter().take(3).map(|(pod, why)| format!("{}: {why}", pod.name)).collect();
        why.extend(failure.cloned());
        if why.is_empty() || order.from >= here {
            return None;
        }
        let passes = ill.iter().all(|(pod, _)| pod.waits_for_a_node())
            && failure.is_none_or(|why| why.contains(QUOTA));
        let detail =
            format!("{here} are asked for already, but not all take jobs: {}", why.join("; "));
        let what = format!("scaling {} to {}", self.shown(), order.to);
        Some(match passes {
            true => TargetError::NotNow { what, detail },
            false => TargetError::Failed { what, detail },
        })
    }

    async fn shrink(
        &mut self,
        known: Workload,
        order: &Order,
        what: &str,
    ) -> Result<Scaled, TargetError> {
        let steered = match self.kind {
            Kind::StatefulSet => Steered::Fully,
            _ => self.steer(order).await,
        };
        let going = match steered {
            Steered::Fully => self.going(order),
            Steered::Not(_) => Going::default(),
        };
        if self.config.require_victims
            && let Some(why) = self.refusal(&steered, &going, order)
        {
            let detail = format!("refused, since `require_victims` is set: {why}");
            return Err(TargetError::NotNow { what: what.into(), detail });
        }
        let note = self.farewell(&steered, &going, order, &known);
        let sure: Vec<String> = going.sure.iter().map(|pod| pod.name.clone()).collect();
        let is_sure = going.picked == 0;
        self.set(known, order, what).await?;
        self.expected = sure.iter().filter(|_| is_sure).cloned().collect();
        Ok(Scaled { removed: sure, note, ..Scaled::default() })
    }

    /// Who goes, if all pods cost what they should.
    fn going(&self, order: &Order) -> Going<'_> {
        let cost = |pod: &Pod| cost(&pod.name, &order.busy, &order.victims);
        let active = in_order(&self.pods, &self.kind, cost);
        let go = active.len().saturating_sub(order.to as usize);
        match self.kind {
            Kind::StatefulSet => Going::of(&active, go, |pod| Reverse(ordinal(pod))),
            _ => Going::of(&active, go, |pod| class(pod, cost(pod))),
        }
    }

    /// Why it is not certain that only those go that may.
    fn refusal(&self, steered: &Steered, going: &Going<'_>, order: &Order) -> Option<String> {
        match steered {
            Steered::Not(why) => Some(why.clone()),
            Steered::Fully if self.pods.is_empty() => Some("its pods cannot be listed".into()),
            Steered::Fully if self.rolls_out() => Some("a rollout is under way".into()),
            Steered::Fully => going
                .all()
                .find(|pod| is_wrong(pod, order) && trouble(pod, &self.shows()).is_none())
                .map(|pod| format!("{} would go, which may be busy", pod.name)),
        }
    }

    /// Why nobody knows who goes although all pods cost what they should.
    fn doubt(&self) -> Option<String> {
        let of_set = |pod: &Pod| pod.owner.as_ref().is_some_and(|(kind, _)| kind == "ReplicaSet");
        let other = self.pods.iter().find(|pod| pod.is_active() && !of_set(pod));
        if let Some(pod) = other {
            let name = &pod.name;
            return Some(format!("{name} is of no ReplicaSet, and only these go by a pod's cost"));
        }
        let why = "a rollout is under way: costs count only inside one ReplicaSet";
        self.rolls_out().then(|| why.into())
    }

    /// Whether pods of several templates run.
    fn rolls_out(&self) -> bool {
        let mut active = self.pods.iter().filter(|pod| pod.is_active()).map(Pod::revision);
        let first = active.next();
        active.any(|revision| Some(revision) != first)
    }

    fn farewell(
        &self,
        steered: &Steered,
        going: &Going<'_>,
        order: &Order,
        known: &Workload,
    ) -> String {
        let Going { sure, picked, alike } = going;
        let names: Vec<&str> = sure.iter().map(|pod| pod.name.as_str()).collect();
        let kind = match alike.iter().any(|pod| order.busy.contains_key(&pod.name)) {
            true => "that may be busy and cost the same",
            false => "idle ones",
        };
        let picks = format!("Kubernetes picks {picked} of the {} {kind}", alike.len());
        let mut note = match (steered, names.is_empty(), picked) {
            (Steered::Not(why), ..) => format!("Kubernetes picks who goes: {why}"),
            (Steered::Fully, ..) if self.pods.is_empty() => "Kubernetes picks who goes".into(),
            (Steered::Fully, true, 0) => "no pod goes: they were not there yet".into(),
            (Steered::Fully, true, _) => picks,
            (Steered::Fully, false, 0) => format!("{} will go", names.join(", ")),
            (Steered::Fully, false, _) => format!("{} will go; {picks}", names.join(", ")),
        };
        let wrong: Vec<&str> =
            going.all().filter(|pod| is_wrong(pod, order)).map(|pod| pod.name.as_str()).collect();
        if !wrong.is_empty() {
            let grace = self.grace(Some(known)).map_or(String::new(), |g| format!(" within {g:#}"));
            note += &format!("; busy, to finish{grace}: {}", wrong.join(", "));
        }
        note
    }

    /// Makes idle pods cheap and busy ones dear, as far as that works.
    async fn steer(&mut self, order: &Order) -> Steered {
        if !self.rights.list_pods {
            return Steered::Not("pods cannot be listed".into());
        }
        if self.strangers.is_some() {
            return Steered::Not("its own pods are not known".into());
        }
        let should = |pod: &Pod| cost(&pod.name, &order.busy, &order.victims);
        let due: Vec<(String, String, i32)> = self
            .pods
            .iter()
            .filter(|pod| pod.is_active() && should(pod) != pod.cost)
            .map(|pod| (pod.name.clone(), pod.uid.clone(), should(pod)))
            .collect();
        let steered = || self.doubt().map_or(Steered::Fully, Steered::Not);
        if due.is_empty() {
            return steered();
        }
        if !self.rights.patch_pods {
            return self
                .cannot_steer("pods cannot be annotated (the Role lacks: pods patch)".into());
        }
        let patches: Vec<_> =
            due.into_iter().map(|(name, uid, cost)| self.annotate(name, uid, cost)).collect();
        let patched = futures_util::stream::iter(patches).buffer_unordered(ANNOTATE_AT_ONCE);
        let failed = match timeout(ANNOTATE_TIMEOUT, patched.collect::<Vec<_>>()).await {
            Ok(answers) => answers.into_iter().find_map(Result::err),
            Err(_) => {
                let why = format!("annotating took more than {} s", ANNOTATE_TIMEOUT.as_secs());
                return self.cannot_steer(why);
            }
        };
        match failed {
            None => steered(),
            Some(error) => {
                if error.is(403) {
                    self.rights.patch_pods = false;
                }
                self.cannot_steer(format!("pods cannot be annotated ({error})"))
            }
        }
    }

    /// Warns once; scaling goes on.
    fn cannot_steer(&mut self, why: String) -> Steered {
        if !std::mem::replace(&mut self.warned_of_costs, true) {
            tracing::warn!(
                group = self.group,
                "{why}: Kubernetes picks who goes when {} shrinks, idle or not; busy ones finish \
                 within their grace period",
                self.shown()
            );
        }
        Steered::Not(why)
    }

    /// Sets the deletion cost of the pod with this uid. One that is gone needs none.
    async fn annotate(&self, name: String, uid: String, cost: i32) -> Result<(), ApiError> {
        let change =
            json!({ "metadata": { "uid": uid, "annotations": { COST: cost.to_string() } } });
        let (namespace, name, change) = (&*self.namespace, &*name, &change);
        let answer = self.cluster.act(|client| async move {
            let pods = Api::<ApiPod>::namespaced(client, namespace);
            pods.patch_metadata(name, &params(), &Patch::Merge(change)).await
        });
        match answer.await {
            Err(error) if error.is(404) || error.is(422) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Sets the number, unless somebody else has changed it since `known`.
    async fn set(&mut self, known: Workload, order: &Order, what: &str) -> Result<(), TargetError> {
        let mut version = known.version;
        for _ in 0..CONFLICTS {
            match self.patch(order.to, &version).await {
                Ok(()) => {
                    self.done = Some((order.from, order.to));
                    self.forget();
                    self.cluster.pods.outdate(&self.namespace).await;
                    return Ok(());
                }
                Err(error) if error.is(409) => {
                    let now = self.read().await.map_err(|e| e.into_target_error(what))?;
                    if now.desired != known.desired {
                        let there = now.desired;
                        return Err(TargetError::Contradiction { there, decided_for: order.from });
                    }
                    version = now.version;
                }
                Err(error) => {
                    // It may have been done all the same: look before the next try.
                    self.forget();
                    return Err(error.into_target_error(what));
                }
            }
        }
        let detail = format!("it was changed {CONFLICTS} times by others meanwhile");
        Err(TargetError::Failed { what: what.into(), detail })
    }

    /// Patches this version of the object or of its scale, whichever is allowed.
    async fn patch(&mut self, to: u32, version: &str) -> Result<(), ApiError> {
        let change =
            json!({ "metadata": { "resourceVersion": version }, "spec": { "replicas": to } });
        let by_object = self.rights.patch_object && !self.is_custom();
        let answer = match by_object {
            true => self.patch_object(&change).await,
            false => self.patch_scale(&change).await,
        };
        if !answer.as_ref().is_err_and(|error| error.is(403)) {
            return answer;
        }
        self.rights.in_doubt = true;
        if self.is_custom() {
            return answer;
        }
        let other = match by_object {
            true => self.patch_scale(&change).await,
            false => self.patch_object(&change).await,
        };
        if other.as_ref().is_err_and(|error| error.is(403)) {
            return answer;
        }
        self.rights.patch_object = !by_object;
        other
    }

    async fn patch_object(&self, change: &Value) -> Result<(), ApiError> {
        let resource = self.kind.resource();
        let (namespace, name, resource) = (&*self.namespace, &*self.name, &resource);
        let answer = self.cluster.act(|client| async move {
            let all = Api::<DynamicObject>::namespaced_with(client, namespace, resource);
            all.patch(name, &params(), &Patch::Merge(change)).await
        });
        answer.await.map(drop)
    }

    async fn patch_scale(&self, change: &Value) -> Result<(), ApiError> {
        let resource = self.kind.resource();
        let (namespace, name, resource) = (&*self.namespace, &*self.name, &resource);
        let answer = self.cluster.act(|client| async move {
            let all = Api::<DynamicObject>::namespaced_with(client, namespace, resource);
            all.patch_scale(name, &params(), &Patch::Merge(change)).await
        });
        answer.await.map(drop)
    }
}

/// Whether a pod holds a job or may hold one, and was not chosen.
fn is_wrong(pod: &Pod, order: &Order) -> bool {
    order.busy.contains_key(&pod.name) && !order.victims.contains(&pod.name)
}

fn already(number: u32) -> Scaled {
    Scaled { note: format!("{number} are asked for already"), ..Scaled::default() }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() }
}
