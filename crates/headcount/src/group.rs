//! The loop of one group: observe, decide, record, act, note. Nothing else changes the world.

use std::fmt;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use headcount_core::decision::Source;
use headcount_core::{
    Cadence, Decision, FleetReading, HostReading, Missing, Observation, Outcome, QueueReading,
    Reading, Rule, Rules, Silence, Span, State, Timestamp, Why, decide,
};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::busy_map::BusyMap;
use crate::clock::{self, Clock};
use crate::daemon::{Stop, Tuning};
use crate::lease::Lease;
use crate::limits::{DRAIN_POLL, LEAST_REST, LOOK_TIMEOUT, STAND_BY, STOP_TIMEOUT};
use crate::metrics_list::{MetricsListWriter, Snapshot};
use crate::queues::{Queue, QueueSeen};
use crate::store::Store;
use crate::targets::{FleetSeen, Order, Target};

/// Reads the host: see [`crate::hosts::HostWatch::read`].
pub type ReadHost = Arc<dyn Fn(Timestamp, Span) -> Reading<HostReading> + Send + Sync>;

/// What a group is made of.
pub struct Parts {
    /// Its name.
    pub name: String,
    /// Its rules.
    pub rules: Rules,
    /// The longest time between two looks.
    pub look: Span,
    /// Where demand is read.
    pub queue: Box<dyn Queue>,
    /// What runs the workers.
    pub target: Box<dyn Target>,
    /// What the machine says at a time; CPU also averaged over the span before it.
    pub host: ReadHost,
    /// Where everything is kept.
    pub store: Arc<Store>,
    /// The right to act.
    pub lease: Box<dyn Lease>,
    /// The list of snapshots the reference autoscaler keeps, if wanted.
    pub metrics_list: Option<MetricsListWriter>,
    /// Who watches: metrics, views.
    pub ticks: broadcast::Sender<Arc<Tick>>,
    /// The wall clock.
    pub clock: Clock,
}

/// One tick, for those who watch.
#[derive(Clone, Debug)]
pub struct Tick {
    /// Which group.
    pub group: String,
    /// Actions are only pretended.
    pub dry: bool,
    /// Somebody else acts for this group: who.
    pub stand_by: Option<String>,
    /// What was seen; absent while standing by.
    pub seen: Option<Observation>,
    /// What was decided.
    pub decision: Option<Decision>,
    /// What became of a change, and what the target said.
    pub outcome: Option<(Outcome, String)>,
    /// Smoothed CPU, percent.
    pub cpu_ema: Option<f64>,
}

impl Tick {
    /// The decision with the group's name and what became of it: one line of JSON for a tool.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::to_value(&self.decision).unwrap_or_default();
        if !json.is_object() {
            json = serde_json::json!({ "stand_by": self.stand_by });
        }
        json["group"] = self.group.as_str().into();
        json["dry"] = self.dry.into();
        if let Some((outcome, note)) = &self.outcome {
            json["outcome"] = serde_json::to_value(outcome).unwrap_or_default();
            json["note"] = note.as_str().into();
        }
        json
    }
}

/// The decision in one line.
impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(decision) = &self.decision else {
            let who = self.stand_by.as_deref().unwrap_or_default();
            return write!(f, "{}: standing by, {who}", self.group);
        };
        match decision.change() {
            Some((from, to)) => write!(f, "{}: {} {from} -> {to}", self.group, decision.kind)?,
            None => match decision.current {
                Some(n) => write!(f, "{}: hold at {n}", self.group)?,
                None => write!(f, "{}: hold", self.group)?,
            },
        }
        write!(f, ", {}", decision.reason)?;
        match &self.outcome {
            Some((Outcome::Failed, note)) => write!(f, "; failed: {note}"),
            Some((Outcome::Done, note)) if !note.is_empty() => write!(f, "; {note}"),
            _ => Ok(()),
        }
    }
}

/// One group, running.
pub struct Group {
    parts: Parts,
    busy_map: BusyMap,
    state: Option<State>,
    looked: Option<(Instant, Timestamp)>,
    listed_at: Option<Timestamp>,
    said: Option<Discriminant<Why>>,
    silent: Vec<(Source, Silence)>,
}

impl Group {
    /// Puts a group together. It looks at nothing yet.
    pub fn new(parts: Parts) -> Self {
        Self {
            parts,
            busy_map: BusyMap::default(),
            state: None,
            looked: None,
            listed_at: None,
            said: None,
            silent: Vec::new(),
        }
    }

    /// Ticks until told to stop. New rules come through `tuned`.
    pub async fn run(
        mut self,
        mut tuned: watch::Receiver<Tuning>,
        mut stop: watch::Receiver<Stop>,
    ) {
        let wakes = self.parts.queue.wakes().unwrap_or_default();
        while *stop.borrow() == Stop::No {
            let rest = clock::duration(self.tick().await).max(LEAST_REST);
            tokio::time::sleep(LEAST_REST).await;
            tokio::select! {
                () = tokio::time::sleep(rest - LEAST_REST) => {}
                () = wakes.notified() => {}
                Ok(()) = tuned.changed() => {
                    let Tuning { rules, look } = tuned.borrow_and_update().clone();
                    (self.parts.rules, self.parts.look) = (rules, look);
                }
                _ = stop.changed() => {}
            }
        }
        if *stop.borrow() == Stop::End {
            self.parts.target.close().await;
        }
    }

