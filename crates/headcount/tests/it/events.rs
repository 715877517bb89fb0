//! What became of changes: `events` for somebody who knows Windmill's page, `status` and `explain`
//! for one whose change was not made.

use headcount::clock;
use headcount::store::Store;
use headcount_core::state::Unmade;
use headcount_core::{
    Decision, Kind, Missing, Observation, Outcome, Reading, Rule, Silence, Span, State, Step,
    Timestamp, Why,
};
use serde_json::Value;

use crate::support::run::{headcount, run};

fn observation(t: Timestamp) -> Observation {
    let missing = Missing { why: Silence::Absent, detail: String::new() };
    Observation {
        t,
        queue: Reading::Missing(missing.clone()),
        host: Reading::Missing(missing.clone()),
        fleet: Reading::Missing(missing),
        budget: None,
    }
}

fn decision(t: Timestamp, kind: Kind, from: u32, to: u32) -> Decision {
    Decision {
        t,
        current: Some(from),
        policy_wanted: Some(to),
        wanted: Some(to),
        kind,
        rule: Rule::Backlog,
        reason: format!("so that there are {to}"),
        trail: Vec::new(),
        victims: Vec::new(),
        look_again: None,
    }
}

#[test]
fn they_have_the_columns_and_words_of_windmill() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("headcount.yaml"),
        "groups: { default: { queue: { demo: { database: d } }, target: { dry_run: { workers: 1 } } } }",
    )
    .unwrap();
    let now = clock::now();
    let store = Store::open(&folder.path().join("state"), 30);
    let changes = [
        (Kind::ScaleOut, 1, 3, "scaleout"),
        (Kind::FullScaleOut, 3, 10, "full_scaleout"),
        (Kind::ScaleIn, 10, 8, "scalein"),
        (Kind::Bounds, 8, 4, "scalein"),
        (Kind::Override, 4, 5, "scaleout"),
    ];
    for (i, (kind, from, to, _)) in (-5..).zip(changes) {
        let t = now.plus(Span::from_mins(i));
        let decided = decision(t, kind, from, to);
        store.record("default", false, true, &observation(t), &decided, &State::default());
        store.settle("default", t, Outcome::Done, "", &State::default());
    }
    let verb = |args: &[&str]| {
        let ran = run(headcount(folder.path(), args), b"");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
        ran.out
    };
    let json: Vec<Value> = verb(&["events", "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for (event, (kind, _, to, event_type)) in json.iter().zip(changes) {
        assert_eq!(
            (&event["kind"], &event["event_type"]),
            (&kind.name().into(), &event_type.into())
        );
        assert_eq!(event["desired_workers"], to);
        assert_eq!(event["reason"], format!("so that there are {to}"));
        let at: jiff::Timestamp = event["applied_at"].as_str().unwrap().parse().unwrap();
        assert_eq!(at.as_millisecond() as f64 / 1000.0, event["t"].as_f64().unwrap());
    }
    assert_eq!(json.len(), changes.len());

    let shown = verb(&["events", "--windmill"]);
    let lines: Vec<&str> = shown.lines().collect();
    let heading = "worker group  event type     desired workers  time ";
    assert!(lines[0].starts_with(heading) && lines[0].ends_with("reason"), "{shown}");
    assert!(lines[2].starts_with("default       full_scaleout  10 "), "{shown}");
    assert!(lines[2].ends_with("(4 min ago)  so that there are 10"), "{shown}");
    let few = verb(&["events", "--windmill", "-n", "2"]);
    let words = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    let newest: Vec<_> = few.lines().skip(1).map(words).collect();
    assert_eq!(newest, [["default", "scalein", "4"], ["default", "scaleout", "5"]]);
}

