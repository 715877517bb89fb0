//! How many jobs come.

use serde::{Deserialize, Serialize};

/// How far the two memories reach back, s: as long as a burst, and as a busy hour.
const SHORT: f64 = 60.0;
const LONG: f64 = 3600.0;
/// A memory tells a rate once it has seen this share of its reach.
const SEEN: f64 = 0.2;
/// More jobs than this between two looks are a counter that was replaced, not work.
const MOST: f64 = 1e6;

/// The jobs that came, counted with a short and a long memory. Both forget exponentially.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Arrivals {
    short: Counted,
    long: Counted,
}

/// Jobs and the time in which they came, of which the past counts less and less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Counted {
    jobs: f64,
    seconds: f64,
}

impl Arrivals {
    /// So many jobs came within the last `gap` seconds.
    pub(super) fn observe(&mut self, arrived: u64, gap: f64) {
        if !(gap.is_finite() && gap > 0.0) {
            return;
        }
        let arrived = (arrived as f64).min(MOST);
        self.short.observe(arrived, gap, SHORT);
        self.long.observe(arrived, gap, LONG);
    }

    /// Jobs a second in about the last minute; `None` until it is known.
    pub fn now(&self) -> Option<f64> {
        self.short.rate(SHORT)
    }

    /// Jobs a second in about the last hour; `None` until it is known.
    pub fn usual(&self) -> Option<f64> {
        self.long.rate(LONG)
    }
}

impl Counted {
    fn observe(&mut self, arrived: f64, gap: f64, reach: f64) {
        let kept = (-gap / reach).exp();
        // What came evenly within the gap has been partly forgotten at its end, as the time has.
        let seconds = reach * (1.0 - kept);
        self.jobs = self.jobs * kept + arrived * seconds / gap;
        self.seconds = self.seconds * kept + seconds;
    }

    fn rate(self, reach: f64) -> Option<f64> {
        (self.seconds >= SEEN * reach).then(|| self.jobs / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_stream_has_its_rate_however_often_one_looks() {
        for gap in [1, 7, 300, 86_400] {
            let mut arrivals = Arrivals::default();
            assert_eq!(arrivals.now(), None);
            (0..2000 / gap + 1).for_each(|_| arrivals.observe(3 * gap, gap as f64));
            let (now, usual) = (arrivals.now().unwrap(), arrivals.usual().unwrap());
            assert!((now - 3.0).abs() < 1e-9 && (usual - 3.0).abs() < 1e-9, "{gap}: {now} {usual}");
        }
    }

    #[test]
    fn a_burst_shows_at_once_and_is_forgotten() {
        let mut arrivals = Arrivals::default();
        (0..720).for_each(|_| arrivals.observe(1, 10.0));
        (0..6).for_each(|_| arrivals.observe(100, 10.0));
        assert!(arrivals.now().unwrap() > 6.0 && arrivals.usual().unwrap() < 0.4, "{arrivals:?}");
        (0..60).for_each(|_| arrivals.observe(1, 10.0));
        assert!((arrivals.now().unwrap() - 0.1).abs() < 0.01, "{arrivals:?}");
    }

    #[test]
    fn nonsense_does_not_last() {
        let mut arrivals = Arrivals::default();
        for gap in [0.0, -5.0, f64::NAN, f64::INFINITY] {
            arrivals.observe(5, gap);
        }
        assert_eq!(arrivals, Arrivals::default());
        arrivals.observe(u64::MAX, 0.001);
        (0..8640).for_each(|_| arrivals.observe(1, 10.0));
        assert!((arrivals.usual().unwrap() - 0.1).abs() < 0.001, "{arrivals:?}");
    }
}
