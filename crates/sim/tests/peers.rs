//! The rules of other autoscalers in four small worlds with a grace: what their choice of victims and
//! their blindness for running jobs cost, and how they stand to each other.

use headcount_core::Span;
use headcount_sim::baselines::aws::{Parameters as Aws, Target, TargetTracking};
use headcount_sim::baselines::dask::{Dask, Parameters as DaskParameters};
use headcount_sim::baselines::exact::{ExactDemand, Parameters as Exact};
use headcount_sim::baselines::judoscale::{Judoscale, Parameters as JudoscaleParameters};
use headcount_sim::baselines::keda::{Keda, Parameters as KedaParameters};
use headcount_sim::baselines::knative::{Knative, Parameters as KnativeParameters};
use headcount_sim::baselines::n8n_autoscaling::{N8nAutoscaling, Parameters as N8nParameters};
use headcount_sim::baselines::nomad::{Parameters as Nomad, TargetValue};
use headcount_sim::baselines::practo::{Parameters as PractoParameters, Practo};
use headcount_sim::baselines::reference::{Parameters as ReferenceParameters, Reference};
use headcount_sim::baselines::windmill::{Parameters as WindmillParameters, Windmill};
use headcount_sim::baselines::{Bounds, fixed::Fixed};
use headcount_sim::generate::{Arrivals, Recipe, Service};
use headcount_sim::world::{Outage, Source};
use headcount_sim::{Autoscaler, Score, Victims, WorldRules, run_with};

/// 98 % of the jobs take 10 s, 2 % 20 to 30 min; they come in waves.
const LONG_JOBS: Recipe = Recipe {
    arrivals: Arrivals::Square { high: 0.3, low: 0.02, half: 600.0 },
    service: Service::FewLong { mean: 10.0, share: 0.02, from: 1200.0, to: 1800.0 },
    length: HOURS * 3600.0,
};
/// Two bursts of 60 jobs in a trickle.
const BURST: Recipe = Recipe {
    arrivals: Arrivals::Bursts { rate: 0.02, every: 3600.0, jobs: 60, spread: 5.0 },
    ..STEADY
};
const STEADY: Recipe = Recipe {
    arrivals: Arrivals::Poisson { rate: 0.3 },
    service: Service::Exponential { mean: 10.0 },
    length: HOURS * 3600.0,
};
const HOURS: f64 = 3.0;

type Make = fn() -> Box<dyn Autoscaler>;

const BOUNDS: Bounds = Bounds { min: 1, max: 20 };
const SEEDS: u64 = 5;

/// The means over five seeds.
struct Means {
    p95: f64,
    hours: f64,
    kills: f64,
    reversals: f64,
}

fn means(recipe: Recipe, make: impl Fn() -> Box<dyn Autoscaler>) -> Means {
    means_with(recipe, Vec::new(), make)
}

fn means_with(
    recipe: Recipe,
    outages: Vec<Outage>,
    make: impl Fn() -> Box<dyn Autoscaler>,
) -> Means {
    let (start_up, grace) = (Span::from_secs(20), Some(Span::from_secs(30)));
    let world = WorldRules { start_up, grace, outages, ..WorldRules::default() };
    let one = |seed| run_with(&recipe.trace(seed), make().as_mut(), &world, seed);
    let scores: Vec<Score> = (0..SEEDS).map(|seed| one(seed).expect("it ends")).collect();
    let mean = |f: fn(&Score) -> f64| scores.iter().map(f).sum::<f64>() / SEEDS as f64;
    Means {
        p95: mean(|s| s.waits.p95),
        hours: mean(|s| s.worker_hours),
        kills: mean(|s| s.busy_kills as f64),
        reversals: mean(|s| s.reversals as f64),
    }
}

fn keda(counts_active: bool, idle_first: bool) -> Box<dyn Autoscaler> {
    let parameters =
        KedaParameters { target: 1.0, counts_active, idle_first, ..KedaParameters::default() };
    Box::new(Keda::new(BOUNDS, parameters))
}

fn exact(victims: Victims, cooldown: f64) -> Box<dyn Autoscaler> {
    Box::new(ExactDemand::new(BOUNDS, Exact { victims, cooldown }))
}

fn nomad(counts_active: bool) -> Box<dyn Autoscaler> {
    Box::new(TargetValue::new(BOUNDS, Nomad { counts_active, ..Nomad::default() }))
}

fn aws(counts_active: bool) -> Box<dyn Autoscaler> {
    let parameters = Aws { counts_active, ..Aws::published(Target::Backlog(1.0)) };
    Box::new(TargetTracking::new(BOUNDS, parameters))
}

const KEDA_WAIT_ONLY: Make = || keda(false, false);
const KEDA: Make = || keda(true, false);
const KEDA_IDLE_FIRST: Make = || keda(true, true);
const EXACT: Make = || exact(Victims::IdleFirst, 0.0);
const BUILDKITE: Make = || exact(Victims::IdleFirst, 3600.0);
const REFERENCE: Make = || Box::new(Reference::new(BOUNDS, ReferenceParameters::default()));
const WINDMILL: Make = || Box::new(Windmill::new(BOUNDS, WindmillParameters::default()));
const KNATIVE: Make = || Box::new(Knative::new(BOUNDS, KnativeParameters::default()));
const N8N: Make = || Box::new(N8nAutoscaling::new(BOUNDS, N8nParameters::default()));
const JUDOSCALE: Make = || Box::new(Judoscale::new(BOUNDS, JudoscaleParameters::default()));
const PRACTO: Make = || Box::new(Practo::new(BOUNDS, PractoParameters::default()));
const DASK: Make = || Box::new(Dask::new(BOUNDS, DaskParameters::default()));

