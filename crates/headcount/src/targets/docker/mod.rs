//! Containers of a Docker Engine, without Compose. Each is made from a template, by the engine's
//! API, and bears a label that says whose it is: nothing else counts, and nothing else is touched.
//! The chosen workers are told to go one by one and are seen off in the background.

mod check;
mod config;
mod template;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use headcount_core::Missing;
use serde_json::{Value, json};

use crate::config::Place;
use crate::finding::Finding;
use crate::limits::{NAMES_REFUSED, NAMES_TRIED};
use crate::queues::Identity;
use crate::targets::containers::fleet::{Plan, Role};
use crate::targets::containers::{Containers, Times, failed};
use crate::targets::docker_engine::{Engine, EngineError, Method, escaped};
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError};

pub use config::DockerConfig;
pub(crate) use config::bytes;
use template::{GROUP, Template};

/// The target.
struct Docker {
    config: DockerConfig,
    group: String,
    /// Where relative paths of the configuration start.
    base_dir: PathBuf,
    containers: Containers,
    /// The scale-out carried out since the last look, by its [`Order::from`] and [`Order::to`].
    done: Option<(u32, u32)>,
}

/// What new workers are made from, all of it there.
struct Source {
    template: Template,
    image: String,
    image_id: String,
}

impl DockerConfig {
    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        let engine = Engine::new(self.host.as_deref())?;
        let base_dir = std::path::absolute(match place.base_dir.as_os_str().is_empty() {
            true => Path::new("."),
            false => &place.base_dir,
        })?;
        let group = place.group.clone();
        let labels = vec![format!("{GROUP}={group}")];
        let times = Times { grace: self.grace, ready_after: self.ready_after };
        Ok(Box::new(Docker {
            config: self.clone(),
            containers: Containers::new(engine, group.clone(), labels, times, place),
            group,
            base_dir,
            done: None,
        }))
    }
}

impl Docker {
    /// What new workers are made from.
    ///
    /// # Errors
    /// What is missing for it, and what to do.
    async fn source(&self) -> Result<Source, EngineError> {
        let engine = &self.containers.engine;
        let mut template = Template::default();
        let mut image = self.config.image.clone();
        if let Some(like) = &self.config.like {
            let seen = self.inspected(like).await?;
            // Also an image without a name left is there as long as a container has it.
            let of_image = engine.image(seen["Image"].as_str().unwrap_or_default()).await?;
            let of_image = of_image.map(|image| image["Config"].clone()).unwrap_or_default();
            template = Template::like(&seen, &of_image);
            image = image.or_else(|| seen["Config"]["Image"].as_str().map(str::to_owned));
        }
        let image = image.unwrap_or_default();
        let Some(found) = engine.image(&image).await? else {
            let detail =
                format!("image {image} is not here: run `docker pull {image}` or build it");
            return Err(EngineError::absent(detail));
        };
        let image_id = found["Id"].as_str().unwrap_or_default().to_owned();
        let lines = match &self.config.env_file {
            Some(file) => {
                template::env_file(&self.base_dir.join(file), |name| std::env::var(name).ok())
                    .map_err(|error| EngineError::absent(format!("env_file {error}")))?
            }
            None => Vec::new(),
        };
        let template = template.with(&self.config, &lines, &self.base_dir);
        Ok(Source { template, image, image_id })
    }

    /// The container that workers are to be like.
    async fn inspected(&self, like: &str) -> Result<Value, EngineError> {
        let path = format!("/containers/{}/json", escaped(like));
        let seen = self.containers.engine.ask(Method::GET, &path, None).await;
        let seen = seen.map_err(|error| match error.is_absent() {
            true => EngineError::absent(format!("there is no container {like} to be like")),
            false => error,
        })?;
        if seen["Config"]["Labels"][GROUP] == json!(self.group) {
            let detail = format!("{like} is a worker of {} itself: name another", self.group);
            return Err(EngineError::absent(detail));
        }
        Ok(seen)
    }

    async fn scale_out(&mut self, from: u32, to: u32) -> Result<Scaled, TargetError> {
        let what = format!("scaling {} to {to}", self.group);
        let first = self.plan(to).await?;
        if first.capacity >= to {
            if self.done != Some((from, to)) && first.capacity != from {
                let there = first.capacity;
                return Err(TargetError::Contradiction { there, decided_for: from });
            }
            return Ok(Scaled { note: format!("already {}", first.capacity), ..Scaled::default() });
        }
        let source = self.source().await.map_err(failed(&what))?;
        self.containers.clear_the_way(&first).await?;
        let plan = self.plan(to).await?;
        let new = to.saturating_sub(plan.places);
        if new == 0 {
            let detail = format!("{} take no jobs and hold the places", plan.holders());
            return Err(TargetError::Failed { what, detail });
        }
        let (mut started, mut names) = (Vec::new(), Vec::new());
        let mut taken = plan.names;
        for _ in 0..new {
            match self.start(&source, &taken).await {
                Ok((id, name)) => {
                    taken.insert(name.clone());
                    started.push(id);
                    names.push(name);
                }
                Err(error) => return Err(half_done(&error, &what, &names)),
            }
        }
        self.done = Some((from, to));
        let note = first.note(&names, new);
        Ok(Scaled { started, note, ..Scaled::default() })
    }

