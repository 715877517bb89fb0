//! The embedded job table of `headcount demo`.

use std::path::PathBuf;

use async_trait::async_trait;
use headcount_core::reading::LIST_LIMIT;
use headcount_core::{Missing, QueueReading, Silence, Span, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::clock;
use crate::config::Place;
use crate::demo::table::{Table, Taker, Unfinished};
use crate::finding::Finding;
use crate::hosts::processes;
use crate::limits::FINISHED_JOBS;
use crate::queues::{Consumer, Finished, Identity, Queue, QueueSeen};

/// A job table in a file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DemoConfig {
    /// The SQLite file. `headcount demo` makes one.
    pub database: PathBuf,
}

impl DemoConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        if self.database.as_os_str().is_empty() {
            return vec![("database".into(), "is missing; give the file of the job table".into())];
        }
        Vec::new()
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Queue>> {
        let file = place.base_dir.join(&self.database);
        Ok(Box::new(Demo { file, table: None, finished_until: None, finished: Vec::new() }))
    }
}

struct Demo {
    file: PathBuf,
    table: Option<Table>,
    /// When the last job finished that was told of.
    finished_until: Option<Timestamp>,
    /// The jobs that finished and were not asked for.
    finished: Vec<Finished>,
}

impl Demo {
    /// One look. SQLite reads a small local file here: that is too short to move to a thread.
    fn look(&mut self, now: Timestamp) -> rusqlite::Result<QueueSeen> {
        let table = match self.table.take() {
            Some(table) => table,
            None => Table::open(&self.file)?,
        };
        let unfinished = table.unfinished()?;
        let since = self.finished_until.unwrap_or(now);
        let done = table.finished_after(since)?;
        let finished = table.put_total()?.saturating_sub(unfinished.len() as u64);
        let consumers = table.takers()?.iter().map(|t| consumer(t, &unfinished, now)).collect();
        let mut reading = demand(&unfinished, now);
        let took = |job: &Finished| job.ended.since(job.started).max(Span::ZERO);
        reading.durations = done.iter().map(took).take(LIST_LIMIT).collect();
        reading.finished_total = Some(finished);
        self.finished_until = Some(done.last().map_or(since, |job| job.ended));
        let room = FINISHED_JOBS.saturating_sub(self.finished.len());
        self.finished.extend(done.into_iter().take(room));
        self.table = Some(table);
        Ok(QueueSeen { reading, consumers: Some(consumers) })
    }

    fn missing(&self, error: &rusqlite::Error) -> Missing {
        let why = if self.file.exists() { Silence::Unreachable } else { Silence::NotFound };
        Missing { why, detail: format!("job table {}: {error}", self.file.display()) }
    }
}

#[async_trait]
impl Queue for Demo {
    async fn read(&mut self) -> Result<QueueSeen, Missing> {
        self.look(clock::now()).map_err(|error| self.missing(&error))
    }

    fn finished(&mut self) -> Vec<Finished> {
        std::mem::take(&mut self.finished)
    }

    async fn check(&mut self) -> Vec<Finding> {
        match self.read().await {
            Ok(QueueSeen { reading, .. }) => {
                let what = format!("{} waiting, {} active", reading.waiting, reading.active);
                vec![Finding::good("queue", what)]
            }
            Err(missing) => {
                let fix = "`headcount demo` makes one; give the path of its file";
                vec![Finding::problem("queue", missing.to_string(), fix)]
            }
        }
    }
}

