//! What is told of a group beside its scaling: how long workers were online, alerts, and events to
//! those who want them.

use headcount_core::alert::AlertNews;
use headcount_core::{
    Alert, Alerts, Decision, FleetReading, Observation, Outcome, State, Timestamp,
};

use super::{Group, Parts};
use crate::limits::USAGE_GAP;
use crate::sinks::EventSink;
use crate::store::{Event, Online};
use crate::usage;

/// What is told, and to whom.
pub struct News {
    /// The memory of one worker, bytes: for its usage.
    pub worker_memory: u64,
    /// What people want to hear of.
    pub alerts: Alerts,
    /// Who else is told of events.
    pub sinks: Vec<Box<dyn EventSink>>,
}

impl Default for News {
    fn default() -> Self {
        Self { worker_memory: usage::UNIT, alerts: Alerts::default(), sinks: Vec::new() }
    }
}

impl Group {
    pub(super) fn count_usage(&self, fleet: &FleetReading, t: Timestamp) {
        let Parts { memory: name, target, store, look, news, .. } = &self.parts;
        let (workers, memory, dry) = (fleet.online(), news.worker_memory, target.is_dry());
        let gap = look.saturating_mul(2).max(USAGE_GAP);
        store.record_usage(name, t, Online { workers, memory, dry }, gap);
    }

    /// What people wanted to hear of.
    pub(super) fn judge(
        &self,
        state: &mut State,
        seen: &Observation,
        now: Timestamp,
    ) -> Vec<Alert> {
        let Parts { news, rules, look, .. } = &self.parts;
        let gap = rules.stale_after().max(look.saturating_mul(2));
        news.alerts.judge(&mut state.alerts, seen, gap, now)
    }

    /// Keeps and passes on what people wanted to hear of. That one still lasts is only passed on.
    pub(super) fn alert(&self, alerts: Vec<Alert>, seen: &Observation, decision: &Decision) {
        for alert in alerts {
            self.voice.alerts(&alert);
            let lasts = alert.state == AlertNews::Lasts;
            let event = self.event(seen, decision, None, Some(alert));
            if !lasts {
                let group = self.parts.memory.clone();
                self.parts.store.record_event(Event { group, ..event.clone() });
            }
            self.pass_on(&event);
        }
    }

    /// Passes a change on, with what became of it.
    pub(super) fn pass_on_change(
        &self,
        seen: &Observation,
        decision: &Decision,
        outcome: &(Outcome, String),
    ) {
        if !self.parts.news.sinks.is_empty() {
            self.pass_on(&self.event(seen, decision, Some(outcome), None));
        }
    }

    fn event(
        &self,
        seen: &Observation,
        decision: &Decision,
        outcome: Option<&(Outcome, String)>,
        alert: Option<Alert>,
    ) -> Event {
        Event {
            t: decision.t,
            group: self.parts.name.clone(),
            dry: self.parts.target.is_dry(),
            outcome: outcome.map(|(outcome, _)| *outcome),
            note: outcome.map(|(_, note)| note.clone()).unwrap_or_default(),
            observation: seen.clone(),
            decision: decision.clone(),
            alert,
        }
    }

    fn pass_on(&self, event: &Event) {
        self.parts.news.sinks.iter().for_each(|sink| sink.tell(event));
    }
}
