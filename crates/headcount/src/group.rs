//! The loop of one group: observe, decide, record, act, note. Nothing else changes the world.

mod contest;
mod news;
mod tick;
mod voice;

use std::collections::HashMap;
use std::sync::Arc;

use headcount_core::alert::AlertState;
use headcount_core::{
    Cadence, Decision, FleetReading, HostReading, Missing, Observation, Outcome, QueueReading,
    Reading, Rules, Silence, Span, State, Timestamp, decide,
};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::budget::Member;
use crate::busy_map::BusyMap;
use crate::clock::{self, Clock};
use crate::daemon::{Stop, Tuning};
use crate::lease::{Held, Lease};
use crate::limits::{DRAIN_POLL, LEAST_REST, LOOK_TIMEOUT, STAND_BY, STILL_EVERY, STOP_TIMEOUT};
use crate::metrics_list::{MetricsListWriter, Snapshot};
use crate::queues::{Queue, QueueSeen};
use crate::store::Store;
use crate::targets::{FleetSeen, Order, Target, TargetError};

use contest::{Contest, Contested};
pub use news::News;
pub use tick::Tick;
use voice::Voice;

/// Reads the host: see [`crate::hosts::HostWatch::read`].
pub type ReadHost = Arc<dyn Fn(Timestamp, Span) -> Reading<HostReading> + Send + Sync>;

/// What a group is made of.
pub struct Parts {
    /// Its name.
    pub name: String,
    /// Under which name it is remembered: its own, unless a dry run must not touch that.
    pub memory: String,
    /// Its rules.
    pub rules: Rules,
    /// The longest time between two looks.
    pub look: Span,
    /// What is told beside the scaling, and to whom.
    pub news: News,
    /// Where demand is read.
    pub queue: Box<dyn Queue>,
    /// What runs the workers.
    pub target: Box<dyn Target>,
    /// What the machine says at a time; CPU also averaged over the span before it.
    pub host: ReadHost,
    /// Where everything is kept.
    pub store: Arc<Store>,
    /// What it may have of what all groups share.
    pub budget: Member,
    /// The right to act.
    pub lease: Box<dyn Lease>,
    /// The list of snapshots the reference autoscaler keeps, if wanted.
    pub metrics_list: Option<MetricsListWriter>,
    /// Who watches: metrics, views.
    pub ticks: broadcast::Sender<Arc<Tick>>,
    /// The wall clock.
    pub clock: Clock,
}

/// One group, running.
pub struct Group {
    parts: Parts,
    busy_map: BusyMap,
    state: Option<State>,
    looked: Option<(Instant, Timestamp)>,
    listed_at: Option<Timestamp>,
    voice: Voice,
    /// Who may be busy by the last look, see [`Order::busy`].
    busy: HashMap<String, Option<Span>>,
    /// Whether somebody else sets the same number.
    contest: Contest,
}

impl Group {
    /// Puts a group together. It looks at nothing yet.
    pub fn new(parts: Parts) -> Self {
        Self {
            voice: Voice::new(&parts.name, parts.target.is_dry()),
            parts,
            busy_map: BusyMap::default(),
            state: None,
            looked: None,
            listed_at: None,
            busy: HashMap::new(),
            contest: Contest::default(),
        }
    }

    /// Ticks until told to stop. New rules come through `tuned`.
    pub async fn run(
        mut self,
        mut tuned: watch::Receiver<Tuning>,
        mut stop: watch::Receiver<Stop>,
    ) {
        // It may start again after a break.
        self.tune(tuned.borrow_and_update().clone());
        let wakes = self.parts.queue.wakes().unwrap_or_default();
        while *stop.borrow() == Stop::No {
            let rest = clock::duration(self.tick().await).max(LEAST_REST);
            tokio::time::sleep(LEAST_REST).await;
            tokio::select! {
                () = tokio::time::sleep(rest - LEAST_REST) => {}
                () = wakes.notified() => {}
                Ok(()) = tuned.changed() => {
                    self.tune(tuned.borrow_and_update().clone());
                }
                _ = stop.changed() => {}
            }
        }
        if *stop.borrow() == Stop::End {
            self.parts.target.close().await;
        }
        self.leave().await;
    }

    /// One tick. Returns how long to rest at the most.
    pub async fn tick(&mut self) -> Span {
        let token = match self.parts.lease.hold().await {
            Ok(token) => token,
            Err(held) => return self.stand_by(held),
        };
        self.voice.leads();
        let mut state = self.take_up();
        let mut seen = self.observe().await;
        self.contest.saw(seen.fleet.value().and_then(|fleet| fleet.desired));
        let now = self.now();
        state.controls = self.parts.store.controls(&self.parts.name);

        let decision = self.decide(&mut state, &mut seen, now);
        let alerts = self.judge(&mut state, &seen, now);
        // A number that somebody else sets again and again is set rarely.
        let rests = decision.change().is_some_and(|(_, to)| self.contest.rests(to));
        let news = is_news(&state, &decision) && !rests;
        if !news {
            state.pending = None;
        }
        self.record(&seen, &decision, &state, news);
        self.alert(alerts, &seen, &decision);
        let mut outcome = if news { self.act(&decision, token).await } else { None };
        let again =
            waits_again(&state, outcome.as_ref()) | self.is_contested(&decision, outcome.as_mut());
        self.note(&mut state, &decision, outcome.as_ref(), again);
        self.watch_over(&seen, token).await;
        self.tell(&state, seen, &decision, outcome, again).await;

        self.state = Some(state);
        decision.look_again.unwrap_or(self.parts.look).min(self.parts.look)
    }

