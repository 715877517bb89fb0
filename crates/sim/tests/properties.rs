//! What holds in every world: random jobs, machines, failures, silent sources, any policy.

use headcount_core::policy::ratio::Count;
use headcount_core::rules::{Bounds, Brake, Busy, Capacity};
use headcount_core::state::Outcome;
use headcount_core::{
    Cadence, Decision, FleetReading, Observation, Policy, QueueReading, Rule, Rules, Span, State,
    decide,
};
use headcount_sim::clairvoyant::zero_wait;
use headcount_sim::world::{HostRules, Outage, Source};
use headcount_sim::{Autoscaler, Job, Moment, Score, Trace, Victims, WorldRules, run_with};
use proptest::prelude::*;

/// The largest state of a group.
const MOST_BYTES: usize = 64 * 1024;

fn seconds(s: f64) -> Moment {
    Moment::from_seconds(s).expect("a test's seconds are fine")
}

/// Up to 60 jobs within two hours, some at once.
fn traces() -> impl Strategy<Value = Trace> {
    let job = (0u32..7200, 1u32..900, 1u32..4);
    prop::collection::vec(job, 1..20).prop_map(|drawn| {
        let mut jobs: Vec<Job> = drawn
            .iter()
            .flat_map(|(at, service, times)| {
                let (at, service) = (seconds(f64::from(*at)), seconds(f64::from(*service)));
                (0..*times).map(move |_| Job { at, service, class: 0 })
            })
            .collect();
        jobs.sort_by_key(|job| job.at);
        Trace { jobs, classes: Vec::new() }
    })
}

fn outages() -> impl Strategy<Value = Vec<Outage>> {
    let source = prop_oneof![Just(Source::Queue), Just(Source::Fleet), Just(Source::Host)];
    let outage = (source, 0i64..7200, 1i64..1800, any::<bool>());
    prop::collection::vec(outage, 0..3).prop_map(|drawn| {
        let outage = |(source, at, lasts, stale)| {
            let (at, lasts) = (Span::from_secs(at), Span::from_secs(lasts));
            Outage { source, at, lasts, stale }
        };
        drawn.into_iter().map(outage).collect()
    })
}

fn worlds() -> impl Strategy<Value = WorldRules> {
    let host = prop::option::of((1.0f64..8.0, 0.2f64..1.5));
    (0i64..120, 0.0f64..1.0, 0.0f64..0.3, prop::option::of(1i64..60), host, outages()).prop_map(
        |(start_up, start_up_spread, start_up_failures, grace, host, outages)| WorldRules {
            start_up: Span::from_secs(start_up),
            start_up_spread,
            start_up_failures,
            grace: grace.map(Span::from_secs),
            host: host.map(|(cores, cores_per_job)| HostRules {
                cores,
                cores_per_job,
                background_cores: 0.05,
                ..HostRules::default()
            }),
            outages,
            ..WorldRules::default()
        },
    )
}

fn policies() -> impl Strategy<Value = Rules> {
    let policies = [
        r#"{"cpu_aware": {}}"#,
        r#"{"occupancy": {}}"#,
        r#"{"ratio": {}}"#,
        r#"{"ratio": {"jobs_per_worker": 1}}"#,
        r#"{"ratio": {"jobs_per_worker": 2, "count": "waiting", "cooldown": "60s"}}"#,
        r#"{"occupancy": {"inc_scale_num_jobs_waiting": 3, "cooldown_seconds": 30}}"#,
        r#"{"slo": {"max_wait": "10s"}}"#,
        r#"{"slo": {"max_wait": "120s"}}"#,
    ];
    let known: Vec<Policy> =
        policies.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
    assert_eq!(known.len(), policies.len(), "the file format has changed");
    let all = (prop::sample::select(known), 0u32..3, 1u32..8, any::<bool>(), any::<bool>());
    all.prop_map(|(policy, min, more, off, crowded)| Rules {
        workers: Bounds { min, max: min + more, ..Bounds::default() },
        policy,
        brake: Brake { off, ..Brake::default() },
        capacity: Capacity { off: crowded, ..Capacity::default() },
        busy: Busy::Protect,
        ..Rules::default()
    })
}

/// Holds what is decided against what was seen, and against what a replay of the record decides.
struct Checked {
    rules: Rules,
    state: State,
    replay: State,
    decisions: Vec<Decision>,
}

impl Checked {
    fn new(rules: &Rules) -> Self {
        let (state, replay) = (State::default(), State::default());
        Self { rules: rules.clone(), state, replay, decisions: Vec::new() }
    }

