//! Looks at which nothing can change. A simulation has many of them: nothing waits, runs or starts,
//! there are as few workers as may be, and what was seen at the last look still holds. Whoever drives
//! one may ask [`rests`] first, and spare itself the look and the decision.
//!
//! It promises little on purpose: yes only where a whole decision would leave the number as it is,
//! and then the state is the one that the decision would have left. `sim/tests/rests.rs` holds it to
//! that, look by look.

use crate::guard::{Draft, Look, brake, capacity, controls};
use crate::observation::Observation;
use crate::reading::{FleetReading, HostReading, QueueReading, Reading};
use crate::rules::Rules;
use crate::state::{Controls, State};
use crate::time::Timestamp;

/// Whether a look at `now` that finds what `seen` says would change no number. If so, `state` is as
/// after that look; if not, nothing has been touched and the look must be made.
///
/// What `seen` says must still be true but for its times: nothing has come, ended or started since.
pub fn rests(rules: &Rules, state: &mut State, seen: &Observation, now: Timestamp) -> bool {
    let Some((queue, host, fleet)) = all_known(seen) else { return false };
    let current = fleet.capacity();
    let still = is_still(queue, fleet) && has_no_business(state, current, now);
    let alone = rules.schedule.is_none() && seen.budget.is_none();
    if !still || !alone || current != rules.workers.min {
        return false;
    }
    let (bounds, _) = controls::bounds_at(rules, now);
    let (queue, host) = (Some(queue), Some(host));
    let look = Look { rules, now, every_look: true, current, bounds, queue, host, fleet };
    if !rules.policy.idles(&mut state.policy, &look) {
        return false;
    }
    // They learn and smooth. There is nothing that they could stop or remove.
    capacity::watch(&mut state.load, &look);
    brake::apply(&mut state.brake, &state.load, &look, &mut Draft::new(&look));
    state.seen_at = Some(now);
    true
}

fn all_known(seen: &Observation) -> Option<(&QueueReading, &HostReading, &FleetReading)> {
    let (Reading::Known { value: queue, .. }, Reading::Known { value: fleet, .. }) =
        (&seen.queue, &seen.fleet)
    else {
        return None;
    };
    let host = seen.host.value()?;
    // A machine with a load is looked at.
    (*host == HostReading::default()).then_some((queue, host, fleet))
}

/// Nothing waits, runs, starts or ends.
fn is_still(queue: &QueueReading, fleet: &FleetReading) -> bool {
    let jobs = [queue.waiting, queue.active, queue.durations.len() as u64];
    let workers = [fleet.starting, fleet.draining, fleet.died, fleet.busy.unwrap_or(1)];
    jobs == [0; 3] && workers == [0; 4] && queue.paused.is_none() && queue.occupancy.is_none()
}

/// No guard waits for anything, and the last look found as many workers.
fn has_no_business(state: &State, current: u32, now: Timestamp) -> bool {
    state.current == Some(current)
        && state.pending.is_none()
        && state.controls == Controls::default()
        && state.unknown.silent_since.is_none()
        && state.unknown.answering_since.is_none()
        && state.breaker.deaths.last_at.is_none()
        && state.seen_at.is_some_and(|seen_at| seen_at <= now)
}
