//! Changes as rows of Windmill's own `autoscaling_event`, so that its page of a worker group shows them.
//! Windmill deletes them after 30 days.

use async_trait::async_trait;
use headcount_core::{Missing, Outcome};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::EventSink;
use crate::config::Place;
use crate::finding::Finding;
use crate::limits::{WINDMILL_EVENTS_QUEUED, WINDMILL_LAST_WORDS};
use crate::postgres::{Postgres, malformed};
use crate::queues::windmill::WindmillConfig;
use crate::store::Event;

const ABOUT: &str = "events";

/// What the role may do: one row, [`Rights`].
const RIGHTS: &str = "\
SELECT json_build_object('role', quote_ident(current_user), 'standby', pg_is_in_recovery(),
  'events', e.name, 'insert', has_table_privilege(e.name, 'INSERT'), 'sequence', s.name,
  'usage', has_sequence_privilege(s.name, 'USAGE'))
FROM (SELECT (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = to_regclass('autoscaling_event')) AS name) e,
  LATERAL (SELECT (SELECT format('%I.%I', n.nspname, c.relname) FROM pg_depend d
    JOIN pg_class c ON c.oid = d.objid AND c.relkind = 'S'
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE d.refobjid = to_regclass('autoscaling_event') AND d.deptype = 'a' LIMIT 1) AS name) s";

/// Writes changes, one after the other.
pub struct WindmillEvents {
    sending: Option<(mpsc::Sender<Row>, JoinHandle<()>)>,
    group: String,
}

/// A row on its way.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    group: String,
    event_type: &'static str,
    desired: u32,
    reason: String,
}

/// See [`RIGHTS`].
#[derive(Debug, Deserialize)]
struct Rights {
    role: String,
    standby: bool,
    events: Option<String>,
    insert: Option<bool>,
    sequence: Option<String>,
    usage: Option<bool>,
}

impl WindmillEvents {
    /// Makes it for the group at `place`; shares the connection of the queue.
    ///
    /// # Errors
    /// A file that it needs cannot be read.
    pub fn open(config: &WindmillConfig, place: &Place) -> anyhow::Result<Self> {
        let postgres = Postgres::open(&config.postgres(), &place.base_dir)?;
        let (queue, queued) = mpsc::channel(WINDMILL_EVENTS_QUEUED);
        let sending = tokio::spawn(write_all(postgres, queued));
        let group = config.group.clone().unwrap_or_else(|| place.group.clone());
        Ok(Self { sending: Some((queue, sending)), group })
    }

    /// What `headcount check` finds out about it, without an event.
    pub async fn check(config: &WindmillConfig, place: &Place) -> Finding {
        let postgres = match Postgres::open(&config.postgres(), &place.base_dir) {
            Ok(postgres) => postgres,
            Err(error) => return unknown(&format!("{error:#}")),
        };
        match rights(&postgres).await {
            Ok(rights) => rights.finding(postgres.place()),
            Err(missing) => unknown(&missing.to_string()),
        }
    }
}

fn unknown(why: &str) -> Finding {
    let fix = "see what is said of the queue; or remove write_events";
    Finding::problem(ABOUT, format!("nobody knows whether events can be written: {why}"), fix)
}

async fn rights(postgres: &Postgres) -> Result<Rights, Missing> {
    let rows = postgres.ask(RIGHTS).await?;
    let row = rows.first().map_or("", String::as_str);
    serde_json::from_str(row).map_err(|error| malformed(postgres.place(), error))
}

impl Rights {
    fn finding(&self, place: &str) -> Finding {
        let Self { role, standby, events, insert, sequence, usage } = self;
        let Some(events) = events else {
            let what = format!("postgres {place}: no table autoscaling_event");
            return Finding::problem(ABOUT, what, "remove write_events, or upgrade windmill");
        };
        if *standby {
            let what = format!("postgres {place} is a standby: events cannot be written");
            return Finding::problem(
                ABOUT,
                what,
                "name the primary in `url`, or remove write_events",
            );
        }
        let mut grants = Vec::new();
        if *insert != Some(true) {
            grants.push(format!("GRANT INSERT ON {events} TO {role};"));
        }
        if let (Some(sequence), false) = (sequence, *usage == Some(true)) {
            grants.push(format!("GRANT USAGE ON SEQUENCE {sequence} TO {role};"));
        }
        if grants.is_empty() {
            return Finding::good(ABOUT, format!("are written into {events}"));
        }
        let what = format!("role {role} may not write into {events}");
        Finding::problem(ABOUT, what, grants.join(" "))
    }
}

