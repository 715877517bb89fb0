//! The containers of one service of a Docker Compose project. Looks go to the Docker Engine API;
//! `docker compose up --scale` only ever adds, because on its own it removes the highest number,
//! busy or not. The chosen workers are told to go one by one and are seen off in the background.

mod check;
mod cli;
mod n8n;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use headcount_core::{Missing, Span};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Place;
use crate::finding::Finding;
use crate::targets::compose::cli::Cli;
use crate::targets::containers::{Containers, Times, failed};
use crate::targets::docker_engine::Engine;
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError};

/// Containers of a Docker Compose service.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ComposeConfig {
    /// The name of the Compose project (`docker compose -p`). Required.
    pub project: String,
    /// The service whose containers are the workers. Required.
    pub service: String,
    /// The Compose files, in order (`-f`), relative to this file. Empty: the ones that Compose
    /// finds by itself in the project directory.
    pub files: Vec<PathBuf>,
    /// The file with the variables for the Compose files (`--env-file`), relative to this file.
    pub env_file: Option<PathBuf>,
    /// Where relative paths inside the Compose files start (`--project-directory`). Set it to the
    /// folder on the host when Headcount itself runs in a container. Default: the folder of the
    /// first Compose file.
    pub project_directory: Option<PathBuf>,
    /// The Compose command, word by word. Default: `[docker, compose]` where that works, else
    /// `[docker-compose]`.
    pub command: Option<Vec<String>>,
    /// How long a worker that was told to go may take to finish its job, before it is killed.
    /// Must exceed the longest job (n8n: `N8N_GRACEFUL_SHUTDOWN_TIMEOUT`). The service's own
    /// `stop_grace_period` counts if it is longer.
    pub grace: Span,
    /// How long one `docker compose up` may take, image pull included.
    pub up_timeout: Span,
    /// Where the Docker Engine is: `unix:///path` or `tcp://host:port`. Default: the environment
    /// variable `DOCKER_HOST`, else the standard socket.
    pub docker_host: Option<String>,
    /// How long after its start a container without a health check counts as starting. One with a
    /// health check is starting until that passes.
    pub ready_after: Span,
}

/// The target.
struct Compose {
    config: ComposeConfig,
    containers: Containers,
    cli: Cli,
    /// Where relative paths of the configuration start.
    base_dir: PathBuf,
    /// The scale-out carried out since the last look, by its [`Order::from`] and [`Order::to`].
    done: Option<(u32, u32)>,
}

impl Default for ComposeConfig {
    fn default() -> Self {
        Self {
            project: String::new(),
            service: String::new(),
            files: Vec::new(),
            env_file: None,
            project_directory: None,
            command: None,
            grace: Span::from_secs(60),
            up_timeout: Span::from_secs(120),
            docker_host: None,
            ready_after: Span::ZERO,
        }
    }
}

impl ComposeConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut bad = |key: &str, what: String| problems.push((key.to_owned(), what));
        if self.project.is_empty() {
            bad("project", "is missing: write the Compose project's name".into());
        } else if !is_project_name(&self.project) {
            let name = &self.project;
            bad("project", format!("{name:?} must be lower-case letters, digits, - and _ only"));
        }
        if self.service.is_empty() {
            bad("service", "is missing: write the name of the workers' service".into());
        } else if !self.service.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            let name = &self.service;
            bad("service", format!("{name:?} must be letters, digits, ., - and _ only"));
        }
        if self.files.iter().any(|file| file.as_os_str() == "-") {
            bad("files", "cannot be read from the standard input: write a path".into());
        }
        if self.command.as_ref().is_some_and(|words| words.iter().all(String::is_empty)) {
            bad("command", "is empty: leave it out, or write for example [docker, compose]".into());
        }
        let day = Span::from_hours(24);
        for (key, span, least) in [
            ("grace", self.grace, Span::from_secs(1)),
            ("up_timeout", self.up_timeout, Span::from_secs(1)),
            ("ready_after", self.ready_after, Span::ZERO),
        ] {
            if span < least || span > day {
                bad(key, format!("{span:#} is outside {least:#} to {day:#}"));
            }
        }
        if let Some(why) = self.docker_host.as_deref().and_then(Engine::problem_with) {
            bad("docker_host", why);
        }
        problems
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        let engine = Engine::new(self.docker_host.as_deref())?;
        let base_dir = std::path::absolute(match place.base_dir.as_os_str().is_empty() {
            true => Path::new("."),
            false => &place.base_dir,
        })?;
        let Self { project, service, .. } = self;
        let labels = vec![
            format!("com.docker.compose.project={project}"),
            format!("com.docker.compose.service={service}"),
            "com.docker.compose.oneoff=False".to_owned(),
        ];
        let cli = Cli::new(self, &base_dir, engine.host());
        let times = Times { grace: self.grace, ready_after: self.ready_after };
        Ok(Box::new(Compose {
            containers: Containers::new(engine, service.clone(), labels, times, place),
            cli,
            config: self.clone(),
            base_dir,
            done: None,
        }))
    }
}

