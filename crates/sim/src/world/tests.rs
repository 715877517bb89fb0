//! Hand-made moments of the world.

use headcount_core::reading::{FleetReading, WorkerState};
use headcount_core::{Reading, Silence, Span, Timestamp};

use super::group::State;
use super::*;
use crate::trace::Job;

fn seconds(s: u64) -> Moment {
    Moment::from_micros(s * 1_000_000)
}

fn trace(services: &[u64]) -> Trace {
    let job = |s: &u64| Job { service: seconds(*s), ..Job::default() };
    Trace { jobs: services.iter().map(job).collect(), classes: Vec::new() }
}

/// Workers start in 5 s and have a grace of 10 s.
fn world(trace: &Trace, slots: u32) -> World<'_> {
    let rules = WorldRules {
        start_up: Span::from_secs(5),
        start_up_spread: 0.0,
        grace: Some(Span::from_secs(10)),
        slots: Some(slots),
        ..WorldRules::default()
    };
    World::new(&[(trace, &rules)], 1)
}

fn count(world: &World<'_>) -> FleetReading {
    world.groups[0].count()
}

fn nothing() -> Observation {
    Observation {
        t: Timestamp::default(),
        queue: Reading::missing(Silence::Absent, ""),
        host: Reading::missing(Silence::Absent, ""),
        fleet: Reading::missing(Silence::Absent, ""),
        budget: None,
    }
}

#[test]
fn a_killed_job_starts_again_on_the_next_worker() {
    let trace = trace(&[100]);
    let mut world = world(&trace, 1);
    world.scale(0, 1, Victims::IdleFirst);
    world.advance(seconds(20));
    // Told to go at 20, killed at 30.
    world.scale(0, 0, Victims::IdleFirst);
    world.advance(seconds(29));
    assert_eq!((count(&world).draining, world.groups[0].tally.busy_kills), (1, 0));
    world.advance(seconds(45));
    assert_eq!((world.waiting(0), world.groups[0].tally.busy_kills), (1, 1));
    world.scale(0, 1, Victims::IdleFirst);
    world.advance(seconds(149));
    assert!(!world.is_done(0));
    world.advance(seconds(150));
    assert!(world.is_done(0));
    // Its wait is that of the attempt that finished; both workers are paid.
    let (end, tallies) = world.close();
    assert_eq!((end, tallies[0].waits[0]), (seconds(150), seconds(50)));
    assert_eq!(tallies[0].paid, seconds(30 + 105));
}

#[test]
fn a_killed_job_goes_to_a_worker_that_is_idle() {
    let trace = trace(&[100]);
    let mut world = world(&trace, 1);
    world.scale(0, 1, Victims::IdleFirst);
    world.advance(seconds(10));
    world.scale(0, 0, Victims::IdleFirst);
    world.scale(0, 1, Victims::IdleFirst);
    world.advance(seconds(20));
    assert_eq!((count(&world).busy, world.waiting(0)), (Some(1), 0));
}

#[test]
fn a_worker_that_drains_in_time_is_not_killed_and_takes_no_more() {
    let trace = trace(&[20, 1]);
    let mut world = world(&trace, 1);
    world.scale(0, 1, Victims::IdleFirst);
    world.advance(seconds(15));
    world.scale(0, 0, Victims::IdleFirst);
    world.advance(seconds(100));
    let fleet = count(&world);
    assert_eq!((fleet.capacity(), fleet.draining, world.waiting(0)), (0, 0, 1));
    assert_eq!((world.groups[0].tally.busy_kills, world.groups[0].tally.paid), (0, seconds(25)));
}

#[test]
fn idle_ones_go_first_starting_ones_before_ready_ones_and_the_youngest_of_each() {
    let trace = trace(&[1000]);
    let mut world = world(&trace, 1);
    world.scale(0, 3, Victims::IdleFirst);
    world.advance(seconds(10));
    world.scale(0, 5, Victims::IdleFirst);
    // 0 is busy, 1 and 2 are idle, 3 and 4 are starting.
    let mut gone = Vec::new();
    for left in (0..5).rev() {
        let before = world.groups[0].live.clone();
        world.scale(0, left, Victims::IdleFirst);
        let went = |w: &u32| world.groups[0].workers[*w as usize].state != State::Draining;
        gone.extend(before.into_iter().filter(|w| !world.groups[0].live.contains(w) && went(w)));
    }
    assert_eq!(gone, [4, 3, 2, 1]);
    assert_eq!((count(&world).draining, world.groups[0].tally.wasted_starts), (1, 4));
}

#[test]
fn a_worker_runs_as_many_jobs_as_it_has_slots() {
    let trace = trace(&[10, 10, 10]);
    let mut world = world(&trace, 2);
    world.scale(0, 1, Victims::IdleFirst);
    world.advance(seconds(6));
    let mut seen = nothing();
    world.observe(0, &mut seen);
    let queue = seen.queue.value().unwrap();
    assert_eq!((queue.waiting, queue.active), (1, 2));
    assert_eq!((queue.oldest_wait, queue.ages.len()), (Some(Span::from_secs(6)), 2));
    assert_eq!(seen.fleet.value().unwrap().busy, Some(1));
    world.advance(seconds(25));
    assert!(world.is_done(0));
    world.observe(0, &mut seen);
    assert_eq!(seen.queue.value().unwrap().durations, [Span::from_secs(10); 3]);
}

