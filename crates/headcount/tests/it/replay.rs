//! `headcount replay`: recorded observations in, decisions out.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::run::{Ran, headcount, run};

const POLICY: &str = "workers: { min: 1, max: 4 }\npolicy: { cpu_aware: {} }\n";

fn replay(folder: &Path, policy: &str, extra: &[&str], input: &str) -> Ran {
    std::fs::write(folder.join("policy.yaml"), policy).expect("the folder is writable");
    let args = [&["replay", "--policy", "policy.yaml"], extra].concat();
    run(headcount(folder, &args), input.as_bytes())
}

/// The decisions on these observations, all of which are good.
fn decisions(policy: &str, lines: &[Value]) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let input: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let ran = replay(folder.path(), policy, &[], &input);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    parsed(&ran.out)
}

fn parsed(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect()
}

fn seen(t: u64, waiting: u64, active: u64, cpu: f64, ready: u32) -> Value {
    json!({"t": t, "queue": {"waiting": waiting, "active": active}, "host": {"cpu_raw": cpu},
        "fleet": {"ready": ready, "starting": 0}})
}

fn with(mut line: Value, key: &str, value: Value) -> Value {
    line[key] = value;
    line
}

fn numbers(decisions: &[Value], key: &str) -> Vec<Value> {
    decisions.iter().map(|d| d[key].clone()).collect()
}

#[test]
fn a_decision_has_the_documented_keys() {
    let line = r#"{"t":1000.0,"current":1,"policy_wanted":2,"wanted":2,"kind":"scale_out","rule":"backlog","reason":"3 waiting, CPU 20 % now and 20 % smoothed are below 65 %","trail":[{"rule":"backlog","before":1,"after":2,"why":{"room_for_more":{"waiting":3,"ema":20.0,"raw":20.0,"limit":65.0}},"text":"3 waiting, CPU 20 % now and 20 % smoothed are below 65 %"}],"look_again_s":1.0}"#;
    let wanted: Value = serde_json::from_str(line).unwrap();
    let decided = decisions(POLICY, &[seen(1000, 3, 0, 20.0, 1)]);
    assert_eq!(decided, [wanted]);
}

#[test]
fn state_carries_over_and_a_success_starts_the_cooldown() {
    let lines = [
        seen(0, 9, 0, 10.0, 1),
        seen(30, 9, 1, 10.0, 2),
        seen(60, 9, 2, 10.0, 2),
        seen(90, 9, 2, 10.0, 2),
    ];
    let decided = decisions(POLICY, &lines);
    assert_eq!(numbers(&decided, "wanted"), [2, 2, 2, 3]);
    assert_eq!(numbers(&decided, "rule"), ["backlog", "cooldown", "cooldown", "backlog"]);
}

#[test]
fn a_failed_action_starts_no_cooldown() {
    let lines = [
        seen(0, 9, 0, 10.0, 1),
        with(seen(30, 9, 0, 10.0, 1), "outcome", json!("failed")),
        with(seen(60, 9, 0, 10.0, 2), "outcome", json!("done")),
    ];
    let decided = decisions(POLICY, &lines);
    assert_eq!(numbers(&decided, "policy_wanted"), [2, 2, 2]);
    assert_eq!(decided[2]["rule"], "cooldown");
}

#[test]
fn each_line_is_a_tick_however_close_together() {
    let lines = [seen(0, 0, 0, 10.0, 2), seen(119, 0, 0, 10.0, 2), seen(120, 0, 0, 10.0, 2)];
    assert_eq!(numbers(&decisions(POLICY, &lines), "wanted"), [2, 2, 1]);
}

#[test]
fn missing_readings_hold_the_number() {
    let lines = [
        seen(0, 0, 0, 10.0, 3),
        with(seen(200, 0, 0, 10.0, 3), "queue", json!({"missing": "timeout: no answer in 2 s"})),
        with(seen(230, 0, 0, 10.0, 3), "host", json!(null)),
        with(seen(260, 5, 0, 10.0, 3), "fleet", json!({"missing": "refused"})),
        json!({"t": 290}),
    ];
    let decided = decisions(POLICY, &lines);
    assert_eq!(numbers(&decided, "wanted"), [3, 3, 3, 3, 3]);
    let reason = decided[1]["reason"].as_str().unwrap();
    assert_eq!(reason, "queue is unknown (timeout: no answer in 2 s): nothing is removed");
}

