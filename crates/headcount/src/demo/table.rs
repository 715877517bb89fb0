//! The embedded job table: SQLite, shared by the load, the workers and the queue that is read.

use std::path::Path;
use std::time::Duration;

use headcount_core::Timestamp;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::hosts::processes::{self, Process};
use crate::queues::Finished;

/// How long one of the processes may hold the table.
const PATIENCE: Duration = Duration::from_secs(2);
/// Finished jobs are kept for so many seconds.
const KEEP_S: f64 = 300.0;

/// A job starts out waiting (`claimed_by` is null), is then active, then finished. A process is
/// known by its id and its start time, so that a job of one that died is told apart.
const TABLES: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = OFF;
    CREATE TABLE IF NOT EXISTS jobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        created_at REAL NOT NULL,
        cost_s REAL NOT NULL,
        claimed_by INTEGER,
        claimer_started INTEGER,
        claimed_at REAL,
        finished_at REAL
    ) STRICT;
    CREATE INDEX IF NOT EXISTS unfinished ON jobs(id) WHERE finished_at IS NULL;
    CREATE INDEX IF NOT EXISTS finished ON jobs(finished_at) WHERE finished_at IS NOT NULL;
    CREATE TABLE IF NOT EXISTS workers (
        pid INTEGER PRIMARY KEY,
        started INTEGER NOT NULL,
        draining INTEGER NOT NULL DEFAULT 0
    ) STRICT;
";

/// The job table.
#[derive(Debug)]
pub struct Table(Connection);

/// A job that was not finished at the time of a look.
#[derive(Clone, Debug, PartialEq)]
pub struct Unfinished {
    /// When it was put in.
    pub created_at: Timestamp,
    /// Who works on it since when, if anybody does.
    pub claim: Option<Claim>,
}

/// Who works on a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Their process.
    pub pid: u32,
    /// When that process started, in clock ticks since the machine did.
    pub started: u64,
    /// Since when.
    pub at: Timestamp,
}

/// Somebody who takes jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taker {
    /// Their process.
    pub process: Process,
    /// They were told to go.
    pub draining: bool,
}

/// A job that was claimed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// Its number.
    pub id: i64,
    /// How long it takes, seconds.
    pub cost_s: f64,
}

impl Table {
    /// The table in this file, made if it is not there.
    ///
    /// # Errors
    /// The file cannot be made, or is no such table.
    pub fn create(file: &Path) -> rusqlite::Result<Self> {
        let connection = Connection::open(file)?;
        connection.busy_timeout(PATIENCE)?;
        connection.execute_batch(TABLES)?;
        Ok(Self(connection))
    }

