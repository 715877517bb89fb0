//! The decision benchmark: how well an autoscaler decides, against a schedule that knows the
//! future.
//!
//! For a cell (an environment and a wanted wait W that 95 of 100 jobs shall not exceed) and a trace,
//! `ratio = worker-hours / clairvoyant worker-hours x max(1, p95 / W)^2`: missing the target by 2
//! costs as much as paying 4 times as much. The ACR (attained cost ratio) of a cell is the
//! geometric mean over the traces, that of several cells the geometric mean over them; 1.0 is
//! knowing the future. Every run starts cold: nothing is learnt but for a hint of the start-up time.

mod matched;
mod peers;
mod priced;
mod report;
mod table;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use headcount_core::Span;
use serde::Serialize;

use crate::autoscaler::Autoscaler;
use crate::clairvoyant::clairvoyant;
use crate::generate::{Recipe, samples};
use crate::moment::Moment;
use crate::run::{Stuck, run_with};
use crate::score::Score;
use crate::trace::{Trace, TraceError};
use crate::world::{MostWorkers, OfTrace, WorldRules};

pub use matched::{Matched, matched};
pub use peers::{Peer, Tuned, best_of_each_cell, peers_table, tune};
pub use priced::{BestJ, PRICES, Priced, priced, priced_table};
pub use report::{Results, page};
pub use table::{Summary, geometric_mean, rows_table, summaries, summary_table};

/// A p95 of up to this multiple of the wanted wait counts as met.
const MET: f64 = 1.05;

/// An environment and a wanted wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Cell {
    /// Mean start-up time, s.
    pub start_up: u32,
    /// What a worker costs at least, s.
    pub minimum_billing: u32,
    /// The p95 wait that is wanted, s.
    pub wait: u32,
}

/// The cells: fast and slow starts; a wanted wait below, at and far above the start-up time.
pub const CELLS: [Cell; 5] = [
    Cell { start_up: 15, minimum_billing: 0, wait: 10 },
    Cell { start_up: 15, minimum_billing: 0, wait: 60 },
    Cell { start_up: 15, minimum_billing: 0, wait: 300 },
    Cell { start_up: 90, minimum_billing: 60, wait: 60 },
    Cell { start_up: 90, minimum_billing: 60, wait: 300 },
];

impl Cell {
    /// Its name, as `15/60`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.start_up, self.wait)
    }

    /// The world of this cell: one slot, from 0 up to the trace's peak concurrency of workers.
    pub fn world(&self) -> WorldRules {
        WorldRules {
            start_up: Span::from_secs(self.start_up.into()),
            minimum_billing: Span::from_secs(self.minimum_billing.into()),
            min_workers: Some(0),
            max_workers: Some(MostWorkers::OfTrace(OfTrace::Peak)),
            slots: Some(1),
            ..WorldRules::default()
        }
    }
}

/// A trace with what knowing its future would cost.
#[derive(Clone, Debug)]
pub struct Case {
    /// The file's name without its endings.
    pub name: String,
    /// The jobs.
    pub trace: Trace,
    /// The most workers there may be.
    pub max: u32,
    /// Clairvoyant worker-hours by (start-up time, wanted wait) in s.
    pub clairvoyant: HashMap<(u32, u32), f64>,
}

/// What a contender did in one cell on one trace.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Where.
    pub cell: Cell,
    /// On which trace.
    pub trace: String,
    /// Clairvoyant worker-hours.
    pub clairvoyant: f64,
    /// Worker-hours over clairvoyant ones.
    pub cost: f64,
    /// The same times the penalty for a missed target.
    pub ratio: f64,
    /// The run.
    pub score: Score,
}

/// An autoscaler by name, made anew for each run from the cell and the most workers.
pub struct Contender {
    /// Its name in tables.
    pub name: String,
    /// Makes one that has learnt nothing.
    pub make: Box<Make>,
}

/// Makes an autoscaler for a cell and at most so many workers.
pub type Make = dyn Fn(&Cell, u32) -> Box<dyn Autoscaler> + Sync;

