//! What is asked of one API server, spread over time, however many groups look at it and how often.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::{REVIEW_EVERY, WORKLOAD_AGE_MAX, WORKLOAD_READ_EVERY};

/// Who asks when.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Next>);

/// The first moment that is free; none before the first.
#[derive(Debug, Default)]
struct Next {
    read: Option<Instant>,
    review: Option<Instant>,
}

impl Turns {
    /// The next turn to read a workload, now or later: it belongs to whoever asks, so that all come
    /// in their turn. So `n` groups read theirs every `n` times [`WORKLOAD_READ_EVERY`]; a turn of
    /// somebody who is gone passes.
    pub(super) fn read(&self, now: Instant) -> Instant {
        let next = &mut self.next().read;
        let turn = next.map_or(now, |next| next.clamp(now, now + WORKLOAD_AGE_MAX));
        *next = Some(turn + WORKLOAD_READ_EVERY);
        turn
    }

    /// Whether one more may ask now what it may do.
    pub(super) fn may_review(&self, now: Instant) -> bool {
        let next = &mut self.next().review;
        let is_free = next.is_none_or(|next| next <= now);
        if is_free {
            *next = Some(now + REVIEW_EVERY);
        }
        is_free
    }

    fn next(&self) -> MutexGuard<'_, Next> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until when what was read at `at` counts, with `turn` as the next one. One that is so near that
/// nobody looks before it, as every group looks once a second at most, is no reason to wait.
pub(super) fn counts_until(at: Instant, turn: Instant) -> Instant {
    if turn.saturating_duration_since(at) < Duration::from_secs(1) { at } else { turn }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups that look once a second for a minute: how often each reads.
    fn reads(groups: u64) -> Vec<u32> {
        let (turns, start) = (Turns::default(), Instant::now());
        let mut until = vec![start; groups as usize];
        let mut turn = vec![start; groups as usize];
        let mut reads = vec![0; groups as usize];
        for second in 0..60 {
            for group in 0..groups {
                let now = start + Duration::from_secs(second) + Duration::from_millis(group);
                let i = group as usize;
                if until[i] <= now {
                    reads[i] += 1;
                    if turn[i] <= now {
                        turn[i] = turns.read(now);
                    }
                    until[i] = counts_until(now, turn[i]);
                }
            }
        }
        reads
    }

    #[test]
    fn all_read_as_often_as_others_and_together_twenty_times_a_second() {
        assert_eq!(reads(1), [60], "alone, at each look");
        assert!(reads(20).into_iter().all(|n| n == 60), "{:?}", reads(20));
        for groups in [50, 200, 900] {
            let all = reads(groups);
            let count = u32::try_from(groups).unwrap();
            // The first read of each, and those of a minute.
            assert!(all.iter().sum::<u32>() <= 20 * 60 + count, "{all:?}");
            // Nobody waits longer than the turns of all take, and one look.
            let least = 60 / (count / 20 + 1);
            assert!(all.iter().all(|n| *n >= least.saturating_sub(1).max(1)), "{all:?}");
        }
    }

    #[test]
    fn nobody_waits_without_end() {
        let (turns, now) = (Turns::default(), Instant::now());
        let last = (0..100_000).map(|_| turns.read(now)).last().unwrap();
        assert_eq!(last, now + WORKLOAD_AGE_MAX);
        assert_eq!(turns.read(now + 2 * WORKLOAD_AGE_MAX), now + 2 * WORKLOAD_AGE_MAX);
    }

    #[test]
    fn of_those_that_are_due_together_one_a_second_asks_what_it_may_do() {
        let (turns, start) = (Turns::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let asked = (0..5_000).filter(|millis| turns.may_review(at(*millis))).count();
        assert_eq!(asked, 5);
    }
}