/// A group that was to go from 4 to 2, and what became of that.
fn not_made(outcome: Outcome, said: &str, decided: &Decision, state: State) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("headcount.yaml"),
        "groups: { mail: { queue: { demo: { database: d } }, target: { dry_run: { workers: 1 } } } }",
    )
    .unwrap();
    let store = Store::open(&folder.path().join("state"), 30);
    let t = decided.t.plus(Span::from_secs(-1));
    let change = decision(t, Kind::ScaleIn, 4, 2);
    store.record("mail", false, true, &observation(t), &change, &state);
    store.settle("mail", t, outcome, said, &state);
    store.record("mail", false, false, &observation(decided.t), decided, &state);
    store.flush();
    folder
}

#[test]
fn status_and_explain_tell_that_a_change_was_not_made() {
    let now = clock::now();
    let between = Decision {
        trail: vec![Step {
            rule: Rule::Waiting,
            before: 4,
            after: 4,
            why: Why::NotDue { in_s: 3.0, last: None },
        }],
        ..decision(now, Kind::Hold, 4, 4)
    };
    let said = "scale: refused, since `require_victims` is set";
    for (outcome, word) in [(Outcome::NotNow, "not now"), (Outcome::Failed, "failed")] {
        for decided in [decision(now, Kind::ScaleIn, 4, 2), between.clone()] {
            let unmade = Unmade { from: 4, to: 2, outcome, said: said.into() };
            let state = State { unmade: Some(unmade), ..State::default() };
            let folder = not_made(outcome, said, &decided, state);
            let verb = |args: &[&str]| run(headcount(folder.path(), args), b"").out;
            let told = format!("4 -> 2 {word}: {said}");
            assert!(verb(&["status"]).contains(&told), "{}", verb(&["status"]));
            let json: Value = serde_json::from_str(&verb(&["status", "--json"])).unwrap();
            assert_eq!(json["unmade"]["said"], said);
            let explained = verb(&["explain"]);
            assert!(explained.contains(&told) && !explained.contains("goes from"), "{explained}");
            let last = explained.lines().find(|line| line.starts_with("last change")).unwrap();
            assert!(last.ends_with(&format!(": {word}: {said}")), "{explained}");
        }
    }
}

#[test]
fn a_number_asked_for_is_told_once_and_resume_ends_the_wait_after_failures() {
    let why = Why::Asked { workers: 1, until: None };
    let asked = Decision {
        reason: why.to_string(),
        trail: vec![Step { rule: Rule::Override, before: 1, after: 1, why }],
        ..decision(clock::now(), Kind::Hold, 1, 1)
    };
    let folder = not_made(Outcome::Done, "", &asked, State::default());
    let verb = |args: &[&str]| {
        let ran = run(headcount(folder.path(), args), b"");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{args:?}");
        ran.out
    };
    verb(&["scale", "mail", "1"]);
    assert_eq!(verb(&["status"]).matches("1 was asked for").count(), 1);
    assert!(verb(&["explain"]).starts_with("mail stays at 1 worker: 1 was asked for\n"));
    assert!(
        verb(&["resume"]).starts_with("mail: nothing is asked for; what failed is tried again")
    );
    let controls = Store::open(&folder.path().join("state"), 30).controls("mail");
    assert!(controls.fixed.is_none() && controls.retry.is_some());
}

#[test]
fn a_clamp_is_told_as_windmill_tells_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("rules.yaml"),
        "workers: { min: 1, max: 10 }\npolicy: { occupancy: {} }\n",
    )
    .unwrap();
    let look = r#"{"t":1000,"queue":{"waiting":0,"active":0},"host":{"cpu_raw":1},"fleet":{"ready":80,"starting":0,"busy":0}}"#;
    let ran = run(headcount(folder.path(), &["replay", "--policy", "rules.yaml"]), look.as_bytes());
    let decided: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&decided["wanted"], &decided["kind"]), (&10.into(), &"bounds".into()));
    let words = "count of 80 > max_workers of 10, setting to max_workers";
    assert_eq!(decided["reason"], words, "{}", ran.out);
}
