//! Workers that are containers of a Docker Engine, told by their labels: looks at them, and leave
//! for chosen ones. What starts them is each target's own.

pub(in crate::targets) mod fleet;

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use headcount_core::{Missing, Silence, Span};
use tokio::time::{sleep, timeout};

use crate::clock::{duration, now};
use crate::config::Place;
use crate::limits::{INSPECTS_PER_LOOK, LOOK_TIMEOUT};
use crate::targets::containers::fleet::{Plan, Role};
use crate::targets::docker_engine::{Container, Details, Engine, EngineError, Life};
use crate::targets::drains::Drains;
use crate::targets::{FleetSeen, Order, Scaled, TargetError};

/// So many lines of a container that died are shown.
const LAST_LINES: usize = 3;

/// How long things take with the containers of a target.
#[derive(Clone, Copy)]
pub(in crate::targets) struct Times {
    /// How long one that was told to go may take.
    pub(in crate::targets) grace: Span,
    /// For how long one without a health check counts as starting.
    pub(in crate::targets) ready_after: Span,
}

/// The containers of one target.
pub(in crate::targets) struct Containers {
    pub(in crate::targets) engine: Engine,
    /// What the workers are called together, for people.
    name: String,
    /// The labels that each of them has, `name=value`.
    labels: Vec<String>,
    times: Times,
    drains: Drains,
    /// What inspections told, by container id.
    details: HashMap<String, Details>,
    /// Their names at the last look, by container id.
    names: HashMap<String, String>,
    /// Whether there was a complete look already, so that the next one can tell what is new.
    has_looked: bool,
}

impl Containers {
    /// The containers with `labels`; who was told to go is remembered at `place`.
    pub(in crate::targets) fn new(
        engine: Engine,
        name: String,
        labels: Vec<String>,
        times: Times,
        place: &Place,
    ) -> Self {
        Self {
            drains: Drains::new(engine.clone(), &place.state_dir, duration(times.grace)),
            engine,
            name,
            labels,
            times,
            details: HashMap::new(),
            names: HashMap::new(),
            has_looked: false,
        }
    }

    /// For a dry run, see [`crate::targets::Target::only_look`].
    pub(in crate::targets) fn only_look(&mut self) {
        self.drains.only_look();
    }

    /// Their names at the last look, by container id.
    pub(in crate::targets) const fn names(&self) -> &HashMap<String, String> {
        &self.names
    }

    /// All of them.
    pub(in crate::targets) async fn list(&self) -> Result<Vec<Container>, EngineError> {
        self.engine.list(self.labels.clone()).await
    }

    /// See [`crate::targets::Target::status`].
    pub(in crate::targets) async fn status(&mut self) -> Result<FleetSeen, Missing> {
        match timeout(LOOK_TIMEOUT, self.seen()).await {
            Ok(seen) => seen.map_err(EngineError::into_missing),
            Err(_) => {
                let (host, seconds) = (self.engine.host(), LOOK_TIMEOUT.as_secs());
                let detail = format!("docker at {host} did not answer in {seconds} s");
                Err(Missing { why: Silence::Timeout, detail })
            }
        }
    }

    /// The containers, and what each of them is to this target.
    pub(in crate::targets) async fn look(&mut self) -> Result<Vec<(Container, Role)>, EngineError> {
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
        self.names = listed.iter().map(|(c, _)| (c.id.clone(), c.name.clone())).collect();
        let shown = fleet::Shown {
            ready_after: self.times.ready_after,
            is_local: self.engine.is_local(),
            now: now(),
        };
        Ok(fleet::seen(&listed, &self.details, died, &shown))
    }

    /// What has to be done so that `to` workers serve.
    pub(in crate::targets) async fn plan(&mut self, to: u32) -> Result<Plan, TargetError> {
        let listed = self.look().await.map_err(failed("look at the containers"))?;
        Ok(Plan::new(&listed, to))
    }

    /// Removes what does not run: a start of the whole would start it again. What crashes again and
    /// again is told to go, to be replaced.
    pub(in crate::targets) async fn clear_the_way(
        &mut self,
        plan: &Plan,
    ) -> Result<(), TargetError> {
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
        let crashing = || plan.crashing.iter().any(|(id, _)| self.drains.sees_off(id));
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
    pub(in crate::targets) async fn scale_in(
        &mut self,
        order: &Order,
    ) -> Result<Scaled, TargetError> {
        let what = format!("scaling {} to {}", self.name, order.to);
        let refuse = |detail: String| TargetError::Failed { what: what.clone(), detail };
        if order.victims.is_empty() {
            return Err(refuse(
                "no worker is named that may go, and none is picked blindly".into(),
            ));
        }
        let listed = self.look().await.map_err(failed("look at the containers"))?;
        if let Some(left) = self.drains.unsure() {
            let detail = format!(
                "the list of draining workers is damaged: who was told to go already is not known, \
                 and nobody is told for another {} s",
                left.as_secs()
            );
            return Err(TargetError::NotNow { what, detail });
        }
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
            false => fleet::farewell(&names, self.times.grace),
        };
        Ok(scaled)
    }
}

/// As the failure of `what`.
pub(in crate::targets) fn failed(what: &str) -> impl FnOnce(EngineError) -> TargetError {
    move |error| error.into_target_error(what)
}
