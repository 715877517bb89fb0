//! The decision against an independent straight-line model of the reference autoscaler's rule:
//! 10,000 random histories, the same number at every step.
//!
//! The model is written from the published rule alone. It keeps its own smoothed CPU, idle clock
//! and cooldown, decides by itself what was done, and rounds with integers.

use fastrand::Rng;
use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::reading::{FleetReading, HostReading, QueueReading};
use headcount_core::rules::{Bounds, Brake, Busy};
use headcount_core::state::Outcome;
use headcount_core::{
    Cadence, Kind, Observation, Policy, Reading, Rules, Span, State, Timestamp, decide,
};

const HISTORIES: u64 = 10_000;
const MOST_STEPS: u32 = 60;

/// The settings of the reference, in its own units.
#[derive(Clone, Copy, Debug)]
struct Settings {
    min_workers: u32,
    max_workers: u32,
    cpu_scale_up_max: f64,
    cpu_scale_down_emergency: f64,
    idle_before_scaledown_s: i64,
    cooldown_s: i64,
    ewma_alpha_up: f64,
    ewma_alpha_down: f64,
}

const PUBLISHED: Settings = Settings {
    min_workers: 1,
    max_workers: 4,
    cpu_scale_up_max: 65.0,
    cpu_scale_down_emergency: 88.0,
    idle_before_scaledown_s: 120,
    cooldown_s: 90,
    ewma_alpha_up: 0.5,
    ewma_alpha_down: 0.1,
};

/// The reference's memory.
#[derive(Clone, Copy, Debug, Default)]
struct Reference {
    cpu_ema: Option<f64>,
    idle_since: Option<i64>,
    last_scale_time: Option<i64>,
}

/// What one poll sees.
#[derive(Clone, Copy, Debug)]
struct Poll {
    now: i64,
    cpu_raw: f64,
    waiting: u64,
    active: u64,
    workers: u32,
}

impl Reference {
    /// One poll: the number the rule and the cooldown ask for.
    fn poll(&mut self, set: &Settings, seen: Poll) -> u32 {
        let Poll { now, cpu_raw, waiting, active, workers } = seen;
        let cpu_ema = match self.cpu_ema {
            None => cpu_raw,
            Some(ema) if cpu_raw > ema => {
                rounded(set.ewma_alpha_up * cpu_raw + (1.0 - set.ewma_alpha_up) * ema)
            }
            Some(ema) => rounded(set.ewma_alpha_down * cpu_raw + (1.0 - set.ewma_alpha_down) * ema),
        };
        self.cpu_ema = Some(cpu_ema);
        if waiting > 0 || active > 0 {
            self.idle_since = None;
        } else if self.idle_since.is_none() {
            self.idle_since = Some(now);
        }
        let cpu = if cpu_ema > cpu_raw { cpu_ema } else { cpu_raw };
        let mut desired = workers;
        if cpu > set.cpu_scale_down_emergency && workers > set.min_workers {
            desired = workers - 1;
        } else if waiting > 0
            && cpu_ema < set.cpu_scale_up_max
            && cpu_raw < set.cpu_scale_up_max
            && workers < set.max_workers
        {
            desired = workers + 1;
        } else if waiting == 0
            && active == 0
            && workers > set.min_workers
            && let Some(since) = self.idle_since
            && now - since >= set.idle_before_scaledown_s
        {
            desired = workers - 1;
        }
        match self.last_scale_time {
            Some(last) if now - last < set.cooldown_s => workers,
            _ => desired,
        }
    }

    /// The change from `workers` to `desired` was carried out.
    fn scaled(&mut self, now: i64, workers: u32, desired: u32) {
        self.last_scale_time = Some(now);
        if desired < workers {
            self.idle_since = None;
        }
    }
}

/// `round(x, 1)` of Python for 0 <= x < 2^40: the exact binary value to the nearest tenth, ties to
/// even, in integers.
fn rounded(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1075;
    let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
    if x == 0.0 || exponent < -110 {
        return 0.0;
    }
    assert!(exponent < 0, "{x} is too large for this model");
    let ten_times = mantissa * 10;
    let (whole, rest) = (ten_times >> -exponent, ten_times & ((1 << -exponent) - 1));
    let half = 1_u128 << (-exponent - 1);
    let up = rest > half || (rest == half && whole % 2 == 1);
    (whole + u128::from(up)) as f64 / 10.0
}

