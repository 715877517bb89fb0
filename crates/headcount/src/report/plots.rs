//! The numbers that the page's script draws, as JSON that is safe inside a page.

use headcount_sim::Timeline;
use headcount_sim::timeline::{Bucket, Level};
use serde::Serialize;

use super::{Report, Run};

/// Policies that are drawn at first; a reader switches on the others.
const SHOWN: usize = 3;

#[derive(Serialize)]
struct Plots<'a> {
    /// Unix milliseconds of the start, if times are real ones.
    begins_ms: Option<i64>,
    has_host: bool,
    demand: Demand,
    runs: Vec<Lines>,
    frontiers: Vec<Frontier>,
    /// Waits in seconds, and worker-hours.
    future: (Vec<f64>, Vec<f64>),
    trace: &'a str,
}

#[derive(Serialize)]
struct Demand {
    width_s: f64,
    jobs_a_minute: Vec<f64>,
    load: Vec<f64>,
}

/// One run; a number of each list for each stretch of `width_s`, but for `waits`.
#[derive(Default, Serialize)]
struct Lines {
    name: String,
    policy: String,
    ours: bool,
    shown: bool,
    wanted_s: Option<f64>,
    p95_s: Option<f64>,
    worker_hours: Option<f64>,
    width_s: f64,
    end_s: f64,
    waiting_mean: Vec<f64>,
    waiting_most: Vec<f64>,
    longest_wait_s: Vec<Option<f64>>,
    workers_mean: Vec<f64>,
    busy: Vec<f64>,
    idle: Vec<f64>,
    starting: Vec<f64>,
    draining: Vec<f64>,
    cpu_mean: Vec<f64>,
    cpu_most: Vec<f64>,
    /// Waits in seconds, and percent of the jobs that waited no longer.
    waits: (Vec<f64>, Vec<f64>),
}

#[derive(Serialize)]
struct Frontier {
    run: usize,
    wanted_s: Vec<f64>,
    p95_s: Vec<f64>,
    worker_hours: Vec<f64>,
}

/// The numbers of a report, as JSON without `<`, so that nothing in it ends the element around it.
pub(super) fn json(report: &Report) -> String {
    let frontier = |f: &super::Frontier| Frontier {
        run: f.run,
        wanted_s: f.points.iter().map(|p| p.wanted.as_secs_f64()).collect(),
        p95_s: f.points.iter().map(|p| p.p95).collect(),
        worker_hours: f.points.iter().map(|p| p.worker_hours).collect(),
    };
    let demand = &report.demand;
    let width_s = demand.width.as_seconds();
    let plots = Plots {
        begins_ms: report.begins.map(headcount_core::Timestamp::as_millis),
        has_host: report.world.host.is_some(),
        demand: Demand {
            width_s,
            jobs_a_minute: demand
                .arrivals
                .iter()
                .map(|n| short(*n as f64 * 60.0 / width_s))
                .collect(),
            load: demand.load.iter().copied().map(short).collect(),
        },
        runs: report.runs.iter().enumerate().map(|(i, run)| lines(run, i < SHOWN)).collect(),
        frontiers: report.frontiers.iter().map(frontier).collect(),
        future: report.future.iter().map(|(wait, hours)| (wait.as_secs_f64(), *hours)).unzip(),
        trace: &report.trace,
    };
    let text = serde_json::to_string(&plots).expect("numbers and texts are JSON");
    text.replace('<', "\\u003c")
}

fn lines(run: &Run, shown: bool) -> Lines {
    let named = Lines {
        name: run.name(),
        policy: run.policy.clone(),
        ours: run.file.is_some(),
        shown,
        wanted_s: run.wait.map(|wait| wait.as_secs_f64()),
        ..Lines::default()
    };
    let Ok((score, timeline)) = &run.outcome else { return named };
    let Timeline { width, buckets, waits } = timeline;
    let each = |of: fn(&Bucket) -> f64| buckets.iter().map(|b| short(of(b))).collect::<Vec<f64>>();
    Lines {
        p95_s: Some(score.waits.p95),
        worker_hours: Some(score.worker_hours),
        width_s: width.as_seconds(),
        end_s: score.span_hours * 3600.0,
        waiting_mean: each(|b| b.mean(Level::Waiting)),
        waiting_most: each(|b| b.max(Level::Waiting)),
        longest_wait_s: buckets.iter().map(|b| b.longest_wait.map(short)).collect(),
        workers_mean: each(|b| {
            [Level::Ready, Level::Starting, Level::Draining].map(|level| b.mean(level)).iter().sum()
        }),
        busy: each(|b| b.mean(Level::Busy)),
        idle: each(|b| b.mean(Level::Ready) - b.mean(Level::Busy)),
        starting: each(|b| b.mean(Level::Starting)),
        draining: each(|b| b.mean(Level::Draining)),
        cpu_mean: each(|b| b.mean(Level::Cpu)),
        cpu_most: each(|b| b.max(Level::Cpu)),
        waits: waits.iter().map(|(wait, share)| (short(*wait), 100.0 * share)).unzip(),
        ..named
    }
}

/// Three decimals are finer than a screen, and keep the page small.
fn short(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::tests::{report, run};
    use super::*;

    #[test]
    fn a_name_cannot_end_the_script_around_it() {
        let nasty = "</script><script>alert(1)</script>.yaml";
        let text = json(&report(vec![run("slo", Some(nasty), 9.0, 2.0)]));
        assert!(!text.contains('<'), "{text}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back["runs"][0]["name"], format!("slo ({nasty})"));
    }

    #[test]
    fn real_times_are_told_and_others_are_not() {
        let mut report = report(vec![run("slo", Some("a.yaml"), 9.0, 2.0)]);
        let begins = |report: &Report| -> Value {
            serde_json::from_str::<Value>(&json(report)).unwrap()["begins_ms"].clone()
        };
        assert_eq!(begins(&report), Value::Null);
        report.begins = Some(headcount_core::Timestamp::from_millis(1_767_225_600_000));
        assert_eq!(begins(&report), 1_767_225_600_000_i64);
    }

    #[test]
    fn every_list_has_a_number_for_each_stretch() {
        let report = report(vec![run("slo", Some("a.yaml"), 9.0, 2.0)]);
        let text: Value = serde_json::from_str(&json(&report)).unwrap();
        let line = &text["runs"][0];
        let stretches = report.runs[0].outcome.as_ref().unwrap().1.buckets.len();
        for key in ["waiting_most", "longest_wait_s", "workers_mean", "idle", "cpu_mean"] {
            assert_eq!(line[key].as_array().unwrap().len(), stretches, "{key}");
        }
    }
}
