//! The last samples of the machine, and what they say together.

use std::collections::VecDeque;
use std::time::Duration;

use headcount_core::{HostReading, Reading, Silence, Timestamp};

use super::procfs::{CpuShares, CpuTimes};
use crate::limits::HOST_SAMPLES;

/// The least time between two samples whose difference is a reading: the reference's.
pub(super) const LEAST_DELTA: Duration = Duration::from_millis(500);

/// One sample of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    /// When, on a clock that nobody sets.
    pub(super) at: Duration,
    /// When, on the wall clock.
    pub(super) taken_at: Timestamp,
    pub(super) cpu: CpuTimes,
    pub(super) gauges: Gauges,
}

/// What one sample tells by itself. Percent, and cores.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Gauges {
    pub(super) memory: Option<f64>,
    pub(super) cpu_pressure: Option<f64>,
    pub(super) memory_pressure: Option<f64>,
    pub(super) cores: Option<f64>,
}

/// The last samples, at most [`HOST_SAMPLES`].
#[derive(Debug)]
pub(super) struct Samples {
    ring: VecDeque<Sample>,
    /// Why there is no reading, when the last sample failed or there is none to compare it with.
    missing: Option<(Silence, String)>,
}

impl Samples {
    pub(super) fn new() -> Self {
        let missing = Some((Silence::Absent, "first sample in progress".into()));
        Self { ring: VecDeque::new(), missing }
    }

    /// Takes in a sample, or why there is none.
    pub(super) fn push(&mut self, sample: Result<Sample, (Silence, String)>) {
        let sample = match sample {
            Ok(sample) => sample,
            Err(why) => {
                self.missing = Some(why);
                return;
            }
        };
        let previous = self.ring.back();
        let went_back = previous.is_some_and(|last| {
            sample.cpu.total < last.cpu.total || sample.cpu.idle < last.cpu.idle
        });
        if went_back {
            self.ring.clear();
            self.missing = Some((Silence::Contradictory, "the CPU counters went back".into()));
        } else if previous.is_some() {
            self.missing = None;
        }
        if self.ring.len() == HOST_SAMPLES {
            self.ring.pop_front();
        }
        self.ring.push_back(sample);
    }

    /// What the samples say: CPU now, and averaged over the last `window`.
    pub(super) fn read(&self, window: Duration) -> Reading<HostReading> {
        if let Some((why, detail)) = &self.missing {
            return Reading::missing(*why, detail.as_str());
        }
        let Some(last) = self.ring.back() else {
            return Reading::missing(Silence::Absent, "no sample");
        };
        let Some(now) = self.since(last, LEAST_DELTA) else {
            return Reading::missing(Silence::Contradictory, "the CPU counters stand still");
        };
        let mean = self.since(last, window.max(LEAST_DELTA)).unwrap_or(now);
        let Gauges { memory, cpu_pressure, memory_pressure, cores } = last.gauges;
        let reading = HostReading {
            cpu_raw: now.busy,
            cpu_mean: Some(mean.busy),
            steal: Some(mean.steal),
            iowait: Some(mean.iowait),
            mem: memory,
            cpu_pressure,
            mem_pressure: memory_pressure,
            cores,
            elsewhere: false,
        };
        Reading::known(reading, last.taken_at)
    }

    /// The use of the CPU between `last` and the newest sample that is at least `span` older, or the
    /// oldest there is.
    fn since(&self, last: &Sample, span: Duration) -> Option<CpuShares> {
        let is_old_enough = |s: &&Sample| last.at.saturating_sub(s.at) >= span;
        let base = self.ring.iter().rev().find(is_old_enough).or(self.ring.front())?;
        last.cpu.since(&base.cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample at `ms` with so many ticks in all and idle.
    fn sample(ms: u64, total: u64, idle: u64) -> Sample {
        Sample {
            at: Duration::from_millis(ms),
            taken_at: Timestamp::from_millis(1_000_000 + ms as i64),
            cpu: CpuTimes { total, idle, ..CpuTimes::default() },
            gauges: Gauges::default(),
        }
    }

    fn of(samples: &[Sample]) -> Samples {
        let mut all = Samples::new();
        samples.iter().for_each(|s| all.push(Ok(*s)));
        all
    }

    fn why(samples: &Samples) -> String {
        match samples.read(Duration::from_secs(30)) {
            Reading::Missing(missing) => missing.to_string(),
            Reading::Known { value, .. } => panic!("{value:?}"),
        }
    }

    #[test]
    fn raw_is_the_last_delta_and_mean_that_of_the_window() {
        // 100 ticks a second: idle, idle, then busy.
        let samples = of(&[
            sample(0, 0, 0),
            sample(500, 50, 50),
            sample(1500, 150, 150),
            sample(2500, 250, 150),
        ]);
        let Reading::Known { value, taken_at } = samples.read(Duration::from_secs(2)) else {
            panic!("{samples:?}");
        };
        assert_eq!((value.cpu_raw, value.cpu_mean), (100.0, Some(50.0)));
        assert_eq!(taken_at.as_millis(), 1_002_500);
        // A window longer than the past is the past; a shorter one than half a second is the last.
        let mean = |window| samples.read(window).value().and_then(|v| v.cpu_mean);
        assert_eq!(mean(Duration::from_secs(3600)), Some(40.0));
        assert_eq!(mean(Duration::ZERO), Some(100.0));
    }

    #[test]
    fn no_reading_before_the_second_sample() {
        assert_eq!(why(&of(&[])), "absent: first sample in progress");
        assert_eq!(why(&of(&[sample(0, 10, 5)])), "absent: first sample in progress");
        assert!(of(&[sample(0, 10, 5), sample(500, 20, 5)]).read(Duration::ZERO).value().is_some());
    }

    #[test]
    fn counters_that_go_back_or_stand_still_give_no_reading() {
        let mut samples = of(&[sample(0, 100, 50), sample(1000, 200, 100), sample(2000, 20, 10)]);
        assert_eq!(why(&samples), "contradictory: the CPU counters went back");
        samples.push(Ok(sample(3000, 120, 85)));
        assert_eq!(samples.read(Duration::from_secs(30)).value().unwrap().cpu_raw, 25.0);
        samples.push(Ok(sample(4000, 120, 85)));
        assert_eq!(why(&samples), "contradictory: the CPU counters stand still");
    }

    #[test]
    fn a_failed_sample_is_missing_until_the_next_good_one() {
        let mut samples = of(&[sample(0, 0, 0), sample(1000, 100, 20)]);
        samples.push(Err((Silence::Denied, "/proc/stat: permission denied".into())));
        assert_eq!(why(&samples), "denied: /proc/stat: permission denied");
        samples.push(Ok(sample(3000, 300, 120)));
        assert_eq!(samples.read(Duration::from_secs(1)).value().unwrap().cpu_raw, 50.0);
    }

    #[test]
    fn the_ring_is_bounded() {
        let mut samples = Samples::new();
        (0..3000).for_each(|i| samples.push(Ok(sample(i * 1000, i * 100, i * 50))));
        assert_eq!(samples.ring.len(), HOST_SAMPLES);
    }
}
