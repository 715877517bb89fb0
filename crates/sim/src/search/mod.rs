//! The search for a better configuration: which parameters of a policy keep a wanted wait at the
//! lowest cost, on jobs that really came.
//!
//! Half of the runs are spread evenly over all that may be changed, the others gather around the
//! best so far, closer and closer: eight of them, then four, two, one. Last, each change that brings
//! next to nothing is taken back. All of it sees one part of the trace only; what comes out must then
//! do better than the present configuration on the other part (see [`split`]), else the present one
//! is kept. The same question and seed always have the same answer.

pub mod parameters;
pub mod space;
pub mod split;
#[cfg(test)]
mod tests;

use std::sync::Mutex;

use fastrand::Rng;
use headcount_core::Rules;
use serde::Serialize;

use crate::benchmark::in_parallel;
use crate::run::{Stuck, run};
use crate::score::Score;
use crate::trace::Trace;
use crate::world::WorldRules;
use parameters::Parameter;
use space::{Change, Point, Space};
use split::Parts;

/// How many of the best are searched around, and how far, as a share of each range.
const ROUNDS: [(usize, f64); 4] = [(8, 0.25), (4, 0.12), (2, 0.06), (1, 0.03)];
/// A change that betters the result by less than this share is not worth making.
const WORTH_A_CHANGE: f64 = 0.005;
/// A reversal an hour counts as this share of the cost: it decides between equals.
const REVERSAL: f64 = 0.001;
/// If one job in a hundred is killed, that is as bad as twice the cost.
const KILL: f64 = 100.0;
/// Configurations of a frontier that are told.
const MOST_SHOWN: usize = 10;
/// A frontier ends at this multiple of the wanted wait.
const FAR_BEYOND: f64 = 5.0;
/// From one to the next the cost falls by this share at least.
const NEXT: f64 = 0.02;

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The present configuration.
    pub rules: &'a Rules,
    /// What the world is like.
    pub world: &'a WorldRules,
    /// The jobs.
    pub trace: &'a Trace,
    /// What a good result is.
    pub aim: Aim,
    /// Which start-up times are drawn, and where the search begins.
    pub seed: u64,
    /// How many runs at once.
    pub threads: usize,
}

/// What a good result is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Aim {
    /// The wait that 95 of 100 jobs shall not exceed, s; above 0.
    pub max_wait_s: f64,
    /// What a start costs besides its time, in seconds of a worker.
    pub price_per_start_s: f64,
}

/// How a configuration did on some jobs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// 95 of 100 jobs waited no longer, s.
    pub p95_wait_s: f64,
    /// What the workers cost.
    pub worker_hours: f64,
    /// Workers that were started.
    pub starts: u64,
    /// Changes of the number of workers, an hour.
    pub changes_per_hour: f64,
    /// Changes against the last one within 600 s, an hour.
    pub reversals_per_hour: f64,
    /// Jobs that were killed with their worker.
    pub kills: u64,
    /// What is made as small as possible: worker-hours, and the starts at their price, times the
    /// square of how far the wait is missed; and a little for reversals and a lot for kills.
    pub objective: f64,
}

/// A configuration and how it did on the part to choose on.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// Where it lies.
    pub point: Point,
    /// The same as rules.
    pub rules: Rules,
    /// `None` if it leaves jobs waiting for ever.
    pub figures: Option<Figures>,
}

/// A configuration with what it did everywhere.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Told {
    /// What differs from the present one.
    pub changes: Vec<Change>,
    /// All of it.
    pub rules: Rules,
    /// On the part that was chosen on.
    pub chosen: Option<Figures>,
    /// On the part that was kept for checking.
    pub checked: Option<Figures>,
    /// On all of the trace.
    pub whole: Option<Figures>,
}

/// What came of a search.
#[derive(Clone, Debug, Serialize)]
pub struct Answer {
    /// The present configuration.
    pub present: Told,
    /// The best on the part to choose on; the present one if none was better.
    pub best: Told,
    /// Why the present configuration should be kept; absent if the best one is recommended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
    /// Those of which none other waits and costs less, cheapest last.
    pub frontier: Vec<Told>,
    /// (p95 wait in seconds, worker-hours) of all, on the part to choose on.
    pub all: Vec<(f64, f64)>,
    /// Runs that the search took.
    pub runs: usize,
}

