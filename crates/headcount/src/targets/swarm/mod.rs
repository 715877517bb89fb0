//! The tasks of a replicated Swarm service. Swarm is told a number and picks who goes; each that
//! goes gets its stop signal and the service's `stop_grace_period` to finish.

mod check;
mod service;
mod tasks;

use std::cmp::Ordering;
use std::collections::HashMap;

use async_trait::async_trait;
use headcount_core::{Missing, Silence, Span};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::clock::now;
use crate::config::Place;
use crate::finding::Finding;
use crate::limits::{LOOK_TIMEOUT, NEIGHBOURS, SWARM_PICKS, SWARM_POLL};
use crate::targets::containers::failed;
use crate::targets::docker_engine::{Engine, EngineError, Method, escaped};
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError};
use service::Service;
use tasks::{Memory, Shown, Task};

/// A service of a Docker Swarm.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SwarmConfig {
    /// Where a manager of the Swarm is: `unix:///path` or `tcp://host:port`. Default: the
    /// environment variable `DOCKER_HOST`, else the standard socket.
    pub host: Option<String>,
    /// The service whose tasks are the workers; of a stack, `STACK_SERVICE`. Required.
    pub service: String,
    /// Refuse to shrink while any worker may be busy: Swarm picks who goes.
    pub require_victims: bool,
    /// How long after its start a task counts as starting. One with a health check is starting
    /// until that passes.
    pub ready_after: Span,
}

/// The target.
struct Swarm {
    config: SwarmConfig,
    engine: Engine,
    /// The engine's own node in the Swarm.
    own_node: Option<String>,
    memory: Memory,
    /// The tasks at the last look.
    tasks: Vec<Task>,
    /// What the service asked for at the last look, or what we made of it.
    known: Option<u32>,
    /// The change made since the last look, by its [`Order::from`] and [`Order::to`].
    done: Option<(u32, u32)>,
    warned_of_picks: bool,
}

impl SwarmConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut bad = |key: &str, what: String| problems.push((key.to_owned(), what));
        if let Some(why) = self.host.as_deref().and_then(Engine::problem_with) {
            bad("host", why);
        }
        if self.service.is_empty() {
            bad("service", "is missing: write the name of the workers' service".into());
        } else if !self.service.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
            let name = &self.service;
            bad("service", format!("{name:?} must be letters, digits, ., - and _ only"));
        }
        let (span, day) = (self.ready_after, Span::from_hours(24));
        if span.is_negative() || span > day {
            bad("ready_after", format!("{span:#} is outside 0s to {day:#}"));
        }
        problems
    }

    /// See [`crate::registry`].
    pub fn open(&self, _place: &Place) -> anyhow::Result<Box<dyn Target>> {
        Ok(Box::new(Swarm {
            engine: Engine::new(self.host.as_deref())?,
            config: self.clone(),
            own_node: None,
            memory: Memory::default(),
            tasks: Vec::new(),
            known: None,
            done: None,
            warned_of_picks: false,
        }))
    }
}

impl Swarm {
    async fn service(&self) -> Result<Service, EngineError> {
        let path = format!("/services/{}", escaped(&self.config.service));
        let answer = self.ask(&path).await?;
        // Not the lack of an answer: the service is there, but cannot be scaled.
        Service::read(answer).map_err(EngineError::absent)
    }

    async fn tasks(&self) -> Result<Vec<Task>, EngineError> {
        let filters = json!({ "service": [self.config.service] }).to_string();
        let answer = self.ask(&format!("/tasks?filters={}", escaped(&filters))).await?;
        let tasks = serde_json::from_value::<Option<Vec<Task>>>(answer);
        tasks.map(Option::unwrap_or_default).map_err(EngineError::not_understood)
    }

    async fn ask(&self, path: &str) -> Result<Value, EngineError> {
        self.engine.ask(Method::GET, path, None).await.map_err(|error| self.explained(error))
    }

    /// An engine that is no manager says so in its own words, and with an odd status.
    fn explained(&self, error: EngineError) -> EngineError {
        if error.status != Some(503) || !error.detail.contains("swarm") {
            return error;
        }
        let host = self.engine.host();
        EngineError::absent(format!("docker at {host} is no Swarm manager: {}", error.detail))
    }

    /// The engine's own node, asked for once.
    async fn learn_own_node(&mut self) {
        if self.own_node.is_none() {
            let info = self.ask("/info").await.unwrap_or_default();
            self.own_node = info["Swarm"]["NodeID"].as_str().map(str::to_owned);
        }
    }

