//! What holds for every decision, whatever is seen: the invariants of the design, one test each.

use std::collections::{BTreeMap, HashSet};

use headcount_core::decision::Direction;
use headcount_core::guard::budget::Allowance;
use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::policy::occupancy::{self, Occupancy};
use headcount_core::policy::ratio::{self, Behavior, Count, Ratio, Select, Speed};
use headcount_core::policy::slo::Slo;
use headcount_core::reading::{
    FleetReading, HostReading, Occupancies, QueueReading, Worker, WorkerState,
};
use headcount_core::rules::{Bounds, Brake, Busy, Capacity, Fallback, Limits, Pressure};
use headcount_core::state::{Controls, Fixed, Outcome, Pause};
use headcount_core::{
    Cadence, Decision, Kind, Observation, Policy, Reading, Rule, Rules, Silence, Span, State, Step,
    Timestamp, Why, decide,
};
use proptest::prelude::*;
use proptest::sample::select;

/// The largest state of a group.
const MOST_BYTES: usize = 64 * 1024;

/// One look of a random history.
#[derive(Clone, Debug)]
struct Look {
    /// Milliseconds since the last look; negative when the clock was set back.
    after_ms: i64,
    queue: Sight<QueueReading>,
    host: Sight<HostReading>,
    fleet: Sight<FleetReading>,
    /// What became of the last change; nobody knows if absent.
    outcome: Option<Outcome>,
    /// A person changes the controls before this look.
    controls: Option<Controls>,
    cadence: Cadence,
    budget: Option<Allowance>,
}

/// A source: silent, or an answer of some age.
#[derive(Clone, Debug)]
enum Sight<T> {
    Silent(Silence),
    Answer(T, Span),
}

impl<T: Clone> Sight<T> {
    fn reading(&self, now: Timestamp) -> Reading<T> {
        match self {
            Self::Silent(why) => Reading::missing(*why, "test"),
            Self::Answer(value, age) => {
                let back = Span::ZERO.saturating_sub(*age);
                Reading::known(value.clone(), now.plus(back))
            }
        }
    }
}

fn sight<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Sight<T>> {
    let why = select(vec![Silence::Timeout, Silence::Denied, Silence::Absent, Silence::Malformed]);
    let age = prop_oneof![9 => Just(0_i64), 1 => 0..200_i64, 1 => -200..0_i64];
    prop_oneof![
        1 => why.prop_map(Sight::Silent),
        8 => (value, age).prop_map(|(value, s)| Sight::Answer(value, Span::from_secs(s))),
    ]
}

fn queue() -> impl Strategy<Value = QueueReading> {
    let number = || prop_oneof![4 => Just(0), 4 => 0..12_u64, 1 => Just(u64::MAX)];
    let paused = prop_oneof![8 => Just(None), 1 => Just(Some(true)), 1 => Just(Some(false))];
    let times = || {
        let odd = select(vec![i64::MAX / 4, i64::MAX, i64::MIN, -5_000]);
        let time = prop_oneof![19 => 0..4_000_000_i64, 1 => odd];
        proptest::collection::vec(time.prop_map(Span::from_millis), 0..8)
    };
    let total = proptest::option::of(prop_oneof![4 => 0..1000_u64, 1 => Just(u64::MAX)]);
    let windows = proptest::option::weighted(0.2, windows());
    (number(), number(), paused, times(), times(), times(), total, windows).prop_map(
        |(waiting, active, paused, waits, ages, durations, finished_total, occupancy)| {
            QueueReading {
                waiting,
                active,
                paused,
                waits,
                ages,
                durations_by_tag: [("mail".to_string(), durations.clone())].into(),
                durations,
                finished_total,
                occupancy,
                ..QueueReading::default()
            }
        },
    )
}

/// What a source says of occupancy, sensible or not.
fn windows() -> impl Strategy<Value = Occupancies> {
    let share = || proptest::option::of(prop_oneof![9 => 0.0..150.0, 1 => odd_number()]);
    (share(), share(), share()).prop_map(|(s15, m5, m30)| Occupancies { s15, m5, m30 })
}

/// Numbers that a source must not say, but may.
fn odd_number() -> impl Strategy<Value = f64> {
    select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 100.5, f64::MAX])
}

