//! What Headcount serves over HTTP: `/healthz`, `/readyz` and `/metrics`.

mod listen;
pub mod metrics;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

use crate::group::Tick;
use crate::lease::Held;
use crate::store::Store;
use listen::Bounded;
use metrics::Metrics;

/// What the pages show. One for the whole process.
pub struct Health {
    metrics: Metrics,
    store: Arc<Store>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    groups: BTreeMap<String, Option<Seen>>,
    /// Groups whose loop broke, and why, until their next tick.
    broken: BTreeMap<String, String>,
    bad_config: Option<String>,
}

/// The last tick of a group.
struct Seen {
    at: Instant,
    /// What keeps it from deciding or acting.
    silent: Option<String>,
}

/// A group that was not looked at for this long is not well.
const TOO_LONG: Duration = Duration::from_secs(180);

impl Health {
    /// For the groups that are about to run.
    pub fn new(store: Arc<Store>) -> Arc<Self> {
        Arc::new(Self { metrics: Metrics::default(), store, inner: Mutex::default() })
    }

    /// The groups that should be running now.
    pub fn expect_groups<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut old = std::mem::take(&mut inner.groups);
        inner.groups = names.map(|n| (n.to_string(), old.remove(n).flatten())).collect();
        let Inner { groups, broken, .. } = &mut *inner;
        broken.retain(|name, _| groups.contains_key(name));
    }

    /// The loop of a group broke; it ticks again soon.
    pub fn set_broken(&self, group: &str, why: String) {
        self.metrics.count_loop_failure(group);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.broken.insert(group.to_owned(), why);
    }

    /// The groups whose loop is broken, one line each.
    pub fn broken(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.broken.iter().map(|(name, why)| format!("{name}: {why}")).collect()
    }

    /// The page of metrics, in the OpenMetrics format.
    pub fn page(&self) -> String {
        let bad_config =
            self.inner.lock().unwrap_or_else(PoisonError::into_inner).bad_config.is_some();
        self.metrics.set_health(self.store.trouble().is_none(), !bad_config);
        self.metrics.text()
    }

    /// Why the configuration file in place is not the one in use, if so.
    pub fn set_bad_config(&self, why: Option<String>) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).bad_config = why;
    }

    /// Takes in ticks until the last sender is gone.
    pub async fn follow(self: Arc<Self>, mut ticks: broadcast::Receiver<Arc<Tick>>) {
        loop {
            match ticks.recv().await {
                Ok(tick) => self.observe(&tick),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    fn observe(&self, tick: &Tick) {
        self.metrics.observe(tick);
        let silent = tick.seen.as_ref().and_then(|seen| {
            use headcount_core::Reading::Missing;
            if let Missing(why) = &seen.queue {
                return Some(format!("queue: {why}"));
            }
            if let Missing(why) = &seen.fleet { Some(format!("target: {why}")) } else { None }
        });
        let unusable = match &tick.stand_by {
            Some(Held::Unusable(why)) => Some(why.clone()),
            _ => None,
        };
        let silent = silent.or(unusable);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = inner.groups.get_mut(&tick.group) {
            *group = Some(Seen { at: Instant::now(), silent });
        }
        inner.broken.remove(&tick.group);
    }

    /// What keeps this Headcount from doing its work, one line each.
    fn troubles(&self) -> Vec<String> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let group = |(name, seen): (&String, &Option<Seen>)| match seen {
            None => Some(format!("{name}: not looked at yet")),
            Some(seen) if seen.at.elapsed() > TOO_LONG => {
                Some(format!("{name}: not looked at for {} s", seen.at.elapsed().as_secs()))
            }
            Some(seen) => seen.silent.as_ref().map(|why| format!("{name}: {why}")),
        };
        let silent: Vec<String> = inner.groups.iter().filter_map(group).collect();
        drop(inner);
        self.broken().into_iter().chain(silent).collect()
    }

    /// What keeps the loops from turning, one line each.
    fn stuck(&self) -> Vec<String> {
        let broken = self.broken();
        let stuck =
            |trouble: &String| trouble.contains("not looked at for") || broken.contains(trouble);
        self.troubles().into_iter().filter(stuck).collect()
    }

    /// What is wrong although the work goes on.
    fn warnings(&self) -> Vec<String> {
        let bad_config =
            self.inner.lock().unwrap_or_else(PoisonError::into_inner).bad_config.clone();
        self.store.trouble().into_iter().chain(bad_config).collect()
    }
}

/// Serves until the process ends.
///
/// # Errors
/// The address cannot be used.
pub async fn serve(health: Arc<Health>, listen: SocketAddr) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind(listen)
        .await
        .with_context(|| format!("http.listen: {listen} cannot be used"))?;
    let address = listener.local_addr()?;
    let listener = Bounded::new(listener);
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_page))
        .with_state(health);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, router).await {
            tracing::error!("http server ended: {error}");
        }
    });
    Ok(address)
}

/// The process is up and its loops turn.
async fn healthz(State(health): State<Arc<Health>>) -> impl IntoResponse {
    let stuck = health.stuck();
    let status = if stuck.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ok": stuck.is_empty(), "troubles": stuck })))
}

/// Every group can be scaled right now.
async fn readyz(State(health): State<Arc<Health>>) -> impl IntoResponse {
    let (troubles, warnings) = (health.troubles(), health.warnings());
    let status = if troubles.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({ "ok": troubles.is_empty(), "troubles": troubles, "warnings": warnings });
    (status, Json(body))
}

async fn metrics_page(State(health): State<Arc<Health>>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get(header::ACCEPT).and_then(|a| a.to_str().ok()).unwrap_or_default();
    let page = health.page();
    if accept.contains("application/openmetrics-text") {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        return ([(header::CONTENT_TYPE, kind)], page);
    }
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], metrics::plain(&page))
}
