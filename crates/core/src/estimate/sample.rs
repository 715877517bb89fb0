//! The last so many values of something, by age and by size.

use serde::{Deserialize, Serialize};

/// The most values of any sample: enough for a 99th percentile of four samples.
pub(super) const MOST: usize = 400;
/// Larger values count as this: 30 days in seconds. No decision depends on more, and numbers stay
/// short in JSON.
const LARGEST: f64 = 2_592_000.0;

/// The last so many values of something, also in order of size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<f64>", into = "Vec<f64>")]
pub struct Sample {
    values: Vec<f64>,
    sorted: Vec<f64>,
}

impl From<Vec<f64>> for Sample {
    fn from(mut values: Vec<f64>) -> Self {
        values.retain(|x| x.is_finite() && *x >= 0.0);
        values.iter_mut().for_each(|x| *x = x.min(LARGEST));
        values.drain(..values.len().saturating_sub(MOST));
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        Self { values, sorted }
    }
}

impl From<Sample> for Vec<f64> {
    fn from(sample: Sample) -> Self {
        sample.values
    }
}

impl Sample {
    pub(super) fn add(&mut self, value: f64, most: usize) {
        if !(value.is_finite() && value >= 0.0) {
            return;
        }
        // Milliseconds are exact enough, and short in JSON.
        let value = (value.min(LARGEST) * 1000.0).round() / 1000.0;
        if self.values.len() >= most {
            let oldest = self.values.remove(0);
            let place = self.sorted.partition_point(|x| *x < oldest);
            self.sorted.remove(place);
        }
        self.values.push(value);
        let place = self.sorted.partition_point(|x| *x < value);
        self.sorted.insert(place, value);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// The value that a share (0 to 1) of them does not exceed.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let rank = (share * self.len() as f64).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied()
    }

    /// The mean of the values, each at most `limit`.
    pub fn mean_up_to(&self, limit: f64) -> Option<f64> {
        if self.is_empty() {
            return None;
        }
        let sum: f64 = self.sorted.iter().map(|x| x.min(limit)).sum();
        Some(sum / self.len() as f64)
    }

    /// Half of those that are above `age` are above `age` plus this.
    pub(super) fn median_rest(&self, age: f64) -> Option<f64> {
        let above = &self.sorted[self.sorted.partition_point(|x| *x <= age)..];
        // None has ever taken so long: as long again, as things of unknown length do.
        above.get(above.len() / 2).map(|x| x - age).or((!self.is_empty()).then_some(age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_forgets_the_oldest_and_refuses_nonsense() {
        let mut sample = Sample::default();
        for value in [f64::NAN, -1.0, f64::INFINITY] {
            sample.add(value, 3);
        }
        assert!(sample.is_empty());
        sample.add(1e300, 3);
        assert_eq!(sample.quantile(0.5), Some(LARGEST));
        (1..=5).for_each(|value| sample.add(f64::from(value), 3));
        assert_eq!((sample.quantile(0.5), sample.quantile(1.0)), (Some(4.0), Some(5.0)));
        let stored: Sample =
            serde_json::from_str(&serde_json::to_string(&sample).unwrap()).unwrap();
        assert_eq!(stored, sample);
    }
}
