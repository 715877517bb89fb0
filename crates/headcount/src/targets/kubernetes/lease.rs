//! The right to act as a Lease object: the one place that all replicas of Headcount in a cluster see.
//! A holder renews it in the background; the API refuses a change that is based on an old version,
//! and who is refused has lost it. Others take it when it has not changed for its whole duration by
//! their own clock, so that clocks need not agree.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use kube::core::ObjectMeta;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::config::Place;
use crate::finding::Finding;
use crate::lease::{Held, Lease, fingerprint};
use crate::limits::{
    DRAIN_POLL, KUBERNETES_LOOK, LEASE_DURATION, LEASE_RENEW_EVERY, LEASE_TRUSTED,
};
use crate::targets::kubernetes::client::{ApiError, Cluster};
use crate::targets::kubernetes::config::KubernetesConfig;
use crate::targets::kubernetes::{MANAGER, rights};

/// A lease in a cluster.
pub struct KubernetesLease {
    inner: Arc<Inner>,
    renewing: Option<AbortHandle>,
}

struct Inner {
    cluster: Arc<Cluster>,
    namespace: String,
    name: String,
    identity: String,
    state: Mutex<State>,
    /// Whoever asks the API about it holds this.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    held: Option<Holding>,
    /// The version that was last seen in other hands, and since when.
    seen: Option<(String, Instant)>,
}

struct Holding {
    token: u64,
    renewed: Instant,
    object: Object,
}

impl KubernetesLease {
    /// The lease for what `config` scales; for a target elsewhere, `scales` names it.
    ///
    /// # Errors
    /// No way to a cluster is known.
    pub fn new(
        config: Option<&KubernetesConfig>,
        scales: &str,
        is_dry: bool,
        place: &Place,
    ) -> anyhow::Result<Self> {
        let elsewhere = KubernetesConfig::default();
        let of = config.unwrap_or(&elsewhere);
        let cluster = Cluster::open(of, &place.base_dir)?;
        let name = match config.and_then(|config| config.kind()) {
            Some(kind) => {
                format!("headcount-{}-{}", kind.resource().plural, of.name_for(&place.group))
            }
            None => format!("headcount-{:016x}", fingerprint(scales)),
        };
        let name = if is_dry { format!("{name}-dry") } else { name };
        let namespace = of.namespace.clone().unwrap_or_else(|| cluster.namespace.clone());
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        // A process that runs again in the same pod is another one.
        let identity = format!("{host}_{}_{:08x}", std::process::id(), fastrand::u32(..));
        let inner = Inner {
            cluster,
            namespace,
            name,
            identity,
            state: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner), renewing: None })
    }

    fn renew_in_background(&mut self) {
        let inner = Arc::downgrade(&self.inner);
        let task = tokio::spawn(async move {
            // Those that were taken together are not renewed together.
            let mut rest = LEASE_RENEW_EVERY.mul_f64(fastrand::f64());
            loop {
                sleep(rest).await;
                let Some(inner) = inner.upgrade() else { return };
                let _turn = inner.turn.lock().await;
                rest = match inner.renew().await {
                    Ok(_) => LEASE_RENEW_EVERY,
                    Err(Held::ByOther(_)) => return,
                    Err(Held::Unusable(_)) => DRAIN_POLL,
                };
            }
        });
        if let Some(old) = self.renewing.replace(task.abort_handle()) {
            old.abort();
        }
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token, if it is held for sure.
    fn trusted(&self) -> Option<u64> {
        let state = self.state();
        let held = state.held.as_ref()?;
        (held.renewed.elapsed() < LEASE_TRUSTED).then_some(held.token)
    }

    async fn request<T, Answer>(
        &self,
        request: impl Fn(Api<Object>) -> Answer,
    ) -> Result<T, ApiError>
    where
        Answer: Future<Output = kube::Result<T>>,
    {
        let ask = |client| request(Api::namespaced(client, &self.namespace));
        self.cluster.ask(KUBERNETES_LOOK, ask).await
    }

    /// Says again that we hold it.
    async fn renew(&self) -> Result<u64, Held> {
        let mut object = match &self.state().held {
            Some(held) => held.object.clone(),
            None => return Err(Held::ByOther("nobody yet".into())),
        };
        if let Some(spec) = &mut object.spec {
            spec.renew_time = Some(time_now());
        }
        let asked = Instant::now();
        match self.replace(&object).await {
            Ok(object) => Ok(self.hold(object, asked)),
            Err(error) if error.is(409) || error.is(404) => {
                self.state().held = None;
                Err(Held::ByOther("somebody else, who took it meanwhile".into()))
            }
            Err(error) => Err(self.unusable("renewed", error)),
        }
    }

    /// Takes it, if it is free.
    async fn take(&self) -> Result<u64, Held> {
        let asked = Instant::now();
        let faster = || Held::ByOther("somebody else, who was faster".into());
        let get = |leases: Api<Object>| async move { leases.get_opt(&self.name).await };
        let there = match self.request(get).await {
            Ok(there) => there,
            Err(error) => return Err(self.unusable("looked at", error)),
        };
        let Some(there) = there else {
            let object = &self.ours(None, 0);
            let create =
                |leases: Api<Object>| async move { leases.create(&params(), object).await };
            return match self.request(create).await {
                Ok(object) => Ok(self.hold(object, asked)),
                Err(error) if error.is(409) => Err(faster()),
                Err(error) => Err(self.unusable("made", error)),
            };
        };
        self.wait_for_its_end(&there)?;
        let before = there.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or(0);
        let object = self.ours(Some(there.metadata), before.saturating_add(1));
        match self.replace(&object).await {
            Ok(object) => Ok(self.hold(object, asked)),
            Err(error) if error.is(409) => Err(faster()),
            Err(error) => Err(self.unusable("taken", error)),
        }
    }

    /// Whether whoever holds it has given no sign for its whole duration.
    fn wait_for_its_end(&self, there: &Object) -> Result<(), Held> {
        let spec = there.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
        let Some(holder) = holder.filter(|holder| *holder != self.identity) else { return Ok(()) };
        let version = there.metadata.resource_version.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
        let duration = seconds.map_or(LEASE_DURATION, Duration::from_secs);
        let mut state = self.state();
        let since = match &state.seen {
            Some((same, since)) if *same == version => *since,
            _ => state.seen.insert((version, Instant::now())).1,
        };
        if since.elapsed() >= duration { Ok(()) } else { Err(Held::ByOther(holder)) }
    }

    fn ours(&self, there: Option<ObjectMeta>, transitions: i32) -> Object {
        let now = time_now();
        let named = || ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
        Object {
            metadata: there.unwrap_or_else(named),
            spec: Some(LeaseSpec {
                holder_identity: Some(self.identity.clone()),
                lease_duration_seconds: i32::try_from(LEASE_DURATION.as_secs()).ok(),
                acquire_time: Some(now.clone()),
                renew_time: Some(now),
                lease_transitions: Some(transitions),
                ..LeaseSpec::default()
            }),
        }
    }

    async fn replace(&self, object: &Object) -> Result<Object, ApiError> {
        let put = |leases: Api<Object>| async move {
            leases.replace(&self.name, &params(), object).await
        };
        self.request(put).await
    }

    /// It is ours, as of the moment before we asked.
    fn hold(&self, object: Object, asked: Instant) -> u64 {
        let transitions = object.spec.as_ref().and_then(|spec| spec.lease_transitions);
        let token = u64::try_from(transitions.unwrap_or(0)).unwrap_or(0).saturating_add(1);
        let mut state = self.state();
        state.held = Some(Holding { token, renewed: asked, object });
        state.seen = None;
        token
    }

    fn unusable(&self, what: &str, error: ApiError) -> Held {
        let (namespace, name) = (&self.namespace, &self.name);
        let detail = error.into_missing().detail;
        Held::Unusable(format!("lease {namespace}/{name} cannot be {what}: {detail}"))
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() }
}

