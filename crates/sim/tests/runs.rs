//! Whole runs: one computed by hand, the same score for the same seed, and no busy worker killed.

use fastrand::Rng;
use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::rules::Bounds;
use headcount_core::{Policy, Rules, Span};
use headcount_sim::autoscaler::Core;
use headcount_sim::baselines::fixed::Fixed;
use headcount_sim::timeline::{Bucket, Level};
use headcount_sim::world::{HostRules, MostWorkers, OfTrace, Outage, Source};
use headcount_sim::{
    Job, Member, Moment, Score, Stuck, Trace, WorldRules, in_world, run, run_recorded,
    run_together, run_with,
};

fn seconds(s: f64) -> Moment {
    Moment::from_seconds(s).expect("a test's seconds are fine")
}

fn trace(jobs: &[(f64, f64)]) -> Trace {
    let job =
        |(at, service): &(f64, f64)| Job { at: seconds(*at), service: seconds(*service), class: 0 };
    Trace { jobs: jobs.iter().map(job).collect(), classes: Vec::new() }
}

/// Poisson arrivals at `rate` a second, exponential service.
fn poisson(jobs: usize, rate: f64, mean_service: f64, seed: u64) -> Trace {
    let mut rng = Rng::with_seed(seed);
    let mut exponential = |mean: f64| -(1.0 - rng.f64()).ln() * mean;
    let mut at = 0.0;
    let jobs: Vec<(f64, f64)> = (0..jobs)
        .map(|_| {
            at += exponential(1.0 / rate);
            (at, exponential(mean_service).max(0.01))
        })
        .collect();
    trace(&jobs)
}

/// `cpu_aware` with a poll of 10 s, a cooldown of 20 s and 30 s of idleness, 0 to 2 workers.
fn quick() -> Rules {
    let policy = CpuAware {
        poll: Span::from_secs(10),
        cooldown: Span::from_secs(20),
        idle: Span::from_secs(30),
        ..CpuAware::default()
    };
    let workers = Bounds { min: 0, max: 2, ..Bounds::default() };
    Rules { workers, policy: Policy::CpuAware(policy), ..Rules::default() }
}

fn exact_start_up() -> WorldRules {
    WorldRules { start_up: Span::from_secs(5), start_up_spread: 0.0, ..WorldRules::default() }
}

#[test]
fn a_tiny_trace_by_hand() {
    // Three jobs of 12, 8 and 4 s arrive at 1, 2 and 3; two of 30 s at 100 and 101.
    let trace = trace(&[(1.0, 12.0), (2.0, 8.0), (3.0, 4.0), (100.0, 30.0), (101.0, 30.0)]);
    let score = run(&trace, &quick(), &exact_start_up(), 1).expect("it ends");
    // t = 10: worker 0 is ordered, ready at 15, works on job 0 (to 27), 1 (to 35), 2 (to 39).
    // t = 30: the cooldown is over, worker 1 is ordered for job 2, ready at 35. At 35 two things
    // happen: worker 1 was planned to be ready (at 30) after worker 0's end of job 1 (planned at
    // 27), so worker 0 takes job 2 and worker 1 stays idle.
    // t = 40: idle from here on. t = 70: 30 s of it, one idle worker goes: the younger, worker 1,
    // that never worked. t = 80: the idle clock starts anew; t = 110: 3 and 4 have come. Worker 0
    // takes job 3 at 100 (to 130); 4 waits. t = 110: worker 2 is ordered, ready at 115: job 4, to
    // 145. The run ends at 145.
    assert_eq!(score.jobs, 5);
    let waits = [14.0, 25.0, 32.0, 0.0, 14.0];
    assert_eq!((score.waits.max, score.waits.p50), (32.0, 14.0));
    assert!((score.waits.mean - waits.iter().sum::<f64>() / 5.0).abs() < 1e-9, "{score:?}");
    // Worker 0: 10 to 145, worker 1: 30 to 70, worker 2: 110 to 145.
    let paid = 135.0 + 40.0 + 35.0;
    assert!((score.worker_hours * 3600.0 - paid).abs() < 1e-6, "{score:?}");
    assert!((score.work_hours * 3600.0 - 84.0).abs() < 1e-6, "{score:?}");
    assert!((score.span_hours * 3600.0 - 145.0).abs() < 1e-6, "{score:?}");
    assert_eq!((score.scale_outs, score.scale_ins), (3, 1));
    // In at 70 against out at 30, out at 110 against in at 70.
    assert_eq!((score.reversals, score.wasted_starts, score.busy_kills), (2, 1, 0));
}

