//! A busy worker is never stopped by a scaling decision. Picks who may go: idle ones, the youngest
//! first, and no more than are known to be idle.

use std::cmp::Reverse;
use std::collections::HashSet;

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
    if listed.is_empty() {
        return;
    }
    let go = of.saturating_sub(draft.wanted);
    draft.victims = choose(listed, go as usize, look.rules.busy);
    let found = u32::try_from(draft.victims.len()).unwrap_or(u32::MAX);
    if found < go {
        draft.say(Rule::Busy, of.saturating_sub(found), Why::OnlyIdle { idle: found, of });
    }
}

/// How many are idle beyond doubt: by the busy map, or because nobody holds a job at all.
fn idle_for_sure(look: &Look<'_>, listed: &[&Worker]) -> Result<u32, Why> {
    // Without a list the target picks, and a count is all there is.
    if listed.is_empty() {
        return idle_by_count(look);
    }
    if listed.iter().any(|w| w.busy.is_some()) {
        let idle = listed.iter().filter(|w| w.busy == Some(false)).count();
        return Ok(u32::try_from(idle).unwrap_or(u32::MAX));
    }
    match look.fleet.busy.map(u64::from).or(look.queue.map(|q| q.active)) {
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
fn choose(mut listed: Vec<&Worker>, go: usize, busy: Busy) -> Vec<String> {
    if busy == Busy::Protect && listed.iter().any(|w| w.busy.is_some()) {
        listed.retain(|w| w.busy == Some(false));
    }
    listed.sort_by_key(|w| {
        let idle_first = match w.busy {
            Some(false) => 0,
            None => 1,
            Some(true) => 2,
        };
        let starting = w.state == WorkerState::Starting;
        (idle_first, !starting, Reverse(w.started_at), w.id.as_str())
    });
    let mut named = HashSet::new();
    listed.retain(|w| named.insert(w.id.as_str()));
    listed.into_iter().take(go).map(|w| w.id.clone()).collect()
}
