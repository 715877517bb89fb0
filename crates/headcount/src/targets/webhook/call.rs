//! Requests to a server of the user's: signed, with a limit on time, size and repetitions, and
//! never to another place than the configured one.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Certificate, Client, Method, Response, StatusCode, Url};
use tokio::time::sleep;

use super::WebhookConfig;
use super::sign::signature;
use crate::clock;
use crate::limits::{
    CERTIFICATE_BYTES, WEBHOOK_ATTEMPTS, WEBHOOK_BACK_OFF, WEBHOOK_CONNECT, WEBHOOK_REDIRECTS,
    WEBHOOK_WAIT,
};
use crate::regular_file;
use crate::secret::{self, Secret};
use crate::targets::TargetError;
use crate::targets::assumed::brief;

/// A wait that is longer is not told in seconds.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Headers that are ours.
pub(super) const OURS: [&str; 8] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "idempotency-key",
    "webhook-id",
    "webhook-signature",
    "webhook-timestamp",
];

/// Makes the requests of one target.
pub(crate) struct Caller {
    client: Client,
    headers: HeaderMap,
    secret: Option<Secret>,
    secret_file: Option<PathBuf>,
    base_dir: PathBuf,
    timeout: Duration,
}

/// What a server answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The body, unless it is too long.
    pub(super) body: Option<String>,
    retry_after: Option<Duration>,
    /// Where it points to instead.
    elsewhere: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// There is no way to it, or the connection broke.
    #[error("{0}")]
    Unreachable(String),
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The request cannot even be made.
    #[error("{0}")]
    Unusable(String),
}

impl Caller {
    pub(crate) fn new(config: &WebhookConfig, base_dir: &Path) -> anyhow::Result<Self> {
        let mut client = Client::builder()
            // A server may close an idle connection at the very moment that it is used again.
            .pool_max_idle_per_host(0)
            .user_agent(concat!("headcount/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(WEBHOOK_CONNECT)
            .redirect(Policy::custom(|attempt| {
                if stays(&attempt) { attempt.follow() } else { attempt.stop() }
            }));
        if let Some(file) = &config.ca_file {
            client = client.tls_certs_only(authorities(&base_dir.join(file))?);
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers {
            let mut value = HeaderValue::from_str(value.expose()).map_err(|_| {
                anyhow::anyhow!("header {name} has a value that no header can have")
            })?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(name)?, value);
        }
        let caller = Self {
            client: client.build().context("no HTTP client can be made")?,
            headers,
            secret: config.secret.clone(),
            secret_file: config.secret_file.clone(),
            base_dir: base_dir.to_owned(),
            timeout: clock::duration(config.timeout),
        };
        caller.secret()?;
        Ok(caller)
    }

    /// The secret as it is now: a file may hold a new one.
    pub(crate) fn secret(&self) -> anyhow::Result<Option<Secret>> {
        secret::resolve(self.secret.as_ref(), self.secret_file.as_deref(), &self.base_dir)
    }

    /// What a server says may repeat what it was sent.
    fn without_secrets(&self, said: &str) -> String {
        let headers = self.headers.values().filter_map(|value| value.to_str().ok());
        let secret = self.secret().ok().flatten();
        secret::without(said, headers.chain(secret.as_ref().map(Secret::expose)))
    }

    /// Posts `body` until it is taken, each time with the same id. What an attempt that was not
    /// answered did is unknown, and the id tells the server that it is asked again.
    pub(crate) async fn post(
        &self,
        url: &Url,
        id: &str,
        body: &[u8],
        keep: usize,
    ) -> Result<String, TargetError> {
        let mut back_off = WEBHOOK_BACK_OFF;
        for attempt in 1.. {
            let answer = self.once(Method::POST, url, id, body, self.timeout, keep).await;
            let wait = match &answer {
                Ok(taken) if taken.status.is_success() => {
                    return Ok(taken.body.clone().unwrap_or_default());
                }
                Ok(refused) if may_pass(refused.status) => refused.retry_after.unwrap_or(back_off),
                Err(Fault::Unreachable(_)) => back_off,
                _ => return Err(failure(url, &answer, "")),
            };
            if attempt >= WEBHOOK_ATTEMPTS {
                return Err(failure(url, &answer, &format!(", {attempt} times")));
            }
            if wait > WEBHOOK_WAIT {
                let asks = match wait >= DAY {
                    true => ", and asks to wait a day or more".to_owned(),
                    false => format!(", and asks to wait {} s", wait.as_secs()),
                };
                return Err(failure(url, &answer, &asks));
            }
            tracing::debug!(attempt, error = %failure(url, &answer, ""), "webhook is tried again");
            sleep(wait).await;
            back_off = back_off.saturating_mul(2);
        }
        unreachable!("the last attempt returns")
    }

    /// One request; at most `keep` bytes of the answer's body are read.
    pub(super) async fn once(
        &self,
        method: Method,
        url: &Url,
        id: &str,
        body: &[u8],
        limit: Duration,
        keep: usize,
    ) -> Result<Answer, Fault> {
        let mut request = self.client.request(method.clone(), url.clone()).timeout(limit);
        if let Some(secret) = self.secret().map_err(|e| Fault::Unusable(format!("{e:#}")))? {
            let seconds = clock::now().as_millis().div_euclid(1000);
            let signed = signature(&secret, id, seconds, body).map_err(Fault::Unusable)?;
            request = request.header("webhook-timestamp", seconds);
            request = request.header("webhook-signature", signed);
        }
        request = request.header("webhook-id", id).headers(self.headers.clone());
        if method == Method::POST {
            request = request.header("idempotency-key", id);
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_vec());
        }
        let fault = |error| fault(error, limit);
        let mut response = request.send().await.map_err(fault)?;
        let mut answer = Answer {
            status: response.status(),
            body: None,
            retry_after: retry_after(&response),
            elsewhere: elsewhere(&response),
        };
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(fault)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > keep {
                return Ok(answer);
            }
        }
        answer.body = Some(self.without_secrets(&String::from_utf8_lossy(&bytes)));
        Ok(answer)
    }
}

