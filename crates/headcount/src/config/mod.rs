//! The configuration as meant: checked once, at the border.

mod alerts;
pub mod changes;
mod environment;
mod errors;
mod expand;
mod file;
mod read;
mod schema;
#[cfg(test)]
mod tests;
mod tree;
mod walk;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headcount_core::{Alerts, Rules, Span};
use headcount_sim::WorldRules;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

pub use changes::{Changes, GroupChange, changes};
pub use errors::{ConfigError, ConfigErrors};

use crate::cli::Globals;
use crate::lease::LeaseKind;
use crate::limits::CONFIG_BYTES;
use crate::queues::QueueConfig;
use crate::queues::redis::RedisConfig;
use crate::regular_file;
use crate::sinks::webhook::AlertWebhookConfig;
use crate::targets::TargetConfig;
use crate::telemetry::{LogFormat, LogLevel};
use expand::Lookup;
pub(crate) use file::default_state_dir;
use tree::Document;

/// Where a configuration file is looked for, in this order.
pub const PLACES: [&str; 2] = ["headcount.yaml", "/etc/headcount/headcount.yaml"];

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The groups, in the order of the file.
    pub groups: Vec<GroupConfig>,
    /// Where state, logs of worker processes and the like are kept.
    pub state_dir: PathBuf,
    /// Where `/healthz`, `/readyz` and `/metrics` are served; `None` serves nothing.
    pub listen: Option<SocketAddr>,
    /// How log lines look and which are written.
    pub log: LogConfig,
    /// How many days samples and events are kept.
    pub keep_days: u32,
    /// The most workers of all groups together.
    pub budget: Option<u32>,
}

impl Config {
    /// The group with this name.
    pub fn group(&self, name: &str) -> Option<&GroupConfig> {
        self.groups.iter().find(|group| group.name == name)
    }
}

/// Logs on standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// How log lines look.
    pub format: LogFormat,
    /// The least important lines that are written.
    pub level: LogLevel,
}

/// One group of identical workers.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupConfig {
    /// Its name, unique: 1 to 63 of `a-z 0-9 . _ -`.
    pub name: String,
    /// Its rules.
    pub rules: Rules,
    /// Where demand is read.
    pub queue: QueueConfig,
    /// What runs the workers.
    pub target: TargetConfig,
    /// Where the right to act is kept.
    pub lease: LeaseKind,
    /// The longest time between two looks when all is quiet.
    pub look: Span,
    /// Its part of the budget, against the other groups'.
    pub weight: u32,
    /// The memory of one worker, bytes: for its usage.
    pub worker_memory: u64,
    /// What people want to hear of.
    pub alerts: Alerts,
    /// Where alerts are posted to.
    pub alert_webhook: Option<AlertWebhookConfig>,
    /// The list of snapshots that the reference autoscaler keeps in Redis.
    pub metrics_list: Option<MetricsList>,
    /// Relative paths in this group start here: the folder of the file.
    pub base_dir: PathBuf,
}

impl GroupConfig {
    /// Where its connectors are, with the state of all groups in `state_dir`.
    pub fn place(&self, state_dir: &Path) -> Place {
        let (group, base_dir) = (self.name.clone(), self.base_dir.clone());
        Place { state_dir: state_dir.join("groups").join(&group), group, base_dir }
    }
}

/// The list of snapshots that the reference autoscaler keeps in Redis.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricsList {
    /// Which Redis.
    pub redis: RedisConfig,
    /// The list's key: `autoscaler:metrics`.
    pub key: String,
    /// How many snapshots are kept: 200.
    pub keep: u32,
}

/// Where a connector is: for its paths and names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The group's name.
    pub group: String,
    /// A folder of the group's own for files that must survive a restart. May not exist yet.
    pub state_dir: PathBuf,
    /// Relative paths of the configuration start here.
    pub base_dir: PathBuf,
}

/// What the command line says against the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Where state is kept.
    pub state_dir: Option<PathBuf>,
}

/// A configuration and where it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The configuration.
    pub config: Config,
    /// Its file; `None` if the reference autoscaler's variables took its place.
    pub file: Option<PathBuf>,
    /// What should be logged about it, once logging has started.
    pub notes: Vec<String>,
}

/// The configuration that `globals` names, or the first one of [`PLACES`], or the one that the
/// reference autoscaler's environment variables describe.
///
/// # Errors
/// Everything that is wrong with it, or that there is none.
pub fn find(globals: &Globals) -> Result<Found, ConfigErrors> {
    let overrides = Overrides { state_dir: globals.state_dir.clone() };
    let here = || PLACES.iter().map(PathBuf::from).find(|path| path.exists());
    if let Some(path) = globals.config.clone().or_else(here) {
        let config = load(&path, &overrides)?;
        return Ok(Found { config, file: Some(path), notes: Vec::new() });
    }
    match from_env(&overrides) {
        Some(found) => found,
        None => {
            let what = format!(
                "no configuration: write {} (or name a file with --config), or set the variables \
                 of the reference n8n autoscaler, such as REDIS_HOST and COMPOSE_FILE",
                PLACES.join(" or ")
            );
            Err(ConfigErrors::new(vec![ConfigError::whole("headcount", "", what)]))
        }
    }
}

