//! The Kubernetes target, against a stand-in that behaves as a real control plane was seen to.

mod connection;
mod exchanges;
mod failures;
mod leases;
mod logins;
mod manifests;
mod rivals;
mod roles;
mod whole;

use std::collections::HashMap;

use headcount::config::Place;
use headcount::targets::kubernetes::KubernetesConfig;
use headcount::targets::{Order, Target, TargetConfig};
use headcount_core::Span;

use crate::support::kube_api::KubeApi;
use crate::support::log::listen;
use crate::support::looks::{look, settled};
use crate::support::wait::until;
use crate::support::workers::order;

/// What a Role allows: API group, resource, verbs.
pub type Rules = &'static [(&'static str, &'static str, &'static [&'static str])];

/// What the Windmill guide grants.
pub const MINIMAL: Rules =
    &[("apps", "deployments", &["get", "patch"]), ("", "pods", &["get", "list", "patch"])];
/// The least that scales.
pub const SCALE_ONLY: Rules =
    &[("apps", "deployments/scale", &["get", "patch"]), ("", "pods", &["list", "patch"])];
/// Enough for a StatefulSet, whose pods need no annotations.
pub const LAST_GOES: Rules =
    &[("apps", "statefulsets", &["get", "patch"]), ("", "pods", &["list"])];
/// What Windmill's chart grants.
const NO_PODS: Rules = &[("apps", "deployments", &["get", "patch"])];

/// The least that scales, without pods.
pub const SCALE_WITHOUT_PODS: Rules = &[("apps", "deployments/scale", &["get", "patch"])];

fn open(config: &KubernetesConfig) -> Box<dyn Target> {
    let place = Place {
        group: "g".into(),
        state_dir: "/nonexistent".into(),
        base_dir: std::env::temp_dir(),
    };
    TargetConfig::Kubernetes(config.clone()).open(&place).unwrap()
}

/// This many pods that run, and a target that has seen them.
async fn running(count: u32) -> (KubeApi, Box<dyn Target>) {
    let api = KubeApi::start(count).await;
    let mut target = open(&api.config("admin"));
    settled(&mut target, count).await;
    (api, target)
}

/// An order to shrink: these are busy since so many seconds, all others are idle and may go.
fn shrink(api: &KubeApi, to: u32, busy: &[(String, i64)]) -> Order {
    let names = api.staying();
    let busy: HashMap<String, Option<Span>> =
        busy.iter().map(|(name, s)| (name.clone(), Some(Span::from_secs(*s)))).collect();
    let idle: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| !busy.contains_key(*name)).collect();
    let from = u32::try_from(names.len()).unwrap();
    Order { busy, ..order(from, to, &idle) }
}

/// Six pods of which the three oldest are busy: left alone, these would go, by their UIDs.
async fn six_of_which_three_are_busy() -> (KubeApi, Vec<(String, i64)>) {
    let api = KubeApi::start(6).await;
    let busy: Vec<(String, i64)> = api.staying().into_iter().zip([30, 3_600, 86_500]).collect();
    api.world().busy.extend(busy.iter().map(|(name, _)| name.clone()));
    (api, busy)
}
