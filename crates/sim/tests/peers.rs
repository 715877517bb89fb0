//! The rules of other autoscalers in a world with long jobs and a grace: what their choice of victims
//! and their blindness for running jobs cost.

use headcount_core::Span;
use headcount_sim::baselines::aws::{Parameters as Aws, Target, TargetTracking};
use headcount_sim::baselines::exact::{ExactDemand, Parameters as Exact};
use headcount_sim::baselines::keda::{Keda, Parameters as KedaParameters};
use headcount_sim::baselines::knative::{Knative, Parameters as KnativeParameters};
use headcount_sim::baselines::nomad::{Parameters as Nomad, TargetValue};
use headcount_sim::baselines::reference::{Parameters as ReferenceParameters, Reference};
use headcount_sim::baselines::windmill::{Parameters as WindmillParameters, Windmill};
use headcount_sim::baselines::{Bounds, fixed::Fixed};
use headcount_sim::generate::{Arrivals, Recipe, Service};
use headcount_sim::{Autoscaler, Score, Victims, WorldRules, run_with};

/// 98 % of the jobs take 10 s, 2 % 20 to 30 min; they come in waves; 3 hours.
fn long_jobs() -> Recipe {
    Recipe {
        arrivals: Arrivals::Square { high: 0.3, low: 0.02, half: 600.0 },
        service: Service::FewLong { mean: 10.0, share: 0.02, from: 1200.0, to: 1800.0 },
        length: 3.0 * 3600.0,
    }
}

const BOUNDS: Bounds = Bounds { min: 1, max: 20 };
const SEEDS: u64 = 5;

/// The means over five seeds.
struct Means {
    p95: f64,
    hours: f64,
    kills: f64,
    reversals: f64,
}

fn means(make: impl Fn() -> Box<dyn Autoscaler>) -> Means {
    let world = WorldRules {
        start_up: Span::from_secs(20),
        grace: Some(Span::from_secs(30)),
        ..WorldRules::default()
    };
    let one = |seed| run_with(&long_jobs().trace(seed), make().as_mut(), &world, seed);
    let scores: Vec<Score> = (0..SEEDS).map(|seed| one(seed).expect("it ends")).collect();
    let mean = |f: fn(&Score) -> f64| scores.iter().map(f).sum::<f64>() / SEEDS as f64;
    Means {
        p95: mean(|s| s.waits.p95),
        hours: mean(|s| s.worker_hours),
        kills: mean(|s| s.busy_kills as f64),
        reversals: mean(|s| s.reversals as f64),
    }
}

fn keda(counts_active: bool, idle_first: bool) -> Means {
    let parameters =
        KedaParameters { target: 1.0, counts_active, idle_first, ..KedaParameters::default() };
    means(|| Box::new(Keda::new(BOUNDS, parameters)))
}

fn exact(victims: Victims) -> Means {
    means(|| Box::new(ExactDemand::new(BOUNDS, Exact { victims, ..Exact::default() })))
}

fn nomad(counts_active: bool) -> Means {
    let parameters = Nomad { counts_active, ..Nomad::default() };
    means(|| Box::new(TargetValue::new(BOUNDS, parameters)))
}

fn aws(counts_active: bool) -> Means {
    let parameters = Aws { counts_active, ..Aws::published(Target::Backlog(1.0)) };
    means(|| Box::new(TargetTracking::new(BOUNDS, parameters)))
}

#[test]
fn victims_and_running_jobs_matter_more_than_the_formula() {
    let (wait_only, counting, idle_first) =
        (keda(false, false), keda(true, false), keda(true, true));
    // Blind for running jobs it shrinks onto them; seeing them it shrinks onto a few; idle first
    // onto none.
    assert!(wait_only.kills > 2.0 * counting.kills && counting.kills > 0.0);
    assert_eq!(idle_first.kills, 0.0);
    assert!(wait_only.p95 > 5.0 * counting.p95);
    assert!(idle_first.hours < counting.hours && counting.hours < wait_only.hours);

    let (exact_idle, exact_blind) = (exact(Victims::IdleFirst), exact(Victims::Random));
    assert_eq!(exact_idle.kills, 0.0);
    assert!(exact_blind.kills > 50.0);
    assert!(exact_blind.hours > 1.5 * exact_idle.hours, "killed work is done twice");
    assert!(exact_blind.p95 > 3.0 * exact_idle.p95);
    // The cheapest, and it churns.
    assert!(exact_idle.hours < idle_first.hours);
    assert!(exact_idle.reversals > 3.0 * idle_first.reversals);
}

#[test]
fn the_others_stand_where_they_should() {
    let exact = exact(Victims::IdleFirst);
    let reference = means(|| {
        Box::new(Reference::new(Bounds { min: 1, max: 20 }, ReferenceParameters::default()))
    });
    let windmill = means(|| Box::new(Windmill::new(BOUNDS, WindmillParameters::default())));
    let knative = means(|| Box::new(Knative::new(BOUNDS, KnativeParameters::default())));
    let (nomad_blind, nomad_seeing) = (nomad(false), nomad(true));
    let (aws_blind, aws_seeing) = (aws(false), aws(true));
    let most = means(|| Box::new(Fixed(20)));
    // Rules that wait for silence or pick idle ones kill nothing.
    assert_eq!((reference.kills, windmill.kills, most.kills), (0.0, 0.0, 0.0));
    // One at a time is slow; a jump to the most is fast and dear.
    assert!(reference.p95 > 100.0 && windmill.p95 < 60.0);
    assert!(windmill.hours > 1.5 * exact.hours);
    // Each kills fewer once it sees running jobs, and none is as cheap as exact demand.
    assert!(nomad_blind.kills > nomad_seeing.kills && nomad_seeing.kills > 0.0);
    assert!(nomad_blind.p95 > nomad_seeing.p95);
    assert!(aws_blind.kills > 0.0 && aws_blind.p95 >= aws_seeing.p95);
    assert!(knative.kills > 0.0 && knative.p95 < 60.0);
    for other in [&reference, &windmill, &knative, &nomad_blind, &nomad_seeing, &aws_blind, &most] {
        assert!(other.hours > exact.hours);
    }
}
