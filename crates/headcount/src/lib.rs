//! Headcount: decides how many queue workers should be running, makes it so, and says why.
//!
//! The way of one tick: [`group`] observes (through [`queues`], [`hosts`] and [`targets`]), asks
//! `headcount_core::decide`, records the decision in the [`store`] and lets the target act, if the
//! [`lease`] is held.

pub mod brief;
pub mod budget;
pub mod busy_map;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
pub mod demo;
pub mod finding;
pub mod group;
pub mod history;
pub mod hosts;
pub mod lease;
pub mod limits;
pub mod metrics_list;
pub mod plotly;
pub mod postgres;
pub mod queues;
pub mod registry;
pub mod regular_file;
pub mod report;
pub mod secret;
pub mod sinks;
pub mod store;
pub mod targets;
pub mod telemetry;
pub mod unreached;
pub mod usage;
pub mod web;
