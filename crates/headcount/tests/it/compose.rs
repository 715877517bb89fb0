//! The `compose` target against a real Docker daemon and the real Compose.

use std::time::Duration;

use headcount::config::Place;
use headcount::finding::Fact;
use headcount::queues::Identity;
use headcount::targets::compose::ComposeConfig;
use headcount::targets::dry_run::over;
use headcount::targets::{FleetSeen, Promise, Target, TargetError};
use headcount_core::reading::WorkerState;
use headcount_core::{Silence, Span};
use tokio::time::{Instant, sleep};

use crate::support::docker::{OBEDIENT, Project, service};
use crate::support::looks::{problems, until};
use crate::support::wait;
use crate::support::workers::{ids, order, sorted};

/// The ids of the workers by their number in the project.
async fn by_number(project: &Project, target: &mut Box<dyn Target>, n: u32) -> Vec<String> {
    target.scale(&order(0, n, &[])).await.expect("it can be scaled");
    let find = |number: u32| {
        let label = format!("label=com.docker.compose.project={}", project.name);
        let number = format!("label=com.docker.compose.container-number={number}");
        project.docker.ask(&["ps", "-q", "--no-trunc", "--filter", &label, "--filter", &number])
    };
    (1..=n).map(find).collect()
}

#[tokio::test]
async fn goes_out_and_removes_exactly_the_chosen_worker() {
    let project = Project::new(OBEDIENT, "");
    let mut target = project.open(&project.config());
    assert_eq!(target.promise(), Promise::ExactVictims);
    assert_eq!(target.scales(), format!("compose:{}:{}/worker", project.docker.host, project.name));
    let link = project.path("docker.sock");
    std::os::unix::fs::symlink(project.docker.socket(), &link).unwrap();
    let by_link = Some(format!("unix://{}", link.display()));
    let same = project.open(&ComposeConfig { docker_host: by_link, ..project.config() });
    assert_eq!(same.scales(), target.scales(), "one lease for one thing");
    assert_eq!(target.status().await.unwrap(), FleetSeen::default());

    let first = target.scale(&order(0, 1, &[])).await.unwrap();
    assert_eq!(first.started, project.containers());
    assert_eq!(first.note, format!("started {}-worker-1", project.name));
    let workers = by_number(&project, &mut target, 3).await;
    let seen = target.status().await.unwrap();
    assert_eq!((seen.reading.ready, seen.reading.died), (3, 0), "{:#?}", seen.reading);
    assert_eq!(first.started[0], workers[0], "the first one was not touched");

    let gone = target.scale(&order(3, 2, &[&workers[1], &workers[2]])).await.unwrap();
    assert_eq!(gone.removed, [workers[1].clone()], "the best one goes, and only one");
    let told = format!("chose {}-worker-2 (idle first", project.name);
    assert!(gone.note.starts_with(&told), "{}", gone.note);
    let seen = until(&mut target, "gone", |seen| seen.reading.workers.len() == 2).await;
    let rest = sorted([&workers[0], &workers[2]]);
    assert_eq!(sorted(ids(&seen, WorkerState::Ready)), rest);
    assert_eq!(seen.reading.died, 0);

    target.scale(&order(2, 1, &[&workers[0]])).await.unwrap();
    let seen = until(&mut target, "gone", |seen| seen.reading.workers.len() == 1).await;
    assert_eq!(ids(&seen, WorkerState::Ready), [workers[2].clone()]);
    assert_eq!(project.containers(), [workers[2].clone()]);
}

#[tokio::test]
async fn the_same_number_again_changes_nothing() {
    let project = Project::new(OBEDIENT, "");
    let mut target = project.open(&project.config());
    target.scale(&order(0, 2, &[])).await.unwrap();
    let before = sorted(project.containers());
    for from in [0, 2] {
        let again = target.scale(&order(from, 2, &[])).await.unwrap();
        assert_eq!((again.note.as_str(), again.started.len()), ("already 2", 0));
    }
    target.status().await.unwrap();
    for to in [1, 2] {
        let error = target.scale(&order(0, to, &[])).await.unwrap_err();
        assert_eq!(error, TargetError::Contradiction { there: 2, decided_for: 0 });
    }
    assert_eq!(sorted(project.containers()), before);
}