impl Answer {
    /// What it means if it is not a success, for people.
    pub(super) fn said(&self) -> String {
        let status = self.status;
        match (&self.elsewhere, self.body.as_deref().map(str::trim)) {
            (Some(place), _) => format!("answers {status} and points to {place}"),
            (None, Some(body)) if !body.is_empty() => {
                let line = body.split_whitespace().collect::<Vec<_>>().join(" ");
                format!("answers {status}: {}", brief(&line))
            }
            _ => format!("answers {status}"),
        }
    }
}

/// A URL without what may be secret in it.
pub(crate) fn shown(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// Whether the same request may be followed by a redirect: to the same server only.
fn stays(attempt: &Attempt<'_>) -> bool {
    let keeps_method =
        matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    let first = attempt.previous().first();
    let same = first.is_some_and(|first| first.origin() == attempt.url().origin());
    keeps_method && same && attempt.previous().len() <= WEBHOOK_REDIRECTS
}

/// Whether the same request may succeed later.
fn may_pass(status: StatusCode) -> bool {
    status == StatusCode::REQUEST_TIMEOUT
        || status == StatusCode::TOO_MANY_REQUESTS
        || status.is_server_error()
}

/// How long the server asks to wait: seconds, or a date.
fn retry_after(response: &Response) -> Option<Duration> {
    wait_told(response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim())
}

fn wait_told(text: &str) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that is too large is a long time all the same.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let Ok(at) = jiff::fmt::rfc2822::parse(text) else {
        // A date that nobody can reckon with is a far one; anything else says nothing.
        return text.ends_with("GMT").then_some(Duration::MAX);
    };
    let left = at.timestamp().as_millisecond().saturating_sub(clock::now().as_millis());
    Some(Duration::from_millis(u64::try_from(left).unwrap_or(0)))
}

fn elsewhere(response: &Response) -> Option<String> {
    if !response.status().is_redirection() {
        return None;
    }
    let to = response.headers().get(LOCATION)?.to_str().ok()?;
    let to = response.url().join(to).ok()?;
    Some(shown(&to))
}

fn failure(url: &Url, answer: &Result<Answer, Fault>, more: &str) -> TargetError {
    let what = format!("webhook {}", shown(url));
    match answer {
        Ok(answer) => TargetError::Failed { what, detail: answer.said() + more },
        Err(Fault::Timeout(limit)) => TargetError::Timeout { what, seconds: limit.as_secs() },
        Err(Fault::Unreachable(detail)) => {
            TargetError::Unreachable { back_end: what, detail: format!("{detail}{more}") }
        }
        Err(Fault::Unusable(detail)) => TargetError::Failed { what, detail: detail.clone() },
    }
}

fn fault(error: reqwest::Error, limit: Duration) -> Fault {
    // Nothing was sent yet: it may be tried again, also if it took long.
    if error.is_timeout() && !error.is_connect() {
        return Fault::Timeout(limit);
    }
    let error = error.without_url();
    let mut parts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !parts.iter().any(|part| part.contains(&text)) {
            parts.push(text);
        }
        cause = inner.source();
    }
    if error.is_builder() {
        return Fault::Unusable(parts.join(": "));
    }
    // The innermost ones say what happened; the outermost only that something did.
    let least = parts.len().saturating_sub(2);
    Fault::Unreachable(brief(&parts[least..].join(": ")))
}

fn authorities(path: &Path) -> anyhow::Result<Vec<Certificate>> {
    let unreadable = || format!("certificate file {} cannot be read", path.display());
    let bytes = regular_file::read(path, CERTIFICATE_BYTES).with_context(unreadable)?;
    let too_large = bytes.len() as u64 > CERTIFICATE_BYTES;
    anyhow::ensure!(!too_large, "certificate file {} is too large", path.display());
    let found = Certificate::from_pem_bundle(&bytes).with_context(unreadable)?;
    anyhow::ensure!(!found.is_empty(), "certificate file {} holds no certificate", path.display());
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_nobody_can_reckon_with_is_a_long_one() {
        assert_eq!(wait_told("7"), Some(Duration::from_secs(7)));
        assert_eq!(wait_told("Mon, 01 Jan 2024 00:00:00 GMT"), Some(Duration::ZERO));
        for far in [
            "99999999999999999999999999",
            "Fri, 31 Dec 9999 23:59:59 GMT",
            "Fri, 31 Dec 99999 23:59:59 GMT",
        ] {
            assert!(wait_told(far).is_some_and(|wait| wait > DAY), "{far}");
        }
        for odd in ["", "-1", "soon", "1.5"] {
            assert_eq!(wait_told(odd), None, "{odd}");
        }
    }
}
