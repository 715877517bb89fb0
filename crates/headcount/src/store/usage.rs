//! How many workers were online in each minute: one row for a group and an hour, so that its size
//! is known in advance. A minute that nobody looked at is not there, which is not the same as zero.

use std::collections::{BTreeMap, HashMap};

use headcount_core::{Span, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::Store;
use crate::limits::BUFFERED_USAGE;

/// Minutes in an hour.
pub const HOUR: i64 = 60;
const MINUTE_MS: i64 = 60_000;

/// What a look showed that counts as usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Online {
    /// Workers that were online.
    pub workers: u32,
    /// The memory of each, bytes.
    pub memory: u64,
    /// They are only pretended, or would be.
    pub dry: bool,
}

/// The minutes of one hour of a group whose workers have the same memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageHour {
    /// Which group.
    pub group: String,
    /// Its changes were only pretended.
    pub dry: bool,
    /// The memory of each worker, bytes.
    pub memory: u64,
    /// Hours since the Unix epoch.
    pub hour: i64,
    /// The minutes.
    pub minutes: Minutes,
}

/// The most workers that were online at once in each minute of an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Minutes([u16; HOUR as usize]);

/// What is not written yet, and what was seen last.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pending: BTreeMap<Key, Minutes>,
    last: HashMap<String, Last>,
}

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    hour: i64,
    group: String,
    dry: bool,
    memory: u64,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    t: Timestamp,
    online: Online,
    /// The most in its minute so far.
    most: u32,
}

/// Nobody looked.
const UNSEEN: u16 = u16::MAX;

/// The minute a point in time is in, since the Unix epoch.
pub fn minute_of(t: Timestamp) -> i64 {
    t.as_millis().div_euclid(MINUTE_MS)
}

impl Store {
    /// Keeps how many workers a group had online at `t`; goes with the next [`Store::flush`]. The
    /// minutes since the look before count as that one, if it was at most `gap` ago.
    pub fn record_usage(&self, group: &str, t: Timestamp, online: Online, gap: Span) {
        self.lock().usage.see(group, t, online, gap);
    }

    /// The recorded hours from the one of minute `from` up to the one before minute `to`, in order.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn usage(&self, from: i64, to: i64) -> anyhow::Result<Vec<UsageHour>> {
        let sql = "SELECT name, dry, memory, hour, minutes FROM usage
                   WHERE hour BETWEEN ?1 AND ?2 ORDER BY hour, name, dry, memory";
        let last = to.saturating_sub(1).div_euclid(HOUR);
        self.read_usage(sql, &[from.div_euclid(HOUR), last])
    }

    /// The first recorded hour of each group.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn first_usage(&self) -> anyhow::Result<Vec<UsageHour>> {
        // The other columns are those of the row that has the least hour: SQLite says so.
        let sql = "SELECT name, dry, memory, MIN(hour), minutes FROM usage GROUP BY name, dry";
        self.read_usage(sql, &[])
    }

    fn read_usage(&self, sql: &str, numbers: &[i64]) -> anyhow::Result<Vec<UsageHour>> {
        let mut inner = self.lock();
        inner.write();
        let rows = inner.with(|db| {
            let mut query = db.prepare_cached(sql)?;
            query.query_map(rusqlite::params_from_iter(numbers), hour_of)?.collect()
        });
        rows.ok_or_else(|| anyhow::anyhow!("{}", inner.trouble.clone().unwrap_or_default()))
    }
}

impl Minutes {
    const NONE: Self = Self([UNSEEN; HOUR as usize]);

    /// The number in a minute of the hour, 0 to 59; `None` if nobody looked.
    pub fn get(&self, minute: usize) -> Option<u32> {
        self.0.get(minute).filter(|n| **n != UNSEEN).map(|n| u32::from(*n))
    }

    fn raise(&mut self, minute: usize, workers: u32) {
        let workers = u16::try_from(workers).unwrap_or(UNSEEN).min(UNSEEN - 1);
        let cell = &mut self.0[minute];
        *cell = if *cell == UNSEEN { workers } else { workers.max(*cell) };
    }

