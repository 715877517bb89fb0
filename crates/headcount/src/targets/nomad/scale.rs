//! Changing the number.
//!
//! Nomad has no request that removes a chosen allocation. What it documents: `POST
//! /v1/job/:id/scale` sets the count, and `POST /v1/allocation/:id/stop` stops an allocation and
//! gives it a successor. So to stop first and then lower the count replaces the chosen one, and then
//! takes another; the other way round is no better. What follows, in the order in which it is tried:
//!
//! 1. If the allocations that Nomad takes by itself ([`fleet::first_to_go`]) may go, only the count
//!    is lowered. That is certain.
//! 2. If only some of the first may go, the count is lowered by those; the rest is for later.
//! 3. If the very first is busy, and `require_victims` is not set, the count is lowered by one and a
//!    chosen one stopped in the same moment, for each that goes. Nomad's server writes the new count and its evaluation
//!    one after the other, but a stop together with its evaluation: a stop that comes in between is
//!    seen with the new count, and stopped allocations go before others. If it comes too late, the
//!    busy one gets its kill signal and `kill_timeout` to finish, and the chosen one a successor. The
//!    note tells who really goes.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::time::Duration;

use headcount_core::Span;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::limits::{NOMAD_FOLLOW, NOMAD_STOP_LAG, NOMAD_TIMEOUT};
use crate::targets::nomad::api::{Allocation, Deployment, Scaling, TaskGroup};
use crate::targets::nomad::client::{ApiError, Topic};
use crate::targets::nomad::fleet::{self, Role};
use crate::targets::nomad::{Known, Nomad};
use crate::targets::{Order, Scaled, TargetError};

/// One blocking query waits this long for a change.
const BLOCK: Duration = Duration::from_secs(2);

/// How the count is lowered.
#[derive(Debug, PartialEq, Eq)]
struct Shrink {
    /// Workers that remain.
    to: u32,
    /// Those that go, as far as it is certain.
    going: Vec<String>,
    /// Those that must be stopped in the same moment.
    stop: Vec<String>,
    /// Why it is not more, or not certain.
    because: Option<String>,
}

impl Nomad {
    pub(super) async fn change(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        let what = format!("scaling {} to {}", self.shown(), order.to);
        let known = self.read().await.map_err(|error| error.into_target_error(&what))?;
        let here = known.places().serving;
        let contradiction = || TargetError::Contradiction { there: here, decided_for: order.from };
        let done = self.done == Some((order.from, order.to));
        match order.to.cmp(&order.from) {
            _ if done => Ok(already(here)),
            Ordering::Equal => Ok(already(here)),
            Ordering::Greater if here >= order.to => Err(contradiction()),
            Ordering::Greater => self.grow(&known, order, &what).await,
            Ordering::Less if here < order.to => Err(contradiction()),
            Ordering::Less if here == order.to => Ok(already(here)),
            Ordering::Less => self.shrink(&known, order, &what).await,
        }
    }

    async fn grow(
        &mut self,
        known: &Known,
        order: &Order,
        what: &str,
    ) -> Result<Scaled, TargetError> {
        let count = known.places().count_to_grow(order.to, order.max);
        if known.count >= count {
            return Err(self.why_not_placed(known, what));
        }
        self.within_bounds(count, what)?;
        self.set(known, count, order, what).await?;
        self.done = Some((order.from, order.to));
        let after = self.follow(known, count).await;
        let was_there = |alloc: &&Allocation| known.allocs.iter().any(|old| old.id == alloc.id);
        let started: Vec<String> =
            after.iter().filter(|a| !was_there(a)).map(|a| a.id.clone()).collect();
        let note = match started.is_empty() {
            true => format!("asked for {} more", count - known.count),
            false => format!("started {}", names(&started, &after)),
        };
        Ok(Scaled { started, note, ..Scaled::default() })
    }

