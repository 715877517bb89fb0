//! `headcount simulate`: what rules would have cost, and how long jobs would have waited, had they
//! run on recorded jobs. Pure: the same files and seed always give the same numbers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::available_parallelism;

use headcount_core::{Rules, Span, time};
use headcount_sim::baselines::{Family, families};
use headcount_sim::benchmark::{Cell, Contender, in_parallel};
use headcount_sim::clairvoyant::clairvoyant;
use headcount_sim::{
    AtLeast, Moment, Score, Stuck, Trace, WorldRules, in_world, run as run_rules, run_with,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::Value;

use crate::cli::out::{self, Cell as TableCell, Table};
use crate::cli::{For, Globals, WrongUse};
use crate::config;

/// What `AWS target tracking` keeps the wait at if no wait is wanted.
const USUAL_WAIT: Span = Span::from_secs(60);

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

/// Arguments of `headcount simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A trace has the header t_seconds,service_seconds[,class] and a line for each job, in the order of
arrival. A world file says what starting costs and what there is room for, for example:
  { start_up: 90s, minimum_billing: 60s, min_workers: 0, max_workers: peak }
Others run with their published parameters and with the bounds and slots of the first policy.")]
pub struct Args {
    /// The jobs: a CSV file, gzipped or not
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// The rules: a group of the configuration file, without queue and target; repeats
    #[arg(long, value_name = "FILE", required = true)]
    policy: Vec<PathBuf>,
    /// What the world is like [default: workers start in 15 s, and there is room for all]
    #[arg(long, value_name = "FILE")]
    world: Option<PathBuf>,
    /// Which start-up times are drawn
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Compare with a schedule that knows the future and in which 95 of 100 jobs wait no longer
    /// [default: the policy's own, if it has one]
    #[arg(long, value_name = "TIME")]
    max_wait: Option<For>,
    /// Also run other autoscalers whose names contain one of these; `all` for every one
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    compare: Vec<String>,
}

/// Rules on the start line.
struct Entry {
    /// The policy's name.
    policy: String,
    /// Its file; `None` for another autoscaler.
    file: Option<String>,
    /// The rules; for another autoscaler those that give it its bounds and slots.
    rules: Rules,
    /// The other autoscaler.
    peer: Option<Contender>,
    /// The wait that 95 of 100 jobs shall not exceed.
    wait: Option<Span>,
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
struct Row<'a> {
    #[serde(skip)]
    policy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(flatten)]
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    clairvoyant_worker_hours: Option<f64>,
    #[serde(rename = "max_wait_s", with = "time::as_seconds")]
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<Span>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Scored(Score),
    Stuck { policy: String, error: String },
}

