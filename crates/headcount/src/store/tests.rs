//! The store on real files: kept, lost, full, damaged.

use std::process::Command;

use headcount_core::alert::{AlertName, AlertNews};
use headcount_core::state::Fixed;
use headcount_core::{Kind, Missing, Reading, Rule, Silence};

use super::*;

fn observation(t: i64) -> Observation {
    let missing = || Missing { why: Silence::Refused, detail: String::new() };
    Observation {
        t: Timestamp::from_millis(t),
        queue: Reading::Missing(missing()),
        host: Reading::Missing(missing()),
        fleet: Reading::Missing(missing()),
        budget: None,
    }
}

fn decision(t: i64, from: u32, to: u32) -> Decision {
    Decision {
        t: Timestamp::from_millis(t),
        current: Some(from),
        policy_wanted: Some(to),
        wanted: Some(to),
        kind: if from == to { Kind::Hold } else { Kind::ScaleOut },
        rule: Rule::Backlog,
        reason: "because".into(),
        trail: Vec::new(),
        victims: Vec::new(),
        look_again: None,
    }
}

fn state(t: i64) -> State {
    State { seen_at: Some(Timestamp::from_millis(t)), ..State::default() }
}

/// Now, so that nothing counts as too old to be kept.
fn today() -> i64 {
    clock::now().as_millis()
}

#[test]
fn a_change_is_on_disk_before_it_is_acted_on() {
    let folder = tempfile::tempdir().unwrap();
    let t = today();
    let store = Store::open(folder.path(), 30);
    store.record("g", false, true, &observation(t), &decision(t, 1, 2), &state(t));
    // A second process, as after a kill.
    let other = Store::open_existing(folder.path()).unwrap();
    let events = other.events(Some("g"), None, 10);
    assert_eq!((events.len(), events[0].outcome), (1, None));
    assert_eq!(other.load("g").unwrap(), state(t));
    store.settle("g", Timestamp::from_millis(t), Outcome::Failed, "no room", &state(t + 1));
    let events = other.events(None, None, 10);
    assert_eq!((events[0].outcome, events[0].note.as_str()), (Some(Outcome::Failed), "no room"));
    assert_eq!(other.load("g").unwrap(), state(t + 1));
}

#[test]
fn an_event_that_is_no_news_is_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let t = today();
    let store = Store::open(folder.path(), 30);
    let at = |after: i64| Timestamp::from_millis(t + after);
    for after in [0, 1] {
        store.record("g", false, true, &observation(t), &decision(t + after, 1, 2), &state(t));
        store.record("h", false, true, &observation(t), &decision(t + after, 1, 2), &state(t));
    }
    store.settle("g", at(0), Outcome::NotNow, "a rollout", &state(t));
    // What has an outcome stays.
    store.withdraw("g", at(0), &state(t));
    store.withdraw("g", at(1), &state(t + 1));
    let other = Store::open_existing(folder.path()).unwrap();
    let events = other.events(Some("g"), None, 10);
    assert_eq!((events.len(), events[0].t, events[0].outcome), (1, at(0), Some(Outcome::NotNow)));
    assert_eq!(other.load("g").unwrap(), state(t + 1));
    assert_eq!(other.events(Some("h"), None, 10).len(), 2);
}