/// Reads and checks a configuration file.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load(path: &Path, overrides: &Overrides) -> Result<Config, ConfigErrors> {
    let (text, name) = (text_of(path)?, path.display().to_string());
    let base_dir = std::path::absolute(path).ok().and_then(|p| p.parent().map(Path::to_path_buf));
    parse_with(&text, &name, &base_dir.unwrap_or_default(), overrides, &|n| std::env::var(n))
}

/// Checks the text of a configuration file; `name` is for messages, relative paths in it start at
/// `base_dir`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse(text: &str, name: &str, base_dir: &Path) -> Result<Config, ConfigErrors> {
    parse_with(text, name, base_dir, &Overrides::default(), &|name| std::env::var(name))
}

/// The configuration that the environment variables of the reference n8n autoscaler describe;
/// `None` if none of them is set.
pub fn from_env(overrides: &Overrides) -> Option<Result<Found, ConfigErrors>> {
    environment::read(&|name| std::env::var(name), overrides)
}

/// Reads and checks a file with the rules of one group, without queue and target.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_rules(path: &Path) -> Result<Rules, ConfigErrors> {
    parse_rules(&text_of(path)?, &path.display().to_string(), &|name| std::env::var(name))
}

/// Reads and checks a file that says what a simulated world is like. Of start-up and slots it need
/// not speak: then they are as in `usual`.
///
/// # Errors
/// Everything that is wrong with it.
pub fn load_world(path: &Path, usual: &WorldRules) -> Result<WorldRules, ConfigErrors> {
    let (text, name) = (text_of(path)?, path.display().to_string());
    let doc = Document::parse(&text, &name).map_err(|e| ConfigErrors::new(vec![*e]))?;
    let mut world = read_part(&doc, &|name| std::env::var(name), WorldRules::problems)?;
    if doc.root.child("start_up").is_none() {
        world.start_up = usual.start_up;
    }
    world.slots = world.slots.or(usual.slots);
    world.begins = usual.begins;
    Ok(world)
}

/// The JSON Schema of the configuration file.
pub fn json_schema() -> serde_json::Value {
    schema::for_editors::<file::File>()
}

fn parse_with(
    text: &str,
    name: &str,
    base_dir: &Path,
    overrides: &Overrides,
    lookup: Lookup<'_>,
) -> Result<Config, ConfigErrors> {
    let doc = Document::parse(text, name).map_err(|e| ConfigErrors::new(vec![*e]))?;
    let (config, findings) = file::meant(read::read(&doc, lookup), &doc, base_dir, overrides);
    checked(config, findings.into_errors())
}

fn parse_rules(text: &str, name: &str, lookup: Lookup<'_>) -> Result<Rules, ConfigErrors> {
    let doc = Document::parse(text, name).map_err(|e| ConfigErrors::new(vec![*e]))?;
    if matches!(doc.root.shape, tree::Shape::Null) {
        let what = "the file is empty; write at least `policy: { cpu_aware: {} }`";
        return Err(ConfigErrors::new(vec![ConfigError::whole(name, "", what)]));
    }
    read_part(&doc, lookup, Rules::problems)
}

/// A document as a `T`, in which `problems` finds what makes no sense.
fn read_part<T: DeserializeOwned + JsonSchema>(
    doc: &Document,
    lookup: Lookup<'_>,
    problems: impl Fn(&T) -> Vec<(String, String)>,
) -> Result<T, ConfigErrors> {
    let read::Read { value, mut findings } = read::read::<T>(doc, lookup);
    let found = value.as_ref().map(problems).unwrap_or_default();
    findings.problems(&[], found);
    checked(value, findings.into_errors())
}

fn checked<T>(value: Option<T>, errors: Vec<ConfigError>) -> Result<T, ConfigErrors> {
    match value {
        Some(value) if errors.is_empty() => Ok(value),
        _ => Err(ConfigErrors::new(errors)),
    }
}

/// The text of a file that is not too large.
fn text_of(path: &Path) -> Result<String, ConfigErrors> {
    let name = path.display().to_string();
    let refuse = |what: String| ConfigErrors::new(vec![ConfigError::whole(&name, "", what)]);
    let unreadable = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => refuse("there is no such file".into()),
        std::io::ErrorKind::PermissionDenied => {
            refuse("may not be read by this user; give it read permission".into())
        }
        std::io::ErrorKind::IsADirectory => refuse("is a directory; name the file in it".into()),
        _ => refuse(format!("cannot be read: {e}")),
    };
    let too_large =
        |size: String| refuse(format!("has {size} bytes; a configuration may have {CONFIG_BYTES}"));
    let about = std::fs::metadata(path).map_err(unreadable)?;
    if about.len() > CONFIG_BYTES {
        return Err(too_large(about.len().to_string()));
    }
    let bytes = regular_file::read(path, CONFIG_BYTES).map_err(unreadable)?;
    if bytes.len() as u64 > CONFIG_BYTES {
        return Err(too_large(format!("more than {CONFIG_BYTES}")));
    }
    String::from_utf8(bytes).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = good.iter().filter(|b| **b == b'\n').count() + 1;
        refuse(format!("is not UTF-8 text, from line {line} on; save it as UTF-8"))
    })
}
