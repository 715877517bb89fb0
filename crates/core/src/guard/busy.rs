//! A busy worker is never stopped by a scaling decision. Picks who may go: idle ones, the youngest
//! first, and no more than are known to be idle.

use crate::decision::{Rule, Why};
use crate::guard::{Draft, Look};
use crate::reading::{Worker, WorkerState};
use crate::rules::Busy;

/// Cuts a scale-in to the workers that are idle, and names them.
pub(crate) fn apply(look: &Look<'_>, draft: &mut Draft) {
    if !draft.shrinks() {
        return;
    }
    let listed: Vec<&Worker> = look.fleet.workers.iter().filter(|w| w.is_capacity()).collect();
    let may_go = match look.rules.busy {
        Busy::Any => Ok(look.current),
        Busy::Protect => idle_for_sure(look, &listed),
        Busy::Drain => idle_by_count(look),
    };
    let of = look.current;
    let (idle, why) = match may_go {
        Ok(idle) => (idle, Why::OnlyIdle { idle, of }),
        Err(why) => (0, why),
    };
    let least = of.saturating_sub(idle);
    if draft.wanted < least {
        draft.say(Rule::Busy, least, why);
    }
    let go = of.saturating_sub(draft.wanted) as usize;
    draft.victims = choose(&listed, go, look.rules.busy);
}

/// How many are idle beyond doubt: by the busy map, or because nothing is active at all.
fn idle_for_sure(look: &Look<'_>, listed: &[&Worker]) -> Result<u32, Why> {
    // Without a list the target picks, and a count is all there is.
    if look.fleet.busy.is_some() || listed.is_empty() {
        return idle_by_count(look);
    }
    match look.queue.map(|q| q.active) {
        None => Err(Why::BusyUnknown),
        Some(0) => Ok(look.current),
        Some(active) => Err(Why::WhichIsIdleUnknown { active, of: look.current }),
    }
}

/// How many are idle by count: each active job keeps at most one worker busy.
fn idle_by_count(look: &Look<'_>) -> Result<u32, Why> {
    let active = look.queue.map(|q| u32::try_from(q.active).unwrap_or(u32::MAX));
    let busy = look.fleet.busy.or(active).ok_or(Why::BusyUnknown)?;
    Ok(look.current.saturating_sub(busy))
}

/// The workers that go: known idle ones first, then starting ones, then the youngest.
fn choose(listed: &[&Worker], go: usize, busy: Busy) -> Vec<String> {
    let mapped = listed.iter().any(|w| w.busy.is_some());
    let mut may_go: Vec<&&Worker> = listed
        .iter()
        .filter(|w| busy != Busy::Protect || !mapped || w.busy == Some(false))
        .collect();
    may_go.sort_by_key(|w| {
        let known_idle = w.busy == Some(false);
        let holds_job = w.busy == Some(true);
        let starting = w.state == WorkerState::Starting;
        (holds_job, !known_idle, !starting, std::cmp::Reverse(w.started_at), w.id.clone())
    });
    may_go.into_iter().take(go).map(|w| w.id.clone()).collect()
}