#[tokio::test]
async fn exited_containers_are_no_workers_and_are_not_started_again() {
    let project = Project::new(OBEDIENT, "");
    let mut target = project.open(&project.config());
    let workers = by_number(&project, &mut target, 3).await;
    target.status().await.unwrap();
    project.docker.ask(&["kill", &workers[0]]);
    let seen = until(&mut target, "killed", |seen| seen.reading.ready == 2).await;
    assert_eq!((seen.reading.broken, seen.reading.died), (1, 1));
    assert_eq!(target.status().await.unwrap().reading.died, 0, "each death counts once");

    let scaled = target.scale(&order(2, 3, &[])).await.unwrap();
    let removed = format!("; removed exited {}-worker-1", project.name);
    assert!(scaled.note.ends_with(&removed), "{}", scaled.note);
    let all = sorted([&workers[1..], &scaled.started].concat());
    assert_eq!((sorted(project.containers()), scaled.started.len()), (all, 1));
}

#[tokio::test]
async fn the_reset_by_a_deploy_is_seen_and_undone() {
    let project = Project::new(OBEDIENT, "");
    let mut target = project.open(&project.config());
    target.scale(&order(0, 3, &[])).await.unwrap();
    project.compose(&["up", "-d"]);
    let seen = target.status().await.unwrap();
    assert_eq!(seen.reading.capacity(), 1);
    target.scale(&order(1, 3, &[])).await.unwrap();
    assert_eq!(target.status().await.unwrap().reading.capacity(), 3);
}

#[tokio::test]
async fn each_mistake_has_its_message() {
    let project = Project::new(OBEDIENT, "");
    project.write("image.yml", "services: {worker: {image: 'no.invalid/such:1'}}");
    project.write("bad.yml", "services: [");
    let with = |change: &dyn Fn(&mut ComposeConfig)| {
        let mut config = project.config();
        change(&mut config);
        config
    };
    let cases = [
        (with(&|c| c.files = vec!["image.yml".into()]), "no.invalid"),
        (with(&|c| c.service = "wrker".into()), "no such service: wrker (check `service`"),
        (with(&|c| c.files = vec!["gone.yml".into()]), "gone.yml: no such file"),
        (with(&|c| c.files = vec!["bad.yml".into()]), "bad.yml: yaml: line 1"),
        (with(&|c| c.env_file = Some("gone.env".into())), "gone.env (check `env_file`)"),
        (with(&|c| c.command = Some(vec!["/no/compose".into()])), "/no/compose up: No such file"),
    ];
    for (config, expected) in cases {
        let mut target = project.open(&config);
        let error = target.scale(&order(0, 1, &[])).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(matches!(error, TargetError::Failed { .. }), "{error:?}");
    }
    assert!(project.containers().is_empty());
}

#[tokio::test]
async fn a_compose_that_hangs_is_ended() {
    let project = Project::new(OBEDIENT, "");
    let config = ComposeConfig {
        command: Some(["sh", "-c", "sleep 600"].map(str::to_owned).to_vec()),
        up_timeout: Span::from_secs(2),
        ..project.config()
    };
    let error = project.open(&config).scale(&order(0, 1, &[])).await.unwrap_err();
    assert_eq!(error.to_string(), "sh -c sleep 600 up did not finish within 2 s");
}

#[tokio::test]
async fn a_worker_that_exits_at_once_is_a_success_that_died() {
    let project = Project::new("exit 3", "");
    let mut target = project.open(&project.config());
    target.status().await.unwrap();
    target.scale(&order(0, 1, &[])).await.unwrap();
    let seen = until(&mut target, "dead", |seen| seen.reading.died > 0).await;
    assert_eq!((seen.reading.died, seen.reading.capacity(), seen.reading.broken), (1, 0, 1));
    for _ in 0..3 {
        assert_eq!(target.status().await.unwrap().reading.died, 0);
    }
}

#[tokio::test]
async fn crashing_workers_are_replaced_and_never_pile_up() {
    let project = Project::new("exit 3", "    restart: always\n");
    let mut target = project.open(&project.config());
    target.status().await.unwrap();
    target.scale(&order(0, 2, &[])).await.unwrap();
    let first = project.containers();
    // Docker waits longer each time before it starts them again.
    sleep(Duration::from_secs(4)).await;
    let crashing = |seen: &FleetSeen| seen.reading.broken == 2;
    let seen = until(&mut target, "crashing", crashing).await;
    assert_eq!(seen.reading.capacity(), 0);

    let scaled = target.scale(&order(0, 2, &[])).await.unwrap();
    assert!(scaled.note.contains("; told crashing "), "{}", scaled.note);
    let now = project.containers();
    assert_eq!(now.len(), 2, "{now:?}");
    assert!(now.iter().any(|id| !first.contains(id)), "{now:?}");
}

