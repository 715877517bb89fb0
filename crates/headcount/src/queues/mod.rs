//! Queues: where demand is read. A new kind is one file and one line in the list below.

pub mod bull;
pub mod demo;
pub mod redis;
pub mod windmill;

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use headcount_core::{Missing, QueueReading, Span, Timestamp};
use tokio::sync::Notify;

use crate::finding::Finding;
use crate::registry::registry;

registry! {
    /// Where demand is read.
    QueueConfig => Queue {
        /// n8n and other users of Bull, in Redis.
        Bull(bull::BullConfig),
        /// The embedded job table of `headcount demo`.
        Demo(demo::DemoConfig),
        /// Windmill, in PostgreSQL.
        Windmill(windmill::WindmillConfig),
    }
}

impl QueueConfig {
    /// The Windmill that wants to be told of changes.
    pub fn wants_events(&self) -> Option<&windmill::WindmillConfig> {
        match self {
            Self::Windmill(config) if config.write_events => Some(config),
            _ => None,
        }
    }
}

/// A source of demand.
#[async_trait]
pub trait Queue: Send {
    /// One look. Called at most once a second; connects and reconnects by itself.
    ///
    /// # Errors
    /// Why there is no credible answer. Never a guess, never zero in place of an answer.
    async fn read(&mut self) -> Result<QueueSeen, Missing>;

    /// The jobs that finished since this was last asked, where the source tells of each; for the
    /// history, so some may be missing.
    fn finished(&mut self) -> Vec<Finished> {
        Vec::new()
    }

    /// Rung when new work may have arrived, where the broker tells.
    fn wakes(&self) -> Option<Arc<Notify>> {
        None
    }

    /// What a person setting it up should know, each with its fix.
    async fn check(&mut self) -> Vec<Finding>;
}

/// What one look at a queue shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueSeen {
    /// Demand.
    pub reading: QueueReading,
    /// Who takes jobs from it; absent where the broker cannot tell.
    pub consumers: Option<Vec<Consumer>>,
}

/// A job that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// When it began to wait.
    pub came: Timestamp,
    /// When a worker began with it.
    pub started: Timestamp,
    /// When it was done.
    pub ended: Timestamp,
}

/// Somebody who takes jobs from a queue, as the broker knows them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Consumer {
    /// Names by which a target may know the same worker.
    pub known_as: Vec<Identity>,
    /// Whether they hold a job; absent when unknown, which counts as busy.
    pub busy: Option<bool>,
    /// How long their oldest job has run; absent when unknown.
    pub oldest_job: Option<Span>,
    /// They were told to go and take no more jobs.
    pub draining: bool,
    /// Whether they are connected to take jobs; absent when unknown.
    pub consuming: Option<bool>,
}

/// A name of a worker that a queue and a target may both know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Identity {
    /// A container's id, or its first twelve digits or more.
    Container(String),
    /// The name of its machine or container.
    Hostname(String),
    /// Where its connections come from.
    Peer(SocketAddr),
    /// A process, any of its process group.
    Process(u32),
    /// A name that both sides were given.
    Name(String),
}
