//! A busy worker is never stopped by a scaling decision. Picks who may go: idle ones, the youngest
//! first, and no more than are known to be idle.

use std::cmp::Reverse;

use crate::decision::{Rule, Why};
use crate::guard::{Draft, Look};
use crate::reading::{QueueReading, Worker, WorkerState};
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
    // Nobody vouches for a single worker: one that seems gone may only be silent, and at its job.
    let held = |q: &QueueReading| q.active.saturating_add(q.orphaned.unwrap_or(0));
    match look.fleet.busy.map(u64::from).or(look.queue.map(held)) {
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
    listed.into_iter().take(go).map(|w| w.id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::FleetReading;
    use crate::reading::WorkerState::{Draining, Ready, Starting};
    use crate::scene::{Scene, worker};

    /// Four workers; `marks` says which are busy.
    fn four(marks: [Option<bool>; 4]) -> Vec<Worker> {
        let ids = ["a", "b", "c", "d"];
        (0..4).map(|i| worker(ids[i], Ready, marks[i], 100 * (i as i64 + 1))).collect()
    }

    fn scene(fleet: FleetReading, active: u64, busy: Busy) -> Scene {
        let mut scene = Scene::new(0);
        scene.fleet = fleet;
        scene.rules.busy = busy;
        if let Some(queue) = &mut scene.queue {
            queue.active = active;
        }
        scene
    }

    #[test]
    fn only_as_many_go_as_the_rule_allows() {
        let counts = |busy| FleetReading { ready: 4, busy, ..FleetReading::default() };
        let (no, yes) = (Some(false), Some(true));
        let marked = FleetReading::of(four([no, yes, None, no]));
        let unmarked = FleetReading::of(four([None; 4]));
        let total_only = FleetReading { busy: Some(1), ..unmarked.clone() };
        // name, fleet, active, busy rule, expected number of four when one is wanted
        let table = [
            ("counts with a busy count", counts(Some(1)), 4, Busy::Protect, 1),
            ("counts, two busy", counts(Some(2)), 0, Busy::Protect, 2),
            (
                "counts without: active is the most that can be busy",
                counts(None),
                3,
                Busy::Protect,
                3,
            ),
            ("more active than workers", counts(None), 9, Busy::Protect, 4),
            ("more active than a u32 holds", counts(None), u64::MAX, Busy::Protect, 4),
            ("the map knows two idle ones", marked.clone(), 0, Busy::Protect, 2),
            ("nobody knows which are idle", unmarked.clone(), 1, Busy::Protect, 4),
            ("a total does not tell which", total_only, 0, Busy::Protect, 4),
            ("nothing is active at all", unmarked.clone(), 0, Busy::Protect, 1),
            ("drain: by count", unmarked.clone(), 1, Busy::Drain, 1),
            ("drain: two are active", unmarked.clone(), 2, Busy::Drain, 2),
            ("any", marked, 4, Busy::Any, 1),
            ("any, unmarked", unmarked, 4, Busy::Any, 1),
        ];
        for (name, fleet, active, busy, expected) in table {
            let listed = !fleet.workers.is_empty();
            let draft = scene(fleet, active, busy).judge(1, apply);
            assert_eq!(draft.wanted, expected, "{name}");
            let named = if listed { 4 - expected } else { 0 };
            assert_eq!(draft.victims.len(), named as usize, "{name}: {:?}", draft.victims);
        }
    }

    #[test]
    fn silence_of_the_queue_and_the_map_keeps_all() {
        let mut scene =
            scene(FleetReading { ready: 4, ..FleetReading::default() }, 0, Busy::Protect);
        scene.queue = None;
        let draft = scene.judge(1, apply);
        assert_eq!((draft.wanted, &draft.trail[0].why), (4, &Why::BusyUnknown));
    }

    #[test]
    fn whoever_may_hold_a_job_that_seems_orphaned_stays() {
        let orphaned = |marks| {
            let mut scene = scene(FleetReading::of(four(marks)), 0, Busy::Protect);
            scene.queue.as_mut().unwrap().orphaned = Some(1);
            let draft = scene.judge(1, apply);
            (draft.wanted, draft.victims)
        };
        assert_eq!(orphaned([None; 4]), (4, vec![]));
        let (left, victims) = orphaned([Some(false), None, None, Some(false)]);
        assert_eq!((left, victims.len()), (2, 2), "those known to be idle may go");
    }

    #[test]
    fn idle_ones_go_first_and_of_them_the_youngest() {
        let fleet = FleetReading::of(vec![
            worker("busy-young", Ready, Some(true), 1),
            worker("old", Ready, Some(false), 900),
            worker("young", Ready, Some(false), 10),
            worker("unknown", Ready, None, 5),
            worker("new", Starting, Some(false), 60),
            worker("leaving", Draining, Some(true), 2),
        ]);
        let victims = |busy, wanted| scene(fleet.clone(), 0, busy).judge(wanted, apply).victims;
        assert_eq!(victims(Busy::Protect, 4), ["new"]);
        assert_eq!(victims(Busy::Protect, 3), ["new", "young"]);
        assert_eq!(victims(Busy::Protect, 0), ["new", "young", "old"]);
        assert_eq!(victims(Busy::Any, 0), ["new", "young", "old", "unknown", "busy-young"]);
        assert_eq!(victims(Busy::Drain, 1), ["new", "young", "old"]);
    }

    #[test]
    fn a_list_that_was_cut_short_names_whom_it_can() {
        let mut fleet = FleetReading::of(vec![worker("a", Ready, None, 1)]);
        fleet.ready = 3;
        let draft = scene(fleet, 0, Busy::Protect).judge(0, apply);
        assert_eq!((draft.wanted, draft.victims), (2, vec!["a".to_string()]));
    }

    #[test]
    fn growth_names_no_victims() {
        let draft =
            scene(FleetReading::of(four([Some(false); 4])), 0, Busy::Protect).judge(6, apply);
        assert_eq!((draft.wanted, draft.victims.len(), draft.trail.len()), (6, 0, 0));
    }
}