fn random_settings(rng: &mut Rng) -> Settings {
    if rng.u8(0..2) == 0 {
        return PUBLISHED;
    }
    let min_workers = rng.u32(0..4);
    let cpu_scale_up_max = f64::from(rng.u32(200..900)) / 10.0;
    Settings {
        min_workers,
        max_workers: (min_workers + rng.u32(0..7)).max(1),
        cpu_scale_up_max,
        cpu_scale_down_emergency: (cpu_scale_up_max + f64::from(rng.u32(0..300)) / 10.0).min(100.0),
        idle_before_scaledown_s: rng.i64(0..300),
        cooldown_s: rng.i64(0..200),
        ewma_alpha_up: f64::from(rng.u32(1..=10)) / 10.0,
        ewma_alpha_down: f64::from(rng.u32(1..=10)) / 10.0,
    }
}

fn rules_of(set: &Settings) -> Rules {
    Rules {
        workers: Bounds { min: set.min_workers, max: set.max_workers, ..Bounds::default() },
        policy: Policy::CpuAware(CpuAware {
            poll: Span::from_secs(30),
            scale_out_below: set.cpu_scale_up_max,
            emergency: set.cpu_scale_down_emergency,
            idle: Span::from_secs(set.idle_before_scaledown_s),
            cooldown: Span::from_secs(set.cooldown_s),
            alpha_up: set.ewma_alpha_up,
            alpha_down: set.ewma_alpha_down,
        }),
        brake: Brake { off: true, ..Brake::default() },
        busy: Busy::Any,
        ..Rules::default()
    }
}

/// CPU with one decimal, most often close to a threshold, and in runs.
fn next_cpu(rng: &mut Rng, set: &Settings, last: f64) -> f64 {
    let tenths = match rng.u8(0..10) {
        0..=2 => last * 10.0 + f64::from(rng.i32(-30..=30)),
        3..=4 => set.cpu_scale_up_max * 10.0 + f64::from(rng.i32(-3..=3)),
        5 => set.cpu_scale_down_emergency * 10.0 + f64::from(rng.i32(-3..=3)),
        6..=7 => f64::from(rng.u32(0..400)),
        _ => f64::from(rng.u32(0..=1000)),
    };
    tenths.round().clamp(0.0, 1000.0) / 10.0
}

/// Demand comes and goes in runs, so that the idle clock gets its time.
fn next_demand(rng: &mut Rng, last: (u64, u64)) -> (u64, u64) {
    match (rng.u8(0..10), last) {
        (0..=6, (0, 0)) => (0, 0),
        (0..=2, same) => same,
        (3..=4, _) => (0, 0),
        (5, _) => (0, rng.u64(1..5)),
        (6, _) => (rng.u64(1..20), 0),
        _ => (rng.u64(0..20), rng.u64(0..5)),
    }
}

fn observation(seen: Poll) -> Observation {
    let Poll { now, cpu_raw, waiting, active, workers } = seen;
    let t = Timestamp::from_millis(now * 1000);
    let queue = QueueReading { waiting, active, ..QueueReading::default() };
    let host = HostReading { cpu_raw, ..HostReading::default() };
    let fleet = FleetReading { ready: workers, ..FleetReading::default() };
    Observation {
        t,
        queue: Reading::known(queue, t),
        host: Reading::known(host, t),
        fleet: Reading::known(fleet, t),
        budget: None,
    }
}

/// What a run of histories went through, so that the test can tell it tried something.
#[derive(Debug, Default)]
struct Seen {
    outs: u32,
    idle_ins: u32,
    emergencies: u32,
    failures: u32,
    breaker_holds: u32,
}

