//! One connection to a PostgreSQL, shared by all that name the same one. It comes up when first
//! needed, and again, with back-off, when it broke; of several hosts the first that answers counts.
//!
//! Everything goes by the simple protocol, as one message that is one transaction by itself: nothing
//! is prepared and nothing is set for longer than that, so any pooler in between will do.

mod config;
mod missing;
mod tls;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use headcount_core::{Missing, Silence};
use tokio::time::{Instant, timeout};
use tokio_postgres::{Client, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

pub use config::PostgresConfig;
pub use missing::malformed;

use crate::limits::{POSTGRES_MARGIN, POSTGRES_ROWS, SECRETS_READ_EVERY};
use crate::unreached::Unreached;
use config::{Login, Server};
use missing::{breaks_link, missing, timed_out};

/// A PostgreSQL. Clones share the connection.
#[derive(Clone)]
pub struct Postgres(Arc<Shared>);

struct Shared {
    config: PostgresConfig,
    /// Relative paths in `config` start here.
    base: PathBuf,
    place: String,
    opened: Mutex<Opened>,
    line: tokio::sync::Mutex<Line>,
}

/// What came out of the configuration and the files that it names.
#[derive(Clone)]
struct Opened {
    login: Login,
    tls: MakeRustlsConnect,
    read_at: Instant,
}

/// The connection's state.
#[derive(Default)]
struct Line {
    link: Option<Arc<Client>>,
    failed: Option<Unreached>,
}

/// Who shares what: those in use.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Postgres {
    /// The PostgreSQL of `config`, whose relative paths start at `base`. Nothing is connected yet.
    ///
    /// # Errors
    /// A file with a secret or a certificate cannot be read, or what it holds makes no sense.
    pub fn open(config: &PostgresConfig, base: &Path) -> anyhow::Result<Self> {
        let login = Login::new(config, base)?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|shared| shared.strong_count() > 0);
        let is_same = |shared: &Arc<Shared>| shared.opened().login == login && shared.base == base;
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

    /// Where it is, for messages: hosts and database.
    pub fn place(&self) -> &str {
        &self.0.place
    }

    /// Whether both share one connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Runs `script`, statements with semicolons between them, in one transaction and one round
    /// trip, each under the statement time-out. Returns all rows, of all statements in their order,
    /// each by its first column; NULL is empty.
    ///
    /// # Errors
    /// Why there is no answer. Nothing was changed then, except if the answer only came too late.
    pub async fn ask(&self, script: &str) -> Result<Vec<String>, Missing> {
        let link = self.0.link().await?;
        let limit = self.0.opened().login.statement_timeout;
        let script = format!("SET LOCAL statement_timeout = {}; {script}", limit.as_millis());
        let limit = limit + POSTGRES_MARGIN;
        let said = match timeout(limit, link.simple_query(&script)).await {
            Ok(Ok(said)) => said,
            Ok(Err(error)) => {
                if breaks_link(&error) || link.is_closed() {
                    self.0.forget(&link).await;
                }
                return Err(missing(&error, self.place()));
            }
            Err(_) => {
                self.0.forget(&link).await;
                return Err(timed_out(self.place(), limit));
            }
        };
        let rows: Vec<String> = said
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
                _ => None,
            })
            .collect();
        if rows.len() > POSTGRES_ROWS {
            return Err(malformed(self.place(), format!("more than {POSTGRES_ROWS} rows")));
        }
        Ok(rows)
    }
}

impl Opened {
    fn new(login: Login) -> anyhow::Result<Self> {
        let tls = login.mode().connector(login.ca(), login.own())?;
        Ok(Self { tls, login, read_at: Instant::now() })
    }
}

impl Shared {
    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
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
            Ok(login) if login == opened.login => false,
            Ok(login) => Opened::new(login).map(|new| *opened = new).is_ok(),
            Err(error) => {
                tracing::warn!(
                    postgres = self.place,
                    error = format!("{error:#}"),
                    "the files with secrets cannot be read again; the old ones stay in use"
                );
                false
            }
        }
    }

    async fn link(&self) -> Result<Arc<Client>, Missing> {
        let mut line = self.line.lock().await;
        if let Some(link) = line.link.as_ref().filter(|link| !link.is_closed()) {
            return Ok(Arc::clone(link));
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
                Ok(Arc::clone(line.link.insert(Arc::new(link))))
            }
            Err(why) => {
                line.link = None;
                line.failed = Some(Unreached::again(line.failed.as_ref(), why.clone()));
                Err(why)
            }
        }
    }

    /// Gives up a connection, unless it has a successor already.
    async fn forget(&self, broken: &Arc<Client>) {
        let mut line = self.line.lock().await;
        if line.link.as_ref().is_some_and(|link| Arc::ptr_eq(link, broken)) {
            line.link = None;
        }
    }

    /// The first server that lets us in; each gets its share of the time.
    async fn connect(&self) -> Result<Client, Missing> {
        let opened = self.opened().clone();
        let servers = opened.login.servers();
        let share = opened.login.connect_timeout / u32::try_from(servers.len().max(1)).unwrap_or(1);
        let mut failed: Vec<Missing> = Vec::new();
        for server in servers {
            match timeout(share, log_in(&server, opened.tls.clone())).await {
                Ok(Ok(client)) => return Ok(client),
                Ok(Err(error)) => failed.push(missing(&error, &server.place)),
                Err(_) => failed.push(timed_out(&server.place, share)),
            }
        }
        // A server that answers and refuses tells more than one that does not answer.
        let why = [Silence::Denied, Silence::NotFound]
            .into_iter()
            .find(|why| failed.iter().any(|missing| missing.why == *why))
            .or(failed.last().map(|missing| missing.why))
            .unwrap_or(Silence::Unreachable);
        let details: Vec<_> = failed.into_iter().map(|missing| missing.detail).collect();
        Err(Missing { why, detail: details.join("; ") })
    }
}

/// Connects, and keeps the connection going in the background until its client is dropped.
async fn log_in(server: &Server, tls: MakeRustlsConnect) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = server.config.connect(tls).await?;
    let place = server.place.clone();
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(place, %error, "the connection to postgres ended");
        }
    });
    Ok(client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_postgres_is_opened_once() {
        let url = "postgres://u@127.0.0.1:1/w";
        let config = PostgresConfig { url: Some(url.into()), ..PostgresConfig::default() };
        let here = Path::new(".");
        let first = Postgres::open(&config, here).unwrap();
        assert!(first.is_same(&Postgres::open(&config, here).unwrap()));
        let other = PostgresConfig { password: Some("x".into()), ..config };
        assert!(!first.is_same(&Postgres::open(&other, here).unwrap()));
    }
}
