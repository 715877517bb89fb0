//! `headcount tune`: which parameters would have kept a wanted wait at the lowest cost, on jobs that
//! really came, and what other values of one parameter would have done.

mod plot;
mod sweep;
mod table;
mod yaml;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use headcount_core::{Rules, Span};
use headcount_sim::search::parameters::{Parameter, parameters};
use headcount_sim::search::split::{FEWEST_JOBS, Parts, split};
use headcount_sim::search::{Aim, Answer, Figures, Question, search, try_out};
use headcount_sim::world::MostWorkers;
use headcount_sim::{Trace, WorldRules, in_world};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use crate::cli::jobs::{Given, Jobs, NOW};
use crate::cli::out;
use crate::cli::{For, Globals, WrongUse};
use crate::history::Knowledge;

/// Arguments of `headcount tune`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Two thirds of the jobs are searched on; what is found must then do better than the present rules on
the rest, or the present ones are kept. `--sweep cooldown=30s,60s,90s` searches nothing: it tells what
each of these values would have done.")]
pub struct Args {
    #[command(flatten)]
    jobs: Jobs,
    /// The present rules: a group of the configuration file, without queue and target; `now` for
    /// those that the configuration has for the group of --history, which is the default there
    #[arg(long, value_name = "FILE", required_unless_present = "history")]
    policy: Option<PathBuf>,
    /// What the world is like [default: as the history shows, else workers start in 15 s; there is
    /// room for all]
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
    /// The wait that 95 of 100 jobs shall not exceed [default: the policy's own, else what the
    /// present rules reach]
    #[arg(long, value_name = "TIME")]
    max_wait: Option<For>,
    /// What a start costs besides its time, as so much time of a worker [default: nothing]
    #[arg(long, value_name = "TIME")]
    price_per_start: Option<For>,
    /// Change only parameters with these names [default: all of the policy, and workers.min and max]
    #[arg(long, value_name = "KEYS", value_delimiter = ',')]
    vary: Vec<String>,
    /// Instead of a search: one parameter at these values, all else as it is; repeats
    #[arg(long, value_name = "KEY=VALUE,...", conflicts_with = "vary")]
    sweep: Vec<String>,
    /// About how many runs the search takes
    #[arg(long, default_value_t = 200, value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u32).range(8..=100_000))]
    runs: u32,
    /// Which start-up times are drawn, and where the search begins
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// How many runs at once [default: as many as there are cores]
    #[arg(long, value_name = "NUMBER")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// The whole answer as JSON.
#[derive(Serialize)]
struct Told<'a> {
    policy: &'a str,
    #[serde(flatten)]
    aim: Aim,
    jobs: usize,
    seed: u64,
    /// Which part was kept for checking.
    checked_on: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<&'a Knowledge>,
    #[serde(flatten)]
    answer: &'a Answer,
    /// The recommended rules, ready to paste.
    #[serde(skip_serializing_if = "Option::is_none")]
    yaml: Option<String>,
}

