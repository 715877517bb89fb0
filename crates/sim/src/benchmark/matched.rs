//! Matched wait: what ours costs when it is told to reach a peer's own p95 on each trace. This is the
//! sentence for users: the same wait for so much less.

use serde::Serialize;

use super::{Case, Cell, Contender, Row, geometric_mean, in_parallel};
use crate::run::run_with;

/// It is told the peer's p95 or, where that comes out above it, less and less of it.
const SHARES: [f64; 5] = [1.0, 0.9, 0.75, 0.5, 0.25];
/// A p95 of up to this multiple of the peer's counts as reached.
const REACHED: f64 = 1.02;

/// Ours against a peer in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Matched {
    /// The cell.
    pub cell: Cell,
    /// Worker-hours, ours over the peer's: geometric mean over the traces on which the wait was
    /// reached.
    pub hours: f64,
    /// Traces on which ours reached the peer's p95.
    pub reached: usize,
    /// Traces.
    pub traces: usize,
}

/// Has a contender reach the p95 that a peer had in `rows`, trace by trace. The peer's p95 is
/// rounded up to a whole second, since nobody asks for less.
pub fn matched(
    contender: &Contender,
    rows: &[Row],
    cases: &[Case],
    seed: u64,
    threads: usize,
) -> Option<Matched> {
    let cell = rows.first()?.cell;
    let ratios = in_parallel(threads, rows, |row| {
        let case = cases.iter().find(|case| case.name == row.trace)?;
        hours_at(contender, case, cell, row, seed)
    });
    let reached: Vec<f64> = ratios.into_iter().flatten().collect();
    let (hours, reached) = (geometric_mean(reached.iter().copied()), reached.len());
    Some(Matched { cell, hours, reached, traces: rows.len() })
}

/// Worker-hours over the peer's, at a p95 that is not above the peer's; `None` if it cannot be
/// reached.
fn hours_at(contender: &Contender, case: &Case, cell: Cell, peer: &Row, seed: u64) -> Option<f64> {
    let p95 = peer.score.waits.p95.max(1.0);
    for share in SHARES {
        let wait = ((p95 * share).round() as u32).max(1);
        let told = Cell { wait, ..cell };
        let mut scaler = (contender.make)(&told, case.max);
        let Ok(score) = run_with(&case.trace, scaler.as_mut(), &cell.world(), seed) else {
            continue;
        };
        if score.waits.p95 <= REACHED * p95 {
            return Some(score.worker_hours / peer.score.worker_hours);
        }
    }
    None
}
