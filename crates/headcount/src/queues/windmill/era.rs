//! Which tables and columns a Windmill database has, told by themselves and never by a version, and
//! the statements that read them. Source of what they mean: Windmill's public schema and queries.
//!
//! | Windmill | jobs are in | told by |
//! |---|---|---|
//! | before 1.458 | `queue`, perhaps with row-level security | no `v2_job_queue` |
//! | 1.458 to 1.614 | `v2_job_queue`, with row-level security | [`Base::hidden`] |
//! | since 1.615 | `v2_job_queue` | |
//! | since 1.637 | and workers may be native | `worker_ping.native_mode` |
//! | after 1.788 | and jobs may be held at a concurrency gate | `v2_job_queue.concurrency_gated_at` |

use serde::Deserialize;

use crate::limits::WINDMILL_ROWS;

/// A running job whose worker has not said for this long that it still runs it is not believed;
/// Windmill itself gives it to another worker then (its `ZOMBIE_JOB_TIMEOUT`), seconds.
pub(super) const JOB_PING: u32 = 60;
/// Rows of workers that have been silent for longer are not read, seconds. Windmill never deletes
/// them.
pub(super) const WORKERS_SEEN: u32 = 600;
/// A job that was sent back by a concurrency gate within this time cannot be taken, seconds; that
/// is how long Windmill's own alert about waiting jobs looks back.
const GATE_FRESH: u32 = 30;

/// What there is, as [`PROBE`] tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Era {
    /// `v2_job_queue`, `queue`, or none.
    pub(super) queue: Option<String>,
    /// Of the tables needed, those that are missing or not in sight.
    pub(super) absent: Vec<String>,
    /// Who we are there, quoted for SQL.
    pub(super) role: String,
    /// Schemas that have a `worker_ping`, in sight or not, quoted for SQL.
    pub(super) schemas: Vec<String>,
    pub(super) native_mode: bool,
    pub(super) occupancy: bool,
    pub(super) gate: bool,
}

/// One row: an [`Era`].
pub(super) const PROBE: &str = "\
SELECT json_build_object(
  'queue', CASE WHEN to_regclass('v2_job_queue') IS NOT NULL THEN 'v2_job_queue'
                WHEN to_regclass('queue') IS NOT NULL THEN 'queue' END,
  'absent', (SELECT coalesce(json_agg(t), '[]') FROM unnest(CASE
      WHEN to_regclass('v2_job_queue') IS NOT NULL THEN array['v2_job_runtime', 'worker_ping', 'config']
      ELSE array['worker_ping', 'config'] END) t WHERE to_regclass(t) IS NULL),
  'role', quote_ident(current_user),
  'schemas', (SELECT coalesce(json_agg(quote_ident(n.nspname) ORDER BY n.nspname), '[]')
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE c.relname = 'worker_ping' AND c.relkind IN ('r', 'p')),
  'native_mode', EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('worker_ping')
      AND attname = 'native_mode' AND NOT attisdropped),
  'occupancy', EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('worker_ping')
      AND attname = 'occupancy_rate_15s' AND NOT attisdropped),
  'gate', EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('v2_job_queue')
      AND attname = 'concurrency_gated_at' AND NOT attisdropped))";

impl Era {
    /// Whether jobs and what is known of their run are in tables of their own.
    pub(super) fn is_v2(&self) -> bool {
        self.queue.as_deref() == Some("v2_job_queue")
    }

