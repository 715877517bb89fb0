//! The report of a simulation: one HTML page with plots, a table and a summary in plain words.
//!
//! The page needs nothing but itself: styles, data and the plotting script are in it, and it loads
//! nothing from anywhere. What users wrote (names of files, messages) is escaped: as markup by `maud`,
//! as data by `plots`, and once more by the page's script where the plots would read it as markup.
//! The same runs always give the same page, byte for byte.

mod page;
mod plots;
mod summary;
mod table;

use headcount_core::{Span, Timestamp};
use headcount_sim::timeline::Demand;
use headcount_sim::{Score, Timeline, WorldRules};

pub use page::page;

/// All that a page tells.
#[derive(Debug)]
pub struct Report {
    /// Where the jobs are from: a file's name, or the group whose history it is.
    pub trace: String,
    /// How well the jobs are known, if they are not from a file.
    pub known: Option<String>,
    /// When the trace begins, if its times are real ones.
    pub begins: Option<Timestamp>,
    /// What comes, whatever the workers do.
    pub demand: Demand,
    /// The service of all jobs, hours.
    pub work_hours: f64,
    /// What the world is like.
    pub world: WorldRules,
    /// Which start-up times were drawn.
    pub seed: u64,
    /// The policies in the order of the arguments, then other autoscalers.
    pub runs: Vec<Run>,
    /// The policies that keep a wanted wait, with other ones to keep.
    pub frontiers: Vec<Frontier>,
    /// What knowing the future would cost: (the wait that 95 of 100 jobs do not exceed,
    /// worker-hours), in the order of the waits.
    pub future: Vec<(Span, f64)>,
}

/// One policy or other autoscaler, and how it went.
#[derive(Debug)]
pub struct Run {
    /// The policy's name.
    pub policy: String,
    /// Its file; `None` for another autoscaler.
    pub file: Option<String>,
    /// Its rules as they ran, YAML; `None` for another autoscaler.
    pub rules: Option<String>,
    /// The wait that 95 of 100 jobs shall not exceed.
    pub wait: Option<Span>,
    /// Worker-hours of the schedule that knows the future, for that wait.
    pub future: Option<f64>,
    /// What it was worth and what happened when, or why it never got done.
    pub outcome: Result<(Score, Timeline), String>,
}

/// What one policy costs and how long jobs wait, by the wait that it is to keep.
#[derive(Debug)]
pub struct Frontier {
    /// Which of [`Report::runs`].
    pub run: usize,
    /// In the order of the wanted waits.
    pub points: Vec<FrontierPoint>,
}

/// A point of a [`Frontier`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FrontierPoint {
    /// The wait that 95 of 100 jobs should not exceed.
    pub wanted: Span,
    /// The wait that 95 of 100 jobs did not exceed, seconds.
    pub p95: f64,
    /// What it cost.
    pub worker_hours: f64,
}

impl Run {
    /// Its name, and that of its file.
    fn name(&self) -> String {
        match &self.file {
            Some(file) => format!("{} ({file})", self.policy),
            None => self.policy.clone(),
        }
    }

    fn score(&self) -> Option<&Score> {
        self.outcome.as_ref().ok().map(|(score, _)| score)
    }

    /// Whether 95 of 100 jobs waited no longer than is wanted; `None` if no wait is.
    fn kept(&self) -> Option<bool> {
        Some(self.score()?.waits.p95 <= self.wait?.as_secs_f64())
    }

    /// Worker-hours as a multiple of those of knowing the future.
    fn cost_ratio(&self) -> Option<f64> {
        Some(self.score()?.worker_hours / self.future.filter(|future| *future > 0.0)?)
    }
}

/// A number of hours, for people.
fn hours(hours: f64) -> String {
    match hours {
        h if h < 10.0 => format!("{h:.2}"),
        h if h < 1000.0 => format!("{h:.1}"),
        h => with_commas(h.round() as u64),
    }
}

/// A number of seconds, for people.
fn seconds(seconds: f64) -> String {
    let (number, unit) = match seconds {
        s if s < 10.0 => (format!("{s:.1}"), "s"),
        s if s < 600.0 => (format!("{s:.0}"), "s"),
        s if s < 3600.0 => (format!("{:.0}", s / 60.0), "min"),
        s => (format!("{:.1}", s / 3600.0), "h"),
    };
    format!("{} {unit}", number.strip_suffix(".0").unwrap_or(&number))
}

/// A number with its thousands apart.
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use headcount_sim::baselines::fixed::Fixed;
    use headcount_sim::score::Waits;
    use headcount_sim::timeline::Bucket;
    use headcount_sim::{Moment, Trace, run_recorded};

    use super::*;

    /// A report of these runs.
    pub(super) fn report(runs: Vec<Run>) -> Report {
        let second = Moment::from_micros(1_000_000);
        Report {
            trace: "jobs.csv".into(),
            known: None,
            begins: None,
            demand: Demand { width: second, arrivals: vec![3, 0], load: vec![1.5, 0.5] },
            work_hours: 90.0,
            world: WorldRules::default(),
            seed: 1,
            runs,
            frontiers: Vec::new(),
            future: Vec::new(),
        }
    }

    /// A run with this p95 wait and cost.
    pub(super) fn run(policy: &str, file: Option<&str>, p95: f64, worker_hours: f64) -> Run {
        let none = Trace::default();
        let (score, _) = run_recorded(&none, &mut Fixed(1), &WorldRules::default(), 1).unwrap();
        let waits = Waits { p50: 0.0, p95, p99: p95, max: p95, mean: p95 / 9.0 };
        let score = Score { waits, worker_hours, policy: policy.into(), ..score };
        let width = Moment::from_micros(1_000_000);
        let buckets = vec![Bucket::default(); 2];
        let timeline = Timeline { width, buckets, waits: vec![(0.0, 0.5), (p95, 1.0)] };
        Run {
            policy: policy.into(),
            file: file.map(Into::into),
            rules: None,
            wait: None,
            future: None,
            outcome: Ok((score, timeline)),
        }
    }

    #[test]
    fn numbers_are_for_people() {
        assert_eq!([0.0, 9.994, 41.23, 1234.5].map(hours), ["0.00", "9.99", "41.2", "1,235"]);
        assert_eq!(
            [0.04, 9.5, 60.0, 3600.0, 90_000.0].map(seconds),
            ["0 s", "9.5 s", "60 s", "1 h", "25 h"]
        );
        assert_eq!([7, 999, 1000, 1_234_567].map(with_commas), ["7", "999", "1,000", "1,234,567"]);
    }
}
