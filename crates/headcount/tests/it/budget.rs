//! Two groups of real processes that share a budget.

use headcount::clock;
use headcount::demo::table::Table;
use rustix::process::Signal;
use serde_json::Value;

use super::support::daemon::Daemon;

/// Each wants all the eight workers it may have as soon as a job waits; nobody takes any.
fn config(budget: u32) -> String {
    let group = |name: &str, weight: u32| {
        format!(
            "  {name}:
    workers: {{ min: 0, max: 8 }}
    weight: {weight}
    policy: {{ occupancy: {{ poll: 1s, full_scale_jobs_waiting: 1 }} }}
    brake: {{ off: true }}
    look: 1s
    queue: {{ demo: {{ database: {name}.db }} }}
    target: {{ process: {{ command: [sleep, '1000'] }} }}
"
        )
    };
    let (a, b) = (group("a", 2), group("b", 1));
    format!("http: {{ listen: none }}\nbudget: {{ workers: {budget} }}\ngroups:\n{a}{b}")
}

/// The workers of both groups, by the last look at each.
fn ready(daemon: &Daemon) -> [u64; 2] {
    let ran = daemon.verb(&["status", "--json"]);
    let groups: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ready = |i: usize| groups.get(i)?["observation"]["fleet"]["ready"].as_u64();
    [0, 1].map(|i| ready(i).unwrap_or(0))
}

fn give_jobs(daemon: &Daemon, group: &str) {
    let mut table = Table::open(&daemon.path(&format!("{group}.db"))).unwrap();
    table.put(&[1.0; 20], clock::now()).unwrap();
}

#[test]
fn two_groups_share_a_budget_by_weight_and_lend_what_they_do_not_want() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("headcount.yaml"), config(6)).unwrap();
    for group in ["a", "b"] {
        Table::create(&folder.path().join(format!("{group}.db"))).unwrap();
    }
    let daemon = Daemon::start_in(folder, &[]);
    daemon.until("both are looked at", |d| d.verb(&["status", "--json"]).out.lines().count() == 2);
    give_jobs(&daemon, "b");
    daemon.until("b has all", |d| ready(d) == [0, 6]);
    let explained = daemon.verb(&["explain", "b"]).out;
    assert!(explained.contains("may have 6 of the budget of 6 workers"), "{explained}");
    // Nothing is active, so all that b has are idle.
    give_jobs(&daemon, "a");
    daemon.until("each has its part", |d| ready(d) == [4, 2]);
    let explained = daemon.verb(&["explain", "a"]).out;
    assert!(explained.contains("may have 4 of the budget of 6 workers"), "{explained}");

    std::fs::write(daemon.path("headcount.yaml"), config(9)).unwrap();
    daemon.signal(Signal::HUP);
    daemon.until("a larger budget counts without a restart", |d| ready(d) == [6, 3]);
}
