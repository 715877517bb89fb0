//! Requests to Nomad's HTTP API, each with a limit on time and size, and what its refusals mean.
//! Errors come as plain text with a status code.

use std::error::Error as _;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use headcount_core::{Missing, Silence};
use reqwest::dns::{Name, Resolve, Resolving};
use reqwest::header::HeaderValue;
use reqwest::{Certificate, Identity, Method, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::limits::{CERTIFICATE_BYTES, NOMAD_BYTES, NOMAD_CONNECT, NOMAD_LOOK};
use crate::regular_file;
use crate::secret::{self, Secret};
use crate::targets::TargetError;
use crate::targets::assumed::brief;
use crate::targets::nomad::config::{NomadConfig, NomadTls};

/// An agent, and who asks it for what.
pub(super) struct Client {
    http: reqwest::Client,
    base: Url,
    /// The address as configured, for people.
    pub(super) address: String,
    token: Option<Secret>,
    token_file: Option<PathBuf>,
    base_dir: PathBuf,
    pub(super) namespace: String,
    region: Option<String>,
}

/// Where an agent listens.
pub(super) enum Address {
    /// A URL without a path.
    Web(Url),
    /// A socket in the file system.
    Socket(PathBuf),
}

/// An answer, and the index of the state it tells.
pub(super) struct Answer<T> {
    pub(super) value: T,
    /// `X-Nomad-Index`; 0 where there is none.
    pub(super) index: u64,
}

/// What a request is about, for messages.
#[derive(Clone, Copy)]
pub(super) struct Topic<'a> {
    /// What was tried: `reading job web`.
    pub(super) what: &'a str,
    /// The ACL capability that it needs.
    pub(super) needs: &'a str,
}

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{detail}")]
pub(super) struct ApiError {
    pub(super) why: Silence,
    pub(super) status: Option<u16>,
    pub(super) detail: String,
    address: String,
    limit: Duration,
}

/// Gives one name the addresses of another, so that a certificate may have a name of its own.
struct Alias {
    host: String,
}

impl Resolve for Alias {
    fn resolve(&self, _: Name) -> Resolving {
        let host = self.host.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

impl Address {
    /// Reads an address as `NOMAD_ADDR` has it.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if secret::has_login(text) {
            return Err("must not hold a name or a password; use token_file".into());
        }
        let wrong = || {
            format!(
                "{text:?} must be http://host:port, https://host:port or unix:///path, without \
                 anything after it"
            )
        };
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') {
                Ok(Self::Socket(path.into()))
            } else {
                Err(wrong())
            };
        }
        let url = Url::parse(text).map_err(|_| wrong())?;
        let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let web = matches!(url.scheme(), "http" | "https") && url.has_host();
        if web && bare { Ok(Self::Web(url)) } else { Err(wrong()) }
    }
}

