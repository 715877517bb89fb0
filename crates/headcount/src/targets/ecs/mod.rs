//! The tasks of an Amazon ECS service. ECS picks who goes, so tasks that hold a job are protected from
//! scale-in just before the number is lowered, and released when the job is done.

#[cfg(feature = "aws")]
mod account;
#[cfg(feature = "aws")]
mod api;
#[cfg(feature = "aws")]
mod check;
mod config;
#[cfg(feature = "aws")]
mod error;
#[cfg(feature = "aws")]
mod fleet;
#[cfg(feature = "aws")]
mod listing;
#[cfg(feature = "aws")]
mod protection;
#[cfg(feature = "aws")]
mod rights;
#[cfg(feature = "aws")]
mod scale;
#[cfg(feature = "aws")]
mod session;
#[cfg(feature = "aws")]
mod target;

pub use config::EcsConfig;

use crate::config::Place;
use crate::targets::Target;

impl EcsConfig {
    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        #[cfg(feature = "aws")]
        return Ok(Box::new(target::Ecs::open(self, place)?));
        #[cfg(not(feature = "aws"))]
        anyhow::bail!("group {}: {}", place.group, crate::registry::not_built_in("aws"))
    }
}