#[test]
fn victims_and_running_jobs_matter_more_than_the_formula() {
    let [wait_only, counting, idle_first] =
        [KEDA_WAIT_ONLY, KEDA, KEDA_IDLE_FIRST].map(|make| means(LONG_JOBS, make));
    // Blind for running jobs it shrinks onto them; seeing them it shrinks onto a few; idle first
    // onto none.
    assert!(wait_only.kills > 2.0 * counting.kills && counting.kills > 0.0);
    assert_eq!(idle_first.kills, 0.0);
    assert!(wait_only.p95 > 5.0 * counting.p95);
    assert!(idle_first.hours < counting.hours && counting.hours < wait_only.hours);

    let (exact_idle, exact_blind) =
        (means(LONG_JOBS, EXACT), means(LONG_JOBS, || exact(Victims::Random, 0.0)));
    assert_eq!(exact_idle.kills, 0.0);
    assert!(exact_blind.kills > 50.0);
    assert!(exact_blind.hours > 1.5 * exact_idle.hours, "killed work is done twice");
    assert!(exact_blind.p95 > 3.0 * exact_idle.p95);
    // The cheapest, and it churns.
    assert!(exact_idle.hours < idle_first.hours);
    assert!(exact_idle.reversals > 3.0 * idle_first.reversals);
}

#[test]
fn long_jobs_tell_who_sees_them() {
    let [exact, reference, windmill, knative, n8n, judoscale, practo, dask, buildkite] =
        [EXACT, REFERENCE, WINDMILL, KNATIVE, N8N, JUDOSCALE, PRACTO, DASK, BUILDKITE]
            .map(|make| means(LONG_JOBS, make));
    let [nomad_blind, nomad_seeing] =
        [false, true].map(|seeing| means(LONG_JOBS, || nomad(seeing)));
    let [aws_blind, aws_seeing] = [false, true].map(|seeing| means(LONG_JOBS, || aws(seeing)));
    let most = means(LONG_JOBS, || Box::new(Fixed(20)));
    // Rules that wait for silence or pick idle ones kill nothing.
    for peaceful in [&reference, &windmill, &dask, &buildkite, &most] {
        assert_eq!(peaceful.kills, 0.0);
    }
    // One at a time is slow; a jump to the most is fast and dear.
    assert!(reference.p95 > 100.0 && judoscale.p95 > 100.0 && windmill.p95 < 60.0);
    assert!(windmill.hours > 1.5 * exact.hours);
    // Each kills fewer once it sees running jobs.
    assert!(nomad_blind.kills > nomad_seeing.kills && nomad_seeing.kills > 0.0);
    assert!(nomad_blind.p95 > nomad_seeing.p95);
    assert!(aws_blind.kills > 0.0 && aws_blind.p95 >= aws_seeing.p95);
    assert!(knative.kills > 0.0 && knative.p95 < 60.0);
    assert!(n8n.kills > practo.kills && practo.kills > judoscale.kills && judoscale.kills > 0.0);
    // Those that ask for as many as there are jobs, and take idle ones back at once, are cheapest,
    // and churn most; an hour's patience costs twice as much and waits for nobody.
    for other in
        [&reference, &windmill, &knative, &nomad_blind, &nomad_seeing, &aws_blind, &n8n, &most]
    {
        assert!(other.hours > exact.hours && other.hours > dask.hours);
        assert!(other.reversals < exact.reversals && other.reversals < dask.reversals);
    }
    assert!(buildkite.hours > 1.5 * exact.hours && buildkite.p95 < exact.p95);
}

#[test]
fn a_burst_is_slow_for_those_who_go_step_by_step() {
    let [exact, reference, windmill, n8n, judoscale, dask, buildkite, keda] =
        [EXACT, REFERENCE, WINDMILL, N8N, JUDOSCALE, DASK, BUILDKITE, KEDA]
            .map(|make| means(BURST, make));
    for quick in [&exact, &windmill, &dask, &buildkite, &keda] {
        assert!(quick.p95 < n8n.p95 && n8n.p95 < reference.p95);
        assert!(reference.p95 < judoscale.p95);
    }
    for cheap in [&exact, &n8n, &dask, &judoscale] {
        assert!(cheap.hours < keda.hours && keda.hours < windmill.hours);
    }
    assert!(windmill.hours < buildkite.hours);
}

#[test]
fn in_a_steady_stream_waits_are_bought() {
    let [exact, windmill, judoscale, keda] =
        [EXACT, WINDMILL, JUDOSCALE, KEDA].map(|make| means(STEADY, make));
    let falling = [&judoscale, &exact, &keda, &windmill];
    assert!(falling.is_sorted_by(|a, b| a.p95 > b.p95 && a.hours < b.hours));
    assert!(exact.reversals > 10.0 * keda.reversals);
}

#[test]
fn an_outage_hurts_those_who_take_it_for_an_empty_queue() {
    let outage = || {
        let (at, lasts) = (Span::from_hours(1), Span::from_mins(20));
        vec![Outage { source: Source::Queue, at, lasts, stale: false }]
    };
    // How much longer jobs wait, s.
    let worse = |make: Make| means_with(STEADY, outage(), make).p95 - means(STEADY, make).p95;
    let blind = worse(N8N);
    assert!(blind > 300.0, "{blind}");
    for make in [REFERENCE, WINDMILL, KEDA, PRACTO, BUILDKITE] {
        assert!(worse(make) < 10.0);
    }
    // Those that hold little hold on to little.
    assert!((10.0..blind / 2.0).contains(&worse(KEDA_WAIT_ONLY)));
    assert!((10.0..blind / 2.0).contains(&worse(EXACT)));
}
