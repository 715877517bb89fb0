//! The configuration as meant: checked once, at the border.

pub mod file;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headcount_core::{Rules, Span};

use crate::queues::QueueConfig;
use crate::queues::bull::RedisConfig;
use crate::targets::TargetConfig;

/// The whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The groups, in the order of the file.
    pub groups: Vec<GroupConfig>,
    /// Where state, logs of worker processes and the like are kept.
    pub state_dir: PathBuf,
    /// Where `/healthz`, `/readyz` and `/metrics` are served; `None` serves nothing.
    pub listen: Option<SocketAddr>,
    /// How many days samples and events are kept.
    pub keep_days: u32,
}

impl Config {
    /// The group with this name.
    pub fn group(&self, name: &str) -> Option<&GroupConfig> {
        self.groups.iter().find(|group| group.name == name)
    }
}

impl GroupConfig {
    /// Where its connectors are, with state under `state_dir`.
    pub fn place(&self, state_dir: &Path) -> Place {
        Place {
            group: self.name.clone(),
            state_dir: state_dir.join(&self.name),
            base_dir: self.base_dir.clone(),
        }
    }
}

/// One group of identical workers.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupConfig {
    /// Its name, unique.
    pub name: String,
    /// Its rules.
    pub rules: Rules,
    /// Where demand is read.
    pub queue: QueueConfig,
    /// What runs the workers.
    pub target: TargetConfig,
    /// The longest time between two looks when all is quiet.
    pub look: Span,
    /// The list of snapshots that the reference autoscaler keeps in Redis.
    pub metrics_list: Option<MetricsList>,
    /// Relative paths in this group start here: the folder of the file.
    pub base_dir: PathBuf,
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