fn demand(unfinished: &[Unfinished], now: Timestamp) -> QueueReading {
    let age = |at: Timestamp| now.since(at).max(Span::ZERO);
    let waits: Vec<Span> =
        unfinished.iter().filter(|j| j.claim.is_none()).map(|j| age(j.created_at)).collect();
    let claims: Vec<_> = unfinished.iter().filter_map(|j| j.claim.as_ref()).collect();
    let (held, orphaned): (Vec<_>, Vec<_>) =
        claims.into_iter().partition(|c| processes::running(c.pid, c.started).is_some());
    QueueReading {
        waiting: waits.len() as u64,
        active: held.len() as u64,
        orphaned: Some(orphaned.len() as u64),
        oldest_wait: waits.iter().max().copied(),
        waits: waits.into_iter().take(LIST_LIMIT).collect(),
        ages: held.iter().map(|c| age(c.at)).take(LIST_LIMIT).collect(),
        ..QueueReading::default()
    }
}

fn consumer(taker: &Taker, unfinished: &[Unfinished], now: Timestamp) -> Consumer {
    let Taker { process, draining } = *taker;
    let holds = |job: &Unfinished| {
        let same =
            |c: &crate::demo::table::Claim| (c.pid, c.started) == (process.pid, process.started);
        job.claim.as_ref().is_some_and(same)
    };
    let mut known_as = vec![Identity::Process(process.pid)];
    if process.group != process.pid {
        known_as.push(Identity::Process(process.group));
    }
    let held = || unfinished.iter().filter(|job| holds(job)).filter_map(|job| job.claim.as_ref());
    let busy = Some(held().next().is_some());
    let oldest_job = held().map(|claim| now.since(claim.at).max(Span::ZERO)).max();
    Consumer { known_as, busy, oldest_job, draining, consuming: Some(!draining) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::processes::Process;

    #[tokio::test]
    async fn tells_who_holds_what() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            group: "g".into(),
            state_dir: folder.path().into(),
            base_dir: folder.path().into(),
        };
        let config = DemoConfig { database: "jobs.db".into() };
        assert_eq!(config.problems(), []);
        let mut queue = config.open(&place).unwrap();
        assert_eq!(queue.read().await.unwrap_err().why, Silence::NotFound);

        let mut table = Table::create(&folder.path().join("jobs.db")).unwrap();
        let me = Process::find(std::process::id()).unwrap();
        let dead = Process { started: me.started + 1, ..me };
        assert_eq!(queue.read().await.unwrap().reading.waiting, 0);
        let long_ago = clock::now().plus(Span::from_secs(-100));
        table.put(&[1.0; 5], long_ago).unwrap();
        table.enter(&me).unwrap();
        let mine = table.claim(&me, clock::now()).unwrap().unwrap();
        table.claim(&dead, clock::now()).unwrap();
        let seen = queue.read().await.unwrap();
        let reading = seen.reading;
        assert_eq!((reading.waiting, reading.active, reading.orphaned), (3, 1, Some(1)));
        assert!(reading.oldest_wait.unwrap() >= Span::from_secs(100));
        assert_eq!((reading.waits.len(), reading.ages.len()), (3, 1));
        let consumers = seen.consumers.unwrap();
        assert_eq!(consumers.len(), 1);
        assert_eq!((consumers[0].busy, consumers[0].draining), (Some(true), false));
        assert!(consumers[0].known_as.contains(&Identity::Process(me.pid)));

        table.finish(&mine, clock::now().plus(Span::from_secs(2))).unwrap();
        table.drain(&me).unwrap();
        let seen = queue.read().await.unwrap();
        assert_eq!((seen.reading.active, seen.reading.finished_total), (0, Some(1)));
        assert_eq!(seen.reading.durations.len(), 1);
        assert!(seen.reading.durations[0] >= Span::from_secs(1));
        let consumers = seen.consumers.unwrap();
        assert_eq!((consumers[0].busy, consumers[0].draining), (Some(false), true));
        assert_eq!(queue.read().await.unwrap().reading.durations, [], "told once");
        let finished = queue.finished();
        assert_eq!((finished.len(), finished[0].came), (1, long_ago));
        assert_eq!(finished[0].ended.since(finished[0].started), seen.reading.durations[0]);
        assert_eq!(queue.finished(), [], "told once");
    }
}