#[test]
fn an_alert_is_an_event_apart_from_the_change_of_the_same_moment() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 30);
    let (t, at) = (today(), Timestamp::from_millis(today()));
    let alert = Alert {
        name: AlertName::WaitingOver,
        state: AlertNews::Raised,
        t: at,
        since: at,
        count: Some(9),
        limit: Some(3),
    };
    let event = |t, alert| Event {
        t: Timestamp::from_millis(t),
        group: "g".into(),
        dry: false,
        outcome: None,
        note: String::new(),
        observation: observation(t),
        decision: decision(t, 1, 2),
        alert,
    };
    for t in [t, t + 1] {
        store.record("g", false, true, &observation(t), &decision(t, 1, 2), &state(t));
        store.record_event(event(t, Some(alert.clone())));
    }
    store.settle("g", Timestamp::from_millis(t), Outcome::Done, "done", &state(t));
    store.withdraw("g", Timestamp::from_millis(t + 1), &state(t + 1));
    let told = Some(alert);
    let done = Event { outcome: Some(Outcome::Done), note: "done".into(), ..event(t, None) };
    let kept = [event(t + 1, told.clone()), event(t, told), done.clone()];
    assert_eq!(store.events(Some("g"), None, 10), kept);
    assert_eq!(store.changes(Some("g"), None, 10), [done]);
    assert_eq!(kept.map(|event| event.kind()), ["alert", "alert", "scale_out"]);
}

#[test]
fn what_people_ask_for_crosses_processes() {
    let folder = tempfile::tempdir().unwrap();
    let daemon = Store::open(folder.path(), 30);
    let person = Store::open_existing(folder.path()).unwrap();
    let asked = Controls { fixed: Some(Fixed { workers: 3, until: None }), ..Controls::default() };
    person.set_controls("g", &asked).unwrap();
    assert_eq!(daemon.controls("g"), asked);
}

#[test]
fn what_a_clock_recorded_before_it_was_set_back_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 30);
    let (t, mut state) = (today(), State::default());
    let mut look = |at: i64| {
        state.seen_at = Some(Timestamp::from_millis(at));
        store.record("g", false, false, &observation(at), &decision(at, 1, 1), &state);
        store.record("other", false, false, &observation(t), &decision(t, 1, 1), &state);
        store.flush();
    };
    for later in [0, 60_000, 120_000, 30_000, 90_000] {
        look(t + later);
    }
    let looks = store.looks("g", None).unwrap();
    let times: Vec<i64> = looks.iter().map(|look| look.t.as_millis() - t).collect();
    assert_eq!(times, [0, 30_000, 90_000]);
}

#[test]
fn rows_older_than_wanted_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 1);
    let (old, new) = (today() - 2 * 86_400_000, today());
    store.record("g", false, true, &observation(old), &decision(old, 1, 2), &state(old));
    drop(store);
    let store = Store::open(folder.path(), 1);
    store.record("g", false, true, &observation(new), &decision(new, 2, 3), &state(new));
    let kept: Vec<i64> = store.events(None, None, 10).iter().map(|e| e.t.as_millis()).collect();
    assert_eq!(kept, [new]);
}

#[test]
fn events_are_kept_for_30_days_unless_configured() {
    let folder = tempfile::tempdir().unwrap();
    let (day, keep) = (86_400_000, crate::limits::KEEP_DAYS);
    let days = [31, 30, 29, 1, 0];
    for ago in days {
        // Cleaned at the first write of each.
        let store = Store::open(folder.path(), keep);
        let t = today() - ago * day + 60_000;
        store.record("g", false, true, &observation(t), &decision(t, 1, 2), &state(t));
    }
    let events = Store::open_existing(folder.path()).unwrap().events(None, None, 10);
    let ago: Vec<i64> = events.iter().map(|e| (today() + 60_000 - e.t.as_millis()) / day).collect();
    assert_eq!(ago, [0, 1, 29, 30]);
}

#[test]
fn a_damaged_file_is_told_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let garbage = b"this is not a database, but somebody may want it back".repeat(50);
    std::fs::write(&path, &garbage).unwrap();
    let store = Store::open(folder.path(), 30);
    store.record("g", false, true, &observation(1), &decision(1, 1, 2), &state(1));
    let trouble = store.trouble().unwrap();
    assert!(trouble.contains("not a database"), "{trouble}");
    assert_eq!(std::fs::read(&path).unwrap(), garbage);
    assert_eq!(store.load("g").unwrap(), state(1), "kept in memory meanwhile");
}

