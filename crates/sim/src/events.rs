//! What is going to happen, in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::moment::Moment;

/// What can happen, but for arrivals, which the trace has in order already. Workers are numbered in
/// the order of their starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The machine has done its part of a worker's start.
    Booted { group: u32, worker: u32 },
    /// A worker has started.
    Ready { group: u32, worker: u32 },
    /// A worker has finished a job.
    End { group: u32, worker: u32, job: u32 },
    /// A worker that was told to go has used up its grace.
    Kill { group: u32, worker: u32 },
    /// A worker's start has failed.
    Die { group: u32, worker: u32 },
}

impl Event {
    /// Whose it is.
    pub(crate) const fn group(self) -> u32 {
        match self {
            Self::Booted { group, .. }
            | Self::Ready { group, .. }
            | Self::End { group, .. }
            | Self::Kill { group, .. }
            | Self::Die { group, .. } => group,
        }
    }
}

/// The events to come. Of two at the same moment the one that was planned first comes first, so
/// that a run never depends on the inside of the heap.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<(Moment, u64, Event)>>,
    planned: u64,
}

impl Events {
    pub(crate) fn plan(&mut self, at: Moment, event: Event) {
        self.heap.push(Reverse((at, self.planned, event)));
        self.planned += 1;
    }

    /// When the next one is.
    pub(crate) fn next_at(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(Moment, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_of_time_then_of_planning() {
        let mut events = Events::default();
        let at = Moment::from_micros;
        events.plan(at(5), Event::Kill { group: 0, worker: 9 });
        events.plan(at(3), Event::End { group: 0, worker: 7, job: 1 });
        events.plan(at(3), Event::Ready { group: 0, worker: 8 });
        assert_eq!(events.next_at(), Some(at(3)));
        let order: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(
            order,
            [
                (at(3), Event::End { group: 0, worker: 7, job: 1 }),
                (at(3), Event::Ready { group: 0, worker: 8 }),
                (at(5), Event::Kill { group: 0, worker: 9 }),
            ]
        );
    }
}