/// Why the benchmark cannot run.
#[derive(Debug, thiserror::Error)]
pub enum BenchmarkError {
    /// The folder or a file in it cannot be read.
    #[error("{path}: {source}")]
    Unreadable {
        /// Which one.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A trace is not as it must be.
    #[error("{path}: {source}")]
    Trace {
        /// Which one.
        path: String,
        /// What is wrong.
        source: TraceError,
    },
    /// A line of `clairvoyant.csv` is not as it must be.
    #[error("clairvoyant.csv, line {0}: must be boot_s,target_wait_s,trace,worker_hours,...")]
    Clairvoyant(usize),
    /// An autoscaler left jobs waiting for ever.
    #[error("{contender} in cell {cell} on {trace}: {source}")]
    Stuck {
        /// Which autoscaler.
        contender: String,
        /// In which cell.
        cell: String,
        /// On which trace.
        trace: String,
        /// How it got stuck.
        source: Stuck,
    },
}

/// Reads the traces of a folder, and the clairvoyant costs beside them if they are there.
///
/// # Errors
/// A file cannot be read or is not as it must be.
pub fn open(folder: &Path) -> Result<Vec<Case>, BenchmarkError> {
    let unreadable = |path: &Path| {
        let path = path.display().to_string();
        move |source| BenchmarkError::Unreadable { path, source }
    };
    let costs = match std::fs::read_to_string(folder.join("clairvoyant.csv")) {
        Ok(text) => clairvoyant_costs(&text)?,
        Err(_) => HashMap::new(),
    };
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable(folder))? {
        let path = entry.map_err(unreadable(folder))?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = file.strip_suffix(".csv.gz").or_else(|| file.strip_suffix(".csv")) else {
            continue;
        };
        if name == "clairvoyant" {
            continue;
        }
        let trace = Trace::open(&path)
            .map_err(|source| BenchmarkError::Trace { path: path.display().to_string(), source })?;
        cases.push(Case::new(name.into(), trace, costs.get(name).cloned().unwrap_or_default()));
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

type Costs = HashMap<(u32, u32), f64>;

fn clairvoyant_costs(text: &str) -> Result<HashMap<String, Costs>, BenchmarkError> {
    let mut costs: HashMap<String, Costs> = HashMap::new();
    for (line, row) in text.lines().enumerate().skip(1).filter(|(_, row)| !row.trim().is_empty()) {
        let wrong = || BenchmarkError::Clairvoyant(line + 1);
        let fields: Vec<&str> = row.split(',').map(str::trim).collect();
        let [start_up, wait, trace, hours, ..] = fields[..] else { return Err(wrong()) };
        let cell = (start_up.parse().map_err(|_| wrong())?, wait.parse().map_err(|_| wrong())?);
        let hours = hours.parse().map_err(|_| wrong())?;
        costs.entry(trace.into()).or_default().insert(cell, hours);
    }
    Ok(costs)
}

impl Case {
    /// A trace and its clairvoyant costs.
    pub fn new(name: String, trace: Trace, clairvoyant: HashMap<(u32, u32), f64>) -> Self {
        let max = trace.peak_concurrency().max(4);
        Self { name, trace, max, clairvoyant }
    }

    fn row(&self, cell: Cell, score: Score) -> Row {
        let known = self.clairvoyant.get(&(cell.start_up, cell.wait));
        let clairvoyant = known.copied().unwrap_or(f64::NAN);
        let cost = score.worker_hours / clairvoyant;
        let ratio = cost * (score.waits.p95 / f64::from(cell.wait)).max(1.0).powi(2);
        Row { cell, trace: self.name.clone(), clairvoyant, cost, ratio, score }
    }
}

impl Row {
    /// Whether the wanted wait was met.
    pub fn met(&self) -> bool {
        self.score.waits.p95 <= MET * f64::from(self.cell.wait)
    }

    /// (worker-s + c x wait-s) / work-s: the cost if a second of waiting costs c seconds of a worker.
    pub fn j(&self, c: f64) -> f64 {
        let waited = self.score.waits.mean * self.score.jobs as f64 / 3600.0;
        (self.score.worker_hours + c * waited) / self.score.work_hours
    }
}

/// Made-up traces, where none are given.
pub fn made_up() -> Vec<Case> {
    let case =
        |(name, recipe): (&str, Recipe)| Case::new(name.into(), recipe.trace(1), Costs::new());
    samples().into_iter().map(case).collect()
}

/// Finds clairvoyant costs where none were shipped.
pub fn fill_clairvoyant(cells: &[Cell], cases: &mut [Case], threads: usize) {
    let lacks = |case: &&Case| {
        cells.iter().any(|cell| !case.clairvoyant.contains_key(&(cell.start_up, cell.wait)))
    };
    let lacking: Vec<Case> = cases.iter().filter(lacks).cloned().collect();
    for (cell, trace, hours, _) in clairvoyant_hours(cells, &lacking, threads) {
        let case = cases.iter_mut().find(|case| case.name == trace);
        let Some(case) = case else { continue };
        case.clairvoyant.entry((cell.start_up, cell.wait)).or_insert(hours);
    }
}

/// Our own clairvoyant schedules, in the order of cells and traces: (cell, trace, worker-hours, what
/// was shipped beside the trace if anything).
pub fn clairvoyant_hours(
    cells: &[Cell],
    cases: &[Case],
    threads: usize,
) -> Vec<(Cell, String, f64, Option<f64>)> {
    let tasks: Vec<(Cell, &Case)> =
        cells.iter().flat_map(|cell| cases.iter().map(|case| (*cell, case))).collect();
    in_parallel(threads, &tasks, |(cell, case)| {
        let seconds = |s: u32| Moment::from_micros(u64::from(s) * 1_000_000);
        let found = clairvoyant(&case.trace, seconds(cell.start_up), seconds(cell.wait));
        let shipped = case.clairvoyant.get(&(cell.start_up, cell.wait)).copied();
        (*cell, case.name.clone(), found.cost.as_hours(), shipped)
    })
}

/// Runs a contender in each cell on each trace, in the order of cells and traces, on `threads`
/// threads. The result does not depend on how many.
///
/// # Errors
/// The contender left jobs waiting for ever.
pub fn evaluate(
    contender: &Contender,
    cells: &[Cell],
    cases: &[Case],
    seed: u64,
    threads: usize,
) -> Result<Vec<Row>, BenchmarkError> {
    let tasks: Vec<(Cell, &Case)> =
        cells.iter().flat_map(|cell| cases.iter().map(|case| (*cell, case))).collect();
    in_parallel(threads, &tasks, |(cell, case)| {
        let mut scaler = (contender.make)(cell, case.max);
        let score = run_with(&case.trace, scaler.as_mut(), &cell.world(), seed);
        let stuck = |source| BenchmarkError::Stuck {
            contender: contender.name.clone(),
            cell: cell.name(),
            trace: case.name.clone(),
            source,
        };
        Ok(case.row(*cell, score.map_err(stuck)?))
    })
    .into_iter()
    .collect()
}

/// Does `work` for each task on `threads` threads; the results are in the order of the tasks.
pub fn in_parallel<T: Sync, R: Send>(
    threads: usize,
    tasks: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(tasks.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((number, task)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    tasks.get(number).map(|task| (number, task))
                } {
                    let result = work(task);
                    done.lock().unwrap_or_else(|e| e.into_inner()).push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(|e| e.into_inner());
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