fn host() -> impl Strategy<Value = HostReading> {
    let percent = || prop_oneof![3 => 0.0..60.0, 3 => 60.0..=100.0, 1 => Just(0.0)];
    let cpu_raw = || prop_oneof![39 => percent(), 1 => odd_number()];
    let gauge = || proptest::option::of(cpu_raw());
    let cores = prop_oneof![
        2 => Just(None),
        8 => Just(Some(4.0)),
        1 => select(vec![f64::NAN, f64::INFINITY, 0.0, f64::MIN_POSITIVE, f64::MAX]).prop_map(Some),
    ];
    let gauges = (gauge(), gauge(), gauge());
    (cpu_raw(), gauges, cores, any::<bool>()).prop_map(|(cpu_raw, gauges, cores, elsewhere)| {
        let (cpu_mean, mem, cpu_pressure) = gauges;
        HostReading { cpu_raw, cpu_mean, mem, cpu_pressure, cores, elsewhere, ..Default::default() }
    })
}

fn fleet() -> impl Strategy<Value = FleetReading> {
    let count = || prop_oneof![9 => 0..7_u32, 1 => Just(u32::MAX)];
    let counts = (count(), 0..3_u32, 0..3_u32, proptest::option::of(count()), 0..2_u32).prop_map(
        |(ready, starting, draining, busy, died)| FleetReading {
            ready,
            starting,
            draining,
            busy,
            died,
            ..FleetReading::default()
        },
    );
    let state = select(vec![
        WorkerState::Ready,
        WorkerState::Ready,
        WorkerState::Starting,
        WorkerState::Draining,
        WorkerState::Broken,
    ]);
    let busy = || proptest::option::of(any::<bool>());
    let worker = (0..40_u32, state, busy(), proptest::option::of(any::<i64>()));
    let list =
        (proptest::collection::vec(worker, 0..8), any::<bool>()).prop_map(|(list, marked)| {
            let workers = list.into_iter().map(|(id, state, busy, started)| Worker {
                // Names sometimes come twice.
                id: format!("w{id}"),
                state,
                busy: busy.filter(|_| marked),
                started_at: started.map(Timestamp::from_millis),
                version: None,
            });
            FleetReading::of(workers.collect())
        });
    prop_oneof![counts, list]
}

fn controls() -> impl Strategy<Value = Controls> {
    let until = || proptest::option::of(0..2_000_000_000_i64);
    let at = |s: Option<i64>| s.map(|s| Timestamp::from_millis(s * 1000));
    let fixed = proptest::option::of((0..20_u32, until()));
    let direction = select(vec![Direction::All, Direction::In, Direction::Out]);
    let pause = proptest::option::of((direction, until()));
    let retry = proptest::option::of(0..2_000_000_000_i64);
    (fixed, pause, retry).prop_map(move |(fixed, pause, retry)| Controls {
        retry: at(retry),
        fixed: fixed.map(|(workers, until)| Fixed { workers, until: at(until) }),
        pause: pause.map(|(direction, until)| Pause { direction, until: at(until) }),
    })
}

fn look(extreme: bool) -> impl Strategy<Value = Look> {
    let jump = if extreme { 3 } else { 0 };
    let after_ms = prop_oneof![
        20 => 0..300_000_i64,
        2 => -4_000_000..0_i64,
        jump => select(vec![i64::MIN, i64::MAX, i64::MIN / 2, i64::MAX / 3]),
    ];
    let outcome = prop_oneof![
        4 => Just(Some(Outcome::Done)),
        1 => Just(Some(Outcome::Failed)),
        1 => Just(Some(Outcome::NotNow)),
        1 => Just(Some(Outcome::Pretended)),
        1 => Just(None),
    ];
    let cadence = select(vec![Cadence::EveryLook, Cadence::OwnPoll]);
    let controls = prop_oneof![9 => Just(None), 1 => controls().prop_map(Some)];
    let allowed = prop_oneof![9 => 0..9_u32, 1 => Just(u32::MAX)];
    let budget = allowed.prop_map(|allowed| Allowance { allowed, total: 9 });
    let budget = proptest::option::weighted(0.3, budget);
    let sights = (sight(queue()), sight(host()), sight(fleet()));
    (after_ms, sights, outcome, controls, cadence, budget).prop_map(
        |(after_ms, (queue, host, fleet), outcome, controls, cadence, budget)| Look {
            after_ms,
            queue,
            host,
            fleet,
            outcome,
            controls,
            cadence,
            budget,
        },
    )
}

