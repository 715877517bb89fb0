//! The `process` target with real processes.

use std::path::Path;
use std::time::{Duration, Instant};

use headcount::hosts::processes;
use headcount::targets::process::{OnExit, ProcessConfig};
use headcount::targets::{Promise, TargetError, dry_run};
use headcount_core::Span;
use headcount_core::reading::WorkerState::{Broken, Draining, Ready, Starting};
use rustix::process::Signal;

use crate::support::wait::until;
use crate::support::workers::{WorkersFolder, group_of, ids, open, order, processes_of, shell};

/// Does not end by SIGTERM; says when it is ready to ignore it.
const STUBBORN: &str = "trap '' TERM; touch ready-$HEADCOUNT_WORKER; while :; do sleep 0.1; done";

async fn none_left(folder: &Path) {
    until("every process of the fleet has ended", async || processes_of(folder).is_empty()).await;
}

async fn ready(folder: &Path, id: &str) {
    let file = folder.join(format!("ready-{id}"));
    until("the worker has set its trap", async || file.exists()).await;
}

#[tokio::test]
async fn starts_as_many_as_wanted_and_stops_exactly_the_chosen_ones() {
    let folder = WorkersFolder::new();
    let mut target = open(&shell("exec sleep 1000"), folder.path());
    assert_eq!(target.promise(), Promise::ExactVictims);
    assert_eq!(target.status().await.unwrap().reading.workers, []);

    let scaled = target.scale(&order(0, 3, &[])).await.unwrap();
    assert_eq!(scaled.started.len(), 3);
    let again = target.scale(&order(0, 3, &[])).await.unwrap();
    assert_eq!(again.started, [""; 0], "the same order again changes nothing");
    let seen = target.status().await.unwrap();
    assert_eq!((seen.reading.ready, seen.reading.busy, seen.reading.died), (3, None, 0));
    for worker in &seen.reading.workers {
        let leader = processes::Process::find(group_of(&seen, &worker.id)).unwrap();
        assert_eq!(leader.group, leader.pid, "each worker leads its own process group");
        // The shell becomes another program: for a moment neither's environment can be read.
        until("its environment is set", async || {
            let own = format!("HEADCOUNT_WORKER={}", worker.id);
            [own.as_str(), "HEADCOUNT_GROUP=g"]
                .iter()
                .all(|entry| leader.environment().iter().any(|e| e == entry))
        })
        .await;
    }

    let all = ids(&seen, Ready);
    let in_order = order(3, 2, &[all[1], all[2]]);
    let scaled = target.scale(&in_order).await.unwrap();
    assert_eq!(scaled.removed, [all[1]], "the first victim, and no more than from - to");
    let again = target.scale(&in_order).await.unwrap();
    assert_eq!(again.removed, [""; 0], "the same order again changes nothing");
    until("the chosen one is gone", async || {
        target.status().await.unwrap().reading.workers.len() == 2
    })
    .await;
    let left = target.status().await.unwrap();
    assert_eq!(ids(&left, Ready), [all[0], all[2]]);
    assert_eq!(left.reading.died, 0, "a worker that was told to go did not die");
    let late = target.scale(&in_order).await.unwrap();
    assert_eq!(late.removed, [""; 0], "also when the chosen one is gone");
}

#[tokio::test]
async fn an_order_from_a_wrong_picture_is_a_contradiction_and_no_success() {
    let folder = WorkersFolder::new();
    let mut target = open(&shell("exec sleep 1000"), folder.path());
    target.scale(&order(0, 2, &[])).await.unwrap();
    assert!(target.scale(&order(0, 2, &[])).await.is_ok(), "the same order once more");
    let seen = target.status().await.unwrap();
    let all = ids(&seen, Ready);
    for wrong in [order(0, 2, &[]), order(0, 1, &[]), order(3, 2, &[all[0]])] {
        let said = target.scale(&wrong).await.unwrap_err();
        let expected = TargetError::Contradiction { there: 2, decided_for: wrong.from };
        assert_eq!(said, expected);
    }
    assert_eq!(target.status().await.unwrap().reading.ready, 2);
}

#[tokio::test]
async fn a_state_folder_by_another_name_is_the_same_fleet() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("real");
    std::fs::create_dir(&real).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let scales = |path: &Path| open(&shell("exec sleep 1000"), path).scales();
    assert_eq!(scales(&link), scales(&real));
    assert_ne!(scales(folder.path()), scales(&real));
}

