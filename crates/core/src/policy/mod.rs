//! Policies: the rules that want a number. Each is the whole rule, timing included, in one file.

pub mod cpu_aware;
pub mod occupancy;
pub mod ratio;
pub mod slo;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decision::{Rule, Why};
use crate::estimate::Estimate;
use crate::guard::{Look, Range};
use crate::state::Pending;
use crate::time::{Span, Timestamp, seconds};
use cpu_aware::{CpuAware, CpuAwareState};
use occupancy::{Occupancy, OccupancyState};
use ratio::{Ratio, RatioState};
use slo::{Slo, SloState};

/// The policy of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Policy {
    /// Queue depth and host CPU, one worker at a time.
    CpuAware(CpuAware),
    /// Queue depth per tag and occupancy over 15 s, 5 min and 30 min: Windmill's rule.
    Occupancy(Occupancy),
    /// So many jobs per worker, as KEDA and the Kubernetes HPA do it.
    Ratio(Ratio),
    /// A wanted wait at the lowest cost; everything else is learnt.
    Slo(Slo),
}

impl Default for Policy {
    fn default() -> Self {
        Self::Slo(Slo::default())
    }
}

/// What every policy remembers, and each its own part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolicyState {
    /// When the policy last decided.
    pub decided_at: Option<Timestamp>,
    /// The reason it gave then, to be told until it decides again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub said: Option<Box<Why>>,
    /// Memory of `cpu_aware`.
    pub cpu_aware: CpuAwareState,
    /// Memory of `occupancy`.
    #[serde(skip_serializing_if = "is_default")]
    pub occupancy: OccupancyState,
    /// Memory of `ratio`.
    #[serde(skip_serializing_if = "is_default")]
    pub ratio: RatioState,
    /// Memory of `slo`, with the estimate that every policy keeps up to date.
    #[serde(skip_serializing_if = "is_default")]
    pub slo: SloState,
}

/// What a policy wants, and why.
pub(crate) struct Wish {
    pub(crate) wanted: u32,
    pub(crate) rule: Rule,
    pub(crate) why: Why,
    /// Where the rule's own number is another one: that number, and what limits it.
    pub(crate) cut: Option<(u32, Why)>,
}

impl Wish {
    /// Exactly what the rule says.
    pub(crate) const fn new(wanted: u32, rule: Rule, why: Why) -> Self {
        Self { wanted, rule, why, cut: None }
    }

    /// What the rule says, as far as the bounds let it.
    pub(crate) fn within(asked: u32, bounds: Range, rule: Rule, why: Why) -> Self {
        let Range { min, max } = bounds;
        let wanted = asked.min(max).max(min);
        let limit = if wanted > asked { Why::CutToMin { min } } else { Why::CutToMax { max } };
        Self { wanted, rule, why, cut: (wanted != asked).then_some((asked, limit)) }
    }
}

impl Policy {
    /// How often the policy decides.
    pub const fn poll(&self) -> Span {
        match self {
            Self::CpuAware(p) => p.poll,
            Self::Occupancy(p) => p.poll,
            Self::Ratio(p) => p.poll,
            Self::Slo(p) => p.poll,
        }
    }

    /// The longest rest between two looks while all is quiet: policies that sample in between
    /// look more often than they decide.
    pub fn look(&self) -> Span {
        match self {
            Self::Occupancy(p) if p.parity.is_none() => p.poll.min(occupancy::SAMPLE),
            _ => self.poll(),
        }
    }

    /// Whether it cannot decide without a reading of the host.
    pub const fn needs_host(&self) -> bool {
        matches!(self, Self::CpuAware(_))
    }

    /// Whether it takes how busy the workers are from the queue's own windows, not from samples.
    pub const fn takes_windows(&self) -> bool {
        matches!(self, Self::Occupancy(p) if p.parity.is_some())
    }

    /// Whether it has a rule of its own against an overloaded CPU.
    pub const fn watches_cpu(&self) -> bool {
        matches!(self, Self::CpuAware(_))
    }

