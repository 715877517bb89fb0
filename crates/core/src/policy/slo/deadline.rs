//! How many slots it takes to start every waiting job in time, and not one more.
//!
//! Jobs are taken first come, first served. A slot that is free in f seconds and needs m for a job
//! has started `floor((T - f) / m) + 1` jobs by time T; job number i starts by T exactly if all slots
//! together have started i jobs by then. So nothing needs to be played through.

/// Slots that are free in so many seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Free {
    /// Seconds from now.
    pub(super) after: f64,
    /// How many.
    pub(super) slots: f64,
}

/// The waiting jobs. Those beyond the list came evenly since the last one listed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog<'a> {
    /// How long the oldest have waited, s, oldest first.
    pub(super) waits: &'a [f64],
    /// How many wait.
    pub(super) waiting: u64,
    /// How long a job keeps a slot, s, above 0.
    pub(super) duration: f64,
}

/// What is missing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Short {
    /// Slots.
    pub(super) slots: f64,
    /// Jobs that start too late without.
    pub(super) late: u64,
    /// Until the first of them has waited too long, s; below 0 if it has.
    pub(super) first_due: f64,
}

/// Beyond the list, this many places of the queue are looked at.
const TAIL: u64 = 16;

impl Backlog<'_> {
    /// The fewest slots, free after `ready` seconds, that start every job before it has waited for
    /// `limit` seconds; a job for which that is too late, `grace` seconds after they are free.
    pub(super) fn short(&self, free: &[Free], ready: f64, limit: f64, grace: f64) -> Short {
        let mut short = Short { slots: 0.0, late: 0, first_due: f64::INFINITY };
        let mut counted = 0.0;
        for (place, waited) in self.places() {
            let due = limit - waited;
            let by = due.max(ready + grace);
            let started: f64 = free.iter().map(|f| f.slots * self.starts(by - f.after)).sum();
            let (left, each) = (place - started, self.starts(by - ready));
            if left > 0.0 {
                short.late = short.late.saturating_add((place - counted) as u64);
                short.first_due = short.first_due.min(due);
            }
            counted = place;
            if left > short.slots * each {
                short.slots = (left / each).ceil();
            }
        }
        short
    }

    /// Jobs that one slot starts within so many seconds of being free.
    fn starts(&self, within: f64) -> f64 {
        if within < 0.0 { 0.0 } else { (within / self.duration).floor() + 1.0 }
    }

    /// Places in the queue from 1 on, and how long that job has waited.
    fn places(&self) -> impl Iterator<Item = (f64, f64)> {
        let listed = (self.waits.len() as u64).min(self.waiting);
        let last = self.waits.last().copied().unwrap_or(0.0);
        let tail = self.waiting - listed;
        let steps = TAIL.min(tail);
        let places = self.waits.iter().take(listed as usize).enumerate();
        let behind = (1..=steps).map(move |i| {
            let share = i as f64 / steps as f64;
            (listed as f64 + (share * tail as f64).floor(), last * (1.0 - share))
        });
        places.map(|(i, waited)| (i as f64 + 1.0, *waited)).chain(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays the queue through, a job after the other, on slots and `extra` ones.
    fn all_in_time(b: &Backlog<'_>, free: &[f64], extra: usize, ready: f64, limit: f64) -> bool {
        let mut slots: Vec<f64> = free.to_vec();
        slots.extend(std::iter::repeat_n(ready, extra));
        b.waits.iter().all(|waited| {
            slots.sort_by(f64::total_cmp);
            let Some(first) = slots.first_mut() else { return false };
            let start = *first;
            *first += b.duration;
            start <= (limit - waited).max(ready) + 1e-9
        })
    }

    #[test]
    fn it_is_what_playing_the_queue_through_gives() {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..2000 {
            let mut waits: Vec<f64> = (0..rng.usize(1..30)).map(|_| rng.f64() * 80.0).collect();
            waits.sort_by(|a, b| b.total_cmp(a));
            let free: Vec<f64> = (0..rng.usize(0..6)).map(|_| rng.f64() * 100.0).collect();
            let (waiting, duration) = (waits.len() as u64, 1.0 + rng.f64() * 30.0);
            let backlog = Backlog { waits: &waits, waiting, duration };
            let (ready, limit) = (rng.f64() * 30.0, 10.0 + rng.f64() * 60.0);
            let slots: Vec<Free> = free.iter().map(|f| Free { after: *f, slots: 1.0 }).collect();
            let extra = backlog.short(&slots, ready, limit, 0.0).slots as usize;
            let in_time = |extra| all_in_time(&backlog, &free, extra, ready, limit);
            assert!(in_time(extra), "{extra} is too few: {waits:?} {free:?}");
            assert!(extra == 0 || !in_time(extra - 1), "{extra} is too many: {waits:?} {free:?}");
        }
    }

    #[test]
    fn a_long_queue_is_looked_at_to_its_end() {
        let backlog = Backlog { waits: &[10.0; 256], waiting: 10_000, duration: 5.0 };
        // The last one, who has just come, has 60 s: 45 s of a new worker, ten jobs each.
        let short = backlog.short(&[], 15.0, 60.0, 0.0);
        assert!((1000.0..1100.0).contains(&short.slots), "{short:?}");
        assert_eq!(short.late, 10_000);
        assert_eq!(short.first_due, 50.0);
        let absurd = Backlog { waits: &[], waiting: u64::MAX, duration: 0.001 };
        assert!(absurd.short(&[], 1.0, 1.0, 0.0).slots.is_finite());
    }
}