    /// As many are asked for already, but they do not serve.
    fn why_not_placed(&self, known: &Known, what: &str) -> TargetError {
        let what = what.to_owned();
        let count = known.count;
        let broken = known.allocs.iter().filter(|alloc| {
            matches!(fleet::role(alloc, known.is_batch), Role::Unfit | Role::Dead { .. })
        });
        let why: Vec<String> = broken
            .take(3)
            .map(|alloc| format!("{}: {}", alloc.name, fleet::trouble(alloc)))
            .collect();
        if why.is_empty() {
            let detail = format!(
                "{count} are asked for already, but no node has room for all of them: see `nomad \
                 job status {}`",
                self.config.job
            );
            return TargetError::NotNow { what, detail };
        }
        let why = why.join("; ");
        let detail = format!("{count} are asked for already, but not all take jobs: {why}");
        TargetError::Failed { what, detail }
    }

    async fn shrink(
        &mut self,
        known: &Known,
        order: &Order,
        what: &str,
    ) -> Result<Scaled, TargetError> {
        let not_now = |detail: String| TargetError::NotNow { what: what.to_owned(), detail };
        let plan = self.plan(known, order).map_err(not_now)?;
        let count = known.places().count_to_shrink(plan.to, known.count);
        fewer(known, count, order)?;
        self.within_bounds(count, what)?;
        let after = match plan.stop.is_empty() {
            true => {
                self.set(known, count, order, what).await?;
                self.follow(known, count).await
            }
            false => self.stop_one_by_one(known, order, &plan.stop, what).await?,
        };
        self.done = Some((order.from, order.to));
        let holds = |alloc: &Allocation| holds(alloc, known.is_batch);
        let removed: Vec<String> = known
            .allocs
            .iter()
            .filter(|old| holds(old))
            .filter(|old| after.iter().any(|new| new.id == old.id && !holds(new)))
            .map(|old| old.id.clone())
            .collect();
        let note = self.farewell(known, order, &plan, &removed);
        Ok(Scaled { removed, note, ..Scaled::default() })
    }

    /// Who goes, and how; or why nobody does.
    fn plan(&self, known: &Known, order: &Order) -> Result<Shrink, String> {
        let serving: Vec<&Allocation> =
            known.allocs.iter().filter(|alloc| serves(alloc, known.is_batch)).collect();
        let here = known.places().serving;
        let n = here.min(order.from).saturating_sub(order.to);
        // The busy map may know of others that are idle too.
        let idle = |id: &str| !order.busy.is_empty() && !order.busy.contains_key(id);
        let may_go = |id: &str| order.victims.iter().any(|victim| victim == id) || idle(id);
        let chosen: Vec<String> = order
            .victims
            .iter()
            .filter(|id| serving.iter().any(|alloc| alloc.id == **id))
            .take(n as usize)
            .cloned()
            .collect();
        if chosen.is_empty() {
            return Err(match order.victims.is_empty() {
                true => "no worker is named that may go, and none is picked blindly".into(),
                false => "none of the workers that may go is there any more".into(),
            });
        }
        let n = n.min(u32::try_from(chosen.len()).unwrap_or(u32::MAX));
        let first = |n: u32| fleet::first_to_go(&known.allocs, known.is_batch, n as usize);
        let certain = |n: &u32| first(*n).is_some_and(|ids| ids.iter().all(|id| may_go(id)));
        if let Some(most) = (1..=n).rev().find(certain) {
            let going = first(most).into_iter().flatten().map(str::to_owned).collect();
            let because = (most < n).then(|| self.in_the_way(known, most));
            return Ok(Shrink { to: here - most, going, stop: Vec::new(), because });
        }
        let to = here - n;
        if serving.iter().all(|alloc| may_go(&alloc.id)) {
            return Ok(Shrink { to, going: Vec::new(), stop: Vec::new(), because: None });
        }
        let because = self.in_the_way(known, 0);
        if self.config.require_victims {
            return Err(format!("refused, since `require_victims` is set: {because}"));
        }
        if let Some(why) = self.cut_short(known, order, n) {
            return Err(format!("{because}: {why}"));
        }
        let stop = if self.may_not_stop { Vec::new() } else { chosen };
        Ok(Shrink { to, going: Vec::new(), stop, because: Some(because) })
    }