    /// The policy's name in the file format.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CpuAware(_) => "cpu_aware",
            Self::Occupancy(_) => "occupancy",
            Self::Ratio(_) => "ratio",
            Self::Slo(_) => "slo",
        }
    }

    pub(crate) fn problems(&self, found: &mut Vec<(String, String)>) {
        match self {
            Self::CpuAware(p) => p.problems(found),
            Self::Occupancy(p) => p.problems(found),
            Self::Ratio(p) => p.problems(found),
            Self::Slo(p) => p.problems(found),
        }
    }

    /// How long until the policy is due; `None` when it is due now. One that goes by times instead
    /// of ticks is due at every look.
    pub(crate) fn rests_for(&self, state: &PolicyState, now: Timestamp) -> Option<Span> {
        if matches!(self, Self::Slo(_)) {
            return None;
        }
        let since = now.since(state.decided_at?);
        let rests = self.poll().saturating_sub(since);
        (!since.is_negative() && rests > Span::ZERO).then_some(rests)
    }

    /// Whether it brings a number outside the bounds back at once, by a rule of its own: the guard of
    /// the bounds would do it in other words, without the cooldown that follows.
    fn clamps(&self, look: &Look<'_>) -> bool {
        let is_outside = !(look.bounds.min..=look.bounds.max).contains(&look.current);
        matches!(self, Self::Occupancy(_)) && is_outside
    }

    /// The policy's wish for what is seen. Called only with fresh readings.
    pub(crate) fn wish(&self, state: &mut PolicyState, look: &Look<'_>) -> Wish {
        // `slo` learns by itself, in the order that its rule needs.
        if let Some(queue) = look.queue.filter(|_| !matches!(self, Self::Slo(_))) {
            state.slo.estimate.observe(look, queue);
        }
        state.drop_unused(self);
        if let Self::Occupancy(p) = self {
            p.watch(&mut state.occupancy, look);
        }
        if !look.every_look
            && !self.clamps(look)
            && let Some(rests) = self.rests_for(state, look.now)
        {
            let why = Why::NotDue { in_s: seconds(rests), last: state.said.clone() };
            return Wish::new(look.current, Rule::Waiting, why);
        }
        state.decided_at = Some(look.now);
        let wish = match self {
            Self::CpuAware(p) => p.wish(&mut state.cpu_aware, look),
            Self::Occupancy(p) => p.wish(&state.occupancy, look),
            Self::Ratio(p) => p.wish(&mut state.ratio, look),
            Self::Slo(p) => p.wish(&mut state.slo, look),
        };
        state.said = (!look.every_look).then(|| Box::new(wish.why.clone()));
        wish
    }

    /// Called where nothing waits, runs or starts and there are as few workers as may be: whether
    /// the policy is known to leave it at that. If so the state is as after [`Policy::wish`], if not
    /// it is untouched. `occupancy` and `ratio` never are: what was an hour ago may still raise them.
    pub(crate) fn idles(&self, state: &mut PolicyState, look: &Look<'_>) -> bool {
        match self {
            // With the fewest workers it can only add some, for jobs that wait.
            Self::CpuAware(_) => self.wish(state, look).wanted == look.current,
            Self::Slo(p) if p.idles(&mut state.slo, look) => {
                state.drop_unused(self);
                (state.decided_at, state.said) = (Some(look.now), None);
                true
            }
            _ => false,
        }
    }
}

impl PolicyState {
    /// What is learnt of jobs and workers, under any policy.
    pub const fn estimate(&self) -> &Estimate {
        &self.slo.estimate
    }

    /// What fills up and serves another policy only would be stored for nothing.
    fn drop_unused(&mut self, policy: &Policy) {
        if !matches!(policy, Policy::Occupancy(_)) {
            self.occupancy.samples.clear();
        }
        if !matches!(policy, Policy::Ratio(_)) {
            self.ratio.recommended.clear();
        }
    }

    pub(crate) fn acted(&mut self, change: &Pending) {
        self.cpu_aware.acted(change);
        self.occupancy.acted(change);
        self.ratio.acted(change);
    }

    pub(crate) fn forget_idleness(&mut self) {
        self.cpu_aware.idle_since = None;
        self.ratio.forget_idleness();
        self.slo.interrupted();
    }

    /// Moves every remembered time by `delta`.
    pub(crate) fn shift(&mut self, delta: Span) {
        let own =
            [&mut self.decided_at, &mut self.cpu_aware.idle_since, &mut self.cpu_aware.acted_at];
        own.into_iter().for_each(|t| *t = t.map(|t| t.plus(delta)));
        self.occupancy.shift(delta);
        self.ratio.shift(delta);
        self.slo.shift(delta);
    }
}

fn is_default<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}