/// Every policy, with random parameters.
fn policy() -> impl Strategy<Value = Policy> {
    let cpu_aware = (0..200_i64, 0..200_i64).prop_map(|(idle, cooldown)| {
        Policy::CpuAware(CpuAware {
            idle: Span::from_secs(idle),
            cooldown: Span::from_secs(cooldown),
            ..CpuAware::default()
        })
    });
    let occupancy = (0..400_u32, 1..9_u64, 0..60_u32).prop_map(|(cooldown, jobs, low)| {
        Policy::Occupancy(Occupancy {
            cooldown_seconds: cooldown,
            full_scale_cooldown_seconds: cooldown,
            inc_scale_num_jobs_waiting: jobs,
            dec_scale_occupancy_rate: low.into(),
            ..Occupancy::default()
        })
    });
    let count = select(vec![Count::Waiting, Count::WaitingAndActive]);
    let select = select(vec![Select::Max, Select::Min, Select::Disabled]);
    let ratio = (0.1..20.0_f64, count, 0..5_u64, 0..400_i64, proptest::option::of(select))
        .prop_map(|(jobs_per_worker, count, activation, seconds, select)| {
            let speed = |select| Speed {
                stabilization_window: Some(Span::from_secs(seconds)),
                select,
                policies: None,
            };
            let behavior = select.map(|select| Behavior {
                scale_up: Some(speed(select)),
                scale_down: Some(speed(select)),
            });
            let cooldown = Span::from_secs(seconds);
            Policy::Ratio(Ratio {
                jobs_per_worker,
                count,
                activation,
                cooldown,
                behavior,
                ..Ratio::default()
            })
        });
    let seconds = |most: i64| (0..most).prop_map(Span::from_secs);
    let max_wait = proptest::option::of((1..400_i64).prop_map(Span::from_secs));
    let waiting = prop_oneof![Just(0.0), 0.01..3.0];
    let costs = (seconds(100), seconds(100), waiting);
    let slo = (max_wait, costs).prop_map(|(max_wait, (price, billing, waiting))| {
        Policy::Slo(Slo {
            max_wait,
            price_per_start: price,
            price_of_waiting: waiting,
            minimum_billing: billing,
            ..Slo::default()
        })
    });
    prop_oneof![cpu_aware, occupancy, ratio, slo]
}

prop_compose! {
    fn rules()(
        min in 0..4_u32,
        more in 0..6_u32,
        busy in select(vec![Busy::Protect, Busy::Protect, Busy::Drain, Busy::Any]),
        step in proptest::option::of(1..4_u32),
        fallback in proptest::option::of(0..9_u32),
        off in any::<bool>(),
        slots in prop_oneof![3 => Just(1_u32), 1 => 2..5_u32],
        capacity in proptest::option::of(1.0..100.0_f64),
        cpu_pressure in proptest::option::of(Just(Pressure { resume: 30.0, emergency: 60.0, off: false })),
        policy in policy(),
    ) -> Rules {
        let max = (min + more).max(1);
        Rules {
            workers: Bounds { min, max, slots, ..Bounds::default() },
            policy,
            brake: Brake { off, cpu_pressure, ..Brake::default() },
            capacity: Capacity { cpu: capacity, memory: capacity, off: capacity.is_none() },
            limits: Limits { step_out: step, step_in: step },
            busy,
            fallback: fallback.map(|n| Fallback {
                after: Span::from_secs(100),
                workers: n.clamp(min, max),
            }),
            ..Rules::default()
        }
    }
}

fn history(extreme: bool) -> impl Strategy<Value = Vec<Look>> {
    proptest::collection::vec(look(extreme), 1..30)
}

/// Plays a history and shows every decision, with the state after it, to `check`.
fn play(
    rules: &Rules,
    looks: &[Look],
    mut check: impl FnMut(&Look, &Observation, &Decision, &State) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let (mut state, mut now) = (State::default(), Timestamp::from_millis(1_790_000_000_000));
    for look in looks {
        now = Timestamp::from_millis(now.as_millis().saturating_add(look.after_ms));
        let seen = prepare(&mut state, look, now);
        let decision = decide(rules, &mut state, &seen, look.cadence, now);
        check(look, &seen, &decision, &state)?;
    }
    Ok(())
}

