//! Logs: structured, as text or JSON, on standard error.

/// Tells a person at the terminal what went wrong, with its causes.
#[expect(clippy::print_stderr, reason = "the last word of the program, after logging may be gone")]
pub fn complain(error: &anyhow::Error) {
    eprintln!("headcount: {error:#}");
}
