//! `headcount demo` as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use headcount::demo::table::Table;
use headcount::hosts::processes::{self, Process};
use headcount_core::{Decision, Kind, Span, Timestamp};
use rustix::process::Signal;

use crate::support::wait::until;

/// A demo whose temporary folder is in `folder`.
fn demo(folder: &Path, arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_headcount"))
        .arg("demo")
        .args(arguments)
        .env("TMPDIR", folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("headcount starts")
}

/// Waits for its end; the output fits into the pipe only if somebody reads it.
async fn end(child: Child) -> Output {
    tokio::task::spawn_blocking(|| child.wait_with_output())
        .await
        .expect("waiting does not panic")
        .expect("its output can be read")
}

fn workers_in(folder: &Path) -> Vec<Process> {
    let folder = folder.to_string_lossy().into_owned();
    let is_worker = |p: &Process| {
        p.runs()
            && p.environment().iter().any(|e| {
                e.strip_prefix("HEADCOUNT_FLEET=").is_some_and(|at| at.starts_with(&folder))
            })
    };
    processes::all().into_iter().filter(is_worker).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the test's folder can be read");
    entries.map(|entry| entry.expect("an entry can be read").path()).collect()
}

fn nothing_is_left(folder: &Path) {
    assert_eq!(workers_in(folder), []);
    assert_eq!(entries(folder), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn scales_out_and_in_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = end(demo(folder.path(), &["--for", "30s", "--json"])).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut decisions = Vec::new();
    for line in text.lines() {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(value.as_object_mut().unwrap().remove("group").unwrap(), "demo");
        let decision: Decision = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(&decision).unwrap(), value, "no key more, no key less");
        decisions.push(decision);
    }
    let count = |kind| decisions.iter().filter(|d| d.kind == kind).count();
    let told: Vec<_> = decisions.iter().map(|d| (d.kind, d.current, d.reason.clone())).collect();
    assert!(count(Kind::ScaleOut) >= 1 && count(Kind::ScaleIn) >= 1, "{told:#?}");
    assert!(decisions.iter().all(|d| d.wanted <= Some(4)), "{told:#?}");
    for decision in decisions.iter().filter(|d| d.kind == Kind::ScaleIn) {
        assert_eq!(decision.victims.len(), 1, "{decision:?}");
    }
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn without_a_terminal_prints_plain_lines_and_a_summary() {
    let folder = tempfile::tempdir().unwrap();
    let output = end(demo(folder.path(), &["--for", "4s", "--max", "2"])).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.contains("0 -> 1"), "{text}");
    assert!(text.lines().last().unwrap().ends_with("nothing is left running"), "{text}");
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn signals_end_it_in_order_also_when_a_worker_hangs() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = tempfile::tempdir().unwrap();
        let child = demo(folder.path(), &["--for", "10m", "--headless"]);
        let pid = Process::find(child.id()).unwrap();
        until("a worker runs", async || !workers_in(folder.path()).is_empty()).await;
        if signal == Signal::TERM {
            let worker = workers_in(folder.path())[0];
            processes::signal(worker.pid, worker.started, Signal::STOP);
        }
        processes::signal(pid.pid, pid.started, signal);
        let output = end(child).await;
        assert!(output.status.success(), "{output:?}");
        nothing_is_left(folder.path());
    }
}

#[tokio::test]
async fn workers_do_not_outlive_a_demo_that_is_killed_and_the_next_one_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &["--json"]);
    until("a worker runs", async || !workers_in(folder.path()).is_empty()).await;
    child.kill().unwrap();
    child.wait().unwrap();
    until("the workers have ended", async || workers_in(folder.path()).is_empty()).await;
    assert_eq!(entries(folder.path()).len(), 1);
    let next = end(demo(folder.path(), &["--for", "1s", "--headless"])).await;
    assert!(next.status.success(), "{next:?}");
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn a_worker_that_is_told_to_go_finishes_its_job_first() {
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("jobs.db");
    let mut table = Table::create(&database).unwrap();
    table.put(&[3.0, 3.0], headcount::clock::now()).unwrap();
    let worker = Command::new(env!("CARGO_BIN_EXE_headcount"))
        .args(["demo-worker", "--database"])
        .arg(&database)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = Process::find(worker.id()).unwrap();
    let held = || table.unfinished().unwrap().iter().filter(|job| job.claim.is_some()).count();
    until("it holds a job", async || held() == 1).await;
    processes::signal(process.pid, process.started, Signal::TERM);
    until("it says that it goes", async || {
        table.takers().unwrap().iter().all(|taker| taker.draining)
    })
    .await;
    let output = end(worker).await;
    assert!(output.status.success(), "{output:?}");
    let left = table.unfinished().unwrap();
    assert_eq!(left.len(), 1, "it finished its job and took no other");
    assert_eq!(left[0].claim, None);
    let done = table.finished_after(Timestamp::default()).unwrap();
    assert!(done[0].ended.since(done[0].started) >= Span::from_millis(2990), "{done:?}");
}
