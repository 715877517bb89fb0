//! One connection to a Redis, shared by all that name the same one. It comes up when first needed,
//! and again, with back-off, when it broke; no question waits longer than the configured limits.

mod config;
mod listen;
mod missing;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ::redis::aio::MultiplexedConnection;
use ::redis::cluster_async::ClusterConnection;
use ::redis::cluster_routing::{
    MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr,
};
use ::redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value,
};
use headcount_core::Missing;
use tokio::time::{Instant, timeout};

pub use config::{ClusterConfig, RedisConfig, RedisTls, SentinelConfig};
pub use listen::{Heard, Hearing, Listener, Topic};
pub use missing::{is_denied, malformed, missing, timed_out};

use crate::limits::SECRETS_READ_EVERY;
use crate::unreached::Unreached;
use config::{Login, Way};
use missing::{breaks_link, lacks_right};

/// What one command of a pipeline brought.
pub type Answer = RedisResult<Value>;

/// A Redis. Clones share the connection.
#[derive(Clone)]
pub struct Redis(Arc<Shared>);

struct Shared {
    config: RedisConfig,
    /// Relative paths in `config` start here.
    base: PathBuf,
    place: String,
    opened: Mutex<Opened>,
    line: tokio::sync::Mutex<Line>,
}

/// What came out of the configuration and the files that it names.
struct Opened {
    login: Arc<Login>,
    way: Arc<Way>,
    read_at: Instant,
}

/// The connection's state.
#[derive(Default)]
struct Line {
    link: Option<Link>,
    /// Grows with each connection, so that a late failure does not close its successor.
    number: u64,
    failed: Option<Unreached>,
}

#[derive(Clone)]
enum Link {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// Who shares what: the logins in use.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Redis {
    /// The Redis of `config`, whose relative paths start at `base`. Nothing is connected yet.
    ///
    /// # Errors
    /// A file with a secret or a certificate cannot be read, or holds none.
    pub fn open(config: &RedisConfig, base: &Path) -> anyhow::Result<Self> {
        let login = Login::new(config, base)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|shared| shared.strong_count() > 0);
        let is_same = |shared: &Arc<Shared>| *shared.login() == login && shared.base == base;
        if let Some(shared) = open.iter().filter_map(Weak::upgrade).find(is_same) {
            return Ok(Self(shared));
        }
        let shared = Arc::new(Shared {
            config: config.clone(),
            base: base.to_owned(),
            place: login.place(),
            opened: Mutex::new(Opened::new(login)?),
            line: <_>::default(),
        });
        open.push(Arc::downgrade(&shared));
        Ok(Self(shared))
    }

    /// Where it is, for messages.
    pub fn place(&self) -> &str {
        &self.0.place
    }

    /// Whether keys are spread over several servers.
    pub fn is_cluster(&self) -> bool {
        self.0.config.is_cluster()
    }

    /// Sends `pipeline` and returns an answer for each of its commands. In a cluster it goes to the
    /// master that holds `key`, so all its keys must share a slot.
    ///
    /// # Errors
    /// Why there are no answers at all.
    pub async fn ask(&self, pipeline: &Pipeline, key: &str) -> Result<Vec<Answer>, Missing> {
        let (link, number) = self.0.link().await?;
        let limit = self.0.login().reply_timeout();
        let sent = match timeout(limit, link.send(pipeline, key)).await {
            Ok(sent) => sent,
            Err(_) => {
                self.0.forget(number).await;
                return Err(timed_out(self.place(), limit));
            }
        };
        let broken = match &sent {
            Ok(answers) => answers.iter().filter_map(|a| a.as_ref().err()).any(breaks_link),
            Err(error) => breaks_link(error),
        };
        if broken {
            self.0.forget(number).await;
        }
        sent.map_err(|error| missing(&error, self.place()))
    }

    /// Sends one command to every master: there is one, but for a cluster.
    ///
    /// # Errors
    /// Why there are no answers at all.
    pub async fn ask_masters(&self, cmd: &Cmd) -> Result<Vec<Answer>, Missing> {
        let (mut link, number) = self.0.link().await?;
        let limit = self.0.login().reply_timeout();
        let asked = async {
            match &mut link {
                Link::One(one) => Ok(vec![cmd.query_async::<Value>(one).await]),
                Link::Cluster(cluster) => {
                    let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                    cluster.route_command(cmd.clone(), all).await.map(by_node)
                }
            }
        };
        match timeout(limit, asked).await {
            Ok(Ok(answers)) => Ok(answers),
            Ok(Err(error)) if is_denied(&error) => Ok(vec![Err(error)]),
            Ok(Err(error)) => {
                self.0.forget(number).await;
                Err(missing(&error, self.place()))
            }
            Err(_) => {
                self.0.forget(number).await;
                Err(timed_out(self.place(), limit))
            }
        }
    }
}

impl Opened {
    fn new(login: Login) -> anyhow::Result<Self> {
        let way = Arc::new(login.way()?);
        Ok(Self { login: Arc::new(login), way, read_at: Instant::now() })
    }
}