#[tokio::test]
async fn refuses_a_scale_in_without_known_victims() {
    let folder = WorkersFolder::new();
    let mut target = open(&shell("exec sleep 1000"), folder.path());
    target.scale(&order(0, 2, &[])).await.unwrap();
    let seen = target.status().await.unwrap();
    let first = ids(&seen, Ready)[0];
    for victims in [vec![], vec!["g-nobody"], vec![first, "g-nobody"]] {
        let refused = target.scale(&order(2, 1, &victims)).await;
        assert!(matches!(refused, Err(TargetError::Failed { .. })), "{refused:?}");
    }
    assert_eq!(target.status().await.unwrap().reading.ready, 2);
}

#[tokio::test]
async fn a_worker_that_ignores_the_signal_is_killed_after_its_grace_and_not_before() {
    let folder = WorkersFolder::new();
    let grace = Span::from_secs(2);
    let mut target = open(&ProcessConfig { grace, ..shell(STUBBORN) }, folder.path());
    let id = target.scale(&order(0, 1, &[])).await.unwrap().started.remove(0);
    ready(folder.path(), &id).await;

    let told = Instant::now();
    target.scale(&order(1, 0, &[&id])).await.unwrap();
    let seen = target.status().await.unwrap();
    assert_eq!(ids(&seen, Draining), [id.as_str()]);
    assert_eq!(seen.reading.capacity(), 0, "a worker that goes is no capacity");
    none_left(folder.path()).await;
    assert!(told.elapsed() >= Duration::from_secs(2), "killed after {:?}", told.elapsed());
    until("it is off the list", async || target.status().await.unwrap().reading.workers.is_empty())
        .await;
}

#[tokio::test]
async fn what_a_worker_started_does_not_outlive_it() {
    let folder = WorkersFolder::new();
    // The child ignores SIGTERM; the worker itself ends at once when it gets it.
    let script = format!("sh -c \"{STUBBORN}\" & exec sleep 1000");
    let mut target = open(&shell(&script), folder.path());
    let id = target.scale(&order(0, 1, &[])).await.unwrap().started.remove(0);
    ready(folder.path(), &id).await;
    assert!(processes_of(folder.path()).len() >= 2);
    target.scale(&order(1, 0, &[&id])).await.unwrap();
    none_left(folder.path()).await;
}

#[tokio::test]
async fn a_worker_that_ends_at_once_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut target = open(&shell("echo no database; exit 3"), folder.path());
    target.scale(&order(0, 2, &[])).await.unwrap();
    let mut died = 0;
    until("both deaths are counted", async || {
        died += target.status().await.unwrap().reading.died;
        died >= 2
    })
    .await;
    let seen = target.status().await.unwrap();
    assert_eq!((died, seen.reading.died, seen.reading.capacity()), (2, 0, 0));
    let logs = std::fs::read_dir(folder.path().join("state/g/logs")).unwrap();
    let texts: Vec<_> = logs.map(|l| std::fs::read_to_string(l.unwrap().path()).unwrap()).collect();
    assert_eq!(texts, ["no database\n", "no database\n"]);
}

#[tokio::test]
async fn says_what_is_wrong_with_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let with = |command: &str, directory: &str| ProcessConfig {
        command: vec![command.into()],
        directory: Some(directory.into()),
        ..ProcessConfig::default()
    };
    let table = [
        (with("no-such-program", "."), "start of no-such-program: no-such-program is not in PATH"),
        (with("sh", "no-such-folder"), "no-such-folder is no folder"),
    ];
    for (config, said) in table {
        let mut target = open(&config, folder.path());
        let error = target.scale(&order(0, 1, &[])).await.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
        let findings = target.check().await;
        assert!(findings.iter().any(|f| f.fix.is_some()), "{findings:?}");
    }
    assert!(
        open(&with("sh", "."), folder.path()).check().await.iter().all(|f| { f.fix.is_none() })
    );
}

