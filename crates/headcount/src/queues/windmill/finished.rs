//! How many jobs the workers of a group have done since the first look. Each counts its own, from its
//! start on, and tells of it every few seconds; a worker that is gone takes nothing with it.

use std::collections::HashMap;

use tokio::time::Instant;

use super::era::WORKERS_SEEN;
use super::snapshot::WorkerRow;

/// What was counted so far.
#[derive(Debug, Default)]
pub(super) struct Finished {
    total: u64,
    /// What each worker had done by the last look.
    seen: HashMap<String, u64>,
    looked: Option<Instant>,
}

impl Finished {
    /// Takes one look at the workers, `at` this moment; the jobs done since the first.
    pub(super) fn count<'a>(
        &mut self,
        workers: impl Iterator<Item = &'a WorkerRow>,
        at: Instant,
    ) -> u64 {
        let gap = self.looked.replace(at).map(|last| (at - last).as_secs_f64());
        // One that is younger than any row that is read would have been seen before.
        let is_new = |w: &WorkerRow| gap.is_some_and(|gap| w.up <= gap.max(WORKERS_SEEN.into()));
        let mut seen = HashMap::new();
        for worker in workers {
            let done = worker.executed;
            let before = match self.seen.get(&worker.worker) {
                Some(before) => *before,
                // Of one that was away it is not known when its jobs were.
                None if is_new(worker) => 0,
                None => done,
            };
            self.total = self.total.saturating_add(done.saturating_sub(before));
            seen.insert(worker.worker.clone(), done);
        }
        self.seen = seen;
        self.total
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn counts_what_was_done_between_two_looks() {
        let mut finished = Finished::default();
        let start = Instant::now();
        let worker = |name: &str, executed, up| WorkerRow {
            worker: name.into(),
            executed,
            up,
            ..WorkerRow::default()
        };
        // Seconds, the workers, the jobs done since the first look.
        for (second, workers, expected) in [
            (0, vec![worker("a", 100, 900.0)], 0),
            (5, vec![worker("a", 103, 905.0)], 3),
            (10, vec![worker("a", 103, 910.0), worker("new", 2, 6.0)], 5),
            (15, vec![worker("new", 4, 11.0), worker("old", 50, 900.0)], 7),
            (20, vec![worker("old", 51, 905.0)], 8),
            (25, vec![], 8),
            (30, vec![worker("old", 60, 915.0)], 8),
        ] {
            let at = start + Duration::from_secs(second);
            assert_eq!(finished.count(workers.iter(), at), expected, "after {second} s");
        }
    }
}