/// Now, as leases have it: with six digits after the second.
fn time_now() -> MicroTime {
    MicroTime(Timestamp::from_millisecond(clock::now().as_millis()).unwrap_or_default())
}

#[async_trait]
impl Lease for KubernetesLease {
    async fn hold(&mut self) -> Result<u64, Held> {
        if let Some(token) = self.inner.trusted() {
            return Ok(token);
        }
        let inner = Arc::clone(&self.inner);
        let _turn = inner.turn.lock().await;
        if let Some(token) = inner.trusted() {
            return Ok(token);
        }
        let is_held = inner.state().held.is_some();
        if is_held {
            return inner.renew().await;
        }
        let token = inner.take().await?;
        self.renew_in_background();
        Ok(token)
    }

    async fn release(&mut self) {
        let inner = Arc::clone(&self.inner);
        // Not in the middle of a renewal, which would change the version.
        let _turn = inner.turn.lock().await;
        if let Some(renewing) = self.renewing.take() {
            renewing.abort();
        }
        let Some(held) = inner.state().held.take() else { return };
        let mut object = held.object;
        if let Some(spec) = &mut object.spec {
            spec.holder_identity = None;
        }
        // If it fails, the others wait for the end of its duration.
        let _ = inner.replace(&object).await;
    }

    async fn check(&self) -> Vec<Finding> {
        let Inner { cluster, namespace, name, .. } = &*self.inner;
        let shown = format!("lease {namespace}/{name}");
        let mut lacks = Vec::new();
        for action in rights::of_leases() {
            // The name of an object that is to be created is not known to a Role.
            let named = Some(name.as_str()).filter(|_| action.verb != "create");
            match action.is_allowed(cluster, namespace, named).await {
                Ok(true) => {}
                Ok(false) => lacks.push(action.shown()),
                Err(error) => {
                    let what = format!("{shown}: nobody knows whether it may be taken: {error}");
                    return vec![Finding::problem("lease", what, "see what is said of the target")];
                }
            }
        }
        if lacks.is_empty() {
            return vec![Finding::good("lease", format!("{shown} may be taken"))];
        }
        let what = format!("{shown} cannot be taken: the Role lacks {}", lacks.join(", "));
        let fix = "add the rule for leases, see deploy/kubernetes/role.yaml; or leave `lease` out and run one replica";
        vec![Finding::problem("lease", what, fix)]
    }
}

impl Drop for KubernetesLease {
    fn drop(&mut self) {
        if let Some(renewing) = &self.renewing {
            renewing.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_six_digits() {
        for millis in [0, 100, 120, 123] {
            let time = MicroTime(Timestamp::from_millisecond(millis).unwrap());
            let written = serde_json::to_string(&time).unwrap();
            assert_eq!(written, format!("\"1970-01-01T00:00:00.{millis:03}000Z\""));
        }
    }
}
