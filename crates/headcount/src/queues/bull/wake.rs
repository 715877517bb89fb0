//! What the queue and its workers say by themselves: a job waits, began or ended, a worker answers
//! a status request. Where Redis refuses the subscription, a light look once a second still wakes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::redis::{Msg, Pipeline, from_redis_value};
use headcount_core::reading::LIST_LIMIT;
use headcount_core::{Span, Timestamp};
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::keys::Keys;
use super::look::Raw;
use super::workers::Reply;
use crate::clock;
use crate::limits::{
    FINISHED_JOBS, MESSAGE_BYTES, REPLIES, STARTED_JOBS, STARTED_KEPT, WAITING_JOBS, WAKE_EVERY,
};
use crate::queues::Finished;
use crate::queues::redis::{Heard, Hearing, Listener, Redis, Topic};

/// Listens until it is dropped.
pub(super) struct Ears {
    listener: Listener,
    ringer: JoinHandle<()>,
    said: Arc<Said>,
}

/// What was heard and not yet looked at.
#[derive(Default)]
struct Said {
    notes: Mutex<Notes>,
    waiting: Notify,
    replied: Notify,
}

#[derive(Default)]
struct Notes {
    /// When jobs came that have not begun.
    came: HashMap<String, Timestamp>,
    /// Jobs that began and have not ended.
    started: HashMap<String, Started>,
    /// How long jobs took that ended since the last look.
    durations: Vec<Span>,
    /// All of the jobs that ended, where it is known when they came.
    finished: Vec<Finished>,
    replies: Vec<Reply>,
}

/// A job that began.
struct Started {
    at: Timestamp,
    came: Option<Timestamp>,
}

/// The message of a job's end.
#[derive(Deserialize)]
struct Ended {
    #[serde(rename = "jobId")]
    job_id: String,
}

impl Drop for Ears {
    fn drop(&mut self) {
        self.ringer.abort();
    }
}

impl Ears {
    /// Listens to the queue of `keys` and rings `wakes` when a job waits.
    pub(super) fn open(redis: &Redis, keys: &Keys, wakes: Arc<Notify>) -> Self {
        let said = Arc::new(Said::default());
        let topics = vec![
            Topic::Pattern(keys.pattern("waiting@")),
            Topic::Pattern(keys.pattern("active@")),
            Topic::Channel(keys.key("completed")),
            Topic::Channel(keys.key("failed")),
            Topic::Channel(keys.responses.clone()),
        ];
        let hears = {
            let (said, keys) = (Arc::clone(&said), keys.clone());
            move |heard: Heard<'_>| match heard {
                Heard::Connected => said.waiting.notify_one(),
                Heard::Message(message) => said.hear(&keys, message),
            }
        };
        let listener = redis.listen(topics, hears);
        let light = LightLook {
            redis: redis.clone(),
            wait: keys.wait(),
            waiting_topic: Topic::Pattern(keys.pattern("waiting@")),
            hearing: listener.hearing().clone(),
            waited: 0,
        };
        let ringer = tokio::spawn(ring(Arc::clone(&said), light, wakes));
        Self { listener, ringer, said }
    }

    /// Whether it hears.
    pub(super) fn hearing(&self) -> watch::Receiver<Hearing> {
        self.listener.hearing().clone()
    }

    /// How long the jobs took that ended since this was last asked.
    pub(super) fn durations(&self, raw: &Raw, now: Timestamp) -> Vec<Span> {
        let mut notes = self.said.notes();
        let kept = |since: Timestamp| now.since(since) < STARTED_KEPT;
        let none_waits = raw.waiting == 0 && raw.held == 0;
        notes.came.retain(|_, came| !none_waits || kept(*came));
        notes.started.retain(|id, job| kept(job.at) || raw.active.iter().any(|a| a.id == *id));
        for job in raw.active.iter().filter(|job| job.locked) {
            if let Some(at) = job.since {
                let began = Started { at, came: None };
                let known = notes.started.entry(job.id.clone()).or_insert(began);
                known.came = known.came.or(job.added);
            }
        }
        std::mem::take(&mut notes.durations)
    }

    /// The jobs that ended since this was last asked, where it is known when they came.
    pub(super) fn finished(&self) -> Vec<Finished> {
        std::mem::take(&mut self.said.notes().finished)
    }

    /// All replies heard so far that are still kept.
    pub(super) fn replies(&self) -> Vec<Reply> {
        self.said.notes().replies.clone()
    }

    /// Until the next reply comes.
    pub(super) async fn reply(&self) {
        self.said.replied.notified().await;
    }
}

