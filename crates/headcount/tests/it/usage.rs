//! `headcount usage` of a running daemon.

use headcount::clock;
use headcount::store::minute_of;
use serde_json::Value;

use crate::support::daemon::Daemon;

const CONFIG: &str = "http: { listen: none }
groups:
  small:
    worker_memory: 1g
    look: 1s
    queue: { demo: { database: none.db } }
    target: { dry_run: { workers: 3 } }
  large:
    worker_memory: 4g
    look: 1s
    queue: { demo: { database: none.db } }
    target: { process: { command: [sleep, '1000'] } }
    workers: { min: 2, max: 2 }
";

fn usage(daemon: &Daemon, args: &[&str]) -> Vec<Value> {
    let ran = daemon.verb(&[&["usage", "--json"], args].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn minute() -> i64 {
    minute_of(clock::now())
}

#[test]
fn a_daemon_counts_minutes_across_a_kill() {
    let mut daemon = Daemon::start(CONFIG, &[]);
    let large = |line: &&Value| line["group"] == "large";
    let began = minute();
    daemon.until("two workers online", |daemon| {
        daemon.path("state/state.db").exists()
            && usage(daemon, &["large"]).iter().any(|line| line["peak_workers"] == 2)
    });
    daemon.kill();
    daemon.start_again();
    daemon.until("a whole minute", |daemon| {
        usage(daemon, &[]).iter().find(large).is_some_and(|line| line["observed_minutes"] == 2)
    });
    assert_eq!(daemon.end(), Some(0));
    let minutes = minute() - began + 1;
    let lines = usage(&daemon, &[]);
    let of = |name: &str| {
        let sum = |key: &str| {
            let lines = lines.iter().filter(|line| line["group"] == name);
            lines.map(|line| line[key].as_f64().unwrap()).sum::<f64>()
        };
        ["observed_minutes", "unobserved_minutes", "worker_minutes", "compute_units"].map(sum)
    };
    let length = lines[0]["minutes_in_month"].as_f64().unwrap();
    for (name, workers, units) in [("small", 3.0, 0.5), ("large", 2.0, 2.0)] {
        let [observed, unobserved, online, spent] = of(name);
        assert!((2.0..=minutes as f64).contains(&observed), "{name}: {observed} of {minutes}");
        // The large ones may have come in the second minute only.
        let least = if name == "large" { observed - 1.0 } else { observed };
        assert!((least * workers..=observed * workers).contains(&online), "{name}: {lines:?}");
        assert_eq!(unobserved, 0.0, "{name}: {lines:?}");
        assert!((spent * length - online * units).abs() < 1e-6, "{name}: {spent}");
    }
    assert!(lines.iter().all(|line| line["dry_run"] == (line["group"] == "small")));

    let shown = daemon.verb(&["usage"]).out;
    assert!(shown.starts_with("month ") && shown.contains("small (dry run)"), "{shown}");
    let csv = daemon.verb(&["usage", "--csv", "large", "--time-zone", "Asia/Kolkata"]).out;
    assert!(csv.starts_with("month,group,dry_run,worker_minutes,"), "{csv}");
    assert!(csv.lines().skip(1).all(|line| line.contains(",large,false,")), "{csv}");
    let none = daemon.verb(&["usage", "--until", "2020-01-01"]);
    assert_eq!(
        (none.code, none.out.as_str()),
        (0, "no usage: no worker was looked at in that time\n")
    );
    for (args, part) in [
        (&["usage", "nobody"][..], "there is no group `nobody`"),
        (&["usage", "--month", "11"], "`11` is no month"),
        (&["usage", "--time-zone", "Mars"], "is no IANA time zone"),
        (&["usage", "--month", "2026-11", "--since", "2026-11-02"], "cannot be used with"),
    ] {
        let ran = daemon.verb(args);
        assert_eq!((ran.code, ran.err.contains(part)), (2, true), "{args:?}: {}", ran.err);
    }
}
