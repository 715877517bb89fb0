//! What the errors of AWS mean. Nothing of a credential may get into a message.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};

use headcount_core::{Missing, Silence};
use reqwest::Url;
use serde_json::Value;

use crate::brief::brief;
use crate::limits::{AWS_TIMEOUT, DETAIL_CHARS};
use crate::targets::TargetError;

/// Why AWS did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub(super) struct ApiError {
    /// The kind of silence that it means for a reading.
    pub(super) why: Silence,
    /// The name of the error, `ClusterNotFoundException`; empty if there was none.
    pub(super) code: String,
    /// The HTTP status, if there was an answer.
    pub(super) status: Option<u16>,
    /// What was said, without secrets.
    pub(super) detail: String,
}

impl ApiError {
    /// Silence without an answer.
    pub(super) fn silence(why: Silence, detail: String) -> Self {
        Self { why, code: String::new(), status: None, detail }
    }

    /// Whether AWS wants to be asked less often.
    pub(super) fn is_throttled(&self) -> bool {
        self.status == Some(429)
            || self.code.contains("Throttl")
            || ["RequestLimitExceeded", "TooManyRequestsException"].contains(&self.code.as_str())
    }

    /// Whether new credentials may help.
    pub(super) fn is_stale_login(&self) -> bool {
        ["ExpiredToken", "RequestExpired", "UnrecognizedClient", "InvalidClientTokenId"]
            .iter()
            .any(|code| self.code.starts_with(code))
    }

    /// Whether a permission is missing.
    pub(super) fn is_denied(&self) -> bool {
        self.code.starts_with("AccessDenied") || self.code == "UnauthorizedOperation"
    }

    /// Whether the other side does not know the action at all.
    pub(super) fn is_unknown_action(&self) -> bool {
        let unknown = ["UnknownOperation", "InvalidAction", "UnsupportedFeature", "NotImplemented"];
        unknown.iter().any(|code| self.code.starts_with(code))
    }

    /// Whether it is an error without a name. AWS names its errors: a stand-in that does not has
    /// failed at something that it was not made for.
    pub(super) fn is_nameless(&self) -> bool {
        self.code.is_empty() && matches!(self.status, Some(404 | 500 | 501))
    }

    /// For a look.
    pub(super) fn into_missing(self) -> Missing {
        Missing { why: self.why, detail: self.detail }
    }

    /// For a change, `what`.
    pub(super) fn into_target_error(self, what: &str) -> TargetError {
        match self.why {
            Silence::Timeout if self.status.is_none() => {
                TargetError::Timeout { what: what.into(), seconds: AWS_TIMEOUT.as_secs() }
            }
            Silence::Unreachable | Silence::Refused if self.status.is_none() => {
                TargetError::Unreachable { back_end: "the API of ECS".into(), detail: self.detail }
            }
            _ => TargetError::Failed { what: what.into(), detail: self.detail },
        }
    }
}

/// An error with its sources.
pub(super) fn chain_of(error: &dyn StdError) -> String {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !said.contains(&more) {
            said += ": ";
            said += &more;
        }
        source = cause.source();
    }
    said
}

/// What it means that a request could not be sent to `address`, or that its answer did not come.
pub(super) fn of_transport(error: reqwest::Error, address: &Url) -> ApiError {
    let error = error.without_url();
    let why = match () {
        () if error.is_timeout() => Silence::Timeout,
        () if is_refused(&error) => Silence::Refused,
        () => Silence::Unreachable,
    };
    let place = address.origin().ascii_serialization();
    ApiError::silence(why, format!("{place}: {}", brief(&chain_of(&error), DETAIL_CHARS)))
}

fn is_refused(error: &(dyn StdError + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|io| io.kind() == ErrorKind::ConnectionRefused)
        || error.source().is_some_and(is_refused)
}

