//! What goes: rows that are older than the user keeps, and more than are good for anybody.

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension, params};

use super::Inner;
use super::usage::{HOUR, minute_of};
use crate::clock;
use crate::limits::{JOBS_KEPT, SAMPLES_KEPT, USAGE_KEPT};

/// Old rows are removed this often.
const CLEAN_EVERY: Duration = Duration::from_secs(3600);

/// The long tables, the time of their rows, and how many rows of a group are kept.
const RINGS: [(&str, &str, u32); 2] =
    [("samples", "t_ms", SAMPLES_KEPT), ("jobs", "ended_ms", JOBS_KEPT)];

impl Inner {
    /// Removes what is too old or too much, if that was not done a while ago.
    pub(super) fn clean(&mut self) {
        if self.cleaned_at.is_some_and(|at| at.elapsed() < CLEAN_EVERY) {
            return;
        }
        self.cleaned_at = Some(Instant::now());
        let oldest = clock::now().plus(-self.keep).as_millis();
        let oldest_hour = minute_of(clock::now().plus(-USAGE_KEPT.max(self.keep))).div_euclid(HOUR);
        self.with(|db| {
            for (table, time, most) in RINGS {
                shorten(db, table, time, oldest, most)?;
            }
            // A group's last look is its youngest row; so its name goes last.
            db.execute("DELETE FROM groups WHERE t_ms < ?1", [oldest])?;
            db.execute("DELETE FROM usage WHERE hour < ?1", [oldest_hour])?;
            db.execute("DELETE FROM events WHERE t_ms < ?1", [oldest])
        });
    }
}

/// Keeps the last `most` rows of each group, none older than `oldest`. Goes by name, as the indices
/// do: a long table is not read as a whole.
pub(super) fn shorten(
    db: &Connection,
    table: &str,
    time: &str,
    oldest: i64,
    most: u32,
) -> rusqlite::Result<()> {
    let mut names = db.prepare("SELECT name FROM groups")?;
    let names: Vec<String> =
        names.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    let nth = format!(
        "SELECT {time} FROM {table} WHERE name = ?1 ORDER BY {time} DESC LIMIT 1 OFFSET ?2"
    );
    let delete = format!("DELETE FROM {table} WHERE name = ?1 AND {time} < ?2");
    for name in names {
        let first: Option<i64> = db
            .query_row(&nth, params![name, most.saturating_sub(1)], |row| row.get(0))
            .optional()?;
        db.execute(&delete, params![name, first.unwrap_or(oldest).max(oldest)])?;
    }
    Ok(())
}
