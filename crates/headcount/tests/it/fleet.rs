//! The whole of it: a real Redis with real Bull jobs, real workers as containers and as processes,
//! and the program as a user runs it.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::support::daemon::Daemon;
use super::support::docker::Project;
use super::support::redis::{TestRedis, free_port};

/// The reference's rule with times a test can wait for, and no CPU limits: what else runs on the
/// machine must not decide.
const RULES: &str = "    workers: { min: 1, max: 4, start_up: 5s }
    policy:
      cpu_aware: { poll: 1s, cooldown: 2s, idle: 6s, scale_out_below: 101, emergency: 101 }
    brake: { off: true }
    settle: 8s
    stale_after: 10s";

/// The worker: the stand-in for n8n.
fn standin() -> (String, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bull/standin.cjs");
    let modules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../bull/node_modules");
    let modules = modules.canonicalize().expect("the package bull is missing: run ./test.sh first");
    (script.to_str().unwrap().into(), modules.to_str().unwrap().into())
}

fn process_config(redis: &TestRedis, listen: &str) -> String {
    let (script, modules) = standin();
    let port = redis.port();
    format!(
        "http: {{ listen: {listen} }}
groups:
  jobs:
{RULES}
    look: 2s
    queue: {{ bull: {{ redis: {{ url: 'redis://127.0.0.1:{port}' }} }} }}
    metrics_list: {{}}
    target:
      process:
        command: [node, {script}, worker]
        grace: 120s
        env:
          NODE_PATH: {modules}
          QUEUE_BULL_REDIS_PORT: '{port}'
          N8N_CONCURRENCY_PRODUCTION_LIMIT: '1'
          N8N_GRACEFUL_SHUTDOWN_TIMEOUT: '100'
"
    )
}

/// A project whose workers reach Redis by its socket: they have no network.
fn compose_project(redis: &TestRedis) -> Project {
    let (script, modules) = standin();
    let folder = redis.path("").display().to_string();
    let project = Project::empty();
    let file = format!(
        "services:
  worker:
    image: bb:1
    network_mode: none
    stop_grace_period: 120s
    command: [sh, -c, 'exec /usr/bin/node /standin.cjs worker $$(hostname)']
    environment:
      NODE_PATH: /modules
      STANDIN_SOCKET: /redis/sock
      N8N_CONCURRENCY_PRODUCTION_LIMIT: '1'
      N8N_GRACEFUL_SHUTDOWN_TIMEOUT: '100'
    volumes:
      - /usr:/usr:ro
      - /lib:/lib:ro
      - /lib64:/lib64:ro
      - {script}:/standin.cjs:ro
      - {modules}:/modules:ro
      - {folder}:/redis
"
    );
    project.write("a.yml", &file);
    project
}

fn compose_config(redis: &TestRedis, project: &Project) -> String {
    let (target, port) = (project.target(), redis.port());
    format!(
        "http: {{ listen: none }}
groups:
  jobs:
{RULES}
    look: 2s
    queue: {{ bull: {{ redis: {{ url: 'redis://127.0.0.1:{port}' }} }} }}
{target}        grace: 120s
"
    )
}

fn redis_with_socket() -> TestRedis {
    // The folder is not known yet; redis-server runs in it.
    TestRedis::with(&["--unixsocket", "sock", "--unixsocketperm", "777"])
}

fn active(redis: &TestRedis) -> usize {
    redis.cli(&["llen", "bull:jobs:active"]).parse().unwrap()
}

/// Jobs that waited go 1 -> max, drain, idle, and back to 1; events say why.
fn follows_the_queue(daemon: &Daemon, redis: &TestRedis) {
    daemon.until("one worker", |d| d.ready() == 1);
    redis.standin(&["fire", "60", "1500"]);
    daemon.until("four workers", |d| d.ready() == 4);
    daemon.until("one worker again", |d| d.ready() == 1 && d.steps().len() >= 7);
    assert_eq!(redis.cli(&["exists", "bull:jobs:wait", "bull:jobs:active"]), "0");
    let steps = daemon.steps();
    assert_eq!(steps, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 3), (3, 2), (2, 1)], "{steps:?}");
    for event in daemon.events().iter().skip(1) {
        let decision = &event["decision"];
        let (rule, reason) = (decision["rule"].as_str(), decision["reason"].as_str().unwrap());
        let (wanted, says) = match decision["kind"].as_str() {
            Some("scale_out") => ("backlog", "waiting, CPU"),
            _ => ("idle", "nothing waiting or active for"),
        };
        assert_eq!((rule, event["outcome"].as_str()), (Some(wanted), Some("done")), "{event}");
        assert!(reason.contains(says), "{reason}");
    }
}

