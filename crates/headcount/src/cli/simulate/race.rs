//! All policies on the same jobs, on all cores, and the schedule that knows the future.

use std::thread::available_parallelism;

use headcount_core::{Policy, Rules, Span, time};
use headcount_sim::autoscaler::{Autoscaler, Core};
use headcount_sim::benchmark::{Cell, Contender, in_parallel};
use headcount_sim::clairvoyant::clairvoyant;
use headcount_sim::{
    AtLeast, Moment, Score, Stuck, Timeline, Trace, WorldRules, run_recorded, run_with,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::report::{self, Variation};
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
    /// An entry by its number, with another wanted wait.
    Vary(usize, Span),
    KnowTheFuture(Span),
}

/// What came of a [`Task`].
enum Done {
    Run(Result<(Score, Option<Timeline>), Stuck>),
    Varied(Variation),
    /// Worker-hours of the schedule that knows the future.
    Future(Span, f64),
}

/// All that came of a race.
pub(super) struct Raced<'a> {
    /// A line for each entry.
    pub(super) rows: Vec<Row<'a>>,
    /// What happened when, for each entry, if a page is to show it.
    pub(super) timelines: Vec<Option<Timeline>>,
    /// The further runs that a page shows.
    pub(super) variations: Vec<Variation>,
    /// What knowing the future would cost, in the order of the wanted waits.
    pub(super) futures: Vec<(Span, f64)>,
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

/// Runs everything, on all cores, with a progress bar on a terminal. `page`: also what a page shows.
pub(super) fn race<'a>(
    entries: &'a [Entry],
    world: &WorldRules,
    given: &'a Given,
    seed: u64,
    page: bool,
) -> Raced<'a> {
    let tasks = tasks(entries, world, page);
    let bar = progress(tasks.len());
    let threads = available_parallelism().map_or(1, usize::from);
    let done = in_parallel(threads, &tasks, |task| {
        let trace = &given.trace;
        let done = match *task {
            Task::Run(entry) => Done::Run(entry.run(world, trace, seed, page)),
            Task::Vary(number, wait) => {
                let score = entries[number].told(wait).run(world, trace, seed, false);
                let score = score.ok().map(|(score, _)| score);
                Done::Varied(Variation { entry: number, wait, score })
            }
            Task::KnowTheFuture(wait) => {
                let [start_up, within] = [world.start_up, wait].map(Moment::from_span);
                Done::Future(wait, clairvoyant(trace, start_up, within).cost.as_hours())
            }
        };
        bar.inc(1);
        done
    });
    bar.finish_and_clear();
    let (mut futures, mut runs, mut variations) = (Vec::new(), Vec::new(), Vec::new());
    for done in done {
        match done {
            Done::Future(wait, hours) => futures.push((wait, hours)),
            Done::Run(run) => runs.push(run),
            Done::Varied(variation) => variations.push(variation),
        }
    }
    let known = given.past.as_ref().map(|past| &past.known);
    let row = |(entry, run): (&'a Entry, Result<(Score, Option<Timeline>), Stuck>)| {
        let future = futures.iter().find(|(wait, _)| Some(*wait) == entry.comparable_wait());
        let (outcome, timeline) = match run {
            Ok((score, timeline)) => {
                (Outcome::Scored(Score { policy: entry.policy.clone(), ..score }), timeline)
            }
            Err(stuck) => {
                let error = stuck.to_string();
                (Outcome::Stuck { policy: entry.policy.clone(), error }, None)
            }
        };
        let row = Row {
            policy: &entry.policy,
            file: entry.file.as_deref(),
            outcome,
            clairvoyant_worker_hours: future.map(|(_, hours)| *hours),
            wait: entry.wait,
            history: known,
        };
        (row, timeline)
    };
    let (rows, timelines) = entries.iter().zip(runs).map(row).unzip();
    Raced { rows, timelines, variations, futures }
}

/// All there is to do. The future takes longest, so it comes first, in the order of the waits.
fn tasks<'a>(entries: &'a [Entry], world: &WorldRules, page: bool) -> Vec<Task<'a>> {
    let mut waits: Vec<Span> = entries.iter().filter_map(Entry::comparable_wait).collect();
    let mut variations = Vec::new();
    if page {
        waits.extend(report::future_waits(entries));
        variations = report::variations(entries, world);
    }
    waits.sort_unstable();
    waits.dedup();
    let futures = waits.into_iter().map(Task::KnowTheFuture);
    let variations = variations.into_iter().map(|(entry, wait)| Task::Vary(entry, wait));
    futures.chain(entries.iter().map(Task::Run)).chain(variations).collect()
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
    pub(super) fn comparable_wait(&self) -> Option<Span> {
        self.wait.filter(|_| self.rules.workers.slots == 1)
    }

    /// The same rules with another wanted wait, if they have one.
    fn told(&self, wait: Span) -> Self {
        let mut rules = self.rules.clone();
        if let Policy::Slo(slo) = &mut rules.policy {
            slo.max_wait = Some(wait);
        }
        Self { policy: self.policy.clone(), file: None, rules, peer: None, wait: Some(wait) }
    }

    /// Its score, and what happened when if it is to be `recorded`.
    fn run(
        &self,
        world: &WorldRules,
        trace: &Trace,
        seed: u64,
        recorded: bool,
    ) -> Result<(Score, Option<Timeline>), Stuck> {
        let mut scaler = self.scaler(world);
        let world = WorldRules { slots: Some(self.rules.workers.slots), ..world.clone() };
        if recorded {
            let (score, timeline) = run_recorded(trace, scaler.as_mut(), &world, seed)?;
            return Ok((score, Some(timeline)));
        }
        Ok((run_with(trace, scaler.as_mut(), &world, seed)?, None))
    }

    fn scaler(&self, world: &WorldRules) -> Box<dyn Autoscaler> {
        let Some(peer) = &self.peer else { return Box::new(Core::new(self.rules.clone())) };
        let workers = &self.rules.workers;
        let whole = |span: Span| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
        let cell = Cell {
            start_up: whole(world.start_up),
            minimum_billing: whole(world.minimum_billing),
            wait: whole(self.wait.unwrap_or(USUAL_WAIT)).max(1),
        };
        Box::new(AtLeast::new(workers.min, (peer.make)(&cell, workers.max)))
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
