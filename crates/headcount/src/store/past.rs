//! What was recorded of the past, for those who replay it.

use headcount_core::{Span, Timestamp};
use rusqlite::{Row, params};

use super::rows::event_of;
use super::{Event, Store};
use crate::queues::Finished;

/// What one look showed of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// When.
    pub t: Timestamp,
    /// What it held; `None` if it did not answer.
    pub queue: Option<Counts>,
}

/// What a queue held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Jobs that waited.
    pub waiting: u64,
    /// Jobs that ran.
    pub active: u64,
    /// How long the oldest had waited.
    pub oldest: Option<Span>,
    /// Jobs finished since some point in the past.
    pub finished: Option<u64>,
}

impl Store {
    /// The last events, newest first.
    pub fn events(&self, group: Option<&str>, since: Option<Timestamp>, limit: u32) -> Vec<Event> {
        self.read_events(group, since, limit, true)
    }

    /// The last changes, newest first: events without alerts.
    pub fn changes(&self, group: Option<&str>, since: Option<Timestamp>, limit: u32) -> Vec<Event> {
        self.read_events(group, since, limit, false)
    }

    fn read_events(
        &self,
        group: Option<&str>,
        since: Option<Timestamp>,
        limit: u32,
        alerts: bool,
    ) -> Vec<Event> {
        let since = since.map_or(i64::MIN, Timestamp::as_millis);
        let mut inner = self.lock();
        inner.write();
        let read = inner.with(|db| {
            let sql =
                "SELECT t_ms, name, dry, outcome, note, observation, decision, alert FROM events
                       WHERE (?1 IS NULL OR name = ?1) AND t_ms >= ?2 AND (?4 OR alert IS NULL)
                       ORDER BY t_ms DESC, id DESC LIMIT ?3";
            let mut query = db.prepare_cached(sql)?;
            let rows = query.query_map(params![group, since, limit, alerts], event_of)?;
            rows.collect::<Result<Vec<_>, _>>()
        });
        read.unwrap_or_default()
    }

    /// The recorded looks at a group's queue since then, the oldest first. One that showed the same
    /// as the look before it may be missing, for at most 10 s.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn looks(&self, group: &str, since: Option<Timestamp>) -> anyhow::Result<Vec<Look>> {
        let sql = "SELECT t_ms, waiting, active, oldest_ms, finished FROM samples
                   WHERE name = ?1 AND t_ms >= ?2 ORDER BY t_ms";
        self.rows(sql, group, since, look_of)
    }

    /// The recorded jobs of a group that finished since then, in the order of their end.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn jobs(&self, group: &str, since: Option<Timestamp>) -> anyhow::Result<Vec<Finished>> {
        let sql = "SELECT came_ms, started_ms, ended_ms FROM jobs
                   WHERE name = ?1 AND ended_ms >= ?2 ORDER BY ended_ms";
        self.rows(sql, group, since, job_of)
    }

    fn rows<T>(
        &self,
        sql: &str,
        group: &str,
        since: Option<Timestamp>,
        read: fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> anyhow::Result<Vec<T>> {
        let since = since.map_or(i64::MIN, Timestamp::as_millis);
        let mut inner = self.lock();
        inner.write();
        let rows = inner.with(|db| {
            let mut query = db.prepare_cached(sql)?;
            query.query_map(params![group, since], read)?.collect()
        });
        rows.ok_or_else(|| anyhow::anyhow!("{}", inner.trouble.clone().unwrap_or_default()))
    }
}

fn job_of(row: &Row<'_>) -> rusqlite::Result<Finished> {
    let at = |column| row.get(column).map(Timestamp::from_millis);
    Ok(Finished { came: at(0)?, started: at(1)?, ended: at(2)? })
}

fn look_of(row: &Row<'_>) -> rusqlite::Result<Look> {
    let count = |n: i64| u64::try_from(n).unwrap_or(0);
    let (waiting, active): (Option<i64>, Option<i64>) = (row.get(1)?, row.get(2)?);
    let (oldest, finished): (Option<i64>, Option<i64>) = (row.get(3)?, row.get(4)?);
    let queue = waiting.zip(active).map(|(waiting, active)| Counts {
        waiting: count(waiting),
        active: count(active),
        oldest: oldest.map(Span::from_millis),
        finished: finished.map(count),
    });
    Ok(Look { t: Timestamp::from_millis(row.get(0)?), queue })
}
