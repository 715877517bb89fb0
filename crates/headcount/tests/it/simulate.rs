//! `headcount simulate`: recorded jobs in, what they would have cost out.

use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::run::{Ran, headcount, run};

/// Two jobs at once, and a third much later.
const TRACE: &str = "t_seconds,service_seconds\n0,50\n0,100\n1000,50\n";
/// One worker that is always there.
const ONE: &str = "workers: { min: 1, max: 1 }\npolicy: { cpu_aware: {} }\n";
const UP_TO_TWO: &str = "workers: { min: 0, max: 2 }\npolicy: { ratio: {} }\n";
/// Each start takes 20 s exactly.
const WORLD: &str = "start_up: 20s\nstart_up_spread: 0\n";
const ALL: &str = "--trace jobs.csv --policy one.yaml --world world.yaml";

/// Runs it in a folder with the files above, and with these.
fn simulate(files: &[(&str, &str)], args: &str) -> Ran {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let usual =
        [("jobs.csv", TRACE), ("one.yaml", ONE), ("two.yaml", UP_TO_TWO), ("world.yaml", WORLD)];
    for (name, text) in usual.iter().chain(files) {
        std::fs::write(folder.path().join(name), text).expect("the folder is writable");
    }
    simulate_in(folder.path(), args)
}

fn simulate_in(folder: &Path, args: &str) -> Ran {
    let args: Vec<&str> = ["simulate"].into_iter().chain(args.split(' ')).collect();
    run(headcount(folder, &args), b"")
}

