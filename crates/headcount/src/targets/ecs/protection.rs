//! Protection from scale-in: ECS does not stop a protected task when the number is lowered. Set for a
//! time, so that nothing stays protected for ever, and renewed while the job lasts. What was set is kept
//! in a file: after a restart it is still ours to release.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use headcount_core::{Span, Timestamp};
use serde_json::json;
use tokio::time::Instant;

use crate::brief::brief;
use crate::clock::now;
use crate::limits::{DETAIL_CHARS, PROTECTION_TIMEOUT, TASK_PROTECTED_MINUTES, WARN_EVERY};
use crate::targets::ecs::api::{Protections, Task, short};
use crate::targets::ecs::error::ApiError;
use crate::targets::ecs::session::Api;
use crate::targets::ecs::target::Ecs;

/// Tasks that one `UpdateTaskProtection` takes.
const AT_ONCE: usize = 10;
/// Protection that ends sooner than this is renewed.
const RENEW: Span = Span::from_mins(TASK_PROTECTED_MINUTES as i64 / 2);
/// Why a task that is not there is not protected.
const MISSING: &str = "MISSING";
/// Why one that does not run yet, or not any more, is not.
const NOT_RUNNING: &str = "TASK_NOT_VALID";
/// A file with more than this is none of ours.
const FILE_BYTES: u64 = 4 << 20;

/// The tasks that we protect, by id, and until when.
#[derive(Debug)]
pub(super) struct Protection {
    file: PathBuf,
    until: BTreeMap<String, Timestamp>,
    /// It does not work here, and why.
    pub(super) lacks: Option<String>,
}

/// A task that could not be protected.
#[derive(Debug)]
pub(super) struct Unprotected {
    pub(super) id: String,
    /// As ECS names it; empty if it gives none.
    reason: String,
}

impl Unprotected {
    /// Whether the same may work a little later.
    pub(super) fn may_pass(&self) -> bool {
        [NOT_RUNNING, "DEPLOYMENT_BLOCKED"].contains(&self.reason.as_str())
    }
}

impl Protection {
    /// As kept in `state_dir`. What cannot be read is forgotten: it ends by itself.
    pub(super) fn load(state_dir: &Path) -> Self {
        let file = state_dir.join("protected-tasks.json");
        let bytes = crate::regular_file::read(&file, FILE_BYTES).unwrap_or_default();
        let until = serde_json::from_slice(&bytes).unwrap_or_default();
        Self { file, until, lacks: None }
    }

    /// Whether we protect the task now.
    pub(super) fn holds(&self, task: &Task) -> bool {
        self.until.get(task.id()).is_some_and(|until| *until > now())
    }

    /// Whether its protection lasts long enough not to be set again.
    fn lasts(&self, id: &str) -> bool {
        self.until.get(id).is_some_and(|until| until.since(now()) > RENEW)
    }

    fn keep(&self) {
        let write = || {
            self.file.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            let draft = self.file.with_extension("new");
            std::fs::write(&draft, serde_json::to_vec(&self.until).unwrap_or_default())?;
            std::fs::rename(&draft, &self.file)
        };
        if let Err(error) = write() {
            tracing::warn!(file = %self.file.display(), %error,
                "which tasks are protected cannot be kept for after a restart: they are released \
                 within {TASK_PROTECTED_MINUTES} minutes");
        }
    }
}

impl Ecs {
    /// Protects these tasks, as far as they run. Those that could not be.
    ///
    /// # Errors
    /// Why nothing is known about it.
    pub(super) async fn protect(
        &mut self,
        ids: &[String],
        until: Instant,
    ) -> Result<Vec<Unprotected>, ApiError> {
        let due: Vec<String> =
            ids.iter().filter(|id| !self.protection.lasts(id)).cloned().collect();
        let mut without = Vec::new();
        for some in due.chunks(AT_ONCE) {
            let answer = self.update_protection(some, true, until).await?;
            let end = now().plus(Span::from_mins(TASK_PROTECTED_MINUTES.into()));
            let protected = answer.protected_tasks.iter().filter(|task| task.protection_enabled);
            let protected: Vec<&str> = protected.map(|task| short(&task.task_arn)).collect();
            for id in some {
                match protected.contains(&id.as_str()) {
                    true => drop(self.protection.until.insert(id.clone(), end)),
                    false => {
                        let failure = answer.failures.iter().find(|f| short(&f.arn) == id);
                        let reason = failure.map(|f| f.reason.clone()).unwrap_or_default();
                        without.push(Unprotected { id: id.clone(), reason });
                    }
                }
            }
            // Of one that is gone there is nothing to protect.
            without.retain(|task| task.reason != MISSING);
            let reasons: Vec<String> = answer
                .failures
                .iter()
                .map(|f| format!("{}: {} {}", short(&f.arn), f.reason, f.detail))
                .collect();
            // A stand-in may accept anything and do nothing.
            if protected.is_empty() && reasons.is_empty() {
                self.protection.lacks = Some("ECS protects none of them".into());
            }
            if !reasons.is_empty() {
                let said = brief(&reasons.join("; "), DETAIL_CHARS);
                tracing::warn!(group = self.group, "not all tasks could be protected: {said}");
            }
        }
        if !due.is_empty() {
            self.protection.keep();
        }
        Ok(without)
    }

