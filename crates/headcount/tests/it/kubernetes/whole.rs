//! A whole group: a queue that knows who is busy, the target, the lease, and the loop around them.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use headcount::budget::Budget;
use headcount::config::Place;
use headcount::finding::Finding;
use headcount::group::{Group, News, Parts};
use headcount::queues::{Consumer, Identity, Queue, QueueSeen};
use headcount::store::Store;
use headcount::targets::kubernetes::KubernetesConfig;
use headcount::targets::kubernetes::lease::KubernetesLease;
use headcount_core::{HostReading, Missing, Outcome, QueueReading, Reading, Rules, Span};
use serde_json::json;
use tokio::sync::broadcast;

use super::{listen, open};
use crate::support::kube_api::{KubeApi, NAMESPACE};
use crate::support::wait::until;

/// Pods by name, and for how long each has been busy.
type Told = Arc<Mutex<Vec<(String, Option<i64>)>>>;

/// A queue whose workers are these pods.
struct Workers(Told);

#[async_trait]
impl Queue for Workers {
    async fn read(&mut self) -> Result<QueueSeen, Missing> {
        let told = self.0.lock().unwrap().clone();
        let active = told.iter().filter(|(_, age)| age.is_some()).count() as u64;
        let consumer = |(name, age): (String, Option<i64>)| Consumer {
            known_as: vec![Identity::Hostname(name)],
            busy: Some(age.is_some()),
            oldest_job: age.map(Span::from_secs),
            consuming: Some(true),
            ..Consumer::default()
        };
        let consumers = Some(told.into_iter().map(consumer).collect());
        Ok(QueueSeen { reading: QueueReading { active, ..QueueReading::default() }, consumers })
    }

    async fn check(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}

fn group(config: &KubernetesConfig, told: &Told, folder: &tempfile::TempDir) -> Group {
    let place = Place {
        group: "g".into(),
        state_dir: folder.path().into(),
        base_dir: folder.path().into(),
    };
    let lease = KubernetesLease::new(Some(config), "", false, &place).unwrap();
    let rules = json!({ "workers": { "min": 1, "max": 3 }, "policy": { "cpu_aware": {} } });
    let rules: Rules = serde_json::from_value(rules).unwrap();
    Group::new(Parts {
        name: "g".into(),
        memory: "g".into(),
        rules,
        look: Span::from_secs(5),
        news: News::default(),
        queue: Box::new(Workers(Arc::clone(told))),
        target: open(config),
        host: Arc::new(|now, _| Reading::known(HostReading::default(), now)),
        budget: Arc::new(Budget::default()).member("g", None),
        store: Arc::new(Store::open(folder.path(), 1)),
        lease: Box::new(lease),
        metrics_list: None,
        ticks: broadcast::Sender::new(16),
        clock: Arc::new(headcount::clock::now),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loop_keeps_the_busy_ones_and_stops_when_the_lease_is_lost() {
    let api = KubeApi::start(6).await;
    let folder = tempfile::tempdir().unwrap();
    let names = api.staying();
    // The oldest three are busy: by themselves they would go first.
    let ages = [Some(5), Some(50), Some(500), None, None, None];
    let told: Told = Arc::new(Mutex::new(names.iter().cloned().zip(ages).collect()));
    api.world().busy.extend(names[..3].iter().cloned());
    let mut group = group(&api.config("admin"), &told, &folder);
    group.tick().await;
    assert_eq!(api.desired(), 3, "the bounds");
    until("three are left", async || api.pods().len() == 3).await;
    assert_eq!(api.staying(), names[..3]);
    let costs: Vec<_> = api.pods().into_iter().filter_map(|pod| pod.cost).collect();
    assert_eq!(costs, ["15", "60", "510"]);

    // Somebody raises the number beyond the bounds; whoever lost the lease does not correct it.
    let key = ("leases".into(), NAMESPACE.into(), "headcount-deployments-worker".into());
    let mut lease = api.world().objects[&key].clone();
    lease["spec"]["holderIdentity"] = json!("another");
    api.world().put(key, lease);
    until("the loss is noticed", async || {
        group.tick().await;
        !api.asked().iter().any(|asked| asked == "list pods")
    })
    .await;
    api.set_outside(5);
    group.tick().await;
    assert_eq!(api.desired(), 5);
    group.leave().await;
}

#[tokio::test]
async fn a_refusal_that_passes_is_told_once_and_tried_again_at_each_tick() {
    let api = KubeApi::with("statefulsets", 4, false).await;
    let folder = tempfile::tempdir().unwrap();
    // The last one would go.
    let ages = [None, None, None, Some(5)];
    let told: Told = Arc::new(Mutex::new(api.staying().into_iter().zip(ages).collect()));
    let config = KubernetesConfig {
        kind: "stateful_set".into(),
        require_victims: true,
        ..api.config("admin")
    };
    let mut group = group(&config, &told, &folder);
    let (log, _guard) = listen();
    for _ in 0..5 {
        group.tick().await;
        assert_eq!(api.desired(), 4);
    }
    let said = "scaling StatefulSet jobs/worker to 3: refused, since `require_victims` is set: \
                worker-3 would go, which may be busy";
    let text = log.lock().unwrap().clone();
    assert_eq!(text.matches(&format!("not now: {said}")).count(), 1, "{text}");
    let store = Store::open(folder.path(), 1);
    let events = store.events(None, None, 10);
    let events: Vec<_> = events.iter().map(|e| (e.outcome, e.note.as_str())).collect();
    assert_eq!(events, [(Some(Outcome::NotNow), said)]);

    told.lock().unwrap()[3].1 = None;
    group.tick().await;
    assert_eq!(api.desired(), 3, "no wait after what is no failure");
    let outcomes: Vec<_> = store.events(None, None, 10).iter().map(|e| e.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Done), Some(Outcome::NotNow)]);
    group.leave().await;
}
