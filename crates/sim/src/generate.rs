//! Traces made up from a few numbers: steady, bursty, with the time of day, by the clock. The same
//! recipe and seed always give the same trace.

use fastrand::Rng;

use crate::moment::Moment;
use crate::trace::{Job, MOST_JOBS, Trace};

/// How jobs come and how long they take. Times in seconds, rates in jobs a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// How they come.
    pub arrivals: Arrivals,
    /// How long they take.
    pub service: Service,
    /// How long they keep coming.
    pub length: f64,
}

/// How jobs come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// At random, always at the same rate.
    Poisson {
        /// The rate.
        rate: f64,
    },
    /// A trickle at `rate`, and `jobs` more within `spread` every `every`.
    Bursts {
        /// The trickle.
        rate: f64,
        /// From one burst to the next.
        every: f64,
        /// Jobs of a burst.
        jobs: u32,
        /// How long a burst takes.
        spread: f64,
    },
    /// With the time of day: the rate swings between 0 and twice `rate`, highest at noon.
    Diurnal {
        /// The mean rate.
        rate: f64,
    },
    /// By the clock, as schedules fire: `jobs` every 5 min, twice as many every 15 min, four times
    /// as many every hour, all within a second.
    Cron {
        /// Jobs that fire every 5 min.
        jobs: u32,
    },
    /// `rate`, and `factor` times as much in the middle third.
    Step {
        /// The rate.
        rate: f64,
        /// How much higher the step is.
        factor: f64,
    },
    /// `high` and `low` in turn, `half` long each.
    Square {
        /// The rate of the first half.
        high: f64,
        /// The rate of the second half.
        low: f64,
        /// How long each lasts.
        half: f64,
    },
}

/// How long jobs take, s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// Exponential.
    Exponential {
        /// The mean.
        mean: f64,
    },
    /// Log-normal, as times of programs are.
    LogNormal {
        /// The median.
        median: f64,
        /// Standard deviation of the natural logarithm.
        sigma: f64,
    },
    /// Exponential with a mean of `mean`, but for a share of long ones between `from` and `to`.
    FewLong {
        /// The mean of the others.
        mean: f64,
        /// The share of long ones.
        share: f64,
        /// The shortest long one.
        from: f64,
        /// The longest.
        to: f64,
    },
}

impl Recipe {
    /// Makes the trace; at most [`MOST_JOBS`] jobs, each of at least a millisecond.
    pub fn trace(&self, seed: u64) -> Trace {
        let mut rng = Rng::with_seed(seed);
        let mut times = self.at_random(&mut rng);
        self.by_the_clock(&mut rng, &mut times);
        times.sort_by(f64::total_cmp);
        times.truncate(MOST_JOBS);
        let moment = |s: f64| Moment::from_seconds(s).unwrap_or_default();
        let jobs = times.into_iter().map(|at| {
            let service = self.service.draw(&mut rng).max(0.001);
            Job { at: moment(at), service: moment(service), class: 0 }
        });
        Trace { jobs: jobs.collect(), classes: Vec::new() }
    }

    /// Arrivals of a Poisson process whose rate changes, by thinning one at the highest rate.
    fn at_random(&self, rng: &mut Rng) -> Vec<f64> {
        let highest = self.arrivals.highest();
        let mut times = Vec::new();
        if highest.is_nan() || highest <= 0.0 {
            return times;
        }
        let mut at = exponential(rng, 1.0 / highest);
        while at < self.length && times.len() < MOST_JOBS {
            if rng.f64() * highest < self.arrivals.rate(at, self.length) {
                times.push(at);
            }
            at += exponential(rng, 1.0 / highest);
        }
        times
    }

    fn by_the_clock(&self, rng: &mut Rng, times: &mut Vec<f64>) {
        let (every, spread) = match self.arrivals {
            Arrivals::Bursts { every, spread, .. } => (every, spread),
            Arrivals::Cron { .. } => (300.0, 1.0),
            _ => return,
        };
        let mut at = every.max(1.0);
        for round in 1_u32.. {
            if at >= self.length || times.len() >= MOST_JOBS {
                break;
            }
            let jobs = match self.arrivals {
                Arrivals::Cron { jobs } if round.is_multiple_of(12) => jobs * 7,
                Arrivals::Cron { jobs } if round.is_multiple_of(3) => jobs * 3,
                Arrivals::Bursts { jobs, .. } | Arrivals::Cron { jobs } => jobs,
                _ => 0,
            };
            times.extend((0..jobs).map(|_| at + rng.f64() * spread));
            at += every.max(1.0);
        }
    }
}

impl Arrivals {
    /// The rate of what comes at random, at a moment.
    fn rate(&self, at: f64, length: f64) -> f64 {
        match *self {
            Self::Poisson { rate } | Self::Bursts { rate, .. } => rate,
            Self::Diurnal { rate } => rate * (1.0 - (std::f64::consts::TAU * at / 86_400.0).cos()),
            Self::Cron { .. } => 0.0,
            Self::Step { rate, factor } => {
                let high = (length / 3.0..length * 2.0 / 3.0).contains(&at);
                if high { rate * factor } else { rate }
            }
            Self::Square { high, low, half } => {
                let first = (at / half.max(1e-3)).floor().rem_euclid(2.0) == 0.0;
                if first { high } else { low }
            }
        }
    }

    /// The highest rate there is.
    fn highest(&self) -> f64 {
        match *self {
            Self::Poisson { rate } | Self::Bursts { rate, .. } => rate,
            Self::Diurnal { rate } => 2.0 * rate,
            Self::Cron { .. } => 0.0,
            Self::Step { rate, factor } => rate * factor.max(1.0),
            Self::Square { high, low, .. } => high.max(low),
        }
    }
}

