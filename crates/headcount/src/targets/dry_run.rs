//! DryRun.

use async_trait::async_trait;
use headcount_core::Missing;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Place;
use crate::finding::Finding;
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError};

/// DryRun.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DryRunConfig {}

impl DryRunConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// See [`crate::registry`].
    pub fn open(&self, _place: &Place) -> anyhow::Result<Box<dyn Target>> {
        Ok(Box::new(DryRun))
    }
}

struct DryRun;

#[async_trait]
impl Target for DryRun {
    fn promise(&self) -> Promise {
        Promise::NumberOnly
    }
    fn scales(&self) -> String {
        "dry_run".into()
    }
    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        Ok(FleetSeen::default())
    }
    async fn scale(&mut self, _order: &Order) -> Result<Scaled, TargetError> {
        Ok(Scaled::default())
    }
    async fn check(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}

/// Looks through `target`, but changes nothing.
pub fn over(target: Box<dyn Target>) -> Box<dyn Target> {
    target
}
