//! What several tests share.

pub mod browser;
pub mod certificates;
#[cfg(any(feature = "aws", feature = "kubernetes"))]
pub mod control_plane;
pub mod daemon;
pub mod docker;
#[cfg(feature = "aws")]
pub mod ecs_api;
#[cfg(feature = "aws")]
pub mod emulators;
pub mod hook;
#[cfg(feature = "kubernetes")]
pub mod kube_api;
pub mod log;
pub mod looks;
pub mod nomad_api;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod run;
pub mod server;
pub mod services;
pub mod wait;
pub mod windmill;
pub mod windmill_api;
pub mod workers;