#[tokio::test]
async fn a_worker_that_ignores_its_signal_is_killed_after_its_grace_and_not_before() {
    let project = Project::new("trap '' TERM; while :; do sleep 1; done", "");
    let config = ComposeConfig { grace: Span::from_secs(6), ..project.config() };
    let mut target = project.open(&config);
    let id = by_number(&project, &mut target, 1).await.remove(0);
    let told = Instant::now();
    target.scale(&order(1, 0, &[&id])).await.unwrap();
    let seen = until(&mut target, "gone", |seen| {
        let there = !seen.reading.workers.is_empty();
        let drains = ids(seen, WorkerState::Draining) == [id.clone()];
        assert!(!there || drains || told.elapsed() >= Duration::from_secs(6), "{seen:#?}");
        !there
    });
    assert_eq!(seen.await.reading.died, 0);
    assert!(told.elapsed() >= Duration::from_secs(6), "gone after {:?}", told.elapsed());
}

#[tokio::test]
async fn the_stop_grace_period_of_the_service_counts_if_it_is_longer() {
    let script = "trap '' TERM; while :; do sleep 1; done";
    let project = Project::new(script, "    stop_grace_period: 6s\n");
    let config = ComposeConfig { grace: Span::from_secs(1), ..project.config() };
    let mut target = project.open(&config);
    let id = by_number(&project, &mut target, 1).await.remove(0);
    let told = Instant::now();
    target.scale(&order(1, 0, &[&id])).await.unwrap();
    until(&mut target, "gone", |seen| seen.reading.workers.is_empty()).await;
    assert!(told.elapsed() >= Duration::from_secs(6), "gone after {:?}", told.elapsed());
}

/// A worker that says when it is told to go, and takes its time.
const SLOW: &str =
    "trap 'echo told; sleep 8; exit 0' TERM; echo up; while :; do sleep 3600 & wait $$!; done";

#[tokio::test]
async fn one_that_leaves_is_neither_counted_nor_touched_by_a_scale_out() {
    let project = Project::new(SLOW, "");
    let mut target = project.open(&project.config());
    let workers = by_number(&project, &mut target, 2).await;
    target.scale(&order(2, 1, &[&workers[0]])).await.unwrap();
    let seen = target.status().await.unwrap();
    assert_eq!(ids(&seen, WorkerState::Draining), [workers[0].clone()]);
    assert_eq!(seen.reading.capacity(), 1);

    let scaled = target.scale(&order(1, 2, &[])).await.unwrap();
    assert_eq!(scaled.started.len(), 1, "{}", scaled.note);
    let seen = until(&mut target, "gone", |seen| seen.reading.draining == 0).await;
    let rest = sorted([workers[1].clone(), scaled.started[0].clone()]);
    assert_eq!(sorted(ids(&seen, WorkerState::Ready)), rest);
    assert_eq!(seen.reading.died, 0);
    until(&mut target, "removed", |seen| seen.reading.workers.len() == 2).await;
    assert_eq!(sorted(project.containers()), rest);
}