/// What an answer to `action`, as policies name it, means that is no success.
pub(super) fn refusal(action: &str, status: u16, named: Option<&str>, body: &[u8]) -> ApiError {
    let text = String::from_utf8_lossy(body);
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = |keys: [&str; 2]| keys.iter().find_map(|key| json[*key].as_str());
    let code = named.or(said(["__type", "code"])).or(between(&text, "Code")).unwrap_or("");
    // `com.amazonaws.ecs#Name` and `Name:http://...` both are in use.
    let code = code.rsplit('#').next().and_then(|code| code.split(':').next()).unwrap_or("");
    let message = said(["message", "Message"]).or(between(&text, "Message")).unwrap_or("");
    let message = brief(message, 2 * DETAIL_CHARS);
    let error = |why, detail| ApiError { why, code: code.into(), status: Some(status), detail };
    let is = |names: &[&str]| names.iter().any(|name| code.starts_with(name));
    if is(&["AccessDenied", "UnauthorizedOperation"]) {
        let detail = match message.contains(action) {
            true => message,
            false => format!("AWS denies {action}: {message}"),
        };
        return error(Silence::Denied, format!("{detail}; allow {action}"));
    }
    if is(&["ExpiredToken", "RequestExpired"]) {
        return error(
            Silence::Denied,
            format!("the credentials have expired ({code}): renew them"),
        );
    }
    if is(&["UnrecognizedClient", "InvalidClientTokenId", "MissingAuthentication"]) {
        return error(Silence::Denied, format!("AWS does not know the credentials ({code})"));
    }
    // Its message quotes the whole request, session token included.
    if is(&["InvalidSignature", "SignatureDoesNotMatch", "IncompleteSignature", "RequestTimeToo"]) {
        let what = "AWS does not accept the signature";
        let detail = format!("{what} ({code}): is the secret key right, and this machine's clock?");
        return error(Silence::Denied, detail);
    }
    let why = match status {
        _ if code.contains("NotFound") || is(&["ServiceNotActive"]) => Silence::NotFound,
        _ if code.contains("Throttling") => Silence::Unreachable,
        401 | 403 => Silence::Denied,
        408 | 504 => Silence::Timeout,
        429 | 500..=599 => Silence::Unreachable,
        _ => Silence::Malformed,
    };
    let code = if code.is_empty() { format!("status {status}") } else { code.to_owned() };
    let detail = match message.is_empty() {
        true => format!("{action} failed: {code}"),
        false => format!("{action} failed: {code}: {message}"),
    };
    error(why, detail)
}

/// The text of the first element of this name.
pub(super) fn between<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let from = xml.find(&format!("<{name}>"))? + name.len() + 2;
    let length = xml[from..].find(&format!("</{name}>"))?;
    Some(&xml[from..from + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_and_keep_secrets() {
        let of = |status, kind: &str, message: &str| {
            let body = serde_json::json!({ "__type": kind, "message": message }).to_string();
            refusal("ecs:UpdateService", status, None, body.as_bytes())
        };
        let table = [
            (400, "ClusterNotFoundException", Silence::NotFound),
            (400, "com.amazonaws.ecs#ServiceNotFoundException", Silence::NotFound),
            (400, "ServiceNotActiveException", Silence::NotFound),
            (400, "AccessDeniedException", Silence::Denied),
            (400, "ExpiredTokenException", Silence::Denied),
            (400, "UnrecognizedClientException", Silence::Denied),
            (400, "ThrottlingException", Silence::Unreachable),
            (400, "InvalidParameterException", Silence::Malformed),
            (500, "ServerException", Silence::Unreachable),
        ];
        for (status, kind, why) in table {
            assert_eq!(of(status, kind, "x").why, why, "{kind}");
        }
        let denied = of(400, "AccessDeniedException", "User: me is not authorized");
        assert!(denied.detail.ends_with("; allow ecs:UpdateService"), "{denied}");
        let quoted = "The Canonical String should have been 'x-amz-security-token:token2'";
        let refused = of(403, "InvalidSignatureException", quoted);
        assert!(!refused.detail.contains("token2"), "{refused}");
        let xml = "<ErrorResponse><Error><Code>ExpiredToken</Code><Message>x</Message></Error>";
        assert!(refusal("ecs:UpdateService", 403, None, xml.as_bytes()).is_stale_login());
        assert!(refusal("ecs:UpdateService", 500, None, b"<html>").is_nameless());
        assert!(!of(500, "ServerException", "").is_nameless());
    }
}