impl Shared {
    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn login(&self) -> Arc<Login> {
        Arc::clone(&self.opened().login)
    }

    fn way(&self) -> Arc<Way> {
        Arc::clone(&self.opened().way)
    }

    /// After a failure: reads the files with secrets again, now and then, in case a password was
    /// changed. Whether there is something new in them.
    fn read_again(&self) -> bool {
        let mut opened = self.opened();
        if !self.config.has_secret_files() || opened.read_at.elapsed() < SECRETS_READ_EVERY {
            return false;
        }
        opened.read_at = Instant::now();
        match Login::new(&self.config, &self.base) {
            Ok(login) if login == *opened.login => false,
            Ok(login) => Opened::new(login).map(|new| *opened = new).is_ok(),
            Err(error) => {
                tracing::warn!(
                    redis = self.place,
                    error = format!("{error:#}"),
                    "the files with secrets cannot be read again; the old ones stay in use"
                );
                false
            }
        }
    }

    async fn link(&self) -> Result<(Link, u64), Missing> {
        let mut line = self.line.lock().await;
        if let Some(link) = &line.link {
            return Ok((link.clone(), line.number));
        }
        if let Some(why) = line.failed.as_ref().and_then(Unreached::rests) {
            return Err(why.clone());
        }
        let mut connected = self.connect().await;
        if connected.is_err() && self.read_again() {
            connected = self.connect().await;
        }
        match connected {
            Ok(link) => {
                line.failed = None;
                line.number += 1;
                line.link = Some(link.clone());
                Ok((link, line.number))
            }
            Err(why) => {
                line.failed = Some(Unreached::again(line.failed.as_ref(), why.clone()));
                Err(why)
            }
        }
    }

    async fn forget(&self, number: u64) {
        let mut line = self.line.lock().await;
        if line.number == number {
            line.link = None;
        }
    }

    async fn connect(&self) -> Result<Link, Missing> {
        let limit = self.login().connect_timeout();
        let way = self.way();
        let connecting = async {
            match &*way {
                Way::Single(client) => self.multiplexed(client).await.map(Link::One),
                Way::Sentinel(sentinel) => {
                    let client = sentinel.lock().await.async_get_client().await?;
                    self.multiplexed(&client).await.map(Link::One)
                }
                Way::Cluster(cluster, _) => cluster.get_async_connection().await.map(Link::Cluster),
            }
        };
        match timeout(limit, connecting).await {
            Ok(connected) => connected.map_err(|error| missing(&error, &self.place)),
            Err(_) => Err(timed_out(&self.place, limit)),
        }
    }

    async fn multiplexed(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        // The limits are ours, see `connect` and `ask`.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
        let mut link = client.get_multiplexed_async_connection_with_config(&config).await?;
        // Whoever is not logged in is cut off at the first long command instead of being told.
        match ::redis::cmd("PING").query_async::<Value>(&mut link).await {
            Err(error) if !lacks_right(&error) => Err(error),
            _ => Ok(link),
        }
    }

    /// A client for a server at which channels can be heard.
    async fn subscribe_at(&self, attempt: usize) -> RedisResult<Client> {
        match &*self.way() {
            Way::Single(client) => Ok(Client::clone(client)),
            Way::Sentinel(sentinel) => sentinel.lock().await.async_get_client().await,
            // Messages reach every node, so any will do.
            Way::Cluster(_, nodes) => {
                nodes.get(attempt % nodes.len().max(1)).cloned().ok_or_else(|| {
                    RedisError::from((ErrorKind::InvalidClientConfig, "no cluster nodes"))
                })
            }
        }
    }
}

impl Link {
    async fn send(mut self, pipeline: &Pipeline, key: &str) -> RedisResult<Vec<Answer>> {
        match &mut self {
            Self::One(one) => {
                let mut pipeline = pipeline.clone();
                pipeline.ignore_errors().query_async(one).await
            }
            Self::Cluster(cluster) => {
                let route = Route::with_key(key, SlotAddr::Master);
                let count = pipeline.cmd_iter().count();
                let node = SingleNodeRoutingInfo::SpecificNode(route);
                let mut pipeline = pipeline.clone();
                pipeline.ignore_errors();
                let values = cluster.route_pipeline(pipeline, 0, count, node).await?;
                Ok(values.into_iter().map(Value::extract_error).collect())
            }
        }
    }
}

fn by_node(value: Value) -> Vec<Answer> {
    match value {
        Value::Map(pairs) => pairs.into_iter().map(|(_, v)| v.extract_error()).collect(),
        other => vec![other.extract_error()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_redis_is_opened_once() {
        let config = RedisConfig { url: "redis://127.0.0.1:1".into(), ..RedisConfig::default() };
        let here = Path::new(".");
        let first = Redis::open(&config, here).unwrap();
        let second = Redis::open(&config, here).unwrap();
        assert!(Arc::ptr_eq(&first.0, &second.0));
        let other = RedisConfig { password: Some("x".into()), ..config };
        let third = Redis::open(&other, here).unwrap();
        assert!(!Arc::ptr_eq(&first.0, &third.0));
    }
}
