//! From what a PostgreSQL or the network said to the kind of silence it means.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use headcount_core::{Missing, Silence};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use crate::brief::brief;
use crate::limits::DETAIL_CHARS;

/// What `error`, met at `place`, means for a reading.
pub(super) fn missing(error: &Error, place: &str) -> Missing {
    Missing { why: silence(error), detail: format!("postgres {place}: {}", said(error)) }
}

/// No answer came from `place` in time.
pub(super) fn timed_out(place: &str, limit: Duration) -> Missing {
    let detail = format!("postgres {place}: no answer within {} ms", limit.as_millis());
    Missing { why: Silence::Timeout, detail }
}

/// The answer of `place` makes no sense.
pub fn malformed(place: &str, what: impl std::fmt::Display) -> Missing {
    Missing { why: Silence::Malformed, detail: format!("postgres {place}: {what}") }
}

/// What the server or the network said, cut, in one line.
fn said(error: &Error) -> String {
    let said = match (error.as_db_error(), error.source()) {
        (Some(told), _) => format!("{} ({})", told.message(), told.code().code()),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    };
    let one_line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    brief(&one_line, DETAIL_CHARS)
}

/// Whether only a new connection can help.
pub(super) fn breaks_link(error: &Error) -> bool {
    error.code().is_none_or(|code| match code.code() {
        // The server's role changed: ask the other hosts too.
        "25006" => true,
        code => ["08", "53", "57P"].iter().any(|class| code.starts_with(class)),
    })
}

fn silence(error: &Error) -> Silence {
    if let Some(code) = error.code() {
        return told(code);
    }
    let mut cause = error.source();
    while let Some(source) = cause {
        if let Some(io) = source.downcast_ref::<io::Error>() {
            return match io.kind() {
                io::ErrorKind::ConnectionRefused => Silence::Refused,
                io::ErrorKind::TimedOut => Silence::Timeout,
                io::ErrorKind::PermissionDenied => Silence::Denied,
                _ => Silence::Unreachable,
            };
        }
        cause = source.source();
    }
    let text = error.to_string();
    // A password is wanted and none is given, or none of the ways to log in is known.
    if text.contains("authentication") || text.contains("configuration") {
        return Silence::Denied;
    }
    if error.is_closed() || text.contains("connecting") || text.contains("TLS") {
        return Silence::Unreachable;
    }
    Silence::Malformed
}

fn told(code: &SqlState) -> Silence {
    match code.code() {
        // Statement and lock time-out.
        "57014" | "55P03" => Silence::Timeout,
        // No such database, schema, table, column, function.
        "3D000" | "3F000" | "42P01" | "42703" | "42883" => Silence::NotFound,
        "42501" | "25006" => Silence::Denied,
        // A standby ends a query that stands in the way of what it must replay.
        "40001" => Silence::Unreachable,
        code if code.starts_with("28") => Silence::Denied,
        code if code.starts_with("53") => Silence::Refused,
        code if code.starts_with("08") || code.starts_with("57P") => Silence::Unreachable,
        _ => Silence::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_the_right_silence() {
        for (code, why) in [
            (SqlState::QUERY_CANCELED, Silence::Timeout),
            (SqlState::INVALID_PASSWORD, Silence::Denied),
            (SqlState::INSUFFICIENT_PRIVILEGE, Silence::Denied),
            (SqlState::UNDEFINED_TABLE, Silence::NotFound),
            (SqlState::UNDEFINED_COLUMN, Silence::NotFound),
            (SqlState::INVALID_CATALOG_NAME, Silence::NotFound),
            (SqlState::ADMIN_SHUTDOWN, Silence::Unreachable),
            (SqlState::CANNOT_CONNECT_NOW, Silence::Unreachable),
            (SqlState::TOO_MANY_CONNECTIONS, Silence::Refused),
            (SqlState::T_R_SERIALIZATION_FAILURE, Silence::Unreachable),
            (SqlState::SYNTAX_ERROR, Silence::Malformed),
        ] {
            assert_eq!(told(&code), why, "{code:?}");
        }
    }
}
