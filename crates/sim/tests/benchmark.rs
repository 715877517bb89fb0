//! The benchmark itself: its figures, its files, its page.

use std::collections::HashMap;

use headcount_sim::baselines::Family;
use headcount_sim::baselines::exact::{ExactDemand, Parameters};
use headcount_sim::baselines::fixed::Fixed;
use headcount_sim::benchmark::{
    CELLS, Case, Cell, Contender, Results, evaluate, fill_clairvoyant, made_up, matched, open,
    page, priced, summaries, tune,
};
use headcount_sim::generate::{Arrivals, Recipe, Service};
use headcount_sim::{Job, Moment, Trace};

fn fixed(workers: u32) -> Contender {
    Contender { name: format!("{workers}"), make: Box::new(move |_, _| Box::new(Fixed(workers))) }
}

fn exact() -> Contender {
    let make = |_: &Cell, max| {
        let bounds = headcount_sim::baselines::Bounds { min: 0, max };
        Box::new(ExactDemand::new(bounds, Parameters::default())) as _
    };
    Contender { name: "exact".into(), make: Box::new(make) }
}

fn small(name: &str, seed: u64) -> Case {
    let recipe = Recipe {
        arrivals: Arrivals::Poisson { rate: 0.05 },
        service: Service::Exponential { mean: 20.0 },
        length: 7200.0,
    };
    Case::new(name.into(), recipe.trace(seed), HashMap::new())
}

#[test]
fn the_ratio_is_cost_times_the_square_of_the_miss() {
    // One job of 100 s that waits for the start-up of 15 s, give or take its spread.
    let second = |s: u64| Moment::from_micros(s * 1_000_000);
    let jobs = vec![Job { at: second(0), service: second(100), class: 0 }];
    let costs = HashMap::from([((15, 10), 0.02)]);
    let case = Case::new("one".into(), Trace { jobs, classes: Vec::new() }, costs);
    let rows = evaluate(&fixed(1), &CELLS[..1], &[case], 1, 1).expect("it ends");
    let row = &rows[0];
    let p95 = row.score.waits.p95;
    assert!(p95 > 10.5 && !row.met(), "{p95}");
    let cost = (p95 + 100.0) / 3600.0 / 0.02;
    assert!((row.cost - cost).abs() < 1e-6, "{row:?}");
    assert!((row.ratio - cost * (p95 / 10.0).powi(2)).abs() < 1e-6, "{row:?}");
    assert!((row.j(0.2) - (100.0 + 1.2 * p95) / 100.0).abs() < 1e-6, "{row:?}");
    let summary = &summaries(&rows)[0];
    assert!((summary.acr - row.ratio).abs() < 1e-9, "{summary:?}");
    assert_eq!((summary.met, summary.traces), (0, 1));
}

#[test]
fn rows_come_in_order_however_many_threads_there_are() {
    let mut cases = vec![small("a", 1), small("b", 2), small("c", 3)];
    fill_clairvoyant(&CELLS, &mut cases, 2);
    let run = |threads| evaluate(&exact(), &CELLS, &cases, 1, threads).expect("it ends");
    let (one, four) = (run(1), run(4));
    assert_eq!(one.len(), CELLS.len() * 3);
    for (row, again) in one.iter().zip(&four) {
        assert_eq!((row.cell, &row.trace, &row.score), (again.cell, &again.trace, &again.score));
        assert!(row.ratio.is_finite() && row.cost >= 1.0 && row.ratio >= row.cost, "{row:?}");
    }
}

#[test]
fn a_contender_matches_itself_at_its_own_cost() {
    let mut cases = vec![small("a", 1), small("b", 2)];
    fill_clairvoyant(&CELLS, &mut cases, 2);
    let cells = &CELLS[1..2];
    let rows = evaluate(&exact(), cells, &cases, 1, 1).expect("it ends");
    let same = matched(&exact(), &rows, &cases, 1, 1).expect("there are rows");
    assert_eq!((same.reached, same.traces), (2, 2));
    assert!((same.hours - 1.0).abs() < 1e-9, "{same:?}");
    // One worker is far too few.
    let less = matched(&fixed(1), &rows, &cases, 1, 1).expect("there are rows");
    assert_eq!(less.reached, 0);
}

