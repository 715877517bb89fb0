//! The `swarm` target against a real Docker daemon that is a Swarm of its own.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::routing::{get, post};
use headcount::finding::Fact;
use headcount::queues::Identity;
use headcount::targets::swarm::SwarmConfig;
use headcount::targets::{FleetSeen, Order, Promise, Target, TargetError};
use headcount_core::reading::WorkerState;
use headcount_core::{Silence, Span};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::docker::{OBEDIENT, SwarmService};
use crate::support::log::listen;
use crate::support::looks::{problems, until};
use crate::support::proxy::{Fault, Proxy};
use crate::support::server::Server;
use crate::support::wait::PATIENCE;
use crate::support::workers::{ids, order, place, sorted};

/// A worker that finishes its job, for as long as /job is there, before it goes.
const CAREFUL: &str = "trap 'while [ -e /job ]; do sleep 0.1; done; exit 0' TERM; \
                       while :; do sleep 0.1; done";

/// What an engine says that is in no Swarm.
const NO_MANAGER: &str = "This node is not a swarm manager. Use docker swarm init to connect";

/// What Swarm says if the service changed since it was read.
const CONFLICT: &str = "rpc error: code = Unknown desc = update out of sequence";

async fn ready(target: &mut Box<dyn Target>, n: u32) -> FleetSeen {
    until(target, "ready", |seen| {
        seen.reading.ready == n && seen.reading.workers.len() == n as usize
    })
    .await
}

/// An order whose other workers may all be busy.
fn order_with_busy(from: u32, to: u32, victims: &[&str], busy: &[&str]) -> Order {
    let busy = busy.iter().map(|id| ((*id).to_owned(), None)).collect();
    Order { busy, ..order(from, to, victims) }
}

#[tokio::test]
async fn goes_out_and_in_and_to_nothing_and_back() {
    let service = SwarmService::new(OBEDIENT, 0, &["--env", "KEEP=me", "--label", "team=x"]);
    let mut target = service.open(&service.config());
    assert_eq!(target.promise(), Promise::DrainedVictims);
    assert_eq!(target.scales(), format!("swarm:{}:{}", service.docker.host, service.name));
    let seen = target.status().await.unwrap();
    assert_eq!((seen.reading.workers.len(), seen.reading.desired), (0, Some(0)));

    let scaled = target.scale(&order(0, 3, &[])).await.unwrap();
    assert_eq!((scaled.note.as_str(), scaled.started.len()), ("asked for 3 more", 3));
    let again = target.scale(&order(0, 3, &[])).await.unwrap();
    assert_eq!((again.note.as_str(), service.replicas()), ("already 3", 3));
    let seen = ready(&mut target, 3).await;
    assert_eq!((seen.reading.desired, seen.reading.died), (Some(3), 0));
    assert!(target.runs_here(), "a Swarm of one node");
    let all = seen.reading.workers.iter().map(|w| w.id.clone());
    assert_eq!(sorted(all), sorted(scaled.started));

    let gone = target.scale(&order(3, 1, &[])).await.unwrap();
    assert_eq!(gone.removed.len(), 2, "{}", gone.note);
    assert!(gone.note.starts_with(&format!("Swarm chose {}.", service.name)), "{}", gone.note);
    assert!(gone.note.ends_with("; each has 30s to finish"), "{}", gone.note);
    let seen = ready(&mut target, 1).await;
    assert!(!gone.removed.contains(&seen.reading.workers[0].id));

    target.scale(&order(1, 0, &[])).await.unwrap();
    until(&mut target, "empty", |seen| seen.reading.workers.is_empty()).await;
    target.scale(&order(0, 1, &[])).await.unwrap();
    ready(&mut target, 1).await;
    let what = "{{.Spec.Labels.team}} {{.Spec.TaskTemplate.ContainerSpec.Env}} \
                {{.Spec.TaskTemplate.ContainerSpec.StopGracePeriod}}";
    let kept = service.docker.ask(&["service", "inspect", "-f", what, &service.name]);
    assert_eq!(kept, "x [KEEP=me] 30s", "the rest of it is as it was");
}