impl Client {
    /// A client for a completed configuration. Does no I/O on the network.
    pub(super) fn new(config: &NomadConfig, base_dir: &Path) -> anyhow::Result<Self> {
        let address = config.address.clone().unwrap_or_default();
        let parsed = Address::parse(&address);
        let parsed = parsed.map_err(|what| anyhow::anyhow!("the address of Nomad {what}"))?;
        let mut http = reqwest::Client::builder()
            .user_agent(concat!("headcount/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(NOMAD_CONNECT);
        let base = match parsed {
            Address::Socket(path) => {
                http = http.unix_socket(path);
                Url::parse("http://localhost/")?
            }
            Address::Web(mut url) => {
                let host = url.host_str().unwrap_or_default().to_owned();
                let ours = host == "localhost" || host.starts_with("127.") || host == "[::1]";
                if ours {
                    // A proxy does not know this machine's agent.
                    http = http.no_proxy();
                }
                if url.scheme() == "https" {
                    http = secured(http, &config.tls)?;
                    if let Some(name) = &config.tls.server_name {
                        url.set_host(Some(name)).context("the server name is no host name")?;
                        let host = host.trim_matches(['[', ']']).to_owned();
                        http = http.no_proxy().dns_resolver(Alias { host });
                    }
                }
                url
            }
        };
        let client = Self {
            http: http.build().context("no HTTP client can be made")?,
            base,
            address,
            token: config.token.clone(),
            token_file: config.token_file.clone(),
            base_dir: base_dir.to_owned(),
            namespace: config.namespace.clone().unwrap_or_default(),
            region: config.region.clone(),
        };
        client.token()?;
        Ok(client)
    }

    /// The region in which the job is.
    pub(super) fn region(&self) -> &str {
        self.region.as_deref().unwrap_or("")
    }

    /// Whether requests carry a token.
    pub(super) fn has_token(&self) -> bool {
        self.token.is_some() || self.token_file.is_some()
    }

    /// Whether the token is the signed identity of a Nomad job, and no ACL token.
    pub(super) fn is_workload_identity(&self) -> bool {
        let token = self.token().ok().flatten();
        token.is_some_and(|token| token.expose().matches('.').count() == 2)
    }

    /// The token as it is now: a file may hold a new one.
    fn token(&self) -> anyhow::Result<Option<Secret>> {
        secret::resolve(self.token.as_ref(), self.token_file.as_deref(), &self.base_dir)
    }

    /// Reads something.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        limit: Duration,
        topic: Topic<'_>,
    ) -> Result<Answer<T>, ApiError> {
        self.ask(Method::GET, path, query, None, limit, topic).await
    }

    /// Changes something.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &Value,
        limit: Duration,
        topic: Topic<'_>,
    ) -> Result<T, ApiError> {
        let answer = self.ask(Method::POST, path, &[], Some(body), limit, topic).await?;
        Ok(answer.value)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &[&str],
        query: &[(&str, String)],
        body: Option<&Value>,
        limit: Duration,
        topic: Topic<'_>,
    ) -> Result<Answer<T>, ApiError> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.clear().push("v1").extend(path);
        }
        let mut request = self.http.request(method, url).timeout(limit).query(query);
        request = request.query(&[("namespace", &self.namespace)]);
        if let Some(region) = &self.region {
            request = request.query(&[("region", region)]);
        }
        let unusable = |detail: String| self.error(Silence::Denied, None, detail, limit);
        if let Some(token) = self.token().map_err(|e| unusable(format!("{e:#}")))? {
            let mut value = HeaderValue::from_str(token.expose())
                .map_err(|_| unusable("the ACL token has a line break in it, or another character that no token has; write it on one line".into()))?;
            value.set_sensitive(true);
            request = request.header("X-Nomad-Token", value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let broken = |error| self.broken(error, limit, topic);
        let mut response = request.send().await.map_err(broken)?;
        let status = response.status();
        let header = response.headers().get("x-nomad-index").and_then(|v| v.to_str().ok());
        let index = header.and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > NOMAD_BYTES {
                let detail = format!("{}: the answer is larger than {NOMAD_BYTES} B", topic.what);
                return Err(self.error(Silence::Malformed, None, detail, limit));
            }
        }
        if !status.is_success() {
            return Err(self.refused(status, &String::from_utf8_lossy(&bytes), limit, topic));
        }
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Answer { value, index }),
            Err(error) => {
                let detail =
                    format!("{}: the answer of {} is odd: {error}", topic.what, self.address);
                Err(self.error(Silence::Malformed, None, detail, limit))
            }
        }
    }

    /// What a status other than success means.
    fn refused(
        &self,
        status: StatusCode,
        body: &str,
        limit: Duration,
        Topic { what, needs }: Topic<'_>,
    ) -> ApiError {
        // It may repeat what it was sent.
        let token = self.token().ok().flatten();
        let body = secret::without(body, token.as_ref().map(Secret::expose));
        let said = brief(&body.split_whitespace().collect::<Vec<_>>().join(" "));
        let lower = said.to_ascii_lowercase();
        let namespace = &self.namespace;
        let (why, detail) = match status.as_u16() {
            _ if lower.contains("token not found") || lower.contains("token expired") => {
                let detail = format!("{said}: Nomad does not know the ACL token, or it expired");
                (Silence::Denied, detail)
            }
            401 | 403 if !self.has_token() => {
                let detail = format!(
                    "{said}: set `token`, `token_file` or NOMAD_TOKEN to an ACL token with `{needs}`"
                );
                (Silence::Denied, detail)
            }
            401 | 403 => {
                let detail =
                    format!("{said}: the ACL token needs `{needs}` in the namespace `{namespace}`");
                (Silence::Denied, detail)
            }
            404 => (Silence::NotFound, said),
            429 => (Silence::Refused, format!("{said}: too many requests to {}", self.address)),
            _ if lower.contains("no path to region") => {
                (Silence::NotFound, format!("{said}: there is no region `{}`", self.region()))
            }
            _ if lower.contains("no cluster leader") => {
                (Silence::Unreachable, format!("{said}: Nomad's servers have no leader now"))
            }
            502..=504 => (Silence::Unreachable, said),
            _ => (Silence::Malformed, said),
        };
        let detail = format!("{what}: Nomad answers {}: {detail}", status.as_u16());
        self.error(why, Some(status.as_u16()), detail, limit)
    }

    /// What a request that was not answered means.
    fn broken(&self, error: reqwest::Error, limit: Duration, topic: Topic<'_>) -> ApiError {
        if error.is_timeout() {
            let seconds = limit.as_secs_f64();
            let detail = format!("{}: {} did not answer in {seconds} s", topic.what, self.address);
            return self.error(Silence::Timeout, None, detail, limit);
        }
        let error = error.without_url();
        let mut why = Silence::Unreachable;
        let (mut text, mut cause) = (error.to_string(), error.source());
        while let Some(inner) = cause {
            text = inner.to_string();
            match inner.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
                Some(ErrorKind::ConnectionRefused) => why = Silence::Refused,
                Some(ErrorKind::PermissionDenied) => why = Silence::Denied,
                _ => {}
            }
            cause = inner.source();
        }
        let detail = format!("{}: {}: {}", topic.what, self.address, brief(&text));
        self.error(why, None, detail, limit)
    }

    /// Something that Nomad did not refuse, but that is not as it should be.
    pub(super) fn fault(&self, why: Silence, detail: String) -> ApiError {
        self.error(why, None, detail, NOMAD_LOOK)
    }

    fn error(
        &self,
        why: Silence,
        status: Option<u16>,
        detail: String,
        limit: Duration,
    ) -> ApiError {
        ApiError { why, status, detail, address: self.address.clone(), limit }
    }
}

