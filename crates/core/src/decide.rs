//! One decision, top to bottom.

use crate::decision::{Decision, Kind, Rule, Source, Step, Why};
use crate::guard::{self, Draft, Look};
use crate::observation::Observation;
use crate::reading::{FleetReading, HostReading, Missing, QueueReading};
use crate::rules::Rules;
use crate::state::State;
use crate::time::{Span, Timestamp};

/// While something waits or starts, look again this soon.
const ATTENTIVE: Span = Span::from_secs(1);

/// When the policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// At its own poll; looks in between serve the guards.
    OwnPoll,
    /// At every observation: whoever hands them in chose the moments (replay, simulation).
    EveryLook,
}

/// The readings that are fresh and credible; for the others, why not.
struct Fresh<'a> {
    queue: Result<&'a QueueReading, Missing>,
    host: Result<&'a HostReading, Missing>,
    fleet: Result<&'a FleetReading, Missing>,
}

/// Decides how many workers should be running at `now`, given what was seen.
///
/// The same rules, state, observation and time always give the same decision. A change that it
/// asks for stays pending in `state` until [`State::note`] says what became of it.
pub fn decide(
    rules: &Rules,
    state: &mut State,
    seen: &Observation,
    cadence: Cadence,
    now: Timestamp,
) -> Decision {
    let (mut decision, decisive) = judge(rules, state, seen, cadence, now);
    decision.reason = reason_of(&decision.trail, decision.trail.get(decisive));
    decision
}

/// The number of workers that [`decide`] asks for at a look of its own, if there is to be a change;
/// the state is the same afterwards. For simulations, which need a number a million times and its
/// reason never.
pub fn wanted(rules: &Rules, state: &mut State, seen: &Observation, now: Timestamp) -> Option<u32> {
    let (decision, _) = judge(rules, state, seen, Cadence::EveryLook, now);
    decision.change().map(|(_, to)| to)
}

/// The decision without its reason, and the place of the step that gives it.
fn judge(
    rules: &Rules,
    state: &mut State,
    seen: &Observation,
    cadence: Cadence,
    now: Timestamp,
) -> (Decision, usize) {
    state.follow_clock(now);
    let fresh = Fresh::of(seen, rules.stale_after(), now);
    let silent = fresh.silent(rules);
    let silence = state.unknown.watch(!silent.is_empty(), now);
    if work_may_have_come(rules, &silent, silence, fresh.queue.as_ref().ok()) {
        state.policy.forget_idleness();
    }
    let Ok(fleet) = fresh.fleet else {
        state.load.interrupted();
        return hold_blindly(state, &silent, now);
    };
    let (bounds, in_window) = guard::controls::bounds_at(rules, now);
    let look = Look {
        rules,
        now,
        every_look: cadence == Cadence::EveryLook,
        current: fleet.capacity(),
        bounds,
        queue: fresh.queue.ok(),
        host: fresh.host.ok(),
        fleet,
    };
    let mut draft = Draft::new(&look);

    if silent.is_empty() {
        let wish = rules.policy.wish(&mut state.policy, &look);
        draft.wish(kind_of(wish.rule, look.current, wish.wanted), wish);
    }
    let policy_wanted = draft.wanted;

    guard::capacity::watch(&mut state.load, &look);
    guard::unknown::apply(&mut state.unknown, &silent, &look, &mut draft);
    guard::controls::apply(&mut state.controls, in_window, &look, &mut draft);
    guard::brake::apply(&mut state.brake, &state.load, &look, &mut draft);
    guard::capacity::apply(&state.load, &look, &mut draft);
    guard::budget::apply(seen.budget, &look, &mut draft);
    guard::limits::apply(&look, &mut draft);
    guard::bounds::apply(&mut draft);
    guard::busy::apply(&look, &mut draft);
    guard::breaker::apply(&mut state.breaker, state.controls.retry, &look, &mut draft);
    keep_what_was_said(state, cadence, &draft.trail);

    state.current = Some(look.current);
    let look_again = next_look(rules, state, &look);
    let decisive = draft.last_word.unwrap_or(0);
    let decision = finish(draft, policy_wanted, look_again, now);
    state.remember(&decision);
    (decision, decisive)
}

impl<'a> Fresh<'a> {
    fn of(seen: &'a Observation, stale_after: Span, now: Timestamp) -> Self {
        Self {
            queue: seen.queue.fresh(now, stale_after),
            host: seen.host.fresh(now, stale_after).and_then(HostReading::credible),
            fleet: seen.fleet.fresh(now, stale_after).and_then(FleetReading::credible),
        }
    }

