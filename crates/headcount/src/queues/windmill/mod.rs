//! Windmill, whose jobs and workers are rows in PostgreSQL. SELECT on four tables is enough; nothing
//! is written, unless `write_events` asks for it.

mod check;
mod database;
mod era;
mod finished;
mod reading;
mod snapshot;
mod tags;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use headcount_core::{Missing, Silence, Span};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use crate::config::Place;
use crate::finding::Finding;
use crate::limits::LOOK_TIMEOUT;
use crate::postgres::{Postgres, PostgresConfig};
use crate::queues::{Queue, QueueSeen};
use crate::secret::Secret;
use database::Database;
use finished::Finished;
use snapshot::Snapshot;
use tags::Tags;

/// A worker group of a Windmill.
#[derive(Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WindmillConfig {
    /// Windmill's `DATABASE_URL`, best for a role of its own that may only read; best as `${ENV}`.
    /// `postgres://user:password@host:port/database?sslmode=…`; several hosts with commas.
    pub url: Option<Secret>,
    /// A file with the url.
    pub url_file: Option<PathBuf>,
    /// The password, if it is not in the url.
    pub password: Option<Secret>,
    /// A file with the password.
    pub password_file: Option<PathBuf>,
    /// The authority that signed the server's certificate, PEM; else those of the system.
    pub ca_file: Option<PathBuf>,
    /// Our own certificate, PEM, where the server asks for one; also `sslcert` in the url.
    pub cert_file: Option<PathBuf>,
    /// Its key, PEM, not encrypted; also `sslkey` in the url.
    pub key_file: Option<PathBuf>,
    /// How long a connection may take to come up: 2 s.
    pub connect_timeout: Span,
    /// How long a query may take: 2 s. The server ends it then.
    pub statement_timeout: Span,
    /// The worker group in Windmill. Default: this group's name.
    pub group: Option<String>,
    /// The tags that count. Default: custom_tags of the group's autoscaling in Windmill, else those
    /// its live workers listen to, else those of its configuration.
    pub tags: Vec<String>,
    /// Suspended jobs that may go on count as waiting. Windmill does not count them.
    pub resumable: bool,
    /// A worker that told of itself within this time is alive: 30 s. With `QUIET=true` workers tell
    /// less often: 90 s.
    pub alive_window: Span,
    /// You have made sure that row-level security hides no rows from this role, where `check` cannot
    /// see that it is so.
    pub rows_visible: bool,
    /// Write each change into Windmill's `autoscaling_event`, which its page of the group shows.
    pub write_events: bool,
}

struct Windmill {
    database: Database,
    group: String,
    tags: Vec<String>,
    resumable: bool,
    /// Seconds.
    alive: f64,
    rows_visible: bool,
    finished: Finished,
}

impl Default for WindmillConfig {
    fn default() -> Self {
        let PostgresConfig { connect_timeout, statement_timeout, .. } = PostgresConfig::default();
        Self {
            url: None,
            url_file: None,
            password: None,
            password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            connect_timeout,
            statement_timeout,
            group: None,
            tags: Vec::new(),
            resumable: false,
            alive_window: Span::from_secs(30),
            rows_visible: false,
            write_events: false,
        }
    }
}

/// Without the url, which holds a password.
impl fmt::Debug for WindmillConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WindmillConfig({:?}, {:?})", self.postgres(), self.group)
    }
}

impl WindmillConfig {
    /// How to reach the database.
    pub fn postgres(&self) -> PostgresConfig {
        PostgresConfig {
            url: self.url.clone(),
            url_file: self.url_file.clone(),
            password: self.password.clone(),
            password_file: self.password_file.clone(),
            ca_file: self.ca_file.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
            connect_timeout: self.connect_timeout,
            statement_timeout: self.statement_timeout,
        }
    }

    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = self.postgres().problems();
        let mut say = |key: &str, what: &str| found.push((key.to_owned(), what.to_owned()));
        if self.group.as_ref().is_some_and(String::is_empty) {
            say("group", "is empty; leave it out for this group's name");
        }
        if self.tags.iter().any(String::is_empty) {
            say("tags", "holds an empty tag");
        }
        let most = Span::from_secs(era::WORKERS_SEEN.into());
        if !(Span::from_secs(10)..=most).contains(&self.alive_window) {
            let what = "must be 10s to 10m: workers tell of themselves every 5 s, with QUIET=true \
                        every 50 s";
            say("alive_window", what);
        }
        found
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Queue>> {
        let postgres = Postgres::open(&self.postgres(), &place.base_dir)?;
        Ok(Box::new(Windmill {
            database: Database::open(postgres, self.resumable),
            group: self.group.clone().unwrap_or_else(|| place.group.clone()),
            tags: self.tags.clone(),
            resumable: self.resumable,
            alive: self.alive_window.as_secs_f64(),
            rows_visible: self.rows_visible,
            finished: Finished::default(),
        }))
    }
}

#[async_trait]
impl Queue for Windmill {
    async fn read(&mut self) -> Result<QueueSeen, Missing> {
        let limit = LOOK_TIMEOUT - Duration::from_millis(200);
        let looked = timeout(limit, self.database.look()).await.unwrap_or_else(|_| {
            let place = self.database.place();
            let detail = format!("postgres {place}: no answer within {} ms", limit.as_millis());
            Err(Missing { why: Silence::Timeout, detail })
        });
        let snapshot = looked.map_err(|mut missing| {
            if missing.detail.contains("permission denied") {
                missing.detail += "; `headcount check` prints the GRANT";
            }
            missing
        })?;
        self.understood(&snapshot)
    }

    async fn check(&mut self) -> Vec<Finding> {
        self.findings().await
    }
}

impl Windmill {
    fn understood(&mut self, snapshot: &Arc<Snapshot>) -> Result<QueueSeen, Missing> {
        let hidden = &snapshot.base.hidden;
        if !hidden.is_empty() && !self.rows_visible {
            let detail = format!(
                "postgres {}: row-level security may hide rows of {} from role {}, without an error; \
                 `headcount check` prints the policy that shows them",
                self.database.place(),
                hidden.join(", "),
                snapshot.base.role
            );
            return Err(Missing { why: Silence::Denied, detail });
        }
        let tags = Tags::of(snapshot, &self.group, &self.tags, self.alive)?;
        let mut seen = reading::seen(snapshot, &self.group, &tags, self.alive, self.resumable);
        let done = self.finished.count(snapshot.workers_of(&self.group), Instant::now());
        seen.reading.finished_total = Some(done);
        Ok(seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_url_is_missing() {
        let keys: Vec<_> =
            WindmillConfig::default().problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["url"]);
    }

    #[test]
    fn all_problems_at_once() {
        let config = WindmillConfig {
            url: Some("postgres://u:hush@db/w?sslmode=no".into()),
            group: Some(String::new()),
            tags: vec!["a".into(), String::new()],
            alive_window: Span::from_secs(5),
            ..WindmillConfig::default()
        };
        let keys: Vec<_> = config.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["url", "group", "tags", "alive_window"]);
        assert!(!format!("{config:?}").contains("hush"));
    }
}
