//! How to reach a Redis: the keys of the file, what is wrong with them, and the login that comes out
//! of them once all files they name are read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use ::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult, TlsCertificates, TlsMode,
    cluster::{ClusterClient, ClusterClientBuilder},
};
use anyhow::Context;
use headcount_core::Span;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::clock::duration;
use crate::limits::{CERTIFICATE_BYTES, REDIS_TIMEOUTS};
use crate::regular_file;
use crate::secret::{Secret, resolve};

/// How to reach a Redis, or a server that speaks its protocol. Give one of `url`, `sentinel` and
/// `cluster`.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// `redis://[user@]host:port[/db]`, `rediss://` for TLS, `unix:///path[?db=N]` for a socket.
    pub url: String,
    /// The user, where Redis has an access list.
    pub username: Option<String>,
    /// The password; best as `${ENV}`.
    pub password: Option<Secret>,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// Ask these Sentinels where the master is.
    pub sentinel: Option<SentinelConfig>,
    /// A Redis Cluster.
    pub cluster: Option<ClusterConfig>,
    /// TLS; for `url` only together with `rediss://`.
    pub tls: Option<RedisTls>,
    /// How long a connection may take to come up: 2 s.
    pub connect_timeout: Span,
    /// How long an answer may take: 2 s.
    pub reply_timeout: Span,
}

/// The Sentinels of a Redis.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SentinelConfig {
    /// The Sentinels, each `host:port`.
    pub nodes: Vec<String>,
    /// The name they know the master by.
    pub master: String,
    /// The number of the database on the master: 0.
    pub db: u32,
    /// The user of the Sentinels themselves.
    pub username: Option<String>,
    /// The password of the Sentinels themselves.
    pub password: Option<Secret>,
    /// A file with it.
    pub password_file: Option<PathBuf>,
}

/// A Redis Cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterConfig {
    /// Some of its nodes, each `host:port`; it tells the others itself.
    pub nodes: Vec<String>,
}

/// TLS towards a Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisTls {
    /// The authority that signed the server's certificate, PEM; else those of the system.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate, PEM, where the server asks for one.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM.
    pub key_file: Option<PathBuf>,
    /// Believe any certificate. Whoever sits in between can then read the password.
    pub insecure: bool,
}

/// A [`RedisConfig`] with the contents of all files it names. Equal logins share a connection.
#[derive(Clone, PartialEq)]
pub(super) struct Login {
    config: RedisConfig,
    password: Option<Secret>,
    sentinel_password: Option<Secret>,
    ca: Option<Vec<u8>>,
    own_certificate: Option<(Vec<u8>, Vec<u8>)>,
}

/// The client library's three ways to a server.
pub(super) enum Way {
    /// One server.
    Single(Box<Client>),
    /// The master of the moment, which the Sentinels know.
    Sentinel(Box<tokio::sync::Mutex<SentinelClient>>),
    /// All masters of a cluster, and a client for its nodes to subscribe at.
    Cluster(Box<ClusterClient>, Vec<Client>),
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            username: None,
            password: None,
            password_file: None,
            sentinel: None,
            cluster: None,
            tls: None,
            connect_timeout: Span::from_secs(2),
            reply_timeout: Span::from_secs(2),
        }
    }
}

/// The place only: a URL may hold a password.
impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisConfig({})", self.place())
    }
}

impl RedisConfig {
    /// Whether a password comes from a file.
    pub(super) fn has_secret_files(&self) -> bool {
        let of_sentinel = self.sentinel.as_ref().is_some_and(|s| s.password_file.is_some());
        self.password_file.is_some() || of_sentinel
    }

    /// Where it is, for messages: without user and password.
    pub fn place(&self) -> String {
        if let Some(sentinel) = &self.sentinel {
            return format!("{} of sentinels {}", sentinel.master, sentinel.nodes.join(","));
        }
        if let Some(cluster) = &self.cluster {
            return format!("cluster {}", cluster.nodes.join(","));
        }
        match self.url.as_str().into_connection_info() {
            Ok(info) => info.addr().to_string(),
            Err(_) => "an invalid url".to_string(),
        }
    }