    /// The sources that this group's decisions need and that do not answer.
    fn silent(&self, rules: &Rules) -> Vec<(Source, Missing)> {
        let queue = self.queue.as_ref().err().map(|m| (Source::Queue, m));
        let host = self.host.as_ref().err().map(|m| (Source::Host, m));
        let host = host.filter(|_| rules.policy.needs_host());
        let fleet = self.fleet.as_ref().err().map(|m| (Source::Fleet, m));
        let all = [queue, host, fleet].into_iter().flatten();
        all.map(|(source, missing)| (source, missing.clone())).collect()
    }
}

/// Whether there is or may have been work that the policy does not see: now, while a source that it
/// needs is silent, or in a silence that has just ended and was longer than a reading may be old.
fn work_may_have_come(
    rules: &Rules,
    silent: &[(Source, Missing)],
    ended: Option<Span>,
    queue: Option<&&QueueReading>,
) -> bool {
    let working = queue.is_some_and(|q| q.waiting > 0 || q.active > 0);
    (!silent.is_empty() && working) || ended.is_some_and(|span| span > rules.stale_after())
}

/// Without a count of workers there is nothing to add to or take from.
fn hold_blindly(
    state: &mut State,
    silent: &[(Source, Missing)],
    now: Timestamp,
) -> (Decision, usize) {
    let current = state.current;
    let number = current.unwrap_or(0);
    let step = |(source, missing): &(Source, Missing)| Step {
        rule: Rule::Unknown,
        before: number,
        after: number,
        why: Why::Silent { source: *source, why: missing.to_string() },
    };
    let trail: Vec<Step> = silent.iter().map(step).collect();
    let decisive = trail.len().saturating_sub(1);
    let decision = Decision {
        t: now,
        current,
        policy_wanted: current,
        wanted: current,
        kind: Kind::Hold,
        rule: Rule::Unknown,
        reason: String::new(),
        trail,
        victims: Vec::new(),
        look_again: Some(ATTENTIVE),
    };
    state.remember(&decision);
    (decision, decisive)
}

const fn kind_of(rule: Rule, current: u32, wanted: u32) -> Kind {
    match rule {
        _ if wanted == current => Kind::Hold,
        Rule::Emergency => Kind::EmergencyScaleIn,
        Rule::FullBacklog => Kind::FullScaleOut,
        Rule::Bounds => Kind::Bounds,
        _ if wanted > current => Kind::ScaleOut,
        _ => Kind::ScaleIn,
    }
}

/// Soon while something waits or starts, else when the policy decides next.
fn next_look(rules: &Rules, state: &State, look: &Look<'_>) -> Span {
    let poll = rules.policy.poll();
    if look.queue.is_none_or(|q| q.waiting > 0) || look.fleet.starting > 0 {
        return ATTENTIVE.min(poll);
    }
    let rests = rules.policy.rests_for(&state.policy, look.now).unwrap_or(poll);
    rests.min(rules.policy.look())
}

/// Until the policy decides again, its reason is told together with what limited its number last.
/// What people ask for speaks for itself at every look.
fn keep_what_was_said(state: &mut State, cadence: Cadence, trail: &[Step]) {
    let asked = |rule| matches!(rule, Rule::Override | Rule::Pause);
    let Some((first, rest)) = trail.split_first() else { return };
    let limit = rest.iter().rfind(|s| s.before != s.after).filter(|s| !asked(s.rule));
    if let (Cadence::OwnPoll, Some(said), Some(limit)) = (cadence, &mut state.policy.said, limit)
        && first.why == **said
    {
        let (why, limit) = (said.clone(), Box::new(limit.why.clone()));
        **said = Why::Limited { why, limit };
    }
}

/// Why the number is what it is: every rule that moved it, in order, and a window of the schedule if
/// its bounds had the last word. If nothing moved it, the decisive rule alone.
fn reason_of(trail: &[Step], decisive: Option<&Step>) -> String {
    let Some(decisive) = decisive else { return String::new() };
    if decisive.before == decisive.after {
        return decisive.why.to_string();
    }
    let window = |s: &&Step| s.rule == Rule::Schedule && decisive.rule == Rule::Bounds;
    let spoke = trail.iter().filter(|s| s.before != s.after || window(s));
    spoke.map(|s| s.why.to_string()).collect::<Vec<_>>().join("; ")
}

/// The rule that had the last word gives the name; if nobody had to insist, the first that spoke.
fn finish(draft: Draft, policy_wanted: u32, look_again: Span, now: Timestamp) -> Decision {
    let decisive = draft.trail.get(draft.last_word.unwrap_or(0));
    let kind = if draft.wanted == draft.current { Kind::Hold } else { draft.kind };
    Decision {
        t: now,
        current: Some(draft.current),
        policy_wanted: Some(policy_wanted),
        wanted: Some(draft.wanted),
        kind,
        rule: decisive.map_or(Rule::Steady, |s| s.rule),
        reason: String::new(),
        victims: draft.victims,
        trail: draft.trail,
        look_again: Some(look_again),
    }
}
