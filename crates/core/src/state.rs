//! All that is remembered from one tick to the next. Versioned and serialisable, so that a restart
//! changes nothing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::alert::AlertState;
use crate::decision::{Decision, Direction, Kind, Rule, Why};
use crate::estimate::load::Load;
use crate::guard::brake::BrakeState;
use crate::guard::breaker::{self, BreakerState};
use crate::guard::unknown::UnknownState;
use crate::policy::PolicyState;
use crate::rules::Rules;
use crate::time::{Span, Timestamp};

/// The version of the layout of [`State`]. A change that old readers misread raises it.
pub const VERSION: u32 = 1;

/// All that is remembered of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// The layout's version.
    pub version: u32,
    /// When the group was last looked at.
    pub seen_at: Option<Timestamp>,
    /// The number of workers when it was last known.
    pub current: Option<u32>,
    /// What the policy remembers.
    pub policy: PolicyState,
    /// Since when sources are silent, or answer again.
    pub unknown: UnknownState,
    /// Whether the brake is on.
    pub brake: BrakeState,
    /// What the workers take of their machine.
    pub load: Load,
    /// Failures in a row.
    pub breaker: BreakerState,
    /// What a person asked for.
    pub controls: Controls,
    /// What was told of the alerts.
    #[serde(skip_serializing_if = "AlertState::is_blank")]
    pub alerts: AlertState,
    /// A decision whose outcome is not known yet.
    pub pending: Option<Pending>,
    /// The last change, if it was not made and is still wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmade: Option<Unmade>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            version: VERSION,
            seen_at: None,
            current: None,
            policy: PolicyState::default(),
            unknown: UnknownState::default(),
            brake: BrakeState::default(),
            load: Load::default(),
            breaker: BreakerState::default(),
            controls: Controls::default(),
            alerts: AlertState::default(),
            pending: None,
            unmade: None,
        }
    }
}

/// What a person asked for; it holds until it expires or is taken back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Controls {
    /// No scaling.
    pub pause: Option<Pause>,
    /// A fixed number.
    pub fixed: Option<Fixed>,
    /// When a person last wanted a new try of what had failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Timestamp>,
}

impl Controls {
    /// Whether a number is fixed or scaling is paused.
    pub const fn hold(&self) -> bool {
        self.pause.is_some() || self.fixed.is_some()
    }

    /// Forgets what is over at `now`.
    pub fn expire(&mut self, now: Timestamp) {
        let over = |until: Option<Timestamp>| until.is_some_and(|t| now >= t);
        self.fixed.take_if(|fixed| over(fixed.until));
        self.pause.take_if(|pause| over(pause.until));
        self.retry.take_if(|asked| over(Some(asked.plus(breaker::LONGEST))));
    }
}

/// What is asked for, in words.
impl fmt::Display for Controls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = |x: &Fixed| Why::Asked { workers: x.workers, until: x.until };
        let paused = |x: &Pause| Why::Paused { direction: x.direction, until: x.until };
        match (self.fixed.as_ref().map(asked), self.pause.as_ref().map(paused)) {
            (Some(asked), Some(paused)) => write!(f, "{asked}; {paused}"),
            (Some(why), None) | (None, Some(why)) => write!(f, "{why}"),
            (None, None) if self.retry.is_some() => {
                f.write_str("nothing is asked for; what failed is tried again")
            }
            (None, None) => f.write_str("nothing is asked for"),
        }
    }
}

/// No scaling in some direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pause {
    /// Which way.
    pub direction: Direction,
    /// Until when; for ever if absent.
    pub until: Option<Timestamp>,
}

/// A fixed number of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fixed {
    /// How many.
    pub workers: u32,
    /// Until when; for ever if absent.
    pub until: Option<Timestamp>,
}

/// A change that was decided and handed to the target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// When it was decided.
    pub at: Timestamp,
    /// The number before.
    pub from: u32,
    /// The number aimed at.
    pub to: u32,
    /// The policy itself wanted to go this way (a guard may have done it alone).
    pub by_policy: bool,
    /// The brake removed a worker in an emergency.
    #[serde(default)]
    pub by_brake: bool,
    /// What kind of decision it was.
    #[serde(default)]
    pub kind: Kind,
}