/// One history. With `streaks`, actions may fail several times in a row: then the breaker holds
/// what the rule wants, so only what the policy wanted is compared.
fn history(seed: u64, streaks: bool, seen: &mut Seen) {
    let rng = &mut Rng::with_seed(seed);
    let set = random_settings(rng);
    let (rules, mut state, mut model) = (rules_of(&set), State::default(), Reference::default());
    assert!(rules.problems().is_empty(), "{:?}", rules.problems());
    let mut now = 1_790_000_000 + rng.i64(0..1000);
    let mut workers = rng.u32(set.min_workers..=set.max_workers);
    let (mut cpu_raw, mut demand) = (f64::from(rng.u32(0..=1000)) / 10.0, (0, 0));
    let mut failed_last = false;
    for step in 0..rng.u32(MOST_STEPS / 2..=MOST_STEPS) {
        cpu_raw = next_cpu(rng, &set, cpu_raw);
        demand = next_demand(rng, demand);
        let poll = Poll { now, cpu_raw, waiting: demand.0, active: demand.1, workers };
        let expected = model.poll(&set, poll);
        let t = Timestamp::from_millis(now * 1000);
        let decision = decide(&rules, &mut state, &observation(poll), Cadence::EveryLook, t);
        let place = || format!("seed {seed} step {step}\n{set:?}\n{poll:?}\n{decision:#?}");
        assert_eq!(decision.policy_wanted, Some(expected), "policy_wanted, {}", place());
        if !streaks {
            assert_eq!(decision.wanted, Some(expected), "wanted, {}", place());
        }
        let wanted = decision.wanted.expect("the fleet is known");
        if wanted != workers {
            let one_in = if streaks { 2 } else { 4 };
            let fails = rng.u8(0..one_in) == 0 && (streaks || !failed_last);
            failed_last = fails;
            if fails {
                seen.failures += 1;
                state.note(Outcome::Failed, t);
            } else {
                state.note(Outcome::Done, t);
                model.scaled(now, workers, wanted);
                workers = wanted;
            }
        }
        match decision.kind {
            Kind::ScaleOut => seen.outs += 1,
            Kind::ScaleIn => seen.idle_ins += 1,
            Kind::EmergencyScaleIn => seen.emergencies += 1,
            _ => seen.breaker_holds += u32::from(wanted != expected),
        }
        if rng.u8(0..40) == 0 {
            // Somebody else changed the fleet.
            workers = rng.u32(set.min_workers..=set.max_workers);
        }
        now += if rng.bool() { 30 } else { rng.i64(1..=200) };
    }
}

#[test]
fn ten_thousand_histories_decide_as_the_reference() {
    let mut seen = Seen::default();
    for seed in 0..HISTORIES {
        history(seed, seed % 5 > 2, &mut seen);
    }
    // The histories must reach every rule often, or they prove nothing.
    let Seen { outs, idle_ins, emergencies, failures, breaker_holds } = seen;
    for count in [outs, idle_ins, emergencies, failures, breaker_holds] {
        assert!(count > 1000, "{seen:?}");
    }
}

#[test]
fn the_model_rounds_like_python() {
    // From Python 3: [round(x, 1) for x in ...].
    let table =
        [(0.25, 0.2), (0.35, 0.3), (0.75, 0.8), (64.95, 65.0), (2.65, 2.6), (0.0, 0.0), (1.0, 1.0)];
    for (x, expected) in table {
        assert_eq!(rounded(x), expected, "round({x}, 1)");
    }
}

#[test]
fn two_removals_of_an_idle_fleet_are_150_s_apart() {
    let rules = rules_of(&PUBLISHED);
    let (mut state, mut workers, mut removals) = (State::default(), 3, Vec::new());
    for poll in 0..20 {
        let now = poll * 30;
        let seen = Poll { now, cpu_raw: 5.0, waiting: 0, active: 0, workers };
        let t = Timestamp::from_millis(now * 1000);
        let decision = decide(&rules, &mut state, &observation(seen), Cadence::EveryLook, t);
        if let Some((_, to)) = decision.change() {
            state.note(Outcome::Done, t);
            (workers, removals) = (to, [removals, vec![now]].concat());
        }
    }
    assert_eq!(removals, [120, 270]);
}
