//! One run: a trace, a policy, a world, a seed.

use headcount_core::{HostReading, Observation, Reading, Rules, Silence, Timestamp, counted};

use crate::autoscaler::{Autoscaler, Core};
use crate::moment::Moment;
use crate::score::{Score, Tally, Waits};
use crate::timeline::Timeline;
use crate::trace::Trace;
use crate::world::{World, WorldRules};

/// A run is given up when jobs are left so long after the last arrival as all work would take one
/// worker, and 30 days.
const PATIENCE: Moment = Moment::from_micros(30 * 86_400 * 1_000_000);

/// The policy leaves jobs waiting for ever.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} {} after all should be done: the policy starts no worker for them",
    still_wait(.waiting),
    counted(.days.to_owned(), "day")
)]
pub struct Stuck {
    /// Jobs that wait.
    pub waiting: usize,
    /// Whole days since one worker would have done them all.
    pub days: u64,
}

fn still_wait(jobs: &usize) -> String {
    let wait = if *jobs == 1 { "waits" } else { "wait" };
    format!("{} still {wait}", counted(*jobs, "job"))
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
    let scores = run_together(&mut [Member { trace, scaler, world }], seed)?;
    Ok(scores.into_iter().next().expect("one member has one score"))
}

/// As [`run_with`], with the same score, and what happened when.
///
/// # Errors
/// It never starts the workers that the trace takes.
pub fn run_recorded(
    trace: &Trace,
    scaler: &mut dyn Autoscaler,
    world: &WorldRules,
    seed: u64,
) -> Result<(Score, Timeline), Stuck> {
    let mut place = World::new(&[(trace, world)], seed);
    place.record();
    let mut members = [Member { trace, scaler, world }];
    let (end, tallies) = play(&mut members, place)?;
    let mut tally = tallies.into_iter().next().expect("one member has one tally");
    let timeline = tally.timeline.take().expect("the world was told to record");
    Ok((score(&members[0], tally, end, seed), timeline))
}

/// A group of several in one world.
pub struct Member<'a> {
    /// Its jobs.
    pub trace: &'a Trace,
    /// Who decides.
    pub scaler: &'a mut dyn Autoscaler,
    /// What the world is like for it. All share the host of the first that has one.
    pub world: &'a WorldRules,
}

/// Runs several groups until the last job of all is finished; one score each. Worker-hours of each
/// are counted until then.
///
/// # Errors
/// One of them never starts the workers that its trace takes.
pub fn run_together(members: &mut [Member<'_>], seed: u64) -> Result<Vec<Score>, Stuck> {
    let groups: Vec<_> = members.iter().map(|m| (m.trace, m.world)).collect();
    let (end, tallies) = play(members, World::new(&groups, seed))?;
    let scored = members.iter().zip(tallies);
    Ok(scored.map(|(member, tally)| score(member, tally, end, seed)).collect())
}

/// Lets the members decide about their groups until the last job is finished; returns that moment
/// and what was counted of each.
fn play(members: &mut [Member<'_>], mut place: World<'_>) -> Result<(Moment, Vec<Tally>), Stuck> {
    let mut seen: Vec<Observation> = members.iter().map(|_| nothing_yet()).collect();
    // A poll of less than a millisecond would not move the core's clock.
    let shortest = Moment::from_micros(1000);
    let polls: Vec<Moment> =
        members.iter().map(|m| Moment::from_span(m.scaler.poll()).max(shortest)).collect();
    let mut due = vec![Moment::default(); members.len()];
    let patience = patience(members);
    while let Some((now, group)) = due.iter().copied().zip(0..).min() {
        place.advance(now);
        if place.all_done() {
            break;
        }
        if now > patience {
            let days = (PATIENCE.as_hours() / 24.0) as u64;
            let waiting = (0..members.len()).map(|group| place.waiting(group)).sum();
            return Err(Stuck { waiting, days });
        }
        let Member { scaler, world, .. } = &mut members[group];
        if !(place.is_still(group) && scaler.rests(&seen[group], world.time(now))) {
            place.observe(group, &mut seen[group]);
            if let Some(to) = scaler.wanted(&seen[group]) {
                place.scale(group, to, scaler.victims());
            }
        }
        due[group] = now.plus(polls[group]);
    }
    Ok(place.close())
}

/// When a run is given up.
fn patience(members: &[Member<'_>]) -> Moment {
    let last = |m: &Member<'_>| m.trace.jobs.last().map(|job| job.at).unwrap_or_default();
    let last = members.iter().map(last).max().unwrap_or_default();
    members.iter().fold(last, |sum, m| sum.plus(m.trace.work())).plus(PATIENCE)
}

/// The rules as they hold in this world: its bounds, slots and start-up time replace theirs.
pub fn in_world(rules: &Rules, world: &WorldRules, trace: &Trace) -> Rules {
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
        budget: None,
    }
}

fn score(member: &Member<'_>, tally: Tally, end: Moment, seed: u64) -> Score {
    Score {
        waits: Waits::of(tally.waits),
        worker_hours: tally.paid.as_hours(),
        work_hours: member.trace.work().as_hours(),
        scale_outs: tally.scale_outs,
        scale_ins: tally.scale_ins,
        reversals: tally.reversals,
        starts: tally.starts,
        wasted_starts: tally.wasted_starts,
        busy_kills: tally.busy_kills,
        deaths: tally.deaths,
        overload_minutes: tally.overloaded.as_seconds() / 60.0,
        jobs: member.trace.jobs.len(),
        span_hours: end.as_hours(),
        seed,
        policy: member.scaler.name().into(),
        events: tally.events,
    }
}