/// A change that was wanted and not made. It is remembered while it is wanted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unmade {
    /// The number before, which is the number still.
    pub from: u32,
    /// The number aimed at.
    pub to: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// What the target said.
    pub said: String,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The target did it.
    Done,
    /// The target refused, failed or did not answer in time.
    Failed,
    /// The target did nothing, for a reason that passes: no success, and no failure.
    NotNow,
    /// The target did nothing, since this is a dry run. Nothing has changed, so nothing starts: no
    /// cooldown, no limit of a rate.
    Pretended,
}

impl State {
    /// Smoothed CPU in percent, as the policy or the brake last had it.
    pub fn cpu_ema(&self) -> Option<f64> {
        self.policy.cpu_aware.ema.value().or(self.brake.cpu_ema.value())
    }

    /// Remembers what became of the last change, if one was decided.
    pub fn note(&mut self, outcome: Outcome, now: Timestamp) {
        self.note_said(outcome, "", now);
    }

    /// As [`State::note`], with what the target said.
    pub fn note_said(&mut self, outcome: Outcome, said: &str, now: Timestamp) {
        let Some(pending) = self.pending.take() else { return };
        self.unmade = None;
        match outcome {
            Outcome::Done => {
                self.breaker.succeeded();
                self.start_cooldowns(&pending);
                return;
            }
            Outcome::Failed => self.breaker.failed(&pending, said, now),
            Outcome::NotNow | Outcome::Pretended => {}
        }
        let (Pending { from, to, .. }, said) = (pending, said.into());
        self.unmade = Some(Unmade { from, to, outcome, said });
    }

    fn start_cooldowns(&mut self, done: &Pending) {
        if done.by_policy {
            self.policy.acted(done);
        }
        if done.by_brake {
            self.brake.removed_at = Some(done.at);
        }
    }

    /// Prepares a stored state for use after a restart at `now`.
    ///
    /// A change whose outcome nobody saw counts as done, so that its cooldown is kept. Nothing is
    /// known of the time in between: if it was longer than a reading may be old, it counts as an
    /// outage, and the time without work starts anew. A clock that went back is seen to by the next
    /// decision.
    pub fn resume(&mut self, rules: &Rules, now: Timestamp) {
        if let Some(pending) = self.pending.take() {
            self.start_cooldowns(&pending);
        }
        if self.seen_at.is_some_and(|seen_at| now.since(seen_at) > rules.stale_after()) {
            self.policy.forget_idleness();
            self.load.interrupted();
            self.unknown.interrupted(now);
        }
    }

    /// Notes the time of a look. If the clock went back, remembered times move back with it, so that
    /// no wait gets longer and none counts as over.
    pub(crate) fn follow_clock(&mut self, now: Timestamp) {
        if let Some(seen_at) = self.seen_at
            && now < seen_at
        {
            self.shift(now.since(seen_at));
        }
        self.seen_at = Some(now);
    }

    /// Moves every remembered time by `delta`, after the clock was set by as much.
    pub fn shift(&mut self, delta: Span) {
        let later = |t: &mut Option<Timestamp>| *t = t.map(|t| t.plus(delta));
        later(&mut self.seen_at);
        self.policy.shift(delta);
        self.unknown.times().into_iter().for_each(later);
        self.brake.times().into_iter().for_each(later);
        self.load.shift(delta);
        self.breaker.times().into_iter().for_each(later);
        self.alerts.shift(delta);
        if let Some(pending) = &mut self.pending {
            pending.at = pending.at.plus(delta);
        }
    }

    /// Keeps a decided change until its outcome is known, and what was not made while the policy has
    /// not thought better of it.
    pub(crate) fn remember(&mut self, decision: &Decision) {
        let still_wanted = |unmade: &Unmade| {
            decision.change() == Some((unmade.from, unmade.to))
                || decision.is_between_polls() && decision.current == Some(unmade.from)
        };
        self.unmade.take_if(|unmade| !still_wanted(unmade));
        self.pending = decision.change().map(|(from, to)| {
            let policy_wanted = decision.policy_wanted.unwrap_or(from);
            let by_policy =
                (to > from && policy_wanted > from) || (to < from && policy_wanted < from);
            let by_brake = decision.rule == Rule::Brake && to < from;
            Pending { at: decision.t, from, to, by_policy, by_brake, kind: decision.kind }
        });
    }
}
