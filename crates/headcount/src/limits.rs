//! Every limit on waits, retries, buffers and bodies, in one place.

use std::time::Duration;

/// One look at a queue or a target may take this long; then it counts as missing.
pub const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// `headcount check` waits so long for a queue or a target.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(30);
/// A configuration file may be this large, bytes.
pub const CONFIG_BYTES: u64 = 1 << 20;
/// A configuration file may be nested this deeply.
pub const CONFIG_DEPTH: usize = 32;
/// A configuration file may have this many keys and values, aliases followed.
pub const CONFIG_NODES: usize = 100_000;
/// Of the errors in a configuration file this many are shown.
pub const CONFIG_ERRORS_SHOWN: usize = 50;
/// A line of observations may be this long, bytes.
pub const OBSERVATION_BYTES: usize = 1 << 20;
/// A file of saved state may be this large, bytes.
pub const STATE_BYTES: u64 = 16 << 20;
/// A secret file may be this large, bytes.
pub const SECRET_BYTES: u64 = 64 << 10;
/// Output of a command that is kept for messages, bytes.
pub const OUTPUT_BYTES: usize = 8 << 10;
/// Samples and events are kept this long unless configured, days.
pub const KEEP_DAYS: u32 = 30;
/// Events kept in memory while the store cannot be written.
pub const BUFFERED_EVENTS: usize = 1_000;
/// Samples kept in memory while the store cannot be written.
pub const BUFFERED_SAMPLES: usize = 10_000;
/// Somebody else acts for a group: ask again after this long.
pub const STAND_BY: headcount_core::Span = headcount_core::Span::from_secs(2);
/// Between two looks at least this long passes, whatever wakes the loop.
pub const LEAST_REST: Duration = Duration::from_millis(100);
/// Ticks that a slow watcher may fall behind before it misses some.
pub const TICKS_BEHIND: usize = 1_024;
/// The store is flushed this often.
pub const FLUSH_EVERY: Duration = Duration::from_secs(2);
/// The configuration file is compared with the one in use this often.
pub const RELOAD_EVERY: Duration = Duration::from_secs(2);
/// At the end, groups may take this long beyond their targets' own limits.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Output of one worker process that is kept, bytes: this much, and once more as `.1`.
pub const WORKER_LOG_BYTES: u64 = 10 << 20;
/// Output files of workers that are gone, kept for a look at them.
pub const WORKER_LOGS: usize = 50;
/// A worker process that ends sooner than this after its start did not start well.
pub const EARLY_DEATH: Duration = Duration::from_secs(10);
/// What a worker process leaves behind in its process group gets this long after SIGTERM.
pub const LEFTOVERS_GRACE: Duration = Duration::from_secs(5);
/// A child command's output is read for this long after its end: something that it left in the
/// background may hold the pipe open for ever.
pub const LAST_WORDS: Duration = Duration::from_millis(500);
/// A request to the Docker Engine outside a look may take this long.
pub const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);
/// One look asks the Docker Engine for the details of at most this many containers.
pub const INSPECTS_PER_LOOK: usize = 32;
/// A container that was told to go is looked at this often, besides waiting for its end.
pub const DRAIN_LOOK: Duration = Duration::from_secs(10);
/// The same after an error.
pub const DRAIN_POLL: Duration = Duration::from_secs(1);
/// A command that is only asked something, its version for example, may take this long.
pub const QUERY_TIMEOUT: Duration = Duration::from_secs(20);
/// A command that ran too long and was told to end may take this long to do so.
pub const COMMAND_GRACE: Duration = Duration::from_secs(5);
