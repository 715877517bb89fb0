//! A seeded discrete-event world that drives the decision core: the code that decides here is the
//! code that runs in production.
//!
//! A [`trace`] of jobs comes to the [`world`]: a queue and the workers that a policy orders. A
//! [`run()`] polls as a policy polls, asks `headcount_core::decide`, does what it says, and gives a
//! [`score`]. The same trace, rules and seed always give the same score. Nothing here sleeps or
//! reads a clock.
#![forbid(unsafe_code)]

pub mod autoscaler;
pub mod baselines;
pub mod benchmark;
pub mod clairvoyant;
mod events;
pub mod generate;
pub mod moment;
pub mod run;
pub mod score;
pub mod search;
pub mod timeline;
pub mod trace;
pub mod world;

pub use autoscaler::{AtLeast, Autoscaler, Victims};
pub use moment::Moment;
pub use run::{Member, Stuck, in_world, run, run_recorded, run_together, run_with};
pub use score::Score;
pub use timeline::Timeline;
pub use trace::{Job, Trace, TraceError};
pub use world::WorldRules;