fn rows(args: &str) -> Vec<Value> {
    let ran = simulate(&[], &format!("{args} --json"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    ran.out.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

#[test]
fn a_trace_of_three_jobs_has_exact_numbers() {
    let found = rows(&format!("{ALL} --max-wait 60s --seed 7"));
    let [score] = found.as_slice() else { panic!("one policy is one line: {found:?}") };
    // The worker is ordered at 0 and ready at 20 s: the jobs start at 20, 70 and 1000 s.
    assert_eq!(
        score["waits"],
        json!({"p50": 20.0, "p95": 70.0, "p99": 70.0, "max": 70.0, "mean": 30.0})
    );
    assert_eq!(score["worker_hours"], 1050.0 / 3600.0);
    assert_eq!(score["span_hours"], 1050.0 / 3600.0);
    assert_eq!(score["work_hours"], 200.0 / 3600.0);
    // The second job waits 50 s for the worker of the first; the third has one of its own.
    assert_eq!(score["clairvoyant_worker_hours"], 240.0 / 3600.0);
    for (key, expected) in [
        ("scale_outs", 1),
        ("scale_ins", 0),
        ("reversals", 0),
        ("wasted_starts", 0),
        ("busy_kills", 0),
        ("jobs", 3),
        ("seed", 7),
    ] {
        assert_eq!(score[key], expected, "{key}");
    }
    assert_eq!(score["overload_minutes"], 0.0);
    assert_eq!((&score["policy"], &score["file"]), (&json!("cpu_aware"), &json!("one.yaml")));
}

#[test]
fn without_a_wanted_wait_nothing_is_said_of_the_future() {
    assert_eq!(rows(ALL)[0].get("clairvoyant_worker_hours"), None);
    let ran = simulate(&[], ALL);
    assert!(ran.out.contains("--max-wait 60s"), "{}", ran.out);
    assert!(!ran.out.contains("would have cost"), "{}", ran.out);
}

#[test]
fn workers_of_several_slots_are_not_compared_with_the_future() {
    // That schedule gives each worker one job at a time; two at once could cost less than it.
    let files = [("world.yaml", "slots: 2\n")];
    let args = format!("{ALL} --max-wait 60s");
    let ran = simulate(&files, &format!("{args} --json"));
    let score: Value = serde_json::from_str(&ran.out).expect("one line of JSON");
    assert_eq!((score.get("clairvoyant_worker_hours"), &score["jobs"]), (None, &json!(3)));
    let ran = simulate(&files, &args);
    assert!(ran.out.contains("several slots are not compared"), "{}", ran.out);
}

#[test]
fn the_same_seed_gives_the_same_answer_and_another_one_another() {
    let args = "--trace jobs.csv --policy two.yaml --compare all";
    let [first, again, other] = ["1", "1", "2"].map(|seed| rows(&format!("{args} --seed {seed}")));
    assert_eq!(first, again);
    assert_ne!(first[0]["waits"], other[0]["waits"]);
}

#[test]
fn each_policy_and_each_other_autoscaler_has_a_line() {
    let found = rows(&format!("{ALL} --policy two.yaml --compare all"));
    let names: Vec<&str> = found.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "cpu_aware",
            "ratio",
            "reference rule",
            "Windmill",
            "KEDA + HPA",
            "AWS target tracking",
            "Knative",
            "Nomad target-value",
            "square-root staffing",
            "exact demand",
            "Dask adaptive",
            "Judoscale",
            "Practo",
            "n8n-autoscaling",
            "fixed",
        ]
    );
    for row in &found {
        assert_eq!(row["jobs"], 3, "{row}");
        assert!(row["worker_hours"].as_f64().unwrap() >= 200.0 / 3600.0, "{row}");
    }
    // The bounds of the first policy hold for all but the second.
    let fixed = found.last().unwrap();
    assert_eq!(fixed["worker_hours"], 1050.0 / 3600.0);
    assert_eq!(fixed["waits"], found[0]["waits"]);
    assert_ne!(found[1]["worker_hours"], found[0]["worker_hours"]);
}

#[test]
fn the_bounds_of_the_world_come_before_those_of_the_policy() {
    let world = "start_up: 0s\nmin_workers: 4\nmax_workers: peak\n";
    let ran = simulate(&[("world.yaml", world)], &format!("{ALL} --compare keda --json"));
    assert_eq!(ran.code, 0, "{}", ran.err);
    for line in ran.out.lines() {
        let score: Value = serde_json::from_str(line).expect("each line is JSON");
        assert_eq!(score["waits"]["max"], 0.0, "{score}");
        assert_eq!(score["worker_hours"], 4.0 * 1050.0 / 3600.0, "{score}");
    }
}

#[test]
fn a_terminal_gets_a_table_and_a_sentence() {
    let ran = simulate(&[], &format!("{ALL} --policy two.yaml --compare fixed --max-wait 60s"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    insta::assert_snapshot!(ran.out, @r"
    3 jobs, 0.06 hours of work

    policy                p50 wait  p95 wait  p99 wait  worker-hours  vs clairvoyant  changes/h  reversals/h  wasted starts  kills
    cpu_aware (one.yaml)    20.0 s    70.0 s    70.0 s          0.29           4.38x        3.4          0.0              0      0
    ratio (two.yaml)        25.0 s    70.0 s    70.0 s          0.15           2.29x       10.0          6.7              0      0
    fixed                   20.0 s    70.0 s    70.0 s          0.29           4.38x        3.4          0.0              0      0

    knowing the future would have cost 0.07 worker-hours, with 95 of 100 jobs waiting 1m at most

    two.yaml would have cost 0.14 worker-hours less (-48 %) than one.yaml, with the same p95 wait
    ");
}

#[test]
fn a_policy_that_never_does_the_jobs_fails_and_the_others_are_told() {
    // A host that others keep busy: nothing may grow there.
    let world = "min_workers: 0\nhost: { cores: 1, background_cores: 1 }\n";
    let files = [("world.yaml", world)];
    let args = format!("{ALL} --compare fixed");
    let ran = simulate(&files, &format!("{args} --json"));
    let rows: Vec<Value> = ran.out.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((ran.code, rows.len()), (1, 2), "{}", ran.out);
    assert_eq!(rows[0]["policy"], "cpu_aware");
    let error = rows[0]["error"].as_str().unwrap();
    assert!(error.starts_with("3 jobs still wait"), "{error}");
    assert_eq!((&rows[1]["policy"], &rows[1]["jobs"]), (&json!("fixed"), &json!(3)));
    let ran = simulate(&files, &args);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("cpu_aware (one.yaml): 3 jobs still wait"), "{}", ran.out);
}

#[test]
fn a_trace_may_be_gzipped() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = std::fs::File::create(folder.path().join("jobs.csv.gz")).expect("it is writable");
    let mut gzip = std::process::Command::new("gzip")
        .stdin(std::process::Stdio::piped())
        .stdout(file)
        .spawn()
        .expect("gzip is there");
    let mut stdin = gzip.stdin.take().expect("standard input is piped");
    stdin.write_all(TRACE.as_bytes()).expect("gzip reads");
    drop(stdin);
    assert!(gzip.wait().expect("gzip ends").success());
    std::fs::write(folder.path().join("one.yaml"), ONE).expect("the folder is writable");
    let ran = simulate_in(folder.path(), "--trace jobs.csv.gz --policy one.yaml --json");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.contains("\"jobs\":3,"), "{}", ran.out);
}

#[test]
fn files_that_make_no_sense_are_told_with_their_line() {
    let header = "t_seconds,service_seconds\n";
    let late = format!("{header}5,1\n4,1\n");
    let text = format!("{header}0,1\n1,soon\n");
    for (name, content, expected) in [
        ("jobs.csv", text.as_str(), "headcount: trace jobs.csv: line 3: service_seconds is `soon`"),
        ("jobs.csv", late.as_str(), "headcount: trace jobs.csv: line 3: "),
        ("jobs.csv", header, "headcount: trace jobs.csv: has no jobs"),
        ("jobs.csv", "a,b\n", "headcount: trace jobs.csv: line 1: header is `a,b`"),
        ("one.yaml", "workers: { min: 5, max: 1 }\n", "one.yaml:1:"),
        ("one.yaml", "polcy: { cpu_aware: {} }\n", "one.yaml:1:1 polcy:"),
        ("world.yaml", "slots: 2\nstart_upp: 2s\n", "world.yaml:2:1 start_upp:"),
        ("world.yaml", "start_up: soon\n", "world.yaml:1:11 start_up:"),
        (
            "world.yaml",
            "max_workers: many\n",
            "world.yaml:1:14 max_workers: many does not fit here: expected a number of workers, or `peak`",
        ),
        ("world.yaml", "max_workers: 0\n", "world.yaml:1:14 max_workers:"),
        ("world.yaml", "host: { cores: 0 }\n", "world.yaml:1:16 host.cores:"),
    ] {
        let ran = simulate(&[(name, content)], ALL);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{content}");
        assert!(ran.err.starts_with(expected), "{content}: {}", ran.err);
    }
    for args in [
        "--trace none.csv --policy one.yaml",
        "--trace jobs.csv --policy none.yaml",
        "--trace jobs.csv --policy one.yaml --world none.yaml",
        "--trace jobs.csv --policy one.yaml --compare magic",
        "--trace jobs.csv",
    ] {
        let ran = simulate(&[], args);
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{args}: {}", ran.err);
    }
}

#[test]
fn jobs_can_be_made_up_and_clocks_do_not_matter() {
    let found = rows("--made-up bursts --policy two.yaml --world world.yaml");
    assert!(found[0]["jobs"].as_u64() > Some(500), "{found:?}");
    let late = "t_seconds,service_seconds\n1790000000,50\n1790000000,100\n1790001000,50\n";
    let ran = simulate(&[("jobs.csv", late)], &format!("{ALL} --json"));
    let score: Value = serde_json::from_str(&ran.out).expect("it is JSON");
    assert_eq!(score["worker_hours"], 1050.0 / 3600.0, "as if the first job came at 0");
    let ran = simulate(&[("jobs.csv", "t_seconds,service_seconds\n0,5\n1e9,5\n")], ALL);
    assert_eq!(
        (ran.code, ran.err.contains("line 3: has a job of more than")),
        (2, true),
        "{}",
        ran.err
    );
}