    /// Everything in it that makes no sense, as (key, what is wrong and what to do).
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let ways = [!self.url.is_empty(), self.sentinel.is_some(), self.cluster.is_some()];
        match ways.iter().filter(|given| **given).count() {
            0 => found
                .push(("url", "is missing; write redis://host:port, or give sentinel or cluster")),
            1 => {}
            _ => found.push(("url", "give only one of url, sentinel and cluster")),
        }
        self.url_problems(&mut found);
        if self.password.is_some() && self.password_file.is_some() {
            found.push(("password_file", "give either password or password_file"));
        }
        if let Some(sentinel) = &self.sentinel {
            sentinel.problems(&mut found);
        }
        if let Some(cluster) = &self.cluster {
            node_problems("cluster.nodes", &cluster.nodes, &mut found);
        }
        if let Some(tls) = &self.tls {
            tls.problems(&mut found);
        }
        self.timeout_problems(&mut found);
        found.into_iter().map(|(key, what)| (key.to_string(), what.to_string())).collect()
    }

    fn url_problems(&self, found: &mut Vec<(&str, &str)>) {
        if self.url.is_empty() {
            return;
        }
        let Ok(info) = self.url.as_str().into_connection_info() else {
            found.push((
                "url",
                "is no redis url; write redis://host:port[/db], rediss://... or unix:///path[?db=N]",
            ));
            return;
        };
        let has_password = self.password.is_some() || self.password_file.is_some();
        if info.redis_settings().password().is_some() && has_password {
            found.push(("password", "is given in url too; keep one of them"));
        }
        if info.redis_settings().username().is_some() && self.username.is_some() {
            found.push(("username", "is given in url too; keep one of them"));
        }
        if info.redis_settings().db() < 0 {
            found.push(("url", "the database is a number from 0"));
        }
        if self.tls.is_some() && !matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            found.push(("tls", "has no use with this url; write rediss://host:port"));
        }
    }

    fn timeout_problems(&self, found: &mut Vec<(&str, &str)>) {
        let sum = self.connect_timeout.saturating_add(self.reply_timeout);
        let shortest = Span::from_millis(10);
        for (key, span) in
            [("connect_timeout", self.connect_timeout), ("reply_timeout", self.reply_timeout)]
        {
            if span < shortest {
                found.push((key, "must be at least 10ms"));
            }
        }
        if duration(sum) > REDIS_TIMEOUTS {
            found.push((
                "reply_timeout",
                "connect_timeout and reply_timeout may be 4500ms together, for a look ends after 5 s",
            ));
        }
    }

    /// Whether keys are spread over several servers.
    pub const fn is_cluster(&self) -> bool {
        self.cluster.is_some()
    }
}

impl SentinelConfig {
    fn problems(&self, found: &mut Vec<(&str, &str)>) {
        node_problems("sentinel.nodes", &self.nodes, found);
        if self.master.is_empty() {
            found.push(("sentinel.master", "is missing; write the name that sentinel monitors"));
        }
        if self.password.is_some() && self.password_file.is_some() {
            found.push(("sentinel.password_file", "give either password or password_file"));
        }
    }
}

impl RedisTls {
    fn problems(&self, found: &mut Vec<(&str, &str)>) {
        if self.cert_file.is_some() != self.key_file.is_some() {
            found.push(("tls.cert_file", "give cert_file and key_file together"));
        }
        if self.insecure && self.ca_file.is_some() {
            found.push(("tls.insecure", "makes ca_file useless; remove one of them"));
        }
    }

    fn mode(&self) -> TlsMode {
        if self.insecure { TlsMode::Insecure } else { TlsMode::Secure }
    }
}

