//! The database's layout and how an older one becomes the present one.

use rusqlite::Connection;

/// One step a version; the database remembers in `user_version` how many it has taken.
const STEPS: &[&str] = &[
    "
    CREATE TABLE groups (
        name TEXT PRIMARY KEY,
        t_ms INTEGER NOT NULL,
        state TEXT NOT NULL,
        observation TEXT NOT NULL,
        decision TEXT NOT NULL
    ) STRICT;
    CREATE TABLE controls (
        name TEXT PRIMARY KEY,
        controls TEXT NOT NULL
    ) STRICT;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        t_ms INTEGER NOT NULL,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        from_n INTEGER NOT NULL,
        to_n INTEGER NOT NULL,
        dry INTEGER NOT NULL,
        outcome TEXT,
        note TEXT NOT NULL,
        observation TEXT NOT NULL,
        decision TEXT NOT NULL
    ) STRICT;
    CREATE INDEX events_by_group ON events (name, t_ms);
    CREATE TABLE samples (
        name TEXT NOT NULL,
        t_ms INTEGER NOT NULL,
        waiting INTEGER,
        active INTEGER,
        oldest_ms INTEGER,
        finished INTEGER,
        ready INTEGER,
        starting INTEGER,
        draining INTEGER,
        busy INTEGER,
        cpu_raw REAL,
        cpu_ema REAL,
        mem REAL,
        wanted INTEGER,
        PRIMARY KEY (name, t_ms)
    ) STRICT, WITHOUT ROWID;
",
    "
    CREATE TABLE jobs (
        name TEXT NOT NULL,
        came_ms INTEGER NOT NULL,
        started_ms INTEGER NOT NULL,
        ended_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX jobs_by_group ON jobs (name, ended_ms);
",
    "
    CREATE TABLE usage (
        hour INTEGER NOT NULL,
        name TEXT NOT NULL,
        dry INTEGER NOT NULL,
        memory INTEGER NOT NULL,
        minutes BLOB NOT NULL,
        PRIMARY KEY (hour, name, dry, memory)
    ) STRICT, WITHOUT ROWID;
",
    "
    ALTER TABLE events ADD COLUMN alert TEXT;
",
];

/// Brings the database to the present layout.
///
/// # Errors
/// It was written by a newer Headcount, or cannot be written.
pub fn migrate(db: &mut Connection) -> Result<(), String> {
    let broken = |e: rusqlite::Error| e.to_string();
    let have: usize = db
        .query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))
        .map_err(broken)?
        .try_into()
        .unwrap_or(usize::MAX);
    if have > STEPS.len() {
        return Err(format!("it was written by a newer headcount (layout {have})"));
    }
    for (version, step) in STEPS.iter().enumerate().skip(have) {
        let change = db.transaction().map_err(broken)?;
        change.execute_batch(step).map_err(broken)?;
        change.pragma_update(None, "user_version", version as i64 + 1).map_err(broken)?;
        change.commit().map_err(broken)?;
    }
    Ok(())
}
