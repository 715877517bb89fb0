//! The number of workers needed, seen as levels: level k is needed while the need is k or more.
//! Between two such times lies a gap. How long gaps of a level last tells how long an idle worker is
//! worth keeping: stopping it saves the rest of the gap, but costs a start at its end.

use std::ops::Range;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::rules::MOST_WORKERS;
use crate::time::{Span, Timestamp, seconds};

/// Levels up to this one are learnt one by one, higher ones in classes.
const SINGLE: u32 = 16;
/// How much wider the classes above get: a step of a fifth is about what a decision needs.
const WIDER: f64 = 1.2;
/// Enough classes for 10,000 workers.
const CLASSES: usize = 52;
/// Gaps are counted by length, in buckets each 1.3 times as wide as the last, from 1 s to 16 days.
const BUCKETS: usize = 54;
const BUCKET: f64 = 1.3;
/// When so many gaps are counted, all counts are halved: the last few hundred count.
const MOST_GAPS: u32 = 600;
/// Steps of the need that are remembered.
const MOST_STEPS: usize = 128;
/// The gaps of all levels together count as this many of a level's own.
const BORROWED: f64 = 5.0;

/// When each level was last needed, and how long the gaps were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Levels {
    /// The need now.
    need: u32,
    /// When a level was last needed and which, the latest last, levels falling.
    steps: Vec<(Timestamp, u32)>,
    /// Since when it is watched without a break, and the workers that were there then. They may have
    /// been needed a moment before.
    found: Option<(Timestamp, u32)>,
    /// Gaps by class of level.
    gaps: Vec<Gaps>,
    /// Gaps of all levels.
    all: Gaps,
}

/// Gaps by length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(u8, u16)>", into = "Vec<(u8, u16)>")]
struct Gaps {
    /// Bucket and count, buckets rising.
    counts: Vec<(u8, u16)>,
    total: u32,
    worth: Cached,
}

/// The last answer of [`Gaps::hold`] and what it was for. It is no part of the state: it can be
/// computed again.
#[derive(Clone, Copy, Debug, Default)]
struct Cached(Option<((f64, u32, u32), f64)>);

impl PartialEq for Cached {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl From<Vec<(u8, u16)>> for Gaps {
    fn from(mut counts: Vec<(u8, u16)>) -> Self {
        counts.truncate(BUCKETS);
        let total = counts.iter().map(|(_, n)| u32::from(*n)).sum();
        Self { counts, total, worth: Cached(None) }
    }
}

impl From<Gaps> for Vec<(u8, u16)> {
    fn from(gaps: Gaps) -> Self {
        gaps.counts
    }
}

impl Gaps {
    fn add(&mut self, length: f64) {
        let bucket = (length.max(1.0).ln() / BUCKET.ln()).min((BUCKETS - 1) as f64) as u8;
        match self.counts.binary_search_by_key(&bucket, |(b, _)| *b) {
            Ok(place) => self.counts[place].1 += 1,
            Err(place) => self.counts.insert(place, (bucket, 1)),
        }
        self.total += 1;
        self.worth = Cached(None);
        if self.total >= MOST_GAPS {
            self.counts.iter_mut().for_each(|(_, n)| *n = n.div_ceil(2));
            self.total = self.counts.iter().map(|(_, n)| u32::from(*n)).sum();
        }
    }
}

fn class_of(level: u32) -> usize {
    if level <= SINGLE {
        return level.saturating_sub(1) as usize;
    }
    let above = (f64::from(level) / f64::from(SINGLE)).ln() / WIDER.ln();
    (SINGLE as usize + above as usize).min(CLASSES - 1)
}

/// The lowest level of each class.
static FIRST: LazyLock<[u32; CLASSES]> = LazyLock::new(|| {
    let mut first = [u32::MAX; CLASSES];
    for level in (1..=MOST_WORKERS).rev() {
        first[class_of(level)] = level;
    }
    first
});

/// The middle and the upper edge of each bucket, computed once: they are asked for at every look.
static BOUNDS: LazyLock<[(f64, f64); BUCKETS]> = LazyLock::new(|| {
    std::array::from_fn(|bucket| (BUCKET.powf(bucket as f64 + 0.5), BUCKET.powi(bucket as i32 + 1)))
});

impl Levels {
    /// So many workers are needed now, of `there`. Returns how many starts gaps have ended with.
    pub(crate) fn observe(&mut self, need: u32, there: u32, now: Timestamp, start_up: f64) -> u32 {
        self.found.get_or_insert((now, there.min(MOST_WORKERS)));
        let mut starts = 0;
        let mut from = self.need;
        while let Some((at, level)) = self.steps.pop_if(|(_, level)| *level <= need) {
            if level > from {
                starts += self.ended(at, now, from, level, start_up);
                from = level;
            }
        }
        // The lower part of the next step has ended its gap, too.
        if let Some((at, _)) = self.steps.last().copied()
            && need > from
        {
            starts += self.ended(at, now, from, need, start_up);
        }
        if need > 0 {
            self.steps.push((now, need));
        }
        let extra = self.steps.len().saturating_sub(MOST_STEPS);
        self.steps.drain(..extra);
        self.need = need;
        starts
    }

