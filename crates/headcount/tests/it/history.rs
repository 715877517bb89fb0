//! `headcount simulate --history`: a daemon watches real Bull jobs, and other rules are tried on them.

use rusqlite::Connection;
use serde_json::Value;

use crate::support::daemon::Daemon;
use crate::support::redis::TestRedis;
use crate::support::run::Ran;

/// Jobs that run.
const JOBS: u64 = 12;
/// How long each takes, ms: much shorter than the time between two looks.
const TOOK_MS: &str = "200";

fn config(redis: &TestRedis, more: &str) -> String {
    let port = redis.port();
    let bull = format!("queue: {{ bull: {{ redis: {{ url: 'redis://127.0.0.1:{port}' }} }} }}");
    format!(
        "http: {{ listen: none }}
groups:
  jobs:
    workers: {{ min: 1, max: 3, start_up: 8s }}
    policy: {{ slo: {{ max_wait: 30s }} }}
    look: 5s
    {bull}
    target: {{ dry_run: {{ workers: 1 }} }}
{more}"
    )
}

fn rows(ran: &Ran) -> Vec<Value> {
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn history(daemon: &Daemon) -> Option<Value> {
    let ran = daemon.verb(&["simulate", "--history", "jobs", "--json"]);
    (ran.code == 0).then(|| rows(&ran).remove(0))
}

#[tokio::test]
async fn other_rules_are_tried_on_what_a_daemon_saw() {
    let redis = TestRedis::start();
    let daemon = Daemon::start(&config(&redis, ""), &[]);
    daemon.until("anything recorded", |daemon| daemon.status() != Value::Null);
    let nothing = daemon.verb(&["simulate", "--history", "jobs"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (2, ""));
    let what =
        "headcount: --history jobs: no job ran while it was recorded; come back when some did";
    assert_eq!(nothing.err.trim(), what);

    let _worker = redis.worker("0123456789ab", &[]).await;
    redis.standin(&["fire", &JOBS.to_string(), TOOK_MS]);
    daemon.until("all jobs in the history", |daemon| {
        history(daemon).is_some_and(|row| row["history"]["exact"] == JOBS)
    });
    let row = history(&daemon).unwrap();
    let number =
        |row: &Value, key: &str| row[key].as_f64().unwrap_or_else(|| panic!("{key}: {row}"));
    assert_eq!((&row["file"], &row["policy"]), (&"now".into(), &"slo".into()));
    assert_eq!((&row["jobs"], &row["max_wait_s"]), (&JOBS.into(), &30.0.into()));
    assert_eq!((&row["history"]["gaps"], &row["history"]["counted"]), (&0.into(), &true.into()));
    let each = number(&row, "work_hours") * 3600.0 / JOBS as f64;
    assert!((0.19..2.0).contains(&each), "a job took {each} s");

    // What if there were always three?
    let new = "workers: { min: 3, max: 3 }\npolicy: { slo: { max_wait: 30s } }\n";
    std::fs::write(daemon.path("new.yaml"), new).unwrap();
    let what_if = ["simulate", "--history", "jobs", "--policy", "now", "--policy", "new.yaml"];
    let found = rows(&daemon.verb(&[&what_if[..], &["--json"]].concat()));
    assert_eq!(found[0]["worker_hours"], row["worker_hours"], "the same again");
    assert!(number(&found[1], "worker_hours") > number(&found[0], "worker_hours"));
    let ran = daemon.verb(&what_if);
    let lines: Vec<&str> = ran.out.trim().lines().collect();
    assert!(lines[0].starts_with("jobs: "), "{}", ran.out);
    assert!(
        lines[0].ends_with("of history, 100 % of it known; jobs seen one by one"),
        "{}",
        lines[0]
    );
    assert!(ran.out.contains("\nslo (now) "), "{}", ran.out);
    let last = lines.last().unwrap();
    assert!(last.starts_with("new.yaml would have cost ") && last.contains("now"), "{last}");
    // What a world file says comes first.
    std::fs::write(daemon.path("world.yaml"), "minimum_billing: 1h\n").unwrap();
    let with = daemon.verb(&[&what_if[..], &["--json", "--world", "world.yaml"]].concat());
    assert!(number(&rows(&with)[0], "worker_hours") >= 1.0);

    // As if the source had told nothing of single jobs.
    let db = Connection::open(daemon.path("state/state.db")).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    assert_eq!(db.execute("DELETE FROM jobs", []).unwrap() as u64, JOBS);
    let row = history(&daemon).unwrap();
    assert_eq!((&row["jobs"], &row["history"]["exact"]), (&JOBS.into(), &0.into()));
}

#[test]
fn a_history_that_is_not_there_says_what_to_do() {
    let redis = TestRedis::start();
    let file = config(&redis, "");
    let more = config(
        &redis,
        "  new:\n    queue: { demo: { database: x } }\n    target: { dry_run: { workers: 1 } }\n",
    );
    let mut daemon = Daemon::start(&file, &[]);
    daemon.until("anything recorded", |daemon| daemon.status() != Value::Null);
    assert_eq!(daemon.end(), Some(0));
    std::fs::write(daemon.path("more.yaml"), more).unwrap();
    std::fs::write(daemon.path("rules.yaml"), "policy: { ratio: {} }\n").unwrap();
    std::fs::write(daemon.path("jobs.csv"), "t_seconds,service_seconds\n1,2\n").unwrap();
    for (args, expected) in [
        ("--history x", "there is no group `x`; there are: jobs"),
        ("--history new -c more.yaml", "nothing was recorded of it yet; let `headcount run` look"),
        ("--history jobs --since 7d", "--history jobs: no job ran in that time; leave out --since"),
        ("--history jobs --since soon", "write a duration such as 90s, 15m, `1h 30m` or 7d"),
        ("--history jobs --trace jobs.csv", "cannot be used with"),
        ("--trace jobs.csv --policy now", "--policy now: are the rules of the group of --history"),
        ("--trace jobs.csv --since 7d --policy rules.yaml", "cannot be used with"),
        ("--policy rules.yaml", "--trace"),
        ("--since 7d --policy rules.yaml", "--trace"),
        ("--trace jobs.csv", "--policy"),
    ] {
        let args: Vec<&str> = ["simulate"].into_iter().chain(args.split(' ')).collect();
        let ran = daemon.verb(&args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(expected), "{args:?}: {}", ran.err);
    }
    let ran = daemon.verb(&["simulate", "--history", "jobs", "--state-dir", "elsewhere"]);
    assert_eq!(
        (ran.code, ran.err.contains("there is no elsewhere/state.db")),
        (1, true),
        "{}",
        ran.err
    );
}