fn is_project_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(plain) && name.chars().all(|c| plain(c) || "-_".contains(c))
}

impl Compose {
    /// Adds workers by `docker compose up --scale`.
    async fn scale_out(&mut self, from: u32, to: u32) -> Result<Scaled, TargetError> {
        let _turn = self.cli.turn().await?;
        let first = self.containers.plan(to).await?;
        if first.capacity >= to {
            if self.done != Some((from, to)) && first.capacity != from {
                let there = first.capacity;
                return Err(TargetError::Contradiction { there, decided_for: from });
            }
            return Ok(Scaled { note: format!("already {}", first.capacity), ..Scaled::default() });
        }
        self.containers.clear_the_way(&first).await?;
        let plan = self.containers.plan(to).await?;
        if plan.scale == plan.existing {
            let detail = format!("{} take no jobs and hold the places", plan.holders());
            let what = format!("scaling {} to {to}", self.config.service);
            return Err(TargetError::Failed { what, detail });
        }
        self.cli.up(plan.scale).await?;
        let after = self.containers.list().await.map_err(failed("look after docker compose up"))?;
        self.done = Some((from, to));
        let new = after.into_iter().filter(|c| !plan.ids.contains(&c.id));
        let (started, names): (Vec<_>, Vec<_>) = new.map(|c| (c.id, c.name)).unzip();
        let note = first.note(&names, plan.scale - plan.existing);
        Ok(Scaled { started, note, ..Scaled::default() })
    }
}

#[async_trait]
impl Target for Compose {
    fn promise(&self) -> Promise {
        Promise::ExactVictims
    }

    fn scales(&self) -> String {
        let ComposeConfig { project, service, .. } = &self.config;
        format!("compose:{}:{project}/{service}", self.containers.engine.place())
    }

    fn runs_here(&self) -> bool {
        self.containers.engine.is_local()
    }

    fn only_look(&mut self) {
        self.containers.only_look();
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        self.done = None;
        self.containers.status().await
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        match order.to.cmp(&order.from) {
            std::cmp::Ordering::Less => self.containers.scale_in(order).await,
            _ => self.scale_out(order.from, order.to).await,
        }
    }

    async fn check(&mut self) -> Vec<Finding> {
        self.findings().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_named_by_its_key() {
        let config = ComposeConfig {
            project: "Shop!".into(),
            files: vec!["-".into()],
            command: Some(vec![]),
            grace: Span::ZERO,
            up_timeout: Span::from_secs(-1),
            docker_host: Some("ssh://host".into()),
            ..ComposeConfig::default()
        };
        let keys: Vec<String> = config.problems().into_iter().map(|(key, _)| key).collect();
        let expected =
            ["project", "service", "files", "command", "grace", "up_timeout", "docker_host"];
        assert_eq!(keys, expected);
    }

    #[test]
    fn the_names_that_compose_takes() {
        for name in ["n8n-automation", "a", "0_x"] {
            assert!(is_project_name(name), "{name}");
        }
        for name in ["", "-a", "_a", "A", "a b", "a.b", "a/b"] {
            assert!(!is_project_name(name), "{name}");
        }
    }
}
