//! Requests to Windmill's HTTP API, each with a limit on time and size, and what its refusals mean.
//! Errors come as plain text with a status code.

use std::error::Error as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use headcount_core::{Missing, Silence};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::WindmillScriptConfig;
use crate::limits::{
    LOOK_TIMEOUT, WINDMILL_API_BYTES, WINDMILL_API_CONNECT, WINDMILL_API_TIMEOUT,
    WINDMILL_WORKER_PAGES, WINDMILL_WORKERS_PER_PAGE,
};
use crate::secret::{self, Secret};
use crate::targets::TargetError;
use crate::targets::assumed::brief;

/// A Windmill, and who asks it.
pub(super) struct Api {
    http: reqwest::Client,
    base: Url,
    token: Option<Secret>,
    token_file: Option<PathBuf>,
    base_dir: PathBuf,
    workspace: String,
    /// How long one request may take.
    limit: Duration,
}

/// What a request is about.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    /// What is tried, for messages: `starting the script`.
    pub(super) what: &'a str,
    /// Below `/api`, with slashes.
    pub(super) path: &'a str,
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) limit: Duration,
}

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct ApiError {
    pub(super) why: Silence,
    pub(super) status: Option<u16>,
    detail: String,
    place: String,
    limit: Duration,
}

/// A worker of any group that has told of itself lately.
#[derive(Debug, Deserialize)]
pub(super) struct Worker {
    pub(super) worker_group: String,
    pub(super) native_mode: Option<bool>,
}