/// What happens before a look; returns what it sees.
fn prepare(state: &mut State, look: &Look, now: Timestamp) -> Observation {
    if let Some(outcome) = look.outcome {
        state.note(outcome, now);
    }
    if let Some(controls) = &look.controls {
        state.controls = controls.clone();
    }
    Observation {
        t: now,
        queue: look.queue.reading(now),
        host: look.host.reading(now),
        fleet: look.fleet.reading(now),
        budget: look.budget,
    }
}

/// The answer, if the decision may rely on it.
fn trusted<T>(sight: &Sight<T>, rules: &Rules, credible: impl Fn(&T) -> bool) -> bool {
    match sight {
        Sight::Silent(_) => false,
        Sight::Answer(value, age) => age.abs() <= rules.stale_after() && credible(value),
    }
}

/// Whether everything that a decision needs is known, and the queue hands out jobs.
fn all_is_known(rules: &Rules, look: &Look) -> bool {
    trusted(&look.queue, rules, |q| q.paused != Some(true))
        && (!rules.policy.needs_host() || trusted(&look.host, rules, HostReading::is_credible))
}

/// How many workers are idle beyond doubt.
fn surely_idle(fleet: &FleetReading, queue: Option<&QueueReading>) -> u32 {
    let capacity = fleet.ready.saturating_add(fleet.starting);
    let active = queue.map(|q| u32::try_from(q.active).unwrap_or(u32::MAX));
    let listed: Vec<_> = fleet.workers.iter().filter(|w| w.is_capacity()).collect();
    if listed.iter().any(|w| w.busy.is_some()) {
        return listed.iter().filter(|w| w.busy == Some(false)).count() as u32;
    }
    let busy = fleet.busy.or(active).unwrap_or(u32::MAX);
    if listed.is_empty() {
        return capacity.saturating_sub(busy);
    }
    if busy == 0 { capacity } else { 0 }
}

