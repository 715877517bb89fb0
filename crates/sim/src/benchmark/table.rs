//! The benchmark's tables.

use std::fmt::Write;

use serde::Serialize;

use super::{Cell, PRICES, Row};

/// A contender in one cell, over all traces.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The cell.
    pub cell: Cell,
    /// Attained cost ratio: geometric mean of the ratios.
    pub acr: f64,
    /// Geometric mean of worker-hours over clairvoyant ones.
    pub cost: f64,
    /// Traces on which the wanted wait was met.
    pub met: usize,
    /// Traces.
    pub traces: usize,
    /// Median over the traces of their p50 wait, s.
    pub p50: f64,
    /// Median over the traces of their p95 wait, s.
    pub p95: f64,
    /// Median over the traces of their p99 wait, s.
    pub p99: f64,
    /// Changes of the number an hour, mean over the traces.
    pub actions_per_hour: f64,
    /// Changes against the last one within 600 s an hour, mean over the traces.
    pub reversals_per_hour: f64,
    /// Workers that were stopped before they ran a job.
    pub wasted_starts: u64,
    /// Jobs that were killed with their worker.
    pub busy_kills: u64,
    /// (worker-s + c x wait-s) / work-s for c = 0.05, 0.2 and 1, geometric means.
    pub j: [f64; 3],
}

/// The geometric mean; NaN of nothing.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0);
    for value in values {
        sum += value.ln();
        n += 1;
    }
    (sum / f64::from(n)).exp()
}

/// One summary for each cell, in the order of the rows.
pub fn summaries(rows: &[Row]) -> Vec<Summary> {
    rows.chunk_by(|a, b| a.cell == b.cell).map(summary).collect()
}

fn summary(rows: &[Row]) -> Summary {
    let an_hour = |count: fn(&Row) -> u64| {
        let rates = rows.iter().map(|row| count(row) as f64 / row.score.span_hours);
        rates.sum::<f64>() / rows.len() as f64
    };
    let mid = |wait: fn(&Row) -> f64| median(rows.iter().map(wait).collect());
    Summary {
        cell: rows[0].cell,
        acr: geometric_mean(rows.iter().map(|row| row.ratio)),
        cost: geometric_mean(rows.iter().map(|row| row.cost)),
        met: rows.iter().filter(|row| row.met()).count(),
        traces: rows.len(),
        p50: mid(|row| row.score.waits.p50),
        p95: mid(|row| row.score.waits.p95),
        p99: mid(|row| row.score.waits.p99),
        actions_per_hour: an_hour(|row| row.score.scale_outs + row.score.scale_ins),
        reversals_per_hour: an_hour(|row| row.score.reversals),
        wasted_starts: rows.iter().map(|row| row.score.wasted_starts).sum(),
        busy_kills: rows.iter().map(|row| row.score.busy_kills).sum(),
        j: PRICES.map(|c| geometric_mean(rows.iter().map(|row| row.j(c)))),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A contender's cells as a table in Markdown, which a terminal shows as well.
pub fn summary_table(summaries: &[Summary]) -> String {
    let mut text = String::from(
        "| cell | ACR | cost | met | p50 s | p95 s | p99 s | actions/h | reversals/h | wasted | killed \
         | J(0.05) | J(0.2) | J(1) |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for s in summaries {
        let _ = writeln!(
            text,
            "| {:>6} | {:6.3} | {:5.3} | {:2}/{:2} | {:5.1} | {:6.1} | {:6.1} | {:5.1} | {:5.1} \
             | {:6} | {:4} | {:.3} | {:.3} | {:.3} |",
            s.cell.name(),
            s.acr,
            s.cost,
            s.met,
            s.traces,
            s.p50,
            s.p95,
            s.p99,
            s.actions_per_hour,
            s.reversals_per_hour,
            s.wasted_starts,
            s.busy_kills,
            s.j[0],
            s.j[1],
            s.j[2],
        );
    }
    let acr = geometric_mean(summaries.iter().map(|s| s.acr));
    let cost = geometric_mean(summaries.iter().map(|s| s.cost));
    let _ = writeln!(text, "\nACR {acr:.3}, cost alone {cost:.3}");
    text
}

/// Each cell and trace in a line.
pub fn rows_table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:>6} {:<14} {:>8} {:>6} {:>7} {:>7} {:>7} {:>8} {:>7} {:>7} {:>6} {:>4}\n",
        "cell",
        "trace",
        "ratio",
        "cost",
        "p50",
        "p95",
        "p99",
        "hours",
        "act/h",
        "rev/h",
        "wasted",
        "kill",
    );
    for row in rows {
        let s = &row.score;
        let _ = writeln!(
            text,
            "{:>6} {:<14} {:8.3} {:6.3} {:7.1} {:7.1} {:7.1} {:8.2} {:7.1} {:7.1} {:6} {:4}{}",
            row.cell.name(),
            row.trace,
            row.ratio,
            row.cost,
            s.waits.p50,
            s.waits.p95,
            s.waits.p99,
            s.worker_hours,
            (s.scale_outs + s.scale_ins) as f64 / s.span_hours,
            s.reversals as f64 / s.span_hours,
            s.wasted_starts,
            s.busy_kills,
            if row.met() { "" } else { "  missed" },
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_medians() {
        assert!((geometric_mean([1.0, 4.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!(geometric_mean([]).is_nan());
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    }
}
