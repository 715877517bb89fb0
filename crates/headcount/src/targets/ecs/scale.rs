//! Changing the number. Nothing else of the service is named in the request, so that its capacity
//! providers, its deployment and its task definition stay as they are.

use std::cmp::Ordering;

use serde_json::json;
use tokio::time::Instant;

use crate::clock::now;
use crate::limits::AWS_TIMEOUT;
use crate::targets::ecs::api::{Service, Task, Updated};
use crate::targets::ecs::error::ApiError;
use crate::targets::ecs::fleet::{finds_no_room, in_order};
use crate::targets::ecs::protection::Unprotected;
use crate::targets::ecs::session::Api;
use crate::targets::ecs::target::Ecs;
use crate::targets::{Order, Scaled, TargetError};

impl Ecs {
    pub(super) async fn change(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        let until = Instant::now() + AWS_TIMEOUT;
        let what = format!("scaling {} to {}", self.shown(), order.to);
        let known = match &self.last {
            Some(known) => known.clone(),
            None => self.look_again(until).await.map_err(|e| e.into_target_error(&what))?,
        };
        let here = known.desired_count;
        let contradiction = || TargetError::Contradiction { there: here, decided_for: order.from };
        let done = self.done == Some((order.from, order.to)) && here == order.to;
        match order.to.cmp(&order.from) {
            _ if done => Ok(already(here)),
            Ordering::Equal => Ok(already(here)),
            Ordering::Greater if here >= order.to => {
                Err(self.places_are_held(&known, order).unwrap_or_else(contradiction))
            }
            Ordering::Less if here < order.to => Err(contradiction()),
            Ordering::Less if here == order.to => Ok(already(here)),
            Ordering::Greater => {
                self.set(order, &what, until).await?;
                let more = order.to - here;
                Ok(Scaled { note: format!("asked for {more} more"), ..Scaled::default() })
            }
            Ordering::Less => self.shrink(&known, order, &what, until).await,
        }
    }

    /// The service and its tasks, after a change or before the first look.
    async fn look_again(&mut self, until: Instant) -> Result<Service, ApiError> {
        let service = self.describe(until).await?;
        let Self { listing, account, config, .. } = &mut *self;
        match listing.refresh(account, config, &service, until).await {
            Err(error) if error.is_denied() => self.lists_tasks = false,
            listed => drop(listed?),
        }
        Ok(service)
    }

    /// More was asked for already, but some of it takes no jobs.
    fn places_are_held(&self, known: &Service, order: &Order) -> Option<TargetError> {
        let here = known.desired_count;
        let sick = |task: &&Task| task.runs() && task.health_status == "UNHEALTHY";
        let sick = self.listing.tasks.iter().filter(sick);
        let mut why: Vec<String> =
            sick.map(|t| format!("{} is unhealthy", t.id())).take(3).collect();
        let failure = known.failure(now());
        // Room for them may come at any time.
        let passes = why.is_empty() && failure.as_deref().is_some_and(finds_no_room);
        why.extend(failure);
        if why.is_empty() || order.from >= here {
            return None;
        }
        let why = why.join("; ");
        let detail = format!("{here} are asked for already, but not all take jobs: {why}");
        let what = format!("scaling {} to {}", self.shown(), order.to);
        Some(match passes {
            true => TargetError::NotNow { what, detail },
            false => TargetError::Failed { what, detail },
        })
    }

    async fn shrink(
        &mut self,
        known: &Service,
        order: &Order,
        what: &str,
        until: Instant,
    ) -> Result<Scaled, TargetError> {
        let unprotected = self.steer(order, what, until).await?;
        if self.config.require_victims
            && let Some(why) = &unprotected
        {
            let detail = format!("refused, since `require_victims` is set: {why}");
            return Err(TargetError::NotNow { what: what.into(), detail });
        }
        let go = known.desired_count.saturating_sub(order.to) as usize;
        let order_of_leave =
            in_order(known, &self.listing.tasks, |task| self.protection.holds(task));
        let may_go: Vec<String> = order_of_leave
            .iter()
            .filter(|task| !self.protection.holds(task))
            .map(|task| task.id().to_owned())
            .collect();
        self.set(order, what, until).await?;
        let certain = unprotected.is_none() && may_go.len() == go;
        let note = match unprotected {
            Some(why) => format!("ECS picks who goes: {why}"),
            None if certain => format!("{} will go", may_go.join(", ")),
            None if may_go.len() < go => {
                format!(
                    "ECS picks who goes: {} of its tasks are known to hold no job",
                    may_go.len()
                )
            }
            None => format!("ECS picks {go} of the {} that hold no job", may_go.len()),
        };
        let removed = if certain { may_go } else { Vec::new() };
        Ok(Scaled { removed, note, ..Scaled::default() })
    }

