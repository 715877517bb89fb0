//! The search on small worlds whose answer is known.

use super::*;
use crate::generate::{Arrivals, Recipe, Service};
use crate::moment::Moment;
use crate::trace::Job;
use parameters::parameters;
use split::split;

const AIM: Aim = Aim { max_wait_s: 60.0, price_per_start_s: 0.0 };

fn rules(text: &str) -> Rules {
    serde_json::from_str(text).unwrap()
}

fn named(rules: &Rules, names: &[&str]) -> Vec<Parameter> {
    let mut all = parameters(rules, 8);
    all.retain(|p| names.is_empty() || names.iter().any(|name| p.is_called(name)));
    all
}

fn ask(trace: &Trace, rules: &Rules, aim: Aim, vary: &[&str], runs: usize) -> Answer {
    let (world, parts) = (WorldRules::default(), split(trace).unwrap());
    let question = Question { rules, world: &world, trace, aim, seed: 1, threads: 2 };
    search(&question, &parts, named(rules, vary), runs, &|_| ())
}

/// Twelve jobs within a few seconds, every ten minutes.
fn bursts(hours: f64) -> Trace {
    let recipe = Recipe {
        arrivals: Arrivals::Bursts { rate: 0.0, every: 600.0, jobs: 12, spread: 5.0 },
        service: Service::LogNormal { median: 20.0, sigma: 0.5 },
        length: hours * 3600.0,
    };
    recipe.trace(1)
}

