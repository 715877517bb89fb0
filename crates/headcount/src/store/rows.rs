//! The rows of the database: how events, samples and states are written and read.

use std::collections::{HashMap, VecDeque};

use headcount_core::state::Controls;
use headcount_core::{Outcome, Span, Timestamp};
use rusqlite::{Connection, params};
use serde::Serialize;

use super::usage::Ledger;
use super::{Event, Latest};
use crate::queues::Finished;

/// What was seen at one look, in numbers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) group: String,
    pub(super) t: Timestamp,
    pub(super) queue: Option<(u64, u64, Option<Span>, Option<u64>)>,
    pub(super) fleet: Option<(u32, u32, u32, Option<u32>)>,
    pub(super) host: Option<(f64, Option<f64>)>,
    pub(super) cpu_ema: Option<f64>,
    pub(super) wanted: Option<u32>,
}

/// What is written together.
pub(super) struct Batch<'a> {
    pub(super) events: &'a VecDeque<Event>,
    pub(super) latest: &'a [&'a Latest],
    pub(super) samples: &'a VecDeque<Sample>,
    pub(super) jobs: &'a VecDeque<(String, Finished)>,
    pub(super) usage: &'a Ledger,
}

pub(super) fn write_all(db: &Connection, batch: &Batch<'_>) -> rusqlite::Result<()> {
    let Batch { events, latest, samples, jobs, usage } = *batch;
    let change = db.unchecked_transaction()?;
    for event in events {
        let (from, to) = event.decision.change().unwrap_or_default();
        change
            .prepare_cached(
                "INSERT INTO events (t_ms, name, kind, from_n, to_n, dry, outcome, note,
                 observation, decision, alert)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                event.t.as_millis(),
                event.group,
                event.kind(),
                from,
                to,
                event.dry,
                event.outcome.map(outcome_name),
                event.note,
                text(&event.observation)?,
                text(&event.decision)?,
                event.alert.as_ref().map(text).transpose()?,
            ])?;
    }
    for latest in latest {
        change
            .prepare_cached(
                "INSERT OR REPLACE INTO groups (name, t_ms, state, observation, decision)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?
            .execute(params![
                latest.group,
                latest.decision.t.as_millis(),
                text(&latest.state)?,
                text(&latest.observation)?,
                text(&latest.decision)?,
            ])?;
    }
    for sample in samples {
        write_sample(&change, sample)?;
    }
    for (group, job) in jobs {
        let times = [job.came, job.started, job.ended].map(Timestamp::as_millis);
        change
            .prepare_cached(
                "INSERT INTO jobs (name, came_ms, started_ms, ended_ms) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![group, times[0], times[1], times[2]])?;
    }
    usage.write(&change)?;
    change.commit()
}

pub(super) fn write_sample(db: &Connection, sample: &Sample) -> rusqlite::Result<usize> {
    let (waiting, active, oldest, finished) =
        sample.queue.map_or((None, None, None, None), |(waiting, active, oldest, finished)| {
            (Some(waiting), Some(active), oldest, finished)
        });
    let count = |n: Option<u64>| n.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    let oldest = oldest.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX));
    let fleet = sample.fleet;
    db.prepare_cached(
        "INSERT OR REPLACE INTO samples (name, t_ms, waiting, active, oldest_ms, finished, ready,
         starting, draining, busy, cpu_raw, mem, cpu_ema, wanted)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?
    .execute(params![
        sample.group,
        sample.t.as_millis(),
        count(waiting),
        count(active),
        oldest,
        count(finished),
        fleet.map(|f| f.0),
        fleet.map(|f| f.1),
        fleet.map(|f| f.2),
        fleet.and_then(|f| f.3),
        sample.host.map(|h| h.0),
        sample.host.and_then(|h| h.1),
        sample.cpu_ema,
        sample.wanted,
    ])
}

pub(super) fn read_controls(db: &Connection) -> rusqlite::Result<HashMap<String, Controls>> {
    let mut query = db.prepare_cached("SELECT name, controls FROM controls")?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, json(row, 1)?)))?;
    rows.collect()
}

pub(super) fn event_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Event> {
    let outcome: Option<String> = row.get(3)?;
    Ok(Event {
        t: Timestamp::from_millis(row.get(0)?),
        group: row.get(1)?,
        dry: row.get(2)?,
        outcome: outcome.as_deref().map(outcome_of),
        note: row.get(4)?,
        observation: json(row, 5)?,
        decision: json(row, 6)?,
        alert: row.get_ref(7)?.as_str_or_null()?.is_some().then(|| json(row, 7)).transpose()?,
    })
}

pub(super) const fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Failed => "failed",
        Outcome::NotNow => "not_now",
        Outcome::Pretended => "pretended",
    }
}

fn outcome_of(name: &str) -> Outcome {
    match name {
        "done" => Outcome::Done,
        "not_now" => Outcome::NotNow,
        "pretended" => Outcome::Pretended,
        _ => Outcome::Failed,
    }
}

pub(super) fn text<T: Serialize>(value: &T) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
}

pub(super) fn json<T: serde::de::DeserializeOwned>(
    row: &rusqlite::Row<'_>,
    column: usize,
) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|e| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, e.into())
    })
}