#[tokio::test]
async fn a_busy_worker_drains_and_is_no_capacity() {
    let service = SwarmService::new(CAREFUL, 2, &[]);
    let mut target = service.open(&service.config());
    let seen = ready(&mut target, 2).await;
    let containers: Vec<String> =
        seen.reading.workers.iter().map(|w| service.container(&w.id)).collect();
    for container in &containers {
        service.docker.ask(&["exec", container, "touch", "/job"]);
    }
    let all: Vec<&str> = ids(&seen, WorkerState::Ready);
    let gone = target.scale(&order_with_busy(2, 1, &[], &all)).await.unwrap();
    assert!(gone.note.contains("; not known to be idle: "), "{}", gone.note);
    let seen = until(&mut target, "draining", |seen| seen.reading.draining == 1).await;
    assert_eq!((seen.reading.capacity(), seen.reading.desired), (1, Some(1)));
    assert_eq!(ids(&seen, WorkerState::Draining), [gone.removed[0].as_str()]);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(target.status().await.unwrap().reading.draining, 1, "it has time to finish");
    for container in &containers {
        service.docker.run(&["exec", container, "rm", "/job"]);
    }
    let seen = ready(&mut target, 1).await;
    assert_eq!(seen.reading.died, 0);
}

#[tokio::test]
async fn that_swarm_picks_blindly_is_told_once_at_the_start() {
    let service = SwarmService::new(OBEDIENT, 0, &[]);
    let (log, _guard) = listen();
    let careful = SwarmConfig { require_victims: true, ..service.config() };
    service.open(&careful).watch_over(&HashMap::new()).await;
    assert_eq!(*log.lock().unwrap(), "");
    let mut target = service.open(&service.config());
    for _ in 0..3 {
        target.watch_over(&HashMap::new()).await;
    }
    let told = log.lock().unwrap().clone();
    assert_eq!(told.matches("Swarm picks who goes").count(), 1, "{told}");
    assert!(told.contains("stop_grace_period"), "{told}");
}

#[tokio::test]
async fn with_require_victims_nothing_shrinks_while_one_may_be_busy() {
    let service = SwarmService::new(OBEDIENT, 2, &[]);
    let config = SwarmConfig { require_victims: true, ..service.config() };
    let mut target = service.open(&config);
    let blind = target.scale(&order(2, 1, &[])).await.unwrap_err();
    assert!(blind.to_string().contains("`require_victims` is set"), "{blind}");
    let seen = ready(&mut target, 2).await;
    let all: Vec<&str> = ids(&seen, WorkerState::Ready);
    let refused = order_with_busy(2, 1, &all[..1], &all[1..]);
    let error = target.scale(&refused).await.unwrap_err();
    assert!(matches!(error, TargetError::NotNow { .. }), "{error:?}");
    let error = error.to_string();
    let who = format!(": 1 of 2 are busy or not known to be idle ({}.", service.name);
    assert!(error.contains(&who), "{error}");
    assert!(error.ends_with("), and Swarm picks who goes"), "{error}");
    assert_eq!(service.replicas(), 2);
    target.scale(&order_with_busy(2, 1, &all[..1], &[])).await.unwrap();
    assert_eq!(service.replicas(), 1);
}

#[tokio::test]
async fn somebody_else_changed_the_number() {
    let service = SwarmService::new(OBEDIENT, 1, &[]);
    let mut target = service.open(&service.config());
    ready(&mut target, 1).await;
    service.set(3);
    for to in [2, 0] {
        let error = target.scale(&order(1, to, &[])).await.unwrap_err();
        assert_eq!(error, TargetError::Contradiction { there: 3, decided_for: 1 });
    }
    assert_eq!(target.status().await.unwrap().reading.desired, Some(3));
    target.scale(&order(3, 1, &[])).await.unwrap();
    assert_eq!(service.replicas(), 1);
}

