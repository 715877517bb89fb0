//! Samples of the last so many seconds.

use std::collections::VecDeque;

/// Samples, the oldest first; older ones than the window is long are forgotten.
#[derive(Clone, Debug)]
pub(super) struct Window {
    length: f64,
    samples: VecDeque<(f64, f64)>,
    sum: f64,
}

impl Window {
    /// Nothing yet; `length` in seconds.
    pub(super) const fn new(length: f64) -> Self {
        Self { length, samples: VecDeque::new(), sum: 0.0 }
    }

    /// Takes in a sample at `now`, s. A sample exactly as old as the window is long has left it.
    pub(super) fn add(&mut self, now: f64, value: f64) {
        while let Some((at, old)) = self.samples.front().copied()
            && at <= now - self.length
        {
            self.samples.pop_front();
            self.sum -= old;
        }
        if self.samples.is_empty() {
            // What rounding has left behind.
            self.sum = 0.0;
        }
        self.samples.push_back((now, value));
        self.sum += value;
    }

    /// The mean of the samples; 0 of none.
    pub(super) fn mean(&self) -> f64 {
        // Rounding can leave a tiny negative sum of zeros.
        if self.samples.is_empty() { 0.0 } else { (self.sum / self.samples.len() as f64).max(0.0) }
    }

    /// The highest sample; 0 of none.
    pub(super) fn max(&self) -> f64 {
        self.samples.iter().map(|(_, value)| *value).fold(0.0, f64::max)
    }

    pub(super) fn clear(&mut self) {
        self.samples.clear();
        self.sum = 0.0;
    }
}