#[test]
fn a_newer_layout_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(Store::open(folder.path(), 30));
    let db = Connection::open(folder.path().join("state.db")).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let refused = Store::open_existing(folder.path()).err().unwrap().to_string();
    assert!(refused.contains("newer headcount"), "{refused}");
}

#[test]
fn an_older_layout_is_brought_up_to_date_with_all_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let t = today();
    let store = Store::open(folder.path(), 30);
    store.record("g", false, true, &observation(t), &decision(t, 1, 2), &state(t));
    drop(store);
    // As the first layout was: without jobs, usage and alerts.
    let db = Connection::open(&path).unwrap();
    db.execute_batch(
        "DROP TABLE jobs; DROP TABLE usage; ALTER TABLE events DROP COLUMN alert;
                      PRAGMA user_version = 1",
    )
    .unwrap();
    drop(db);
    let store = Store::open_existing(folder.path()).unwrap();
    assert_eq!(store.load("g").unwrap(), state(t));
    assert_eq!((store.events(None, None, 10).len(), store.looks("g", None).unwrap().len()), (1, 1));
    let job = finished(t);
    store.record_jobs("g", vec![job]);
    assert_eq!(store.jobs("g", None).unwrap(), [job]);
    let online = Online { workers: 3, memory: 2 << 30, dry: false };
    store.record_usage("g", Timestamp::from_millis(t), online, Span::ZERO);
    let minute = minute_of(Timestamp::from_millis(t));
    let within = usize::try_from(minute.rem_euclid(HOUR)).unwrap();
    assert_eq!(store.usage(minute, minute + 1).unwrap()[0].minutes.get(within), Some(3));
}

#[test]
fn usage_is_kept_for_longer_than_events_but_not_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let online = Online { workers: 3, memory: 2 << 30, dry: false };
    let days_ago = |days: i64| Timestamp::from_millis(today() - days * 86_400_000);
    let record = |store: &Store, days: &[i64]| {
        for days in days {
            store.record_usage("g", days_ago(*days), online, Span::ZERO);
        }
        store.flush();
    };
    record(&Store::open(folder.path(), 30), &[800, 750, 31, 0]);
    let store = Store::open(folder.path(), 30);
    record(&store, &[0]);
    let hour = |days| minute_of(days_ago(days)).div_euclid(HOUR);
    let kept: Vec<i64> = store.usage(0, i64::MAX).unwrap().iter().map(|h| h.hour).collect();
    assert_eq!(kept, [hour(750), hour(31), hour(0)]);
}

fn finished(ended: i64) -> Finished {
    let at = |before: i64| Timestamp::from_millis(ended - before);
    Finished { came: at(900), started: at(500), ended: at(0) }
}

#[test]
fn the_past_is_read_by_group_and_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 30);
    let t = today();
    for (group, t) in [("g", t), ("g", t + 10_000), ("h", t)] {
        store.record(group, false, false, &observation(t), &decision(t, 1, 1), &state(t));
        store.record_jobs(group, vec![finished(t)]);
    }
    let since = Some(Timestamp::from_millis(t + 1));
    for (group, since, expected) in
        [("g", None, 2), ("g", since, 1), ("h", None, 1), ("none", None, 0)]
    {
        assert_eq!(store.looks(group, since).unwrap().len(), expected, "{group} {since:?}");
        assert_eq!(store.jobs(group, since).unwrap().len(), expected, "{group} {since:?}");
    }
}

