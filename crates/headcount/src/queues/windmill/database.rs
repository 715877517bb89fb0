//! One look at a Windmill database serves all groups that are on it: whoever asks first looks, the
//! others wait for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use headcount_core::{Missing, Silence};
use tokio::time::Instant;

use super::era::{Access, Era, PROBE, rights};
use super::snapshot::{Base, Snapshot};
use crate::limits::{
    WINDMILL_ERA_AGE, WINDMILL_LOOK_AGE, WINDMILL_LOOK_AGE_MAX, WINDMILL_LOOK_SHARE,
};
use crate::postgres::{Postgres, malformed};

/// A standby whose last change is older than this cannot tell what waits now, seconds: workers alone
/// change something every few seconds.
const BEHIND: f64 = 60.0;

/// A Windmill database. Clones share what was seen.
#[derive(Clone)]
pub(super) struct Database(Arc<Shared>);

struct Shared {
    postgres: Postgres,
    /// Some group counts suspended jobs that may go on.
    resumable: AtomicBool,
    memory: tokio::sync::Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    era: Option<(Era, Instant)>,
    last: Option<Look>,
}

/// What was seen, until when it counts, and whether suspended jobs are part of it.
struct Look {
    seen: Result<Arc<Snapshot>, Missing>,
    until: Instant,
    resumable: bool,
}

/// Those in use.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

impl Database {
    /// The one behind this connection.
    pub(super) fn open(postgres: Postgres, resumable: bool) -> Self {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|shared| shared.strong_count() > 0);
        let mut all = open.iter().filter_map(Weak::upgrade);
        let shared = all.find(|shared| shared.postgres.is_same(&postgres)).unwrap_or_else(|| {
            let resumable = AtomicBool::new(false);
            Arc::new(Shared { postgres, resumable, memory: <_>::default() })
        });
        drop(all);
        open.push(Arc::downgrade(&shared));
        shared.resumable.fetch_or(resumable, Ordering::Relaxed);
        Self(shared)
    }

    /// Where it is, for messages.
    pub(super) fn place(&self) -> &str {
        self.0.postgres.place()
    }

    /// What it holds: seen just now, or a moment ago for another group.
    ///
    /// # Errors
    /// Why nobody knows.
    pub(super) async fn look(&self) -> Result<Arc<Snapshot>, Missing> {
        let resumable = self.0.resumable.load(Ordering::Relaxed);
        let mut memory = self.0.memory.lock().await;
        if let Some(last) = &memory.last
            && Instant::now() < last.until
            && (last.resumable || !resumable)
        {
            return last.seen.clone();
        }
        let started = Instant::now();
        let seen = self.ask(&mut memory, resumable).await.map(Arc::new);
        if seen.is_err() {
            memory.era = None;
        }
        let until = Instant::now() + age_limit(started.elapsed());
        memory.last = Some(Look { seen: seen.clone(), until, resumable });
        seen
    }

    async fn ask(&self, memory: &mut Memory, resumable: bool) -> Result<Snapshot, Missing> {
        let era = match &memory.era {
            Some((era, at)) if at.elapsed() < WINDMILL_ERA_AGE => era.clone(),
            _ => {
                let era = self.era().await?;
                memory.era = Some((era.clone(), Instant::now()));
                era
            }
        };
        let rows = self.0.postgres.ask(&era.look(resumable)).await?;
        let snapshot =
            Snapshot::parse(&era, &rows).map_err(|what| malformed(self.place(), what))?;
        let Base { standby, behind, .. } = snapshot.base;
        if standby && behind.is_none_or(|behind| behind > BEHIND) {
            return Err(self.lags(behind));
        }
        Ok(snapshot)
    }

    /// Which tables and columns there are.
    ///
    /// # Errors
    /// The database cannot be asked, or is no Windmill's.
    pub(super) async fn era(&self) -> Result<Era, Missing> {
        let rows = self.0.postgres.ask(PROBE).await?;
        let era: Era = serde_json::from_str(rows.first().map_or("", String::as_str))
            .map_err(|error| malformed(self.place(), error))?;
        if era.queue.is_some() && era.absent.is_empty() {
            return Ok(era);
        }
        let place = self.place();
        let absent = match (&era.queue, era.absent.as_slice()) {
            (None, _) => "v2_job_queue".to_owned(),
            (Some(_), absent) => absent.join(", "),
        };
        let detail = match era.schemas.as_slice() {
            [] => format!(
                "postgres {place}: no table {absent}: this is no windmill database; correct the \
                 database in `url`"
            ),
            schemas => {
                let (role, schemas) = (&era.role, schemas.join(", "));
                format!(
                    "postgres {place}: role {role} finds no table {absent}, but there is a windmill in \
                     schema {schemas}; let it in: GRANT USAGE ON SCHEMA {schemas} TO {role}; ALTER ROLE \
                     {role} SET search_path = {schemas};"
                )
            }
        };
        Err(Missing { why: Silence::NotFound, detail })
    }

    /// What the role may do with the tables of `era`.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub(super) async fn rights(&self, tables: &[&str]) -> Result<Vec<Access>, Missing> {
        let rows = self.0.postgres.ask(&rights(tables)).await?;
        let parsed = rows.iter().map(|row| serde_json::from_str(row)).collect::<Result<_, _>>();
        parsed.map_err(|error| malformed(self.place(), error))
    }

    fn lags(&self, behind: Option<f64>) -> Missing {
        let what = match behind {
            Some(behind) => {
                format!("the last change that this standby followed is {behind:.0} s old")
            }
            None => "this standby has followed no change yet".to_owned(),
        };
        let detail = format!(
            "postgres {}: {what}; look whether it follows its primary, or name the primary in `url`",
            self.place()
        );
        Missing { why: Silence::Stale, detail }
    }
}

/// How long a look counts that took this long: a database that is slow is asked less often.
fn age_limit(took: Duration) -> Duration {
    (took * WINDMILL_LOOK_SHARE).clamp(WINDMILL_LOOK_AGE, WINDMILL_LOOK_AGE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_database_is_asked_less_often() {
        for (took, counts) in [(1, 900), (180, 900), (400, 2_000), (2_000, 5_000)] {
            let limit = age_limit(Duration::from_millis(took));
            assert_eq!(limit, Duration::from_millis(counts), "{took}");
        }
    }
}
