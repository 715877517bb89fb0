//! Bull, the queue of n8n, in Redis.

use async_trait::async_trait;
use headcount_core::Missing;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Place;
use crate::finding::Finding;
use crate::queues::{Queue, QueueSeen};

/// How to reach a Redis.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// `redis://[user@]host:port[/db]`, `rediss://` for TLS, `unix:///path` for a socket.
    pub url: String,
}

/// A Bull queue.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BullConfig {
    /// Which Redis.
    pub redis: RedisConfig,
}

impl BullConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// See [`crate::registry`].
    pub fn open(&self, _place: &Place) -> anyhow::Result<Box<dyn Queue>> {
        Ok(Box::new(Bull))
    }
}

struct Bull;

#[async_trait]
impl Queue for Bull {
    async fn read(&mut self) -> Result<QueueSeen, Missing> {
        Ok(QueueSeen::default())
    }
    async fn check(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}