    fn shows(&self) -> Shown<'_> {
        Shown {
            service: &self.config.service,
            own_node: self.own_node.as_deref().filter(|_| self.engine.is_local()),
            ready_after: self.config.ready_after,
            now: now(),
        }
    }

    async fn look(&mut self) -> Result<FleetSeen, EngineError> {
        (self.known, self.done) = (None, None);
        self.learn_own_node().await;
        let (service, tasks) = tokio::join!(self.service(), self.tasks());
        let (service, mut tasks) = (service?, tasks?);
        tasks.retain(|task| task.service == service.id);
        let mut memory = std::mem::take(&mut self.memory);
        let died = memory.deaths(&tasks, &self.shows());
        self.memory = memory;
        let mut seen = tasks::seen(&tasks, &self.shows());
        seen.reading.died = died;
        seen.reading.desired = Some(service.replicas);
        self.known = Some(service.replicas);
        self.tasks = tasks;
        Ok(seen)
    }

    async fn change(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        let what = format!("scaling service {} to {}", self.config.service, order.to);
        let service = self.service().await.map_err(failed(&what))?;
        let here = service.replicas;
        let contradiction =
            Err(TargetError::Contradiction { there: here, decided_for: order.from });
        let done = self.done == Some((order.from, order.to)) && here == order.to;
        let already = Ok(Scaled { note: format!("already {here}"), ..Scaled::default() });
        if done {
            return already;
        }
        // Somebody else changed it after the look that this was decided from.
        if self.known.is_some_and(|known| known != here) {
            return contradiction;
        }
        match (order.to.cmp(&order.from), here.cmp(&order.to)) {
            (Ordering::Equal, _) => already,
            // A task that had just come up when Swarm wanted to stop it may have been passed over,
            // and Swarm does not look again until the service changes.
            (Ordering::Less, Ordering::Equal) if self.surplus(here) > 0 => {
                self.shrink(service, order, &what).await
            }
            (Ordering::Less, Ordering::Equal) => already,
            (Ordering::Greater, Ordering::Less) => self.grow(service, order, &what).await,
            (Ordering::Greater, _) => match self.places_are_held(here, order, &what) {
                Some(error) => Err(error),
                None => contradiction,
            },
            (Ordering::Less, Ordering::Greater) => self.shrink(service, order, &what).await,
            (Ordering::Less, Ordering::Less) => contradiction,
        }
    }

    /// How many tasks more than `number` Swarm wanted at the last look.
    fn surplus(&self, number: u32) -> u32 {
        let wanted = self.tasks.iter().filter(|task| task.is_wanted()).count();
        u32::try_from(wanted).unwrap_or(u32::MAX).saturating_sub(number)
    }

    /// More was asked for already, but some of it takes no jobs.
    fn places_are_held(&self, here: u32, order: &Order, what: &str) -> Option<TargetError> {
        let why = tasks::troubles(&self.tasks, &self.shows());
        if why.is_empty() || order.from >= here {
            return None;
        }
        let may_pass = why.iter().all(|trouble| trouble.may_pass);
        let why = why.into_iter().take(3).map(|trouble| trouble.says).collect::<Vec<_>>();
        let why = why.join("; ");
        let detail = format!("{here} are asked for already, but not all take jobs: {why}");
        let what = what.to_owned();
        Some(match may_pass {
            true => TargetError::NotNow { what, detail },
            false => TargetError::Failed { what, detail },
        })
    }

    async fn grow(
        &mut self,
        service: Service,
        order: &Order,
        what: &str,
    ) -> Result<Scaled, TargetError> {
        if let Some(update) = service.update_under_way().filter(|_| service.undoes_failures()) {
            let detail = format!(
                "refused while {update} of {} goes on: if it fails, Swarm would undo this change \
                 and not the update",
                service.name
            );
            return Err(TargetError::NotNow { what: what.into(), detail });
        }
        let more = order.to - service.replicas;
        self.set(&service, order, what).await?;
        let changed = self.picked(more).await;
        let started: Vec<String> = changed.1.into_iter().map(|task| task.id).collect();
        Ok(Scaled { started, note: format!("asked for {more} more"), ..Scaled::default() })
    }

    async fn shrink(
        &mut self,
        service: Service,
        order: &Order,
        what: &str,
    ) -> Result<Scaled, TargetError> {
        let refuse = |detail: String| Err(TargetError::NotNow { what: what.into(), detail });
        if let Some(update) = service.update_under_way() {
            return refuse(format!("refused while {update} of {} goes on", service.name));
        }
        let may_be_busy =
            |task: &Task| order.busy.contains_key(&task.id) && !order.victims.contains(&task.id);
        if self.config.require_victims {
            let wanted = || self.tasks.iter().filter(|task| task.is_wanted());
            if self.known.is_none() {
                return refuse("refused, since `require_victims` is set: who is busy?".into());
            }
            let busy = wanted().filter(|task| may_be_busy(task));
            let busy: Vec<String> = busy.map(|task| task.called(&service.name)).collect();
            if !busy.is_empty() {
                let (some, all) = (busy.len(), wanted().count());
                let shown = busy[..some.min(NEIGHBOURS)].join(", ");
                return refuse(format!(
                    "refused, since `require_victims` is set: {some} of {all} are busy or not \
                     known to be idle ({shown}), and Swarm picks who goes"
                ));
            }
        }
        let fewer = (service.replicas - order.to).max(self.surplus(order.to));
        self.set(&service, order, what).await?;
        let (gone, _) = self.picked(fewer).await;
        let name = |task: &Task| task.called(&service.name);
        let names: Vec<String> = gone.iter().map(name).collect();
        let busy: Vec<String> = gone.iter().filter(|task| may_be_busy(task)).map(name).collect();
        let mut note = match names.is_empty() {
            true => format!("told Swarm to stop {fewer}"),
            false => format!("Swarm chose {}", names.join(", ")),
        };
        note += &format!("; each has {:#} to finish", service.grace());
        if !busy.is_empty() {
            note += &format!("; not known to be idle: {}", busy.join(", "));
        }
        let removed = gone.into_iter().map(|task| task.id).collect();
        Ok(Scaled { removed, note, ..Scaled::default() })
    }

    /// Changes the number of the service as it was read; if it changed meanwhile in another way, of
    /// it as it is now.
    async fn set(
        &mut self,
        service: &Service,
        order: &Order,
        what: &str,
    ) -> Result<(), TargetError> {
        let mut answer = self.update(service, order.to).await;
        if answer.as_ref().is_err_and(is_conflict) {
            let again = self.service().await.map_err(failed(what))?;
            if again.replicas != service.replicas {
                let there = again.replicas;
                return Err(TargetError::Contradiction { there, decided_for: order.from });
            }
            answer = self.update(&again, order.to).await;
        }
        answer.map_err(|error| {
            let detail = match is_conflict(&error) {
                true => format!("{} is being changed by somebody else", service.name),
                false => error.detail,
            };
            EngineError { detail, ..error }.into_target_error(what)
        })?;
        (self.known, self.done) = (Some(order.to), Some((order.from, order.to)));
        Ok(())
    }

    async fn update(&self, service: &Service, replicas: u32) -> Result<(), EngineError> {
        let path = format!("/services/{}/update?version={}", service.id, service.version);
        let spec = service.with_replicas(replicas);
        let answer = self.engine.ask(Method::POST, &path, Some(&spec)).await;
        answer.map(|_| ()).map_err(|error| self.explained(error))
    }

    /// Which tasks Swarm tells to go, and which it adds, after a change by `number`; as many as it
    /// has picked within a moment.
    async fn picked(&mut self, number: u32) -> (Vec<Task>, Vec<Task>) {
        let before = self.tasks.clone();
        let deadline = Instant::now() + SWARM_PICKS;
        loop {
            let tasks = self.tasks().await.unwrap_or_else(|_| before.clone());
            let wanted = |all: &[Task], task: &Task| {
                all.iter().any(|other| other.id == task.id && other.is_wanted())
            };
            let of = |some: &[Task], others: &[Task]| -> Vec<Task> {
                let changed = some.iter().filter(|t| t.is_wanted() && !wanted(others, t));
                changed.cloned().collect()
            };
            let (gone, new) = (of(&before, &tasks), of(&tasks, &before));
            if gone.len().max(new.len()) >= number as usize || Instant::now() >= deadline {
                return (gone, new);
            }
            sleep(SWARM_POLL).await;
        }
    }
}