#[tokio::test]
async fn a_new_worker_is_starting_for_as_long_as_it_is_said_to() {
    let folder = WorkersFolder::new();
    let ready_after = Span::from_secs(3600);
    let config = ProcessConfig { ready_after, ..shell("exec sleep 1000") };
    let mut target = open(&config, folder.path());
    target.scale(&order(0, 1, &[])).await.unwrap();
    let seen = target.status().await.unwrap();
    assert_eq!(ids(&seen, Starting).len(), 1);
    // Somebody suspends it: it takes no jobs, and is not counted as if it did.
    let pid = group_of(&seen, ids(&seen, Starting)[0]);
    processes::signal_group(pid, Signal::STOP);
    until("it is broken", async || ids(&target.status().await.unwrap(), Broken).len() == 1).await;
}

/// Runs `work` in a runtime of its own that then stops dead, as by `kill -9`: nothing is closed.
fn in_a_run_that_dies<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime can be made");
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

/// Workers that will not go, for which a minute's grace is left.
fn patient() -> ProcessConfig {
    ProcessConfig { grace: Span::from_secs(60), ..shell(STUBBORN) }
}

/// A run of [`patient`] that dies while its only worker is told to go: the worker's id.
fn dies_during_a_stop(folder: &Path) -> String {
    in_a_run_that_dies(async {
        let mut target = open(&patient(), folder);
        let id = target.scale(&order(0, 1, &[])).await.unwrap().started.remove(0);
        ready(folder, &id).await;
        target.scale(&order(1, 0, &[&id])).await.unwrap();
        id
    })
}

#[test]
fn the_next_run_takes_over_workers_and_stops_that_were_under_way() {
    let folder = WorkersFolder::new();
    let path = folder.path();
    let config = ProcessConfig { grace: Span::from_secs(4), ..shell(STUBBORN) };
    in_a_run_that_dies(async {
        let mut target = open(&config, path);
        let started = target.scale(&order(0, 3, &[])).await.unwrap().started;
        for id in &started {
            ready(path, id).await;
        }
        target.scale(&order(3, 2, &[&started[0]])).await.unwrap();
    });
    assert!(processes_of(path).len() >= 3, "the workers live on");
    in_a_run_that_dies(async {
        let mut target = open(&config, path);
        let seen = target.status().await.unwrap();
        assert_eq!((seen.reading.ready, seen.reading.draining, seen.reading.died), (2, 1, 0));
        let (going, staying) = (ids(&seen, Draining)[0], ids(&seen, Ready));
        let pid = group_of(&seen, going);
        until("the stop that was under way is carried out", async || {
            processes::members(pid).is_empty()
        })
        .await;
        until("the list is right", async || {
            ids(&target.status().await.unwrap(), Ready) == staying
                && target.status().await.unwrap().reading.draining == 0
        })
        .await;
    });
}

