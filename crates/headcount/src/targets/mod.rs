//! Targets: what runs the workers and changes their number. A new kind is one file and one line in
//! the list below.

mod answer;
mod assumed;
pub mod command;
pub mod compose;
mod containers;
pub mod docker;
pub mod docker_engine;
pub mod drains;
pub mod dry_run;
pub mod ecs;
pub mod kubernetes;
pub mod nomad;
pub mod process;
mod program;
pub mod script;
pub mod swarm;
pub mod webhook;
pub mod windmill_script;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use headcount_core::{FleetReading, Kind, Missing, Span};

use crate::finding::Finding;
use crate::queues::Identity;
use crate::registry::registry;

registry! {
    /// What runs the workers.
    TargetConfig => Target {
        /// A service of a Docker Compose project.
        Compose(compose::ComposeConfig),
        /// Containers of a Docker Engine, without Compose.
        Docker(docker::DockerConfig),
        /// Looks, but changes nothing.
        DryRun(dry_run::DryRunConfig),
        /// The tasks of an Amazon ECS service.
        Ecs(ecs::EcsConfig),
        /// The pods of a Deployment, a StatefulSet or of a resource with a scale.
        Kubernetes(kubernetes::KubernetesConfig),
        /// The allocations of a task group of a Nomad job.
        Nomad(nomad::NomadConfig),
        /// Child processes of Headcount.
        Process(process::ProcessConfig),
        /// A program of yours that is told the number.
        Script(script::ScriptConfig),
        /// A service of a Docker Swarm.
        Swarm(swarm::SwarmConfig),
        /// A server of yours that is told the number.
        Webhook(webhook::WebhookConfig),
        /// A script in a Windmill that is told the number.
        WindmillScript(windmill_script::WindmillScriptConfig),
    }
}

impl TargetConfig {
    /// The Kubernetes target that it is, or that it only looks at.
    pub fn as_kubernetes(&self) -> Option<&kubernetes::KubernetesConfig> {
        match self {
            Self::Kubernetes(config) => Some(config),
            Self::DryRun(config) => config.target.as_deref().and_then(Self::as_kubernetes),
            _ => None,
        }
    }
}

/// What runs the workers and changes their number.
#[async_trait]
pub trait Target: Send {
    /// How far it can keep busy workers safe.
    fn promise(&self) -> Promise;

    /// What it scales, the same for everyone who scales the same thing, however they write its
    /// paths: the lease's key. Does no I/O on the network.
    fn scales(&self) -> String;

    /// Whether its actions are only pretended.
    fn is_dry(&self) -> bool {
        false
    }

    /// Whether its workers run on this machine, or on none that is known to be another: what this
    /// machine carries says nothing about others.
    fn runs_here(&self) -> bool {
        true
    }

    /// For a dry run, called before anything else: from now on `status` only looks, and does not
    /// even finish what an earlier run began.
    fn only_look(&mut self) {}

    /// How many workers there are, one by one where it can list them.
    ///
    /// # Errors
    /// Why there is no credible answer.
    async fn status(&mut self) -> Result<FleetSeen, Missing>;

    /// Makes the change. Returns when it is under way: starting workers may still start, and
    /// victims may still finish their job in the background, reported as draining until then.
    /// The same order again, before the next look, changes nothing and is no error.
    ///
    /// # Errors
    /// What went wrong. Nothing may be assumed then; the next status tells.
    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError>;

    /// After every look, while the lease is held: who holds a job or may hold one, as in
    /// [`Order::busy`]. For a target that keeps busy workers safe between two changes.
    async fn watch_over(&mut self, _busy: &HashMap<String, Option<Span>>) {}

    /// What a person setting it up should know, each with its fix.
    async fn check(&mut self) -> Vec<Finding>;

    /// Headcount ends. Most targets leave their workers running.
    async fn close(&mut self) {}
}

/// How far a target can keep busy workers safe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// It removes exactly the chosen workers.
    ExactVictims,
    /// It picks itself, but never kills one before it has drained.
    DrainedVictims,
    /// It is only told a number.
    NumberOnly,
}

/// What one look at a target shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetSeen {
    /// The workers.
    pub reading: FleetReading,
    /// Other names of the listed workers, by [`headcount_core::reading::Worker::id`].
    pub known_as: HashMap<String, Vec<Identity>>,
}

/// A change to make.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The group it is for.
    pub group: String,
    /// The number of workers when it was decided (ready + starting).
    pub from: u32,
    /// The number to reach.
    pub to: u32,
    /// The most workers by the rules, at least `to`. Workers that take no jobs now but may again,
    /// and new ones, together are no more than this.
    pub max: u32,
    /// The workers that may go, best first; a target that removes exact victims removes these and
    /// no others. Empty for a scale-out, or where only a count is known.
    pub victims: Vec<String>,
    /// The listed workers that hold a job or may hold one, with the age of the oldest where it is
    /// known.
    pub busy: HashMap<String, Option<Span>>,
    /// What kind of change it is.
    pub kind: Kind,
    /// Why, for people.
    pub reason: String,
    /// The lease's fencing token: it grows with every new holder.
    pub token: u64,
}

/// What a target did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scaled {
    /// Workers that were started, by id where known at once.
    pub started: Vec<String>,
    /// Workers that were removed or told to go.
    pub removed: Vec<String>,
    /// One line for the event: which were chosen and why, what the back end said.
    pub note: String,
    /// Nothing was done, and the next look shows it: this is what would have been.
    pub pretended: bool,
}

/// Why a change did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The back end cannot be reached.
    #[error("{back_end} cannot be reached: {detail}")]
    Unreachable {
        /// Which back end.
        back_end: String,
        /// What the network said.
        detail: String,
    },
    /// The back end did not answer in time.
    #[error("{what} did not finish within {seconds} s")]
    Timeout {
        /// What was waited for.
        what: String,
        /// The limit.
        seconds: u64,
    },
    /// The number was decided from a picture of the fleet that is not true.
    #[error("contradiction: there are {there} workers already, decided for {decided_for}")]
    Contradiction {
        /// Workers that serve, as the target sees them.
        there: u32,
        /// As many were there when it was decided, [`Order::from`].
        decided_for: u32,
    },
    /// Nothing was changed, for a reason that passes: workers are busy, a rollout is under way. It is
    /// no failure, and the next tick tries again.
    #[error("not now: {what}: {detail}")]
    NotNow {
        /// What was to be done.
        what: String,
        /// What is waited for, and what a person can do about it.
        detail: String,
    },
    /// The back end refused or failed.
    #[error("{what}: {detail}")]
    Failed {
        /// What was tried.
        what: String,
        /// What the back end said, cut to a few lines, without secrets.
        detail: String,
    },
}

/// A path without links, as far as it exists: one name for one place.
fn canonical(path: &Path) -> PathBuf {
    let real = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    let Some((part, real)) = real else { return path.to_owned() };
    match path.strip_prefix(part) {
        Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
        _ => real,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_place_has_one_name() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("run")).unwrap();
        std::os::unix::fs::symlink("run", real.join("link")).unwrap();
        for name in ["run/docker.sock", "link/docker.sock"] {
            let expected = real.join("run/docker.sock");
            assert_eq!(canonical(&real.join(name)), expected, "before it is there");
            std::fs::write(&expected, "").unwrap();
            assert_eq!(canonical(&real.join(name)), expected);
            std::fs::remove_file(&expected).unwrap();
        }
        assert_eq!(canonical(&real.join("link")).as_os_str(), real.join("run").as_os_str());
    }
}