impl Said {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, keys: &Keys, message: &Msg) {
        let (channel, payload) = (message.get_channel_name(), message.get_payload_bytes());
        if payload.len() > MESSAGE_BYTES {
            return;
        }
        if channel == keys.responses {
            if let Some(reply) = Reply::parse(payload, &keys.name) {
                self.notes().keep(reply);
                self.replied.notify_one();
            }
            return;
        }
        let event = channel.strip_prefix(&keys.queue).and_then(|rest| rest.strip_prefix(':'));
        match event.map(|event| event.split('@').next().unwrap_or(event)) {
            Some("waiting") => {
                self.notes().come(payload, clock::now());
                self.waiting.notify_one();
            }
            Some("active") => self.notes().start(payload, clock::now()),
            Some("completed" | "failed") => self.notes().end(payload, clock::now()),
            _ => {}
        }
    }
}

impl Notes {
    fn come(&mut self, payload: &[u8], now: Timestamp) {
        if let Ok(id) = std::str::from_utf8(payload)
            && self.came.len() < WAITING_JOBS
        {
            self.came.insert(id.to_string(), now);
        }
    }

    fn start(&mut self, payload: &[u8], now: Timestamp) {
        if let Ok(id) = std::str::from_utf8(payload) {
            let came = self.came.remove(id);
            if self.started.len() < STARTED_JOBS {
                self.started.insert(id.to_string(), Started { at: now, came });
            }
        }
    }

    fn end(&mut self, payload: &[u8], now: Timestamp) {
        if let Ok(ended) = serde_json::from_slice::<Ended>(payload)
            && let Some(Started { at, came }) = self.started.remove(&ended.job_id)
        {
            if self.durations.len() < LIST_LIMIT {
                self.durations.push(now.since(at).max(Span::ZERO));
            }
            if let Some(came) = came
                && self.finished.len() < FINISHED_JOBS
            {
                self.finished.push(Finished { came, started: at, ended: now });
            }
        }
    }

    fn keep(&mut self, reply: Reply) {
        self.replies.retain(Reply::is_kept);
        if self.replies.len() < REPLIES {
            self.replies.push(reply);
        }
    }
}

/// For a user who may not hear that a job waits.
struct LightLook {
    redis: Redis,
    wait: String,
    waiting_topic: Topic,
    hearing: watch::Receiver<Hearing>,
    /// How many waited at the last look.
    waited: u64,
}

impl LightLook {
    /// Until jobs wait where none did.
    async fn wait_grows(&mut self) {
        loop {
            let topic = &self.waiting_topic;
            let is_deaf =
                |h: &Hearing| matches!(h, Hearing::Hears { denied } if denied.contains(topic));
            if self.hearing.wait_for(is_deaf).await.is_err() {
                return std::future::pending().await;
            }
            sleep(WAKE_EVERY).await;
            let Some(now) = self.count().await else { continue };
            let before = std::mem::replace(&mut self.waited, now);
            if before == 0 && now > 0 {
                return;
            }
        }
    }

    async fn count(&self) -> Option<u64> {
        let mut pipeline = Pipeline::new();
        pipeline.cmd("LLEN").arg(&self.wait);
        let answer = self.redis.ask(&pipeline, &self.wait).await.ok()?.pop()?.ok()?;
        from_redis_value(answer).ok()
    }
}

/// Rings at once, and then not again for a while: a thousand jobs at once need one look.
async fn ring(said: Arc<Said>, mut light: LightLook, wakes: Arc<Notify>) {
    loop {
        tokio::select! {
            () = said.waiting.notified() => {}
            () = light.wait_grows() => {}
        }
        wakes.notify_one();
        sleep(WAKE_EVERY).await;
    }
}
