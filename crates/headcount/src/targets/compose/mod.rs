//! The containers of one service of a Docker Compose project. Looks go to the Docker Engine API;
//! `docker compose up --scale` only ever adds, because on its own it removes the highest number,
//! busy or not. The chosen workers are told to go one by one and are seen off in the background.

mod check;
mod cli;
mod fleet;
mod n8n;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use headcount_core::{Missing, Silence, Span};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use crate::clock::{duration, now};
use crate::config::Place;
use crate::finding::Finding;
use crate::limits::{INSPECTS_PER_LOOK, LOOK_TIMEOUT};
use crate::targets::compose::cli::Cli;
use crate::targets::compose::fleet::{Plan, Role};
use crate::targets::docker_engine::{Container, Details, Engine, EngineError, Life};
use crate::targets::drains::Drains;
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError};

/// So many lines of a container that died are shown.
const LAST_LINES: usize = 3;

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
    engine: Engine,
    cli: Cli,
    drains: Drains,
    /// Where relative paths of the configuration start.
    base_dir: PathBuf,
    /// What inspections told, by container id.
    details: HashMap<String, Details>,
    /// Whether there was a complete look already, so that the next one can tell what is new.
    has_looked: bool,
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
        Ok(Box::new(Compose {
            cli: Cli::new(self, &base_dir, engine.host()),
            drains: Drains::new(engine.clone(), &place.state_dir, duration(self.grace)),
            config: self.clone(),
            engine,
            base_dir,
            details: HashMap::new(),
            has_looked: false,
            done: None,
        }))
    }
}

fn is_project_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    name.starts_with(plain) && name.chars().all(|c| plain(c) || "-_".contains(c))
}

impl Compose {
    /// All containers of the service.
    async fn list(&self) -> Result<Vec<Container>, EngineError> {
        let ComposeConfig { project, service, .. } = &self.config;
        let labels = vec![
            format!("com.docker.compose.project={project}"),
            format!("com.docker.compose.service={service}"),
            "com.docker.compose.oneoff=False".to_owned(),
        ];
        self.engine.list(labels).await
    }

    /// The containers, and what each of them is to this target.
    async fn look(&mut self) -> Result<Vec<(Container, Role)>, EngineError> {
        self.drains.look();
        let listed = self.list().await?;
        let role = |c: Container| {
            let role = fleet::role(&c, self.drains.has(&c.id), now());
            (c, role)
        };
        Ok(listed.into_iter().map(role).collect())
    }

    /// Learns the details of containers that are new or have changed; returns how many died young.
    async fn inspect(&mut self, listed: &mut [(Container, Role)]) -> Result<u32, EngineError> {
        let is_new = |c: &Container| !self.details.contains_key(&c.id);
        let has_changed = |c: &Container| {
            let old = self.details.get(&c.id);
            old.is_some_and(|old| c.is_fresh || old.alive != c.life.is_alive())
        };
        let new = listed.iter().filter(|(c, _)| is_new(c));
        let changed = listed.iter().filter(|(c, _)| has_changed(c));
        let due: Vec<String> =
            new.chain(changed).map(|(c, _)| c.id.clone()).take(INSPECTS_PER_LOOK).collect();
        let inspect = |id: String| {
            let engine = self.engine.clone();
            async move {
                let answer = engine.inspect(&id).await;
                (id, answer)
            }
        };
        let asked = futures_util::stream::iter(due).map(inspect).buffer_unordered(8);
        let asked: Vec<_> = asked.collect().await;
        let mut died = 0;
        for (id, answer) in asked {
            let new = match answer {
                Ok(new) => new,
                Err(error) if error.is_absent() => continue,
                Err(error) => return Err(error),
            };
            let old = self.details.get(&id);
            if self.has_looked && !self.drains.has(&id) && fleet::died_young(old, &new) {
                died += 1;
                // Once for each container: one that crashes again and again is no news.
                if old.is_none_or(|old| old.ends == 0) {
                    self.tell_of_death(&id, listed, &new);
                }
            }
            // It ended between the list and the inspection.
            let ended = listed.iter_mut().find(|(c, _)| c.id == id && c.life.is_alive());
            if let Some((container, role)) = ended.filter(|_| !new.alive) {
                container.life = Life::Exited(new.exit_code);
                *role = fleet::role(container, self.drains.has(&id), now());
            }
            self.details.insert(id, new);
        }
        self.details.retain(|id, _| listed.iter().any(|(c, _)| c.id == *id));
        self.has_looked |= listed.iter().all(|(c, _)| self.details.contains_key(&c.id));
        Ok(died)
    }

    /// Says how a worker died, with its last words, in the background: a look does not wait.
    fn tell_of_death(&self, id: &str, listed: &[(Container, Role)], details: &Details) {
        let name = listed.iter().find(|(c, _)| c.id == id).map(|(c, _)| c.name.clone());
        let (engine, id, details) = (self.engine.clone(), id.to_owned(), details.clone());
        tokio::spawn(async move {
            let output = engine.last_lines(&id, LAST_LINES).await;
            let output = output.unwrap_or_else(|error| format!("(not to be had: {error})"));
            tracing::warn!(
                worker = name.unwrap_or(id),
                exit_code = details.exit_code,
                lived_s = details.lived.map(|lived| lived.as_secs()),
                output,
                "worker ended by itself"
            );
        });
    }

    async fn seen(&mut self) -> Result<FleetSeen, EngineError> {
        let mut listed = self.look().await?;
        let died = self.inspect(&mut listed).await?;
        let shown = fleet::Shown {
            ready_after: self.config.ready_after,
            is_local: self.engine.is_local(),
            now: now(),
        };
        Ok(fleet::seen(&listed, &self.details, died, &shown))
    }

