//! The baselines in the benchmark: as published, and tuned for each cell.

use std::fmt::Write;

use serde::Serialize;

use super::{BestJ, Case, Cell, Contender, Row, Summary, evaluate, geometric_mean, summaries};
use crate::baselines::Family;

/// What a family of baselines did.
#[derive(Clone, Debug, Serialize)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// As published, one for each cell.
    pub published: Vec<Summary>,
    /// The setting with the best ACR, one for each cell.
    pub tuned: Vec<Tuned>,
}

/// The best setting of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct Tuned {
    /// The setting.
    pub setting: String,
    /// What it did.
    pub summary: Summary,
    /// The same trace by trace.
    pub rows: Vec<Row>,
    /// The settings with the lowest J(c).
    pub best_j: BestJ,
}

/// Tries all settings of a family in each cell. A setting that leaves jobs waiting for ever on some
/// trace is out of the running.
pub fn tune(family: &Family, cells: &[Cell], cases: &[Case], seed: u64, threads: usize) -> Peer {
    let mut published = Vec::new();
    let mut tuned = Vec::new();
    for cell in cells {
        let mut best: Option<Tuned> = None;
        let mut best_j = BestJ::default();
        for (number, setting) in family.grid.iter().enumerate() {
            let Some((summary, rows)) = try_out(setting, *cell, cases, seed, threads) else {
                continue;
            };
            if number == 0 {
                published.push(summary.clone());
            }
            for (best, j) in best_j.iter_mut().zip(summary.j) {
                if best.as_ref().is_none_or(|(lowest, _)| j < *lowest) {
                    *best = Some((j, setting.name.clone()));
                }
            }
            if best.as_ref().is_none_or(|best| summary.acr < best.summary.acr) {
                let (setting, best_j) = (setting.name.clone(), BestJ::default());
                best = Some(Tuned { setting, summary, rows, best_j });
            }
        }
        tuned.extend(best.map(|best| Tuned { best_j, ..best }));
    }
    Peer { name: family.name.into(), published, tuned }
}

fn try_out(
    setting: &Contender,
    cell: Cell,
    cases: &[Case],
    seed: u64,
    threads: usize,
) -> Option<(Summary, Vec<Row>)> {
    let rows = evaluate(setting, &[cell], cases, seed, threads).ok()?;
    let summary = summaries(&rows).pop()?;
    Some((summary, rows))
}

/// For each cell the peer with the best tuned ACR.
pub fn best_of_each_cell<'a>(cells: &[Cell], peers: &'a [Peer]) -> Vec<(&'a Peer, &'a Tuned)> {
    let of_cell = |cell: &Cell| {
        let all = peers.iter().flat_map(|peer| peer.tuned.iter().map(move |tuned| (peer, tuned)));
        all.filter(|(_, tuned)| tuned.summary.cell == *cell)
            .min_by(|(_, a), (_, b)| a.summary.acr.total_cmp(&b.summary.acr))
    };
    cells.iter().filter_map(of_cell).collect()
}

/// Published and tuned ACR, cell by cell, and the settings of the best in each cell.
pub fn peers_table(cells: &[Cell], peers: &[Peer]) -> String {
    let mut text = String::from("| autoscaler | ACR |");
    cells.iter().for_each(|cell| _ = write!(text, " {} |", cell.name()));
    text.push_str("\n|---|--:|");
    text.push_str(&"--:|".repeat(cells.len()));
    text.push('\n');
    for peer in peers {
        let published: Vec<f64> = peer.published.iter().map(|s| s.acr).collect();
        let tuned: Vec<f64> = peer.tuned.iter().map(|t| t.summary.acr).collect();
        let mean = |acrs: &[f64]| geometric_mean(acrs.iter().copied());
        let _ = write!(text, "| {} | {:.2} / {:.2} |", peer.name, mean(&published), mean(&tuned));
        for (published, tuned) in published.iter().zip(&tuned) {
            let _ = write!(text, " {published:.2} / {tuned:.2} |");
        }
        text.push('\n');
    }
    text.push_str("\nThe best tuned setting of each cell:\n\n");
    for (peer, tuned) in best_of_each_cell(cells, peers) {
        let Summary { cell, acr, .. } = &tuned.summary;
        let _ = writeln!(text, "- {}: {} {acr:.2}, {}", cell.name(), peer.name, tuned.setting);
    }
    text
}
