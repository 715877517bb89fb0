//! One run: a trace, a policy, a world, a seed.

use headcount_core::{HostReading, Observation, Reading, Rules, Silence, Timestamp};

use crate::autoscaler::{Autoscaler, Core};
use crate::moment::Moment;
use crate::score::{Score, Waits};
use crate::trace::Trace;
use crate::world::{World, WorldRules};

/// A run is given up when jobs are left so long after the last arrival as all work would take one
/// worker, and 30 days.
const PATIENCE: Moment = Moment::from_micros(30 * 86_400 * 1_000_000);

/// The policy leaves jobs waiting for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{waiting} jobs still wait {days} days after the last arrival: the policy starts no worker for them"
)]
pub struct Stuck {
    /// Jobs that wait.
    pub waiting: usize,
    /// Whole days since the last arrival.
    pub days: u64,
}

/// Runs `trace` under `rules` until its last job is finished.
///
/// The policy looks at its own poll and sees what a real source would tell; each change that it
/// wants is done at once. The world's own bounds, slots and start-up time replace those of the
/// rules.
///
/// # Errors
/// The policy never starts the workers that it takes.
pub fn run(trace: &Trace, rules: &Rules, world: &WorldRules, seed: u64) -> Result<Score, Stuck> {
    let rules = in_world(rules, world, trace);
    let world = WorldRules { slots: Some(rules.workers.slots), ..world.clone() };
    run_with(trace, &mut Core::new(rules), &world, seed)
}

/// As [`run()`], with any autoscaler, which must know its bounds itself.
///
/// # Errors
/// It never starts the workers that the trace takes.
pub fn run_with(
    trace: &Trace,
    scaler: &mut dyn Autoscaler,
    world: &WorldRules,
    seed: u64,
) -> Result<Score, Stuck> {
    let mut place = World::new(trace, world, seed);
    let mut seen = nothing_yet();
    // A poll of less than a millisecond would not move the core's clock.
    let poll = Moment::from_span(scaler.poll()).max(Moment::from_micros(1000));
    let last_arrival = trace.jobs.last().map(|job| job.at).unwrap_or_default();
    let patience = last_arrival.plus(trace.work()).plus(PATIENCE);
    let mut now = Moment::default();
    loop {
        place.advance(now);
        if place.is_done() {
            break;
        }
        if now > patience {
            let days = (now.since(last_arrival).as_hours() / 24.0) as u64;
            return Err(Stuck { waiting: place.waiting(), days });
        }
        place.observe(&mut seen);
        if let Some(to) = scaler.wanted(&seen) {
            place.scale(to, scaler.victims());
        }
        now = now.plus(poll);
    }
    Ok(score(trace, scaler.name(), place, seed))
}

/// The rules as they hold in this world.
fn in_world(rules: &Rules, world: &WorldRules, trace: &Trace) -> Rules {
    let mut rules = rules.clone();
    let workers = &mut rules.workers;
    workers.max = world.most_workers(trace).unwrap_or(workers.max);
    workers.min = world.min_workers.unwrap_or(workers.min).min(workers.max);
    workers.slots = world.slots.unwrap_or(workers.slots);
    workers.start_up = Some(world.start_up);
    rules
}

/// A host without limits: its CPU is never in use.
fn nothing_yet() -> Observation {
    let t = Timestamp::default();
    Observation {
        t,
        queue: Reading::missing(Silence::Absent, "nothing was looked at"),
        host: Reading::known(HostReading::default(), t),
        fleet: Reading::missing(Silence::Absent, "nothing was looked at"),
    }
}

fn score(trace: &Trace, policy: &str, place: World<'_>, seed: u64) -> Score {
    let (end, tally) = place.close();
    Score {
        waits: Waits::of(tally.waits),
        worker_hours: tally.paid.as_hours(),
        work_hours: trace.work().as_hours(),
        scale_outs: tally.scale_outs,
        scale_ins: tally.scale_ins,
        reversals: tally.reversals,
        wasted_starts: tally.wasted_starts,
        busy_kills: tally.busy_kills,
        jobs: trace.jobs.len(),
        span_hours: end.as_hours(),
        seed,
        policy: policy.into(),
        events: tally.events,
    }
}
