//! Every limit on waits, retries, buffers and bodies, in one place.

use std::time::Duration;

/// One look at a queue or a target may take this long; then it counts as missing.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// A configuration file may be this large, bytes.
pub const CONFIG_BYTES: u64 = 1 << 20;
/// A secret file may be this large, bytes.
pub const SECRET_BYTES: u64 = 64 << 10;
/// Output of a command that is kept for messages, bytes.
pub const OUTPUT_BYTES: usize = 8 << 10;
/// Samples and events are kept this long unless configured, days.
pub const KEEP_DAYS: u32 = 30;