    /// Adds workers by `docker compose up --scale`.
    async fn scale_out(&mut self, from: u32, to: u32) -> Result<Scaled, TargetError> {
        let _turn = self.cli.turn().await?;
        let first = self.plan(to).await?;
        if first.capacity >= to {
            if self.done != Some((from, to)) && first.capacity != from {
                let there = first.capacity;
                return Err(TargetError::Contradiction { there, decided_for: from });
            }
            return Ok(Scaled { note: format!("already {}", first.capacity), ..Scaled::default() });
        }
        self.clear_the_way(&first).await?;
        let plan = self.plan(to).await?;
        if plan.scale == plan.existing {
            let stuck = plan.stuck.iter().chain(plan.crashing.iter().map(|(_, name)| name));
            let stuck = stuck.map(String::as_str).collect::<Vec<_>>().join(", ");
            let detail = format!("{stuck} take no jobs and hold the places");
            let what = format!("scaling {} to {to}", self.config.service);
            return Err(TargetError::Failed { what, detail });
        }
        self.cli.up(plan.scale).await?;
        let after = self.list().await.map_err(failed("look after docker compose up"))?;
        self.done = Some((from, to));
        let new = after.into_iter().filter(|c| !plan.ids.contains(&c.id));
        let (started, names): (Vec<_>, Vec<_>) = new.map(|c| (c.id, c.name)).unzip();
        let note = first.note(&names, plan.scale - plan.existing);
        Ok(Scaled { started, removed: Vec::new(), note })
    }

    /// What `up --scale` has to be told so that `to` workers serve.
    async fn plan(&mut self, to: u32) -> Result<Plan, TargetError> {
        let listed = self.look().await.map_err(failed("look at the containers"))?;
        Ok(Plan::new(&listed, to))
    }

    /// Removes what does not run: Compose would count it, and start it again. What crashes again
    /// and again is told to go, to be replaced.
    async fn clear_the_way(&mut self, plan: &Plan) -> Result<(), TargetError> {
        for (id, name) in &plan.remains {
            match self.engine.remove(id).await {
                Err(error) if !error.is_absent() => {
                    return Err(error.into_target_error(&format!("removal of exited {name}")));
                }
                _ => {}
            }
        }
        for (id, name) in &plan.crashing {
            self.drains
                .tell(id, name)
                .await
                .map_err(failed(&format!("stop of crashing {name}")))?;
        }
        let crashing = || plan.crashing.iter().any(|(id, _)| self.drains.has(id));
        let gone = async {
            while crashing() {
                sleep(Duration::from_millis(50)).await;
            }
        };
        // If one came up and finishes a job first, it is counted as leaving.
        let _ = timeout(LOOK_TIMEOUT, gone).await;
        Ok(())
    }

    /// Tells chosen workers to go.
    async fn scale_in(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        let what = format!("scaling {} to {}", self.config.service, order.to);
        let refuse = |detail: String| TargetError::Failed { what: what.clone(), detail };
        if order.victims.is_empty() {
            return Err(refuse(
                "no worker is named that may go, and none is picked blindly".into(),
            ));
        }
        let listed = self.look().await.map_err(failed("look at the containers"))?;
        let serving: Vec<&Container> =
            listed.iter().filter(|(_, role)| *role == Role::Serves).map(|(c, _)| c).collect();
        let serving_now = u32::try_from(serving.len()).unwrap_or(u32::MAX);
        let excess = serving_now.min(order.from).saturating_sub(order.to);
        let mut scaled = Scaled::default();
        let mut names = Vec::new();
        let chosen = order.victims.iter().filter_map(|id| serving.iter().find(|c| c.id == *id));
        for victim in chosen.take(excess as usize) {
            let told = self.drains.tell(&victim.id, &victim.name).await;
            told.map_err(failed(&format!("stop of {}", victim.name)))?;
            scaled.removed.push(victim.id.clone());
            names.push(victim.name.as_str());
        }
        if names.is_empty() && excess > 0 {
            return Err(refuse("none of the workers that may go is there any more".into()));
        }
        let serves = |id: &&String| serving.iter().any(|c| c.id == **id);
        let stay = order.victims.iter().filter(serves).count();
        let gone = order.victims.len() - stay;
        if names.is_empty() && gone < order.from.saturating_sub(order.to) as usize {
            return Err(TargetError::Contradiction { there: serving_now, decided_for: order.from });
        }
        scaled.note = match names.is_empty() {
            true => "as many of those chosen are gone or going already".into(),
            false => fleet::farewell(&names, self.config.grace),
        };
        Ok(scaled)
    }
}

fn failed(what: &str) -> impl FnOnce(EngineError) -> TargetError {
    move |error| error.into_target_error(what)
}

#[async_trait]
impl Target for Compose {
    fn promise(&self) -> Promise {
        Promise::ExactVictims
    }

    fn scales(&self) -> String {
        let ComposeConfig { project, service, .. } = &self.config;
        format!("compose:{}:{project}/{service}", self.engine.place())
    }

    fn runs_here(&self) -> bool {
        self.engine.is_local()
    }

    fn only_look(&mut self) {
        self.drains.only_look();
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        self.done = None;
        match timeout(LOOK_TIMEOUT, self.seen()).await {
            Ok(seen) => seen.map_err(EngineError::into_missing),
            Err(_) => {
                let detail = format!("docker did not answer in {} s", LOOK_TIMEOUT.as_secs());
                Err(Missing { why: Silence::Timeout, detail })
            }
        }
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        match order.to.cmp(&order.from) {
            std::cmp::Ordering::Less => self.scale_in(order).await,
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
