//! Smoothing of noisy numbers.

use serde::{Deserialize, Serialize};

/// An exponentially weighted moving average that rises and falls at different speeds.
///
/// Starts at its first sample. Every value is rounded to one decimal, as the reference autoscaler
/// rounds, so that a comparison with a threshold gives the same answer here and there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AsymmetricEwma(Option<f64>);

impl AsymmetricEwma {
    /// Takes in one sample with weight `up` if it is above the average, else `down` (both 0 to 1).
    pub fn add(&mut self, sample: f64, up: f64, down: f64) -> f64 {
        let next = match self.0 {
            None => sample,
            // An idle machine, the commonest case: there is nothing to round.
            Some(0.0) if sample == 0.0 => 0.0,
            Some(ema) => {
                let alpha = if sample > ema { up } else { down };
                one_decimal(alpha * sample + (1.0 - alpha) * ema)
            }
        };
        self.0 = Some(next);
        next
    }

    /// The average so far.
    pub const fn value(self) -> Option<f64> {
        self.0
    }
}

/// Rounds to one decimal the way Python's `round(x, 1)` does: to the nearest decimal of the exact
/// binary value, ties to even. Multiplying by ten first would round 0.25 and 64.95 differently.
pub fn one_decimal(x: f64) -> f64 {
    format!("{x:.1}").parse().unwrap_or(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_like_the_reference() {
        // Values of Python 3's round(x, 1).
        let table = [
            (0.25, 0.2),
            (0.35, 0.3),
            (0.75, 0.8),
            (64.95, 65.0),
            (64.85, 64.8),
            (2.65, 2.6),
            (99.949, 99.9),
        ];
        for (x, rounded) in table {
            assert_eq!(one_decimal(x), rounded, "round({x}, 1)");
        }
    }

    #[test]
    fn rises_fast_and_falls_slowly() {
        let mut ema = AsymmetricEwma::default();
        assert_eq!(ema.add(20.0, 0.5, 0.1), 20.0);
        assert_eq!(ema.add(80.0, 0.5, 0.1), 50.0);
        assert_eq!(ema.add(20.0, 0.5, 0.1), 47.0);
    }
}
