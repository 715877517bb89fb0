//! `headcount simulate`: what rules would have cost, and how long jobs would have waited, had they
//! run on recorded jobs. The same jobs, files and seed always give the same numbers.

mod race;
mod report;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use headcount_core::{Rules, Span};
use headcount_sim::baselines::{Family, families};
use headcount_sim::{Trace, WorldRules, in_world};
use serde_json::Value;

use crate::cli::jobs::{Jobs, NOW};
use crate::cli::out;
use crate::cli::{For, Globals, WrongUse};
use race::{Entry, Row, race};
use report::Destination;

/// Arguments of `headcount simulate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A trace has the header t_seconds,service_seconds[,class] and a line for each job, in the order of
arrival. A world file says what starting costs and what there is room for, for example:
  { start_up: 90s, minimum_billing: 60s, min_workers: 0, max_workers: peak }
Others run with their published parameters and with the bounds and slots of the first policy.")]
pub struct Args {
    #[command(flatten)]
    jobs: Jobs,
    /// The rules: a group of the configuration file, without queue and target; repeats. `now` for
    /// those that the configuration has for the group of --history, which is the default there
    #[arg(long, value_name = "FILE", required_unless_present = "history")]
    policy: Vec<PathBuf>,
    /// What the world is like [default: as the history shows, else workers start in 15 s; there is
    /// room for all]
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
    /// Also write a page with plots: what happened when, how long jobs waited, and cost against wait
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

impl Args {
    /// Runs the trace under each policy and tells how it went.
    ///
    /// # Errors
    /// A file makes no sense, or a policy leaves jobs waiting for ever.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let peers = chosen(&self.compare)?;
        let destination = self.report.as_deref().map(Destination::new).transpose()?;
        let given = self.jobs.load(globals)?;
        let world = given.world(self.world.as_deref())?;
        let rules = self.policies().map(|policy| given.rules(policy)).collect::<Result<_, _>>()?;
        let entries = self.entries(rules, peers, &world, &given.trace);
        let raced = race(&entries, &world, &given, self.seed, destination.is_some());
        // First the page, since whoever reads the table may stop early (`| head`); what is wrong
        // with it is told last, so that the table is not lost.
        let written = destination.map_or(Ok(()), |destination| {
            let name = self.jobs.name();
            let page = report::page(&raced, &entries, name, &given, &world, self.seed);
            destination.write(&page).with_context(|| format!("--report {destination} not written"))
        });
        let rows = &raced.rows;
        if globals.json {
            rows.iter().try_for_each(out::print_json_line)?;
        } else {
            let slots = entries.iter().any(|entry| entry.rules.workers.slots > 1);
            table::print(rows, &given, slots)?;
        }
        written?;
        let failed = |row: &Row<'_>| row.file.is_some() && row.outcome.score().is_none();
        Ok(if rows.iter().any(failed) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The policies' files, or the name of the present rules.
    fn policies(&self) -> impl Iterator<Item = &Path> {
        let usual = self.policy.is_empty().then_some(Path::new(NOW));
        usual.into_iter().chain(self.policy.iter().map(PathBuf::as_path))
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
        let ours = self.policies().zip(rules).map(|(path, rules)| Entry {
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
