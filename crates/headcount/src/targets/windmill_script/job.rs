//! One run of the script: starting the job, waiting for its end, and being sure of it.

use std::io::ErrorKind;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::WindmillScript;
use super::api::{ApiError, Ask};
use crate::limits::{WINDMILL_JOB_CANCELLED, WINDMILL_JOB_POLL, WINDMILL_JOB_POLL_MAX};
use crate::targets::assumed::brief;
use crate::targets::{Order, Scaled, TargetError, answer};

/// What Windmill tells of a job's end.
#[derive(Debug, Deserialize)]
struct End {
    completed: bool,
    success: Option<bool>,
    #[serde(default)]
    result: Value,
}

impl WindmillScript {
    /// Runs the script for `order`, to its end.
    pub(super) async fn run(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        let id = new_id();
        self.remember(Some(&id));
        let path = self.api.within(&format!("jobs/run/p/{}", self.config.path));
        let mut query = vec![("job_id", id.as_str())];
        query.extend(self.config.tag.as_deref().map(|tag| ("tag", tag)));
        let limit = self.api.limit();
        let ask = Ask { what: "starting the script", path: &path, query: &query, limit };
        let arguments = json!({
            "worker_group": self.group,
            "desired_workers": order.to,
            "reason": order.reason,
            "event_type": order.kind.event_type(order.from, order.to),
        });
        let began = Instant::now();
        if let Err(error) = self.api.post(ask, &arguments).await {
            // A refusal started nothing; anything else may have.
            if error.status.is_some_and(|status| status < 500) {
                self.remember(None);
            }
            return Err(error.into());
        }
        match self.wait(&id, began + self.timeout).await {
            Ok(Some(end)) => self.ended(&id, &end),
            Ok(None) => self.give_up(&id).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sure that the job of an earlier change has ended.
    pub(super) async fn settle(&mut self) -> Result<(), TargetError> {
        let Some(id) = self.remembered()? else { return Ok(()) };
        let end = self.end_of(&id).await?;
        if !end.completed && self.is_there(&id).await? {
            self.cancel(&id, "a later change takes its place").await?;
            if self.wait(&id, Instant::now() + WINDMILL_JOB_CANCELLED).await?.is_none() {
                return Err(TargetError::Failed {
                    what: format!("windmill script {}", self.config.path),
                    detail: format!(
                        "the job of an earlier change still runs, though it was cancelled: {}",
                        self.api.page(&id)
                    ),
                });
            }
        }
        self.remember(None);
        Ok(())
    }

    /// The job took too long.
    async fn give_up(&mut self, id: &str) -> Result<Scaled, TargetError> {
        let seconds = self.timeout.as_secs();
        let reason = format!("not finished within {seconds} s");
        let cancelled = self.cancel(id, &reason).await;
        let end = match cancelled {
            Ok(()) => self.wait(id, Instant::now() + WINDMILL_JOB_CANCELLED).await.unwrap_or(None),
            Err(_) => None,
        };
        match end {
            // It was just about to be done.
            Some(end) if end.succeeded() => self.ended(id, &end),
            end => {
                if end.is_some() {
                    self.remember(None);
                }
                let what = format!("windmill script {}: {}", self.config.path, self.api.page(id));
                Err(TargetError::Timeout { what, seconds })
            }
        }
    }

    fn ended(&mut self, id: &str, end: &End) -> Result<Scaled, TargetError> {
        self.remember(None);
        let page = self.api.page(id);
        if !end.succeeded() {
            let what = format!("windmill script {}", self.config.path);
            return Err(TargetError::Failed { what, detail: format!("{}: {page}", end.error()) });
        }
        let said = match &end.result {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut scaled = answer::done(&said);
        let separator = if scaled.note.is_empty() { "" } else { "; " };
        scaled.note.push_str(&format!("{separator}{page}"));
        Ok(scaled)
    }

    /// Asks until the job has ended; `None` if it has not by `until`.
    async fn wait(&self, id: &str, until: Instant) -> Result<Option<End>, ApiError> {
        let mut pause = WINDMILL_JOB_POLL;
        loop {
            match self.end_of(id).await {
                Ok(end) if end.completed => return Ok(Some(end)),
                // The job goes on, whoever fails to answer.
                Err(error) if error.status.is_some_and(|status| status < 500) => return Err(error),
                _ => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            sleep(pause.min(left)).await;
            pause = pause.saturating_mul(2).min(WINDMILL_JOB_POLL_MAX);
        }
    }

    async fn end_of(&self, id: &str) -> Result<End, ApiError> {
        let path = self.api.within(&format!("jobs_u/completed/get_result_maybe/{id}"));
        let (what, limit) = ("waiting for the job", self.api.limit());
        self.api.get(Ask { what, path: &path, query: &[], limit }).await
    }

    async fn is_there(&self, id: &str) -> Result<bool, ApiError> {
        let path = self.api.within(&format!("jobs_u/get/{id}"));
        let (what, limit) = ("looking for the job of an earlier change", self.api.limit());
        let ask = Ask { what, path: &path, query: &[("no_logs", "true")], limit };
        match self.api.text(ask).await {
            Ok(_) => Ok(true),
            Err(error) if error.status == Some(404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn cancel(&self, id: &str, reason: &str) -> Result<(), ApiError> {
        let path = self.api.within(&format!("jobs_u/queue/cancel/{id}"));
        let (what, limit) = ("cancelling the job", self.api.limit());
        let ask = Ask { what, path: &path, query: &[], limit };
        let reason = json!({ "reason": format!("headcount: {reason}") });
        match self.api.post(ask, &reason).await {
            // It has ended meanwhile.
            Err(error) if error.status == Some(404) => Ok(()),
            done => done.map(|_| ()),
        }
    }

    /// The job of which it is not known that it has ended.
    fn remembered(&self) -> Result<Option<String>, TargetError> {
        match std::fs::read_to_string(&self.job_file) {
            Ok(text) if is_id(text.trim()) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            other => Err(TargetError::Failed {
                what: format!("the job of an earlier change in {}", self.job_file.display()),
                detail: match other {
                    Err(error) => error.to_string(),
                    Ok(text) => format!(
                        "`{}` is no job; make sure that none runs, and delete the file",
                        brief(text.trim())
                    ),
                },
            }),
        }
    }

    /// If it cannot be written, only a crash at this moment forgets the job.
    fn remember(&self, id: Option<&str>) {
        let kept = match (id, self.job_file.parent()) {
            (Some(id), Some(folder)) => std::fs::create_dir_all(folder)
                .and_then(|()| std::fs::write(&self.job_file, format!("{id}\n"))),
            _ => std::fs::remove_file(&self.job_file),
        };
        if let Err(error) = kept.or_else(|e| if id.is_none() { Ok(()) } else { Err(e) }) {
            tracing::warn!(file = %self.job_file.display(), %error, "a job's id cannot be kept");
        }
    }
}

impl End {
    /// Before Windmill told, only an error as the result showed a failure.
    fn succeeded(&self) -> bool {
        self.completed && self.success.unwrap_or_else(|| self.result.get("error").is_none())
    }

    /// What went wrong, for people.
    fn error(&self) -> String {
        let error = self.result.get("error").unwrap_or(&self.result);
        let part = |key: &str| error.get(key).and_then(Value::as_str).unwrap_or_default();
        let said = match (part("name"), part("message")) {
            ("", "") => error.to_string(),
            ("", message) => message.to_owned(),
            (name, message) => format!("{name}: {message}"),
        };
        brief(&said.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// A new random UUID.
fn new_id() -> String {
    let bits =
        fastrand::u128(..) & !(0xf000 << 64) & !(0xc000 << 48) | (0x4000 << 64) | (0x8000 << 48);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

fn is_id(text: &str) -> bool {
    text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_random_uuids() {
        let id = new_id();
        assert!(is_id(&id), "{id}");
        assert_eq!(&id[14..15], "4", "{id}");
        assert!("89ab".contains(&id[19..20]), "{id}");
        assert_ne!(id, new_id());
    }

    #[test]
    fn an_end_says_whether_it_succeeded_and_why_not() {
        let end = |value: Value| serde_json::from_value::<End>(value).unwrap();
        assert!(end(json!({"completed": true, "success": true, "result": null})).succeeded());
        assert!(end(json!({"completed": true, "result": "done"})).succeeded());
        assert!(!end(json!({"completed": false, "success": true})).succeeded());
        let failed = json!({"completed": true, "result":
            {"error": {"name": "ExecutionErr", "message": "exit code for \"bash\" was 1:\nno access"}}});
        assert!(!end(failed.clone()).succeeded());
        assert_eq!(end(failed).error(), "ExecutionErr: exit code for \"bash\" was 1: no access");
        assert_eq!(end(json!({"completed": true, "result": {"a": 1}})).error(), r#"{"a":1}"#);
    }
}
