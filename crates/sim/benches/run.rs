//! How many events a second a run goes through.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use fastrand::Rng;
use headcount_core::Rules;
use headcount_sim::{Job, Moment, Trace, WorldRules, run};

/// A day of Poisson arrivals: 2 jobs a second of 3 s each.
fn day() -> Trace {
    let mut rng = Rng::with_seed(1);
    let mut exponential = |mean: f64| -(1.0 - rng.f64()).ln() * mean;
    let mut at = 0.0;
    let seconds = |s: f64| Moment::from_seconds(s).unwrap_or_default();
    let jobs = (0..172_800).map(|_| {
        at += exponential(0.5);
        Job { at: seconds(at), service: seconds(exponential(3.0).max(0.001)), class: 0 }
    });
    Trace { jobs: jobs.collect(), classes: Vec::new() }
}

fn main() {
    let (trace, world) = (day(), WorldRules::default());
    let mut rules = Rules::default();
    rules.workers.max = 20;
    let once = run(&trace, &rules, &world, 1);
    let events = once.map_or(0, |score| score.events);
    let mut bench = Criterion::default().configure_from_args();
    let mut group = bench.benchmark_group("run");
    group.sample_size(10).throughput(Throughput::Elements(events));
    group.bench_function("a day of 172,800 jobs, cpu_aware", |b| {
        b.iter(|| black_box(run(&trace, &rules, &world, 1)));
    });
    group.finish();
    bench.final_summary();
}
