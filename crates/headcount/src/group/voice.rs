//! What a group says in the log: one line for each change, and for each new reason to hold.

use std::mem::{Discriminant, discriminant};

use headcount_core::alert::AlertNews;
use headcount_core::decision::Source;
use headcount_core::state::Controls;
use headcount_core::{Alert, Decision, Observation, Outcome, Rule, Silence, Why};

use crate::lease::Held;

/// Remembers what was said, so that it is not said again.
#[derive(Debug)]
pub struct Voice {
    group: String,
    /// Present, and so in each line, only in a dry run.
    dry: Option<bool>,
    held: Option<Discriminant<Why>>,
    silent: Vec<(Source, Silence)>,
    controls: Controls,
    stands_by: Option<Held>,
}

impl Voice {
    /// For a group that has said nothing.
    pub fn new(group: &str, dry: bool) -> Self {
        Self {
            group: group.into(),
            dry: dry.then_some(true),
            held: None,
            silent: Vec::new(),
            controls: Controls::default(),
            stands_by: None,
        }
    }

    /// It may not act.
    pub fn stands_by(&mut self, why: &Held) {
        if self.stands_by.as_ref() == Some(why) {
            return;
        }
        self.stands_by = Some(why.clone());
        let group = &self.group;
        match why {
            Held::ByOther(who) => tracing::info!(group, "standing by: the lease is held by {who}"),
            Held::Unusable(why) => tracing::warn!(group, "nothing can be done: {why}"),
        }
    }

    /// It may act.
    pub fn leads(&mut self) {
        if self.stands_by.take().is_some() {
            tracing::info!(group = self.group, "has the lease now");
        }
    }

    /// Something that people wanted to hear of.
    pub fn alerts(&self, alert: &Alert) {
        let (group, dry, name) = (&self.group, self.dry, alert.name.name());
        match alert.state {
            AlertNews::Raised => tracing::warn!(group, dry, "alert {name}: {alert}"),
            AlertNews::Lasts => {}
            AlertNews::Resolved => {
                tracing::info!(group, dry, "alert {name} is over: {alert}");
            }
        }
    }

    /// What people ask for.
    pub fn asked(&mut self, controls: &Controls) {
        if self.controls == *controls {
            return;
        }
        self.controls = controls.clone();
        tracing::info!(group = self.group, "{controls}");
    }

    /// A source that stops answering is news, whatever the decision; so is one that answers again.
    pub fn saw(&mut self, seen: &Observation) {
        let missing = [
            (Source::Queue, seen.queue.why_missing()),
            (Source::Host, seen.host.why_missing()),
            (Source::Fleet, seen.fleet.why_missing()),
        ];
        let silent: Vec<_> = missing.iter().filter_map(|(s, m)| Some((*s, (*m)?.why))).collect();
        let group = &self.group;
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

    /// A change: what, from where to where, why, and what became of it.
    pub fn changed(&mut self, decision: &Decision, outcome: &(Outcome, String)) {
        self.held = None;
        let Decision { current, policy_wanted, wanted, kind, rule, reason, .. } = decision;
        let (group, dry, kind, rule) = (&self.group, self.dry, kind.name(), rule.name());
        let (outcome, note) = (outcome.0, &outcome.1);
        match outcome {
            Outcome::Done | Outcome::Pretended => tracing::info!(
                group,
                dry,
                kind,
                rule,
                current,
                policy_wanted,
                wanted,
                note,
                "{reason}"
            ),
            Outcome::NotNow => tracing::info!(
                group,
                dry,
                kind,
                rule,
                current,
                policy_wanted,
                wanted,
                "{reason}: not now: {note}"
            ),
            Outcome::Failed => tracing::warn!(
                group,
                dry,
                kind,
                rule,
                current,
                policy_wanted,
                wanted,
                "{reason}: {note}"
            ),
        }
    }

    /// The number is another one again each time after it was set.
    pub fn contested(&self, to: u32) {
        tracing::warn!(
            group = self.group,
            "somebody else sets the number: it does not stay at {to}; it is set more rarely now. Let \
             only one scale these workers"
        );
    }

    /// A change that takes long.
    pub fn still(&self, from: u32, to: u32, seconds: u64) {
        tracing::info!(group = self.group, "going from {from} to {to}, for {seconds} s now");
    }

    /// A hold is news when it has another kind of reason than the one before.
    pub fn held(&mut self, decision: &Decision) {
        let Decision { current, policy_wanted, wanted, rule, reason, trail, .. } = decision;
        let (group, dry, name) = (&self.group, self.dry, rule.name());
        let why = trail.iter().rfind(|step| step.rule == *rule).map(|step| discriminant(&step.why));
        if *rule == Rule::Waiting || why.is_none() || self.held == why {
            tracing::debug!(group, dry, rule = name, current, policy_wanted, wanted, "{reason}");
            return;
        }
        self.held = why;
        match rule {
            // The source's own line has been said.
            Rule::Unknown => {}
            Rule::Breaker => {
                tracing::warn!(group, dry, rule = name, current, policy_wanted, wanted, "{reason}");
            }
            _ => {
                tracing::info!(group, dry, rule = name, current, policy_wanted, wanted, "{reason}")
            }
        }
    }
}