#[tokio::test]
async fn a_change_at_the_same_time_is_tried_once_more() {
    let service = SwarmService::new(OBEDIENT, 1, &[]);
    let proxy = Proxy::start(&service.docker.host);
    let config = SwarmConfig { host: Some(proxy.host()), ..service.config() };
    let mut target = service.open(&config);
    ready(&mut target, 1).await;
    proxy.fault_on("/update", Fault::SaysOnce(500, CONFLICT));
    target.scale(&order(1, 2, &[])).await.unwrap();
    assert_eq!(service.replicas(), 2);
    ready(&mut target, 2).await;
    proxy.fault_on("/update", Fault::Says(500, CONFLICT));
    let error = target.scale(&order(2, 3, &[])).await.unwrap_err();
    let told = format!("{} is being changed by somebody else", service.name);
    assert!(error.to_string().ends_with(&told), "{error}");
    assert_eq!(service.replicas(), 2);
    proxy.fault(None);
    target.scale(&order(2, 3, &[])).await.unwrap();
    assert_eq!(service.replicas(), 3);
}

/// An engine that wants more tasks than its service asks for, as one does that passed over a task
/// which had just come up. It stops as many as it should at the next change.
#[tokio::test]
async fn a_change_that_swarm_lost_is_asked_for_again() {
    let version = Arc::new(AtomicU64::new(7));
    let (seen, changed) = (Arc::clone(&version), Arc::clone(&version));
    let service = move || async move {
        let spec = json!({"Name": "w", "Mode": {"Replicated": {"Replicas": 2}}});
        axum::Json(json!({"ID": "s", "Version": {"Index": 7}, "Spec": spec}))
    };
    let tasks = move || async move {
        let gone = seen.load(Ordering::Relaxed) > 7;
        let task = |n: u32| {
            let desired = if gone && n == 3 { "shutdown" } else { "running" };
            json!({"ID": format!("t{n}"), "ServiceID": "s", "Slot": n, "DesiredState": desired,
                "Status": {"State": "running"}})
        };
        axum::Json(json!([task(1), task(2), task(3)]))
    };
    let update = move |body: String| async move {
        let spec: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(spec["Mode"]["Replicated"]["Replicas"], 2);
        changed.fetch_add(1, Ordering::Relaxed);
        axum::Json(json!({}))
    };
    let app = axum::Router::new()
        .route("/services/w", get(service))
        .route("/tasks", get(tasks))
        .route("/services/s/update", post(update));
    let engine = Server::start(app).await;
    let host = Some(format!("tcp://{}", engine.address));
    let config = SwarmConfig { host, service: "w".into(), ..SwarmConfig::default() };
    let mut target = config.open(&place(Path::new("/nonexistent"), "g")).unwrap();

    let seen = target.status().await.unwrap();
    assert_eq!((seen.reading.capacity(), seen.reading.desired), (3, Some(2)));
    let scaled = target.scale(&order(3, 2, &["t1"])).await.unwrap();
    assert_eq!(scaled.removed, ["t3"]);
    assert!(scaled.note.starts_with("Swarm chose w.3; "), "{}", scaled.note);
    let again = target.scale(&order(3, 2, &["t1"])).await.unwrap();
    assert_eq!((again.note.as_str(), version.load(Ordering::Relaxed)), ("already 2", 8));
    assert_eq!(target.status().await.unwrap().reading.draining, 1);
    let nothing = target.scale(&order(2, 2, &[])).await.unwrap();
    assert_eq!((nothing.note.as_str(), version.load(Ordering::Relaxed)), ("already 2", 8));
}

#[tokio::test]
async fn the_words_of_a_real_conflict_are_known() {
    let service = SwarmService::new(OBEDIENT, 1, &[]);
    let path = format!("http://x/services/{}/update?version=1", service.name);
    let spec = service.docker.ask(&["service", "inspect", "-f", "{{json .Spec}}", &service.name]);
    let socket = service.docker.socket();
    let mut curl = std::process::Command::new("curl");
    curl.args(["-s", "--unix-socket", socket, "-H", "Content-Type: application/json"]);
    let said = curl.args(["-d", &spec, &path]).output().expect("no curl: run ./test.sh first");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("update out of sequence"), "{said}");
}