    /// The tables that are read.
    pub(super) fn tables(&self) -> &'static [&'static str] {
        match self.is_v2() {
            true => &["v2_job_queue", "v2_job_runtime", "worker_ping", "config"],
            false => &["queue", "worker_ping", "config"],
        }
    }

    /// For people.
    pub(super) fn name(&self) -> &'static str {
        match (self.is_v2(), self.native_mode, self.gate) {
            (false, ..) => "jobs in `queue`: a Windmill before 1.458",
            (true, false, _) => "jobs in `v2_job_queue`: a Windmill since 1.458",
            (true, true, false) => "jobs in `v2_job_queue`, native workers: a Windmill since 1.637",
            (true, true, true) => {
                "jobs in `v2_job_queue`, native workers, concurrency gates: a Windmill after 1.788"
            }
        }
    }

    /// All that a look needs: a row for each of [`Base`], waiting, running, workers and groups, and
    /// one of resumable jobs if they are wanted. Reads only, without compiling, which would take
    /// longer than the query.
    pub(super) fn look(&self, resumable: bool) -> String {
        let mut statements = vec![
            "SET LOCAL transaction_read_only = on; SET LOCAL jit = off".to_owned(),
            self.base(),
            self.waiting(),
            self.running(),
            self.workers(),
            GROUPS.to_owned(),
        ];
        statements.extend(resumable.then(|| self.resumable()));
        statements.join(";\n")
    }

    fn table(&self) -> &str {
        self.queue.as_deref().unwrap_or("v2_job_queue")
    }

    /// Tables whose rows row-level security may hide count as hidden unless a policy that applies
    /// to this role shows all rows and none takes some away.
    fn base(&self) -> String {
        let applies = "EXISTS (SELECT FROM unnest(p.polroles) r
            WHERE CASE WHEN r = 0 THEN true ELSE pg_has_role(r, 'USAGE') END)
            AND p.polcmd IN ('r', '*') AND p.polrelid = t::regclass";
        let all = "coalesce(pg_get_expr(p.polqual, p.polrelid), '') = 'true'";
        let tables = self.tables().join("', '");
        format!(
            "SELECT json_build_object(
              'now', extract(epoch FROM clock_timestamp()),
              'role', quote_ident(current_user),
              'standby', pg_is_in_recovery(),
              'behind', extract(epoch FROM now() - pg_last_xact_replay_timestamp()),
              'hidden', (SELECT coalesce(json_agg(t), '[]') FROM unnest(array['{tables}']) t
                  WHERE row_security_active(t)
                  AND (NOT EXISTS (SELECT FROM pg_policy p WHERE p.polpermissive AND {all} AND {applies})
                    OR EXISTS (SELECT FROM pg_policy p WHERE NOT p.polpermissive AND NOT {all} AND {applies}))))"
        )
    }

    /// Windmill's own rule of what waits: not running, and due for three seconds.
    fn waiting(&self) -> String {
        // As subqueries these are reckoned once, not for each row.
        let due = "scheduled_for <= (SELECT now() - interval '3 seconds')";
        let later = "scheduled_for > (SELECT now())";
        let table = self.table();
        let held = match self.gate {
            true => {
                format!("coalesce(concurrency_gated_at > now() - interval '{GATE_FRESH} s', false)")
            }
            false => "false".to_owned(),
        };
        format!(
            "SELECT coalesce(json_agg(w), '[]') FROM (SELECT tag,
              count(*) FILTER (WHERE {due} AND NOT {held}) AS waiting,
              count(*) FILTER (WHERE {due} AND {held}) AS held,
              count(*) FILTER (WHERE {later}) AS later,
              extract(epoch FROM now() - min(scheduled_for) FILTER (WHERE {due} AND NOT {held}
                AND isfinite(scheduled_for))) AS oldest
            FROM {table} WHERE running = false GROUP BY tag) w"
        )
    }

    /// Suspended jobs that may go on; Windmill keeps them as running.
    fn resumable(&self) -> String {
        format!(
            "SELECT coalesce(json_agg(w), '[]') FROM (SELECT tag, count(*) AS waiting
            FROM {} WHERE suspend_until IS NOT NULL AND (suspend <= 0 OR suspend_until <= now())
            GROUP BY tag) w",
            self.table()
        )
    }

    /// Jobs that are marked as running, with the worker that runs them. Before 1.458 the row does not
    /// name it: whose last job it is may run it, and there may be several of them.
    fn running(&self) -> String {
        let (worker, known, ping, joined) = match self.is_v2() {
            true => ("q.worker", "r.id IS NOT NULL", "r.ping", "v2_job_runtime r ON r.id = q.id"),
            false => {
                ("r.worker", "true", "q.last_ping", "worker_ping r ON r.current_job_id = q.id")
            }
        };
        format!(
            "SELECT coalesce(json_agg(j), '[]') FROM (SELECT q.id, q.tag, {worker} AS worker, {known} AS known,
              extract(epoch FROM now() - q.started_at) AS age,
              extract(epoch FROM now() - {ping}) AS ping
            FROM {} q LEFT JOIN {joined}
            WHERE q.running AND q.suspend_until IS NULL LIMIT {WINDMILL_ROWS} + 1) j",
            self.table()
        )
    }

    fn workers(&self) -> String {
        let native = if self.native_mode { "native_mode" } else { "worker_group = 'native'" };
        let rates = match self.occupancy {
            true => ["15s", "5m", "30m"].map(|window| {
                // What is no share says nothing, and JSON has no word for it: NaN is above all numbers.
                let rate = format!("occupancy_rate_{window}");
                format!("CASE WHEN {rate} BETWEEN 0 AND 1000 THEN {rate} END")
            }),
            false => ["15s", "5m", "30m"].map(|_| "null::real".to_owned()),
        };
        let rates = rates.join(", ");
        format!(
            "SELECT coalesce(json_agg(w), '[]') FROM (SELECT worker, worker_instance AS instance,
              worker_group AS \"group\", array_remove(coalesce(custom_tags, '{{}}'), NULL) AS tags, {native} AS native,
              extract(epoch FROM now() - ping_at) AS ping,
              extract(epoch FROM now() - started_at) AS up, greatest(jobs_executed, 0) AS executed,
              array[{rates}] AS rates
            FROM worker_ping WHERE ping_at > now() - interval '{WORKERS_SEEN} s'
            LIMIT {WINDMILL_ROWS} + 1) w"
        )
    }
}

/// What was set up for each worker group.
const GROUPS: &str = "\
SELECT coalesce(json_agg(g), '[]') FROM (SELECT substr(name, 9) AS name,
  config->'worker_tags' AS worker_tags, config->'dedicated_workers' AS dedicated_workers,
  config->'dedicated_worker' AS dedicated_worker,
  config->'autoscaling'->'custom_tags' AS custom_tags,
  config->'autoscaling'->'enabled' = 'true' AS autoscaling
FROM config WHERE starts_with(name, 'worker__')) g";

/// The role's rights to these tables, which are in sight: a row for each, an [`Access`].
pub(super) fn rights(tables: &[&str]) -> String {
    format!(
        "SELECT json_build_object('table', t, 'role', quote_ident(current_user),
          'schema', quote_ident(n.nspname), 'select', has_table_privilege(c.oid, 'SELECT'))
        FROM unnest(array['{}']) t
        JOIN pg_class c ON c.oid = to_regclass(t)
        JOIN pg_namespace n ON n.oid = c.relnamespace
        ORDER BY t",
        tables.join("', '")
    )
}

/// What the role may do with a table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Access {
    pub(super) table: String,
    pub(super) role: String,
    pub(super) schema: String,
    pub(super) select: bool,
}