    /// What keeps the allocation that Nomad takes after `n` others from going.
    fn in_the_way(&self, known: &Known, n: u32) -> String {
        let next = fleet::first_to_go(&known.allocs, known.is_batch, n as usize + 1);
        let next = next.and_then(|ids| ids.last().copied());
        let name = next.and_then(|id| known.allocs.iter().find(|alloc| alloc.id == id));
        match name {
            Some(alloc) => format!("Nomad takes {} first, which may not go", alloc.name),
            None => "whom Nomad takes first is not certain".into(),
        }
    }

    /// Why one of the next `n` that Nomad takes would not even have as long to finish its job as that
    /// has run already.
    fn cut_short(&self, known: &Known, order: &Order, n: u32) -> Option<String> {
        let grace = grace(self.group()?);
        let next = fleet::first_to_go(&known.allocs, known.is_batch, n as usize);
        let ages = order.busy.iter().filter(|(id, _)| match &next {
            Some(next) => next.contains(&id.as_str()),
            None => true,
        });
        let age = ages.filter_map(|(_, age)| *age).max()?;
        (age > grace).then(|| {
            let age = Span::from_secs(age.as_secs());
            format!(
                "its job has run for {age:#}, and it would have {grace:#} to finish; set a longer \
                 `kill_timeout`"
            )
        })
    }

    fn farewell(&self, known: &Known, order: &Order, plan: &Shrink, removed: &[String]) -> String {
        let all = &known.allocs;
        let grace = self.group().map(grace);
        let grace = grace.map_or(String::new(), |grace| format!(", with {grace:#} to finish"));
        let mut note = match removed.is_empty() {
            true if plan.going.is_empty() => "Nomad has not said yet who goes".into(),
            true => format!("{} will go{grace}", names(&plan.going, all)),
            false => format!("{} told to go{grace}", names(removed, all)),
        };
        if let Some(because) = plan.because.as_ref().filter(|_| plan.stop.is_empty()) {
            note += &format!("; {because}");
        }
        let wrong: Vec<String> = removed
            .iter()
            .filter(|id| !plan.going.contains(id) && !order.victims.contains(id))
            .cloned()
            .collect();
        if !wrong.is_empty() {
            let wrong = names(&wrong, all);
            tracing::warn!(
                group = self.owner,
                "Nomad took {wrong} instead of the chosen ones; `require_victims: true` would wait"
            );
            note += &format!("; Nomad took {wrong} instead of the chosen");
        }
        if self.may_not_stop && plan.because.is_some() {
            note += "; the ACL token lacks `alloc-lifecycle`, so that nobody could be chosen";
        }
        note
    }

    /// The group as the job has it.
    pub(super) fn group(&self) -> Option<&TaskGroup> {
        self.job.as_ref()?.group(&self.config.group)
    }

    /// Nomad refuses a count outside of the group's `scaling` block; it is told by its key here.
    fn within_bounds(&self, count: u32, what: &str) -> Result<(), TargetError> {
        let Some(Scaling { min, max, .. }) = self.group().and_then(|group| group.scaling) else {
            return Ok(());
        };
        let outside = min.is_some_and(|min| count < min) || max.is_some_and(|max| count > max);
        if !outside {
            return Ok(());
        }
        let bound = |bound: Option<u32>| bound.map_or("any".into(), |n| n.to_string());
        let detail = format!(
            "a count of {count} is outside of the `scaling` block of the group, {} to {}: change \
             it, or `workers` in the configuration",
            bound(min),
            bound(max)
        );
        Err(TargetError::Failed { what: what.into(), detail })
    }