impl ApiError {
    /// Whether Nomad answered with this status.
    pub(super) fn is(&self, status: u16) -> bool {
        self.status == Some(status)
    }

    /// Whether Nomad refuses to scale because the job is being deployed.
    pub(super) fn is_deployment(&self) -> bool {
        self.is(400) && self.detail.to_ascii_lowercase().contains("active deployment")
    }

    /// Whether somebody else changed the job meanwhile.
    pub(super) fn is_conflict(&self) -> bool {
        self.detail.contains("conflicting job modify index") || self.is(409)
    }

    /// The same with more at its end.
    pub(super) fn with_more(mut self, more: &str) -> Self {
        self.detail += more;
        self
    }

    /// As the answer of a look.
    pub(super) fn into_missing(self) -> Missing {
        Missing { why: self.why, detail: self.detail }
    }

    /// As the failure of `what`.
    pub(super) fn into_target_error(self, what: &str) -> TargetError {
        match (self.why, self.status) {
            (Silence::Timeout, _) => TargetError::Timeout {
                what: format!("{what} through {}", self.address),
                seconds: self.limit.as_secs(),
            },
            (Silence::Unreachable | Silence::Refused, None) => {
                TargetError::Unreachable { back_end: "nomad".into(), detail: self.detail }
            }
            _ => TargetError::Failed { what: what.into(), detail: self.detail },
        }
    }
}

