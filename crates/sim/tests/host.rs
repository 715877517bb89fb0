//! The reference rule on a small machine that its own useful work fills: its emergency step kills
//! jobs, and the guard for busy workers ends that.

use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::rules::{Bounds, Busy};
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
