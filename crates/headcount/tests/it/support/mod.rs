//! What several tests share.

pub mod docker;
pub mod run;
pub mod redis;
pub mod wait;
pub mod workers;