    /// Those of them that are still there: one that ends meanwhile needs no protection any more.
    ///
    /// # Errors
    /// Why nothing is known about it.
    pub(super) async fn that_stay(
        &mut self,
        mut without: Vec<Unprotected>,
        until: Instant,
    ) -> Result<Vec<Unprotected>, ApiError> {
        let unsure = without.iter().filter(|task| task.reason == NOT_RUNNING);
        let unsure: Vec<String> = unsure.map(|task| task.id.clone()).collect();
        if !unsure.is_empty() {
            let Self { listing, account, config, .. } = &mut *self;
            listing.look_at(account, config, &unsure, until).await?;
            let stays = |id: &str| listing.tasks.iter().any(|t| t.id() == id && t.is_active());
            without.retain(|task| task.reason != NOT_RUNNING || stays(&task.id));
        }
        Ok(without)
    }

    /// Releases these tasks, if it was us who protected them.
    async fn release(&mut self, ids: &[String], until: Instant) -> Result<(), ApiError> {
        let ours = |id: &&String| self.protection.until.contains_key(*id);
        let ours: Vec<String> = ids.iter().filter(ours).cloned().collect();
        for some in ours.chunks(AT_ONCE) {
            self.update_protection(some, false, until).await?;
            for id in some {
                self.protection.until.remove(id);
            }
        }
        if !ours.is_empty() {
            self.protection.keep();
        }
        Ok(())
    }

    /// Releases those that may go. Best effort: the number is lowered all the same.
    pub(super) async fn let_go(&mut self, ids: &[String], until: Instant) {
        if let Err(error) = self.release(ids, until).await {
            tracing::warn!(group = self.group, %error, "tasks could not be released: they stay \
                protected for up to {TASK_PROTECTED_MINUTES} minutes");
        }
    }

    async fn update_protection(
        &self,
        ids: &[String],
        enabled: bool,
        until: Instant,
    ) -> Result<Protections, ApiError> {
        let mut input = json!({
            "cluster": self.config.cluster,
            "tasks": ids,
            "protectionEnabled": enabled,
        });
        if enabled {
            input["expiresInMinutes"] = TASK_PROTECTED_MINUTES.into();
        }
        self.account.call(Api::Ecs, "UpdateTaskProtection", &input, until).await
    }

    /// Between two changes: releases those whose job is done and renews those whose job lasts. While
    /// there are more tasks than asked for, whoever takes a job before ECS has picked is protected
    /// too. Costs nothing while nobody is protected and nobody is to go.
    pub(super) async fn keep_promises(&mut self, busy: &HashMap<String, Option<Span>>) {
        let known = now();
        self.protection.until.retain(|_, until| *until > known);
        let tasks = &self.listing.tasks;
        let active = tasks.iter().filter(|task| task.is_active()).count();
        let shrinks = self.last.as_ref().is_none_or(|known| active > known.desired_count as usize);
        let is_due = self.tend_at.is_none_or(|at| Instant::now() >= at);
        let works = self.config.protect && self.lists_tasks && self.protection.lacks.is_none();
        if !works || !is_due || (self.protection.until.is_empty() && !shrinks) {
            return;
        }
        let running: Vec<&str> = tasks.iter().filter(|t| t.runs()).map(Task::id).collect();
        let held: Vec<String> = self.protection.until.keys().cloned().collect();
        // One that does not run any more needs no protection, and has lost it.
        self.protection.until.retain(|id, _| running.contains(&id.as_str()));
        let is_held = |id: &str| self.protection.until.contains_key(id);
        let stays = |id: &&str| {
            busy.contains_key(*id) && (is_held(id) || (shrinks && !self.sacrificed.contains(*id)))
        };
        let staying: Vec<String> =
            running.iter().copied().filter(stays).map(str::to_owned).collect();
        // Until ECS has picked, the others are what keeps it from picking anybody else.
        let all_stay = shrinks && self.config.require_victims;
        let idle = |id: &&String| !all_stay && is_held(id) && !busy.contains_key(*id);
        let idle: Vec<String> = held.iter().filter(idle).cloned().collect();
        let until = Instant::now() + PROTECTION_TIMEOUT;
        let released = self.release(&idle, until).await;
        let protected = self.protect(&staying, until).await.map(drop);
        if let Err(error) = released.and(protected) {
            let group = &self.group;
            tracing::warn!(group, %error, "tasks could not be released, or protected again");
            self.tend_at = Some(Instant::now() + WARN_EVERY);
        }
    }
}