impl Args {
    /// Runs the trace under each policy and tells how it went.
    ///
    /// # Errors
    /// A file makes no sense, or a policy leaves jobs waiting for ever.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let world = match &self.world {
            Some(path) => config::load_world(path)?,
            None => WorldRules::default(),
        };
        let peers = chosen(&self.compare)?;
        let rules: Vec<Rules> =
            self.policy.iter().map(|path| config::load_rules(path)).collect::<Result<_, _>>()?;
        let trace = open(&self.trace)?;
        let entries = self.entries(rules, peers, &world, &trace);
        let rows = race(&entries, &world, &trace, self.seed);
        if globals.json {
            rows.iter().try_for_each(out::print_json_line)?;
        } else {
            print(&rows, &trace, entries.iter().any(|entry| entry.rules.workers.slots > 1))?;
        }
        let failed = |row: &Row<'_>| row.file.is_some() && row.outcome.score().is_none();
        Ok(if rows.iter().any(failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// All that run: the policies in the order of the arguments, then the others.
    fn entries(
        &self,
        rules: Vec<Rules>,
        peers: Vec<Family>,
        world: &WorldRules,
        trace: &Trace,
    ) -> Vec<Entry> {
        let told = self.max_wait.map(|For(wait)| wait);
        let ours = self.policy.iter().zip(rules).map(|(path, rules)| Entry {
            policy: rules.policy.name().into(),
            file: Some(path.display().to_string()),
            wait: told.or_else(|| own_wait(&serde_json::to_value(&rules.policy).ok()?)),
            rules: in_world(&rules, world, trace),
            peer: None,
        });
        let mut entries: Vec<Entry> = ours.collect();
        let (rules, wait) = (entries[0].rules.clone(), entries[0].wait);
        // A family's first contender has the published parameters.
        let published = |family: Family| Some((family.name, family.grid.into_iter().next()?));
        entries.extend(peers.into_iter().filter_map(published).map(|(name, peer)| Entry {
            policy: name.into(),
            file: None,
            rules: rules.clone(),
            peer: Some(peer),
            wait,
        }));
        entries
    }
}

/// The wait that a policy is to keep, as its file says it.
fn own_wait(policy: &Value) -> Option<Span> {
    let settings = policy.as_object()?.values().next()?;
    settings["max_wait"].as_str()?.parse().ok()
}

/// The other autoscalers with such names.
fn chosen(names: &[String]) -> Result<Vec<Family>, WrongUse> {
    let lower = |text: &str| text.trim().to_lowercase();
    let fits = |family: &Family, name: &String| {
        lower(name) == "all" || lower(family.name).contains(&lower(name))
    };
    let known = families();
    if let Some(name) = names.iter().find(|name| !known.iter().any(|family| fits(family, name))) {
        let known: Vec<&str> = known.iter().map(|family| family.name).collect();
        let what = format!("--compare {name}: is none of {}; or write all", known.join(", "));
        return Err(WrongUse(what));
    }
    Ok(known.into_iter().filter(|family| names.iter().any(|name| fits(family, name))).collect())
}

fn open(path: &Path) -> Result<Trace, WrongUse> {
    let wrong = |what: String| WrongUse(format!("trace {}: {what}", path.display()));
    let trace = Trace::open(path).map_err(|e| wrong(e.to_string()))?;
    if trace.jobs.is_empty() {
        return Err(wrong("has no jobs; write a line for each below the header".into()));
    }
    Ok(trace)
}

/// Runs everything, on all cores, with a progress bar on a terminal.
fn race<'a>(entries: &'a [Entry], world: &WorldRules, trace: &Trace, seed: u64) -> Vec<Row<'a>> {
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
    fn score(&self) -> Option<&Score> {
        match self {
            Self::Scored(score) => Some(score),
            Self::Stuck { .. } => None,
        }
    }
}

/// A number of hours, for people.
fn hours(hours: f64) -> String {
    if hours < 10.0 { format!("{hours:.2}") } else { format!("{hours:.1}") }
}

/// Prints the table and what it says about the future.
fn print(rows: &[Row<'_>], trace: &Trace, slots: bool) -> std::io::Result<()> {
    let (jobs, work) = (trace.jobs.len(), hours(trace.work().as_hours()));
    out::line(format!("{jobs} jobs, {work} hours of work\n"))?;
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
    let hint = match (rows.iter().any(|row| row.wait.is_none()), slots) {
        (true, _) => {
            "say how long jobs may wait (--max-wait 60s) to compare with knowing the future"
        }
        (false, true) => "workers of several slots are not compared with knowing the future",
        (false, false) => return Ok(()),
    };
    out::line(format!("\n{}", out::styled(out::DIM, hint)))
}

impl Row<'_> {
    fn name(&self) -> String {
        match self.file {
            Some(file) => format!("{} ({file})", self.policy),
            None => self.policy.into(),
        }
    }

    /// The cells below the headings.
    fn cells(&self) -> Vec<TableCell> {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_may_say_itself_how_long_jobs_may_wait() {
        for (policy, expected) in [
            (json!({"slo": {"max_wait": "1m 30s"}}), Some(Span::from_secs(90))),
            (json!({"slo": {"max_wait": "PT60S"}}), Some(Span::from_secs(60))),
            (json!({"cpu_aware": {"poll": "30s"}}), None),
            (json!("none"), None),
        ] {
            assert_eq!(own_wait(&policy), expected, "{policy}");
        }
    }

    #[test]
    fn others_are_chosen_by_parts_of_their_names() {
        let names = |of: &[&str]| {
            let of: Vec<String> = of.iter().map(ToString::to_string).collect();
            chosen(&of).map(|found| found.iter().map(|f| f.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), [""; 0]);
        assert_eq!(names(&["keda", "FIXED"]).unwrap(), ["KEDA + HPA", "fixed"]);
        assert_eq!(names(&["all"]).unwrap().len(), families().len());
        let error = names(&["keda", "magic"]).unwrap_err().to_string();
        assert!(error.starts_with("--compare magic: is none of reference rule, "), "{error}");
    }
}