    fn tune(&mut self, tuning: Tuning) {
        let Tuning { rules, look, worker_memory, alerts } = tuning;
        (self.parts.rules, self.parts.look) = (rules, look);
        (self.parts.news.worker_memory, self.parts.news.alerts) = (worker_memory, alerts);
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

    /// Gives the right to act back, once all is told.
    pub async fn leave(&mut self) {
        for sink in &mut self.parts.news.sinks {
            sink.close().await;
        }
        self.parts.lease.release().await;
    }

    fn now(&self) -> Timestamp {
        (self.parts.clock)()
    }

    /// Somebody else acts: forget what we knew, so that we start from what they wrote.
    fn stand_by(&mut self, held: Held) -> Span {
        self.state = None;
        self.voice.stands_by(&held);
        let tick = Tick { stand_by: Some(held), ..self.blank_tick() };
        let _ = self.parts.ticks.send(Arc::new(tick));
        STAND_BY
    }

    /// Whether the change was made although somebody else undoes it each time, as was told before.
    /// The first time it is added to what became of it.
    fn is_contested(
        &mut self,
        decision: &Decision,
        outcome: Option<&mut (Outcome, String)>,
    ) -> bool {
        let (Some((_, to)), Some((Outcome::Done, note))) = (decision.change(), outcome) else {
            return false;
        };
        let contested = self.contest.did(to);
        if contested == Contested::News {
            self.voice.contested(to);
            let comma = if note.is_empty() { "" } else { "; " };
            *note += &format!("{comma}somebody else sets the number: it is set more rarely now");
        }
        contested == Contested::Again
    }

    fn blank_tick(&self) -> Tick {
        let Parts { name, rules, target, .. } = &self.parts;
        Tick {
            group: name.clone(),
            dry: target.is_dry(),
            stand_by: None,
            bounds: (rules.workers.min, rules.workers.max),
            seen: None,
            decision: None,
            outcome: None,
            cpu_ema: None,
            alerts: AlertState::default().raised(),
        }
    }

    /// The state of the last tick, or after a start the stored one; moved along if the clock was set.
    fn take_up(&mut self) -> State {
        let (instant, now) = (Instant::now(), self.now());
        let looked = self.looked.replace((instant, now));
        let Some(mut state) = self.state.take() else {
            let mut state = self.parts.store.load(&self.parts.memory).unwrap_or_default();
            state.resume(&self.parts.rules, now);
            return state;
        };
        if let Some((then, at)) = looked {
            let passed = Span::try_from(instant - then).unwrap_or(Span::ZERO);
            let jump = now.since(at.plus(passed));
            if jump.abs() > Span::from_secs(2) {
                let way = if jump.is_negative() { "back" } else { "forward" };
                tracing::warn!(
                    group = self.parts.name,
                    "the clock was set {way} by {:#}: timers follow",
                    jump.abs()
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
        let mut queue = queue.unwrap_or_else(|_| Err(too_slow()));
        if let Ok(seen) = &mut queue
            && !parts.rules.policy.takes_windows()
        {
            seen.reading.occupancy = None;
        }
        let fleet = fleet.unwrap_or_else(|_| Err(too_slow()));
        Observation {
            t: now,
            host: host_reading(parts, now),
            fleet: self.fleet_reading(fleet, queue.as_ref().ok(), now),
            queue: match queue {
                Ok(QueueSeen { reading, .. }) => Reading::known(reading, now),
                Err(missing) => Reading::Missing(missing),
            },
            budget: None,
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
        let fleet = self.busy_map.join(fleet, consumers, waiting, start_up, now);
        self.busy = self.busy_map.busy(&fleet);
        Reading::known(fleet, now)
    }

    /// Decides within what the group may have of the budget at this moment.
    fn decide(&self, state: &mut State, seen: &mut Observation, now: Timestamp) -> Decision {
        let current = seen.fleet.value().map(FleetReading::capacity);
        self.parts.budget.within(current, |allowance| {
            seen.budget = allowance;
            decide(&self.parts.rules, state, seen, Cadence::OwnPoll, now)
        })
    }

    fn record(&mut self, seen: &Observation, decision: &Decision, state: &State, news: bool) {
        if let Some(fleet) = seen.fleet.value() {
            self.count_usage(fleet, seen.t);
        }
        let Parts { memory, target, store, queue, .. } = &mut self.parts;
        store.record_jobs(memory, queue.finished());
        store.record(memory, target.is_dry(), news, seen, decision, state);
    }

    /// The only place that changes the world.
    async fn act(&mut self, decision: &Decision, token: u64) -> Option<(Outcome, String)> {
        let (from, to) = decision.change()?;
        if !self.still_holds(token).await {
            return Some((Outcome::Failed, "the lease was lost: nothing was done".into()));
        }
        let order = Order {
            group: self.parts.name.clone(),
            from,
            to,
            max: self.parts.rules.workers.max.max(to),
            victims: decision.victims.clone(),
            busy: self.busy.clone(),
            kind: decision.kind,
            reason: decision.reason.clone(),
            token,
        };
        let started = Instant::now();
        let scaling = self.parts.target.scale(&order);
        tokio::pin!(scaling);
        let scaled = loop {
            tokio::select! {
                scaled = &mut scaling => break scaled,
                () = tokio::time::sleep(STILL_EVERY) => {
                    self.voice.still(from, to, started.elapsed().as_secs());
                }
            }
        };
        match scaled {
            Ok(scaled) if scaled.pretended => Some((Outcome::Pretended, scaled.note)),
            Ok(scaled) => Some((Outcome::Done, scaled.note)),
            Err(TargetError::NotNow { what, detail }) => {
                Some((Outcome::NotNow, format!("{what}: {detail}")))
            }
            Err(error) => Some((Outcome::Failed, error.to_string())),
        }
    }

    async fn still_holds(&mut self, token: u64) -> bool {
        self.parts.lease.hold().await.is_ok_and(|now| now == token)
    }

    /// Lets the target keep its promise to busy workers, between two changes too.
    async fn watch_over(&mut self, seen: &Observation, token: u64) {
        if seen.fleet.value().is_some() && self.still_holds(token).await {
            self.parts.target.watch_over(&self.busy).await;
        }
    }

    fn note(
        &self,
        state: &mut State,
        decision: &Decision,
        outcome: Option<&(Outcome, String)>,
        again: bool,
    ) {
        let Some((outcome, note)) = outcome else { return };
        state.note_said(*outcome, note, self.now());
        let Parts { store, memory, .. } = &self.parts;
        match again {
            true => store.withdraw(memory, decision.t, state),
            false => store.settle(memory, decision.t, *outcome, note, state),
        }
    }

    /// Logs, watchers and the compatible list.
    async fn tell(
        &mut self,
        state: &State,
        seen: Observation,
        decision: &Decision,
        outcome: Option<(Outcome, String)>,
        again: bool,
    ) {
        self.voice.asked(&state.controls);
        self.voice.saw(&seen);
        match &outcome {
            Some(_) if again => {}
            Some(told) => {
                self.voice.changed(decision, told);
                self.pass_on_change(&seen, decision, told);
            }
            None => self.voice.held(decision),
        }
        let polled = state.policy.decided_at.filter(|at| Some(*at) != self.listed_at);
        if let (Some(list), Some(at)) = (&mut self.parts.metrics_list, polled)
            && let Some(snapshot) = snapshot(&seen, state, at)
        {
            self.listed_at = polled;
            list.push(&snapshot).await;
        }
        let (seen, decision) = (Some(seen), Some(decision.clone()));
        let (alerts, cpu_ema) = (state.alerts.raised(), state.cpu_ema());
        let tick = Tick { seen, decision, outcome, cpu_ema, alerts, ..self.blank_tick() };
        let _ = self.parts.ticks.send(Arc::new(tick));
    }
}

/// Whether a change is to be made. A change that was only pretended is none again while it is wanted,
/// and guards that would go another way between two polls would not have been asked in a live run.
fn is_news(state: &State, decision: &Decision) -> bool {
    let Some(change) = decision.change() else { return false };
    let pretended = state.unmade.as_ref().filter(|unmade| unmade.outcome == Outcome::Pretended);
    pretended.is_none_or(|u| (u.from, u.to) != change && !decision.is_between_polls())
}

/// Whether the target says "not now" to the same change as before: that is no news.
fn waits_again(state: &State, outcome: Option<&(Outcome, String)>) -> bool {
    let is_now = outcome.is_some_and(|(what, _)| *what == Outcome::NotNow);
    let before = state.unmade.as_ref().filter(|unmade| unmade.outcome == Outcome::NotNow);
    let change = state.pending.as_ref().map(|pending| (pending.from, pending.to));
    is_now && before.is_some_and(|unmade| Some((unmade.from, unmade.to)) == change)
}

/// What the machine says, marked if the workers run on another one.
fn host_reading(parts: &Parts, now: Timestamp) -> Reading<HostReading> {
    let mut host = (parts.host)(now, parts.rules.policy.poll());
    if let Reading::Known { value, .. } = &mut host {
        value.elsewhere = !parts.target.runs_here();
    }
    host
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

#[cfg(test)]
mod tests;
