//! Which other Bull queues a Redis holds: asked only when nothing of the configured one exists,
//! which most often is a wrong prefix or name.

use ::redis::{Pipeline, cmd, from_redis_value};
use tokio::time::Instant;

use super::keys::Keys;
use crate::limits::{NEIGHBOURS, NEIGHBOURS_EVERY, SCAN_CALLS, SCAN_KEYS};
use crate::queues::redis::{Answer, Redis};

/// The queues found last.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    asked: Option<Instant>,
    found: Vec<String>,
}

impl Neighbours {
    /// The other queues, asked anew at most once a minute.
    pub(super) async fn find(&mut self, redis: &Redis, keys: &Keys, at: Instant) -> Vec<String> {
        let due = self.asked.is_none_or(|asked| at.duration_since(asked) >= NEIGHBOURS_EVERY);
        if due {
            self.asked = Some(at);
            self.found = search(redis, keys).await;
        }
        self.found.clone()
    }

    /// Asks anew at the next look.
    pub(super) fn forget(&mut self) {
        self.asked = None;
    }
}

/// Every Bull queue has a counter `prefix:name:id`. So may others: a name that is not ours must have
/// another key of Bull's beside it.
async fn search(redis: &Redis, keys: &Keys) -> Vec<String> {
    let mut names: Vec<String> = scan(redis)
        .await
        .into_iter()
        .filter_map(|key| key.strip_suffix(":id").map(str::to_string))
        .filter(|queue| *queue != keys.queue)
        .collect();
    names.sort_unstable();
    names.dedup();
    let ours = format!(":{}", keys.name);
    let (mut found, strangers): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|queue| queue.ends_with(&ours));
    if !redis.is_cluster() {
        found.extend(with_evidence(redis, strangers).await);
    }
    found.truncate(NEIGHBOURS);
    found
}

async fn scan(redis: &Redis) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor = 0_u64;
    for _ in 0..SCAN_CALLS {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg("*:*:id").arg("COUNT").arg(SCAN_KEYS);
        let answers = redis.ask_masters(&scan).await.unwrap_or_default();
        let parts: Vec<(u64, Vec<String>)> = answers.into_iter().filter_map(part).collect();
        // The cursors of several servers cannot be followed by one command.
        cursor = if let [(next, _)] = parts.as_slice() { *next } else { 0 };
        keys.extend(parts.into_iter().flat_map(|(_, keys)| keys));
        if cursor == 0 {
            break;
        }
    }
    keys
}

fn part(answer: Answer) -> Option<(u64, Vec<String>)> {
    from_redis_value(answer.ok()?).ok()
}

async fn with_evidence(redis: &Redis, mut queues: Vec<String>) -> Vec<String> {
    queues.truncate(NEIGHBOURS);
    if queues.is_empty() {
        return queues;
    }
    let mut pipeline = Pipeline::new();
    for queue in &queues {
        let evidence = pipeline.cmd("EXISTS");
        for part in
            ["wait", "active", "paused", "delayed", "completed", "failed", "meta", "stalled-check"]
        {
            evidence.arg(format!("{queue}:{part}"));
        }
    }
    let answers = redis.ask(&pipeline, "").await.unwrap_or_default();
    let is_queue = |answer: Answer| {
        answer.ok().and_then(|value| from_redis_value::<u64>(value).ok()).unwrap_or(0) > 0
    };
    queues.into_iter().zip(answers).filter(|(_, a)| is_queue(a.clone())).map(|(q, _)| q).collect()
}
