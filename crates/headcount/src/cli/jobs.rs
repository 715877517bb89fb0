//! Which jobs a verb tries rules on: a file of them, or what was recorded of a group.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use headcount_core::{Rules, State};
use headcount_sim::generate::{Recipe, samples};
use headcount_sim::{Trace, WorldRules};

use crate::cli::kept::Kept;
use crate::cli::{For, Globals, WrongUse};
use crate::config;
use crate::history::{self, Knowledge};

/// In place of a file with rules: those that the configuration has for the group of the history.
pub const NOW: &str = "now";

/// Where the jobs come from.
#[derive(Debug, clap::Args)]
pub struct Jobs {
    /// The jobs: a CSV file, gzipped or not
    #[arg(long, value_name = "FILE", required_unless_present_any = ["history", "made_up"])]
    trace: Option<PathBuf>,
    /// The jobs: what was recorded of this group while `headcount run` looked after it
    #[arg(long, value_name = "GROUP", conflicts_with = "trace")]
    history: Option<String>,
    /// Jobs made up from a recipe
    #[arg(long, value_name = "NAME", conflicts_with_all = ["trace", "history", "since"])]
    #[arg(value_parser = PossibleValuesParser::new(samples().iter().map(|(name, _)| *name)))]
    made_up: Option<String>,
    /// Of the history only the last DURATION, for example `7d`
    #[arg(long, value_name = "DURATION", conflicts_with = "trace")]
    since: Option<For>,
}

/// Jobs, and what is known of them.
#[derive(Debug)]
pub struct Given {
    /// The jobs; at least one.
    pub trace: Trace,
    /// Whose history they are; `None` if they are from a file.
    pub past: Option<Past>,
}

/// A group's own history. Displayed, it is a line that says how long and how well known it is.
#[derive(Debug)]
pub struct Past {
    /// The group.
    pub group: String,
    /// How well its jobs are known.
    pub known: Knowledge,
    /// What the world was like: when it was, how long workers took to start, how many slots they
    /// had.
    pub world: WorldRules,
    /// Its rules in the present configuration; `None` if that cannot be read or has no such group.
    pub rules: Option<Rules>,
}

impl Jobs {
    /// What to call them: the file's name, or the group's.
    pub fn name(&self) -> String {
        if let Some(name) = &self.made_up {
            return format!("made-up {name}");
        }
        match (&self.trace, &self.history) {
            (Some(path), _) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            (None, Some(group)) => format!("history of {group}"),
            (None, None) => String::new(),
        }
    }

    /// The jobs that the arguments name.
    ///
    /// # Errors
    /// The file makes no sense, there is no such group, or there are no jobs.
    pub fn load(&self, globals: &Globals) -> anyhow::Result<Given> {
        let named = |(name, _): &(&str, Recipe)| Some(*name) == self.made_up.as_deref();
        if let Some((_, recipe)) = samples().into_iter().find(named) {
            return Ok(Given { trace: recipe.trace(1), past: None });
        }
        match (&self.trace, &self.history) {
            (Some(path), _) => Ok(Given { trace: open(path)?, past: None }),
            (None, Some(group)) => self.recall(group, globals),
            (None, None) => {
                Err(WrongUse("give --trace FILE, --history GROUP or --made-up NAME".into()).into())
            }
        }
    }

    fn recall(&self, group: &str, globals: &Globals) -> anyhow::Result<Given> {
        let kept = Kept::open(globals)?;
        let group = kept.pick(Some(group))?;
        let recorded = kept.latest(&group).map_or(&group, |latest| &latest.group);
        let history = history::read(&kept.store, recorded, self.since.map(For::ago))?;
        if history.trace.jobs.is_empty() {
            return Err(WrongUse(nothing(&group, &history.known, self.since.is_some())).into());
        }
        let rules = kept.config(&group).map(|config| config.rules.clone());
        let state = kept.latest(&group).map(|latest| &latest.state);
        let world = WorldRules { begins: history.known.from, ..world_of(rules.as_ref(), state) };
        let past = Past { group, known: history.known, world, rules };
        Ok(Given { trace: history.trace, past: Some(past) })
    }
}

impl Given {
    /// What the world is like: as `file` says, and where that says nothing, as it was recorded.
    ///
    /// # Errors
    /// The file makes no sense.
    pub fn world(&self, file: Option<&Path>) -> anyhow::Result<WorldRules> {
        let usual = self.past.as_ref().map(|past| past.world.clone()).unwrap_or_default();
        match file {
            Some(path) => Ok(config::load_world(path, &usual)?),
            None => Ok(usual),
        }
    }

    /// The rules in a file, or for [`NOW`] the group's present ones.
    ///
    /// # Errors
    /// The file makes no sense, or there are no present rules.
    pub fn rules(&self, policy: &Path) -> anyhow::Result<Rules> {
        if policy != Path::new(NOW) {
            return Ok(config::load_rules(policy)?);
        }
        let wrong = |what: String| anyhow::Error::from(WrongUse(format!("--policy {NOW}: {what}")));
        let Some(past) = &self.past else {
            return Err(wrong("are the rules of the group of --history; give that".into()));
        };
        past.rules.clone().ok_or_else(|| {
            let group = &past.group;
            wrong(format!("the configuration has no group {group}; name it with --config"))
        })
    }
}

impl fmt::Display for Past {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.group, self.known)
    }
}

fn open(path: &Path) -> Result<Trace, WrongUse> {
    let wrong = |what: String| WrongUse(format!("trace {}: {what}", path.display()));
    let trace = Trace::open(path).map_err(|e| wrong(e.to_string()))?;
    if trace.jobs.is_empty() {
        return Err(wrong("has no jobs; write a line for each below the header".into()));
    }
    Ok(trace)
}

/// What is wrong with a history without jobs, and what to do.
fn nothing(group: &str, known: &Knowledge, since: bool) -> String {
    let what = match (known.looks, since) {
        (0, true) => "nothing was recorded in that time; leave out --since",
        (0, false) => {
            "nothing was recorded of it yet; let `headcount run` look after it for a while, also \
             with --dry-run"
        }
        (_, true) => "no job ran in that time; leave out --since",
        (_, false) => "no job ran while it was recorded; come back when some did",
    };
    format!("--history {group}: {what}")
}

/// Start-up times as learnt, else as hinted; the group's slots.
fn world_of(rules: Option<&Rules>, state: Option<&State>) -> WorldRules {
    let learnt = state.and_then(history::learnt_start_up);
    let hinted = rules.and_then(|rules| rules.workers.start_up);
    let usual = WorldRules::default();
    WorldRules {
        start_up: learnt.or(hinted).unwrap_or(usual.start_up),
        slots: rules.map(|rules| rules.workers.slots),
        ..usual
    }
}
