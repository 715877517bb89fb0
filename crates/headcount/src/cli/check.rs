//! `headcount check`: the configuration, and everything that it names.

use std::future::Future;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use headcount_core::time::span_of_seconds;
use headcount_core::{QueueReading, Reading, Span};
use serde::Serialize;

use crate::cli::out::{self, Table};
use crate::cli::{Globals, WrongUse, block_on};
use crate::clock;
use crate::config::{self, Config, Found, GroupConfig};
use crate::finding::{Fact, Finding, Level};
use crate::hosts::HostWatch;
use crate::lease;
use crate::limits::{CHECK_TIMEOUT, LOOK_TIMEOUT};
use crate::queues::Queue;
use crate::sinks::windmill::WindmillEvents;
use crate::store::Store;

/// Arguments of `headcount check`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all is well or works with a loss; 2 the configuration is \
wrong; 3 something does not work.")]
pub struct Args {
    /// Check only this group
    group: Option<String>,
}

/// The exit code when something does not work.
const EXIT_PROBLEM: u8 = 3;
/// The host's CPU is known once two samples were taken; wait so long for them.
const HOST_SAMPLES: Duration = Duration::from_secs(2);

/// What was found, as `--json` prints it.
#[derive(Serialize)]
struct Report {
    /// The configuration file; null if the environment took its place.
    config: Option<String>,
    problems: usize,
    warnings: usize,
    findings: Vec<About>,
}

/// A finding, and the group that it is about.
#[derive(Serialize)]
struct About {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(flatten)]
    finding: Finding,
}

impl Args {
    /// Checks, and prints what was found.
    ///
    /// # Errors
    /// The configuration is wrong, or has no such group.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let found = config::find(globals)?;
        let groups = self.chosen(&found.config)?;
        let findings = block_on(look_at(&found, &groups))?;
        let count = |level| findings.iter().filter(|f| f.finding.level == level).count();
        let (problems, warnings) = (count(Level::Problem), count(Level::Warning));
        let config = found.file.map(|path| path.display().to_string());
        let report = Report { config, problems, warnings, findings };
        if globals.json {
            out::print_json(&report)?
        } else {
            out::print(&report.text())?
        }
        Ok(if problems > 0 { EXIT_PROBLEM.into() } else { ExitCode::SUCCESS })
    }

    fn chosen<'a>(&self, config: &'a Config) -> anyhow::Result<Vec<&'a GroupConfig>> {
        let Some(name) = &self.group else { return Ok(config.groups.iter().collect()) };
        match config.groups.iter().find(|group| group.name == *name) {
            Some(group) => Ok(vec![group]),
            None => {
                let known: Vec<_> = config.groups.iter().map(|g| g.name.as_str()).collect();
                let what = format!("no group `{name}`; there are {}", known.join(", "));
                Err(WrongUse(what).into())
            }
        }
    }
}

impl Report {
    fn text(&self) -> String {
        let mut table = Table::new(&[]);
        for About { group, finding } in &self.findings {
            let (mark, style) = match finding.level {
                Level::Good => ("✔", out::GOOD),
                Level::Warning => ("!", out::WARNING),
                Level::Problem => ("✘", out::PROBLEM),
            };
            let plain = anstyle::Style::new();
            table.row([
                (style, mark.into()),
                (out::BOLD, group.clone().unwrap_or_default()),
                (out::DIM, finding.about.clone()),
                (plain, finding.what.clone()),
            ]);
            if let Some(fix) = &finding.fix {
                let none = || (plain, String::new());
                table.row([none(), none(), none(), (style, format!("fix: {fix}"))]);
            }
        }
        let summary = match (self.problems, self.warnings) {
            (0, 0) => out::styled(out::GOOD, "all is well"),
            (0, n) => out::styled(out::WARNING, number(n, "warning")),
            (n, 0) => out::styled(out::PROBLEM, number(n, "problem")),
            (n, m) => {
                let text = format!("{}, {}", number(n, "problem"), number(m, "warning"));
                out::styled(out::PROBLEM, text)
            }
        };
        format!("{table}{summary}\n")
    }
}

fn number(n: usize, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        n => format!("{n} {noun}s"),
    }
}

