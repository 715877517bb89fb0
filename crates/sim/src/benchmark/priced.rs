//! If a second of waiting has a price instead of a limit: J(c) = (worker-s + c x wait-s) / work-s.

use std::fmt::Write;

use serde::Serialize;

use super::{Case, Cell, Contender, Peer, evaluate, summaries};

/// The prices of a second of waiting, in seconds of a worker.
pub const PRICES: [f64; 3] = [0.05, 0.2, 1.0];

/// The lowest J(c) of any setting of a family, for each of [`PRICES`].
pub type BestJ = [Option<(f64, String)>; 3];

/// Ours for one start-up time, told the price.
#[derive(Clone, Debug, Serialize)]
pub struct Priced {
    /// Mean start-up time, s.
    pub start_up: u32,
    /// J(c) for each of [`PRICES`].
    pub j: [f64; 3],
}

/// Runs ours with each price, in the world of each start-up time.
///
/// # Errors
/// It left jobs waiting for ever.
pub fn priced(
    told: impl Fn(f64) -> Contender,
    cells: &[Cell],
    cases: &[Case],
    seed: u64,
    threads: usize,
) -> Result<Vec<Priced>, super::BenchmarkError> {
    let mut all = Vec::new();
    // What the wait shall be makes no difference here.
    for cells in cells.chunk_by(|a, b| a.start_up == b.start_up) {
        let mut j = [f64::NAN; 3];
        for (number, price) in PRICES.into_iter().enumerate() {
            let rows = evaluate(&told(price), &cells[..1], cases, seed, threads)?;
            j[number] = summaries(&rows).first().map_or(f64::NAN, |summary| summary.j[number]);
        }
        all.push(Priced { start_up: cells[0].start_up, j });
    }
    Ok(all)
}

/// Ours against the lowest of any peer and setting.
pub fn priced_table(ours: &[Priced], peers: &[Peer]) -> String {
    let mut text = String::from(
        "| start-up | c | Headcount | best of the others | which |\n|--:|--:|--:|--:|---|\n",
    );
    for own in ours {
        for (number, price) in PRICES.into_iter().enumerate() {
            let tuned = peers.iter().flat_map(|peer| peer.tuned.iter().map(move |t| (peer, t)));
            let there = tuned.filter(|(_, t)| t.summary.cell.start_up == own.start_up);
            let all = there.filter_map(|(peer, t)| Some((peer, t.best_j[number].as_ref()?)));
            let best = all.min_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
            let _ = write!(text, "| {} s | {price} | {:.3} |", own.start_up, own.j[number]);
            let _ = match best {
                Some((peer, (j, setting))) => {
                    writeln!(text, " {j:.3} | {}, {setting} |", peer.name)
                }
                None => writeln!(text, " | |"),
            };
        }
    }
    text
}