fn known<T>(reading: &Reading<T>) -> Option<&T> {
    reading.value()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_number_stays_within_the_bounds(rules in rules(), looks in history(false)) {
        let (min, max) = (rules.workers.min, rules.workers.max);
        play(&rules, &looks, |_, _, decision, _| {
            let (Some(current), Some(wanted)) = (decision.current, decision.wanted) else {
                return Ok(());
            };
            // What was inside stays inside; what was outside moves towards them or stays.
            let (low, high) = (min.min(current), max.max(current));
            prop_assert!((low..=high).contains(&wanted), "{decision:#?}");
            Ok(())
        })?;
    }

    #[test]
    fn silence_never_shrinks_a_fleet(rules in rules(), looks in history(false)) {
        play(&rules, &looks, |look, _, decision, _| {
            if !all_is_known(&rules, look) {
                prop_assert!(decision.wanted >= decision.current, "{decision:#?}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn only_workers_known_to_be_idle_are_removed(mut rules in rules(), looks in history(false)) {
        rules.busy = Busy::Protect;
        play(&rules, &looks, |_, seen, decision, _| {
            let Some((from, to)) = decision.change().filter(|(from, to)| to < from) else {
                return Ok(());
            };
            let fleet = known(&seen.fleet).expect("a change needs a known fleet");
            let idle = surely_idle(fleet, known(&seen.queue));
            prop_assert!(from - to <= idle, "{idle} idle\n{fleet:#?}\n{decision:#?}");
            let busy =
                |id: &String| fleet.workers.iter().any(|w| &w.id == id && w.busy == Some(true));
            prop_assert!(!decision.victims.iter().any(busy), "{fleet:#?}\n{decision:#?}");
            Ok(())
        })?;
    }

    #[test]
    fn victims_are_exactly_those_that_go(rules in rules(), looks in history(false)) {
        play(&rules, &looks, |_, seen, decision, _| {
            let fleet = known(&seen.fleet).map_or(&[][..], |f| &f.workers);
            let listed: HashSet<_> =
                fleet.iter().filter(|w| w.is_capacity()).map(|w| &w.id).collect();
            let distinct: HashSet<_> = decision.victims.iter().collect();
            prop_assert_eq!(distinct.len(), decision.victims.len());
            prop_assert!(distinct.is_subset(&listed));
            let removed = decision.change().map_or(0, |(from, to)| from.saturating_sub(to));
            let named = if listed.is_empty() { 0 } else { removed as usize };
            prop_assert_eq!(decision.victims.len(), named, "{:#?}", decision);
            Ok(())
        })?;
    }

    #[test]
    fn policies_keep_what_their_sources_promise_of_a_scale_in(
        rules in rules(), looks in history(false)
    ) {
        play(&rules, &looks, |_, seen, decision, _| {
            let (Some(from), Some(to)) = (decision.current, decision.policy_wanted) else {
                return Ok(());
            };
            let rule = decision.trail.first().map(|step| step.rule);
            // From above the bounds any policy may come back.
            if let Some(queue) = known(&seen.queue)
                && to < from && from <= rules.workers.max && rule != Some(Rule::Emergency)
            {
                prop_assert!(may_shrink(&rules.policy, queue, to), "{queue:?}\n{decision:#?}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_reason_tells_the_number_of_its_step_and_what_limited_it(
        rules in rules(),
        looks in history(false),
    ) {
        play(&rules, &looks, |_, _, decision, _| {
            let Some(step) = decision.trail.first() else { return Ok(()) };
            let told = match &step.why {
                Why::Ratio(ratio::Reason::Needs { workers, .. }) => *workers,
                Why::Ratio(ratio::Reason::Stabilised { workers, .. }) => *workers,
                Why::Ratio(ratio::Reason::TooFast { limit, .. }) => *limit,
                Why::Occupancy(occupancy::Reason::Backlog { inc, .. }) => step.before + inc,
                _ => return Ok(()),
            };
            prop_assert_eq!(told, step.after, "{}", step.why);
            // One that insists on the number as it is speaks alone.
            let insists = |s: &Step| s.rule == decision.rule && s.before == s.after;
            let insisted = decision.trail.iter().any(insists);
            let limit = decision.trail[1..].iter().rfind(|s| s.before != s.after);
            if let Some(limit) = limit.filter(|_| !insisted) {
                prop_assert!(decision.reason.contains(&limit.why.to_string()), "{decision:#?}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_stored_state_decides_the_same(rules in rules(), looks in history(false)) {
        let (mut live, mut stored) = (State::default(), State::default());
        let mut now = Timestamp::from_millis(1_790_000_000_000);
        for look in &looks {
            now = Timestamp::from_millis(now.as_millis() + look.after_ms);
            let text = serde_json::to_string(&stored).unwrap();
            prop_assert!(text.len() < MOST_BYTES, "the state grows: {} bytes", text.len());
            stored = serde_json::from_str(&text).unwrap();
            let seen = prepare(&mut live, look, now);
            prepare(&mut stored, look, now);
            let first = decide(&rules, &mut live, &seen, look.cadence, now);
            let second = decide(&rules, &mut stored, &seen, look.cadence, now);
            prop_assert_eq!(&first, &second);
            prop_assert_eq!(&live, &stored);
            let read: Decision =
                serde_json::from_str(&serde_json::to_string(&first).unwrap()).unwrap();
            prop_assert_eq!(read, first);
        }
    }

    #[test]
    fn a_restart_removes_nothing(rules in rules(), looks in history(false), gap in 91..100_000_i64) {
        let (mut state, mut now) = (State::default(), Timestamp::from_millis(1_790_000_000_000));
        let (last, before) = looks.split_last().expect("a history has a look");
        for look in before {
            now = Timestamp::from_millis(now.as_millis() + look.after_ms);
            let seen = prepare(&mut state, look, now);
            decide(&rules, &mut state, &seen, look.cadence, now);
        }
        let started = state.seen_at.is_some();
        now = now.plus(Span::from_secs(gap));
        state.resume(&rules, now);
        let seen = prepare(&mut state, last, now);
        let decision = decide(&rules, &mut state, &seen, last.cadence, now);
        if started {
            prop_assert!(decision.wanted >= decision.current, "{decision:#?}");
        }
    }

    #[test]
    fn any_input_gives_a_decision_with_finite_numbers(rules in rules(), looks in history(true)) {
        play(&rules, &looks, |_, _, decision, state| {
            let json = serde_json::to_value(decision).unwrap();
            prop_assert!(all_numbers_are_finite("", &json), "{json:#}");
            prop_assert_eq!(decision.kind == Kind::Hold, decision.change().is_none());
            prop_assert!(serde_json::to_string(state).unwrap().len() < MOST_BYTES);
            let clear = !decision.reason.is_empty() && decision.reason.len() < 350;
            prop_assert!(clear, "{}", decision.reason);
            for (before, after) in decision.trail.iter().zip(decision.trail.iter().skip(1)) {
                prop_assert_eq!(before.after, after.before, "a gap in the trail");
            }
            prop_assert_eq!(decision.trail.last().map(|s| s.after), decision.wanted.or(Some(0)));
            Ok(())
        })?;
    }
}

/// Whether a policy may go down to `to` workers with these jobs.
fn may_shrink(policy: &Policy, queue: &QueueReading, to: u32) -> bool {
    let all = queue.waiting.saturating_add(queue.active);
    match policy {
        Policy::Slo(_) => queue.waiting == 0,
        Policy::CpuAware(_) => all == 0,
        Policy::Occupancy(policy) => queue.waiting < policy.inc_scale_num_jobs_waiting,
        Policy::Ratio(policy) => {
            let jobs = if policy.count == Count::Waiting { queue.waiting } else { all };
            jobs <= policy.activation || f64::from(to) * policy.jobs_per_worker >= jobs as f64
        }
    }
}

/// JSON has no NaN: one would be written as null, which is right only where nothing is known.
fn all_numbers_are_finite(key: &str, value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null => ["until", "current", "policy_wanted", "wanted"].contains(&key),
        serde_json::Value::Array(items) => items.iter().all(|v| all_numbers_are_finite(key, v)),
        serde_json::Value::Object(fields) => {
            let fields: BTreeMap<_, _> = fields.iter().collect();
            fields.iter().all(|(key, value)| all_numbers_are_finite(key, value))
        }
        _ => true,
    }
}

/// Large fleets, lists and numbers, never the same twice, under one policy after the other.
#[test]
fn a_state_stays_small_whatever_policies_it_has_served() {
    let mut rng = fastrand::Rng::with_seed(1);
    let policies = [
        Policy::Slo(Slo { max_wait: Some(Span::from_secs(10)), ..Slo::default() }),
        Policy::Occupancy(Occupancy::default()),
        Policy::Ratio(Ratio::default()),
        Policy::CpuAware(CpuAware::default()),
    ];
    let (mut state, mut now) = (State::default(), Timestamp::from_millis(1_790_000_000_000));
    for policy in policies.iter().cycle().take(8) {
        let workers = Bounds { min: 0, max: 10_000, ..Bounds::default() };
        let rules = Rules { workers, policy: policy.clone(), ..Rules::default() };
        for _ in 0..400 {
            now = now.plus(Span::from_millis(rng.i64(1..20_000)));
            let seen = crowd(&mut rng, now);
            decide(&rules, &mut state, &seen, Cadence::EveryLook, now);
            state.note(Outcome::Done, now);
        }
        let bytes = serde_json::to_string(&state).unwrap().len();
        assert!(bytes < MOST_BYTES, "{bytes} bytes under {}", policy.name());
    }
}

fn crowd(rng: &mut fastrand::Rng, now: Timestamp) -> Observation {
    // From a handful to thousands, each as likely.
    let mut number = || 10_f64.powf(rng.f64() * 4.0) as u32;
    let (ready, starting, waiting) = (number(), number(), u64::from(number()));
    let busy = number().min(ready);
    let mut list =
        || -> Vec<Span> { (0..256).map(|_| Span::from_millis(rng.i64(0..100_000_000))).collect() };
    let (ages, durations) = (list(), list());
    let tag = format!("{:>60}", rng.u32(0..40));
    let queue = QueueReading {
        waiting,
        active: busy.into(),
        ages,
        durations_by_tag: [(tag, durations.clone())].into(),
        durations,
        ..QueueReading::default()
    };
    let mut percent = || (rng.f64() * 10_000.0).round() / 100.0;
    let host = HostReading {
        cpu_raw: percent(),
        mem: Some(percent()),
        cores: Some(64.0),
        ..HostReading::default()
    };
    let fleet = FleetReading { ready, starting, busy: Some(busy), ..FleetReading::default() };
    Observation {
        t: now,
        queue: Reading::known(queue, now),
        host: Reading::known(host, now),
        fleet: Reading::known(fleet, now),
        budget: None,
    }
}