    /// The gaps of the levels above `from` up to `to` end.
    fn ended(&mut self, at: Timestamp, now: Timestamp, from: u32, to: u32, start_up: f64) -> u32 {
        let length = seconds(now.since(at));
        for level in from.saturating_add(1)..=to {
            let class = class_of(level);
            if self.gaps.len() <= class {
                self.gaps.resize(class + 1, Gaps::default());
            }
            self.gaps[class].add(length);
            self.all.add(length);
        }
        if length > start_up { to.saturating_sub(from) } else { 0 }
    }

    /// The highest level that is worth keeping for now, if a start at the end of a gap costs `price`
    /// seconds of a worker and each worker is kept for at least `least` seconds.
    pub(crate) fn keep(&mut self, price: f64, least: f64, now: Timestamp) -> u32 {
        for i in 0..self.steps.len() {
            let (at, level) = self.steps[i];
            let below = self.steps.get(i + 1).map_or(0, |(_, level)| *level);
            if let Some(level) = self.kept(below..level, at, price, least, now) {
                return level.max(self.kept_of_found(level, price, least, now));
            }
        }
        self.kept_of_found(0, price, least, now)
    }

    /// The highest level above `above` of the workers that were there at first that is worth keeping.
    fn kept_of_found(&mut self, above: u32, price: f64, least: f64, now: Timestamp) -> u32 {
        let Some((at, there)) = self.found else { return 0 };
        self.kept(above..there, at, price, least, now).unwrap_or(0)
    }

    /// The highest of the levels above `levels.start` up to `levels.end`, needed last at `at`, that is
    /// worth keeping.
    fn kept(
        &mut self,
        levels: Range<u32>,
        at: Timestamp,
        price: f64,
        least: f64,
        now: Timestamp,
    ) -> Option<u32> {
        let age = seconds(now.since(at));
        let mut level = levels.end;
        while level > levels.start {
            if age < self.hold(level, price).max(least) {
                return Some(level);
            }
            // What is true of one level is true of its class.
            level = FIRST[class_of(level)].saturating_sub(1);
        }
        None
    }

    /// How long an idle worker of this level is worth keeping, s: the time t that costs the least,
    /// `sum of min(gap, t) + price for each gap > t`.
    fn hold(&mut self, level: u32, price: f64) -> f64 {
        let class = class_of(level);
        let Some(own) = self.gaps.get(class) else {
            return hold(&self.all.counts, self.all.total, &[], 0, price);
        };
        // Prices that differ by a twentieth are the same, so that most answers are at hand.
        let price = ((price.max(0.1).ln() * 20.0).round() / 20.0).exp();
        let key = (price, own.total, self.all.total);
        match own.worth.0 {
            Some((known, worth)) if known == key => worth,
            _ => {
                let worth = hold(&own.counts, own.total, &self.all.counts, self.all.total, price);
                self.gaps[class].worth = Cached(Some((key, worth)));
                worth
            }
        }
    }