    /// One tick. Returns how long to rest at the most.
    pub async fn tick(&mut self) -> Span {
        let token = match self.parts.lease.hold().await {
            Ok(token) => token,
            Err(held) => return self.stand_by(held.0),
        };
        let mut state = self.take_up();
        let seen = self.observe().await;
        let now = self.now();
        state.controls = self.parts.store.controls(&self.parts.name);

        let decision = decide(&self.parts.rules, &mut state, &seen, Cadence::OwnPoll, now);
        self.record(&seen, &decision, &state);
        let outcome = self.act(&decision, token).await;
        self.note(&mut state, &decision, outcome.as_ref());
        self.tell(&state, seen, &decision, outcome).await;

        self.state = Some(state);
        decision.look_again.unwrap_or(self.parts.look).min(self.parts.look)
    }

    /// Waits until workers that were told to go are gone, for a process that ends after one tick.
    pub async fn settle(&mut self) {
        let drained = async {
            while self.parts.target.status().await.is_ok_and(|f| f.reading.draining > 0) {
                tokio::time::sleep(DRAIN_POLL).await;
            }
        };
        let _ = tokio::time::timeout(STOP_TIMEOUT, drained).await;
    }

    fn now(&self) -> Timestamp {
        (self.parts.clock)()
    }

    /// Somebody else acts: forget what we knew, so that we start from what they wrote.
    fn stand_by(&mut self, held: String) -> Span {
        if self.state.take().is_some() || self.looked.take().is_none() {
            tracing::info!(group = self.parts.name, "standing by: {held}");
        }
        self.looked = Some((Instant::now(), self.now()));
        let _ = self.parts.ticks.send(Arc::new(Tick {
            group: self.parts.name.clone(),
            dry: self.parts.target.is_dry(),
            stand_by: Some(held),
            seen: None,
            decision: None,
            outcome: None,
            cpu_ema: None,
        }));
        STAND_BY
    }

    /// The state of the last tick, or after a start the stored one; moved along if the clock was set.
    fn take_up(&mut self) -> State {
        let (instant, now) = (Instant::now(), self.now());
        let looked = self.looked.replace((instant, now));
        let Some(mut state) = self.state.take() else {
            let mut state = self.parts.store.load(&self.parts.name).unwrap_or_default();
            state.resume(&self.parts.rules, now);
            return state;
        };
        if let Some((then, at)) = looked {
            let passed = Span::try_from(instant - then).unwrap_or(Span::ZERO);
            let jump = now.since(at.plus(passed));
            if jump.abs() > Span::from_secs(2) {
                tracing::warn!(
                    group = self.parts.name,
                    "the clock was set by {jump:#}: timers follow"
                );
                state.shift(jump);
            }
        }
        state
    }

    /// All readings of one tick. Never fails: errors become readings.
    async fn observe(&mut self) -> Observation {
        let parts = &mut self.parts;
        let (queue, fleet) = tokio::join!(
            tokio::time::timeout(LOOK_TIMEOUT, parts.queue.read()),
            tokio::time::timeout(LOOK_TIMEOUT, parts.target.status()),
        );
        let now = (parts.clock)();
        let queue = queue.unwrap_or_else(|_| Err(too_slow()));
        let fleet = fleet.unwrap_or_else(|_| Err(too_slow()));
        Observation {
            t: now,
            host: (parts.host)(now, parts.rules.policy.poll()),
            fleet: self.fleet_reading(fleet, queue.as_ref().ok(), now),
            queue: match queue {
                Ok(QueueSeen { reading, .. }) => Reading::known(reading, now),
                Err(missing) => Reading::Missing(missing),
            },
        }
    }

    fn fleet_reading(
        &mut self,
        fleet: Result<FleetSeen, Missing>,
        queue: Option<&QueueSeen>,
        now: Timestamp,
    ) -> Reading<FleetReading> {
        let fleet = match fleet {
            Ok(fleet) => fleet,
            Err(missing) => return Reading::Missing(missing),
        };
        let consumers = queue.and_then(|q| q.consumers.as_deref());
        let QueueReading { waiting, .. } = queue.map(|q| q.reading.clone()).unwrap_or_default();
        let start_up = self.parts.rules.start_up();
        Reading::known(self.busy_map.join(fleet, consumers, waiting, start_up, now), now)
    }

    fn record(&self, seen: &Observation, decision: &Decision, state: &State) {
        let Parts { name, target, store, .. } = &self.parts;
        store.record(name, target.is_dry(), seen, decision, state);
    }