#[tokio::test]
async fn a_restart_remembers_who_leaves_and_signals_nobody_twice() {
    let project = Project::new(SLOW, "    restart: unless-stopped\n");
    let mut target = project.open(&project.config());
    let workers = by_number(&project, &mut target, 2).await;
    let logs = || project.docker.ask(&["logs", &workers[1]]);
    wait::until("the worker comes up", async || logs().contains("up")).await;
    target.scale(&order(2, 1, &[&workers[1]])).await.unwrap();
    drop(target);

    let mut target = project.open(&project.config());
    let mut beside = project.open(&project.config());
    let mut dry = over(project.open(&project.config()));
    for target in [&mut dry, &mut target, &mut beside] {
        let seen = target.status().await.unwrap();
        assert_eq!(ids(&seen, WorkerState::Draining), [workers[1].clone()]);
        assert_eq!(ids(&seen, WorkerState::Ready), [workers[0].clone()]);
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(logs().matches("told").count(), 1, "{}", logs());
    until(&mut target, "gone", |seen| seen.reading.workers.len() == 1).await;
    assert_eq!(project.containers(), [workers[0].clone()]);
    assert_eq!(std::fs::read_to_string(project.path("state/g/draining.json")).unwrap(), "{}");
}

#[tokio::test]
async fn one_that_ended_while_headcount_was_away_is_removed_and_one_started_again_is_told_again() {
    let project = Project::new(OBEDIENT, "");
    let mut target = project.open(&project.config());
    let workers = by_number(&project, &mut target, 3).await;
    drop(target);
    project.docker.ask(&["stop", &workers[0]]);
    let told = |id: &str, life: &str| format!("\"{id}\":{{\"name\":\"w\",\"life\":\"{life}\"}}");
    std::fs::create_dir_all(project.path("state/g")).unwrap();
    let [ended, again] = [told(&workers[0], "x"), told(&workers[1], "an earlier life")];
    project.write("state/g/draining.json", &format!("{{{ended},{again}}}"));

    let mut dry = over(project.open(&project.config()));
    assert_eq!(dry.status().await.unwrap().reading.draining, 1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(dry.status().await.unwrap().reading.workers.len(), 3, "a dry run only looks");

    let mut target = project.open(&project.config());
    let seen = until(&mut target, "gone", |seen| seen.reading.workers.len() == 1).await;
    assert_eq!(ids(&seen, WorkerState::Ready), [workers[2].clone()]);
}

#[tokio::test]
async fn a_state_folder_that_cannot_be_written_stops_nobody_from_leaving() {
    let project = Project::new(SLOW, "");
    // A folder below a file cannot be made, not even by root.
    let place = Place { state_dir: project.path("a.yml/state"), ..project.place() };
    let mut target = project.config().open(&place).unwrap();
    let workers = by_number(&project, &mut target, 2).await;
    target.scale(&order(2, 1, &[&workers[0]])).await.unwrap();
    let seen = target.status().await.unwrap();
    assert_eq!(ids(&seen, WorkerState::Draining), workers[..1]);
    let seen = until(&mut target, "gone", |seen| seen.reading.workers.len() == 1).await;
    assert_eq!(ids(&seen, WorkerState::Ready), workers[1..]);
}

#[tokio::test]
async fn nobody_is_picked_blindly() {
    let project = Project::new(OBEDIENT, "");
    let mut target = project.open(&project.config());
    let stranger = Project::new(OBEDIENT, "");
    let theirs = by_number(&stranger, &mut stranger.open(&stranger.config()), 1).await.remove(0);
    let workers = by_number(&project, &mut target, 2).await;

    let error = target.scale(&order(2, 1, &[])).await.unwrap_err();
    assert!(error.to_string().contains("no worker is named that may go"), "{error}");
    let error = target.scale(&order(2, 1, &[&theirs, "abc"])).await.unwrap_err();
    assert!(error.to_string().contains("none of the workers that may go"), "{error}");
    assert_eq!(target.status().await.unwrap().reading.ready, 2);
    assert_eq!(stranger.containers(), [theirs]);

    let error = target.scale(&order(3, 2, &[&workers[0]])).await.unwrap_err();
    assert_eq!(error, TargetError::Contradiction { there: 2, decided_for: 3 });
    assert_eq!(target.status().await.unwrap().reading.ready, 2);
}

#[tokio::test]
async fn two_services_of_one_project_take_turns() {
    let project = Project::new(OBEDIENT, &service("other", OBEDIENT, ""));
    let mut worker = project.open(&project.config());
    let mut other = project.open(&ComposeConfig { service: "other".into(), ..project.config() });
    let (three, two) = (order(0, 3, &[]), order(0, 2, &[]));
    let (first, second) = tokio::join!(worker.scale(&three), other.scale(&two));
    assert_eq!((first.unwrap().started.len(), second.unwrap().started.len()), (3, 2));
    assert_eq!(worker.status().await.unwrap().reading.ready, 3);
    assert_eq!(other.status().await.unwrap().reading.ready, 2);
}

#[tokio::test]
async fn docker_down_is_silence_and_not_zero() {
    let project = Project::new(OBEDIENT, "");
    let socket = project.path("s.sock");
    let host = format!("unix://{}", socket.display());
    let config = ComposeConfig { docker_host: Some(host), ..project.config() };
    let mut target = project.open(&config);
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Unreachable);
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Refused, "{missing}");
    for order in [order(0, 1, &[]), order(1, 0, &["a"])] {
        let error = target.scale(&order).await.unwrap_err();
        assert!(matches!(error, TargetError::Unreachable { .. }), "{error:?}");
    }
    let hung = std::os::unix::net::UnixListener::bind(project.path("hung.sock")).unwrap();
    let host = format!("unix://{}", project.path("hung.sock").display());
    let config = ComposeConfig { docker_host: Some(host), ..project.config() };
    assert_eq!(project.open(&config).status().await.unwrap_err().why, Silence::Timeout);
    drop(hung);
}

