//! A made-up moment for the tests beside the guards.

use crate::guard::{Draft, Look, Range, controls};
use crate::policy::Policy;
use crate::policy::cpu_aware::CpuAware;
use crate::reading::{FleetReading, HostReading, QueueReading, Worker, WorkerState};
use crate::rules::Rules;
use crate::time::{Span, Timestamp};

/// What a guard looks at; the tests change what they need.
pub(crate) struct Scene {
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
    pub(crate) queue: Option<QueueReading>,
    pub(crate) host: Option<HostReading>,
    pub(crate) fleet: FleetReading,
}

impl Scene {
    /// `current` ready workers of at least 1 and at most 10, nothing waiting, a calm host.
    pub(crate) fn new(current: u32) -> Self {
        // Its poll of 30 s gives the times in the tests.
        let policy = Policy::CpuAware(CpuAware::default());
        let mut rules = Rules { policy, ..Rules::default() };
        rules.workers.max = 10;
        Self {
            rules,
            now: Timestamp::from_millis(1_790_000_000_000),
            queue: Some(QueueReading::default()),
            host: Some(HostReading { cpu_raw: 10.0, mem: Some(30.0), ..HostReading::default() }),
            fleet: FleetReading { ready: current, ..FleetReading::default() },
        }
    }

    /// Some seconds later.
    pub(crate) fn later(&mut self, seconds: i64) {
        self.now = self.now.plus(Span::from_secs(seconds));
    }

    /// What a policy or guard sees.
    pub(crate) fn look(&self) -> Look<'_> {
        let (bounds, _) = controls::bounds_at(&self.rules, self.now);
        Look {
            rules: &self.rules,
            now: self.now,
            every_look: true,
            current: self.fleet.capacity(),
            bounds,
            queue: self.queue.as_ref(),
            host: self.host.as_ref(),
            fleet: &self.fleet,
        }
    }

    /// What `guard` makes of a policy's wish for `wanted` workers.
    pub(crate) fn judge(&self, wanted: u32, guard: impl FnOnce(&Look<'_>, &mut Draft)) -> Draft {
        let look = self.look();
        let mut draft = Draft::new(&look);
        draft.wanted = wanted;
        guard(&look, &mut draft);
        draft
    }
}

/// A worker that is as old as it says, in seconds at [`Scene::new`]'s time.
pub(crate) fn worker(id: &str, state: WorkerState, busy: Option<bool>, age: i64) -> Worker {
    let started_at = Scene::new(0).now.plus(Span::from_secs(-age));
    Worker { id: id.into(), state, busy, started_at: Some(started_at), version: None }
}

/// A range in two numbers.
pub(crate) const fn range(min: u32, max: u32) -> Range {
    Range { min, max }
}
