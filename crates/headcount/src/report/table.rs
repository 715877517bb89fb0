//! The table of scores.

use headcount_core::Span;
use maud::{Markup, html};

use super::{Report, Run, hours, seconds, with_commas};

/// A column: heading, what it means, and the text for a run.
type Column = (&'static str, &'static str, fn(&Run, &headcount_sim::Score) -> String);

const COLUMNS: [Column; 11] = [
    ("p50 wait", "half of the jobs waited no longer", |_, s| seconds(s.waits.p50)),
    ("p95 wait", "95 of 100 jobs waited no longer", |run, s| {
        let mark = match run.kept() {
            Some(true) => " ✓",
            Some(false) => " ✗",
            None => "",
        };
        format!("{}{mark}", seconds(s.waits.p95))
    }),
    ("p99 wait", "99 of 100 jobs waited no longer", |_, s| seconds(s.waits.p99)),
    ("longest", "the longest wait of all", |_, s| seconds(s.waits.max)),
    (
        "worker-hours",
        "from each worker's order to its end, at least the minimum billing",
        |_, s| hours(s.worker_hours),
    ),
    ("vs future", "worker-hours against a schedule that knows the future", |run, _| {
        run.cost_ratio().map_or_else(|| "–".into(), |ratio| format!("{ratio:.2}×"))
    }),
    ("changes/h", "scale-outs and scale-ins an hour", |_, s| {
        per_hour(s.scale_outs + s.scale_ins, s)
    }),
    ("reversals/h", "changes against the last one within 10 minutes, an hour", |_, s| {
        per_hour(s.reversals, s)
    }),
    ("wasted starts", "workers that were stopped before they ran a job", |_, s| {
        with_commas(s.wasted_starts)
    }),
    ("killed jobs", "jobs that were killed with their worker, and started again", |_, s| {
        with_commas(s.busy_kills)
    }),
    ("overload", "time in which more cores were wanted than the host has", |_, s| {
        seconds(s.overload_minutes * 60.0)
    }),
];

fn per_hour(count: u64, score: &headcount_sim::Score) -> String {
    format!("{:.1}", count as f64 / score.span_hours.max(f64::MIN_POSITIVE))
}

/// All runs, a row each, and the future.
pub(super) fn table(report: &Report) -> Markup {
    // Without a machine nothing can be overloaded.
    let columns = &COLUMNS[..COLUMNS.len() - usize::from(report.world.host.is_none())];
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th scope="col" { "policy" }
                        @for (heading, meaning, _) in columns {
                            th scope="col" title=(meaning) { (heading) }
                        }
                    }
                }
                tbody {
                    @for run in &report.runs { (row(run, columns)) }
                    @for (wait, cost) in futures(report) {
                        tr.future {
                            th scope="row" { "knowing the future" }
                            td {}
                            td { (seconds(wait.as_secs_f64())) }
                            td {} td {}
                            td { (hours(cost)) }
                            td { "1.00×" }
                            @for _ in 6..columns.len() { td {} }
                        }
                    }
                }
            }
        }
    }
}

fn row(run: &Run, columns: &[Column]) -> Markup {
    html! {
        tr.missed[run.kept() == Some(false)].ours[run.file.is_some()] {
            th scope="row" { (run.name()) }
            @match &run.outcome {
                Ok((score, _)) => @for (_, _, text) in columns { td { (text(run, score)) } },
                Err(why) => td.problem colspan=(columns.len()) { "never done: " (why) },
            }
        }
    }
}

/// What the future costs for each wait that a run was to keep.
fn futures(report: &Report) -> Vec<(Span, f64)> {
    let mut found: Vec<(Span, f64)> =
        report.runs.iter().filter_map(|run| run.wait.zip(run.future)).collect();
    found.sort_by_key(|(wait, _)| *wait);
    found.dedup_by_key(|(wait, _)| *wait);
    found
}