#[test]
fn optional_parts_of_a_line_are_read() {
    let workers = json!([
        {"id": "a", "state": "ready", "busy": true, "started_at": 0},
        {"id": "b", "state": "ready", "busy": false, "started_at": 1},
        {"id": "c", "state": "ready", "busy": false, "started_at": 2},
    ]);
    let queue = json!({"waiting": 0, "active": 1, "delayed": 4, "orphaned": 1, "paused": false,
        "ages_s": [3.5], "durations_s": [1, 2], "finished_total": 12, "tags": {"gpu": 0}});
    let fleet = json!({"ready": 3, "starting": 0, "busy": 1, "workers": workers});
    let line = json!({"t": 0, "queue": queue, "host": {"cpu_raw": 95, "mem": 40},
        "fleet": fleet, "note": "mine"});
    let decided = decisions(POLICY, &[line]);
    assert_eq!(decided[0]["kind"], "emergency_scale_in");
    assert_eq!(decided[0]["victims"], json!(["c"]));
}

#[test]
fn busy_workers_go_only_when_the_rules_say_any() {
    let busy = with(seen(0, 5, 3, 95.0, 3), "fleet", json!({"ready": 3, "starting": 0, "busy": 3}));
    let protect = decisions(POLICY, std::slice::from_ref(&busy));
    assert_eq!((&protect[0]["policy_wanted"], &protect[0]["wanted"]), (&json!(2), &json!(3)));
    assert_eq!(protect[0]["trail"][1]["text"], "none of 3 is known to be idle");
    let any = decisions(&format!("{POLICY}busy: any\n"), &[busy]);
    assert_eq!(any[0]["wanted"], 2);
}

#[test]
fn a_bad_line_is_named_and_ends_it() {
    let good = seen(0, 1, 0, 10.0, 1).to_string();
    let long = format!("{{\"t\": 1, \"x\": \"{}\"}}", "y".repeat(1 << 20));
    let table = [
        ("nonsense", "line 3: not JSON at column 2: expected ident"),
        ("[1]", "line 3: not an observation: write a JSON object"),
        ("{}", "line 3: key `t` is missing"),
        (r#"{"t": "now"}"#, "line 3: t: "),
        (r#"{"t": 1, "queue": {"waiting": -1, "active": 0}}"#, "line 3: queue: invalid value"),
        (r#"{"t": 1, "outcome": "maybe"}"#, "line 3: outcome: \"maybe\" is none of"),
        ("\u{0}", "line 3: not JSON at column 1"),
        (&long, "line 3: longer than 1048576 bytes"),
    ];
    for (bad, wanted) in table {
        let folder = tempfile::tempdir().unwrap();
        let ran = replay(folder.path(), POLICY, &[], &format!("{good}\n\n{bad}\n{good}\n"));
        assert_eq!(ran.code, 1, "{wanted}");
        assert!(
            ran.err.starts_with(&format!("headcount: standard input, {wanted}")),
            "{}",
            ran.err
        );
        assert_eq!(parsed(&ran.out).len(), 1, "{wanted}");
    }
}

#[test]
fn the_last_line_needs_no_end_and_spaces_are_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let line = seen(0, 1, 0, 10.0, 1).to_string();
    let ran = replay(folder.path(), POLICY, &[], &format!("\r\n  \n{line}\r\n{line}"));
    assert_eq!((ran.code, parsed(&ran.out).len()), (0, 2), "{}", ran.err);
    assert_eq!(replay(folder.path(), POLICY, &[], "").out, "");
}

#[test]
fn a_bad_policy_is_told_like_a_bad_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let policy = "workers: { min: 3, max: 2 }\npolcy: {}\nqueue: { demo: { database: d } }\n";
    let ran = replay(folder.path(), policy, &[], "");
    let wanted = "\
policy.yaml:1:17 workers.min: min 3 is above max 2; swap them?
policy.yaml:2:1 polcy: unknown key; did you mean `policy`?
policy.yaml:3:1 queue: unknown key; known are brake, busy, capacity, fallback, limits, policy, schedule, settle, stale_after, workers
";
    assert_eq!((ran.code, ran.err.as_str(), ran.out.as_str()), (2, wanted, ""));
    let ran = replay(folder.path(), "# nothing\n", &[], "");
    assert_eq!(ran.code, 2);
    assert!(ran.err.starts_with("policy.yaml: the file is empty"), "{}", ran.err);
}

/// A long, lively recording.
fn recording() -> Vec<String> {
    let line = |i: u64| {
        let ready = 1 + (i / 5 % 4) as u32;
        let line = seen(i * 20, i * 7 % 11 % 4, i % 3, (i * 37 % 100) as f64, ready);
        let line =
            if i % 13 == 5 { with(line, "queue", json!({"missing": "refused"})) } else { line };
        if i % 9 == 4 { with(line, "outcome", json!("failed")) } else { line }
    };
    (0..200).map(|i| format!("{}\n", line(i))).collect()
}

#[test]
fn with_a_state_file_two_halves_are_one_whole() {
    let folder = tempfile::tempdir().unwrap();
    let lines = recording();
    let whole = replay(folder.path(), POLICY, &[], &lines.concat()).out;
    // Also where the second half begins with what became of the last change.
    let failed = lines.iter().position(|line| line.contains("failed")).expect("one has failed");
    for cut in [1, 57, 100, 150, failed] {
        let state = format!("state-{cut}.json");
        let mut out = String::new();
        for half in [&lines[..cut], &lines[cut..]] {
            let ran = replay(folder.path(), POLICY, &["--state", &state], &half.concat());
            assert_eq!((ran.code, ran.err.as_str()), (0, ""));
            out += &ran.out;
        }
        assert_eq!(out, whole, "cut at {cut}");
        let saved = std::fs::read_to_string(folder.path().join(state)).unwrap();
        let saved: Value = serde_json::from_str(&saved).unwrap();
        assert_eq!(saved["version"], json!(1));
    }
}

#[test]
fn a_state_file_that_makes_no_sense_is_named_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let table = [
        ("", "is no state of headcount"),
        ("nonsense", "is no state of headcount"),
        ("[]", "it has no version"),
        ("{}", "it has no version"),
        ("{\"version\": 999}", "has version 999, this program reads 1"),
        ("{\"version\": 1, \"current\": \"x\"}", "cannot be read"),
    ];
    for (content, wanted) in table {
        let path = folder.path().join("state.json");
        std::fs::write(&path, content).unwrap();
        let ran = replay(folder.path(), POLICY, &["--state", "state.json"], "");
        assert_eq!(ran.code, 1);
        assert!(ran.err.starts_with("headcount: state file state.json "), "{}", ran.err);
        assert!(ran.err.contains(wanted), "{}", ran.err);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    }
}

