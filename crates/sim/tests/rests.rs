//! Looks that are spared because nothing can change: the score and everything remembered are the
//! same as with every look made.

use headcount_core::rules::{Bounds, Brake};
use headcount_core::{Observation, Policy, Rules, Span, State, Timestamp};
use headcount_sim::autoscaler::Core;
use headcount_sim::generate::{Arrivals, Recipe, Service};
use headcount_sim::world::{HostRules, Outage, Source};
use headcount_sim::{
    Autoscaler, Job, Moment, Score, Stuck, Trace, Victims, WorldRules, in_world, run_with,
};
use proptest::prelude::*;

/// The core, which may rest or must look each time, with its looks counted.
struct Counted {
    core: Core,
    may_rest: bool,
    looks: u64,
    rests: u64,
}

impl Autoscaler for Counted {
    fn name(&self) -> &str {
        self.core.name()
    }

    fn poll(&self) -> Span {
        self.core.poll()
    }

    fn victims(&self) -> Victims {
        self.core.victims()
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        self.looks += 1;
        self.core.wanted(seen)
    }

    fn rests(&mut self, seen: &Observation, now: Timestamp) -> bool {
        if !self.may_rest {
            return false;
        }
        // Copies take time, so that not every rest is watched.
        let watched = (self.looks + self.rests).is_multiple_of(16);
        let before = watched.then(|| self.core.state().clone());
        let rests = self.core.rests(seen, now);
        let untouched = before.is_none_or(|before| *self.core.state() == before);
        assert!(rests || untouched, "no rest, and yet it did something");
        self.rests += u64::from(rests);
        rests
    }
}

type Outcome = (Result<Score, Stuck>, State, u64, u64);

fn outcome(trace: &Trace, rules: &Rules, world: &WorldRules, seed: u64, may_rest: bool) -> Outcome {
    let rules = in_world(rules, world, trace);
    let world = WorldRules { slots: Some(rules.workers.slots), ..world.clone() };
    let mut scaler = Counted { core: Core::new(rules), may_rest, looks: 0, rests: 0 };
    let score = run_with(trace, &mut scaler, &world, seed);
    (score, scaler.core.state().clone(), scaler.looks, scaler.rests)
}

/// Bursts of a few jobs with long pauses between them.
fn traces() -> impl Strategy<Value = Trace> {
    let burst = (1u32..3000, 1usize..6, 1u32..300);
    prop::collection::vec(burst, 1..12).prop_map(|bursts| {
        let (mut jobs, mut at) = (Vec::new(), 0);
        let seconds = |s: u32| Moment::from_micros(u64::from(s) * 1_000_000);
        for (pause, count, service) in bursts {
            at += pause;
            let job = Job { at: seconds(at), service: seconds(service), class: 0 };
            jobs.extend(std::iter::repeat_n(job, count));
        }
        Trace { jobs, classes: Vec::new() }
    })
}

fn worlds() -> impl Strategy<Value = WorldRules> {
    let host = prop::option::weighted(0.2, (1.0f64..6.0, 0.0f64..0.5));
    let outage = prop::option::weighted(0.2, (0i64..7200, 1i64..1800, any::<bool>()));
    let times = (0i64..120, prop::option::of(1i64..60), 1u32..3);
    (times, 0.0f64..0.3, host, outage).prop_map(
        |((start_up, grace, slots), start_up_failures, host, outage)| WorldRules {
            start_up: Span::from_secs(start_up),
            start_up_failures,
            slots: Some(slots),
            // Some have a clock of their own.
            begins: (slots == 2).then(|| Timestamp::from_millis(1_790_000_000_000)),
            grace: grace.map(Span::from_secs),
            host: host.map(|(cores, background_cores)| HostRules {
                cores,
                background_cores,
                ..HostRules::default()
            }),
            outages: outage.map_or_else(Vec::new, |(at, lasts, stale)| {
                let (at, lasts) = (Span::from_secs(at), Span::from_secs(lasts));
                vec![Outage { source: Source::Queue, at, lasts, stale }]
            }),
            ..WorldRules::default()
        },
    )
}

fn rules() -> impl Strategy<Value = Rules> {
    let policies = [
        r#"{"cpu_aware": {}}"#,
        r#"{"cpu_aware": {"poll": "5s", "idle": "20s", "cooldown": "10s"}}"#,
        r#"{"occupancy": {}}"#,
        r#"{"ratio": {"jobs_per_worker": 1}}"#,
        r#"{"slo": {}}"#,
        r#"{"slo": {"max_wait": "10s"}}"#,
        r#"{"slo": {"max_wait": "60s", "price_per_start": "30s"}}"#,
        r#"{"slo": {"price_of_waiting": 0.2}}"#,
        r#"{"slo": {"max_wait": "300s", "minimum_billing": "60s"}}"#,
    ];
    let known = policies.map(|text| serde_json::from_str::<Policy>(text).expect("it is a policy"));
    let all = (prop::sample::select(known.to_vec()), 0u32..3, 1u32..6, any::<bool>());
    all.prop_map(|(policy, min, more, off)| Rules {
        workers: Bounds { min, max: min + more, ..Bounds::default() },
        policy,
        brake: Brake { off, ..Brake::default() },
        ..Rules::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn resting_changes_nothing(
        (trace, world, rules, seed) in (traces(), worlds(), rules(), any::<u64>())
    ) {
        let (score, state, looks, rests) = outcome(&trace, &rules, &world, seed, true);
        let (all_score, all_state, all_looks, none) = outcome(&trace, &rules, &world, seed, false);
        prop_assert_eq!(score, all_score);
        prop_assert_eq!(state, all_state);
        prop_assert_eq!((looks + rests, none), (all_looks, 0));
    }
}

#[test]
fn a_quiet_day_is_mostly_rest() {
    let recipe = Recipe {
        arrivals: Arrivals::Bursts { rate: 0.0, every: 3600.0, jobs: 10, spread: 5.0 },
        service: Service::Exponential { mean: 20.0 },
        length: 86_400.0,
    };
    let (trace, world) = (recipe.trace(1), WorldRules::default());
    for (policy, most) in [
        (r#"{"slo": {"max_wait": "60s"}}"#, 0.1),
        (r#"{"cpu_aware": {"poll": "5s"}}"#, 0.4),
        // What these want depends on what was, so that each look is made.
        (r#"{"ratio": {}}"#, 1.0),
        (r#"{"occupancy": {}}"#, 1.0),
        (r#"{"slo": {"max_wait": "10s"}}"#, 1.0),
    ] {
        let policy = serde_json::from_str(policy).expect("it is a policy");
        let workers = Bounds { min: 0, max: 10, ..Bounds::default() };
        let rules = Rules { workers, policy, ..Rules::default() };
        let (score, _, looks, rests) = outcome(&trace, &rules, &world, 1, true);
        let share = looks as f64 / (looks + rests) as f64;
        assert!(score.is_ok() && share <= most, "{}: {share:.2} of looks", rules.policy.name());
        assert_eq!(rests == 0, most == 1.0, "{}: {rests} rests", rules.policy.name());
    }
}
