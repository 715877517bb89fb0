//! What several tests share.

pub mod browser;
pub mod daemon;
pub mod docker;
pub mod redis;
pub mod run;
pub mod wait;
pub mod workers;
