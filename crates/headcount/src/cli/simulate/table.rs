//! What `headcount simulate` prints on a terminal: a table, and what it comes to.

use headcount_core::{Span, counted};
use headcount_sim::Score;

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
    out::line(format!("{}, {work} hours of work\n", counted(jobs, "job")))?;
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
    let hint = match (rows.iter().all(|row| row.wait.is_none()), slots) {
        (true, _) => {
            Some("say how long jobs may wait (--max-wait 60s) to compare with knowing the future")
        }
        (false, true) => Some("workers of several slots are not compared with knowing the future"),
        (false, false) => None,
    };
    if let Some(hint) = hint {
        out::line(format!("\n{}", out::styled(out::DIM, hint)))?;
    }
    let differences = differences(rows);
    if !differences.is_empty() {
        out::line(format!("\n{}", differences.join("\n")))?;
    }
    Ok(())
}

/// What each policy but the first would have changed, in words.
fn differences(rows: &[Row<'_>]) -> Vec<String> {
    let mut ours = rows.iter().filter_map(|row| row.file.zip(row.outcome.score()));
    let Some((first, before)) = ours.next() else { return Vec::new() };
    let tell = |(file, score): (&str, &Score)| {
        let more = score.worker_hours - before.worker_hours;
        let cost = match hours(more.abs()) {
            same if same == hours(0.0) => format!("as much as {first}"),
            by => {
                let (way, share) =
                    (which(more, "more", "less"), 100.0 * more / before.worker_hours);
                format!("{by} worker-hours {way} ({share:+.0} %) than {first}")
            }
        };
        let longer = score.waits.p95 - before.waits.p95;
        let wait = match format!("{:.1}", longer.abs()) {
            same if same == "0.0" => "the same p95 wait".into(),
            by => format!("a p95 wait {by} s {}", which(longer, "longer", "shorter")),
        };
        format!("{file} would have cost {cost}, with {wait}")
    };
    ours.map(tell).collect()
}

fn which(change: f64, up: &'static str, down: &'static str) -> &'static str {
    if change > 0.0 { up } else { down }
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

#[cfg(test)]
mod tests {
    use headcount_sim::score::Waits;

    use super::*;

    fn row(file: Option<&'static str>, worker_hours: f64, p95: f64) -> Row<'static> {
        let score = Score {
            waits: Waits { p95, ..Waits::default() },
            worker_hours,
            work_hours: 1.0,
            scale_outs: 0,
            scale_ins: 0,
            reversals: 0,
            starts: 1,
            wasted_starts: 0,
            busy_kills: 0,
            deaths: 0,
            overload_minutes: 0.0,
            jobs: 1,
            span_hours: 1.0,
            seed: 1,
            policy: "slo".into(),
            events: 1,
        };
        let outcome = Outcome::Scored(score);
        Row {
            policy: "slo",
            file,
            outcome,
            clairvoyant_worker_hours: None,
            wait: None,
            history: None,
        }
    }

    #[test]
    fn the_first_policy_is_what_the_others_are_compared_with() {
        let now = || row(Some("now"), 25.0, 20.0);
        for (hours, p95, expected) in [
            (21.9, 61.0, "3.10 worker-hours less (-12 %) than now, with a p95 wait 41.0 s longer"),
            (40.0, 5.0, "15.0 worker-hours more (+60 %) than now, with a p95 wait 15.0 s shorter"),
            (25.001, 20.0, "as much as now, with the same p95 wait"),
        ] {
            let rows = [now(), row(None, 1.0, 1.0), row(Some("new.yaml"), hours, p95)];
            assert_eq!(differences(&rows), [format!("new.yaml would have cost {expected}")]);
        }
        let stuck = Outcome::Stuck { policy: "slo".into(), error: "never".into() };
        let stuck = Row { outcome: stuck, ..row(Some("b"), 0.0, 0.0) };
        for rows in [vec![], vec![now()], vec![row(None, 1.0, 1.0), now()], vec![now(), stuck]] {
            assert_eq!(differences(&rows), [""; 0]);
        }
    }
}
