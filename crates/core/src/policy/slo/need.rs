//! How many workers the jobs need now, and how many must be ordered.

use super::Facts;
use super::Regime;
use super::deadline::{Backlog, Free};
use super::waiting::Waiting;
use crate::estimate::Estimate;
use crate::guard::Look;
use crate::reading::QueueReading;
use crate::time::seconds;

/// The jobs and slots of one look; times in seconds.
pub(super) struct Place<'a> {
    /// Busy slots of workers that stay.
    pub(super) busy: f64,
    idle: f64,
    waiting: u64,
    queue: &'a QueueReading,
    /// How long the waiting jobs have waited, oldest first.
    waits: Vec<f64>,
    /// Until the starting workers are ready.
    starting: Vec<f64>,
    /// How long a job keeps its slot from the next, within the wanted wait.
    duration: f64,
}

/// What the jobs need.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Need {
    /// Workers, if they were there at once.
    pub(super) workers: u32,
    /// Workers to order.
    pub(super) order: u32,
    /// Whether more of them are ordered than the wanted wait asks for, since waiting has a price.
    pub(super) worthwhile: bool,
    /// Jobs that would start too late without.
    pub(super) late: u64,
    /// Until the first of them is too late, s.
    pub(super) first_due: f64,
}

impl<'a> Place<'a> {
    pub(super) fn of(
        look: &Look<'_>,
        queue: &'a QueueReading,
        estimate: &Estimate,
        facts: &Facts,
    ) -> Self {
        let ready = f64::from(look.fleet.ready) * facts.slots;
        let busy = match look.fleet.busy {
            Some(busy) if facts.slots == 1.0 => f64::from(busy),
            _ => queue.active as f64,
        };
        let busy = busy.min(ready);
        let (mut waits, mut starting, mut duration) = (Vec::new(), Vec::new(), 1.0);
        if queue.waiting > 0 {
            waits = estimate.waits(queue, look.now);
            starting = estimate.until_ready(look, facts.start_up);
            duration = estimate.duration(facts.wait);
        }
        let idle = ready - busy;
        Self { busy, idle, waiting: queue.waiting, queue, waits, starting, duration }
    }

    pub(super) fn need(&self, estimate: &Estimate, facts: &Facts, load: f64) -> Need {
        let mut need = Need::default();
        let mut slots = self.busy;
        if self.waiting > 0 {
            let backlog = self.backlog(&self.waits, self.waiting);
            let mut free = self.busy_slots(estimate);
            free.push(Free { after: 0.0, slots: self.idle });
            let at_once = backlog.short(&free, 0.0, facts.wait, 0.0).slots;
            slots += self.worthwhile(&free, 0.0, at_once, facts);
            free.extend(self.starting.iter().map(|s| Free { after: *s, slots: facts.slots }));
            let short = backlog.short(&free, facts.start_up, facts.wait, self.too_late(facts));
            let order = self.worthwhile(&free, facts.start_up, short.slots, facts);
            (need.order, need.worthwhile) = (workers(order, facts), order > short.slots);
            (need.late, need.first_due) = (short.late, short.first_due);
        }
        if facts.regime == Regime::DeadlineDrain {
            slots = slots.min(self.patient(estimate, facts, load));
        }
        need.workers = workers(slots, facts);
        need
    }

    /// As many slots, `least` or more, as the waiting that they save is worth.
    fn worthwhile(&self, free: &[Free], ready: f64, least: f64, facts: &Facts) -> f64 {
        let price = facts.waiting_price;
        if price <= 0.0 {
            return least;
        }
        let waiting = Waiting { jobs: self.waiting, duration: self.duration, price };
        waiting.cheapest(free, ready, facts.start_price / facts.slots, least)
    }

    /// How much later than a new worker could a job may start that is too late anyhow. With n such
    /// jobs of duration m on x new workers the last one waits n m / x more, so that starts cost
    /// x times the start-up time and waiting n^2 m / 2x; if a second of each is worth the same, the
    /// sum is least when the last one waits for this long. Where every job is near its limit no
    /// second is given away.
    fn too_late(&self, facts: &Facts) -> f64 {
        match facts.regime {
            Regime::DeadlineDrain => (2.0 * facts.start_up * self.duration).sqrt(),
            Regime::LevelHazard => 0.0,
        }
    }

    /// The slots that would do if the jobs that run could have been made to wait: running ones that
    /// came within the wanted wait count as waiting; but no fewer than were busy on average.
    fn patient(&self, estimate: &Estimate, facts: &Facts, load: f64) -> f64 {
        let ages = || self.queue.ages.iter().map(|age| seconds(*age));
        // Nobody waits for longer than a start is worth.
        let wait = match facts.waiting_price > 0.0 {
            true => facts.wait.min(facts.start_price / facts.waiting_price),
            false => facts.wait,
        };
        let mut recent: Vec<f64> = ages().filter(|age| *age < wait).collect();
        if recent.is_empty() {
            return f64::INFINITY;
        }
        let old = ages().filter(|age| *age >= wait);
        let free: Vec<Free> =
            old.map(|age| Free { after: estimate.rest(age), slots: 1.0 }).collect();
        recent.sort_unstable_by(|a, b| b.total_cmp(a));
        let running = recent.len() as u64;
        recent.extend(&self.waits);
        let duration = estimate.duration(wait);
        let backlog =
            Backlog { waits: &recent, waiting: running.saturating_add(self.waiting), duration };
        let short = backlog.short(&free, 0.0, wait, 0.0);
        (free.len() as f64 + short.slots).max(load.ceil())
    }

    /// When the busy slots will be free.
    fn busy_slots(&self, estimate: &Estimate) -> Vec<Free> {
        let listed = self.queue.ages.iter().take(self.busy as usize);
        let rest = listed.map(|age| Free { after: estimate.rest(seconds(*age)), slots: 1.0 });
        let mut free: Vec<Free> = rest.collect();
        let others = self.busy - free.len() as f64;
        if others > 0.0 {
            let age = match self.queue.ages.is_empty() {
                true => estimate.least_age(others),
                false => 0.0,
            };
            free.push(Free { after: estimate.rest(age), slots: others });
        }
        free
    }

    const fn backlog<'b>(&self, waits: &'b [f64], waiting: u64) -> Backlog<'b> {
        Backlog { waits, waiting, duration: self.duration }
    }
}

/// As many workers as have so many slots.
fn workers(slots: f64, facts: &Facts) -> u32 {
    // `as` saturates: an absurd backlog wants as many workers as there can be.
    (slots / facts.slots).ceil() as u32
}
