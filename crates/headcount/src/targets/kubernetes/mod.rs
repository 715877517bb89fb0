//! The pods of a Deployment, a StatefulSet, or of anything that has a scale. Kubernetes picks who
//! goes, so idle pods are made cheap to delete and busy ones dear just before the number is lowered;
//! what is deleted all the same has its grace period to finish.

#[cfg(feature = "kubernetes")]
mod access;
#[cfg(feature = "kubernetes")]
mod answers;
#[cfg(feature = "kubernetes")]
mod check;
#[cfg(feature = "kubernetes")]
mod client;
mod config;
#[cfg(feature = "kubernetes")]
mod deletion_cost;
#[cfg(feature = "kubernetes")]
mod fleet;
#[cfg(feature = "kubernetes")]
pub mod lease;
#[cfg(feature = "kubernetes")]
mod login;
#[cfg(feature = "kubernetes")]
mod pods;
#[cfg(feature = "kubernetes")]
pub mod rights;
#[cfg(feature = "kubernetes")]
mod rivals;
#[cfg(feature = "kubernetes")]
mod scale;
#[cfg(feature = "kubernetes")]
mod selector;
#[cfg(feature = "kubernetes")]
mod target;
#[cfg(feature = "kubernetes")]
mod turns;
#[cfg(feature = "kubernetes")]
mod workload;

pub use config::KubernetesConfig;

#[cfg(feature = "kubernetes")]
use target::{Kubernetes, MANAGER};

use crate::config::Place;
use crate::targets::Target;

impl KubernetesConfig {
    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        #[cfg(feature = "kubernetes")]
        return Ok(Box::new(Kubernetes::open(self, place)?));
        #[cfg(not(feature = "kubernetes"))]
        anyhow::bail!("group {}: {}", place.group, crate::registry::not_built_in("kubernetes"))
    }
}