/// Three of four workers hold a job; a person asks for one: only the idle one goes.
fn busy_ones_stay(daemon: &Daemon, redis: &TestRedis) {
    assert_eq!(daemon.verb(&["scale", "jobs", "4"]).code, 0);
    daemon.until("four workers", |d| d.ready() == 4);
    redis.standin(&["fire", "3", "40000"]);
    daemon.until("three busy", |d| d.status()["observation"]["fleet"]["busy"] == 3);
    let before = daemon.events().len();
    assert_eq!(daemon.verb(&["scale", "jobs", "1", "--for", "1h"]).code, 0);
    daemon.until("three workers", |d| d.ready() == 3);
    let event = daemon.events().swap_remove(before);
    assert_eq!(
        (&event["decision"]["current"], &event["decision"]["wanted"]),
        (&4.into(), &3.into())
    );
    assert_eq!(active(redis), 3, "all three jobs still run");
    let why = daemon.verb(&["explain", "jobs", "--why-not", "1"]);
    assert!(why.out.contains("none of 3 is known to be idle"), "{}", why.out);
    daemon.until("their jobs done, one worker", |d| d.ready() == 1);
    assert_eq!(redis.cli(&["exists", "bull:jobs:failed", "bull:jobs:active"]), "0");
}

#[test]
fn containers_follow_the_queue_and_busy_ones_stay() {
    let redis = redis_with_socket();
    let project = compose_project(&redis);
    let daemon = Daemon::start(&compose_config(&redis, &project), &[]);
    follows_the_queue(&daemon, &redis);
    busy_ones_stay(&daemon, &redis);
}

#[test]
fn processes_follow_the_queue_and_busy_ones_stay() {
    let redis = TestRedis::start();
    let daemon = Daemon::start(&process_config(&redis, "none"), &[]);
    follows_the_queue(&daemon, &redis);
    busy_ones_stay(&daemon, &redis);
}

#[test]
fn a_crash_in_the_middle_of_scaling_changes_nothing_and_keeps_the_cooldown() {
    let redis = TestRedis::start();
    let config = process_config(&redis, "none").replace("cooldown: 2s", "cooldown: 20s");
    let mut daemon = Daemon::start(&config, &[]);
    daemon.until("one worker", |d| d.ready() == 1);
    redis.standin(&["fire", "40", "3000"]);
    daemon.until("a second worker ordered", |d| d.steps().contains(&(1, 2)));
    daemon.kill();
    let ordered = Instant::now();
    daemon.start_again();
    while ordered.elapsed() < Duration::from_secs(15) {
        assert_eq!(daemon.steps(), [(0, 1), (1, 2)]);
        std::thread::sleep(Duration::from_millis(500));
    }
    assert_eq!(daemon.ready(), 2, "both were adopted");
    daemon.until("the third, after the cooldown", |d| d.steps().contains(&(2, 3)));
}

#[test]
fn an_outage_of_redis_removes_nothing() {
    let redis = TestRedis::start();
    let daemon =
        Daemon::start(&process_config(&redis, "none").replace("idle: 6s", "idle: 3s"), &[]);
    daemon.until("one worker", |d| d.ready() == 1);
    assert_eq!(daemon.verb(&["scale", "jobs", "4"]).code, 0);
    daemon.until("four workers", |d| d.ready() == 4);
    redis.freeze();
    daemon.until("the outage seen", |d| d.log().contains("queue is unknown"));
    assert_eq!(daemon.verb(&["resume", "jobs"]).code, 0);
    std::thread::sleep(Duration::from_secs(12));
    assert_eq!(daemon.ready(), 4, "nothing is removed while Redis is silent");
    redis.thaw();
    let back = Instant::now();
    daemon.until("a removal in the end", |d| d.steps().contains(&(4, 3)));
    assert!(back.elapsed() >= Duration::from_secs(7), "not before the settling time is over");
}

#[test]
fn of_two_daemons_one_acts() {
    let redis = TestRedis::start();
    let mut daemon = Daemon::start(&process_config(&redis, "none"), &[]);
    daemon.until("one worker", |d| d.ready() == 1);
    let rival = daemon.rival();
    rival.until("standing by", |d| d.log().contains("standing by"));
    redis.standin(&["fire", "6", "2000"]);
    daemon.until("more workers", |d| d.steps().contains(&(1, 2)));
    assert!(!rival.log().contains("scale_out"), "{}", rival.log());
    assert_eq!(daemon.end(), Some(0));
    rival.until("its turn", |d| d.log().contains("scale_in"));
}

