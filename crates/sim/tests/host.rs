//! The reference rule on a small machine that its own useful work fills: its emergency step kills
//! jobs, and the guard for busy workers ends that.

use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::policy::slo::Slo;
use headcount_core::rules::{Bounds, Brake, Busy, Capacity};
use headcount_core::{Policy, Rules, Span};
use headcount_sim::baselines::reference::{Parameters, Reference};
use headcount_sim::generate::{Arrivals, Recipe, Service};
use headcount_sim::world::HostRules;
use headcount_sim::{Score, Trace, WorldRules, baselines, run, run_with};

/// Two cores, of which two jobs leave nothing; docker compose kills after 10 s.
fn full_host() -> WorldRules {
    WorldRules {
        host: Some(HostRules { cores: 2.0, background_cores: 0.2, ..HostRules::default() }),
        grace: Some(Span::from_secs(10)),
        ..WorldRules::default()
    }
}

/// Seven tenths of what the machine can do, for ten hours.
fn load() -> Trace {
    let service = Service::LogNormal { median: 20.0, sigma: 0.8 };
    Recipe { arrivals: Arrivals::Poisson { rate: 0.045 }, service, length: 36_000.0 }.trace(1)
}

fn production(busy: Busy) -> Score {
    let rules = Rules {
        workers: Bounds { min: 1, max: 4, ..Bounds::default() },
        policy: Policy::CpuAware(CpuAware::default()),
        busy,
        ..Rules::default()
    };
    run(&load(), &rules, &full_host(), 1).expect("it ends")
}

fn blind(emergency: Option<f64>) -> Score {
    let parameters = Parameters { emergency, ..Parameters::default() };
    let bounds = baselines::Bounds { min: 1, max: 4 };
    run_with(&load(), &mut Reference::new(bounds, parameters), &full_host(), 1).expect("it ends")
}

#[test]
fn on_a_full_host_the_emergency_step_kills_jobs_and_the_busy_guard_kills_none() {
    let (with, without) = (blind(Some(88.0)), blind(None));
    assert!(with.busy_kills > 20, "{with:?}");
    assert_eq!(without.busy_kills, 0, "{without:?}");
    assert!(with.waits.p95 > 2.0 * without.waits.p95, "{} {}", with.waits.p95, without.waits.p95);

    let (any, protected) = (production(Busy::Any), production(Busy::Protect));
    assert!(any.busy_kills > 20, "{any:?}");
    assert_eq!(protected.busy_kills, 0, "{protected:?}");
    assert!(any.waits.p95 > 2.0 * protected.waits.p95, "{} {}", any.waits.p95, protected.waits.p95);
}

#[test]
fn overcommitting_a_host_is_not_free() {
    // A full backlog: more workers than cores finish it later, not sooner.
    let service = Service::Exponential { mean: 30.0 };
    let trace =
        Recipe { arrivals: Arrivals::Poisson { rate: 1.0 }, service, length: 600.0 }.trace(1);
    let hours = |workers| {
        let mut fixed = baselines::fixed::Fixed(workers);
        run_with(&trace, &mut fixed, &full_host(), 1).expect("it ends")
    };
    let (fitting, crowded) = (hours(2), hours(8));
    assert!(crowded.span_hours > 1.1 * fitting.span_hours);
    assert!(crowded.overload_minutes > 60.0 * 0.9 * crowded.span_hours);
    assert!(crowded.worker_hours > 4.0 * fitting.worker_hours);
}

/// What `slo` does on a machine with the guard for what it carries and without; with the brake or not.
fn guarded(host: HostRules, brake: bool, capacity: bool, trace: &Trace) -> Score {
    let rules = Rules {
        workers: Bounds { min: 1, max: 12, ..Bounds::default() },
        policy: Policy::Slo(Slo { max_wait: Some(Span::from_secs(60)), ..Slo::default() }),
        brake: Brake { off: !brake, ..Brake::default() },
        capacity: Capacity { off: !capacity, ..Capacity::default() },
        ..Rules::default()
    };
    let world = WorldRules { host: Some(host), ..full_host() };
    run(trace, &rules, &world, 1).expect("it ends")
}

#[test]
fn a_full_host_is_not_filled_further() {
    let host = || full_host().host.expect("it has one");
    let score = |brake, capacity| guarded(host(), brake, capacity, &load());
    // Alone it keeps the machine from thrashing: no job waits longer, for a third of the workers.
    let (with, without) = (score(false, true), score(false, false));
    assert!(with.waits.p95 < 0.6 * without.waits.p95, "{with:?}\n{without:?}");
    assert!(with.overload_minutes < 0.8 * without.overload_minutes, "{with:?}\n{without:?}");
    assert!(with.worker_hours < 0.4 * without.worker_hours, "{with:?}\n{without:?}");
    // With the brake it lets two workers be there again sooner, and no more.
    let (with_both, with_brake) = (score(true, true), score(true, false));
    assert!(with_both.waits.p95 < 0.9 * with_brake.waits.p95, "{with_both:?}\n{with_brake:?}");
    assert!(with_both.worker_hours < with_brake.worker_hours, "{with_both:?}\n{with_brake:?}");
    for score in [with, with_both] {
        assert_eq!(score.busy_kills, 0, "{score:?}");
    }
}

#[test]
fn workers_that_do_not_fit_into_memory_are_not_started() {
    let service = Service::LogNormal { median: 20.0, sigma: 0.8 };
    let arrivals = Arrivals::Square { high: 0.3, low: 0.02, half: 600.0 };
    let waves = Recipe { arrivals, service, length: 36_000.0 }.trace(1);
    let host = || HostRules {
        cores: 64.0,
        memory: Some(4.0),
        memory_per_worker: 0.5,
        ..HostRules::default()
    };
    let score = |capacity| guarded(host(), false, capacity, &waves);
    let (with, without) = (score(true), score(false));
    // What a worker takes must be seen first.
    assert!(2 * with.deaths <= without.deaths, "{with:?}\n{without:?}");
    assert!(with.waits.p95 < without.waits.p95, "{with:?}\n{without:?}");
}
