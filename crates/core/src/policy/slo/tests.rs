//! The policy as a whole: what it wants of a fleet, and how it says so.

use super::*;
use crate::policy::{Policy, PolicyState};
use crate::reading::{FleetReading, LIST_LIMIT};
use crate::scene::Scene;
use crate::state::State;
use crate::{Cadence, HostReading, Observation, Reading, decide};

/// `ready` workers, `busy` of them busy, at most 10; a start takes 15 s.
fn scene(ready: u32, starting: u32, busy: u32, max_wait: i64) -> Scene {
    let mut scene = Scene::new(0);
    scene.rules.workers.min = 0;
    scene.rules.workers.start_up = Some(Span::from_secs(15));
    scene.rules.policy =
        Policy::Slo(Slo { max_wait: Some(Span::from_secs(max_wait)), ..Slo::default() });
    scene.fleet = FleetReading { ready, starting, busy: Some(busy), ..FleetReading::default() };
    scene.queue.as_mut().unwrap().active = busy.into();
    scene
}

fn spans(seconds: &[i64]) -> Vec<Span> {
    seconds.iter().map(|s| Span::from_secs(*s)).collect()
}

/// A state that has seen jobs of 10 s.
fn learnt() -> PolicyState {
    let mut state = PolicyState::default();
    state.slo.estimate.durations = vec![10.0; 20].into();
    state
}