#[test]
fn the_page_says_who_is_ahead() {
    let mut cases = vec![small("a", 1)];
    let cells = &CELLS[1..2];
    fill_clairvoyant(cells, &mut cases, 1);
    let ours = summaries(&evaluate(&exact(), cells, &cases, 1, 1).expect("it ends"));
    let peer = tune(&Family { name: "many", grid: vec![fixed(4), fixed(3)] }, cells, &cases, 1, 1);
    let matched = matched(&exact(), &peer.tuned[0].rows, &cases, 1, 1).expect("there are rows");
    let priced = priced(|_| exact(), cells, &cases, 1, 1).expect("it ends");
    let text = page(&Results {
        commit: "abc",
        traces: "a trace",
        cells,
        ours: &ours,
        policy: "exact",
        peers: &[peer],
        matched: &[matched],
        priced: &priced,
        churn: &[(7, ours[0].clone())],
    });
    for part in [
        "commit `abc` on a trace",
        "## Headcount (`exact`)",
        "| many |",
        "in 1 of 1 cells",
        "| 7 s |",
    ] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    assert!(text.lines().filter(|line| line.starts_with("| **Headcount**")).count() == 1, "{text}");
    // The cheapest of the others is named beside ours, for each price of waiting.
    let of_price = |c: &str| {
        let start = format!("| 15 s | {c} |");
        let line = text.lines().find(|line| line.starts_with(&start)).expect("there is one");
        line.split(" | ").nth(4).expect("the last column").to_string()
    };
    assert_eq!(["0.05", "0.2"].map(of_price), ["many, 3 |", "many, 3 |"], "{text}");
    assert_eq!(priced[0].j, ours[0].j);
}

#[test]
fn a_folder_of_traces_is_read_with_its_costs() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("it can be written");
    };
    write("b.csv", "t_seconds,service_seconds\n0,5\n");
    write("a.csv", "t_seconds,service_seconds,class\n0,5,x\n1,5,y\n");
    write("notes.txt", "not a trace");
    write("clairvoyant.csv", "boot_s,target_wait_s,trace,worker_hours\n15,10,a,0.5\n");
    let cases = open(folder.path()).expect("it is right");
    let names: Vec<_> =
        cases.iter().map(|case| (case.name.as_str(), case.trace.jobs.len())).collect();
    assert_eq!(names, [("a", 2), ("b", 1)]);
    assert_eq!(cases[0].clairvoyant, HashMap::from([((15, 10), 0.5)]));
    assert_eq!((cases[0].max, cases[1].clairvoyant.len()), (4, 0));
    write("clairvoyant.csv", "boot_s,target_wait_s,trace,worker_hours\n15,10,a\n");
    let wrong = open(folder.path()).expect_err("a column is missing").to_string();
    assert!(wrong.starts_with("clairvoyant.csv, line 2"), "{wrong}");
    write("c.csv", "t_seconds,service_seconds\n0,-5\n");
    write("clairvoyant.csv", "boot_s,target_wait_s,trace,worker_hours\n");
    assert!(open(folder.path()).is_err());
}

#[test]
fn made_up_traces_cost_something_clairvoyant() {
    let mut cases = made_up();
    cases.retain(|case| case.name == "bursts");
    fill_clairvoyant(&CELLS, &mut cases, 2);
    let costs = &cases[0].clairvoyant;
    assert_eq!(costs.len(), CELLS.len());
    assert!(costs[&(15, 300)] < costs[&(15, 60)] && costs[&(15, 60)] < costs[&(15, 10)]);
}