#[tokio::test]
async fn a_health_check_decides_who_is_ready() {
    let check = "    healthcheck: {test: [CMD, test, -f, /tmp/ok], interval: 1s, retries: 2, \
                 start_period: 300s}\n";
    let project = Project::new(OBEDIENT, check);
    let mut target = project.open(&project.config());
    let id = by_number(&project, &mut target, 1).await.remove(0);
    let seen = target.status().await.unwrap();
    assert_eq!(ids(&seen, WorkerState::Starting), std::slice::from_ref(&id));
    project.docker.ask(&["exec", &id, "touch", "/tmp/ok"]);
    until(&mut target, "healthy", |seen| seen.reading.ready == 1).await;
    project.docker.ask(&["exec", &id, "rm", "/tmp/ok"]);
    until(&mut target, "unhealthy", |seen| seen.reading.broken == 1).await;

    let error = target.scale(&order(0, 1, &[])).await.unwrap_err();
    assert!(error.to_string().contains("worker-1 take no jobs and hold the places"), "{error}");
    let scaled = target.scale(&order(0, 2, &[])).await.unwrap();
    assert_eq!(scaled.started.len(), 1, "an unhealthy one counts as a replica: {}", scaled.note);
}

#[tokio::test]
async fn without_a_health_check_a_worker_starts_for_a_while() {
    let project = Project::new(OBEDIENT, "");
    let config = ComposeConfig { ready_after: Span::from_secs(600), ..project.config() };
    let mut target = project.open(&config);
    target.scale(&order(0, 1, &[])).await.unwrap();
    assert_eq!(target.status().await.unwrap().reading.starting, 1);
}

#[tokio::test]
async fn a_worker_has_all_the_names_a_queue_may_know_it_by() {
    let project = Project::empty();
    let text = format!("services:\n{}", service("worker", OBEDIENT, ""));
    project.write("a.yml", &text.replace("    network_mode: none\n", ""));
    let mut target = project.open(&project.config());
    let id = by_number(&project, &mut target, 1).await.remove(0);
    let seen = target.status().await.unwrap();
    let pid = project.docker.ask(&["inspect", "-f", "{{.State.Pid}}", &id]);
    let networks = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
    let ip = project.docker.ask(&["inspect", "-f", networks, &id]);
    let expected = [
        Identity::Container(id.clone()),
        Identity::Hostname(id[..12].to_owned()),
        Identity::Peer((ip.parse::<std::net::IpAddr>().unwrap(), 0).into()),
        Identity::Process(pid.parse().unwrap()),
    ];
    assert_eq!(seen.known_as[&id], expected);
    let worker = &seen.reading.workers[0];
    assert!(worker.started_at.is_some() && worker.version.is_some());
}

