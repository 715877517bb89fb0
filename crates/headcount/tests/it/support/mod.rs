//! What several tests share.

pub mod wait;
pub mod workers;
