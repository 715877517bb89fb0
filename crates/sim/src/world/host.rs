//! The machine: cores that are shared equally by whoever wants them (processor sharing).
//!
//! All work on it runs at one speed, so one clock of work done tells when each piece ends: it runs
//! like the world's while there are cores enough, and slower when not.

use super::rules::HostRules;
use crate::events::{Event, Events};
use crate::moment::Moment;

/// What overcommitting costs: at twice the cores there are, a tenth of the work done is lost to
/// switching and cold caches, at three times two tenths, and so on. An assumption, at the low end of
/// what is measured for programs that share caches; without any, overcommitting would look free.
const THRASH: f64 = 0.1;

/// The machine and the work on it.
#[derive(Debug)]
pub(super) struct Host {
    rules: HostRules,
    /// When the numbers below were true.
    at: Moment,
    /// Work done so far by each piece that was there all the time, microseconds.
    done: f64,
    /// Work done in a second.
    speed: f64,
    /// Cores wanted.
    wanted: f64,
    /// What ends when the work done reaches a point.
    work: Events,
    /// Core-microseconds used since the last look.
    used: f64,
    looked_at: Moment,
    /// Time in which more cores were wanted than there are.
    pub(super) overloaded: Moment,
}

impl Host {
    pub(super) fn new(rules: HostRules) -> Self {
        let mut host = Self {
            rules,
            at: Moment::default(),
            done: 0.0,
            speed: 1.0,
            wanted: 0.0,
            work: Events::default(),
            used: 0.0,
            looked_at: Moment::default(),
            overloaded: Moment::default(),
        };
        host.want(0, 0);
        host
    }

    pub(super) const fn rules(&self) -> &HostRules {
        &self.rules
    }

    /// Lets the time pass.
    pub(super) fn advance(&mut self, now: Moment) {
        let passed = now.since(self.at);
        if passed == Moment::default() {
            return;
        }
        let micros = passed.as_micros() as f64;
        self.done = micros.mul_add(self.speed, self.done);
        self.used = micros.mul_add(self.wanted.min(self.rules.cores), self.used);
        if self.wanted > self.rules.cores {
            self.overloaded = self.overloaded.plus(passed);
        }
        self.at = now;
    }

    /// So many jobs run and so many workers start from now on.
    pub(super) fn want(&mut self, jobs: usize, starting: usize) {
        let HostRules { cores, cores_per_job, start_up_cores, background_cores, .. } = self.rules;
        let jobs = cores_per_job * jobs as f64;
        self.wanted = start_up_cores.mul_add(starting as f64, background_cores + jobs);
        let over = (self.wanted / cores).max(1.0);
        self.speed = 1.0 / (over * THRASH.mul_add(over - 1.0, 1.0));
    }

    /// Begins a piece of work that takes so long on an idle machine.
    pub(super) fn begin(&mut self, length: Moment, event: Event) {
        let end = self.done + length.as_micros() as f64;
        self.work.plan(Moment::from_micros(end.round() as u64), event);
    }

    /// When the next piece ends if nothing else happens.
    pub(super) fn next_at(&self) -> Option<Moment> {
        let left = (self.work.next_at()?.as_micros() as f64 - self.done).max(0.0);
        Some(self.at.plus(Moment::from_micros((left / self.speed).ceil() as u64)))
    }

    /// What ends next.
    pub(super) fn pop(&mut self) -> Option<Event> {
        self.work.pop().map(|(_, event)| event)
    }

    /// CPU in use now and on average since the last look, percent.
    pub(super) fn cpu(&mut self, now: Moment) -> (f64, f64) {
        let percent = |cores: f64| (100.0 * cores / self.rules.cores).clamp(0.0, 100.0);
        let raw = percent(self.wanted);
        let passed = now.since(self.looked_at).as_micros() as f64;
        let mean = if passed > 0.0 { percent(self.used / passed) } else { raw };
        (self.used, self.looked_at) = (0.0, now);
        (raw, mean)
    }

    /// The cores that are asked for now, percent of those there are.
    pub(super) fn asked(&self) -> f64 {
        100.0 * self.wanted / self.rules.cores
    }

    /// Whether the memory holds so many workers.
    pub(super) fn holds(&self, workers: usize) -> bool {
        self.rules
            .memory
            .is_none_or(|memory| self.rules.memory_per_worker * workers as f64 <= memory)
    }

    /// Memory in use by so many workers, percent.
    pub(super) fn memory(&self, workers: usize) -> Option<f64> {
        let memory = self.rules.memory.filter(|memory| *memory > 0.0)?;
        Some((100.0 * self.rules.memory_per_worker * workers as f64 / memory).min(100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(s: f64) -> Moment {
        Moment::from_seconds(s).unwrap()
    }

    fn end(job: u32) -> Event {
        Event::End { group: 0, worker: job, job }
    }

    #[test]
    fn two_jobs_on_one_core_share_it_and_lose_a_tenth() {
        let mut host = Host::new(HostRules { cores: 1.0, ..HostRules::default() });
        host.want(1, 0);
        host.begin(seconds(10.0), end(0));
        assert_eq!(host.next_at(), Some(seconds(10.0)));
        host.advance(seconds(5.0));
        host.want(2, 0);
        host.begin(seconds(10.0), end(1));
        // 5 s of work are left of the first, at a speed of 1 / 2.2.
        assert_eq!(host.next_at(), Some(seconds(16.0)));
        host.advance(seconds(16.0));
        assert_eq!(host.pop(), Some(end(0)));
        host.want(1, 0);
        assert_eq!(host.next_at(), Some(seconds(21.0)));
        assert_eq!(host.overloaded, seconds(11.0));
        assert_eq!(host.cpu(seconds(16.0)), (100.0, 100.0));
    }

    #[test]
    fn with_cores_to_spare_its_clock_is_the_worlds() {
        let mut host = Host::new(HostRules { background_cores: 0.5, ..HostRules::default() });
        host.want(2, 1);
        host.begin(seconds(3.0), end(0));
        host.advance(seconds(1.0));
        assert_eq!(host.next_at(), Some(seconds(3.0)));
        assert_eq!(host.cpu(seconds(2.0)), (87.5, 43.75));
        assert_eq!(host.overloaded, Moment::default());
    }

    #[test]
    fn memory_is_counted_by_the_worker() {
        let rules = HostRules { memory: Some(4.0), memory_per_worker: 1.5, ..HostRules::default() };
        let host = Host::new(rules);
        assert_eq!((host.holds(2), host.holds(3)), (true, false));
        assert_eq!(host.memory(2), Some(75.0));
        assert!(Host::new(HostRules::default()).holds(1_000_000));
    }
}