#[tokio::test]
async fn compose_v1_works_too() {
    let project = Project::new(OBEDIENT, "");
    let config = ComposeConfig { command: Some(vec!["docker-compose".into()]), ..project.config() };
    let mut target = project.open(&config);
    let findings = target.check().await;
    let found = findings.iter().any(|f| f.what.starts_with("docker-compose "));
    assert!(found, "no docker-compose: run ./test.sh first: {findings:#?}");
    let workers = by_number(&project, &mut target, 3).await;
    target.scale(&order(3, 2, &[&workers[0]])).await.unwrap();
    let seen = until(&mut target, "gone", |seen| seen.reading.workers.len() == 2).await;
    assert_eq!(sorted(ids(&seen, WorkerState::Ready)), sorted(&workers[1..]));
    target.scale(&order(2, 3, &[])).await.unwrap();
    let seen = target.status().await.unwrap();
    assert_eq!(seen.reading.ready, 3);
    assert!(ids(&seen, WorkerState::Ready).contains(&workers[1].as_str()));

    let config = ComposeConfig { project: format!("{}-wrong", project.name), ..config };
    let wrong = ComposeConfig { service: "wrker".into(), ..config.clone() };
    let error = project.open(&wrong).scale(&order(0, 1, &[])).await.unwrap_err();
    assert!(error.to_string().contains("No such service: wrker (check `service`"), "{error}");
    let wrong = ComposeConfig { files: vec!["gone.yml".into()], ..config };
    let error = project.open(&wrong).scale(&order(0, 1, &[])).await.unwrap_err();
    assert!(error.to_string().contains("gone.yml"), "{error}");
}

#[tokio::test]
async fn check_finds_nothing_wrong_with_a_good_service() {
    let more = "    restart: unless-stopped\n    stop_grace_period: 90s\n    environment:\n      \
                N8N_GRACEFUL_SHUTDOWN_TIMEOUT: 80\n      N8N_CONCURRENCY_PRODUCTION_LIMIT: 3\n";
    let project = Project::new(OBEDIENT, more);
    let mut target = project.open(&project.config());
    target.scale(&order(0, 2, &[])).await.unwrap();
    let findings = target.check().await;
    assert_eq!(problems(&findings), Vec::<&str>::new());
    assert!(findings.iter().any(|f| f.what.starts_with("Docker Engine 2")), "{findings:#?}");
    assert!(findings.iter().any(|f| f.what.ends_with("docker compose 2.40.3")), "{findings:#?}");
    assert!(findings.iter().any(|f| f.what.starts_with("2 workers")), "{findings:#?}");
    let facts: Vec<_> = findings.iter().filter_map(|f| f.fact).collect();
    assert_eq!(facts, [Fact::Workers(2), Fact::Slots(3)]);
}

#[tokio::test]
async fn check_finds_what_stands_in_the_way() {
    // The volume is none: the engine sees the same files.
    let more = "    container_name: one\n    hostname: h\n    profiles: [p]\n    \
                volumes: [\"./files:/files\"]\n    environment:\n      \
                - N8N_GRACEFUL_SHUTDOWN_TIMEOUT=60\n";
    let project = Project::new(OBEDIENT, more);
    let text = std::fs::read_to_string(project.path("a.yml")).unwrap();
    project.write("a.yml", &text.replace("bb:1", "no.invalid/such:1"));
    let mut target = project.open(&project.config());
    let findings = target.check().await;
    assert_eq!(
        problems(&findings),
        [
            "all workers of worker share one `hostname`",
            "a worker of worker that crashes stays down",
            "a deploy kills workers of worker 10s after telling them to go",
            "`container_name: one` allows one worker only",
            "image no.invalid/such:1 is not here",
            "n8n lets jobs finish for 1m (N8N_GRACEFUL_SHUTDOWN_TIMEOUT), but a worker of worker \
             is killed after 30s",
        ]
    );
    let config = ComposeConfig { service: "wrker".into(), ..project.config() };
    project.write("a.yml", "services: {api: {image: a}, worker: {image: b}}");
    let findings = project.open(&config).check().await;
    assert_eq!(problems(&findings), ["there is no service wrker; there are: api, worker"]);
    let config = ComposeConfig { docker_host: Some("unix:///no.sock".into()), ..project.config() };
    let findings = project.open(&config).check().await;
    let down = "docker at unix:///no.sock: there is no docker socket at /no.sock";
    assert!(problems(&findings).contains(&down), "{findings:#?}");
}

#[tokio::test]
async fn check_finds_another_project_directory() {
    let project = Project::new(OBEDIENT, "    stop_grace_period: 90s\n    restart: always\n");
    project.open(&project.config()).scale(&order(0, 1, &[])).await.unwrap();
    let config = ComposeConfig { project_directory: Some("/srv".into()), ..project.config() };
    let findings = project.open(&config).check().await;
    let what = problems(&findings).join("; ");
    assert!(what.ends_with("but relative paths would now start at /srv"), "{what}");
}
