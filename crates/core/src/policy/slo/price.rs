//! What a missed job is worth, in seconds of a worker, where workers must be kept warm for jobs that
//! have not come. The price rises with each miss and falls with each job that is in time, so that
//! misses settle at the wanted share (dual ascent); but it stays below what the target is worth.

use serde::{Deserialize, Serialize};

use super::Facts;
use crate::estimate::{Estimate, News};

/// The share of jobs that may miss: 95 % shall be in time, and looks do not see the misses of jobs
/// that are late by less than a poll.
const MISSES: f64 = 0.04;
/// How far one miss moves the logarithm of the price: doubling it takes 14 misses in a row, about the
/// number from which a share of one in twenty can be told from one in ten.
const STEP: f64 = 0.05;
/// Where the price starts, s: about what a start costs.
const FIRST: f64 = 100.0;
/// Missing the target by a factor f is as bad as paying f^2. That bounds what avoiding all misses may
/// cost on average; the last one avoided costs more, four times as much where each halving of the
/// misses costs the same. Three times stays on the cheap side of that.
const WORTH: f64 = 3.0;
/// Misses that the highest price did not avoid are made up for later: at most as many as a thousand
/// jobs may have.
const DEBT: f64 = STEP * 50.0;
/// Starts per job that are believed at first, as if so many jobs had been seen.
const PRIOR_JOBS: f64 = 5.0;
/// Counts are halved when so many jobs are counted: the last thousand count.
const MOST_JOBS: f64 = 1000.0;
/// Spending is averaged over so many seconds of work.
const MOST_WORK: f64 = 100_000.0;
/// Jobs longer than this say nothing of what a job costs.
const LONGEST_JOB: f64 = 3600.0;

/// The price of a miss and what it depends on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Price {
    /// Logarithm of the price in seconds, and of the most that it may be.
    log: f64,
    most: f64,
    /// Jobs that came, and starts that they would have taken without warm workers.
    jobs: f64,
    starts: f64,
    /// Worker-seconds that were needed, and that were kept warm beyond.
    needed: f64,
    warm: f64,
}

impl Default for Price {
    fn default() -> Self {
        Self { log: FIRST.ln(), most: FIRST.ln(), jobs: 0.0, starts: 0.0, needed: 0.0, warm: 0.0 }
    }
}

impl Price {
    /// The price, seconds of a worker.
    pub(super) fn of_a_miss(&self) -> f64 {
        self.log.min(self.most).exp()
    }

    /// What is kept warm, as a share of what is needed; 0 to 99.
    pub(super) fn overhead(&self) -> f64 {
        if self.needed > 0.0 { (self.warm / self.needed).min(99.0) } else { 0.0 }
    }

    /// Takes in the jobs that came and those that became late since the last look.
    pub(super) fn follow(
        &mut self,
        waits: &[f64],
        facts: &Facts,
        estimate: &Estimate,
        news: News,
        starts: u32,
    ) {
        let arrived = (news.arrived as f64).min(MOST_JOBS);
        self.jobs += arrived;
        self.starts += f64::from(starts);
        if self.jobs > MOST_JOBS {
            (self.jobs, self.starts) = (self.jobs / 2.0, self.starts / 2.0);
        }
        // A job is late once it would be at the middle between two looks.
        let half = news.gap.min(facts.poll) / 2.0;
        let became_late = |waited: &&f64| {
            **waited + half > facts.wait && **waited + half - news.gap <= facts.wait
        };
        let late = waits.iter().filter(became_late).count() as f64;
        self.log += STEP * (late - MISSES * arrived);
        self.most = self.worth(facts, estimate).max(1.0).ln();
        self.log = self.log.clamp(0.0, self.most + DEBT);
    }

    /// The most that avoiding a miss is worth.
    fn worth(&self, facts: &Facts, estimate: &Estimate) -> f64 {
        // What a job waits that finds no worker, over what it may wait.
        let missed_by = (1.2 * facts.start_up + facts.poll) / facts.wait;
        let starts_per_job = (self.starts + PRIOR_JOBS) / (self.jobs + PRIOR_JOBS);
        let job_costs = estimate.duration(LONGEST_JOB) + facts.start_up * starts_per_job;
        WORTH * (missed_by * missed_by - 1.0).max(0.1) * job_costs
    }

    /// Takes in what was kept warm for so many seconds.
    pub(super) fn spend(&mut self, kept: u32, needed: u32, gap: f64) {
        self.needed += f64::from(needed) * gap;
        self.warm += f64::from(kept.saturating_sub(needed)) * gap;
        if self.needed > MOST_WORK || self.warm > 99.0 * MOST_WORK {
            (self.needed, self.warm) = (self.needed / 2.0, self.warm / 2.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::slo::Regime;

    /// A wanted wait of 10 s, start-ups of 30 s.
    fn facts() -> Facts {
        let (wait, start_up, poll) = (10.0, 30.0, 5.0);
        let regime = Regime::LevelHazard;
        Facts {
            wait,
            start_up,
            poll,
            slots: 1.0,
            start_price: start_up,
            waiting_price: 0.0,
            regime,
        }
    }

    fn follow(price: &mut Price, waits: &[f64], arrived: u64) {
        let news = News { gap: 5.0, arrived };
        price.follow(waits, &facts(), &Estimate::default(), news, 0);
    }

    #[test]
    fn a_job_is_late_once() {
        let (mut once, mut never) = (Price::default(), Price::default());
        for waited in [0.0, 5.0, 10.0, 15.0, 20.0] {
            follow(&mut once, &[waited], 0);
        }
        assert!((once.log - never.log - STEP).abs() < 1e-9, "{once:?}");
        follow(&mut never, &[7.0], 0);
        assert_eq!(never.log, FIRST.ln());
    }

    #[test]
    fn the_price_settles_where_one_job_in_twenty_five_is_late() {
        let mut price = Price::default();
        for i in 0..1000 {
            let late: &[f64] = if i % 25 == 0 { &[8.0] } else { &[] };
            follow(&mut price, late, 1);
        }
        assert!((price.log - FIRST.ln()).abs() < 2.0 * STEP, "{price:?}");
    }

    #[test]
    fn it_has_an_end_and_debts_are_remembered_only_so_far() {
        let mut price = Price::default();
        for _ in 0..1000 {
            follow(&mut price, &[8.0; 10], 10);
        }
        // Unknown jobs take 30 s, and each a start.
        let most = WORTH * ((41.0_f64 / 10.0).powi(2) - 1.0);
        assert!(price.of_a_miss() > most * 30.0 && price.of_a_miss() < most * 60.0, "{price:?}");
        assert!(price.log <= price.most + DEBT);
        for _ in 0..10_000 {
            follow(&mut price, &[], 10);
        }
        assert_eq!(price.of_a_miss(), 1.0);
    }

    #[test]
    fn the_overhead_is_told_as_a_share() {
        let mut price = Price::default();
        assert_eq!(price.overhead(), 0.0);
        price.spend(7, 5, 10.0);
        assert_eq!(price.overhead(), 0.4);
    }
}