/// Name; ready, starting, busy; max_wait; waits, ages; wanted.
type Row = (&'static str, [u32; 3], i64, &'static [i64], &'static [i64], u32);

#[test]
fn the_fewest_workers_that_start_every_job_in_time() {
    let table: [Row; 10] = [
        ("nothing to do", [0, 0, 0], 60, &[], &[], 0),
        ("from zero", [0, 0, 0], 60, &[0], &[], 1),
        ("one new worker does five in time", [0, 0, 0], 60, &[0; 5], &[], 1),
        ("and not six", [0, 0, 0], 60, &[0; 6], &[], 2),
        ("a starting one will", [0, 1, 0], 60, &[5; 4], &[], 1),
        ("a busy one will", [1, 0, 1], 60, &[0, 0], &[2], 1),
        ("a busy one that never ends will not", [1, 0, 1], 60, &[0, 0], &[900], 2),
        ("too late for all but a new one", [1, 0, 1], 60, &[58], &[900], 2),
        ("a wait of minutes", [1, 0, 1], 300, &[0; 20], &[2], 1),
        ("no more than max", [0, 0, 0], 60, &[0; 90], &[], 10),
    ];
    for (name, [ready, starting, busy], max_wait, waits, ages, wanted) in table {
        let mut scene = scene(ready, starting, busy, max_wait);
        let queue = scene.queue.as_mut().unwrap();
        (queue.waiting, queue.waits, queue.ages) = (waits.len() as u64, spans(waits), spans(ages));
        let wish = scene.rules.policy.wish(&mut learnt(), &scene.look());
        assert_eq!(wish.wanted, wanted, "{name}: {}", wish.why);
    }
}

#[test]
fn a_worker_with_more_slots_does_more() {
    let mut scene = scene(0, 0, 0, 60);
    scene.rules.workers.slots = 4;
    let queue = scene.queue.as_mut().unwrap();
    (queue.waiting, queue.waits) = (20, spans(&[0; 20]));
    assert_eq!(scene.rules.policy.wish(&mut learnt(), &scene.look()).wanted, 1);
}

#[test]
fn idle_workers_stay_as_long_as_a_start_is_worth() {
    let (mut scene, mut state) = (scene(3, 0, 3, 60), learnt());
    let mut numbers = Vec::new();
    for busy in [3, 3, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0] {
        scene.later(5);
        scene.fleet.busy = Some(busy);
        let queue = scene.queue.as_mut().unwrap();
        (queue.active, queue.ages) = (busy.into(), spans(&vec![100; busy as usize]));
        let wish = scene.rules.policy.wish(&mut state, &scene.look());
        numbers.push(wish.wanted);
        scene.fleet.ready = wish.wanted;
    }
    assert_eq!(numbers, [3, 3, 3, 3, 1, 1, 1, 1, 1, 0, 0, 0]);
}

#[test]
fn nothing_goes_while_jobs_wait() {
    let mut scene = scene(5, 0, 1, 60);
    let queue = scene.queue.as_mut().unwrap();
    (queue.waiting, queue.waits) = (1, spans(&[0]));
    for _ in 0..50 {
        scene.later(5);
        assert_eq!(scene.rules.policy.wish(&mut learnt(), &scene.look()).wanted, 5);
    }
}

#[test]
fn a_price_of_starts_makes_steps_wait_for_each_other() {
    let mut scene = scene(1, 0, 1, 60);
    let Policy::Slo(policy) = &mut scene.rules.policy else { unreachable!() };
    policy.price_per_start = Span::from_secs(45);
    let mut wanted = |waited| {
        let queue = scene.queue.as_mut().unwrap();
        (queue.waiting, queue.waits, queue.ages) = (1, spans(&[waited]), spans(&[900]));
        scene.rules.policy.wish(&mut learnt(), &scene.look()).wanted
    };
    // 60 s less a late start of 17 s and two polls leave 33 s; six sevenths of them are used.
    assert_eq!((wanted(0), wanted(27), wanted(29)), (1, 1, 2));
}

#[test]
fn a_source_that_tells_no_ages_does_not_hide_a_job_that_never_ends() {
    let (mut scene, mut state) = (scene(2, 0, 2, 60), PolicyState::default());
    let mut first_order = None;
    for look in 0..60 {
        scene.later(5);
        let queue = scene.queue.as_mut().unwrap();
        (queue.waiting, queue.active) = (3, 2);
        queue.oldest_wait = Some(Span::from_secs(5 * look));
        if scene.rules.policy.wish(&mut state, &scene.look()).wanted > 2 {
            first_order = first_order.or(Some(5 * look));
        }
    }
    assert!(first_order.is_some_and(|s| s <= 60), "{first_order:?}");
}

#[test]
fn a_price_of_waiting_orders_more_than_the_wanted_wait_asks_for() {
    let wanted = |max_wait: Option<i64>, price: f64, waiting: usize| {
        let mut scene = scene(1, 0, 1, 60);
        let Policy::Slo(policy) = &mut scene.rules.policy else { unreachable!() };
        policy.max_wait = max_wait.map(Span::from_secs);
        policy.price_of_waiting = price;
        let queue = scene.queue.as_mut().unwrap();
        queue.waiting = waiting as u64;
        (queue.waits, queue.ages) = (spans(&vec![0; waiting]), spans(&[2]));
        scene.rules.policy.wish(&mut learnt(), &scene.look()).wanted
    };
    // The busy one is free in 8 s, before a new one could be there.
    assert_eq!((wanted(Some(60), 0.0, 1), wanted(Some(60), 1.0, 1)), (1, 1));
    assert_eq!((wanted(Some(60), 0.0, 5), wanted(Some(60), 1.0, 5)), (1, 5));
    // Without a wanted wait the price alone decides: the less it is, the fewer start.
    assert_eq!([1.0, 0.05, 0.01].map(|price| wanted(None, price, 5)), [5, 2, 1]);
    // With one it is kept however cheap waiting is.
    assert_eq!((wanted(Some(60), 0.001, 40), wanted(None, 0.001, 40)), (8, 2));
}

#[test]
fn each_reason_is_a_sentence_with_its_numbers() {
    let say = |mut scene: Scene, state: &mut PolicyState, waits: &[i64]| {
        let queue = scene.queue.as_mut().unwrap();
        (queue.waiting, queue.waits) = (waits.len() as u64, spans(waits));
        queue.ages = spans(&vec![900; queue.active as usize]);
        let wish = scene.rules.policy.wish(state, &scene.look());
        format!("{} {}", wish.wanted, wish.why)
    };
    let mut priced = scene(1, 0, 1, 60);
    let Policy::Slo(policy) = &mut priced.rules.policy else { unreachable!() };
    policy.price_of_waiting = 1.0;
    let mut warm = learnt();
    warm.slo.price.spend(14, 10, 60.0);
    warm.slo.levels.observe(3, 3, Scene::new(0).now.plus(Span::from_secs(-5)), 15.0);
    let mut idle = learnt();
    idle.slo.levels.observe(1, 4, Scene::new(0).now.plus(Span::from_secs(-600)), 15.0);
    let table = [
        (
            scene(0, 0, 0, 60),
            PolicyState::default(),
            &[0][..],
            "1 deadline-drain: 1 waiting would start after more than 60 s: 1 more \
             (cautious: no job has finished yet)",
        ),
        (
            scene(1, 1, 1, 60),
            learnt(),
            &[0],
            "2 deadline-drain: 1 waiting will start within 60 s, or as soon as can be",
        ),
        (
            priced,
            learnt(),
            &[0; 5],
            "6 deadline-drain: 5 waiting, each second of it worth 1 s of a worker: 5 more",
        ),
        (scene(10, 0, 10, 60), learnt(), &[0; 20], "10 deadline-drain: max 10 is 4 short for 60 s"),
        (scene(2, 0, 2, 60), learnt(), &[], "2 deadline-drain: 2 needed, as many as there are"),
        (
            scene(4, 0, 1, 60),
            idle,
            &[],
            "1 deadline-drain: 1 needed, 3 beyond that idle for longer than a start is worth",
        ),
        (
            scene(1, 0, 0, 10),
            warm,
            &[],
            "3 level-hazard: 10 s are too short for a start of 15 s: \
             keeping 3 warm, expected cost +40 %",
        ),
    ];
    for (scene, mut state, waits, expected) in table {
        assert_eq!(say(scene, &mut state, waits), expected);
    }
}

/// A start without a memory, and a break in what is known, are no reason to stop anybody: who is
/// there then may have been needed a moment before.
#[test]
fn workers_found_at_the_start_or_after_a_break_stay_as_long_as_one_that_was_needed() {
    for max_wait in [60, 10] {
        let (mut scene, mut state) = (scene(4, 0, 0, max_wait), PolicyState::default());
        scene.rules.workers.min = 0;
        for _ in 0..2 {
            let mut stayed = 0;
            while scene.rules.policy.wish(&mut state, &scene.look()).wanted == 4 {
                scene.later(5);
                stayed += 5;
                assert!(stayed < 600, "not for ever");
            }
            // A start takes 15 s: an idle worker is kept until it has cost as much, or a missed job.
            assert!(stayed >= 15, "max_wait {max_wait} s: gone after {stayed} s");
            state.slo.interrupted();
        }
    }
}

#[test]
fn the_wanted_wait_is_twice_a_start_and_a_poll_unless_said() {
    let (policy, scene) = (Slo::default(), scene(0, 0, 0, 1));
    let facts = policy.facts(&SloState::default(), &scene.look());
    assert_eq!((facts.wait, facts.regime), (40.0, Regime::DeadlineDrain));
}

/// The largest fleets, the longest lists, and never the same twice.
#[test]
fn the_state_stays_small() {
    let mut rng = fastrand::Rng::with_seed(1);
    for max_wait in [10, 600] {
        let mut rules = scene(0, 0, 0, max_wait).rules;
        rules.workers.max = 10_000;
        let (mut state, mut now) = (State::default(), Scene::new(0).now);
        for _ in 0..1_000 {
            now = now.plus(Span::from_millis(rng.i64(1..20_000)));
            // From a handful to thousands, each as likely.
            let mut number = || 10_f64.powf(rng.f64() * 4.0) as u32;
            let (ready, starting, waiting) = (number(), number(), u64::from(number()));
            let busy = number().min(ready);
            let mut list = || -> Vec<Span> {
                let some = (0..LIST_LIMIT).map(|_| Span::from_millis(rng.i64(0..100_000_000)));
                some.collect()
            };
            let queue = QueueReading {
                waiting,
                active: busy.into(),
                ages: list(),
                durations: list(),
                ..QueueReading::default()
            };
            let fleet =
                FleetReading { ready, starting, busy: Some(busy), ..FleetReading::default() };
            let seen = Observation {
                t: now,
                queue: Reading::known(queue, now),
                host: Reading::known(HostReading::default(), now),
                fleet: Reading::known(fleet, now),
                budget: None,
            };
            decide(&rules, &mut state, &seen, Cadence::EveryLook, now);
        }
        let bytes = serde_json::to_string(&state).unwrap().len();
        assert!(bytes < 64 * 1024, "{bytes} bytes with {max_wait} s");
    }
}