#[test]
fn a_bad_line_leaves_the_state_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let line = format!("{}\n", seen(0, 1, 0, 10.0, 1));
    let state = folder.path().join("state.json");
    assert_eq!(replay(folder.path(), POLICY, &["--state", "state.json"], &line).code, 0);
    let before = std::fs::read(&state).unwrap();
    let ran = replay(folder.path(), POLICY, &["--state", "state.json"], &format!("{line}x\n"));
    assert_eq!(ran.code, 1);
    assert_eq!(std::fs::read(&state).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn decisions_come_while_the_input_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("policy.yaml"), POLICY).unwrap();
    let mut child = headcount(folder.path(), &["replay", "--policy", "policy.yaml"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for t in 0..3 {
        writeln!(input, "{}", seen(t, 0, 0, 10.0, 1)).unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert!(line.starts_with(&format!("{{\"t\":{t}")), "{line}");
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn every_policy_replays_the_same_in_two_parts() {
    let busy = |t: u64| if t < 600 { t / 60 } else { 0 };
    let line = |i: u64| {
        let t = 1_790_000_000 + 30 * i;
        let (waiting, active) = (busy(30 * i) / 2, busy(30 * i));
        format!("{}\n", seen(t, waiting, active, 20.0, 4))
    };
    let lines: Vec<String> = (0..60).map(line).collect();
    for policy in ["cpu_aware: {}", "occupancy: {}", "ratio: {}", "slo: { max_wait: 10s }"] {
        let rules = format!("workers: {{ min: 1, max: 8 }}\npolicy: {{ {policy} }}\n");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let whole = replay(folder.path(), &rules, &[], &lines.concat());
        assert_eq!((whole.code, whole.err.as_str()), (0, ""), "{policy}");
        let state = ["--state", "state.json"];
        let mut parts = replay(folder.path(), &rules, &state, &lines[..25].concat()).out;
        parts += &replay(folder.path(), &rules, &state, &lines[25..].concat()).out;
        assert_eq!(parsed(&parts), parsed(&whole.out), "{policy}");
        let decided = parsed(&whole.out);
        let changes = decided.iter().filter(|d| d["wanted"] != d["current"]).count();
        assert!(changes > 0, "{policy} never changes anything");
    }
}
