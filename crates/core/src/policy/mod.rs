//! Policies: the rules that want a number. Each is the whole rule, timing included, in one file.

pub mod cpu_aware;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decision::{Rule, Why};
use crate::guard::Look;
use crate::state::Pending;
use crate::time::{Span, Timestamp, seconds};
use cpu_aware::{CpuAware, CpuAwareState};

/// The policy of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Policy {
    /// Queue depth and host CPU, one worker at a time.
    CpuAware(CpuAware),
}

impl Default for Policy {
    fn default() -> Self {
        Self::CpuAware(CpuAware::default())
    }
}

/// What every policy remembers, and each its own part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyState {
    /// When the policy last decided.
    pub decided_at: Option<Timestamp>,
    /// Memory of `cpu_aware`.
    pub cpu_aware: CpuAwareState,
}

/// What a policy wants, and why.
pub(crate) struct Wish {
    pub(crate) wanted: u32,
    pub(crate) rule: Rule,
    pub(crate) why: Why,
}

impl Policy {
    /// How often the policy decides.
    pub const fn poll(&self) -> Span {
        match self {
            Self::CpuAware(p) => p.poll,
        }
    }

    /// Whether it cannot decide without a reading of the host.
    pub const fn needs_host(&self) -> bool {
        matches!(self, Self::CpuAware(_))
    }

    /// Whether it has a rule of its own against an overloaded CPU.
    pub const fn watches_cpu(&self) -> bool {
        matches!(self, Self::CpuAware(_))
    }

    /// The policy's name in the file format.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CpuAware(_) => "cpu_aware",
        }
    }

    pub(crate) fn problems(&self, found: &mut Vec<(String, String)>) {
        match self {
            Self::CpuAware(p) => p.problems(found),
        }
    }

    /// How long until the policy is due; `None` when it is due now.
    pub(crate) fn rests_for(&self, state: &PolicyState, now: Timestamp) -> Option<Span> {
        let since = now.since(state.decided_at?);
        let rests = self.poll().saturating_sub(since);
        (!since.is_negative() && rests > Span::ZERO).then_some(rests)
    }

    /// The policy's wish for what is seen. Called only with fresh readings.
    pub(crate) fn wish(&self, state: &mut PolicyState, look: &Look<'_>) -> Wish {
        if !look.every_look
            && let Some(rests) = self.rests_for(state, look.now)
        {
            let why = Why::NotDue { in_s: seconds(rests) };
            return Wish { wanted: look.current, rule: Rule::Waiting, why };
        }
        state.decided_at = Some(look.now);
        match self {
            Self::CpuAware(p) => p.wish(&mut state.cpu_aware, look),
        }
    }
}

impl PolicyState {
    pub(crate) fn acted(&mut self, change: &Pending) {
        self.cpu_aware.acted(change);
    }

    pub(crate) fn forget_idleness(&mut self) {
        self.cpu_aware.idle_since = None;
    }

    pub(crate) fn times(&mut self) -> [&mut Option<Timestamp>; 3] {
        [&mut self.decided_at, &mut self.cpu_aware.idle_since, &mut self.cpu_aware.acted_at]
    }
}
