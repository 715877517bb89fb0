//! Pure readers of the kernel's text files: `/proc/stat`, `/proc/meminfo`, `/proc/pressure/*`.

use headcount_core::smooth::one_decimal;

/// CPU time of all cores since boot, in clock ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// All fields together, as the reference autoscaler sums them.
    pub total: u64,
    /// The fourth field alone: waiting for disks (the fifth) counts as busy.
    pub idle: u64,
    /// The fifth field. The kernel says of it that it may go back.
    pub iowait: u64,
    /// The eighth field: taken by other virtual machines.
    pub steal: u64,
}

/// How the CPU was used between two moments, percent with one decimal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuShares {
    /// Everything but idle.
    pub busy: f64,
    /// Waiting for disks; part of `busy`.
    pub iowait: f64,
    /// Taken by other virtual machines; part of `busy`.
    pub steal: f64,
}

impl CpuTimes {
    /// The first line of `/proc/stat`; `None` if it is not what the kernel writes.
    pub fn parse(stat: &str) -> Option<Self> {
        let mut words = stat.lines().next()?.split_ascii_whitespace();
        words.next().filter(|name| *name == "cpu")?;
        let fields: Vec<u64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        Some(Self {
            total: fields.iter().fold(0, |sum: u64, field| sum.saturating_add(*field)),
            idle: *fields.get(3)?,
            iowait: fields.get(4).copied().unwrap_or(0),
            steal: fields.get(7).copied().unwrap_or(0),
        })
    }

    /// The use since `earlier`; `None` if the counters stood still or went back.
    pub fn since(&self, earlier: &Self) -> Option<CpuShares> {
        let total = self.total.checked_sub(earlier.total).filter(|ticks| *ticks > 0)?;
        let idle = self.idle.checked_sub(earlier.idle).filter(|ticks| *ticks <= total)?;
        let share = |ticks: u64| one_decimal(ticks.min(total) as f64 / total as f64 * 100.0);
        Some(CpuShares {
            busy: one_decimal((1.0 - idle as f64 / total as f64) * 100.0),
            iowait: share(self.iowait.saturating_sub(earlier.iowait)),
            steal: share(self.steal.saturating_sub(earlier.steal)),
        })
    }
}

/// The cores that `/proc/stat` lists.
pub fn cores(stat: &str) -> usize {
    let is_core = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(is_core).count()
}

/// Memory in use, percent, by `/proc/meminfo`: all but what the kernel says is available.
pub fn memory_in_use(meminfo: &str) -> Option<f64> {
    let (total, available) =
        (kib(meminfo, "MemTotal")? as f64, kib(meminfo, "MemAvailable")? as f64);
    (total > 0.0).then(|| one_decimal(((1.0 - available / total) * 100.0).max(0.0)))
}

/// The machine's memory by `/proc/meminfo`, bytes.
pub fn memory_total(meminfo: &str) -> Option<u64> {
    kib(meminfo, "MemTotal")?.checked_mul(1024)
}

fn kib(meminfo: &str, key: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    value.split_ascii_whitespace().next()?.parse().ok()
}

/// The share of the last 10 s in which some task had to wait, percent (`some avg10`).
pub fn pressure(psi: &str) -> Option<f64> {
    let some = psi.lines().find_map(|line| line.strip_prefix("some "))?;
    let avg10 = some.split_ascii_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
    avg10.parse().ok().filter(|share| (0.0..=100.0).contains(share))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  100 10 50 800 40 5 5 20 7 3\ncpu0 50 5 25 400 20 2 3 10 4 1\n\
        cpu1 50 5 25 400 20 3 2 10 3 2\nintr 449264 0\nctxt 1\nbtime 1\n";

    fn times(total: u64, idle: u64, iowait: u64, steal: u64) -> CpuTimes {
        CpuTimes { total, idle, iowait, steal }
    }

    #[test]
    fn all_ten_fields_count_and_only_the_fourth_is_idle() {
        assert_eq!(CpuTimes::parse(STAT), Some(times(1040, 800, 40, 20)));
        assert_eq!(cores(STAT), 2);
    }

    #[test]
    fn an_old_kernel_has_fewer_fields() {
        assert_eq!(CpuTimes::parse("cpu 1 2 3 4\n"), Some(times(10, 4, 0, 0)));
    }

    #[test]
    fn what_the_kernel_does_not_write_is_not_read() {
        for stat in ["", "cpu", "cpu 1 2 3", "cpu0 1 2 3 4 5", "cpu 1 2 x 4 5", "cpu 1 2 -3 4 5"] {
            assert_eq!(CpuTimes::parse(stat), None, "{stat:?}");
        }
    }

    #[test]
    fn shares_are_those_of_the_time_between() {
        let shares = times(2040, 1550, 60, 30).since(&times(1040, 800, 40, 20)).unwrap();
        assert_eq!(shares, CpuShares { busy: 25.0, iowait: 2.0, steal: 1.0 });
        // The reference's formula, one decimal: (1 - 2/3) x 100.
        assert_eq!(times(3, 2, 0, 0).since(&times(0, 0, 0, 0)).unwrap().busy, 33.3);
    }

    #[test]
    fn counters_that_stand_still_or_go_back_say_nothing() {
        let earlier = times(1000, 800, 50, 20);
        assert_eq!(earlier.since(&earlier), None);
        assert_eq!(times(900, 700, 50, 20).since(&earlier), None);
        assert_eq!(times(1100, 799, 50, 20).since(&earlier), None);
        assert_eq!(times(1100, 901, 50, 20).since(&earlier), None);
        // The kernel documents this one: iowait may decrease.
        assert_eq!(times(1100, 850, 49, 20).since(&earlier).unwrap().iowait, 0.0);
    }

    #[test]
    fn memory_is_what_is_not_available() {
        let meminfo = "MemTotal:       16000 kB\nMemFree:  100 kB\nMemAvailable:    4000 kB\n";
        assert_eq!(memory_in_use(meminfo), Some(75.0));
        assert_eq!(memory_in_use("MemTotal: 16000 kB\nMemFree: 100 kB\n"), None);
        assert_eq!(memory_in_use("MemTotal: 0 kB\nMemAvailable: 0 kB\n"), None);
        assert_eq!(memory_in_use("MemTotal: 10 kB\nMemAvailable: 11 kB\n"), Some(0.0));
    }

    #[test]
    fn pressure_is_that_of_some_task_over_ten_seconds() {
        let psi =
            "some avg10=1.53 avg60=0.87 avg300=0.73 total=1\nfull avg10=9.99 avg60=0 total=1\n";
        assert_eq!(pressure(psi), Some(1.53));
        assert_eq!(pressure("full avg10=1.00\n"), None);
        assert_eq!(pressure("some avg10=NaN\n"), None);
    }
}