    /// Protects whoever must not go, and releases whoever may. Why that did not work, if so.
    async fn steer(
        &mut self,
        order: &Order,
        what: &str,
        until: Instant,
    ) -> Result<Option<String>, TargetError> {
        if !self.config.protect {
            return Ok(Some("`protect` is off".into()));
        }
        if !self.lists_tasks {
            return Ok(Some("its tasks cannot be listed".into()));
        }
        let busy = |id: &&String| order.busy.contains_key(*id);
        self.sacrificed = order.victims.iter().filter(busy).cloned().collect();
        self.let_go(&order.victims, until).await;
        let all = self.config.require_victims;
        let stays = |task: &&Task| {
            let id = task.id();
            let chosen = order.victims.iter().any(|victim| victim == id);
            task.is_active() && !chosen && (all || order.busy.contains_key(id))
        };
        let staying = self.listing.tasks.iter().filter(stays);
        let staying: Vec<String> = staying.map(|task| task.id().to_owned()).collect();
        if let Some(why) = self.protection.lacks.clone() {
            return Ok(Some(why));
        }
        let protected = match self.protect(&staying, until).await {
            Ok(without) => self.that_stay(without, until).await,
            Err(error) => Err(error),
        };
        match protected {
            Ok(_) if self.protection.lacks.is_some() => {
                let why = self.protection.lacks.clone();
                self.cannot_protect(why.as_deref().unwrap_or_default());
                Ok(why)
            }
            Ok(mut without) => {
                without.retain(|task| all || self.runs(&task.id));
                if without.is_empty() {
                    return Ok(None);
                }
                let ids: Vec<&str> = without.iter().map(|task| task.id.as_str()).collect();
                let detail = format!("{} could not be protected", ids.join(", "));
                let what = what.into();
                Err(match without.iter().all(Unprotected::may_pass) {
                    true => TargetError::NotNow { what, detail },
                    false => TargetError::Failed { what, detail },
                })
            }
            Err(error) => {
                let lacks = error.is_unknown_action()
                    || (error.is_nameless() && self.account.is_stand_in().await);
                if !lacks && !error.is_denied() {
                    return Err(error.into_target_error(what));
                }
                let why = format!("tasks cannot be protected ({error})");
                // A permission may come; an action that is not there will not.
                if lacks {
                    self.protection.lacks = Some(why.clone());
                }
                self.cannot_protect(&why);
                Ok(Some(why))
            }
        }
    }

    /// Whether it ran at the last look. One that does not run yet, and cannot be protected, holds no job.
    fn runs(&self, id: &str) -> bool {
        self.listing.tasks.iter().any(|task| task.id() == id && task.runs())
    }

    /// Warns once; scaling goes on.
    fn cannot_protect(&mut self, why: &str) {
        if !std::mem::replace(&mut self.warned_of_protection, true) {
            let shown = self.shown();
            tracing::warn!(
                group = self.group,
                "{why}: ECS picks who goes when {shown} shrinks, idle or not; busy ones finish \
                 within their stopTimeout"
            );
        }
    }

    async fn set(&mut self, order: &Order, what: &str, until: Instant) -> Result<(), TargetError> {
        let input = json!({
            "cluster": self.config.cluster,
            "service": self.config.service,
            "desiredCount": order.to,
        });
        // It may be done even if the answer is lost: look before the next try.
        self.last = None;
        let answer = self.account.call(Api::Ecs, "UpdateService", &input, until).await;
        let Updated { service } = answer.map_err(|error| error.into_target_error(what))?;
        if service.desired_count != order.to {
            let detail = format!("ECS answers that {} are asked for", service.desired_count);
            return Err(TargetError::Failed { what: what.into(), detail });
        }
        self.done = Some((order.from, order.to));
        Ok(())
    }
}

fn already(number: u32) -> Scaled {
    Scaled { note: format!("{number} are asked for already"), ..Scaled::default() }
}
