//! Tests against the real thing: Redis, Docker, processes. `./test.sh` installs what they need.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop here")]

mod alerts;
mod budget;
mod bull;
mod cli;
mod compose;
mod config;
mod contract;
mod demo;
mod docker;
#[cfg(feature = "aws")]
mod ecs;
mod events;
mod fleet;
mod history;
#[cfg(feature = "kubernetes")]
mod image;
mod import;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod nomad;
mod process;
mod redis;
mod replay;
mod report;
mod script;
mod simulate;
mod support;
mod swarm;
mod tune;
mod usage;
mod webhook;
mod windmill;
mod windmill_deploy;
mod windmill_events;
mod windmill_script;
