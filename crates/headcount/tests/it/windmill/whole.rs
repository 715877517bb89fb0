//! The whole of it: a real PostgreSQL, workers that take jobs as Windmill's do, and the program as a
//! user runs it.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::Value;

use crate::support::daemon::{Daemon, LONG_PATIENCE};
use crate::support::docker::{OBEDIENT, Project};
use crate::support::postgres::Database;
use crate::support::windmill::Era;
use crate::support::workers::sorted;

const WORKERS: u64 = 8;

/// Windmill's tables, and one in which the workers note what they did.
async fn database() -> Database {
    let database = Database::new().await;
    Era::Latest.make(&database).await;
    database.run("CREATE TABLE done (id uuid PRIMARY KEY, worker text)").await;
    database
}

fn configuration(database: &Database, policy: &str) -> String {
    format!("http: {{ listen: none }}\ngroups:\n{}", group(database, "default", "bash", policy))
}

/// A group of processes that take the jobs of one tag.
fn group(database: &Database, name: &str, tag: &str, policy: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/windmill/worker.py");
    let (script, url) = (script.display(), database.url());
    let owner = url.replace(&format!("{}@", database.name), "postgres@");
    format!(
        "  {name}:
    workers: {{ min: 1, max: {WORKERS}, start_up: 5s }}
    policy: {policy}
    brake: {{ off: true }}
    capacity: {{ off: true }}
    look: 1s
    settle: 5s
    stale_after: 10s
    queue: {{ windmill: {{ url: '{url}', tags: [{tag}], statement_timeout: 500ms }} }}
    target:
      process:
        command:
          - sh
          - -c
          - FORCE_HOSTNAME=$HEADCOUNT_WORKER exec python3 {script} '{owner}' {name} {tag}
        grace: 300s
"
    )
}

async fn add_jobs(database: &Database, tag: &str, count: u32, seconds: f64) {
    // Due for three seconds: at once what Windmill calls waiting.
    let jobs = format!(
        "WITH job AS (INSERT INTO v2_job_queue (tag, scheduled_for, extras)
           SELECT '{tag}', now() - interval '3 s', '{{\"seconds\": {seconds}}}'
           FROM generate_series(1, {count}) RETURNING id)
         INSERT INTO v2_job_runtime (id) SELECT id FROM job"
    );
    database.run(&jobs).await;
}

