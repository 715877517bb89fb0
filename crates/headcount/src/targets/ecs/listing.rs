//! The tasks of the service, asked for only when its numbers say that there is something to learn: that
//! takes two lists and a description more. What is known of tasks that ended is kept as long as ECS
//! lists them, so that each end is told once.

use std::collections::HashSet;

use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::limits::{TASK_PAGES, TASKS_AT_REST, TASKS_IN_MOTION};
use crate::targets::ecs::account::Account;
use crate::targets::ecs::api::{Page, Service, Task, Tasks};
use crate::targets::ecs::config::EcsConfig;
use crate::targets::ecs::error::ApiError;
use crate::targets::ecs::fleet::Signs;
use crate::targets::ecs::session::Api;

/// Tasks that one `DescribeTasks` takes.
const AT_ONCE: usize = 100;
/// Descriptions that are asked for at the same time: one after the other, those of a thousand tasks
/// take longer than a look may.
const ABREAST: usize = 8;

/// What is known of the tasks.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Those that have not ended.
    pub(super) tasks: Vec<Task>,
    /// When they were asked for, and the numbers of the service then.
    last: Option<(Instant, Signs)>,
    /// Those that have ended, as far as ECS still lists them; none before the first list.
    ended: Option<HashSet<String>>,
}

impl Listing {
    /// Whether it is time to list them.
    fn is_due(&self, service: &Service) -> bool {
        let Some((at, signs)) = &self.last else { return true };
        if *signs != service.signs() {
            return true;
        }
        let active = self.tasks.iter().filter(|task| task.is_active()).count();
        let leaves = active > service.desired_count as usize;
        let in_motion = leaves || self.tasks.iter().any(Task::is_leaving);
        let some = !self.tasks.is_empty() || service.running_count > 0 || service.pending_count > 0;
        match at.elapsed() {
            age if in_motion => age >= TASKS_IN_MOTION,
            age => some && age >= TASKS_AT_REST,
        }
    }

    /// Lists them if it is time to. Those that ended since the last time, none at the first.
    ///
    /// # Errors
    /// Why they cannot be listed or described.
    pub(super) async fn refresh(
        &mut self,
        account: &Account,
        config: &EcsConfig,
        service: &Service,
        until: Instant,
    ) -> Result<Vec<Task>, ApiError> {
        if !self.is_due(service) {
            return Ok(Vec::new());
        }
        let at = Instant::now();
        let (running, stopped) = tokio::try_join!(
            list(account, config, "RUNNING", until),
            list(account, config, "STOPPED", until),
        )?;
        let is_first = self.ended.is_none();
        let mut known = self.ended.clone().unwrap_or_default();
        known.retain(|arn| stopped.contains(arn));
        let wanted: HashSet<String> = running.into_iter().chain(stopped).collect();
        let wanted: Vec<String> = wanted.difference(&known).cloned().collect();
        let tasks = describe(account, config, &wanted, until).await?;
        let (ended, tasks): (Vec<Task>, Vec<Task>) = tasks.into_iter().partition(Task::has_stopped);
        known.extend(ended.iter().map(|task| task.task_arn.clone()));
        (self.tasks, self.ended) = (tasks, Some(known));
        self.last = Some((at, service.signs()));
        Ok(if is_first { Vec::new() } else { ended })
    }

    /// Looks at these again, by id. One that has ended meanwhile is told by the next list.
    pub(super) async fn look_at(
        &mut self,
        account: &Account,
        config: &EcsConfig,
        ids: &[String],
        until: Instant,
    ) -> Result<(), ApiError> {
        let fresh = describe(account, config, ids, until).await?;
        self.tasks.retain(|task| !ids.iter().any(|id| id == task.id()));
        self.tasks.extend(fresh.into_iter().filter(|task| !task.has_stopped()));
        Ok(())
    }
}

/// The ARNs of the tasks that shall run, or shall not.
async fn list(
    account: &Account,
    config: &EcsConfig,
    desired: &str,
    until: Instant,
) -> Result<Vec<String>, ApiError> {
    let mut input = json!({
        "cluster": config.cluster,
        "serviceName": config.service_name(),
        "desiredStatus": desired,
    });
    let mut all = Vec::new();
    for _ in 0..TASK_PAGES {
        let page: Page = account.call(Api::Ecs, "ListTasks", &input, until).await?;
        all.extend(page.task_arns);
        match page.next_token.filter(|token| !token.is_empty()) {
            Some(token) => input["nextToken"] = token.into(),
            None => break,
        }
    }
    Ok(all)
}

async fn describe(
    account: &Account,
    config: &EcsConfig,
    arns: &[String],
    until: Instant,
) -> Result<Vec<Task>, ApiError> {
    let input = |some| json!({ "cluster": config.cluster, "tasks": some });
    let inputs: Vec<Value> = arns.chunks(AT_ONCE).map(input).collect();
    let ask = |input: Value| async move {
        account.call::<Tasks>(Api::Ecs, "DescribeTasks", &input, until).await
    };
    let answers: Vec<Tasks> = stream::iter(inputs).map(ask).buffered(ABREAST).try_collect().await?;
    Ok(answers.into_iter().flat_map(|answer| answer.tasks).collect())
}
