//! Why a request to the engine failed: silence, refusal and absence told apart.

use std::io::ErrorKind;

use bollard::errors::Error;
use headcount_core::{Missing, Silence};

use crate::limits::ENGINE_TIMEOUT;
use crate::targets::TargetError;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct EngineError {
    /// The kind of silence it amounts to.
    pub why: Silence,
    /// The status of the engine's answer, if it answered.
    pub status: Option<u16>,
    /// What was said.
    pub detail: String,
}

impl EngineError {
    /// The engine answered with this status.
    pub(super) fn answered(status: u16, detail: String) -> Self {
        let why = match status {
            401 | 403 => Silence::Denied,
            404 => Silence::NotFound,
            _ => Silence::Malformed,
        };
        Self { why, status: Some(status), detail }
    }

    /// The engine did not answer in time.
    pub(super) fn too_slow() -> Self {
        Error::RequestTimeoutError.into()
    }

    /// Something is not there, or not as it must be.
    pub(in crate::targets) fn absent(detail: String) -> Self {
        Self { why: Silence::NotFound, status: None, detail }
    }

    /// There is nothing to connect to.
    pub(super) fn no_socket(path: &str) -> Self {
        Error::SocketNotFoundError(path.to_owned()).into()
    }

    /// The answer is not what it should be.
    pub(in crate::targets) fn not_understood(detail: impl std::fmt::Display) -> Self {
        let detail = format!("docker: the answer is not understood: {detail}");
        Self { why: Silence::Malformed, status: None, detail }
    }

    /// The same with the engine's address, if it is the engine that failed.
    pub(super) fn at(mut self, host: &str) -> Self {
        if self.status.is_none()
            && let Some(rest) = self.detail.strip_prefix("docker")
            && !rest.starts_with(" at ")
        {
            self.detail = format!("docker at {host}{rest}");
        }
        self
    }

    /// Whether there is no such thing.
    pub fn is_absent(&self) -> bool {
        self.status == Some(404)
    }

    /// As the answer of a look.
    pub fn into_missing(self) -> Missing {
        Missing { why: self.why, detail: self.detail }
    }

    /// As the failure of `what`.
    pub fn into_target_error(self, what: &str) -> TargetError {
        match self.why {
            Silence::Timeout => {
                TargetError::Timeout { what: what.into(), seconds: ENGINE_TIMEOUT.as_secs() }
            }
            Silence::Unreachable | Silence::Refused => {
                TargetError::Unreachable { back_end: "docker".into(), detail: self.detail }
            }
            _ => TargetError::Failed { what: what.into(), detail: self.detail },
        }
    }
}

impl From<Error> for EngineError {
    fn from(error: Error) -> Self {
        let (why, status) = match &error {
            Error::SocketNotFoundError(_) => (Silence::Unreachable, None),
            Error::RequestTimeoutError => (Silence::Timeout, None),
            Error::DockerResponseServerError { status_code, message } => {
                return Self::answered(*status_code, message.clone());
            }
            Error::JsonDataError { .. } | Error::JsonSerdeError { .. } => {
                (Silence::Malformed, None)
            }
            _ => (silence_of(&error), None),
        };
        let detail = match &error {
            Error::SocketNotFoundError(path) => format!("there is no docker socket at {path}"),
            Error::RequestTimeoutError => "docker did not answer in time".into(),
            _ => format!("docker: {}", root_cause(&error)),
        };
        Self { why, status, detail }
    }
}

impl From<hyper::Error> for EngineError {
    fn from(error: hyper::Error) -> Self {
        let why = silence_of(&error);
        Self { why, status: None, detail: format!("docker: {}", root_cause(&error)) }
    }
}

/// What a failure to connect amounts to.
impl From<std::io::Error> for EngineError {
    fn from(error: std::io::Error) -> Self {
        let why = silence_of_kind(error.kind()).unwrap_or(Silence::Unreachable);
        Self { why, status: None, detail: format!("docker: {error}") }
    }
}

fn silence_of(error: &dyn std::error::Error) -> Silence {
    let mut cause = error.source();
    while let Some(inner) = cause {
        let kind = inner.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        match kind.and_then(silence_of_kind) {
            Some(silence) => return silence,
            None => cause = inner.source(),
        }
    }
    Silence::Unreachable
}

fn silence_of_kind(kind: ErrorKind) -> Option<Silence> {
    match kind {
        ErrorKind::PermissionDenied => Some(Silence::Denied),
        ErrorKind::ConnectionRefused => Some(Silence::Refused),
        ErrorKind::TimedOut => Some(Silence::Timeout),
        _ => None,
    }
}

/// The innermost error: the one that says what happened.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}