#[test]
fn a_cooldown_that_is_too_long_for_bursts_is_found() {
    let rules = rules(r#"{"policy": {"cpu_aware": {}}, "workers": {"max": 8}}"#);
    let aim = Aim { max_wait_s: 120.0, ..AIM };
    let answer = ask(&bursts(12.0), &rules, aim, &["cooldown", "poll"], 40);
    assert_eq!(answer.keep, None, "{answer:?}");
    let changed: Vec<&str> = answer.best.changes.iter().map(|change| change.key).collect();
    assert!(changed.contains(&"policy.cpu_aware.cooldown"), "{changed:?}");
    let [now, then] = [&answer.present, &answer.best].map(|told| told.checked.unwrap());
    assert!(then.objective < 0.9 * now.objective, "{then:?} after {now:?}");
    assert!(then.p95_wait_s < now.p95_wait_s, "{then:?} after {now:?}");
    // One more run for the present configuration, and those that simplify.
    assert!((38..=45).contains(&answer.runs), "{}", answer.runs);
}

#[test]
fn the_same_question_has_the_same_answer_on_any_number_of_threads() {
    let (trace, world) = (bursts(6.0), WorldRules::default());
    let (rules, parts) = (rules("{}"), split(&trace).unwrap());
    let [one, two, other] = [(1, 1), (1, 3), (2, 1)].map(|(seed, threads)| {
        let question =
            Question { rules: &rules, world: &world, trace: &trace, aim: AIM, seed, threads };
        let answer = search(&question, &parts, named(&rules, &[]), 16, &|_| ());
        serde_json::to_string(&answer).unwrap()
    });
    assert_eq!(one, two);
    assert_ne!(one, other);
}

#[test]
fn what_fits_only_the_part_it_was_chosen_on_is_refused() {
    // For four hours single jobs, which one worker does best; then 20 at once, again and again.
    let mut jobs = Vec::new();
    let mut add = |at: u64, count: usize| {
        let at = Moment::from_micros(at * 1_000_000);
        let service = Moment::from_micros(60_000_000);
        jobs.extend(std::iter::repeat_n(Job { at, service, class: 0 }, count));
    };
    for i in 0..96 {
        add(i * 150, 1);
        add(i * 150 + 20, 1);
    }
    for i in 0..12 {
        add(14_400 + i * 600, 20);
    }
    let trace = Trace { jobs, classes: Vec::new() };
    let parts = split(&trace).unwrap();
    assert_eq!(parts.how, "the last third");
    assert!(parts.choose.jobs.len() <= 192 && parts.check.jobs.len() >= 240);
    let rules = rules(r#"{"policy": {"cpu_aware": {}}, "workers": {"max": 8}}"#);
    let aim = Aim { max_wait_s: 120.0, ..AIM };
    let answer = ask(&trace, &rules, aim, &["workers.max"], 12);
    let [now, then] = [&answer.present, &answer.best];
    assert!(then.chosen.unwrap().objective < now.chosen.unwrap().objective, "{answer:?}");
    assert!(then.checked.unwrap().objective > now.checked.unwrap().objective, "{answer:?}");
    assert_eq!(answer.keep, Some(Keep::FitsOnlyWhatItWasChosenOn));
}

#[test]
fn nothing_better_is_said_where_there_is_nothing() {
    // Only the maximum may change, and one worker is always enough.
    let recipe = Recipe {
        arrivals: Arrivals::Poisson { rate: 0.01 },
        service: Service::Exponential { mean: 0.1 },
        length: 43_200.0,
    };
    let rules = rules(r#"{"policy": {"cpu_aware": {}}, "workers": {"max": 1}}"#);
    let answer = ask(&recipe.trace(1), &rules, AIM, &["workers.max"], 8);
    assert_eq!(answer.keep, Some(Keep::NothingBetter), "{answer:?}");
    assert_eq!(answer.best.changes, []);
    assert_eq!(answer.best, answer.present);
}

#[test]
fn a_frontier_rises_in_wait_and_falls_in_cost() {
    let rules = rules(r#"{"policy": {"slo": {"max_wait": "60s"}}, "workers": {"max": 12}}"#);
    let answer = ask(&bursts(12.0), &rules, AIM, &["max_wait", "price_per_start"], 40);
    let points: Vec<(f64, f64)> = answer
        .frontier
        .iter()
        .map(|told| told.chosen.map(|f| (f.p95_wait_s, f.worker_hours)).unwrap())
        .collect();
    assert!((3..=MOST_SHOWN).contains(&points.len()), "{points:?}");
    for pair in points.windows(2) {
        assert!(pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1, "{points:?}");
    }
    for (wait, cost) in &answer.all {
        let dominated = |(w, c): &(f64, f64)| w < wait && *c < cost * (1.0 - NEXT);
        let shown = points.contains(&(*wait, *cost));
        assert!(!shown || !answer.all.iter().any(dominated), "({wait}, {cost})");
    }
}

#[test]
fn a_start_can_have_a_price_and_a_miss_has_one() {
    let score = |worker_hours, p95, starts| Score {
        waits: crate::score::Waits { p95, ..Default::default() },
        worker_hours,
        work_hours: 1.0,
        scale_outs: 0,
        scale_ins: 0,
        reversals: 0,
        starts,
        wasted_starts: 0,
        busy_kills: 0,
        deaths: 0,
        overload_minutes: 0.0,
        jobs: 100,
        span_hours: 10.0,
        seed: 1,
        policy: String::new(),
        events: 0,
    };
    let of = |score: &Score, price_per_start_s| {
        Figures::of(score, &Aim { max_wait_s: 60.0, price_per_start_s }).objective
    };
    assert_eq!(of(&score(2.0, 60.0, 10), 0.0), 2.0);
    assert_eq!(of(&score(2.0, 60.0, 10), 360.0), 3.0);
    assert_eq!(of(&score(2.0, 120.0, 10), 0.0), 8.0, "twice too late is four times as dear");
    let killed = Score { busy_kills: 1, ..score(2.0, 0.0, 0) };
    assert_eq!(of(&killed, 0.0), 4.0);
    let reversed = Score { reversals: 100, ..score(2.0, 0.0, 0) };
    assert_eq!(of(&reversed, 0.0), 2.02);
}