#[async_trait]
impl EventSink for WindmillEvents {
    fn tell(&self, event: &Event) {
        let (Some(row), Some((queue, _))) = (Row::of(&self.group, event), &self.sending) else {
            return;
        };
        if queue.try_send(row).is_err() {
            let group = &event.group;
            tracing::warn!(group, "an event is not written into windmill: too many wait for it");
        }
    }

    async fn close(&mut self) {
        let Some((queue, mut sending)) = self.sending.take() else { return };
        drop(queue);
        if tokio::time::timeout(WINDMILL_LAST_WORDS, &mut sending).await.is_err() {
            tracing::warn!("an event is not written into windmill: there is no time left");
            sending.abort();
        }
    }
}

impl Row {
    /// A change that was really made.
    fn of(group: &str, event: &Event) -> Option<Self> {
        if event.dry || event.alert.is_some() || event.outcome != Some(Outcome::Done) {
            return None;
        }
        let event_type = event.decision.event_type()?;
        let (desired, reason) = (event.decision.wanted?, event.decision.reason.clone());
        Some(Self { group: group.to_owned(), event_type, desired, reason })
    }

    /// The column's default would be the time of the connection's zone; Windmill reads it as UTC.
    fn statement(&self) -> String {
        let Self { group, event_type, desired, reason } = self;
        let (group, reason) = (quoted(group), quoted(reason));
        format!(
            "INSERT INTO autoscaling_event (worker_group, event_type, desired_workers, applied_at, reason)
            VALUES ({group}, '{event_type}', {desired}, now() AT TIME ZONE 'UTC', {reason})"
        )
    }
}

/// Writes what is queued until nobody can queue more. One that fails is not tried again: nobody could
/// tell whether it was written. The first failure in a row is told.
async fn write_all(postgres: Postgres, mut queued: mpsc::Receiver<Row>) {
    let mut failed = false;
    while let Some(row) = queued.recv().await {
        let written = postgres.ask(&row.statement()).await;
        if let (Err(missing), false) = (&written, failed) {
            let group = row.group;
            tracing::warn!(
                group,
                "an event is not written into windmill: {missing}; `headcount check` says what is \
                 missing"
            );
        }
        failed = written.is_err();
    }
}

/// A text as SQL, whatever the server takes a backslash for.
fn quoted(text: &str) -> String {
    let text = text.replace('\0', " ").replace('\\', "\\\\").replace('\'', "''");
    format!("E'{text}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(insert: bool, usage: Option<bool>) -> Rights {
        Rights {
            role: "scaler".into(),
            standby: false,
            events: Some("public.autoscaling_event".into()),
            insert: Some(insert),
            sequence: usage.map(|_| "public.autoscaling_event_id_seq".into()),
            usage,
        }
    }

    #[test]
    fn what_is_lacking_is_told_as_the_statement_that_grants_it() {
        let fix = |rights: Rights| rights.finding("db/w").fix.unwrap_or_default();
        let insert = "GRANT INSERT ON public.autoscaling_event TO scaler;";
        let usage = "GRANT USAGE ON SEQUENCE public.autoscaling_event_id_seq TO scaler;";
        assert_eq!(fix(rights(true, Some(true))), "");
        assert_eq!(fix(rights(true, None)), "", "an identity column needs no right");
        assert_eq!(fix(rights(false, Some(true))), insert);
        assert_eq!(fix(rights(true, Some(false))), usage);
        assert_eq!(fix(rights(false, Some(false))), format!("{insert} {usage}"));
        let standby = Rights { standby: true, ..rights(true, None) };
        assert!(fix(standby).contains("name the primary"));
        let none = Rights { events: None, ..rights(true, None) };
        assert!(none.finding("db/w").what.ends_with("no table autoscaling_event"));
    }

    #[test]
    fn a_text_cannot_end_its_quotes() {
        assert_eq!(quoted("it's \\' a\0b"), "E'it''s \\\\'' a b'");
    }
}
