//! How far the need rises within the time that passes until an order made now helps.

use serde::{Deserialize, Serialize};

use crate::time::{Span, Timestamp, seconds};

/// Looks within the horizon that are remembered.
const MOST_LOOKS: usize = 64;
/// Jumps are counted one by one up to this size, larger ones in classes a quarter wider each.
const SINGLE: u32 = 8;
const WIDER: f64 = 1.25;
/// Sizes of jumps.
const SIZES: usize = 32;
/// Classes of the need that a jump starts from.
const CLASSES: usize = 40;
/// Counts of a class are halved when there are so many: about a day of looks.
const MOST_COUNTED: u32 = 20_000;

/// Jumps by the need they start from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Jumps {
    /// The need at the last looks, oldest first.
    recent: Vec<(Timestamp, u32)>,
    /// For each class of the need, how often it rose by each size.
    counts: Vec<Vec<u32>>,
}

/// The class of a number: each up to [`SINGLE`] its own.
fn class_of(n: u32) -> usize {
    if n <= SINGLE {
        return n as usize;
    }
    let above = (f64::from(n) / f64::from(SINGLE)).ln() / WIDER.ln();
    SINGLE as usize + above.ceil() as usize
}

/// The largest number of a class.
fn size_of(class: usize) -> u32 {
    match u32::try_from(class) {
        Ok(class) if class <= SINGLE => class,
        _ => (f64::from(SINGLE) * WIDER.powi((class - SINGLE as usize) as i32)) as u32,
    }
}

impl Jumps {
    /// Takes in the need; returns how many workers beyond it are worth having, if a job that finds
    /// none costs `price` seconds of a worker and an order helps only after `horizon` seconds.
    ///
    /// One worker more costs a second each second. It saves a miss whenever the need rises beyond
    /// it, which is seen once in each horizon: so it pays if that happens in a share of looks above
    /// `horizon / price`.
    pub(super) fn observe(
        &mut self,
        need: u32,
        now: Timestamp,
        (horizon, spacing): (f64, f64),
        price: f64,
    ) -> u32 {
        // Looks that come in quick succession count once, unless the need has risen.
        let soon = |(at, last): &(Timestamp, u32)| {
            need <= *last && seconds(now.since(*at)) < 0.9 * spacing
        };
        if !self.recent.last().is_some_and(soon) {
            self.recent.push((now, need));
        }
        while let Some((at, from)) = self.recent.first().copied() {
            if seconds(now.since(at)) < horizon && self.recent.len() < MOST_LOOKS {
                break;
            }
            let most = self.recent.iter().map(|(_, need)| *need).max().unwrap_or(from);
            self.recent.remove(0);
            self.count(from, most - from);
        }
        let class = class_of(need).min(CLASSES - 1);
        let Some(counts) = self.counts.get(class).filter(|counts| !counts.is_empty()) else {
            return 0;
        };
        let total: u32 = counts.iter().sum();
        let least = f64::from(total) * horizon / price.max(1.0);
        let mut above = 0;
        for size in (1..SIZES).rev() {
            above += counts[size];
            if f64::from(above) > least {
                return size_of(size);
            }
        }
        0
    }

    fn count(&mut self, from: u32, jump: u32) {
        let class = class_of(from).min(CLASSES - 1);
        if self.counts.len() <= class {
            self.counts.resize(class + 1, Vec::new());
        }
        let counts = &mut self.counts[class];
        counts.resize(SIZES, 0);
        counts[class_of(jump).min(SIZES - 1)] += 1;
        if counts.iter().sum::<u32>() > MOST_COUNTED {
            counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    /// Nothing is known of some time.
    pub(super) fn interrupted(&mut self) {
        self.recent.clear();
    }

    pub(super) fn shift(&mut self, delta: Span) {
        self.recent.iter_mut().for_each(|(at, _)| *at = at.plus(delta));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_headroom_as_the_price_pays_for() {
        let mut jumps = Jumps::default();
        let mut at = Timestamp::from_millis(1_790_000_000_000);
        let mut headroom = |price| {
            // Every 100 s the need rises from 1 to 4 for a moment.
            let mut found = 0;
            for look in 0..2000 {
                let need = if look % 20 == 19 { 4 } else { 1 };
                found = jumps.observe(need, at, (10.0, 5.0), price);
                at = at.plus(Span::from_secs(5));
            }
            jumps.observe(1, at, (10.0, 5.0), price).max(found)
        };
        // One look in ten sees a jump of 3 within 10 s: worth it from a price of 100 s on.
        assert_eq!(headroom(90.0), 0);
        assert_eq!(headroom(130.0), 3);
    }

    #[test]
    fn looks_in_quick_succession_count_once() {
        let (mut jumps, start) = (Jumps::default(), Timestamp::from_millis(1_790_000_000_000));
        for i in 0..100 {
            jumps.observe(1, start.plus(Span::from_millis(i * 10)), (10.0, 5.0), 100.0);
        }
        assert_eq!(jumps.recent.len(), 1);
        jumps.observe(2, start.plus(Span::from_secs(1)), (10.0, 5.0), 100.0);
        assert_eq!(jumps.recent.len(), 2);
    }

    #[test]
    fn a_class_covers_its_sizes() {
        assert!((0..10_000).all(|n| size_of(class_of(n)) + 1 >= n));
        assert_eq!((size_of(class_of(0)), size_of(class_of(8))), (0, 8));
    }
}
