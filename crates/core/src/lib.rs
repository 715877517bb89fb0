//! The decision: how many workers should be running right now, and why.
//!
//! This crate is pure. It reads no clock, file, environment or network and draws no random
//! numbers: `now` is an argument, so the same rules, state and observation give the same decision,
//! and any recorded decision can be computed again. Start at [`decide`].
#![forbid(unsafe_code)]

pub mod alert;
mod decide;
pub mod decision;
pub mod estimate;
pub mod guard;
pub mod observation;
pub mod policy;
pub mod reading;
mod rest;
pub mod rules;
#[cfg(test)]
mod scene;
pub mod schedule;
pub mod smooth;
pub mod state;
pub mod time;
pub mod words;

pub use alert::{Alert, Alerts};
pub use decide::{Cadence, decide, wanted};
pub use decision::{Decision, Kind, Rule, Step, Why};
pub use observation::Observation;
pub use policy::Policy;
pub use reading::{FleetReading, HostReading, Missing, QueueReading, Reading, Silence};
pub use rest::rests;
pub use rules::Rules;
pub use state::{Outcome, State};
pub use time::{Span, Timestamp};
pub use words::counted;