impl Api {
    /// A client. Does no I/O on the network.
    pub(super) fn new(
        base: Url,
        config: &WindmillScriptConfig,
        base_dir: &Path,
    ) -> anyhow::Result<Self> {
        let http = reqwest::Client::builder()
            .user_agent(concat!("headcount/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(WINDMILL_API_CONNECT)
            .build()
            .context("no HTTP client can be made")?;
        let api = Self {
            http,
            base,
            token: config.token.clone(),
            token_file: config.token_file.clone(),
            base_dir: base_dir.to_owned(),
            workspace: config.workspace.clone(),
            limit: crate::clock::duration(config.timeout).min(WINDMILL_API_TIMEOUT),
        };
        if config.token_file.is_some() {
            api.token()?;
        }
        Ok(api)
    }

    /// Where it is, for messages.
    pub(super) fn place(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// How long one request of a change may take.
    pub(super) const fn limit(&self) -> Duration {
        self.limit
    }

    /// The page of a job, for people.
    pub(super) fn page(&self, job: &str) -> String {
        format!("{}/run/{job}?workspace={}", self.place(), self.workspace)
    }

    /// A path in the workspace, below `/api`.
    pub(super) fn within(&self, path: &str) -> String {
        format!("w/{}/{path}", self.workspace)
    }

    /// The token as it is now: a file may hold a new one.
    fn token(&self) -> anyhow::Result<Option<Secret>> {
        secret::resolve(self.token.as_ref(), self.token_file.as_deref(), &self.base_dir)
    }

    /// All workers of all groups that told of themselves in the last `window` seconds.
    pub(super) async fn workers(&self, window: i64) -> Result<Vec<Worker>, Missing> {
        let until = Instant::now() + LOOK_TIMEOUT - Duration::from_millis(500);
        let what = "listing the workers";
        let listed = timeout_at(until, self.pages(what, window)).await;
        let late = || {
            let detail = format!("{what}: no answer from {} in time", self.place());
            ApiError {
                why: Silence::Timeout,
                status: None,
                detail,
                place: String::new(),
                limit: LOOK_TIMEOUT,
            }
        };
        let listed = listed.unwrap_or_else(|_| Err(late()));
        listed.map_err(|error| Missing { why: error.why, detail: error.detail })
    }

    async fn pages(&self, what: &str, window: i64) -> Result<Vec<Worker>, ApiError> {
        let mut workers = Vec::new();
        let (window, size) = (window.to_string(), WINDMILL_WORKERS_PER_PAGE.to_string());
        for page in 1..=WINDMILL_WORKER_PAGES {
            let page = page.to_string();
            let query = [("ping_since", &*window), ("per_page", &*size), ("page", &*page)];
            let limit = LOOK_TIMEOUT;
            let ask = Ask { what, path: "workers/list", query: &query, limit };
            let rows: Vec<Worker> = self.get(ask).await?;
            let full = rows.len() >= WINDMILL_WORKERS_PER_PAGE;
            workers.extend(rows);
            if !full {
                return Ok(workers);
            }
        }
        let most = WINDMILL_WORKER_PAGES * WINDMILL_WORKERS_PER_PAGE;
        let detail = format!("{what}: {} has more than {most} workers", self.place());
        Err(self.error(Silence::Malformed, None, detail, LOOK_TIMEOUT))
    }

    /// Reads something that is JSON.
    pub(super) async fn get<T: DeserializeOwned>(&self, ask: Ask<'_>) -> Result<T, ApiError> {
        let text = self.text(ask).await?;
        serde_json::from_str(&text).map_err(|error| {
            let detail = format!("{}: the answer of {} is odd: {error}", ask.what, self.place());
            self.error(Silence::Malformed, None, detail, ask.limit)
        })
    }

    /// Reads something.
    pub(super) async fn text(&self, ask: Ask<'_>) -> Result<String, ApiError> {
        self.ask(Method::GET, ask, None).await
    }

    /// Changes something.
    pub(super) async fn post(&self, ask: Ask<'_>, body: &Value) -> Result<String, ApiError> {
        self.ask(Method::POST, ask, Some(body)).await
    }

    async fn ask(
        &self,
        method: Method,
        ask: Ask<'_>,
        body: Option<&Value>,
    ) -> Result<String, ApiError> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("api").extend(ask.path.split('/'));
        }
        let mut request = self.http.request(method, url).timeout(ask.limit).query(ask.query);
        let unusable = |detail: String| self.error(Silence::Denied, None, detail, ask.limit);
        if let Some(token) = self.token().map_err(|e| unusable(format!("{e:#}")))? {
            let mut value =
                HeaderValue::from_str(&format!("Bearer {}", token.expose())).map_err(|_| {
                    unusable(
                        "the token has a line break in it, or another character that no token has"
                            .into(),
                    )
                })?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let broken = |error| self.broken(error, ask);
        let mut response = request.send().await.map_err(broken)?;
        let status = response.status();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > WINDMILL_API_BYTES {
                let detail = format!("{}: the answer is above {WINDMILL_API_BYTES} B", ask.what);
                return Err(self.error(Silence::Malformed, None, detail, ask.limit));
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if status.is_success() { Ok(text) } else { Err(self.refused(status, &text, ask)) }
    }

    /// What a status other than success means.
    fn refused(&self, status: StatusCode, body: &str, ask: Ask<'_>) -> ApiError {
        // It may repeat what it was sent.
        let token = self.token().ok().flatten();
        let body = secret::without(body, token.as_ref().map(Secret::expose));
        let said = brief(&body.split_whitespace().collect::<Vec<_>>().join(" "));
        let why = match status.as_u16() {
            401 | 403 => Silence::Denied,
            404 => Silence::NotFound,
            429 => Silence::Refused,
            502..=504 => Silence::Unreachable,
            _ => Silence::Malformed,
        };
        let hint = match status.as_u16() {
            401 => ": windmill does not know the token, or it has expired",
            403 => ": the token's user may not do that",
            _ if status.is_redirection() => ": set `url` to where windmill really is",
            _ => "",
        };
        let said = if said.is_empty() { said } else { format!(": {said}") };
        let code = status.as_u16();
        let detail = format!("{}: windmill answers {code}{said}{hint}", ask.what);
        self.error(why, Some(code), detail, ask.limit)
    }

    /// What a request that was not answered means.
    fn broken(&self, error: reqwest::Error, ask: Ask<'_>) -> ApiError {
        if error.is_timeout() {
            let seconds = ask.limit.as_secs_f64();
            let detail = format!("{}: {} did not answer in {seconds} s", ask.what, self.place());
            return self.error(Silence::Timeout, None, detail, ask.limit);
        }
        let error = error.without_url();
        let mut why = Silence::Unreachable;
        let (mut text, mut cause) = (error.to_string(), error.source());
        while let Some(inner) = cause {
            text = inner.to_string();
            let kind = inner.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
            if kind == Some(ErrorKind::ConnectionRefused) {
                why = Silence::Refused;
            }
            cause = inner.source();
        }
        let detail = format!("{}: {}: {}", ask.what, self.place(), brief(&text));
        self.error(why, None, detail, ask.limit)
    }

    fn error(
        &self,
        why: Silence,
        status: Option<u16>,
        detail: String,
        limit: Duration,
    ) -> ApiError {
        ApiError { why, status, detail, place: self.place().to_owned(), limit }
    }
}

impl From<ApiError> for TargetError {
    fn from(error: ApiError) -> Self {
        let ApiError { why, status, detail, place, limit } = error;
        match why {
            Silence::Timeout => Self::Timeout { what: detail, seconds: limit.as_secs() },
            Silence::Refused | Silence::Unreachable if status.is_none() => {
                Self::Unreachable { back_end: format!("windmill at {place}"), detail }
            }
            _ => Self::Failed { what: format!("windmill at {place}"), detail },
        }
    }
}