impl Login {
    /// Reads the files that `config` names; relative paths start at `base`.
    pub(super) fn new(config: &RedisConfig, base: &Path) -> anyhow::Result<Self> {
        let sentinel = config.sentinel.as_ref();
        let tls = config.tls.clone().unwrap_or_default();
        let read = |file: &PathBuf| certificate(&base.join(file));
        Ok(Self {
            password: resolve(config.password.as_ref(), config.password_file.as_deref(), base)?,
            sentinel_password: resolve(
                sentinel.and_then(|s| s.password.as_ref()),
                sentinel.and_then(|s| s.password_file.as_deref()),
                base,
            )?,
            ca: tls.ca_file.as_ref().map(read).transpose()?,
            own_certificate: match (&tls.cert_file, &tls.key_file) {
                (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
                _ => None,
            },
            config: config.clone(),
        })
    }

    pub(super) fn place(&self) -> String {
        self.config.place()
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        duration(self.config.connect_timeout)
    }

    pub(super) fn reply_timeout(&self) -> Duration {
        duration(self.config.reply_timeout)
    }

    /// The client library's objects; nothing is connected yet.
    pub(super) fn way(&self) -> anyhow::Result<Way> {
        // Another part of the process may have chosen the same provider already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = &self.config;
        let way = match (&config.sentinel, &config.cluster) {
            (Some(sentinel), _) => self.sentinel(sentinel),
            (None, Some(cluster)) => self.cluster(cluster),
            (None, None) => self.single(&config.url).map(|client| Way::Single(Box::new(client))),
        };
        way.with_context(|| format!("redis {} cannot be used", self.place()))
    }

    fn settings(&self, given: &RedisConnectionInfo) -> RedisConnectionInfo {
        let mut settings = given.clone();
        if let Some(username) = &self.config.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password.expose());
        }
        settings
    }

    fn certificates(&self) -> Option<TlsCertificates> {
        let client_tls = self
            .own_certificate
            .clone()
            .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
        let any = client_tls.is_some() || self.ca.is_some();
        any.then(|| TlsCertificates { client_tls, root_cert: self.ca.clone() })
    }

    fn client(&self, info: ConnectionInfo) -> RedisResult<Client> {
        match (info.addr(), self.certificates()) {
            (ConnectionAddr::TcpTls { .. }, Some(own)) => Client::build_with_tls(info, own),
            _ => Client::open(info),
        }
    }

    fn single(&self, url: &str) -> RedisResult<Client> {
        let info = url.into_connection_info()?;
        let settings = self.settings(info.redis_settings());
        let addr = match (info.addr().clone(), &self.config.tls) {
            (ConnectionAddr::TcpTls { host, port, tls_params, .. }, Some(tls)) => {
                ConnectionAddr::TcpTls { host, port, insecure: tls.insecure, tls_params }
            }
            (addr, _) => addr,
        };
        self.client(info.set_addr(addr).set_redis_settings(settings))
    }

    fn addr(&self, node: &str) -> RedisResult<ConnectionAddr> {
        let scheme = if self.config.tls.is_some() { "rediss" } else { "redis" };
        let info = format!("{scheme}://{node}").into_connection_info()?;
        Ok(match (info.addr().clone(), &self.config.tls) {
            (ConnectionAddr::TcpTls { host, port, tls_params, .. }, Some(tls)) => {
                ConnectionAddr::TcpTls { host, port, insecure: tls.insecure, tls_params }
            }
            (addr, _) => addr,
        })
    }

    fn sentinel(&self, sentinel: &SentinelConfig) -> RedisResult<Way> {
        let nodes: Vec<_> =
            sentinel.nodes.iter().map(|n| self.addr(n)).collect::<Result<_, _>>()?;
        let mut builder =
            SentinelClientBuilder::new(nodes, &sentinel.master, SentinelServerType::Master)?
                .set_client_to_redis_db(i64::from(sentinel.db));
        if let Some(username) = &self.config.username {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_redis_password(password.expose());
        }
        if let Some(username) = &sentinel.username {
            builder = builder.set_client_to_sentinel_username(username);
        }
        if let Some(password) = &self.sentinel_password {
            builder = builder.set_client_to_sentinel_password(password.expose());
        }
        if let Some(tls) = &self.config.tls {
            builder = builder
                .set_client_to_redis_tls_mode(tls.mode())
                .set_client_to_sentinel_tls_mode(tls.mode());
        }
        if let Some(own) = self.certificates() {
            builder = builder
                .set_client_to_redis_certificates(own.clone())
                .set_client_to_sentinel_certificates(own);
        }
        Ok(Way::Sentinel(Box::new(tokio::sync::Mutex::new(builder.build()?))))
    }

    fn cluster(&self, cluster: &ClusterConfig) -> RedisResult<Way> {
        let settings = self.settings(&RedisConnectionInfo::default());
        let nodes: Vec<_> = cluster
            .nodes
            .iter()
            .map(|node| {
                let info = self.addr(node)?.into_connection_info()?;
                Ok(info.set_redis_settings(settings.clone()))
            })
            .collect::<RedisResult<_>>()?;
        let mut builder = ClusterClientBuilder::new(nodes.clone())
            .retries(1)
            .connection_timeout(self.connect_timeout())
            .response_timeout(self.reply_timeout());
        if let Some(tls) = &self.config.tls {
            builder = builder.tls(tls.mode());
        }
        if let Some(own) = self.certificates() {
            builder = builder.certs(own);
        }
        let each = nodes.into_iter().map(|info| self.client(info)).collect::<Result<_, _>>()?;
        Ok(Way::Cluster(Box::new(builder.build()?), each))
    }
}

