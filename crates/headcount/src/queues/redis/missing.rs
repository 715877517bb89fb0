//! From what a Redis or the network said to the kind of silence it means.

use std::error::Error;
use std::io;
use std::sync::Arc;

use ::redis::{ErrorKind, RedisError, ServerErrorKind};
use headcount_core::{Missing, Silence};

use crate::brief::brief;
use crate::limits::DETAIL_CHARS;

/// What `error`, met at `place`, means for a reading.
pub fn missing(error: &RedisError, place: &str) -> Missing {
    let said = brief(&error.to_string(), DETAIL_CHARS);
    Missing { why: silence(error), detail: format!("redis {place}: {said}") }
}

/// No answer came from `place` in time.
pub fn timed_out(place: &str, limit: std::time::Duration) -> Missing {
    let detail = format!("redis {place}: no answer within {} ms", limit.as_millis());
    Missing { why: Silence::Timeout, detail }
}

/// The answer of `place` makes no sense.
pub fn malformed(place: &str, what: &str) -> Missing {
    Missing { why: Silence::Malformed, detail: format!("redis {place}: {what}") }
}

/// The other side hung up.
pub(super) fn closed(place: &str) -> Missing {
    Missing {
        why: Silence::Unreachable,
        detail: format!("redis {place}: the connection was closed"),
    }
}

/// Whether the server refused because of the user's rights.
pub fn is_denied(error: &RedisError) -> bool {
    silence(error) == Silence::Denied
}

/// Whether the user is known but may not do this.
pub(super) fn lacks_right(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm)
}

/// Whether only a new connection can help.
pub(super) fn breaks_link(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => matches!(
            kind,
            // The server's role or the cluster's map changed: ask again who is who.
            ServerErrorKind::ReadOnly
                | ServerErrorKind::MasterDown
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::ClusterDown
        ),
        ErrorKind::Extension => false,
        _ => true,
    }
}

fn silence(error: &RedisError) -> Silence {
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
            Silence::Denied
        }
        ErrorKind::Io if error.is_timeout() => Silence::Timeout,
        ErrorKind::Io if error.is_connection_refusal() => Silence::Refused,
        ErrorKind::Io if io_kind(error) == Some(io::ErrorKind::PermissionDenied) => Silence::Denied,
        ErrorKind::Io | ErrorKind::ClusterConnectionNotFound => Silence::Unreachable,
        ErrorKind::MasterNameNotFoundBySentinel => Silence::NotFound,
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::TryAgain
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::ReadOnly,
        ) => Silence::Unreachable,
        _ => match error.code() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => Silence::Denied,
            // Somebody's script runs and runs.
            Some("BUSY") => Silence::Unreachable,
            // "ERR max number of clients reached"
            _ if error.to_string().contains("max number of clients") => Silence::Refused,
            _ => Silence::Malformed,
        },
    }
}

fn io_kind(error: &RedisError) -> Option<io::ErrorKind> {
    let shared = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    shared.downcast_ref::<io::Error>().map(io::Error::kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_is_the_right_silence() {
        let io = |kind| RedisError::from(io::Error::from(kind));
        let server = |code: &str| ::redis::make_extension_error(code.into(), None);
        for (error, why) in [
            (io(io::ErrorKind::ConnectionRefused), Silence::Refused),
            (io(io::ErrorKind::TimedOut), Silence::Timeout),
            (io(io::ErrorKind::HostUnreachable), Silence::Unreachable),
            (io(io::ErrorKind::PermissionDenied), Silence::Denied),
            (io(io::ErrorKind::UnexpectedEof), Silence::Unreachable),
            (server("NOAUTH"), Silence::Denied),
            (server("WRONGTYPE"), Silence::Malformed),
            (server("BUSY"), Silence::Unreachable),
            ((ErrorKind::AuthenticationFailed, "no").into(), Silence::Denied),
            ((ErrorKind::MasterNameNotFoundBySentinel, "no").into(), Silence::NotFound),
            ((ServerErrorKind::BusyLoading.into(), "loading").into(), Silence::Unreachable),
        ] {
            assert_eq!(missing(&error, "h:1").why, why, "{error}");
        }
    }

    #[test]
    fn a_long_answer_is_cut() {
        let error = RedisError::from(io::Error::other("x".repeat(10_000)));
        assert!(missing(&error, "h:1").detail.len() < 300);
    }
}
