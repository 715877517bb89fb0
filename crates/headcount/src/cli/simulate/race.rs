//! All policies on the same jobs, on all cores, and the schedule that knows the future.

use std::thread::available_parallelism;

use headcount_core::{Rules, Span, time};
use headcount_sim::benchmark::{Cell, Contender, in_parallel};
use headcount_sim::clairvoyant::clairvoyant;
use headcount_sim::{AtLeast, Moment, Score, Stuck, Trace, WorldRules, run as run_rules, run_with};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::cli::jobs::Given;
use crate::history::Knowledge;

/// What `AWS target tracking` keeps the wait at if no wait is wanted.
const USUAL_WAIT: Span = Span::from_secs(60);

/// Rules on the start line.
pub(super) struct Entry {
    /// The policy's name.
    pub(super) policy: String,
    /// Its file; `None` for another autoscaler.
    pub(super) file: Option<String>,
    /// The rules; for another autoscaler those that give it its bounds and slots.
    pub(super) rules: Rules,
    /// The other autoscaler.
    pub(super) peer: Option<Contender>,
    /// The wait that 95 of 100 jobs shall not exceed.
    pub(super) wait: Option<Span>,
}

/// What can be done at the same time as the rest.
enum Task<'a> {
    Run(&'a Entry),
    KnowTheFuture(Span),
}

/// What came of a [`Task`].
enum Done {
    Run(Result<Score, Stuck>),
    /// Worker-hours of the schedule that knows the future.
    Future(Span, f64),
}

/// One line of the answer.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    #[serde(skip)]
    pub(super) policy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<&'a str>,
    #[serde(flatten)]
    pub(super) outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clairvoyant_worker_hours: Option<f64>,
    #[serde(rename = "max_wait_s", with = "time::as_seconds")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) wait: Option<Span>,
    /// What is known of the history that the jobs are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) history: Option<&'a Knowledge>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Outcome {
    Scored(Score),
    Stuck { policy: String, error: String },
}

/// Runs everything, on all cores, with a progress bar on a terminal.
pub(super) fn race<'a>(
    entries: &'a [Entry],
    world: &WorldRules,
    given: &'a Given,
    seed: u64,
) -> Vec<Row<'a>> {
    let trace = &given.trace;
    let mut waits: Vec<Span> = entries.iter().filter_map(Entry::comparable_wait).collect();
    waits.sort_unstable();
    waits.dedup();
    let futures = waits.into_iter().map(Task::KnowTheFuture);
    // The future takes longest, so it comes first.
    let tasks: Vec<Task<'_>> = futures.chain(entries.iter().map(Task::Run)).collect();
    let bar = progress(tasks.len());
    let threads = available_parallelism().map_or(1, usize::from);
    let done = in_parallel(threads, &tasks, |task| {
        let done = match task {
            Task::Run(entry) => Done::Run(entry.run(world, trace, seed)),
            Task::KnowTheFuture(wait) => {
                let [start_up, within] = [world.start_up, *wait].map(Moment::from_span);
                Done::Future(*wait, clairvoyant(trace, start_up, within).cost.as_hours())
            }
        };
        bar.inc(1);
        done
    });
    bar.finish_and_clear();
    let (mut futures, mut runs) = (Vec::new(), Vec::new());
    for done in done {
        match done {
            Done::Future(wait, hours) => futures.push((wait, hours)),
            Done::Run(run) => runs.push(run),
        }
    }
    let row = |(entry, run): (&'a Entry, Result<Score, Stuck>)| {
        let future = futures.iter().find(|(wait, _)| Some(*wait) == entry.comparable_wait());
        Row {
            policy: &entry.policy,
            file: entry.file.as_deref(),
            outcome: match run {
                Ok(score) => Outcome::Scored(Score { policy: entry.policy.clone(), ..score }),
                Err(stuck) => {
                    Outcome::Stuck { policy: entry.policy.clone(), error: stuck.to_string() }
                }
            },
            clairvoyant_worker_hours: future.map(|(_, hours)| *hours),
            wait: entry.wait,
            history: given.past.as_ref().map(|past| &past.known),
        }
    };
    entries.iter().zip(runs).map(row).collect()
}

/// A bar on standard error, if that is a terminal and there is more than one thing to do.
fn progress(tasks: usize) -> ProgressBar {
    if tasks < 2 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{wide_bar} {pos} of {len} runs")
        .expect("the template is well-formed");
    let bar = ProgressBar::new(tasks as u64).with_style(style);
    bar.tick();
    bar
}

impl Entry {
    /// The wanted wait, if there is a schedule to compare with: those have workers of one slot.
    fn comparable_wait(&self) -> Option<Span> {
        self.wait.filter(|_| self.rules.workers.slots == 1)
    }

    fn run(&self, world: &WorldRules, trace: &Trace, seed: u64) -> Result<Score, Stuck> {
        let Some(peer) = &self.peer else {
            return run_rules(trace, &self.rules, world, seed);
        };
        let workers = &self.rules.workers;
        let whole = |span: Span| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
        let cell = Cell {
            start_up: whole(world.start_up),
            minimum_billing: whole(world.minimum_billing),
            wait: whole(self.wait.unwrap_or(USUAL_WAIT)).max(1),
        };
        let world = WorldRules { slots: Some(workers.slots), ..world.clone() };
        let mut scaler = AtLeast::new(workers.min, (peer.make)(&cell, workers.max));
        run_with(trace, &mut scaler, &world, seed)
    }
}

impl Outcome {
    pub(super) fn score(&self) -> Option<&Score> {
        match self {
            Self::Scored(score) => Some(score),
            Self::Stuck { .. } => None,
        }
    }
}