/// Whether somebody else changed the service since it was read.
fn is_conflict(error: &EngineError) -> bool {
    error.status == Some(409) || error.detail.contains("update out of sequence")
}

#[async_trait]
impl Target for Swarm {
    fn promise(&self) -> Promise {
        Promise::DrainedVictims
    }

    fn scales(&self) -> String {
        format!("swarm:{}:{}", self.engine.place(), self.config.service)
    }

    fn runs_here(&self) -> bool {
        let is_here = |task: &Task| self.own_node.as_ref().is_none_or(|own| task.node == *own);
        self.engine.is_local() && self.tasks.iter().filter(|t| t.is_wanted()).all(is_here)
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        match timeout(LOOK_TIMEOUT, self.look()).await {
            Ok(seen) => seen.map_err(EngineError::into_missing),
            Err(_) => {
                let (host, seconds) = (self.engine.host(), LOOK_TIMEOUT.as_secs());
                let detail = format!("docker at {host} did not answer in {seconds} s");
                Err(Missing { why: Silence::Timeout, detail })
            }
        }
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        self.change(order).await
    }

    /// Nothing to guard between two changes. The first time, what cannot be guarded is told.
    async fn watch_over(&mut self, _busy: &HashMap<String, Option<Span>>) {
        let warned = std::mem::replace(&mut self.warned_of_picks, true);
        if !warned && !self.config.require_victims {
            tracing::warn!(
                "Swarm picks who goes when {} shrinks, busy or not: a busy worker that is picked \
                 has its stop_grace_period to finish; `require_victims: true` waits until all are \
                 idle",
                self.config.service
            );
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
        let config = SwarmConfig {
            host: Some("ssh://host".into()),
            service: "a b".into(),
            ready_after: Span::from_secs(-1),
            ..SwarmConfig::default()
        };
        let keys: Vec<String> = config.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["host", "service", "ready_after"]);
        assert_eq!(SwarmConfig::default().problems()[0].0, "service");
    }
}