#[test]
fn pages_reload_and_the_compatible_list() {
    let redis = TestRedis::start();
    let port = free_port();
    let config = process_config(&redis, &format!("127.0.0.1:{port}"));
    let mut daemon = Daemon::start(&config, &[]);
    daemon.until("one worker", |d| d.ready() == 1);
    daemon.until("ready", |_| Daemon::page(port, "/readyz").0 == 200);
    assert_eq!(Daemon::page(port, "/healthz").0, 200);
    let metrics = Daemon::page(port, "/metrics").1;
    for line in [
        "headcount_workers{group=\"jobs\",state=\"ready\"} 1",
        "headcount_queue_waiting{group=\"jobs\"} 0",
        "headcount_reading_known{group=\"jobs\",source=\"queue\"} 1",
        "headcount_actions_total{group=\"jobs\",kind=\"bounds\",outcome=\"done\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }

    std::fs::write(daemon.path("headcount.yaml"), config.replace("min: 1", "min: 9")).unwrap();
    daemon.until("the bad file refused", |d| d.log().contains("is refused, the old one stays"));
    assert!(daemon.log().contains("headcount.yaml:4:"), "{}", daemon.log());
    assert_eq!(Daemon::page(port, "/readyz").0, 200, "it goes on with the old one");
    std::fs::write(daemon.path("headcount.yaml"), config.replace("min: 1", "min: 2")).unwrap();
    daemon.signal(Signal::HUP);
    daemon.until("two workers", |d| d.ready() == 2);

    let length: u32 = redis.cli(&["llen", "autoscaler:metrics"]).parse().unwrap();
    assert!((1..=200).contains(&length));
    let newest: Value =
        serde_json::from_str(&redis.cli(&["lindex", "autoscaler:metrics", "0"])).unwrap();
    let keys: Vec<&String> = newest.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["active", "cpu_ema", "cpu_raw", "ts", "waiting", "workers"]);

    assert_eq!(daemon.end(), Some(0));
}

#[test]
fn the_references_environment_alone_is_enough() {
    let redis = redis_with_socket();
    let project = compose_project(&redis);
    let file = project.path("a.yml");
    let text = std::fs::read_to_string(&file).unwrap().replace("  worker:", "  n8n-worker:");
    std::fs::write(&file, text).unwrap();
    std::fs::write(project.path(".env"), "").unwrap();
    let port = redis.port().to_string();
    let env = [
        ("REDIS_HOST", "127.0.0.1"),
        ("REDIS_PORT", &port),
        ("COMPOSE_PROJECT_NAME", &project.name),
        ("COMPOSE_FILE", file.to_str().unwrap()),
        ("ENV_FILE", project.path(".env").to_str().unwrap()),
        ("MIN_WORKERS", "2"),
        ("POLL_INTERVAL_SEC", "1"),
        ("DOCKER_HOST", &project.docker.host),
        ("DOCKER_CONFIG", &project.docker.config),
    ]
    .map(|(key, value)| (key, value.to_owned()));
    let env: Vec<(&str, &str)> = env.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let daemon = Daemon::start_in(tempfile::tempdir().unwrap(), &env);
    daemon.until("two workers", |d| d.ready() == 2);
    daemon.until("snapshots", |_| redis.cli(&["llen", "autoscaler:metrics"]) != "0");
}

#[test]
fn a_container_that_dies_is_told_of_with_its_exit_code_and_last_lines() {
    let redis = TestRedis::start();
    let script = "echo earliest; echo second; echo third; echo no database; exit 3";
    let project = Project::new(script, "");
    let daemon = Daemon::start(&compose_config(&redis, &project), &[]);
    daemon.until("a death", |d| d.log().contains("no database"));
    let log = daemon.log();
    let line = log.lines().position(|line| line.contains("worker ended by itself"));
    let told = log.lines().skip(line.expect("it is told")).take(5).collect::<Vec<_>>().join("\n");
    for wanted in [&format!("{}-worker-1", project.name), "exit_code=3", "second", "third"] {
        assert!(told.contains(wanted), "{wanted}: {told}");
    }
    assert!(!log.contains("earliest"), "three lines only: {log}");
}