#[test]
fn minimum_billing_is_paid() {
    let trace = trace(&[(0.0, 1.0)]);
    let world = WorldRules { minimum_billing: Span::from_secs(60), ..exact_start_up() };
    let score = run(&trace, &quick(), &world, 1).expect("it ends");
    assert!((score.worker_hours * 3600.0 - 60.0).abs() < 1e-6, "{score:?}");
}

#[test]
fn the_same_seed_gives_the_same_score_and_another_one_another() {
    let trace = poisson(2000, 0.5, 5.0, 7);
    let rules = Rules::default();
    let score = |seed| run(&trace, &rules, &WorldRules::default(), seed).expect("it ends");
    assert_eq!(score(1), score(1));
    assert_ne!(score(1).waits, score(2).waits);
}

#[test]
fn a_policy_that_protects_busy_workers_kills_no_job() {
    // Load comes and goes, so that workers are removed often.
    for seed in 0..20 {
        let trace = poisson(500, 0.05, 30.0, seed);
        let rules = Rules { workers: Bounds { min: 0, max: 8, ..Bounds::default() }, ..quick() };
        let world = WorldRules { grace: Some(Span::from_secs(1)), ..WorldRules::default() };
        let score = run(&trace, &rules, &world, seed).expect("it ends");
        assert_eq!((score.busy_kills, score.jobs), (0, 500));
        assert!(score.scale_ins > 10, "{score:?}");
    }
}

#[test]
fn all_jobs_of_a_poisson_trace_are_run() {
    let trace = poisson(20_000, 0.2, 10.0, 3);
    let world = WorldRules {
        max_workers: Some(MostWorkers::OfTrace(OfTrace::Peak)),
        min_workers: Some(1),
        ..WorldRules::default()
    };
    let Score { jobs, waits, worker_hours, work_hours, events, .. } =
        run(&trace, &Rules::default(), &world, 1).expect("it ends");
    assert_eq!(jobs, 20_000);
    assert!(worker_hours >= work_hours, "{worker_hours} < {work_hours}");
    assert!(waits.p50 <= waits.p95 && waits.p95 <= waits.p99 && waits.p99 <= waits.max);
    // An arrival and an end for each job, and a start for each worker.
    assert!(events > 40_000, "{events}");
}

#[test]
fn more_slots_need_fewer_workers() {
    let trace = poisson(2000, 1.0, 8.0, 5);
    let hours = |slots| {
        let world = WorldRules { slots: Some(slots), ..WorldRules::default() };
        run(&trace, &Rules::default(), &world, 1).expect("it ends").worker_hours
    };
    assert!(hours(4) < hours(1), "{} and {}", hours(4), hours(1));
}

#[test]
fn a_policy_that_starts_nothing_is_told_so() {
    // A CPU of 0 % is not below 0 %.
    let never = CpuAware { poll: Span::from_hours(6), scale_out_below: 0.0, ..CpuAware::default() };
    let rules = Rules { policy: Policy::CpuAware(never), ..quick() };
    let stuck = run(&trace(&[(0.0, 1.0)]), &rules, &WorldRules::default(), 1).unwrap_err();
    assert_eq!(stuck, Stuck { waiting: 1, days: 30 });
}

#[test]
fn an_empty_trace_costs_nothing() {
    let score = run(&trace(&[]), &quick(), &WorldRules::default(), 1).expect("it ends");
    assert_eq!((score.jobs, score.worker_hours, score.events), (0, 0.0, 0));
}

