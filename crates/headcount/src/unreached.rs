//! A server that could not be reached is left alone for a while, longer after each failure in a row.

use std::time::Duration;

use headcount_core::Missing;
use tokio::time::Instant;

use crate::limits::{RECONNECT_BACK_OFF, RECONNECT_BACK_OFF_MAX};

/// Failures in a row to reach a server, and why the last one was.
#[derive(Debug)]
pub struct Unreached {
    times: u32,
    at: Instant,
    why: Missing,
}

impl Unreached {
    /// One failure more.
    pub fn again(before: Option<&Self>, why: Missing) -> Self {
        let times = before.map_or(1, |before| before.times.saturating_add(1));
        Self { times, at: Instant::now(), why }
    }

    /// Why nothing is tried yet, as long as that is so.
    pub fn rests(&self) -> Option<&Missing> {
        (self.at.elapsed() < back_off(self.times)).then_some(&self.why)
    }
}

/// How long nothing is tried after so many failures in a row.
pub fn back_off(times: u32) -> Duration {
    RECONNECT_BACK_OFF.saturating_mul(1 << times.min(16)).min(RECONNECT_BACK_OFF_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_grows_to_its_limit() {
        assert!(back_off(1) < back_off(2));
        assert_eq!(back_off(u32::MAX), RECONNECT_BACK_OFF_MAX);
    }
}
