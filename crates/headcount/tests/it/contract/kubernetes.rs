//! The contract with a stand-in for a Kubernetes cluster: with a Deployment under the minimal Role
//! and under one that allows only its scale, and with a StatefulSet, whose last pod always goes.

use std::time::Duration;

use async_trait::async_trait;
use headcount::targets::kubernetes::KubernetesConfig;
use headcount::targets::{Target, TargetConfig};
use tempfile::TempDir;

use super::{Fault, Rig};
use crate::kubernetes::{LAST_GOES, MINIMAL, Rules, SCALE_ONLY};
use crate::support::kube_api::world::Ill;
use crate::support::kube_api::{self, KubeApi};
use crate::support::workers::place;

/// Longer than any limit.
const FOR_EVER: Duration = Duration::from_secs(3_600);

struct Pods {
    api: KubeApi,
    kind: &'static str,
    /// What a change of the number patches.
    number: &'static str,
    folder: TempDir,
}

impl Pods {
    /// A workload without pods, and an account that may do no more than `rules`.
    async fn new(kind: &'static str, number: &'static str, rules: Rules) -> Self {
        let plural = number.split('/').next().expect("it has a first part");
        let api = KubeApi::with(plural, 0, false).await;
        api.account("it", rules);
        Self { api, kind, number, folder: tempfile::tempdir().unwrap() }
    }

    async fn minimal() -> Self {
        Self::new("deployment", "deployments", MINIMAL).await
    }

    async fn scale_only() -> Self {
        Self::new("deployment", "deployments/scale", SCALE_ONLY).await
    }

    async fn stateful_set() -> Self {
        Self::new("stateful_set", "statefulsets", LAST_GOES).await
    }
}

#[async_trait]
impl Rig for Pods {
    fn open(&self) -> Box<dyn Target> {
        let config = KubernetesConfig { kind: self.kind.into(), ..self.api.config("it") };
        assert_eq!(config.problems(), []);
        TargetConfig::Kubernetes(config).open(&place(self.folder.path(), "g")).unwrap()
    }

    async fn really(&mut self) -> Vec<String> {
        self.api.pods().into_iter().map(|pod| pod.name).collect()
    }

    async fn set_outside(&mut self, n: u32) -> bool {
        self.api.set_outside(n);
        true
    }

    async fn break_it(&mut self, fault: Fault) -> bool {
        self.api.break_by(match fault {
            Fault::Down => kube_api::Fault::Down,
            Fault::Slow => kube_api::Fault::Slow(FOR_EVER),
            Fault::Refuses => kube_api::Fault::Status(403),
            Fault::Fails => kube_api::Fault::Status(500),
            // Pods are annotated, the number is not changed.
            Fault::HalfDone => kube_api::Fault::Refuse("patch", self.number, 500),
        });
        true
    }

    async fn mend(&mut self) {
        self.api.mend().await;
    }

    async fn busy(&mut self, ids: &[String]) -> bool {
        self.api.world().busy.extend(ids.iter().cloned());
        true
    }

    async fn finish(&mut self, ids: &[String]) {
        self.api.world().busy.retain(|id| !ids.contains(id));
    }

    async fn start_slowly(&mut self) -> bool {
        self.api.world().start_up = FOR_EVER;
        true
    }

    fn picks_blindly(&self) -> bool {
        self.kind == "stateful_set"
    }

    async fn cripple(&mut self, id: &str) -> bool {
        self.api.world().fall_ill(id, Ill::CrashLoop);
        true
    }
}

mod minimal {
    super::super::contract!(super::Pods::minimal().await);
}

mod scale_only {
    super::super::contract!(super::Pods::scale_only().await);
}

mod stateful_set {
    super::super::contract!(super::Pods::stateful_set().await);
}
