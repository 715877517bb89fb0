//! The list of snapshots that the reference autoscaler keeps in Redis, for dashboards built on it.

use std::path::Path;

use headcount_core::Missing;
use redis::Pipeline;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use crate::config::MetricsList;
use crate::limits::{METRICS_LIST_TIMEOUT, WARN_EVERY};
use crate::queues::redis::{Redis, missing, timed_out};

/// One snapshot, with the reference's keys in the reference's order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Snapshot {
    /// Unix seconds.
    pub ts: f64,
    /// CPU over the last sample, percent.
    pub cpu_raw: f64,
    /// Smoothed CPU, percent.
    pub cpu_ema: f64,
    /// Workers that serve or soon will.
    pub workers: u32,
    /// Waiting jobs.
    pub waiting: u64,
    /// Active jobs.
    pub active: u64,
}

/// Writes snapshots.
pub struct MetricsListWriter {
    redis: Redis,
    key: String,
    keep: u32,
    warned: Option<Instant>,
}

impl MetricsListWriter {
    /// A writer for the list. Nothing is connected yet.
    ///
    /// # Errors
    /// A file with a secret or a certificate cannot be read.
    pub fn new(list: &MetricsList, base_dir: &Path) -> anyhow::Result<Self> {
        let redis = Redis::open(&list.redis, base_dir)?;
        Ok(Self { redis, key: list.key.clone(), keep: list.keep.max(1), warned: None })
    }

    /// Adds a snapshot and cuts the list. A failure is told in the log, at most once a minute, and
    /// changes nothing else.
    pub async fn push(&mut self, snapshot: &Snapshot) {
        let place = self.redis.place().to_string();
        let written = timeout(METRICS_LIST_TIMEOUT, self.write(snapshot)).await;
        let written = written.unwrap_or_else(|_| Err(timed_out(&place, METRICS_LIST_TIMEOUT)));
        let Err(why) = written else { return };
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            tracing::warn!(key = self.key, %why, "the list of snapshots cannot be written");
        }
    }

    async fn write(&self, snapshot: &Snapshot) -> Result<(), Missing> {
        let line = serde_json::to_string(snapshot).expect("a snapshot is plain numbers");
        let mut pipeline = Pipeline::new();
        pipeline.cmd("LPUSH").arg(&self.key).arg(line);
        pipeline.cmd("LTRIM").arg(&self.key).arg(0).arg(self.keep - 1);
        for answer in self.redis.ask(&pipeline, &self.key).await? {
            answer.map_err(|error| missing(&error, self.redis.place()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_their_order_are_those_of_the_reference() {
        let snapshot = Snapshot {
            ts: 1_793_024.5,
            cpu_raw: 41.5,
            cpu_ema: 40.0,
            workers: 2,
            waiting: 3,
            active: 1,
        };
        assert_eq!(
            serde_json::to_string(&snapshot).unwrap(),
            r#"{"ts":1793024.5,"cpu_raw":41.5,"cpu_ema":40.0,"workers":2,"waiting":3,"active":1}"#
        );
    }
}