/// Waits until something is so; panics with the log after a long time.
async fn until(daemon: &Daemon, what: &str, mut so: impl AsyncFnMut() -> bool) {
    let start = std::time::Instant::now();
    while !so().await {
        assert!(start.elapsed() < LONG_PATIENCE, "never {what}\n{}", daemon.log());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_starts_all_workers_at_once_and_idle_ones_go_step_by_step() {
    let database = database().await;
    let policy = "{ occupancy: { poll: 1s, cooldown_seconds: 1, full_scale_cooldown_seconds: 5,
      inc_num_workers: 2, inc_scale_num_jobs_waiting: 8, dec_scale_occupancy_rate: 60,
      inc_scale_occupancy_rate: 100, parity: windmill } }";
    let daemon = Daemon::start(&configuration(&database, policy), &[]);
    until(&daemon, "one worker", async || daemon.ready() == 1).await;
    add_jobs(&database, "bash", 1, 900.0).await;
    let running = "SELECT worker FROM v2_job_queue WHERE running AND extras->>'seconds' = '900'";
    until(&daemon, "the long job runs", async || !database.ask(running).await.is_empty()).await;
    let long = database.ask(running).await;

    add_jobs(&database, "bash", 1000, 0.01).await;
    until(&daemon, "all done", async || database.ask("SELECT count(*) FROM done").await == "1000")
        .await;
    until(&daemon, "one worker again", async || daemon.ready() == 1 && daemon.steps().len() > 5)
        .await;
    let steps = daemon.steps();
    assert_eq!(steps, [(0, 1), (1, WORKERS), (8, 6), (6, 4), (4, 2), (2, 1)], "{steps:?}");
    let events = daemon.events();
    let kind = |index: usize| events[index]["decision"]["kind"].as_str().unwrap();
    assert_eq!(kind(1), "full_scale_out");
    assert!((2..=5).all(|index| kind(index) == "scale_in"), "{events:#?}");
    let db = Connection::open(daemon.path("state/state.db")).unwrap();
    let first = db.query_row(
        "SELECT t_ms / 1000.0, wanted FROM samples WHERE waiting >= 8 ORDER BY t_ms LIMIT 1",
        [],
        |row| Ok((row.get::<_, f64>(0)?, row.get::<_, u32>(1)?)),
    );
    let at = events[1]["decision"]["t"].as_f64().unwrap();
    assert_eq!(first.unwrap(), (at, 8), "the first poll that saw the burst scaled out");
    let reason = |index: usize| events[index]["decision"]["reason"].as_str().unwrap();
    assert!(reason(1).contains("is a full backlog (8 or more): all 8 workers"), "{}", reason(1));
    assert!(reason(2).contains("below 60 %"), "{}", reason(2));

    // Its worker was there first and is the last: it was never idle.
    assert_eq!(database.ask(running).await, long, "the long job still runs");
    let left = "SELECT count(*) FROM v2_job_queue";
    assert_eq!(database.ask(left).await, "1", "no job was lost");
    let last = daemon.status()["observation"]["fleet"]["workers"].clone();
    let last: Vec<&Value> =
        last.as_array().unwrap().iter().filter(|w| w["state"] == "ready").collect();
    let instance = format!("SELECT worker_instance FROM worker_ping WHERE worker = '{long}'");
    assert_eq!((last.len(), last[0]["id"].as_str().unwrap()), (1, &*database.ask(&instance).await));
    assert_eq!(last[0]["busy"], true);
    // Those who claim to be old count from their first look on.
    let finished = daemon.status()["observation"]["queue"]["finished_total"].as_u64();
    assert!(finished.is_some_and(|n| (1..=1000).contains(&n)), "{finished:?}");
    let each = "SELECT count(DISTINCT worker) FROM done";
    assert!(database.ask(each).await.parse::<u32>().unwrap() > 4, "many took part");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_group_has_its_own_tags_and_rules() {
    let database = database().await;
    let rules = |jobs| {
        format!(
            "{{ occupancy: {{ poll: 1s, full_scale_jobs_waiting: {jobs}, inc_num_workers: 1,
      inc_scale_num_jobs_waiting: 3, inc_scale_occupancy_rate: 100, cooldown_seconds: 0 }} }}"
        )
    };
    let groups = [
        group(&database, "default", "bash", &rules(1500)),
        group(&database, "heavy", "gpu", &rules(3)),
        group(&database, "idle", "flow", &rules(3)),
    ];
    let daemon =
        Daemon::start(&format!("http: {{ listen: none }}\ngroups:\n{}", groups.concat()), &[]);
    let steps = |name: &str| -> Vec<(u64, u64)> {
        let events = daemon.events();
        let of_group = events.iter().filter(|event| event["group"] == name);
        let number = |event: &Value, key| event["decision"][key].as_u64().unwrap();
        of_group.map(|e| (number(e, "current"), number(e, "wanted"))).collect()
    };
    let workers = "SELECT count(*) FROM worker_ping";
    until(&daemon, "a worker each", async || database.ask(workers).await == "3").await;
    for tag in ["bash", "gpu"] {
        add_jobs(&database, tag, 40, 1.0).await;
    }
    until(&daemon, "all done", async || database.ask("SELECT count(*) FROM done").await == "80")
        .await;
    let default = steps("default");
    assert!(default.len() > 3, "{default:?}\n{}", daemon.log());
    assert!(default.iter().all(|(from, to)| to - from == 1), "{default:?}\n{}", daemon.log());
    assert_eq!(steps("heavy"), [(0, 1), (1, WORKERS)], "{}", daemon.log());
    assert_eq!(steps("idle"), [(0, 1)], "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_are_known_by_their_host_names() {
    let database = database().await;
    let project = Project::new(OBEDIENT, "");
    let all = configuration(
        &database,
        "{ cpu_aware: { poll: 1s, idle: 10m, scale_out_below: 101, emergency: 101 } }",
    );
    let (group, _) = all.split_once("    target:").unwrap();
    let daemon = Daemon::start(&format!("{group}{}", project.target()), &[]);
    until(&daemon, "one worker", async || daemon.ready() == 1).await;
    assert_eq!(daemon.verb(&["scale", "default", "3"]).code, 0);
    until(&daemon, "three workers", async || daemon.ready() == 3).await;
    let containers = project.containers();
    for (number, id) in containers.iter().enumerate() {
        let host = &id[..12];
        // They go on telling for an hour.
        let worker = format!(
            "INSERT INTO worker_ping (worker, worker_instance, worker_group, ping_at)
             VALUES ('wk-{number}', '{host}', 'default', now() + interval '1 h')"
        );
        database.run(&worker).await;
    }
    for number in [0, 2] {
        let job = format!("SELECT add_job('bash', '1 m', true, 'wk-{number}', '1 m', '-1 h')");
        database.run(&job).await;
    }
    let busy = "two busy and one idle";
    until(&daemon, busy, async || daemon.status()["observation"]["fleet"]["busy"] == 2).await;
    assert_eq!(daemon.verb(&["scale", "default", "1"]).code, 0);
    until(&daemon, "two workers", async || daemon.ready() == 2).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let expected = sorted([containers[0].clone(), containers[2].clone()]);
    assert_eq!(
        sorted(project.containers()),
        expected,
        "the idle one went, and no other: {}",
        daemon.log()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_postgres_removes_nothing() {
    let database = database().await;
    let policy =
        "{ cpu_aware: { poll: 1s, cooldown: 1s, idle: 2s, scale_out_below: 101, emergency: 101 } }";
    let daemon = Daemon::start(&configuration(&database, policy), &[]);
    until(&daemon, "one worker", async || daemon.ready() == 1).await;
    assert_eq!(daemon.verb(&["scale", "default", "4"]).code, 0);
    until(&daemon, "four workers", async || daemon.ready() == 4).await;
    let mut locker = database.connect().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE v2_job_runtime").await.unwrap();
    let said = "statement timeout (57014)";
    until(&daemon, "the outage seen", async || daemon.log().contains(said)).await;
    assert_eq!(daemon.verb(&["resume", "default"]).code, 0);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(daemon.ready(), 4, "nothing is removed while nobody knows\n{}", daemon.log());
    lock.rollback().await.unwrap();
    until(&daemon, "a removal in the end", async || daemon.steps().contains(&(4, 3))).await;
}