#[test]
fn no_more_rows_of_a_group_are_kept_than_are_good_for_anybody() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 30);
    let t = today();
    for group in ["g", "h"] {
        store.record(group, false, false, &observation(t), &decision(t, 1, 1), &state(t));
        let jobs = if group == "g" { 10 } else { 3 };
        store.record_jobs(group, (0..jobs).map(|n| finished(t + n)).collect());
    }
    store.flush();
    let shorten = |oldest, most| {
        let inner = store.lock();
        let db = inner.db.as_ref().unwrap();
        clean::shorten(db, "jobs", "ended_ms", oldest, most).unwrap();
        drop(inner);
        ["g", "h"].map(|group| store.jobs(group, None).unwrap().len())
    };
    assert_eq!(shorten(0, 10), [10, 3]);
    assert_eq!(shorten(0, 4), [4, 3]);
    assert_eq!(shorten(t + 8, 4), [2, 0]);
}

#[test]
fn jobs_are_kept_in_memory_while_they_cannot_be_written_up_to_a_limit() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("state.db"), b"not a database".repeat(50)).unwrap();
    let store = Store::open(folder.path(), 30);
    store.record_jobs("g", (0..60_000).map(finished).collect());
    store.flush();
    let inner = store.lock();
    assert_eq!(inner.jobs.len(), BUFFERED_JOBS);
    assert_eq!(inner.jobs.back().unwrap().1, finished(59_999), "the oldest go");
}

/// A tmpfs of its own: root ignores file modes, but not a full or read-only file system.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tmpfs = Self(folder);
        tmpfs.mount(&["-t", "tmpfs", "-o", options, "headcount-test"]);
        tmpfs
    }

    fn mount(&self, arguments: &[&str]) {
        let status = Command::new("mount").args(arguments).arg(self.0.path()).status().unwrap();
        assert!(status.success(), "mounting a tmpfs needs root, as test.sh does");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_loses_nothing_once_there_is_room_again() {
    let disk = Tmpfs::new("size=256k");
    let folder = disk.0.path();
    let store = Store::open(folder, 30);
    let filler = folder.join("filler");
    let _ = std::fs::write(&filler, vec![0; 1 << 20]);
    let t = today();
    for i in 0..200 {
        let (from, to) = (i, i + 1);
        let at = t + i64::from(i);
        store.record("g", false, true, &observation(at), &decision(at, from, to), &state(at));
    }
    assert!(store.trouble().is_some(), "200 events do not fit");
    assert_eq!(store.load("g").unwrap(), state(t + 199), "the newest state is at hand");
    std::fs::remove_file(&filler).unwrap();
    disk.mount(&["-o", "remount,size=8m"]);
    store.lock().tried_at = None;
    store.flush();
    assert_eq!(store.trouble(), None);
    let other = Store::open_existing(folder).unwrap();
    assert_eq!(other.events(None, None, 1000).len(), 200);
}

#[test]
fn a_read_only_disk_is_told_and_used_again_when_it_can_be() {
    let disk = Tmpfs::new("size=8m");
    let folder = disk.0.path();
    let store = Store::open(folder, 30);
    let t = today();
    store.record("g", false, true, &observation(t), &decision(t, 1, 2), &state(t));
    drop(store);
    disk.mount(&["-o", "remount,ro"]);
    let store = Store::open(folder, 30);
    store.record("g", false, true, &observation(t + 1), &decision(t + 1, 2, 3), &state(t + 1));
    assert!(store.trouble().is_some());
    disk.mount(&["-o", "remount,rw"]);
    store.lock().tried_at = None;
    store.flush();
    assert_eq!(store.trouble(), None);
    assert_eq!(store.events(None, None, 10).len(), 2);
}

#[test]
fn a_file_deleted_while_in_use_is_written_anew() {
    let folder = tempfile::tempdir().unwrap();
    let t = today();
    let store = Store::open(folder.path(), 30);
    store.record("g", false, true, &observation(t), &decision(t, 1, 2), &state(t));
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    let later = t + 1;
    store.record("h", false, true, &observation(later), &decision(later, 1, 2), &state(later));
    let other = Store::open_existing(folder.path()).unwrap();
    assert_eq!(other.load("g").unwrap(), state(t), "the state is not lost with the file");
    assert_eq!(other.events(None, None, 10).len(), 1);
}