#[test]
fn the_world_file_is_read_as_written() {
    let json = r#"{"start_up": "90s", "minimum_billing": "60s", "max_workers": "peak",
        "min_workers": 0, "slots": 2, "grace": "10m", "start_up_spread": 0.1}"#;
    let world: WorldRules = serde_json::from_str(json).expect("it is right");
    assert_eq!(world.max_workers, Some(MostWorkers::OfTrace(OfTrace::Peak)));
    assert_eq!((world.start_up, world.grace), (Span::from_secs(90), Some(Span::from_secs(600))));
    assert!(serde_json::from_str::<WorldRules>(r#"{"startup": "90s"}"#).is_err());
}

#[test]
fn following_a_run_changes_nothing_and_accounts_for_every_second() {
    let trace = poisson(3000, 0.05, 30.0, 4);
    let host = Some(HostRules { cores: 2.0, background_cores: 0.5, ..HostRules::default() });
    for world in [exact_start_up(), WorldRules { host, ..exact_start_up() }] {
        let modelled = world.host.is_some();
        let careless = CpuAware { scale_out_below: 101.0, emergency: 101.0, ..CpuAware::default() };
        let rules = Rules { policy: Policy::CpuAware(careless), ..quick() };
        let rules = in_world(&rules, &world, &trace);
        let plain = run_with(&trace, &mut Core::new(rules.clone()), &world, 1).expect("it ends");
        let (score, line) =
            run_recorded(&trace, &mut Core::new(rules), &world, 1).expect("it ends");
        assert_eq!(score, plain);
        let hours = |levels: &[Level]| -> f64 {
            let one = |b: &Bucket, level| b.mean(level) * b.held.as_hours();
            line.buckets.iter().flat_map(|b| levels.iter().map(move |l| one(b, *l))).sum()
        };
        let waited = score.waits.mean * score.jobs as f64 / 3600.0;
        assert!((hours(&[Level::Waiting]) / waited - 1.0).abs() < 1e-6, "{score:?}");
        let workers = hours(&[Level::Ready, Level::Starting, Level::Draining]);
        assert!((workers / score.worker_hours - 1.0).abs() < 1e-6, "{workers}: {score:?}");
        // On a machine that is asked for too much, work takes longer.
        let busy = hours(&[Level::Busy]) / score.work_hours;
        assert!(if modelled { busy > 1.001 } else { (busy - 1.0).abs() < 1e-6 }, "{busy}");
        let cpu = line.buckets.iter().map(|b| b.max(Level::Cpu)).fold(0.0, f64::max);
        assert_eq!(cpu, if modelled { 125.0 } else { 0.0 });
        assert_eq!(
            line.buckets.len(),
            (score.span_hours * 3600.0 / line.width.as_seconds()).ceil() as usize
        );
        assert_eq!(line.waits.last(), Some(&(score.waits.max, 1.0)));
    }
}

#[test]
fn groups_that_share_a_host_slow_each_other_down() {
    let trace = poisson(300, 0.05, 20.0, 1);
    let host = HostRules { cores: 2.0, ..HostRules::default() };
    let world = WorldRules { host: Some(host), ..WorldRules::default() };
    let alone = run_with(&trace, &mut Fixed(2), &world, 1).expect("it ends");
    let mut scalers = [Fixed(2), Fixed(2)];
    let mut members: Vec<Member<'_>> =
        scalers.iter_mut().map(|scaler| Member { trace: &trace, scaler, world: &world }).collect();
    let together = run_together(&mut members, 1).expect("they end");
    assert_eq!((alone.overload_minutes, together.len()), (0.0, 2));
    for score in &together {
        assert!(score.overload_minutes > 10.0, "{score:?}");
        assert!(score.waits.mean > alone.waits.mean, "{score:?}");
        assert_eq!(score.jobs, 300);
    }
}

#[test]
fn a_silent_queue_loses_no_job_and_kills_none() {
    // Nothing shrinks while the queue is silent, and the backlog of that time is worked off.
    let trace = poisson(2000, 0.1, 20.0, 2);
    let outage = Outage {
        source: Source::Queue,
        at: Span::from_hours(2),
        lasts: Span::from_hours(1),
        stale: false,
    };
    let quiet = WorldRules { max_workers: Some(MostWorkers::Number(8)), ..WorldRules::default() };
    let silent = WorldRules { outages: vec![outage], ..quiet.clone() };
    let score = |world| run(&trace, &quick(), world, 1).expect("it ends");
    let (quiet, silent) = (score(&quiet), score(&silent));
    assert_eq!((silent.busy_kills, silent.jobs), (0, quiet.jobs));
    assert!(silent.waits.max >= quiet.waits.max);
}