#[tokio::test]
async fn a_worker_that_crashes_is_broken_and_its_end_is_told() {
    let service = SwarmService::new("exit 3", 0, &[]);
    let mut target = service.open(&service.config());
    target.status().await.unwrap();
    target.scale(&order(0, 1, &[])).await.unwrap();
    let mut died = 0;
    let deadline = Instant::now() + PATIENCE;
    let seen = loop {
        let seen = target.status().await.unwrap();
        died += seen.reading.died;
        if died > 0 && seen.reading.broken == 1 {
            break seen;
        }
        assert!(Instant::now() < deadline, "{seen:#?}");
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(seen.reading.capacity(), 0);
    let error = target.scale(&order(0, 1, &[])).await.unwrap_err();
    let told = error.to_string();
    assert!(told.contains("1 are asked for already, but not all take jobs: "), "{told}");
    assert!(told.contains(".1: failed: task: non-zero exit (3)"), "{told}");
    assert!(matches!(error, TargetError::Failed { .. }), "{error:?}");
}

#[tokio::test]
async fn an_image_that_no_node_has_is_told() {
    let service = SwarmService::with(OBEDIENT, &["--replicas", "0"]);
    service.docker.ask(&[
        "service",
        "update",
        "-d",
        "-q",
        "--no-resolve-image",
        "--image",
        "no.invalid/such:1",
        &service.name,
    ]);
    let mut target = service.open(&service.config());
    target.status().await.unwrap();
    target.scale(&order(0, 1, &[])).await.unwrap();
    until(&mut target, "broken", |seen| seen.reading.broken == 1).await;
    let error = target.scale(&order(0, 1, &[])).await.unwrap_err();
    assert!(
        error.to_string().contains(".1: rejected: No such image: no.invalid/such:1"),
        "{error}"
    );
    let findings = target.check().await;
    let told = problems(&findings).join("; ");
    assert!(told.starts_with("not running: ") && told.contains(".1: rejected: "), "{told}");
}

#[tokio::test]
async fn during_an_update_nothing_shrinks() {
    let slow = "trap 'sleep 20; exit 0' TERM; while :; do sleep 0.1; done";
    let service = SwarmService::new(slow, 2, &["--update-failure-action", "rollback"]);
    let mut target = service.open(&service.config());
    ready(&mut target, 2).await;
    service.docker.ask(&["service", "update", "-d", "-q", "--force", &service.name]);
    until(&mut target, "updating", |seen| seen.reading.draining == 1).await;
    let error = target.scale(&order(2, 1, &[])).await.unwrap_err();
    assert!(error.to_string().contains("refused while an update of"), "{error}");
    assert!(matches!(error, TargetError::NotNow { .. }), "{error:?}");
    let error = target.scale(&order(2, 3, &[])).await.unwrap_err();
    assert!(matches!(error, TargetError::NotNow { .. }), "{error:?}");
    assert!(error.to_string().contains("Swarm would undo this change"), "{error}");
    let findings = target.check().await;
    let told = format!("an update of {} goes on: nothing shrinks until it is over", service.name);
    assert!(problems(&findings).contains(&told.as_str()), "{findings:#?}");
    assert_eq!(service.replicas(), 2);
}

#[tokio::test]
async fn what_cannot_be_scaled_is_told() {
    let global = SwarmService::with(OBEDIENT, &["--mode", "global"]);
    let mut target = global.open(&global.config());
    let told = "runs one task on each node (mode global): there is no number to change";
    let missing = target.status().await.unwrap_err();
    assert!(missing.detail.contains(told), "{missing}");
    let error = target.scale(&order(0, 1, &[])).await.unwrap_err();
    assert!(matches!(error, TargetError::Failed { .. }) && error.to_string().contains(told));
    assert!(problems(&target.check().await)[0].contains(told));

    let typo = SwarmConfig { service: format!("{}x", global.name), ..global.config() };
    let mut target = global.open(&typo);
    assert_eq!(target.status().await.unwrap_err().why, Silence::NotFound);
    let findings = target.check().await;
    let told = problems(&findings)[0];
    assert!(told.starts_with(&format!("there is no service {}; there are: ", typo.service)));
    assert!(told.contains(&global.name), "{told}");
}

#[tokio::test]
async fn an_engine_in_trouble_is_silence_and_the_next_tick_recovers() {
    let service = SwarmService::new(OBEDIENT, 1, &[]);
    let proxy = Proxy::start(&service.docker.host);
    let config = SwarmConfig { host: Some(proxy.host()), ..service.config() };
    let mut target = service.open(&config);
    ready(&mut target, 1).await;
    for (fault, why) in [
        (Fault::Down, Silence::Unreachable),
        (Fault::Slow, Silence::Timeout),
        (Fault::Answers(403), Silence::Denied),
        (Fault::Answers(500), Silence::Malformed),
        (Fault::Cut, Silence::Unreachable),
        (Fault::Says(503, NO_MANAGER), Silence::NotFound),
    ] {
        proxy.fault(Some(fault));
        let missing = target.status().await.unwrap_err();
        assert_eq!(missing.why, why, "{fault:?}: {missing}");
        if fault != Fault::Slow {
            target.scale(&order(1, 2, &[])).await.unwrap_err();
            target.scale(&order(1, 0, &[])).await.unwrap_err();
        }
        if fault == Fault::Says(503, NO_MANAGER) {
            assert!(missing.detail.contains("is no Swarm manager: This node"), "{missing}");
        }
        proxy.fault(None);
        assert_eq!(ready(&mut target, 1).await.reading.desired, Some(1), "{fault:?}");
    }
    proxy.fault_on("/services", Fault::Says(503, NO_MANAGER));
    let findings = target.check().await;
    assert!(problems(&findings)[0].contains("is no Swarm manager"), "{findings:#?}");
    proxy.fault_on("/update", Fault::Answers(500));
    target.scale(&order(1, 2, &[])).await.unwrap_err();
    assert_eq!(service.replicas(), 1);
    proxy.fault(None);
    target.scale(&order(1, 2, &[])).await.unwrap();
    ready(&mut target, 2).await;
}

#[tokio::test]
async fn a_worker_has_all_the_names_a_queue_may_know_it_by() {
    let service = SwarmService::new(OBEDIENT, 1, &[]);
    let config = SwarmConfig { ready_after: Span::from_secs(600), ..service.config() };
    let mut target = service.open(&config);
    let seen = until(&mut target, "running", |seen| {
        seen.known_as.values().flatten().any(|name| matches!(name, Identity::Process(_)))
    })
    .await;
    let worker = &seen.reading.workers[0];
    assert_eq!(worker.state, WorkerState::Starting, "it is young");
    assert_eq!(worker.version.as_deref(), Some("bb:1"));
    let container = service.container(&worker.id);
    let pid = service.docker.ask(&["inspect", "-f", "{{.State.Pid}}", &container]);
    let names = &seen.known_as[&worker.id];
    for expected in [
        Identity::Container(container.clone()),
        Identity::Hostname(container[..12].to_owned()),
        Identity::Hostname(format!("{}.1.{}", service.name, worker.id)),
        Identity::Process(pid.parse().unwrap()),
    ] {
        assert!(names.contains(&expected), "{expected:?} is not in {names:?}");
    }
}

#[tokio::test]
async fn check_finds_nothing_wrong_with_a_good_service() {
    let service = SwarmService::new(OBEDIENT, 1, &[]);
    let mut target = service.open(&service.config());
    ready(&mut target, 1).await;
    let findings = target.check().await;
    assert_eq!(problems(&findings), Vec::<&str>::new());
    let facts: Vec<Fact> = findings.iter().filter_map(|f| f.fact).collect();
    assert_eq!(facts, [Fact::Grace(Span::from_secs(30)), Fact::Workers(1)]);
    let once = SwarmService::new(OBEDIENT, 1, &["--restart-condition", "none"]);
    let findings = once.open(&once.config()).check().await;
    let told = format!("a worker of {} that crashes is not replaced", once.name);
    assert_eq!(problems(&findings), [told.as_str()]);
}