fn node_problems(key: &'static str, nodes: &[String], found: &mut Vec<(&str, &str)>) {
    if nodes.is_empty() {
        found.push((key, "is empty; write [\"host:port\", ...]"));
    }
    let is_node = |node: &String| {
        let port = node.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        port.is_some()
            && !node.contains(['/', '@'])
            && format!("redis://{node}").into_connection_info().is_ok()
    };
    if !nodes.iter().all(is_node) {
        found.push((key, "has an entry that is no host:port"));
    }
}

fn certificate(path: &Path) -> anyhow::Result<Vec<u8>> {
    let unreadable = || format!("certificate file {} cannot be read", path.display());
    let bytes = regular_file::read(path, CERTIFICATE_BYTES).with_context(unreadable)?;
    let size = bytes.len() as u64;
    anyhow::ensure!(size <= CERTIFICATE_BYTES, "certificate file {} is too large", path.display());
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(config: &RedisConfig) -> Vec<String> {
        config.problems().into_iter().map(|(key, _)| key).collect()
    }

    fn with_url(url: &str) -> RedisConfig {
        RedisConfig { url: url.into(), ..RedisConfig::default() }
    }

    #[test]
    fn urls_of_every_kind() {
        for good in [
            "redis://127.0.0.1:6379",
            "redis://user@host:6379/2",
            "redis://:pa%40ss@host",
            "redis://[::1]:6379",
            "rediss://host:6380",
            "unix:///run/redis.sock?db=3",
        ] {
            assert_eq!(keys(&with_url(good)), [""; 0], "{good}");
        }
        for bad in ["", "host:6379", "http://host", "redis://host:port", "redis://host/-1", "unix:"]
        {
            assert_eq!(keys(&with_url(bad)), ["url"], "{bad}");
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let config = RedisConfig {
            url: "redis://a:b@host:6379".into(),
            username: Some("a".into()),
            password: Some("b".into()),
            password_file: Some("f".into()),
            sentinel: Some(SentinelConfig {
                nodes: vec!["host".into()],
                password: Some("x".into()),
                password_file: Some("f".into()),
                ..SentinelConfig::default()
            }),
            cluster: Some(ClusterConfig::default()),
            tls: Some(RedisTls {
                ca_file: Some("ca".into()),
                cert_file: Some("cert".into()),
                key_file: None,
                insecure: true,
            }),
            connect_timeout: Span::ZERO,
            reply_timeout: Span::from_secs(60),
        };
        assert_eq!(
            keys(&config),
            [
                "url",
                "password",
                "username",
                "tls",
                "password_file",
                "sentinel.nodes",
                "sentinel.master",
                "sentinel.password_file",
                "cluster.nodes",
                "tls.cert_file",
                "tls.insecure",
                "connect_timeout",
                "reply_timeout",
            ]
        );
    }

    #[test]
    fn debug_and_place_hide_the_password() {
        let config = with_url("redis://user:hush@host:6379/1");
        assert_eq!(format!("{config:?}"), "RedisConfig(host:6379)");
    }

    #[test]
    fn a_missing_file_is_named() {
        let mut config = with_url("rediss://host:6380");
        config.tls = Some(RedisTls { ca_file: Some("ca.pem".into()), ..RedisTls::default() });
        let error = Login::new(&config, Path::new("/no/such")).err().unwrap();
        assert_eq!(error.to_string(), "certificate file /no/such/ca.pem cannot be read");
    }
}