/// Why the present configuration should be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// Nothing better was found.
    NothingBetter,
    /// What looked better was not on the jobs that it was not chosen on.
    FitsOnlyWhatItWasChosenOn,
}

impl Figures {
    /// Those of a run.
    pub fn of(score: &Score, aim: &Aim) -> Self {
        let an_hour = |count: u64| count as f64 / score.span_hours.max(1e-9);
        let reversals_per_hour = an_hour(score.reversals);
        let cost = aim.cost(score.worker_hours, score.starts);
        let missed = (score.waits.p95 / aim.max_wait_s).max(1.0);
        let killed = score.busy_kills as f64 / score.jobs.max(1) as f64;
        Self {
            p95_wait_s: score.waits.p95,
            worker_hours: score.worker_hours,
            starts: score.starts,
            changes_per_hour: an_hour(score.scale_outs + score.scale_ins),
            reversals_per_hour,
            kills: score.busy_kills,
            objective: cost
                * missed
                * missed
                * REVERSAL.mul_add(reversals_per_hour, 1.0)
                * KILL.mul_add(killed, 1.0),
        }
    }
}

impl Aim {
    fn cost(&self, worker_hours: f64, starts: u64) -> f64 {
        worker_hours + starts as f64 * self.price_per_start_s / 3600.0
    }
}

/// The smaller, the better; those that never end are worst.
fn objective(figures: Option<&Figures>) -> f64 {
    figures.map_or(f64::INFINITY, |figures| figures.objective)
}

/// Runs the question's trace under other rules.
///
/// # Errors
/// They leave jobs waiting for ever.
pub fn try_out(question: &Question<'_>, rules: &Rules, trace: &Trace) -> Result<Figures, Stuck> {
    let score = run(trace, rules, question.world, question.seed)?;
    Ok(Figures::of(&score, &question.aim))
}

/// Searches among what `parameters` can be, with about so many runs, and checks what it finds.
/// `progress` is called after each run with the best so far.
pub fn search(
    question: &Question<'_>,
    parts: &Parts,
    parameters: Vec<Parameter>,
    runs: usize,
    progress: &(dyn Fn(Option<&Figures>) + Sync),
) -> Answer {
    let mut rng = Rng::with_seed(question.seed);
    let mut tries = Tries {
        question,
        trace: &parts.choose,
        space: Space::new(question.rules, parameters),
        tried: Vec::new(),
        best: Mutex::new(None),
        progress,
    };
    let here = tries.space.here();
    tries.run(vec![here]);
    let spread = tries.space.sample(runs / 2, &mut rng);
    tries.run(spread);
    let each = (runs - runs / 2) / ROUNDS.len();
    for (survivors, radius) in ROUNDS {
        let centres = tries.best_points(survivors);
        let near = tries.space.around(&centres, radius, each, &mut rng);
        tries.run(near);
    }
    let best = tries.simplify();
    let searched = tries.tried.len();
    let told = tries.tell(&best, parts);
    let all = tries.tried.iter().filter_map(|t| t.figures.as_ref());
    let all = all.map(|f| (f.p95_wait_s, f.worker_hours)).collect();
    let [present, best, frontier @ ..] = told.as_slice() else {
        unreachable!("the present and the best configuration are always told")
    };
    Answer {
        keep: keep(present, best),
        present: present.clone(),
        best: best.clone(),
        frontier: frontier.to_vec(),
        all,
        runs: searched,
    }
}

/// Whether the present configuration should be kept.
fn keep(present: &Told, best: &Told) -> Option<Keep> {
    let better = |told: &dyn Fn(&Told) -> Option<Figures>| {
        objective(told(best).as_ref()) < objective(told(present).as_ref())
    };
    if best.changes.is_empty() || !better(&|told| told.chosen) {
        Some(Keep::NothingBetter)
    } else if !better(&|told| told.checked) {
        Some(Keep::FitsOnlyWhatItWasChosenOn)
    } else {
        None
    }
}

/// All that was tried so far.
struct Tries<'a> {
    question: &'a Question<'a>,
    trace: &'a Trace,
    space: Space,
    /// The first is the present configuration.
    tried: Vec<Tried>,
    best: Mutex<Option<Figures>>,
    progress: &'a (dyn Fn(Option<&Figures>) + Sync),
}

