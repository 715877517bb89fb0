//! Bull, the queue of n8n, in Redis. One look is one round trip: what the queue holds, a request to
//! all workers to say what they run, and the list of connections, which tells who waits for a job.

mod check;
mod keys;
mod look;
mod memory;
mod neighbours;
mod wake;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, Pipeline, cmd};
use async_trait::async_trait;
use headcount_core::{Missing, Silence};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::clock;
use crate::config::Place;
use crate::finding::Finding;
use crate::limits::{FIRST_HEARING, LOOK_TIMEOUT};
use crate::queues::redis::{Answer, Redis, RedisConfig, missing};
use crate::queues::{Finished, Queue, QueueSeen};
use keys::Keys;
use look::Raw;
use memory::Memory;
use neighbours::Neighbours;
use wake::Ears;
use workers::Workers;

/// A Bull queue, as n8n makes it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BullConfig {
    /// Which Redis.
    pub redis: RedisConfig,
    /// What all keys begin with: `bull`, or n8n's `QUEUE_BULL_PREFIX`. In a cluster it becomes the
    /// hash tag `{bull}`, as n8n does it.
    pub prefix: String,
    /// The queue's name: `jobs`.
    pub queue: String,
    /// What n8n's own channels begin with: `n8n`, or its `N8N_REDIS_KEY_PREFIX`.
    pub n8n_prefix: String,
    /// Jobs one worker runs at once, n8n's concurrency; as `workers.slots` unless given. More than
    /// one make a free slot no proof that the worker is idle.
    pub slots: Option<u32>,
}

struct Bull {
    redis: Redis,
    keys: Keys,
    memory: Memory,
    workers: Workers,
    neighbours: Neighbours,
    wakes: Arc<Notify>,
    /// Who listens; from the first look on.
    ears: Option<Ears>,
    refused: Refused,
}

/// What the user may not do, as Redis said it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Refused {
    script: Option<String>,
    status_request: Option<String>,
    clients: Option<String>,
}

/// What one look brought, before it is understood.
struct Trip {
    raw: Raw,
    /// How many heard the status request.
    asked: Option<u64>,
    /// The connections to all masters, where the user may see them.
    clients: Option<String>,
    /// When the question was sent.
    sent: Instant,
}

impl Default for BullConfig {
    fn default() -> Self {
        Self {
            redis: RedisConfig::default(),
            prefix: "bull".into(),
            queue: "jobs".into(),
            n8n_prefix: "n8n".into(),
            slots: None,
        }
    }
}

impl BullConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found: Vec<_> = self
            .redis
            .problems()
            .into_iter()
            .map(|(k, what)| (format!("redis.{k}"), what))
            .collect();
        for (key, name) in
            [("prefix", &self.prefix), ("queue", &self.queue), ("n8n_prefix", &self.n8n_prefix)]
        {
            if name.is_empty() {
                found.push((key.into(), "is empty; leave it out for n8n's default".into()));
            }
        }
        let tagged = self.prefix.contains('{') || self.queue.contains('{');
        if self.redis.is_cluster() && tagged && keys::hash_tag(&self.prefix).is_none() {
            let what = "must hold a whole hash tag like {bull}, or no brace at all";
            found.push(("prefix".into(), what.into()));
        }
        if self.slots == Some(0) {
            found.push(("slots".into(), "must be at least 1".into()));
        }
        found
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Queue>> {
        let redis = Redis::open(&self.redis, &place.base_dir)?;
        let keys = Keys::new(self, redis.is_cluster());
        Ok(Box::new(Bull {
            workers: Workers::new(&keys, self.slots.unwrap_or(1), redis.is_cluster()),
            neighbours: Neighbours::default(),
            memory: Memory::default(),
            wakes: Arc::new(Notify::new()),
            ears: None,
            refused: Refused::default(),
            redis,
            keys,
        }))
    }
}

#[async_trait]
impl Queue for Bull {
    async fn read(&mut self) -> Result<QueueSeen, Missing> {
        let limit = LOOK_TIMEOUT - Duration::from_millis(200);
        timeout(limit, self.look())
            .await
            .unwrap_or_else(|_| Err(crate::queues::redis::timed_out(self.redis.place(), limit)))
    }

    fn finished(&mut self) -> Vec<Finished> {
        self.ears.as_ref().map(Ears::finished).unwrap_or_default()
    }

    fn wakes(&self) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.wakes))
    }

    async fn check(&mut self) -> Vec<Finding> {
        self.findings().await
    }
}

impl Bull {
    async fn look(&mut self) -> Result<QueueSeen, Missing> {
        self.listen().await;
        let trip = self.ask().await?;
        let (at, now) = (Instant::now(), clock::now());
        if !trip.raw.exists() && !self.workers.are_connected(trip.clients.as_deref()) {
            let others = self.neighbours.find(&self.redis, &self.keys, at).await;
            if !others.is_empty() {
                return Err(self.wrong_key(&others));
            }
        }
        let ears = self.ears.as_ref().expect("`listen` made it");
        let mut reading = self.memory.reading(&trip.raw, &self.keys.queue, now, at);
        reading.durations = ears.durations(&trip.raw, now);
        let consumers = self.workers.seen(&trip, &reading, ears).await;
        Ok(QueueSeen { reading, consumers })
    }