impl Args {
    /// Searches, or sweeps, and tells what would have been.
    ///
    /// # Errors
    /// A file or a key makes no sense, or there are too few jobs.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let given = self.jobs.load(globals)?;
        let world = resolved(given.world(self.world.as_deref())?, &given.trace);
        let rules = given.rules(self.policy.as_deref().unwrap_or(Path::new(NOW)))?;
        let all = changeable(&rules, &world);
        let threads = self.threads.map(usize::from);
        let mut question = Question {
            rules: &rules,
            world: &world,
            trace: &given.trace,
            aim: Aim { max_wait_s: f64::INFINITY, price_per_start_s: 0.0 },
            seed: self.seed,
            threads: threads.or(available_parallelism().map(usize::from).ok()).unwrap_or(1),
        };
        question.aim = self.aim(&question)?;
        if !self.sweep.is_empty() {
            let sweeps = self.sweep.iter().map(|text| sweep::parse(text, &all));
            let sweeps = sweeps.collect::<Result<Vec<_>, _>>().map_err(WrongUse)?;
            return sweep::run(&question, &sweeps, globals.json);
        }
        let vary = named(all, &self.vary)?;
        let parts = split(&given.trace).ok_or_else(|| too_few(&given.trace))?;
        let answer = self.search(&question, &parts, vary);
        if globals.json {
            out::print_json(&self.told(&question, &parts, &given, &answer))?;
        } else {
            table::print(&question, &parts, &given, &answer)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// What is wanted: as the arguments say, else as the policy does, else as the present rules do.
    fn aim(&self, question: &Question<'_>) -> anyhow::Result<Aim> {
        let price_per_start_s = self.price_per_start.map_or(0.0, |For(price)| price.as_secs_f64());
        let own = || own_wait(question.rules);
        let max_wait_s = match self.max_wait.map(|For(wait)| wait).or_else(own) {
            Some(wait) => wait.as_secs_f64(),
            None => {
                let now = try_out(question, question.rules, question.trace).map_err(|stuck| {
                    WrongUse(format!("{stuck}; say what is wanted with --max-wait"))
                })?;
                // A wait of nothing could not be missed by a factor.
                now.p95_wait_s.max(1.0)
            }
        };
        Ok(Aim { max_wait_s, price_per_start_s })
    }

    fn search(&self, question: &Question<'_>, parts: &Parts, vary: Vec<Parameter>) -> Answer {
        let bar = ProgressBar::new(self.runs.into()).with_style(
            ProgressStyle::with_template("{wide_bar} {pos} of {len} runs{msg}")
                .expect("the template is well-formed"),
        );
        bar.tick();
        let progress = |best: Option<&Figures>| {
            if let Some(best) = best {
                let (wait, hours) = (best.p95_wait_s, table::hours(best.worker_hours));
                bar.set_message(format!("; best so far: p95 {wait:.1} s, {hours} worker-hours"));
            }
            bar.inc(1);
        };
        let answer = search(question, parts, vary, self.runs as usize, &progress);
        bar.finish_and_clear();
        answer
    }

    fn told<'a>(
        &self,
        question: &Question<'a>,
        parts: &'a Parts,
        given: &'a Given,
        answer: &'a Answer,
    ) -> Told<'a> {
        Told {
            policy: question.rules.policy.name(),
            aim: question.aim,
            jobs: question.trace.jobs.len(),
            seed: self.seed,
            checked_on: &parts.how,
            history: given.past.as_ref().map(|past| &past.known),
            answer,
            yaml: answer.keep.is_none().then(|| {
                let rules = in_world(&answer.best.rules, question.world, question.trace);
                yaml::plain(&rules, &answer.best.changes)
            }),
        }
    }
}

/// The world with what depends on the trace said in numbers, so that parts of it do not differ.
fn resolved(world: WorldRules, trace: &Trace) -> WorldRules {
    let max_workers = world.most_workers(trace).map(MostWorkers::Number);
    WorldRules { max_workers, ..world }
}

/// What can be changed: not what the world says itself. Twice the present maximum is tried at most.
fn changeable(rules: &Rules, world: &WorldRules) -> Vec<Parameter> {
    let mut all = parameters(rules, rules.workers.max.saturating_mul(2));
    let said = [
        ("workers.min", world.min_workers.is_some()),
        ("workers.max", world.max_workers.is_some()),
    ];
    all.retain(|parameter| !said.contains(&(parameter.key, true)));
    all
}

/// Those with these names; all if there are none.
fn named(all: Vec<Parameter>, names: &[String]) -> Result<Vec<Parameter>, WrongUse> {
    if let Some(name) = names.iter().find(|name| !all.iter().any(|p| p.is_called(name))) {
        return Err(WrongUse(format!("--vary {}", unknown(name, &all))));
    }
    let wanted = |p: &Parameter| names.is_empty() || names.iter().any(|name| p.is_called(name));
    Ok(all.into_iter().filter(wanted).collect())
}

/// That a name is none of the parameters.
fn unknown(name: &str, all: &[Parameter]) -> String {
    let known: Vec<&str> =
        all.iter().map(|p| p.key.strip_prefix("policy.").unwrap_or(p.key)).collect();
    format!("{name}: is none of {}", known.join(", "))
}

fn too_few(trace: &Trace) -> WrongUse {
    WrongUse(format!(
        "{} too few to choose on one part and check on another, each of {FEWEST_JOBS} or more; \
         --sweep needs no parts",
        match trace.jobs.len() {
            1 => "1 job is".into(),
            n => format!("{n} jobs are"),
        }
    ))
}

/// The wait that a policy is to keep, as it says itself.
fn own_wait(rules: &Rules) -> Option<Span> {
    let policy = serde_json::to_value(&rules.policy).ok()?;
    let settings: &Value = policy.as_object()?.values().next()?;
    settings.get("max_wait")?.as_str()?.parse().ok()
}