    /// The only place that changes the world.
    async fn act(&mut self, decision: &Decision, token: u64) -> Option<(Outcome, String)> {
        let (from, to) = decision.change()?;
        match self.parts.lease.hold().await {
            Ok(now) if now == token => {}
            _ => return Some((Outcome::Failed, "the lease was lost: nothing was done".into())),
        }
        let order = Order {
            group: self.parts.name.clone(),
            from,
            to,
            victims: decision.victims.clone(),
            kind: decision.kind,
            reason: decision.reason.clone(),
            token,
        };
        match self.parts.target.scale(&order).await {
            Ok(scaled) => Some((Outcome::Done, scaled.note)),
            Err(error) => Some((Outcome::Failed, error.to_string())),
        }
    }

    fn note(&self, state: &mut State, decision: &Decision, outcome: Option<&(Outcome, String)>) {
        let Some((outcome, note)) = outcome else { return };
        state.note(*outcome, self.now());
        self.parts.store.settle(&self.parts.name, decision.t, *outcome, note, state);
    }

    /// A source that stops answering is news, whatever the decision; so is one that answers again.
    fn log_silence(&mut self, seen: &Observation) {
        let missing = [
            (Source::Queue, seen.queue.why_missing()),
            (Source::Host, seen.host.why_missing()),
            (Source::Fleet, seen.fleet.why_missing()),
        ];
        let silent: Vec<_> = missing.iter().filter_map(|(s, m)| Some((*s, (*m)?.why))).collect();
        let group = &self.parts.name;
        for (source, missing) in missing {
            let before = self.silent.iter().find(|(s, _)| *s == source).map(|(_, why)| *why);
            match missing {
                Some(missing) if before != Some(missing.why) => {
                    tracing::warn!(group, "{source} is unknown: {missing}");
                }
                None if before.is_some() => tracing::info!(group, "{source} answers again"),
                _ => {}
            }
        }
        self.silent = silent;
    }

    /// A hold is news when it has another kind of reason than the one before.
    fn log_hold(&mut self, decision: &Decision) {
        let Decision { current, policy_wanted, wanted, rule, reason, trail, .. } = decision;
        let group = &self.parts.name;
        let why = trail.iter().rfind(|step| step.rule == *rule).map(|step| discriminant(&step.why));
        if *rule == Rule::Waiting || why.is_none() || self.said == why {
            tracing::debug!(group, rule = rule.name(), current, policy_wanted, wanted, "{reason}");
            return;
        }
        self.said = why;
        if *rule == Rule::Breaker {
            tracing::warn!(group, rule = rule.name(), current, policy_wanted, wanted, "{reason}");
        } else {
            tracing::info!(group, rule = rule.name(), current, policy_wanted, wanted, "{reason}");
        }
    }

    /// Logs, watchers and the compatible list.
    async fn tell(
        &mut self,
        state: &State,
        seen: Observation,
        decision: &Decision,
        outcome: Option<(Outcome, String)>,
    ) {
        let dry = self.parts.target.is_dry();
        self.log_silence(&seen);
        match &outcome {
            Some(outcome) => log_change(&self.parts.name, dry, decision, outcome),
            None => self.log_hold(decision),
        }
        let polled = state.policy.decided_at.filter(|at| Some(*at) != self.listed_at);
        if let (Some(list), Some(at)) = (&mut self.parts.metrics_list, polled)
            && let Some(snapshot) = snapshot(&seen, state, at)
        {
            self.listed_at = polled;
            list.push(&snapshot).await;
        }
        let _ = self.parts.ticks.send(Arc::new(Tick {
            group: self.parts.name.clone(),
            dry,
            stand_by: None,
            seen: Some(seen),
            decision: Some(decision.clone()),
            outcome,
            cpu_ema: state.cpu_ema(),
        }));
    }
}

fn too_slow() -> Missing {
    let detail = format!("no answer within {} s", LOOK_TIMEOUT.as_secs());
    Missing { why: Silence::Timeout, detail }
}

/// The reference's snapshot; only where everything in it is known.
fn snapshot(seen: &Observation, state: &State, at: Timestamp) -> Option<Snapshot> {
    let (queue, host, fleet) = (seen.queue.value()?, seen.host.value()?, seen.fleet.value()?);
    Some(Snapshot {
        ts: at.as_seconds(),
        cpu_raw: host.cpu_raw,
        cpu_ema: state.cpu_ema()?,
        workers: fleet.capacity(),
        waiting: queue.waiting,
        active: queue.active,
    })
}

/// One line for each change: what, from where to where, and why.
fn log_change(group: &str, dry: bool, decision: &Decision, outcome: &(Outcome, String)) {
    let Decision { current, policy_wanted, wanted, kind, rule, reason, .. } = decision;
    let (kind, rule, note) = (kind.name(), rule.name(), &outcome.1);
    if outcome.0 == Outcome::Done {
        tracing::info!(group, dry, kind, rule, current, policy_wanted, wanted, note, "{reason}");
    } else {
        tracing::warn!(group, dry, kind, rule, current, policy_wanted, wanted, "{reason}: {note}");
    }
}

#[cfg(test)]
mod tests;