    /// Sets the count, unless somebody else changed the job since it was read.
    async fn set(
        &self,
        known: &Known,
        count: u32,
        order: &Order,
        what: &str,
    ) -> Result<(), TargetError> {
        match self.post_count(known, count, order, what).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.refusal(error, what).await),
        }
    }

    async fn post_count(
        &self,
        known: &Known,
        count: u32,
        order: &Order,
        what: &str,
    ) -> Result<IgnoredAny, ApiError> {
        let body = json!({
            "Count": count,
            "Target": { "Group": self.config.group },
            "Message": format!("headcount: {}", order.reason),
            "Error": false,
            "PolicyOverride": self.config.policy_override,
            // Without it Nomad does not look at the index.
            "EnforceIndex": true,
            "JobModifyIndex": known.job_modify_index,
            "Meta": {
                "headcount_group": order.group,
                "headcount_kind": order.kind.name(),
                "headcount_from": order.from,
                "headcount_to": order.to,
                "headcount_token": order.token,
            },
        });
        let topic = Topic { what, needs: "scale-job" };
        self.client.post(&["job", &self.config.job, "scale"], &body, NOMAD_TIMEOUT, topic).await
    }

    /// Lowers the count by one and stops a chosen one in the same moment, for each of them: of two
    /// stops Nomad may see only one in time. Ends early where Nomad took somebody else, or where a
    /// deployment has begun. Returns what the allocations are then.
    async fn stop_one_by_one(
        &mut self,
        known: &Known,
        order: &Order,
        stop: &[String],
        what: &str,
    ) -> Result<Vec<Allocation>, TargetError> {
        let mut after = known.allocs.clone();
        for (round, id) in stop.iter().enumerate() {
            let deployed = self.deployment().await.is_ok_and(|last| last.is_active());
            if deployed && round > 0 {
                break;
            }
            if deployed {
                // The stop alone would only replace the chosen one.
                return Err(self.deployed(what).await);
            }
            let now = match round {
                0 => known,
                _ => &self.read().await.map_err(|error| error.into_target_error(what))?,
            };
            let places = now.places();
            let count = places.count_to_shrink(places.serving.saturating_sub(1), now.count);
            match fewer(now, count, order) {
                Err(_) if round > 0 => break,
                checked => checked?,
            }
            match self.set_and_stop(now, count, order, id, what).await {
                // Some went already.
                Err(TargetError::NotNow { .. }) if round > 0 => break,
                answer => answer?,
            }
            after = self.follow(now, count).await;
            let gone = after.iter().any(|a| a.id == *id && !holds(a, known.is_batch));
            let replaced = after.iter().any(|a| !now.allocs.iter().any(|old| old.id == a.id));
            if !gone || replaced || self.may_not_stop {
                break;
            }
        }
        Ok(after)
    }

    async fn set_and_stop(
        &mut self,
        known: &Known,
        count: u32,
        order: &Order,
        id: &str,
        what: &str,
    ) -> Result<(), TargetError> {
        let stop = async {
            sleep(NOMAD_STOP_LAG).await;
            self.stop(id).await
        };
        let (set, stopped) = tokio::join!(self.post_count(known, count, order, what), stop);
        if let Err(error) = set {
            return Err(match self.refusal(error, what).await {
                TargetError::NotNow { what, detail } if stopped.is_ok() => {
                    let detail =
                        format!("{detail}; the chosen allocation was stopped, and replaced");
                    TargetError::Failed { what, detail }
                }
                refusal => refusal,
            });
        }
        if let Err(error) = stopped {
            tracing::warn!(group = self.owner, %error, "the chosen allocation was not stopped");
            self.may_not_stop |= error.is(403);
        }
        Ok(())
    }

    async fn stop(&self, id: &str) -> Result<IgnoredAny, ApiError> {
        let what = format!("stopping allocation {id}");
        let topic = Topic { what: &what, needs: "alloc-lifecycle" };
        self.client.post(&["allocation", id, "stop"], &json!({}), NOMAD_TIMEOUT, topic).await
    }

    async fn refusal(&self, error: ApiError, what: &str) -> TargetError {
        if error.is_deployment() {
            return self.deployed(what).await;
        }
        if error.is_conflict() {
            let detail = "somebody else changed the job in the same moment".into();
            return TargetError::Failed { what: what.into(), detail };
        }
        error.into_target_error(what)
    }

    /// Why nothing is scaled during a deployment, and what would help.
    async fn deployed(&self, what: &str) -> TargetError {
        let state = match self.deployment().await {
            Ok(last) if last.is_active() => {
                format!("one is {} ({})", last.status, last.status_description)
            }
            Ok(_) => "it has just ended".into(),
            Err(_) => "one is under way".into(),
        };
        let detail = format!(
            "Nomad does not scale during a deployment, and {state}: it is tried again at each look; \
             `nomad job deployments {}` tells what it waits for, and `update {{ max_parallel = 0 }}` \
             in the group avoids deployments",
            self.config.job
        );
        TargetError::NotNow { what: what.into(), detail }
    }

    /// The job's latest deployment.
    async fn deployment(&self) -> Result<Deployment, ApiError> {
        let topic = Topic { what: "reading the deployment", needs: "read-job" };
        let path = ["job", &self.config.job, "deployment"];
        let answer =
            self.client.get::<Option<Deployment>>(&path, &[], NOMAD_TIMEOUT, topic).await?;
        Ok(answer.value.unwrap_or_default())
    }

    /// The allocations as soon as Nomad has carried out the change, or what they are by then.
    async fn follow(&self, known: &Known, count: u32) -> Vec<Allocation> {
        let start = Instant::now();
        let (mut allocs, mut index) = (known.allocs.clone(), known.index);
        while let Some(left) = NOMAD_FOLLOW.checked_sub(start.elapsed()) {
            let Ok((now, at)) = self.allocations(Some((index, left.min(BLOCK)))).await else {
                break;
            };
            (allocs, index) = (now, at.max(1));
            let held = allocs.iter().filter(|alloc| holds(alloc, known.is_batch)).count();
            if held == count as usize {
                break;
            }
            sleep(Duration::from_millis(20)).await;
        }
        allocs
    }
}

