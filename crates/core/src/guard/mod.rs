//! Guards: safety rules that no policy can override. Each is one file, each adds its step to the
//! trail, and [`crate::decide`] calls them in a fixed order.

pub mod bounds;
pub mod brake;
pub mod breaker;
pub mod budget;
pub mod busy;
pub mod capacity;
pub mod controls;
pub mod limits;
pub mod unknown;

use crate::decision::{Kind, Rule, Step, Why};
use crate::policy::Wish;
use crate::reading::{FleetReading, HostReading, QueueReading};
use crate::rules::Rules;
use crate::time::Timestamp;

/// The fewest and the most workers in force at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The fewest.
    pub min: u32,
    /// The most.
    pub max: u32,
}

/// What one decision looks at: the rules and the readings that are fresh.
pub(crate) struct Look<'a> {
    pub(crate) rules: &'a Rules,
    pub(crate) now: Timestamp,
    /// Decide now, whatever the policy's cadence (replay and simulation choose the moments).
    pub(crate) every_look: bool,
    /// Workers that serve or soon will.
    pub(crate) current: u32,
    /// The bounds of the rules or of the schedule's window.
    pub(crate) bounds: Range,
    pub(crate) queue: Option<&'a QueueReading>,
    pub(crate) host: Option<&'a HostReading>,
    pub(crate) fleet: &'a FleetReading,
}

/// A decision in the making.
pub(crate) struct Draft {
    pub(crate) current: u32,
    pub(crate) wanted: u32,
    /// The bounds in force after the controls.
    pub(crate) range: Range,
    /// No later guard may go under this.
    pub(crate) floor: u32,
    pub(crate) kind: Kind,
    pub(crate) victims: Vec<String>,
    pub(crate) trail: Vec<Step>,
    /// The step that gives the decision its reason; the first if none had to insist.
    pub(crate) last_word: Option<usize>,
}

impl Draft {
    pub(crate) fn new(look: &Look<'_>) -> Self {
        Self {
            current: look.current,
            wanted: look.current,
            range: look.bounds,
            floor: 0,
            kind: Kind::Hold,
            victims: Vec::new(),
            trail: Vec::new(),
            last_word: None,
        }
    }

    /// A rule's word: the number is `after` now, because of `why`. It is the last word if it
    /// changes the number.
    pub(crate) fn say(&mut self, rule: Rule, after: u32, why: Why) {
        if after != self.wanted {
            self.last_word = Some(self.trail.len());
        }
        self.trail.push(Step { rule, before: self.wanted, after, why });
        self.wanted = after;
    }

    /// As [`Draft::say`], and it is the last word even if the number stays.
    pub(crate) fn insist(&mut self, rule: Rule, after: u32, why: Why) {
        self.say(rule, after, why);
        self.last_word = Some(self.trail.len() - 1);
    }

    /// As [`Draft::say`], and if the rule has the last word this is the kind of decision it makes.
    pub(crate) fn rule(&mut self, kind: Kind, rule: Rule, after: u32, why: Why) {
        self.kind = kind;
        self.say(rule, after, why);
    }

    /// A policy's wish. Where its own number is limited, that is a step too; the policy keeps the word.
    pub(crate) fn wish(&mut self, kind: Kind, wish: Wish) {
        let Wish { wanted, rule, why, cut } = wish;
        let (asked, limit) = match cut {
            Some((asked, limit)) => (asked, Some(limit)),
            None => (wanted, None),
        };
        self.rule(kind, rule, asked, why);
        if let Some(why) = limit {
            let word = self.last_word;
            self.say(Rule::Bounds, wanted, why);
            self.last_word = word.or(self.last_word);
        }
    }

    /// Whether workers would be added.
    pub(crate) const fn grows(&self) -> bool {
        self.wanted > self.current
    }

    /// Whether workers would be removed.
    pub(crate) const fn shrinks(&self) -> bool {
        self.wanted < self.current
    }
}
