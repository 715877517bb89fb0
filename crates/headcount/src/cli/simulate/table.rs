//! What `headcount simulate` prints on a terminal: a table, and what it comes to.

use headcount_core::Span;

use super::race::{Outcome, Row};
use crate::cli::jobs::Given;
use crate::cli::out::{self, Cell, Table};

/// The columns, with room for their numbers.
const HEADINGS: [&str; 10] = [
    "policy",
    "p50 wait",
    "p95 wait",
    "p99 wait",
    "worker-hours",
    "vs clairvoyant",
    "changes/h",
    "reversals/h",
    "wasted starts",
    "kills",
];

/// A number of hours, for people.
fn hours(hours: f64) -> String {
    if hours < 10.0 { format!("{hours:.2}") } else { format!("{hours:.1}") }
}

/// Prints the table and what it says about the future.
pub(super) fn print(rows: &[Row<'_>], given: &Given, slots: bool) -> std::io::Result<()> {
    if let Some(past) = &given.past {
        out::line(past)?;
    }
    let trace = &given.trace;
    let (jobs, work) = (trace.jobs.len(), hours(trace.work().as_hours()));
    out::line(format!("{jobs} jobs, {work} hours of work\n"))?;
    let mut table = Table::new(&HEADINGS);
    rows.iter().for_each(|row| table.row(row.cells()));
    out::print(&table.to_string())?;
    for row in rows {
        if let Outcome::Stuck { error, .. } = &row.outcome {
            out::line(out::styled(out::PROBLEM, format!("{}: {error}", row.name())))?;
        }
    }
    let mut told: Vec<Span> = Vec::new();
    for (cost, wait) in rows.iter().filter_map(|r| r.clairvoyant_worker_hours.zip(r.wait)) {
        if !told.contains(&wait) {
            told.push(wait);
            out::line(format!(
                "\nknowing the future would have cost {} worker-hours, with 95 of 100 jobs \
                 waiting {wait:#} at most",
                hours(cost)
            ))?;
        }
    }
    let hint = match (rows.iter().any(|row| row.wait.is_none()), slots) {
        (true, _) => {
            "say how long jobs may wait (--max-wait 60s) to compare with knowing the future"
        }
        (false, true) => "workers of several slots are not compared with knowing the future",
        (false, false) => return Ok(()),
    };
    out::line(format!("\n{}", out::styled(out::DIM, hint)))
}

impl Row<'_> {
    fn name(&self) -> String {
        match self.file {
            Some(file) => format!("{} ({file})", self.policy),
            None => self.policy.into(),
        }
    }

    /// The cells below the headings.
    fn cells(&self) -> Vec<Cell> {
        let mut cells = vec![out::plain(self.name())];
        let Some(score) = self.outcome.score() else {
            cells.push(out::cell(out::PROBLEM, "never done"));
            return cells;
        };
        let an_hour = |count: u64| format!("{:.1}", count as f64 / score.span_hours);
        let against = |future: f64| format!("{:.2}x", score.worker_hours / future);
        let seconds = |wait: f64| format!("{wait:.1} s");
        let texts = [
            seconds(score.waits.p50),
            seconds(score.waits.p95),
            seconds(score.waits.p99),
            hours(score.worker_hours),
            self.clairvoyant_worker_hours.map_or_else(|| "-".into(), against),
            an_hour(score.scale_outs + score.scale_ins),
            an_hour(score.reversals),
            score.wasted_starts.to_string(),
            score.busy_kills.to_string(),
        ];
        let right = |(text, heading): (String, &&str)| format!("{text:>0$}", heading.len());
        cells.extend(texts.into_iter().zip(&HEADINGS[1..]).map(right).map(out::plain));
        if self.wait.is_some_and(|wait| score.waits.p95 > wait.as_secs_f64()) {
            cells[2].0 = out::WARNING;
        }
        if score.busy_kills > 0 {
            cells[9].0 = out::PROBLEM;
        }
        cells
    }
}