#[test]
fn sources_go_by_the_clock_of_the_trace() {
    let trace = trace(&[10]);
    let begins = Timestamp::from_millis(1_793_024_000_000);
    let rules = WorldRules { begins: Some(begins), ..WorldRules::default() };
    let mut world = World::new(&[(&trace, &rules)], 1);
    let mut seen = nothing();
    world.advance(seconds(60));
    world.scale(0, 1, Victims::IdleFirst);
    world.observe(0, &mut seen);
    let now = begins.plus(Span::from_secs(60));
    assert_eq!((seen.t, seen.queue.fresh(now, Span::ZERO).unwrap().waiting), (now, 1));
    assert_eq!(seen.fleet.value().unwrap().workers[0].started_at, Some(now));
}

#[test]
fn the_list_of_workers_is_as_it_would_be_written_anew() {
    let trace = trace(&[7, 3, 30, 2, 9, 1]);
    let mut world = world(&trace, 1);
    let mut seen = nothing();
    for (at, to) in [(1, 3), (8, 5), (9, 2), (14, 4), (22, 1), (30, 3), (40, 0)] {
        world.advance(seconds(at));
        world.scale(0, to, Victims::IdleFirst);
        world.observe(0, &mut seen);
        let list = &seen.fleet.value().unwrap().workers;
        let group = &world.groups[0];
        let names: Vec<_> = group.live.iter().map(|number| format!("w{number}")).collect();
        assert_eq!(list.iter().map(|w| w.id.clone()).collect::<Vec<_>>(), names);
        for (line, number) in list.iter().zip(&group.live) {
            let worker = &group.workers[*number as usize];
            assert_eq!(line.busy, Some(!worker.running.is_empty()));
            assert_eq!(line.state, worker.state.seen());
            assert_eq!(line.started_at, Some(worker.ordered_at.as_timestamp()));
        }
    }
}

#[test]
fn a_crowded_machine_is_slow_and_its_memory_kills_those_that_start() {
    let trace = trace(&[30, 30, 30]);
    let rules = WorldRules {
        start_up: Span::from_secs(20),
        start_up_spread: 0.0,
        host: Some(HostRules {
            cores: 1.0,
            memory: Some(2.0),
            memory_per_worker: 1.0,
            ..HostRules::default()
        }),
        ..WorldRules::default()
    };
    let mut world = World::new(&[(&trace, &rules)], 1);
    world.scale(0, 3, Victims::IdleFirst);
    // Three want the core for 10 s each: a speed of 1 / 3.6. Then two of them rest for 10 s.
    world.advance(seconds(35));
    assert_eq!(count(&world).starting, 2, "the third has died at 20");
    let mut seen = nothing();
    world.observe(0, &mut seen);
    let host = seen.host.value().unwrap();
    assert_eq!((host.cpu_raw, host.mem, host.cores), (0.0, Some(100.0), Some(1.0)));
    assert_eq!(seen.fleet.value().unwrap().died, 1);
    world.advance(seconds(50));
    assert_eq!((count(&world).busy, world.waiting(0)), (Some(2), 1));
    world.observe(0, &mut seen);
    assert_eq!(seen.fleet.value().unwrap().died, 0);
    assert_eq!(seen.host.value().unwrap().cpu_raw, 100.0);
}

#[test]
fn two_groups_share_a_machine() {
    let (one, two) = (trace(&[60]), trace(&[60]));
    let rules = WorldRules {
        start_up: Span::ZERO,
        host: Some(HostRules { cores: 1.0, start_up_cpu: Span::ZERO, ..HostRules::default() }),
        ..WorldRules::default()
    };
    let mut world = World::new(&[(&one, &rules), (&two, &rules)], 1);
    world.scale(0, 1, Victims::IdleFirst);
    world.scale(1, 1, Victims::IdleFirst);
    world.advance(seconds(131));
    assert!(!world.is_done(0) && !world.is_done(1));
    world.advance(seconds(133));
    assert!(world.all_done(), "two minutes of work at a speed of 1 / 2.2 each");
}

#[test]
fn a_source_falls_silent_or_repeats_itself() {
    let trace = trace(&[100, 100]);
    let outage = |source, stale| Outage {
        source,
        at: Span::from_secs(10),
        lasts: Span::from_secs(10),
        stale,
    };
    let rules = WorldRules {
        outages: vec![outage(Source::Queue, false), outage(Source::Fleet, true)],
        ..WorldRules::default()
    };
    let mut world = World::new(&[(&trace, &rules)], 1);
    let mut seen = nothing();
    for (at, silent) in [(9, false), (10, true), (19, true), (20, false)] {
        world.advance(seconds(at));
        world.observe(0, &mut seen);
        assert_eq!(seen.queue.value().is_none(), silent, "{at}");
        let Reading::Known { value, taken_at } = &seen.fleet else { panic!("it is known") };
        assert_eq!(*taken_at == seen.t, !silent, "{at}");
        assert_eq!(value.starting, if at == 20 { 3 } else { 0 });
        world.scale(0, 3, Victims::IdleFirst);
    }
    assert_eq!(State::Gone.seen(), WorkerState::Stopped);
}

#[test]
fn a_start_that_fails_is_paid_and_counted() {
    let trace = trace(&[10]);
    let rules = WorldRules {
        start_up: Span::from_secs(10),
        start_up_spread: 0.0,
        start_up_failures: 0.999_999,
        ..WorldRules::default()
    };
    let mut world = World::new(&[(&trace, &rules)], 1);
    world.scale(0, 2, Victims::IdleFirst);
    world.advance(seconds(10));
    assert_eq!((count(&world).capacity(), world.waiting(0)), (0, 1));
    let (_, tallies) = world.close();
    assert_eq!((tallies[0].deaths, tallies[0].paid), (2, seconds(20)));
}