impl Tries<'_> {
    fn run(&mut self, points: Vec<Point>) {
        let with_rules = |point: Point| Some((self.space.rules(&point).ok()?, point));
        let tasks: Vec<(Rules, Point)> = points.into_iter().filter_map(with_rules).collect();
        let found = in_parallel(self.question.threads, &tasks, |(rules, _)| {
            let figures = try_out(self.question, rules, self.trace).ok();
            let mut best = self.best.lock().unwrap_or_else(|e| e.into_inner());
            if objective(figures.as_ref()) < objective(best.as_ref()) {
                *best = figures;
            }
            (self.progress)(best.as_ref());
            figures
        });
        let tried = tasks.into_iter().zip(found);
        self.tried.extend(tried.map(|((rules, point), figures)| Tried { point, rules, figures }));
    }

    /// The best so many, best first; of equals those that were tried first.
    fn best_points(&self, count: usize) -> Vec<Point> {
        let mut order: Vec<&Tried> = self.tried.iter().collect();
        order.sort_by(|a, b| {
            objective(a.figures.as_ref()).total_cmp(&objective(b.figures.as_ref()))
        });
        order.into_iter().take(count).map(|tried| tried.point.clone()).collect()
    }

    /// Takes back the changes of the best that bring next to nothing, the least useful first.
    fn simplify(&mut self) -> Tried {
        let find = |tries: &Self, point: &Point| {
            let found = tries.tried.iter().find(|tried| tried.point == *point);
            found.cloned().expect("it was tried")
        };
        let first = self.best_points(1);
        let mut best = find(self, &first[0]);
        let limit = objective(best.figures.as_ref()) * (1.0 + WORTH_A_CHANGE);
        loop {
            let simpler = self.space.simpler(&best.point);
            let tried_before = |point: &Point| self.tried.iter().any(|t| t.point == *point);
            let new = simpler.iter().filter(|point| !tried_before(point)).cloned().collect();
            self.run(new);
            let simplest = simpler.iter().map(|point| find(self, point)).min_by(|a, b| {
                objective(a.figures.as_ref()).total_cmp(&objective(b.figures.as_ref()))
            });
            match simplest.filter(|t| objective(t.figures.as_ref()) <= limit) {
                Some(simplest) => best = simplest,
                None => return best,
            }
        }
    }

    /// The present configuration, the best, and the frontier, with what each does everywhere.
    fn tell(&self, best: &Tried, parts: &Parts) -> Vec<Told> {
        let chosen = [&self.tried[0], best];
        let all: Vec<&Tried> = chosen.into_iter().chain(self.frontier()).collect();
        in_parallel(self.question.threads, &all, |tried| Told {
            changes: self.space.changes(&tried.point),
            rules: tried.rules.clone(),
            chosen: tried.figures,
            checked: try_out(self.question, &tried.rules, &parts.check).ok(),
            whole: try_out(self.question, &tried.rules, self.question.trace).ok(),
        })
    }

    /// Those of which none other waits and costs less; at most [`MOST_SHOWN`], evenly chosen. Waits
    /// far beyond the wanted one are nobody's choice.
    fn frontier(&self) -> Vec<&Tried> {
        let aim = &self.question.aim;
        let of = |tried: &Tried| {
            let f = tried.figures?;
            Some((f.p95_wait_s, aim.cost(f.worker_hours, f.starts)))
        };
        let mut order: Vec<(&Tried, (f64, f64))> =
            self.tried.iter().filter_map(|tried| Some((tried, of(tried)?))).collect();
        order.retain(|(_, (wait, _))| *wait <= FAR_BEYOND * aim.max_wait_s);
        order.sort_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut least = f64::INFINITY;
        order.retain(|(_, (_, cost))| {
            let better = *cost < least * (1.0 - NEXT);
            if better {
                least = *cost;
            }
            better
        });
        let last = order.len().saturating_sub(1);
        let shown = order.len().min(MOST_SHOWN);
        (0..shown).map(|i| order[i * last / shown.saturating_sub(1).max(1)].0).collect()
    }
}
