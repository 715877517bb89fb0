//! `headcount simulate --report`: a page that a real browser draws.

use std::path::Path;

use serde_json::Value;

use crate::support::browser::{Seen, open};
use crate::support::run::{Ran, headcount, run};

/// A name that would be markup if anybody forgot to escape it.
const NASTY: &str = "<img src=x onerror=alert(1)>&\".yaml";
const SLO: &str = "workers: { min: 0, max: 8 }\npolicy: { slo: { max_wait: 60s } }\n";
const CPU_AWARE: &str = "workers: { min: 1, max: 2 }\npolicy: { cpu_aware: {} }\n";
const HOST: &str = "start_up: 10s\nhost: { cores: 2 }\n";

/// Two hundred jobs in bursts of ten.
fn trace() -> String {
    let job = |n: u32| format!("{},{}\n", n / 10 * 120, 5 + n % 7);
    let jobs: String = (0..200).map(job).collect();
    format!("t_seconds,service_seconds\n{jobs}")
}

/// The policy that keeps a wait, and more.
fn simulate(folder: &Path, args: &[&str]) -> Ran {
    let args: Vec<&str> = ["--policy", NASTY].iter().chain(args).copied().collect();
    simulate_only(folder, &args)
}

fn simulate_only(folder: &Path, args: &[&str]) -> Ran {
    for (name, text) in
        [("jobs.csv", trace().as_str()), (NASTY, SLO), ("cpu.yaml", CPU_AWARE), ("host.yaml", HOST)]
    {
        std::fs::write(folder.join(name), text).expect("the folder is writable");
    }
    let usual = ["simulate", "--trace", "jobs.csv", "--report", "out.html"];
    let args: Vec<&str> = usual.iter().chain(args).copied().collect();
    run(headcount(folder, &args), b"")
}

/// How often `part` is in `text`.
fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

/// The markup of a plot, from its element on to the end of its section.
fn plot<'a>(seen: &'a Seen, id: &str) -> &'a str {
    let start = seen.dom.find(&format!("id=\"{id}\"")).expect("the plot is there");
    seen.dom[start..].split("</section>").next().unwrap_or_default()
}

#[test]
fn a_browser_draws_every_plot_and_complains_of_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let more = ["--policy", "cpu.yaml", "--world", "host.yaml", "--compare", "fixed,keda"];
    let ran = simulate(folder.path(), &more);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let seen = open(&folder.path().join("out.html"));
    assert_eq!(seen.complaints, [""; 0]);
    assert!(seen.dom.contains("data-drawn=\"8\""), "not all plots are drawn");
    // Lines: the jobs, three of four runs (the last is switched off), and what would run if none
    // waited.
    for (id, lines) in [
        ("arrivals", 1),
        ("waiting", 3),
        ("longest", 3),
        ("workers", 4),
        ("labour", 4),
        ("cpu", 3),
        ("distribution", 6),
        // The future, the policy told other waits, and the four runs.
        ("frontier", 6),
    ] {
        let plot = plot(&seen, id);
        assert!(plot.contains("class=\"main-svg\""), "{id} has no drawing");
        assert_eq!(count(plot, "class=\"trace scatter"), lines, "{id}");
    }
    assert_eq!(count(&seen.dom, "class=\"chip\""), 4);
    // The name is told, and is no element.
    assert!(seen.dom.contains("slo (&lt;img src=x onerror=alert(1)&gt;&amp;\".yaml)"));
    assert_eq!(count(&seen.dom, "<img"), 0);
}

#[test]
fn a_page_changes_no_number_and_is_the_same_each_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let with = simulate(folder.path(), &["--json", "--compare", "knative"]);
    assert_eq!((with.code, with.err.as_str()), (0, ""));
    let page = || std::fs::read_to_string(folder.path().join("out.html")).expect("it is written");
    let first = page();
    let args =
        ["simulate", "--trace", "jobs.csv", "--policy", NASTY, "--compare", "knative", "--json"];
    let without = run(headcount(folder.path(), &args), b"");
    assert_eq!(with.out, without.out);
    simulate(folder.path(), &["--json", "--compare", "knative"]);
    assert!(page() == first, "another page for the same runs");
    // What it says in front is what the numbers say.
    let score: Value = serde_json::from_str(with.out.lines().next().unwrap()).unwrap();
    let ratio = score["worker_hours"].as_f64().unwrap()
        / score["clairvoyant_worker_hours"].as_f64().unwrap();
    let headline = format!(
        "<h1>slo kept 95 of 100 waits under 60 s at {:.0} % above what knowing the future would",
        100.0 * (ratio - 1.0)
    );
    assert!(first.contains(&headline), "{headline}");
}

#[test]
fn what_cannot_be_written_is_told_before_the_long_work() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("jobs.csv"), trace()).expect("the folder is writable");
    std::fs::write(folder.path().join("slo.yaml"), SLO).expect("the folder is writable");
    for report in ["none/out.html", ".", "/dev/null"] {
        let args = ["simulate", "--trace", "jobs.csv", "--policy", "slo.yaml", "--report", report];
        let ran = run(headcount(folder.path(), &args), b"");
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{report}");
        let start = format!("headcount: --report {report}: ");
        assert!(ran.err.starts_with(&start), "{}", ran.err);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_policy_that_never_does_the_jobs_is_on_the_page_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // A host that others keep busy: `cpu_aware` may not grow there.
    let world = "min_workers: 0\nhost: { cores: 1, background_cores: 1 }\n";
    std::fs::write(folder.path().join("full.yaml"), world).expect("the folder is writable");
    let args = ["--policy", "cpu.yaml", "--world", "full.yaml", "--compare", "fixed"];
    let ran = simulate_only(folder.path(), &args);
    assert_eq!(ran.code, 1, "{}", ran.out);
    let seen = open(&folder.path().join("out.html"));
    assert_eq!(seen.complaints, [""; 0]);
    assert!(seen.dom.contains("data-drawn=\"8\""), "not all plots are drawn");
    assert!(seen.dom.contains("never done: 200 jobs still wait"), "it is not told");
}
