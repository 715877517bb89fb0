//! The wall clock: the one place that reads it.

use std::sync::Arc;

use headcount_core::{Span, Timestamp};

/// A wall clock; tests hand in one of their own.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The time now.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the wall clock")]
pub fn now() -> Timestamp {
    let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let millis = since_epoch.map_or(0, |d| d.as_millis());
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

/// A span as the standard library's duration; a negative one is zero.
pub fn duration(span: Span) -> std::time::Duration {
    std::time::Duration::try_from(span).unwrap_or_default()
}