/// With the certificates of the configuration.
fn secured(
    mut http: reqwest::ClientBuilder,
    tls: &NomadTls,
) -> anyhow::Result<reqwest::ClientBuilder> {
    if let Some(path) = &tls.ca_file {
        let found = Certificate::from_pem_bundle(&pem(path)?)
            .with_context(|| format!("certificate file {} is none", path.display()))?;
        anyhow::ensure!(
            !found.is_empty(),
            "certificate file {} holds no certificate",
            path.display()
        );
        http = http.tls_certs_only(found);
    }
    if let (Some(cert), Some(key)) = (&tls.cert_file, &tls.key_file) {
        let mut both = pem(cert)?;
        both.push(b'\n');
        both.extend(pem(key)?);
        let identity = Identity::from_pem(&both).with_context(|| {
            format!("{} and {} are no certificate with its key", cert.display(), key.display())
        })?;
        http = http.identity(identity);
    }
    Ok(http.tls_danger_accept_invalid_certs(tls.insecure))
}

fn pem(path: &Path) -> anyhow::Result<Vec<u8>> {
    let unreadable = || format!("certificate file {} cannot be read", path.display());
    let bytes = regular_file::read(path, CERTIFICATE_BYTES).with_context(unreadable)?;
    let too_large = bytes.len() as u64 > CERTIFICATE_BYTES;
    anyhow::ensure!(!too_large, "certificate file {} is too large", path.display());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(token: Option<&str>) -> Client {
        let config = NomadConfig { token: token.map(Secret::from), ..NomadConfig::default() };
        Client::new(&config.completed(Path::new(""), |_| None), Path::new("")).unwrap()
    }

    #[test]
    fn the_addresses_that_nomad_takes() {
        for good in ["http://127.0.0.1:4646", "https://nomad.example/", "unix:///run/api.sock"] {
            assert!(Address::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "nomad:4646",
            "ftp://nomad",
            "http://a/b",
            "http://a?b=c",
            "http://u:p@a",
            "unix://x",
        ] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
        for login in ["http://u:hush@a:4646", "http://hush@a", "u:hush@a:4646", "http:/u:hush@a"] {
            let said = Address::parse(login).err().expect("it has a login");
            assert!(!said.contains("hush"), "{said}");
        }
    }

    #[test]
    fn each_refusal_has_its_kind_and_says_what_to_do() {
        let topic = Topic { what: "reading job web", needs: "read-job" };
        let cases = [
            (
                403,
                "Permission denied",
                Silence::Denied,
                "needs `read-job` in the namespace `default`",
            ),
            (403, "ACL token not found", Silence::Denied, "does not know the ACL token"),
            (404, "job \"web\" not found", Silence::NotFound, "job \"web\" not found"),
            (429, "slow down", Silence::Refused, "too many requests"),
            (500, "No cluster leader", Silence::Unreachable, "no leader now"),
            (500, "No path to region", Silence::NotFound, "no region"),
            (503, "", Silence::Unreachable, "answers 503"),
            (400, "group count was less than", Silence::Malformed, "answers 400"),
        ];
        let limit = Duration::from_secs(1);
        for (status, body, why, part) in cases {
            let status = StatusCode::from_u16(status).unwrap();
            let error = client(Some("t")).refused(status, body, limit, topic);
            assert_eq!(error.why, why, "{status} {body}");
            assert!(error.detail.contains(part), "{}", error.detail);
        }
        let status = StatusCode::FORBIDDEN;
        let error = client(None).refused(status, "Permission denied", limit, topic);
        assert!(error.detail.contains("NOMAD_TOKEN"), "{}", error.detail);
    }
}