    fn merge(&mut self, other: &Self) {
        for minute in 0..self.0.len() {
            if let Some(workers) = other.get(minute) {
                self.raise(minute, workers);
            }
        }
    }

    fn to_bytes(self) -> Vec<u8> {
        self.0.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    fn of_bytes(bytes: &[u8]) -> Self {
        let mut minutes = Self::NONE;
        for (cell, pair) in minutes.0.iter_mut().zip(bytes.chunks_exact(2)) {
            *cell = u16::from_le_bytes([pair[0], pair[1]]);
        }
        minutes
    }
}

impl Ledger {
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    fn see(&mut self, group: &str, t: Timestamp, online: Online, gap: Span) {
        let minute = minute_of(t);
        let mut most = online.workers;
        if let Some(last) = self.last.get(group).copied() {
            let same = (last.online.memory, last.online.dry) == (online.memory, online.dry);
            if same && minute_of(last.t) == minute {
                most = most.max(last.most);
                if most == last.most {
                    self.last.insert(group.into(), Last { t, online, most });
                    return;
                }
            } else if (Span::ZERO..=gap).contains(&t.since(last.t)) {
                for between in minute_of(last.t) + 1..minute {
                    self.count(group, between, last.online);
                }
            }
        }
        self.last.insert(group.into(), Last { t, online, most });
        self.count(group, minute, online);
    }

    fn count(&mut self, group: &str, minute: i64, online: Online) {
        let Online { workers, memory, dry } = online;
        let key = Key { hour: minute.div_euclid(HOUR), group: group.into(), dry, memory };
        let within = usize::try_from(minute.rem_euclid(HOUR)).expect("a remainder is 0 to 59");
        self.pending.entry(key).or_insert(Minutes::NONE).raise(within, workers);
        if self.pending.len() > BUFFERED_USAGE {
            self.pending.pop_first();
        }
    }

    /// Adds what is pending to what is stored. A minute that was counted before, also by a clock
    /// that was set back since, or before a restart, still counts once.
    pub(super) fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        let mut read = db.prepare_cached(
            "SELECT minutes FROM usage WHERE hour = ?1 AND name = ?2 AND dry = ?3 AND memory = ?4",
        )?;
        let mut write = db.prepare_cached(
            "INSERT OR REPLACE INTO usage (hour, name, dry, memory, minutes)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        for (Key { hour, group, dry, memory }, pending) in &self.pending {
            let memory = i64::try_from(*memory).unwrap_or(i64::MAX);
            let stored: Option<Vec<u8>> =
                read.query_row(params![hour, group, dry, memory], |row| row.get(0)).optional()?;
            let mut minutes = stored.map_or(Minutes::NONE, |bytes| Minutes::of_bytes(&bytes));
            minutes.merge(pending);
            write.execute(params![hour, group, dry, memory, minutes.to_bytes()])?;
        }
        Ok(())
    }

    pub(super) fn written(&mut self) {
        self.pending.clear();
    }
}