impl Service {
    fn draw(&self, rng: &mut Rng) -> f64 {
        match *self {
            Self::Exponential { mean } => exponential(rng, mean),
            Self::LogNormal { median, sigma } => {
                // Box-Muller; 1 - u is never 0.
                let radius = (-2.0 * (1.0 - rng.f64()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * rng.f64()).cos();
                median * (sigma * normal).exp()
            }
            Self::FewLong { mean, share, from, to } => {
                if rng.f64() < share {
                    (to - from).mul_add(rng.f64(), from)
                } else {
                    exponential(rng, mean)
                }
            }
        }
    }
}

fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -(1.0 - rng.f64()).ln() * mean
}

/// One of each kind, of a few hours to days: what the benchmark uses where no traces are given.
pub fn samples() -> Vec<(&'static str, Recipe)> {
    let short = Service::LogNormal { median: 10.0, sigma: 1.0 };
    let recipe = |arrivals, hours: f64| Recipe { arrivals, service: short, length: hours * 3600.0 };
    vec![
        ("poisson", recipe(Arrivals::Poisson { rate: 0.2 }, 24.0)),
        (
            "bursts",
            recipe(Arrivals::Bursts { rate: 0.01, every: 1800.0, jobs: 60, spread: 20.0 }, 6.0),
        ),
        ("diurnal", recipe(Arrivals::Diurnal { rate: 0.1 }, 96.0)),
        ("cron", recipe(Arrivals::Cron { jobs: 6 }, 48.0)),
        ("step", recipe(Arrivals::Step { rate: 0.02, factor: 40.0 }, 4.0)),
        ("square", recipe(Arrivals::Square { high: 0.8, low: 0.0, half: 120.0 }, 4.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(recipe: Recipe, from: f64, to: f64) -> usize {
        let trace = recipe.trace(1);
        trace.jobs.iter().filter(|job| (from..to).contains(&job.at.as_seconds())).count()
    }

    #[test]
    fn jobs_come_when_they_should() {
        let service = Service::Exponential { mean: 5.0 };
        let recipe = |arrivals, length| Recipe { arrivals, service, length };
        let near = |n: usize, expected: f64| {
            assert!(
                (n as f64 - expected).abs() < 4.0 * expected.sqrt() + 1.0,
                "{n}, not {expected}"
            );
        };
        let poisson = recipe(Arrivals::Poisson { rate: 0.5 }, 10_000.0);
        near(counts(poisson, 0.0, 1e9), 5000.0);
        let bursts = Arrivals::Bursts { rate: 0.0, every: 100.0, jobs: 7, spread: 5.0 };
        assert_eq!(counts(recipe(bursts, 1000.0), 200.0, 205.0), 7);
        assert_eq!(counts(recipe(bursts, 1000.0), 0.0, 1e9), 9 * 7);
        let diurnal = recipe(Arrivals::Diurnal { rate: 0.1 }, 86_400.0);
        near(counts(diurnal, 0.0, 1e9), 8640.0);
        assert!(counts(diurnal, 36_000.0, 50_400.0) > 8 * counts(diurnal, 0.0, 14_400.0));
        let cron = recipe(Arrivals::Cron { jobs: 2 }, 3601.0);
        assert_eq!(counts(cron, 300.0, 301.0), 2);
        assert_eq!(counts(cron, 900.0, 901.0), 6);
        assert_eq!(counts(cron, 3600.0, 3601.0), 14);
        let step = recipe(Arrivals::Step { rate: 0.1, factor: 10.0 }, 3000.0);
        near(counts(step, 0.0, 1000.0), 100.0);
        near(counts(step, 1000.0, 2000.0), 1000.0);
        let square = recipe(Arrivals::Square { high: 1.0, low: 0.0, half: 100.0 }, 1000.0);
        near(counts(square, 0.0, 1e9), 500.0);
        assert_eq!(counts(square, 100.0, 200.0), 0);
    }

    #[test]
    fn they_take_as_long_as_they_should_and_the_seed_decides() {
        let arrivals = Arrivals::Poisson { rate: 1.0 };
        for (service, mean) in [
            (Service::Exponential { mean: 5.0 }, 5.0),
            (Service::LogNormal { median: 5.0, sigma: 0.5 }, 5.0 * (0.125f64).exp()),
            (Service::FewLong { mean: 5.0, share: 0.1, from: 50.0, to: 60.0 }, 10.0),
        ] {
            let recipe = Recipe { arrivals, service, length: 20_000.0 };
            let trace = recipe.trace(3);
            let got = trace.work().as_seconds() / trace.jobs.len() as f64;
            assert!((got / mean - 1.0).abs() < 0.05, "{service:?}: {got}");
            assert_eq!(trace, recipe.trace(3));
            assert_ne!(trace, recipe.trace(4));
        }
    }

    #[test]
    fn samples_are_traces() {
        for (name, recipe) in samples() {
            let trace = recipe.trace(1);
            assert!((500..200_000).contains(&trace.jobs.len()), "{name}: {}", trace.jobs.len());
            assert!(trace.jobs.is_sorted_by_key(|job| job.at), "{name}");
        }
        let none = Recipe {
            arrivals: Arrivals::Poisson { rate: f64::NAN },
            service: Service::Exponential { mean: 1.0 },
            length: 10.0,
        };
        assert_eq!(none.trace(1), Trace::default());
    }
}