async fn look_at(found: &Found, groups: &[&GroupConfig]) -> Vec<About> {
    let config = &found.config;
    let host = HostWatch::start();
    let mut findings: Vec<Finding> =
        found.notes.iter().map(|note| Finding::good("configuration", note)).collect();
    findings.push(state_dir(&config.state_dir));
    let about_all = |finding| About { group: None, finding };
    let mut all: Vec<About> = findings.into_iter().map(about_all).collect();
    for group in groups {
        let name = Some(group.name.clone());
        let mut of_it = of_group(group, &config.state_dir).await;
        of_it.extend(compared(&of_it, group.rules.workers.slots));
        if found.file.is_none() {
            of_it.iter_mut().for_each(name_variables);
        }
        all.extend(of_it.into_iter().map(|finding| About { group: name.clone(), finding }));
    }
    let needed = groups.iter().any(|group| group.rules.policy.needs_host());
    all.push(about_all(of_host(&host, needed).await));
    all.extend(host.facts().into_iter().map(about_all));
    all
}

async fn of_group(group: &GroupConfig, state_dir: &Path) -> Vec<Finding> {
    let place = group.place(state_dir);
    let (mut found, queue) = match group.queue.open(&place) {
        Ok(mut queue) => (within("queue", queue.check()).await, Some(queue)),
        Err(error) => (vec![cannot_open("queue", &error)], None),
    };
    let target = group.target.open(&place);
    let lease = target.as_ref().map(|target| lease::open(group, target.as_ref(), state_dir));
    if let Ok(Ok(lease)) = lease {
        found.extend(within("lease", lease.check()).await);
    }
    found.extend(match target {
        Ok(mut target) => within("target", target.check()).await,
        Err(error) => vec![cannot_open("target", &error)],
    });
    if let Some(windmill) = group.queue.wants_events() {
        let place = group.place(state_dir);
        let asked = async { vec![WindmillEvents::check(windmill, &place).await] };
        found.extend(within("events", asked).await);
    }
    found.extend(group.alert_webhook.as_ref().map(|webhook| webhook.check(&group.base_dir)));
    if found.iter().any(|finding| matches!(finding.fact, Some(Fact::Grace(_)))) {
        found.extend(longest_job(queue, &group.name, state_dir).await);
    }
    found
}

/// The longest that a job was seen to run: now, or by what was learnt before.
async fn longest_job(
    queue: Option<Box<dyn Queue>>,
    group: &str,
    state_dir: &Path,
) -> Option<Finding> {
    let mut longest = Span::ZERO;
    if let Some(mut queue) = queue
        && let Ok(Ok(seen)) = tokio::time::timeout(LOOK_TIMEOUT, queue.read()).await
    {
        let QueueReading { ages, durations, .. } = seen.reading;
        longest = ages.into_iter().chain(durations).max().unwrap_or(Span::ZERO);
    }
    let state = Store::open_existing(state_dir).ok().and_then(|store| store.load(group));
    let learnt = state.and_then(|state| state.policy.slo.estimate.durations.quantile(1.0));
    longest = longest.max(learnt.and_then(span_of_seconds).unwrap_or(Span::ZERO));
    (longest > Span::ZERO).then(|| {
        let rounded = Span::from_secs(longest.as_secs());
        let what = format!("the longest job that was seen ran for {rounded:#}");
        Finding::good("queue", what).stating(Fact::LongestJob(longest))
    })
}

/// What queue, target and rules say only together.
fn compared(found: &[Finding], slots: u32) -> Vec<Finding> {
    let facts = || found.iter().filter_map(|finding| finding.fact);
    let consumers = facts().find_map(|fact| match fact {
        Fact::Consumers(n) => Some(n),
        _ => None,
    });
    let nobody = facts().any(|fact| fact == Fact::Workers(0));
    let mut more = Vec::new();
    if let Some(n) = consumers.filter(|n| *n > 0 && nobody) {
        more.push(Finding::warning(
            "target",
            format!("the queue has {}, but the target knows none", number(n, "worker")),
            "compare what the target names with what runs the workers; Compose: `project` and \
             `service` with those of `docker compose ls`",
        ));
    }
    let grace = facts().find_map(|fact| match fact {
        Fact::Grace(grace) => Some(grace),
        _ => None,
    });
    for fact in facts() {
        if let (Fact::LongestJob(job), Some(grace)) = (fact, grace)
            && job > grace
        {
            let job = Span::from_secs(job.as_secs());
            more.push(Finding::warning(
                "target",
                format!(
                    "a worker is killed {grace:#} after it is told to go, but a job ran for {job:#}"
                ),
                "let workers take longer to end: `grace` of the target, `stop_grace_period` of a Swarm \
                 service, `terminationGracePeriodSeconds` of pods, `kill_timeout` of Nomad's tasks, \
                 `stopTimeout` of a task definition of ECS",
            ));
        }
    }
    for fact in facts() {
        if let Fact::Slots(jobs) = fact
            && jobs != slots
        {
            more.push(Finding::warning(
                "target",
                format!(
                    "a worker runs {} at once, but `workers.slots` is {slots}",
                    number(jobs as usize, "job")
                ),
                format!("set `slots: {jobs}` under `workers`, or change the workers' concurrency"),
            ));
        }
    }
    more
}

