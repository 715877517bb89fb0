//! How many slots it pays to order, where a second of waiting has a price: each start costs, and
//! each shortens the queue for all jobs behind.

use super::deadline::Free;

/// Where jobs wait, more are about to come: a worker that starts for these serves those too, and its
/// start is paid by all. So this one queue bears only one part in ten. From 3 to 30, what starting
/// and waiting cost together differs by less than a twentieth.
const SHARED: f64 = 10.0;
/// A longer queue is looked at as so many parties, of jobs that start together on as many slots.
const MOST_PARTIES: u64 = 512;

/// Waiting jobs, first come, first served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// How many.
    pub(super) jobs: u64,
    /// How long a job keeps a slot, s, above 0.
    pub(super) duration: f64,
    /// What a second of a job's waiting costs, in seconds of a worker.
    pub(super) price: f64,
}

impl Waiting {
    /// The extra slots, `least` or more, free after `ready` seconds and each at the price of `start`
    /// seconds of a worker, with which starting and waiting cost the least.
    pub(super) fn cheapest(&self, free: &[Free], ready: f64, start: f64, least: f64) -> f64 {
        let each = self.jobs.div_ceil(MOST_PARTIES).max(1);
        let parties = self.jobs.div_ceil(each) as usize;
        let each = each as f64;
        let mut present: Vec<f64> = Vec::new();
        for f in free {
            let room = parties.saturating_sub(present.len());
            present.extend(std::iter::repeat_n(f.after, ((f.slots / each) as usize).min(room)));
        }
        present.sort_unstable_by(f64::total_cmp);
        let cost = |extra: usize| {
            let waited = total(parties, self.duration, &present, extra, ready);
            start / SHARED * extra as f64 + self.price * waited
        };
        // Each slot saves less than the one before: halve the range of those that pay.
        let mut extra = (least / each) as usize;
        let mut most = parties.max(extra);
        while extra < most {
            let middle = extra.midpoint(most);
            match cost(middle + 1) < cost(middle) {
                true => extra = middle + 1,
                false => most = middle,
            }
        }
        (extra as f64 * each).max(least)
    }
}

/// How long the jobs wait from now on, s, all together. `present` is when slots are free, rising.
fn total(jobs: usize, duration: f64, present: &[f64], extra: usize, ready: f64) -> f64 {
    let before = present.partition_point(|at| *at <= ready);
    let (soon, late) = present.split_at(before);
    let more = std::iter::repeat_n(ready, extra);
    let mut first = soon.iter().copied().chain(more).chain(late.iter().copied()).peekable();
    // All jobs take the same time, so that slots come back in the order in which they left.
    let mut starts: Vec<f64> = Vec::with_capacity(jobs);
    let mut back = 0;
    let mut waited = 0.0;
    for _ in 0..jobs {
        let again = starts.get(back).map(|at| at + duration);
        let at = match (first.peek().copied(), again) {
            (Some(at), again) if again.is_none_or(|again| at <= again) => {
                first.next();
                at
            }
            (_, Some(again)) => {
                back += 1;
                again
            }
            // Nobody will ever take it: as if a slot came after the longest of all times.
            (_, None) => return f64::MAX / 1e9,
        };
        starts.push(at);
        waited += at;
    }
    waited
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_must_be_worth_the_waiting_it_saves() {
        let idle_after = |after, slots| Free { after, slots };
        // Jobs, duration, price, free slots, expected. A start takes and costs 15 s.
        for (jobs, duration, price, free, expected) in [
            (1, 10.0, 1.0, vec![], 1.0),
            (1, 10.0, 1.0, vec![idle_after(5.0, 1.0)], 0.0),
            (1, 10.0, 1.0, vec![idle_after(16.4, 1.0)], 0.0),
            (1, 10.0, 1.0, vec![idle_after(16.6, 1.0)], 1.0),
            (1, 10.0, 0.2, vec![idle_after(16.6, 1.0)], 0.0),
            (10, 10.0, 1.0, vec![], 10.0),
            (10, 10.0, 0.02, vec![], 3.0),
            // The fluid rule of thumb: n sqrt(price m / 2 start) = 2582.
            (10_000, 10.0, 0.02, vec![], 2582.0),
        ] {
            let waiting = Waiting { jobs, duration, price };
            let found = waiting.cheapest(&free, 15.0, 15.0, 0.0);
            assert!((found - expected).abs() <= 0.1 * expected, "{waiting:?} {free:?}: {found}");
        }
    }

    #[test]
    fn no_queue_and_absurd_queues_are_no_trouble() {
        let waiting = |jobs, duration| Waiting { jobs, duration, price: 1.0 };
        assert_eq!(waiting(0, 1.0).cheapest(&[], 15.0, 15.0, 0.0), 0.0);
        let absurd = waiting(u64::MAX, f64::MAX).cheapest(&[], 15.0, 15.0, 0.0);
        assert!(absurd.is_finite());
    }

    #[test]
    fn slots_come_back_in_order() {
        // Slots at 0 and 4, one more at 3; jobs of 10 s: starts at 0, 3, 4, 10, 13.
        assert_eq!(total(5, 10.0, &[0.0, 4.0], 1, 3.0), 30.0);
    }
}