    /// What was seen, written down and read again, must lead to the same decision; now and then the
    /// state is written down and read again, too.
    fn replay(&mut self, seen: &Observation, decision: &Decision) {
        let line = serde_json::to_string(seen).expect("it can be written");
        let read: Observation = serde_json::from_str(&line).expect("it can be read");
        if self.decisions.len().is_multiple_of(64) {
            let stored = serde_json::to_string(&self.replay).expect("it can be written");
            assert!(stored.len() < MOST_BYTES, "the state grows: {} bytes", stored.len());
            self.replay = serde_json::from_str(&stored).expect("it can be read");
        }
        let again = decide(&self.rules, &mut self.replay, &read, Cadence::EveryLook, read.t);
        assert_eq!(&again, decision);
    }

    /// What every policy's source promises of a scale-in.
    fn check_scale_in(&self, decision: &Decision, queue: &QueueReading, fleet: &FleetReading) {
        let Some((from, to)) = decision.change().filter(|(from, to)| to < from) else { return };
        let idle = from - fleet.busy.unwrap_or(from);
        assert!(from - to <= idle, "from {from} to {to} with {idle} idle");
        let rule = decision.trail.first().map(|step| step.rule);
        // The brake may, in an emergency.
        if decision.rule == Rule::Brake || rule == Some(Rule::Emergency) {
            return;
        }
        match &self.rules.policy {
            Policy::Slo(_) => assert_eq!(queue.waiting, 0, "shrinks while jobs wait"),
            Policy::CpuAware(_) => assert_eq!(queue.waiting + queue.active, 0, "{decision:#?}"),
            Policy::Occupancy(policy) => {
                assert!(queue.waiting < policy.inc_scale_num_jobs_waiting, "{decision:#?}");
            }
            Policy::Ratio(policy) => {
                let jobs = match policy.count {
                    Count::Waiting => queue.waiting,
                    Count::WaitingAndActive => queue.waiting + queue.active,
                };
                assert!(f64::from(to) * policy.jobs_per_worker >= jobs as f64, "{decision:#?}");
            }
        }
    }
}

impl Autoscaler for Checked {
    fn name(&self) -> &str {
        self.rules.policy.name()
    }

    fn poll(&self) -> Span {
        self.rules.policy.poll()
    }

    fn victims(&self) -> Victims {
        Victims::IdleFirst
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let decision = decide(&self.rules, &mut self.state, seen, Cadence::EveryLook, seen.t);
        self.replay(seen, &decision);
        let change = decision.change();
        if let Some((from, to)) = change {
            let Bounds { min, max, .. } = self.rules.workers;
            assert!((min..=max).contains(&to), "{to} of {min} to {max}");
            let fleet = seen.fleet.value().expect("without a fleet nothing changes");
            let queue = seen.queue.value();
            assert!(to > from || queue.is_some(), "silence shrinks from {from} to {to}");
            if let Some(queue) = queue {
                self.check_scale_in(&decision, queue, fleet);
            }
            self.state.note(Outcome::Done, seen.t);
            self.replay.note(Outcome::Done, seen.t);
        }
        self.decisions.push(decision);
        change.map(|(_, to)| to)
    }
}

fn finite(score: &Score) -> bool {
    let w = score.waits;
    let waits = [w.p50, w.p95, w.p99, w.max, w.mean];
    let others = [score.worker_hours, score.work_hours, score.span_hours, score.overload_minutes];
    waits.into_iter().chain(others).all(|x| x.is_finite() && x >= 0.0)
        && waits[..4].is_sorted()
        && w.mean <= w.max
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_number_stays_in_bounds_and_no_busy_worker_is_killed(
        (trace, world, rules, seed) in (traces(), worlds(), policies(), any::<u64>())
    ) {
        let mut checked = Checked::new(&rules);
        let first = run_with(&trace, &mut checked, &world, seed);
        let mut again = Checked::new(&rules);
        prop_assert_eq!(&run_with(&trace, &mut again, &world, seed), &first);
        prop_assert_eq!(again.decisions, checked.decisions);
        // A list that repeats itself can call a worker idle that is not.
        let stale = world.outages.iter().any(|o| o.stale && o.source == Source::Fleet);
        if let Ok(score) = first {
            prop_assert!(finite(&score), "{:?}", score);
            prop_assert!(stale || score.busy_kills == 0, "{:?}", score);
            prop_assert_eq!(score.jobs, trace.jobs.len());
            if world.host.is_none() {
                let start_up = Moment::default();
                prop_assert!(score.worker_hours >= zero_wait(&trace, start_up).as_hours() - 1e-9);
            }
        }
    }
}
