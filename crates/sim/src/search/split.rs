//! One part of a trace to choose on, another to check the choice: a configuration that only fits the
//! accidents of the first does badly on the second.
//!
//! Of a week or more, every third day is for checking; of six hours or more, every third block of
//! whole hours; of less, the last third. Blocks are put together without the time between them, so
//! that a schedule keeps its minute of the hour, and of days its time of day.

use crate::moment::Moment;
use crate::trace::{Job, Trace};

/// With fewer jobs a 95th percentile says nothing.
pub const FEWEST_JOBS: usize = 20;

const HOUR: u64 = 3600 * 1_000_000;
const DAY: u64 = 24 * HOUR;
/// So many blocks at least, a third of them for checking.
const BLOCKS: u64 = 6;

/// The parts of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    /// What is chosen on: two thirds.
    pub choose: Trace,
    /// What the choice is checked on: the rest.
    pub check: Trace,
    /// Which part that is, in words: `every third day`.
    pub how: String,
}

/// Splits a trace; `None` if a part would have fewer than [`FEWEST_JOBS`].
pub fn split(trace: &Trace) -> Option<Parts> {
    let span = trace.jobs.last()?.at.as_micros() + 1;
    let parts = if span >= BLOCKS * DAY {
        alternate(trace, DAY, "every third day".into())
    } else if span >= BLOCKS * HOUR {
        // Twice as many, but of whole hours.
        let hours = span.div_ceil(2 * BLOCKS * HOUR);
        let how = match hours {
            1 => "every third hour".into(),
            _ => format!("every third block of {hours} hours"),
        };
        alternate(trace, hours * HOUR, how)
    } else {
        last_third(trace, span)
    };
    let enough = |part: &Trace| part.jobs.len() >= FEWEST_JOBS;
    (enough(&parts.choose) && enough(&parts.check)).then_some(parts)
}

fn alternate(trace: &Trace, block: u64, how: String) -> Parts {
    let mut parts = Parts { choose: part_of(trace), check: part_of(trace), how };
    for job in &trace.jobs {
        let (number, within) = (job.at.as_micros() / block, job.at.as_micros() % block);
        let (part, before) = match number % 3 {
            2 => (&mut parts.check, number / 3),
            _ => (&mut parts.choose, number - number / 3),
        };
        part.jobs.push(Job { at: Moment::from_micros(before * block + within), ..*job });
    }
    parts
}

fn last_third(trace: &Trace, span: u64) -> Parts {
    let cut = Moment::from_micros(span / 3 * 2);
    let mut parts =
        Parts { choose: part_of(trace), check: part_of(trace), how: "the last third".into() };
    for job in &trace.jobs {
        if job.at < cut {
            parts.choose.jobs.push(*job);
        } else {
            parts.check.jobs.push(Job { at: job.at.since(cut), ..*job });
        }
    }
    parts
}

fn part_of(trace: &Trace) -> Trace {
    Trace { jobs: Vec::new(), classes: trace.classes.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A job every ten minutes, its service the number of its minute.
    fn every_ten_minutes(hours: u64) -> Trace {
        let minutes = (0..hours * 60).step_by(10);
        let job = |minute: u64| Job {
            at: Moment::from_micros(minute * 60_000_000),
            service: Moment::from_micros(minute + 1),
            class: 0,
        };
        Trace { jobs: minutes.map(job).collect(), classes: Vec::new() }
    }

    #[test]
    fn every_job_is_in_one_part_and_keeps_its_minute() {
        for (hours, how, choose_share, keeps) in [
            (5, "the last third", 2.0 / 3.0, 1),
            (12, "every third hour", 2.0 / 3.0, HOUR),
            (48, "every third block of 4 hours", 2.0 / 3.0, HOUR),
            (9 * 24, "every third day", 2.0 / 3.0, DAY),
            (6 * 24 + 5, "every third day", 0.67, DAY),
        ] {
            let trace = every_ten_minutes(hours);
            let parts = split(&trace);
            let Some(parts) = parts.filter(|_| hours != 5) else {
                // Ten jobs are too few to check anything.
                assert_eq!((hours, split(&trace)), (5, None));
                continue;
            };
            assert_eq!(parts.how, how);
            let (choose, check) = (parts.choose.jobs.len(), parts.check.jobs.len());
            assert_eq!(choose + check, trace.jobs.len());
            let share = choose as f64 / trace.jobs.len() as f64;
            assert!((share - choose_share).abs() < 0.03, "{hours}: {share}");
            for part in [&parts.choose, &parts.check] {
                assert!(part.jobs.is_sorted_by_key(|job| job.at));
                assert_eq!(part.jobs[0].at, Moment::default(), "{hours}");
                for job in &part.jobs {
                    let was = (job.service.as_micros() - 1) * 60_000_000;
                    assert_eq!(job.at.as_micros() % keeps, was % keeps);
                }
            }
        }
        assert_eq!(split(&Trace::default()), None);
    }
}