    /// The table in a file that is there.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub fn open(file: &Path) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(file, flags)?;
        connection.busy_timeout(PATIENCE)?;
        Ok(Self(connection))
    }

    /// Puts jobs in; each takes so many seconds.
    pub fn put(&mut self, costs_s: &[f64], now: Timestamp) -> rusqlite::Result<()> {
        let all_or_none = self.0.transaction()?;
        for cost_s in costs_s {
            let row = params![now.as_seconds(), cost_s];
            all_or_none.execute("INSERT INTO jobs (created_at, cost_s) VALUES (?1, ?2)", row)?;
        }
        let old = now.as_seconds() - KEEP_S;
        all_or_none.execute("DELETE FROM jobs WHERE finished_at < ?1", [old])?;
        all_or_none.commit()
    }

    /// Registers a worker.
    pub fn enter(&self, me: &Process) -> rusqlite::Result<()> {
        let row = params![me.pid, me.started.cast_signed()];
        self.0.execute("INSERT OR REPLACE INTO workers (pid, started) VALUES (?1, ?2)", row)?;
        Ok(())
    }

    /// A worker was told to go.
    pub fn drain(&self, me: &Process) -> rusqlite::Result<()> {
        self.0.execute("UPDATE workers SET draining = 1 WHERE pid = ?1", [me.pid])?;
        Ok(())
    }

    /// A worker goes.
    pub fn leave(&self, me: &Process) -> rusqlite::Result<()> {
        self.0.execute("DELETE FROM workers WHERE pid = ?1", [me.pid])?;
        Ok(())
    }

    /// Takes the oldest waiting job, if there is one.
    pub fn claim(&self, me: &Process, now: Timestamp) -> rusqlite::Result<Option<Job>> {
        let sql = "
            UPDATE jobs SET claimed_by = ?1, claimer_started = ?2, claimed_at = ?3
            WHERE id = (SELECT id FROM jobs WHERE finished_at IS NULL AND claimed_by IS NULL
                        ORDER BY id LIMIT 1)
            RETURNING id, cost_s";
        let row = params![me.pid, me.started.cast_signed(), now.as_seconds()];
        let job = |row: &rusqlite::Row<'_>| Ok(Job { id: row.get(0)?, cost_s: row.get(1)? });
        self.0.query_row(sql, row, job).optional()
    }

    /// A job is done.
    pub fn finish(&self, job: &Job, now: Timestamp) -> rusqlite::Result<()> {
        let row = params![now.as_seconds(), job.id];
        self.0.execute("UPDATE jobs SET finished_at = ?1 WHERE id = ?2", row)?;
        Ok(())
    }

    /// Lets the jobs of workers that died wait again. Returns how many.
    pub fn release_orphans(&self) -> rusqlite::Result<usize> {
        let mut released = 0;
        for job in self.unfinished()? {
            let Some(claim) = job.claim else { continue };
            if processes::running(claim.pid, claim.started).is_none() {
                let sql = "UPDATE jobs SET claimed_by = NULL, claimed_at = NULL
                           WHERE finished_at IS NULL AND claimed_by = ?1 AND claimer_started = ?2";
                released += self.0.execute(sql, params![claim.pid, claim.started.cast_signed()])?;
            }
        }
        Ok(released)
    }

    /// Every job that is not finished, the oldest first.
    pub fn unfinished(&self) -> rusqlite::Result<Vec<Unfinished>> {
        let sql = "SELECT created_at, claimed_by, claimer_started, claimed_at FROM jobs
                   WHERE finished_at IS NULL ORDER BY id";
        let mut rows = self.0.prepare_cached(sql)?;
        let found = rows.query_map([], |row| {
            let pid: Option<u32> = row.get(1)?;
            let claim = match pid {
                None => None,
                Some(pid) => {
                    let started: i64 = row.get(2)?;
                    Some(Claim { pid, started: started.cast_unsigned(), at: time(row.get(3)?) })
                }
            };
            Ok(Unfinished { created_at: time(row.get(0)?), claim })
        })?;
        found.collect()
    }

    /// The jobs that finished after `since`, in that order.
    pub fn finished_after(&self, since: Timestamp) -> rusqlite::Result<Vec<Finished>> {
        let sql = "SELECT created_at, claimed_at, finished_at FROM jobs
                   WHERE finished_at > ?1 ORDER BY finished_at";
        let mut rows = self.0.prepare_cached(sql)?;
        let job = |row: &rusqlite::Row<'_>| {
            let (came, started, ended) = (time(row.get(0)?), time(row.get(1)?), time(row.get(2)?));
            Ok(Finished { came, started, ended })
        };
        rows.query_map([since.as_seconds()], job)?.collect()
    }

    /// How many jobs were ever put in.
    pub fn put_total(&self) -> rusqlite::Result<u64> {
        let sql = "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'";
        let total: Option<i64> = self.0.query_row(sql, [], |row| row.get(0)).optional()?;
        Ok(total.map_or(0, i64::cast_unsigned))
    }

    /// The registered workers that run.
    pub fn takers(&self) -> rusqlite::Result<Vec<Taker>> {
        let mut rows = self.0.prepare_cached("SELECT pid, started, draining FROM workers")?;
        let rows = rows.query_map([], |row| {
            let started: i64 = row.get(1)?;
            let process = processes::running(row.get(0)?, started.cast_unsigned());
            let draining = row.get(2)?;
            Ok(process.map(|process| Taker { process, draining }))
        })?;
        rows.filter_map(Result::transpose).collect()
    }
}

fn time(seconds: f64) -> Timestamp {
    Timestamp::from_seconds(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn each_job_is_claimed_once_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jobs.db");
        assert!(Table::open(&file).is_err(), "only `create` makes it");
        let mut table = Table::create(&file).unwrap();
        let me = Process::find(std::process::id()).unwrap();
        table.put(&[1.0, 2.0], at(10)).unwrap();
        let other = Table::open(&file).unwrap();
        let first = table.claim(&me, at(11)).unwrap().unwrap();
        let second = other.claim(&me, at(11)).unwrap().unwrap();
        assert_eq!((first.cost_s, second.cost_s), (1.0, 2.0));
        assert_eq!(table.claim(&me, at(11)).unwrap(), None);
        table.finish(&first, at(14)).unwrap();
        let done = Finished { came: at(10), started: at(11), ended: at(14) };
        assert_eq!(table.finished_after(at(0)).unwrap(), [done]);
        assert_eq!(table.finished_after(at(14)).unwrap(), []);
        let left = table.unfinished().unwrap();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].claim.as_ref().map(|c| (c.pid, c.at)), Some((me.pid, at(11))));
        // Old finished jobs go, but the total stays.
        table.put(&[1.0], at(1000)).unwrap();
        assert_eq!((table.put_total().unwrap(), table.unfinished().unwrap().len()), (3, 2));
    }

    #[test]
    fn jobs_of_a_dead_worker_wait_again_and_it_takes_none() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = Table::create(&folder.path().join("jobs.db")).unwrap();
        let me = Process::find(std::process::id()).unwrap();
        let dead = Process { started: me.started + 1, ..me };
        table.enter(&dead).unwrap();
        table.put(&[1.0], at(10)).unwrap();
        assert!(table.claim(&dead, at(11)).unwrap().is_some());
        assert_eq!(table.takers().unwrap(), []);
        assert_eq!(table.release_orphans().unwrap(), 1);
        table.enter(&me).unwrap();
        table.drain(&me).unwrap();
        assert!(table.claim(&me, at(12)).unwrap().is_some());
        assert_eq!(table.release_orphans().unwrap(), 0);
        assert_eq!(table.takers().unwrap().len(), 1);
        assert!(table.takers().unwrap()[0].draining);
        table.leave(&me).unwrap();
        assert_eq!(table.takers().unwrap(), []);
    }
}
