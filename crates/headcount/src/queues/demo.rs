//! The embedded job table of `headcount demo`.

use async_trait::async_trait;
use headcount_core::Missing;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Place;
use crate::finding::Finding;
use crate::queues::{Queue, QueueSeen};

/// A job table.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DemoConfig {}

impl DemoConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// See [`crate::registry`].
    pub fn open(&self, _place: &Place) -> anyhow::Result<Box<dyn Queue>> {
        Ok(Box::new(Demo))
    }
}

struct Demo;

#[async_trait]
impl Queue for Demo {
    async fn read(&mut self) -> Result<QueueSeen, Missing> {
        Ok(QueueSeen::default())
    }
    async fn check(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}
