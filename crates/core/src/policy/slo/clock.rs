//! What the clock brings: jobs that come at the same minute of every hour, as cron sends them.

use serde::{Deserialize, Serialize};

use crate::time::{Span, Timestamp};

/// Cron speaks in minutes of the hour; a slot is 10 s, wide enough for a cron job's jitter.
const SLOT: i64 = 10_000;
const SLOTS: i64 = 360;
/// How many hours are remembered; what came in each of them is expected again.
const HOURS: usize = 4;
/// One occurrence may be chance.
const FEWEST: usize = 2;

/// The need in each slot of the last hours.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    /// The present slot, counted from the epoch, and the most that was needed in it.
    present: Option<(i64, u32)>,
    /// For each slot of the hour the need in the last hours, latest last.
    slots: Vec<Vec<u32>>,
}

impl Clock {
    pub(super) fn observe(&mut self, need: u32, now: Timestamp) {
        let slot = now.as_millis().div_euclid(SLOT);
        match self.present {
            Some((at, most)) if at == slot => self.present = Some((slot, most.max(need))),
            before => {
                self.present = Some((slot, need));
                if let Some((at, most)) = before {
                    self.remember(at, most);
                }
            }
        }
    }

    fn remember(&mut self, slot: i64, need: u32) {
        self.slots.resize(SLOTS as usize, Vec::new());
        let hours = &mut self.slots[slot.rem_euclid(SLOTS) as usize];
        hours.push(need);
        let extra = hours.len().saturating_sub(HOURS);
        hours.drain(..extra);
    }

    /// The most that is expected to be needed from now until `ahead`: what the same slot needed in
    /// each of the last hours.
    pub(super) fn expected(&self, now: Timestamp, ahead: Span) -> u32 {
        if self.slots.is_empty() {
            return 0;
        }
        let slot_at = |t: Timestamp| t.as_millis().div_euclid(SLOT);
        let first = slot_at(now);
        let last = slot_at(now.plus(ahead)).min(first.saturating_add(SLOTS - 1));
        let need = |slot: i64| {
            let hours = self.slots.get(slot.rem_euclid(SLOTS) as usize)?;
            if hours.len() < FEWEST { None } else { hours.iter().min().copied() }
        };
        (first..=last).filter_map(need).max().unwrap_or(0)
    }

    /// Nothing is known of some time, or the clock was set.
    pub(super) fn interrupted(&mut self) {
        self.present = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_in_each_of_the_last_hours_is_expected_again() {
        let mut clock = Clock::default();
        let start = Timestamp::from_millis(1_790_000_000_000);
        let second = |t: i64| start.plus(Span::from_secs(t));
        // At minute 10 of each hour 6 are needed, once 4; at minute 40 of the first hour 9.
        for t in (0..3 * 3600).step_by(5) {
            let need = match (t / 3600, t % 3600) {
                (1, 600..620) => 4,
                (_, 600..620) => 6,
                (0, 2400..2420) => 9,
                _ => 1,
            };
            clock.observe(need, second(t));
        }
        let ahead = Span::from_secs(30);
        assert_eq!(clock.expected(second(3 * 3600 + 300), ahead), 1);
        assert_eq!(clock.expected(second(3 * 3600 + 580), ahead), 4);
        assert_eq!(clock.expected(second(3 * 3600 + 2390), ahead), 1);
        assert_eq!(Clock::default().expected(start, ahead), 0);
    }
}
