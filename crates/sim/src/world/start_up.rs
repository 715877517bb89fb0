//! How long workers take to start, and which starts fail.

use fastrand::Rng;

use super::rules::WorldRules;
use crate::moment::Moment;

/// Draws start-up times: log-normal, as times of programs are.
#[derive(Debug)]
pub(super) struct StartUp {
    rng: Rng,
    /// Mean and standard deviation of the logarithm; absent for a start that takes no time.
    log: Option<(f64, f64)>,
    failures: f64,
}

impl StartUp {
    pub(super) fn new(rules: &WorldRules, seed: u64) -> Self {
        let mean = Moment::from_span(rules.start_up).as_seconds();
        let variance = rules.start_up_spread.mul_add(rules.start_up_spread, 1.0).ln();
        let log = (mean > 0.0).then(|| (mean.ln() - variance / 2.0, variance.sqrt()));
        Self { rng: Rng::with_seed(seed), log, failures: rules.start_up_failures }
    }

    pub(super) fn draw(&mut self) -> Moment {
        let Some((mean, deviation)) = self.log else { return Moment::default() };
        // Box-Muller; 1 - u is never 0.
        let radius = (-2.0 * (1.0 - self.rng.f64()).ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.rng.f64()).cos();
        Moment::from_seconds(deviation.mul_add(normal, mean).exp()).unwrap_or_default()
    }

    /// Whether this start fails. Draws nothing where none does, so that the times stay the same.
    pub(super) fn fails(&mut self) -> bool {
        self.failures > 0.0 && self.rng.f64() < self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headcount_core::Span;

    fn start_up(seconds: i64, start_up_failures: f64) -> StartUp {
        let start_up = Span::from_secs(seconds);
        StartUp::new(&WorldRules { start_up, start_up_failures, ..WorldRules::default() }, 1)
    }

    #[test]
    fn they_have_the_mean_and_the_spread_they_should() {
        let mut start_up = start_up(90, 0.0);
        let draws: Vec<f64> = (0..50_000).map(|_| start_up.draw().as_seconds()).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        assert!((mean - 90.0).abs() < 0.5, "mean {mean}");
        assert!((variance.sqrt() - 18.0).abs() < 0.5, "deviation {}", variance.sqrt());
    }

    #[test]
    fn a_start_may_take_no_time_or_fail() {
        assert_eq!(start_up(0, 0.0).draw(), Moment::default());
        let mut half = start_up(0, 0.5);
        let failed = (0..10_000).filter(|_| half.fails()).count();
        assert!((4800..5200).contains(&failed), "{failed}");
    }
}