/// Names keys by the variables of the reference autoscaler that stand for them.
fn name_variables(finding: &mut Finding) {
    if let Some(fix) = &mut finding.fix {
        *fix = fix
            .replace("project_directory: ", "HOST_PROJECT_DIR=")
            .replace("project_directory", "HOST_PROJECT_DIR");
    }
}

async fn within(about: &str, check: impl Future<Output = Vec<Finding>>) -> Vec<Finding> {
    tokio::time::timeout(CHECK_TIMEOUT, check).await.unwrap_or_else(|_| {
        let what = format!("no result within {} s", CHECK_TIMEOUT.as_secs());
        vec![Finding::problem(about, what, "see whether it is overloaded or unreachable")]
    })
}

fn cannot_open(about: &str, error: &anyhow::Error) -> Finding {
    Finding::problem(about, format!("{error:#}"), "correct the configuration or the file it names")
}

/// Whether state can be kept there. Creates no folder.
fn state_dir(folder: &Path) -> Finding {
    let there = folder.ancestors().find(|parent| parent.exists()).unwrap_or(folder);
    let shown = folder.display();
    match tempfile::tempfile_in(there) {
        Ok(_) => Finding::good("state", format!("is kept in {shown}")),
        Err(error) => {
            let what = format!("cannot be kept in {shown}: {error}");
            let fix = "let this user write to it (in the image that is 65532), or name another \
                       folder: `state_dir:` or --state-dir";
            Finding::problem("state", what, fix)
        }
    }
}

async fn of_host(host: &HostWatch, needed: bool) -> Finding {
    let read = || host.read(clock::now(), Span::from_secs(1));
    let sampled = async {
        while matches!(read(), Reading::Missing(_)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let _ = tokio::time::timeout(HOST_SAMPLES, sampled).await;
    match read() {
        Reading::Known { value, .. } => {
            let mut what = format!("CPU {:.1} %", value.cpu_raw);
            what += &value.cores.map(|n| format!(" of {n} cores")).unwrap_or_default();
            what += &value.mem.map(|n| format!(", memory {n:.1} %")).unwrap_or_default();
            let source = host.source().map(|path| format!(", read from {}", path.display()));
            what += &source.unwrap_or_default();
            Finding::good("host", what)
        }
        Reading::Missing(missing) => {
            let what = format!("CPU and memory are unknown: {missing}");
            let fix = "mount the host's /proc at /host/proc, or /proc, readable";
            if needed {
                Finding::problem("host", what, fix)
            } else {
                Finding::warning("host", what, fix)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_target_and_rules_are_compared() {
        let said = |facts: &[Fact], slots| {
            let found: Vec<_> = facts.iter().map(|f| Finding::good("it", "").stating(*f)).collect();
            let more = compared(&found, slots);
            more.into_iter().map(|finding| finding.what).collect::<Vec<_>>().join("; ")
        };
        use Fact::{Consumers, Grace, LongestJob, Slots, Workers};
        let span = Span::from_secs;
        assert_eq!(said(&[Grace(span(30)), LongestJob(span(30))], 1), "");
        let killed = said(&[Grace(span(30)), LongestJob(span(90))], 1);
        assert_eq!(
            killed,
            "a worker is killed 30s after it is told to go, but a job ran for 1m 30s"
        );
        assert_eq!(said(&[], 1), "");
        assert_eq!(said(&[Consumers(2), Slots(5), Workers(2)], 5), "");
        assert_eq!(said(&[Consumers(0), Workers(0)], 1), "");
        assert_eq!(said(&[Workers(0)], 1), "", "a queue that cannot tell");
        let none = said(&[Consumers(1), Workers(0)], 1);
        assert_eq!(none, "the queue has 1 worker, but the target knows none");
        let jobs = said(&[Slots(10)], 1);
        assert_eq!(jobs, "a worker runs 10 jobs at once, but `workers.slots` is 1");
    }

    #[test]
    fn without_a_file_the_variable_is_named() {
        let mut finding = Finding::warning("target", "", "set `project_directory: /srv`");
        name_variables(&mut finding);
        assert_eq!(finding.fix.as_deref(), Some("set `HOST_PROJECT_DIR=/srv`"));
    }
}