    /// Nothing is known of some time: gaps that were open have no length.
    pub(crate) fn interrupted(&mut self) {
        self.steps.clear();
        (self.need, self.found) = (0, None);
    }

    pub(crate) fn shift(&mut self, delta: Span) {
        let found = self.found.as_mut().map(|(at, _)| at);
        self.steps.iter_mut().map(|(at, _)| at).chain(found).for_each(|at| *at = at.plus(delta));
    }
}

/// See [`Levels::hold`]. The gaps of all levels help where a level has few of its own; without any,
/// a worker is kept until it has cost as much as a start, which is never more than twice the best.
fn hold(own: &[(u8, u16)], own_total: u32, all: &[(u8, u16)], all_total: u32, price: f64) -> f64 {
    if own_total + all_total == 0 {
        return price;
    }
    let mut weights = [0.0; BUCKETS];
    for (bucket, n) in own {
        weights[*bucket as usize] += f64::from(*n);
    }
    let scale = BORROWED / f64::from(all_total.max(1));
    for (bucket, n) in all {
        weights[*bucket as usize] += f64::from(*n) * scale;
    }
    let mut longer: f64 = weights.iter().sum();
    let (mut spent, mut best, mut at) = (0.0, longer * price, 0.0);
    // After all gaps of a bucket have ended, at its upper edge.
    for (weight, (length, edge)) in weights.into_iter().zip(*BOUNDS) {
        if weight <= 0.0 {
            continue;
        }
        spent += weight * length;
        longer -= weight;
        let cost = spent + longer * (edge + price);
        if cost < best {
            (best, at) = (cost, edge);
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + seconds * 1000)
    }

    #[test]
    fn gaps_belong_to_levels() {
        let mut levels = Levels::default();
        // Level 1 is always needed, level 3 at 0 and at 100, level 2 also at 40.
        for (t, need, starts) in [(0, 3, 0), (10, 1, 0), (40, 2, 1), (50, 1, 0), (100, 3, 2)] {
            assert_eq!(levels.observe(need, 0, at(t), 20.0), starts, "at {t}");
        }
        let totals: Vec<u32> = levels.gaps.iter().map(|gaps| gaps.total).collect();
        assert_eq!(totals, [0, 2, 1]);
        assert_eq!(levels.steps, [(at(100), 3)]);
    }

    #[test]
    fn a_worker_is_kept_as_long_as_it_pays() {
        // Gaps, price, expected: hold long enough for the gaps that are shorter than the price.
        let hold_for = |lengths: &[f64], price| {
            let mut gaps = Gaps::default();
            lengths.iter().for_each(|length| gaps.add(*length));
            hold(&gaps.counts, gaps.total, &[], 0, price)
        };
        assert!((20.0..30.0).contains(&hold_for(&[20.0; 10], 60.0)));
        assert_eq!(hold_for(&[100.0; 10], 60.0), 0.0);
        let mixed = [[20.0; 9].as_slice(), &[1000.0]].concat();
        assert!((20.0..30.0).contains(&hold_for(&mixed, 60.0)));
        assert_eq!(hold_for(&[], 60.0), 60.0, "nothing learnt: until it has cost a start");
    }

    #[test]
    fn the_highest_level_that_pays_is_kept() {
        let mut levels = Levels::default();
        levels.observe(5, 0, at(0), 15.0);
        levels.observe(2, 0, at(10), 15.0);
        levels.observe(0, 0, at(30), 15.0);
        // Nothing is learnt: each level for 15 s after it was last needed.
        for (t, kept) in [(14, 5), (15, 2), (24, 2), (25, 0)] {
            assert_eq!(levels.keep(15.0, 0.0, at(t)), kept, "at {t}");
        }
        assert_eq!(levels.keep(1.0, 20.0, at(15)), 5, "the least counts");
    }

    #[test]
    fn levels_fall_into_few_classes() {
        assert_eq!((class_of(1), class_of(16), class_of(17)), (0, 15, 16));
        assert!((1..10_000).all(|level| class_of(level) <= class_of(level + 1)));
        assert!(class_of(10_000) < CLASSES);
    }
}
