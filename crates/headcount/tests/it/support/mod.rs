//! What several tests share.

pub mod docker;
pub mod wait;
pub mod workers;