/// How long a worker of the group may take to finish: the delay before its kill signal, and the
/// shortest time after it.
pub(super) fn grace(group: &TaskGroup) -> Span {
    let nanos = |nanos: Option<i64>| Span::from_nanos(nanos.unwrap_or(0).max(0));
    let tasks = group.tasks.iter().flatten().filter(|task| task.lifecycle.is_none());
    let of_tasks = tasks.map(|task| {
        nanos(task.kill_timeout.or(Some(5_000_000_000))).saturating_add(nanos(task.shutdown_delay))
    });
    of_tasks.min().unwrap_or(Span::ZERO).saturating_add(nanos(group.shutdown_delay))
}

/// A count that is no lower than the one that is set removes nobody: somebody else has lowered it.
fn fewer(known: &Known, count: u32, order: &Order) -> Result<(), TargetError> {
    match count < known.count {
        true => Ok(()),
        false => Err(TargetError::Contradiction { there: known.count, decided_for: order.from }),
    }
}

fn already(here: u32) -> Scaled {
    Scaled { note: format!("already {here}"), ..Scaled::default() }
}

fn serves(alloc: &Allocation, is_batch: bool) -> bool {
    matches!(fleet::role(alloc, is_batch), Role::Starts | Role::Serves)
}

fn holds(alloc: &Allocation, is_batch: bool) -> bool {
    !matches!(fleet::role(alloc, is_batch), Role::Leaves | Role::Gone)
}

/// The names of these allocations with their short ids, each once.
fn names(ids: &[String], all: &[Allocation]) -> String {
    let mut told = HashSet::new();
    let named = all.iter().filter(|alloc| ids.contains(&alloc.id) && told.insert(&alloc.id));
    let short = |id: &str| id.get(..8).unwrap_or(id).to_owned();
    let named = named.map(|alloc| format!("{} ({})", alloc.name, short(&alloc.id)));
    named.collect::<Vec<_>>().join(", ")
}