fn hour_of(row: &Row<'_>) -> rusqlite::Result<UsageHour> {
    let memory: i64 = row.get(2)?;
    Ok(UsageHour {
        group: row.get(0)?,
        dry: row.get(1)?,
        memory: memory.unsigned_abs(),
        hour: row.get(3)?,
        minutes: Minutes::of_bytes(row.get_ref(4)?.as_blob()?),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::clock;

    const GAP: Span = Span::from_secs(120);
    /// The hour that the tests count from: not so long ago that it would be removed.
    static START: LazyLock<i64> =
        LazyLock::new(|| minute_of(clock::now()).div_euclid(HOUR) - 24 * 30);

    /// The stored minutes of `g`, as (minute, workers).
    fn counted(store: &Store) -> Vec<(i64, u32)> {
        let hours = store.usage(0, i64::MAX).unwrap();
        let each = |hour: &UsageHour| {
            let (start, minutes) = ((hour.hour - *START) * HOUR, hour.minutes);
            (0..HOUR).filter_map(move |m| Some((start + m, minutes.get(m as usize)?)))
        };
        hours.iter().flat_map(each).collect()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis((*START * 3600 + seconds) * 1000)
    }

    fn online(workers: u32) -> Online {
        Online { workers, memory: 2 << 30, dry: false }
    }

    #[test]
    fn a_minute_has_the_most_that_were_online_at_once_and_gaps_are_not_zero() {
        type Numbers = &'static [(i64, u32)];
        let cases: [(&str, Numbers, Numbers); 7] = [
            ("the most", &[(0, 1), (20, 4), (40, 2), (60, 2)], &[(0, 4), (1, 2)]),
            ("none is zero", &[(0, 0), (60, 0)], &[(0, 0), (1, 0)]),
            ("a short gap is as before it", &[(50, 3), (165, 1)], &[(0, 3), (1, 3), (2, 1)]),
            ("a long gap is unknown", &[(50, 3), (171, 1)], &[(0, 3), (2, 1)]),
            ("set back", &[(70, 3), (130, 3), (70, 3), (130, 2)], &[(1, 3), (2, 3)]),
            ("set ahead", &[(0, 3), (86_400, 3)], &[(0, 3), (1440, 3)]),
            ("beyond an hour", &[(3599, 2), (3600, 1)], &[(59, 2), (60, 1)]),
        ];
        for (what, looks, expected) in cases {
            let folder = tempfile::tempdir().unwrap();
            let store = Store::open(folder.path(), 30);
            for (t, workers) in looks {
                store.record_usage("g", at(*t), online(*workers), GAP);
            }
            assert_eq!(counted(&store), expected, "{what}");
        }
    }

    #[test]
    fn a_restart_within_a_minute_neither_loses_nor_adds() {
        let folder = tempfile::tempdir().unwrap();
        for (t, workers) in [(0, 2), (10, 5), (20, 1), (61, 1), (70, 3)] {
            // Each look is a process of its own, killed after the flush.
            let store = Store::open(folder.path(), 30);
            store.record_usage("g", at(t), online(workers), GAP);
            store.flush();
        }
        let store = Store::open_existing(folder.path()).unwrap();
        assert_eq!(counted(&store), [(0, 5), (1, 3)]);
        assert_eq!(store.first_usage().unwrap()[0].minutes.get(0), Some(5));
    }

    #[test]
    fn groups_memory_and_dry_runs_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), 30);
        store.record_usage("h", at(0), online(1), GAP);
        store.record_usage("g", at(0), online(2), GAP);
        store.record_usage("g", at(1), Online { memory: 1 << 30, ..online(2) }, GAP);
        store.record_usage("g", at(2), Online { dry: true, ..online(2) }, GAP);
        let first = *START * HOUR;
        let rows = store.usage(first, first + 1).unwrap();
        let rows: Vec<_> = rows.iter().map(|r| (&r.group[..], r.dry, r.memory >> 30)).collect();
        assert_eq!(rows, [("g", false, 1), ("g", false, 2), ("g", true, 2), ("h", false, 2)]);
        assert_eq!(store.usage(first + 60, first + 120).unwrap(), []);
    }

    #[test]
    fn what_cannot_be_written_is_kept_up_to_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("state.db"), b"not a database".repeat(50)).unwrap();
        let store = Store::open(folder.path(), 30);
        for hour in 0..BUFFERED_USAGE as i64 + 5 {
            store.record_usage("g", at(hour * 3600), online(1), GAP);
        }
        store.flush();
        let inner = store.lock();
        assert_eq!(inner.usage.len(), BUFFERED_USAGE);
        assert_eq!(
            inner.usage.pending.first_key_value().unwrap().0.hour,
            *START + 5,
            "the oldest go"
        );
    }
}