#[test]
fn the_grace_of_a_stop_under_way_is_kept_whatever_the_wall_clock_says() {
    let folder = WorkersFolder::new();
    let id = dies_during_a_stop(folder.path());
    // As if the clock had been years behind when the worker was told to go.
    let file = folder.path().join(format!("state/g/workers/{id}.json"));
    let text = std::fs::read(&file).unwrap();
    let mut record: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert!(record["draining_since"].is_number());
    record["draining_since"] = 1.0.into();
    std::fs::write(&file, record.to_string()).unwrap();
    in_a_run_that_dies(async {
        let mut target = open(&patient(), folder.path());
        for _ in 0..10 {
            assert_eq!(target.status().await.unwrap().reading.draining, 1, "not killed");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

#[test]
fn a_dry_run_looks_at_an_overdue_stop_but_leaves_it_to_a_live_one() {
    let folder = WorkersFolder::new();
    dies_during_a_stop(folder.path());
    // With less grace the stop is overdue now.
    let impatient = ProcessConfig { grace: Span::ZERO, ..patient() };
    in_a_run_that_dies(async {
        let mut dry = dry_run::over(open(&impatient, folder.path()));
        for _ in 0..10 {
            assert_eq!(dry.status().await.unwrap().reading.draining, 1);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let note = dry.scale(&order(0, 2, &[])).await.unwrap().note;
        assert_eq!(note, "dry run: would start 2, from 0 to 2");
        dry.close().await;
        assert_eq!(dry.status().await.unwrap().reading.workers.len(), 1);
        let mut live = open(&impatient, folder.path());
        live.status().await.unwrap();
        none_left(folder.path()).await;
        until("the dry run sees it", async || {
            dry.status().await.unwrap().reading.workers.is_empty()
        })
        .await;
    });
}

#[test]
fn a_worker_whose_record_is_damaged_is_not_told_twice() {
    let folder = WorkersFolder::new();
    let path = folder.path();
    let id = dies_during_a_stop(path);
    let damage = |id: &str| {
        std::fs::write(path.join(format!("state/g/workers/{id}.json")), "{\"id\":").unwrap();
    };
    damage(&id);
    in_a_run_that_dies(async {
        let mut target = open(&patient(), path);
        let seen = target.status().await.unwrap();
        let id = seen.reading.workers[0].id.clone();
        let error = target.scale(&order(1, 0, &[&id])).await.unwrap_err();
        assert!(matches!(error, TargetError::NotNow { .. }), "{error}");
        let impatient = ProcessConfig { grace: Span::ZERO, ..patient() };
        damage(&id);
        let removed = open(&impatient, path).scale(&order(1, 0, &[&id])).await.unwrap().removed;
        assert_eq!(removed, [id], "its grace is over");
    });
}

#[test]
fn workers_are_found_by_their_environment_when_the_records_are_lost() {
    let folder = WorkersFolder::new();
    in_a_run_that_dies(async {
        let mut target = open(&shell("sleep 1000 & exec sleep 1000"), folder.path());
        target.scale(&order(0, 2, &[])).await.unwrap();
        std::fs::remove_dir_all(folder.path().join("state/g/workers")).unwrap();
    });
    in_a_run_that_dies(async {
        let mut target = open(&shell("exec sleep 1000"), folder.path());
        let seen = target.status().await.unwrap();
        assert_eq!(seen.reading.ready, 2);
        let age = headcount::clock::now().since(seen.reading.workers[0].started_at.unwrap());
        assert!(age < Span::from_secs(60) && age > Span::from_secs(-2), "{age:#}");
        // Another folder is another fleet.
        let elsewhere = tempfile::tempdir().unwrap();
        let mut other = open(&shell("exec sleep 1000"), elsewhere.path());
        assert_eq!(other.status().await.unwrap().reading.workers, []);
    });
}

#[tokio::test]
async fn a_process_that_got_a_workers_number_later_is_left_alone() {
    let folder = WorkersFolder::new();
    let mut stranger = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let seen = processes::Process::find(stranger.id()).unwrap();
    let records = folder.path().join("state/g/workers");
    std::fs::create_dir_all(&records).unwrap();
    for (id, started, boot_id) in [
        ("g-00000001", seen.started + 1, processes::boot_id()),
        ("g-00000002", seen.started, "an earlier boot".to_string()),
    ] {
        let record = serde_json::json!({
            "id": id, "pid": seen.pid, "started": started, "boot_id": boot_id,
            "started_at": 1.0, "draining_since": 2.0,
        });
        std::fs::write(records.join(format!("{id}.json")), record.to_string()).unwrap();
    }
    let config = ProcessConfig { grace: Span::ZERO, ..shell("exec sleep 1000") };
    let mut target = open(&config, folder.path());
    until("no worker is listed", async || {
        target.status().await.unwrap().reading.workers.is_empty()
    })
    .await;
    assert!(stranger.try_wait().unwrap().is_none(), "the stranger runs");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn on_exit_says_what_becomes_of_the_workers() {
    for (on_exit, left) in [(OnExit::Keep, 2), (OnExit::Stop, 0)] {
        let folder = WorkersFolder::new();
        let config = ProcessConfig { on_exit, ..shell("exec sleep 1000") };
        let mut target = open(&config, folder.path());
        target.scale(&order(0, 2, &[])).await.unwrap();
        target.close().await;
        drop(target);
        // A shell that is just about to become `sleep` has no name for a moment.
        until("as many are left", async || processes_of(folder.path()).len() == left).await;
    }
}

#[tokio::test]
async fn works_on_when_nothing_can_be_written() {
    let folder = WorkersFolder::new();
    // A file where the state folder should be: root ignores file modes, but not this.
    std::fs::create_dir_all(folder.path().join("state")).unwrap();
    std::fs::write(folder.path().join("state/g"), "in the way").unwrap();
    let mut target = open(&shell("exec sleep 1000"), folder.path());
    let id = target.scale(&order(0, 2, &[])).await.unwrap().started.remove(0);
    target.scale(&order(2, 1, &[&id])).await.unwrap();
    until("one is left", async || {
        let seen = target.status().await.unwrap();
        (seen.reading.ready, seen.reading.draining) == (1, 0)
    })
    .await;
}