    /// What has to be done so that `to` workers serve. Nobody but us makes workers, so one that was
    /// made and never started is what an earlier run left half done.
    async fn plan(&mut self, to: u32) -> Result<Plan, TargetError> {
        let mut listed = self.containers.look().await.map_err(failed("look at the containers"))?;
        for (_, role) in listed.iter_mut().filter(|(_, role)| *role == Role::Coming) {
            *role = Role::Remains;
        }
        Ok(Plan::new(&listed, to))
    }

    /// Makes and starts one worker; what is only half done is taken back.
    async fn start(
        &self,
        source: &Source,
        taken: &HashSet<String>,
    ) -> Result<(String, String), EngineError> {
        let (id, name) = self.create(source, taken).await?;
        let Err(error) = self.join_and_start(source, &id).await else { return Ok((id, name)) };
        // It never ran: nothing is lost with it.
        let undo = format!("/containers/{id}?force=true&v=true");
        if let Err(undo) = self.containers.engine.ask(Method::DELETE, &undo, None).await
            && !undo.is_absent()
        {
            tracing::warn!(worker = name, error = %undo, "cannot be removed after a failed start");
        }
        let said = source.template.without_secrets(&error.detail);
        Err(EngineError { detail: format!("{name}: {said}"), ..error })
    }

    /// Makes a container under the first name that is free.
    async fn create(
        &self,
        source: &Source,
        taken: &HashSet<String>,
    ) -> Result<(String, String), EngineError> {
        let body = source.template.body(&source.image, &self.group);
        let names = (1..=NAMES_TRIED).map(|n| self.config.called(&self.group, n));
        let mut refused = Vec::new();
        for name in names.filter(|name| !taken.contains(name)) {
            if refused.len() >= NAMES_REFUSED {
                break;
            }
            let path = format!("/containers/create?name={}", escaped(&name));
            match self.containers.engine.ask(Method::POST, &path, Some(&body)).await {
                Ok(answer) => {
                    let id = answer["Id"].as_str().ok_or_else(|| {
                        EngineError::not_understood("a container was made, but has no id")
                    })?;
                    return Ok((id.to_owned(), name));
                }
                // Somebody else's container has this name.
                Err(error) if error.status == Some(409) => refused.push(name),
                Err(error) => {
                    let detail = source.template.without_secrets(&error.detail);
                    return Err(EngineError { detail, ..error });
                }
            }
        }
        let detail = match refused.split_first() {
            Some((first, rest)) => format!(
                "the engine says that all of {} names, {first} to {}, are taken: set `name`",
                refused.len(),
                rest.last().unwrap_or(first)
            ),
            None => format!("{NAMES_TRIED} names like {} are in use: set `name`", self.config.name),
        };
        Err(EngineError::absent(detail))
    }

    async fn join_and_start(&self, source: &Source, id: &str) -> Result<(), EngineError> {
        let engine = &self.containers.engine;
        for (network, settings) in &source.template.networks {
            let path = format!("/networks/{}/connect", escaped(network));
            let body = json!({ "Container": id, "EndpointConfig": settings });
            engine.ask(Method::POST, &path, Some(&body)).await?;
        }
        let path = format!("/containers/{id}/start");
        engine.ask(Method::POST, &path, None).await.map(|_| ())
    }
}

/// Some may have started before the one that did not.
fn half_done(error: &EngineError, what: &str, started: &[String]) -> TargetError {
    let mut error = error.clone();
    if !started.is_empty() {
        error.detail = format!("{}; before that {} started", error.detail, started.join(", "));
    }
    error.into_target_error(what)
}

#[async_trait]
impl Target for Docker {
    fn promise(&self) -> Promise {
        Promise::ExactVictims
    }

    fn scales(&self) -> String {
        format!("docker:{}:{}", self.containers.engine.place(), self.group)
    }

    fn runs_here(&self) -> bool {
        self.containers.engine.is_local()
    }

    fn only_look(&mut self) {
        self.containers.only_look();
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        self.done = None;
        let mut seen = self.containers.status().await?;
        // A worker may tell its queue the name of its container, which it was given for this.
        for (id, name) in self.containers.names() {
            if let Some(names) = seen.known_as.get_mut(id) {
                names.push(Identity::Hostname(name.clone()));
            }
        }
        Ok(seen)
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