    /// Starts to listen at the first look, and then waits a moment: what is said before is lost.
    async fn listen(&mut self) {
        if self.ears.is_none() {
            let ears = Ears::open(&self.redis, &self.keys, Arc::clone(&self.wakes));
            let mut hearing = ears.hearing();
            let news = hearing.wait_for(|h| *h != crate::queues::redis::Hearing::NotYet);
            let _ = timeout(FIRST_HEARING, news).await;
            self.ears = Some(ears);
        }
    }

    /// The one round trip.
    async fn ask(&mut self) -> Result<Trip, Missing> {
        let scripted = self.refused.script.is_none();
        let wait = self.keys.wait();
        let mut pipeline = Pipeline::new();
        let sent = Instant::now();
        if scripted {
            pipeline.add_command(look::script(&self.keys, clock::now()));
        }
        pipeline.add_command(self.workers.request());
        let clients_due = self.workers.are_clients_due(sent);
        let in_pipeline = clients_due && !self.redis.is_cluster();
        if in_pipeline {
            pipeline.add_command(client_list());
        }
        let by_node = async {
            match clients_due && self.redis.is_cluster() {
                true => self.redis.ask_masters(&client_list()).await.unwrap_or_default(),
                false => Vec::new(),
            }
        };
        let (answers, mut clients) = tokio::join!(self.redis.ask(&pipeline, &wait), by_node);
        let mut answers = answers?.into_iter();
        let looked = if scripted { answers.next() } else { None };
        let asked = answers.next();
        clients.extend(answers);
        let asked = self.note_request(asked);
        let clients = self.note_clients(clients, sent);
        let raw = self.raw(looked).await?;
        Ok(Trip { raw, asked, clients, sent })
    }

    /// What the script said, or, where scripts are refused, what plain commands say.
    async fn raw(&mut self, looked: Option<Answer>) -> Result<Raw, Missing> {
        if let Some(looked) = looked {
            match looked {
                Ok(value) => return look::parse(value, self.redis.place()),
                Err(error) if look::is_refusal(&error) => {
                    let said = missing(&error, self.redis.place()).detail;
                    let raw = look::plainly(&self.redis, &self.keys, clock::now()).await?;
                    tracing::info!(queue = self.keys.queue, said, "no scripts: two round trips");
                    self.refused.script = Some(said);
                    return Ok(raw);
                }
                Err(error) => return Err(missing(&error, self.redis.place())),
            }
        }
        look::plainly(&self.redis, &self.keys, clock::now()).await
    }

    fn note_request(&mut self, answer: Option<Answer>) -> Option<u64> {
        let (receivers, refused) = match answer? {
            // A node of a cluster counts only those who listen at itself.
            Ok(_) if self.redis.is_cluster() => (Some(u64::MAX), None),
            Ok(value) => (::redis::from_redis_value(value).ok(), None),
            Err(error) => (None, Some(missing(&error, self.redis.place()).detail)),
        };
        self.refused.status_request = refused;
        receivers
    }

    fn note_clients(&mut self, answers: Vec<Answer>, at: Instant) -> Option<String> {
        if answers.is_empty() {
            return None;
        }
        let mut all = String::new();
        for answer in answers {
            match answer.and_then(|value| Ok(::redis::from_redis_value::<String>(value)?)) {
                Ok(list) => all.push_str(&list),
                Err(error) => {
                    self.refused.clients = Some(missing(&error, self.redis.place()).detail);
                    return None;
                }
            }
        }
        self.refused.clients = None;
        self.workers.note_clients_size(all.len(), at);
        Some(all)
    }

    fn wrong_key(&self, others: &[String]) -> Missing {
        let (place, queue) = (self.redis.place(), &self.keys.queue);
        let others = others.join(", ");
        let detail = format!("redis {place} has no queue {queue}; queues that exist: {others}");
        Missing { why: Silence::NotFound, detail }
    }
}

fn client_list() -> Cmd {
    let mut list = cmd("CLIENT");
    list.arg("LIST").arg("TYPE").arg("NORMAL");
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_n8n_and_only_the_url_is_missing() {
        let config = BullConfig::default();
        assert_eq!((config.prefix.as_str(), config.queue.as_str()), ("bull", "jobs"));
        let keys: Vec<_> = config.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["redis.url"]);
    }

    #[test]
    fn all_problems_at_once() {
        let config = BullConfig {
            prefix: String::new(),
            queue: String::new(),
            n8n_prefix: String::new(),
            slots: Some(0),
            ..BullConfig::default()
        };
        let keys: Vec<_> = config.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["redis.url", "prefix", "queue", "n8n_prefix", "slots"]);
    }
}
