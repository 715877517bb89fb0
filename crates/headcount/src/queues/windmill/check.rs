//! What a person who points Headcount at a Windmill database should know.

use std::collections::{BTreeMap, BTreeSet};

use headcount_core::{Missing, Silence};

use super::Windmill;
use super::era::{Access, Era, JOB_PING};
use super::reading::live;
use super::snapshot::{Running, Snapshot, WorkerRow};
use super::tags::Tags;
use crate::clock;
use crate::finding::{Fact, Finding};

const ABOUT: &str = "queue";
/// Clocks that are this far apart are worth a word, seconds.
const SKEW: f64 = 5.0;
/// Workers tell of themselves at least this often, unless they are quiet, seconds.
const USUAL_PING: f64 = 15.0;
/// And those that are quiet, seconds.
const QUIET_PING: f64 = 90.0;
/// A native worker has so many rows.
const NATIVE_ROWS: u8 = 8;

impl Windmill {
    /// Everything, each with its fix.
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        let era = match self.database.era().await {
            Ok(era) => era,
            Err(missing) => return vec![unreadable(&missing)],
        };
        match self.database.rights(era.tables()).await {
            Ok(rights) => {
                if let Some(lacking) = lacking(&rights) {
                    return vec![lacking];
                }
            }
            Err(missing) => return vec![unreadable(&missing)],
        }
        let snapshot = match self.database.look().await {
            Ok(snapshot) => snapshot,
            Err(missing) => return vec![unreadable(&missing)],
        };
        let place = self.database.place();
        let mut findings =
            vec![Finding::good(ABOUT, format!("postgres {place} answers, {}", era.name()))];
        findings.extend(self.of_row_security(&snapshot));
        findings.extend(of_clock(&snapshot));
        findings.extend(of_standby(&snapshot));
        if !self.is_blind(&snapshot) {
            findings.extend(self.of_tags(&snapshot));
            findings.extend(self.of_workers(&era, &snapshot));
            findings.extend(self.of_other_scaler(&snapshot));
        }
        findings
    }

    fn is_blind(&self, snapshot: &Snapshot) -> bool {
        !snapshot.base.hidden.is_empty() && !self.rows_visible
    }

    fn of_row_security(&self, snapshot: &Snapshot) -> Option<Finding> {
        let (hidden, role) = (&snapshot.base.hidden, &snapshot.base.role);
        if hidden.is_empty() {
            return None;
        }
        let tables = hidden.join(", ");
        if self.rows_visible {
            let what =
                format!("row-level security is on for {tables}; rows_visible says it hides none");
            return Some(Finding::good(ABOUT, what));
        }
        let policy = |table: &String| {
            format!("CREATE POLICY headcount_reads ON {table} FOR SELECT TO {role} USING (true);")
        };
        let policies = hidden.iter().map(policy).collect::<Vec<_>>().join(" ");
        Some(Finding::problem(
            ABOUT,
            format!(
                "row-level security may hide rows of {tables} from role {role}, without an error: \
                 jobs that wait would look like none"
            ),
            format!(
                "as the owner of the table: {policies} Or ALTER ROLE {role} BYPASSRLS; or, if you are \
                 sure that the role sees all rows, rows_visible: true"
            ),
        ))
    }

    fn of_tags(&self, snapshot: &Snapshot) -> Vec<Finding> {
        let tags = match Tags::of(snapshot, &self.group, &self.tags, self.alive) {
            Ok(tags) => tags,
            Err(missing) => return vec![unreadable(&missing)],
        };
        let list = tags.tags.iter().cloned().collect::<Vec<_>>().join(", ");
        let mut findings = vec![Finding::good(
            ABOUT,
            format!("group {}, tags by {}: {list}", self.group, tags.from),
        )];
        let names = snapshot.group_names();
        if !names.contains(&self.group.as_str()) {
            findings.push(Finding::warning(
                ABOUT,
                format!(
                    "windmill has no worker group {}; those it has: {}",
                    self.group,
                    names.join(", ")
                ),
                "nothing, if its first worker is still to come; else correct `group`",
            ));
        }
        let seen = super::reading::seen(snapshot, &self.group, &tags, self.alive, self.resumable);
        let reading = seen.reading;
        let busiest: Vec<String> = reading
            .tags
            .iter()
            .filter(|(_, waiting)| **waiting > 0)
            .map(|(tag, waiting)| format!("{tag} {waiting}"))
            .collect();
        let mut what = format!("{} waiting, {} running", reading.waiting, reading.active);
        if !busiest.is_empty() {
            what += &format!(" ({})", busiest.join(", "));
        }
        if let Some(held) = reading.held {
            what += &format!(", {held} held back by a concurrency limit");
        }
        findings.push(Finding::good(ABOUT, what));
        findings.extend(self.of_unheard(&tags, snapshot));
        if let Some(orphans) = reading.orphaned {
            findings.push(Finding::warning(
                ABOUT,
                format!("{orphans} running with a worker that is silent"),
                "nothing, windmill starts them again; if it happens often, give workers time to end",
            ));
        }
        findings
    }

    /// Tags whose jobs call for workers that then do not take them.
    fn of_unheard(&self, tags: &Tags, snapshot: &Snapshot) -> Option<Finding> {
        let heard: BTreeSet<&String> =
            live(snapshot, &self.group, self.alive).flat_map(|worker| &worker.tags).collect();
        let unheard: Vec<&str> =
            tags.tags.iter().filter(|tag| !heard.contains(tag)).map(String::as_str).collect();
        (!heard.is_empty() && !unheard.is_empty()).then(|| {
            Finding::warning(
                ABOUT,
                format!("no live worker of group {} listens to {}", self.group, unheard.join(", ")),
                "more workers would not take such jobs: let the worker group listen to them in \
                 windmill, or leave them out of `tags` and of custom_tags",
            )
        })
    }

    fn of_workers(&self, era: &Era, snapshot: &Snapshot) -> Vec<Finding> {
        let workers: Vec<&WorkerRow> = live(snapshot, &self.group, self.alive).collect();
        let mut hosts: BTreeMap<&str, usize> = BTreeMap::new();
        for worker in workers.iter().filter(|worker| !worker.native) {
            *hosts.entry(&worker.instance).or_default() += 1;
        }
        let native = workers.iter().filter(|worker| worker.native).count();
        let count = workers.len() - native + native.div_ceil(NATIVE_ROWS.into());
        let silent = snapshot.workers_of(&self.group).filter(|w| w.ping > self.alive).count();
        if count == 0 {
            return vec![Finding::warning(
                ABOUT,
                format!("group {} has no live worker", self.group),
                "nothing, if none runs; else compare `group` with WORKER_GROUP of the workers",
            )];
        }
        let mut what = format!("{count} live workers of group {}", self.group);
        if !era.occupancy {
            what += ", occupancy is not measured by this windmill";
        }
        let mut findings = vec![Finding::good(ABOUT, what).stating(Fact::Consumers(count))];
        if native > 0 {
            let what = format!("{native} rows are of native workers, {NATIVE_ROWS} each");
            findings.push(Finding::good(ABOUT, what).stating(Fact::Slots(NATIVE_ROWS.into())));
        }
        let shared: Vec<&str> =
            hosts.iter().filter(|(_, n)| **n > 1).map(|(host, _)| *host).collect();
        if !shared.is_empty() {
            findings.push(Finding::warning(
                ABOUT,
                format!("several workers share a host name: {}", shared.join(", ")),
                "who is idle cannot be told then, and none is stopped: give each its own, by \
                 FORCE_HOSTNAME, and in compose without `hostname:` and host network",
            ));
        }
        if self.alive < QUIET_PING && self.is_quiet(snapshot) {
            findings.push(Finding::warning(
                ABOUT,
                format!(
                    "some workers of group {} tell of themselves only now and then",
                    self.group
                ),
                "if they run with QUIET=true, set alive_window: 90s",
            ));
        }
        if silent > 0 {
            let what = format!(
                "{silent} more {} live in the last 10 minutes",
                if silent == 1 { "was" } else { "were" }
            );
            findings.push(Finding::good(ABOUT, what));
        }
        findings
    }

    /// Whether a worker that runs a job, or most of those that told of themselves lately, take their
    /// time to tell.
    fn is_quiet(&self, snapshot: &Snapshot) -> bool {
        let recent = || snapshot.workers_of(&self.group).filter(|w| w.ping < QUIET_PING);
        let slow = || recent().filter(|w| w.ping > USUAL_PING);
        let runs = |w: &WorkerRow| {
            let fresh = |ping: Option<f64>| ping.is_some_and(|ping| ping <= f64::from(JOB_PING));
            let is_its = |job: &Running| job.worker.as_ref() == Some(&w.worker) && fresh(job.ping);
            snapshot.running.iter().any(is_its)
        };
        slow().any(runs) || 2 * slow().count() > recent().count()
    }

    fn of_other_scaler(&self, snapshot: &Snapshot) -> Option<Finding> {
        let row = snapshot.groups.iter().find(|row| row.name == self.group)?;
        row.autoscaling.unwrap_or(false).then(|| {
            Finding::warning(
                ABOUT,
                format!("windmill's own autoscaling is enabled for group {} too", self.group),
                "two that scale the same workers pull against each other: disable it in the worker \
                 group's settings",
            )
        })
    }
}

fn of_clock(snapshot: &Snapshot) -> Option<Finding> {
    let ahead = snapshot.base.now - clock::now().as_seconds();
    (ahead.abs() > SKEW).then(|| {
        let way = if ahead > 0.0 { "ahead of" } else { "behind" };
        Finding::warning(
            ABOUT,
            format!("the database's clock is {:.0} s {way} this machine's", ahead.abs()),
            "let both follow the same time servers; waits and ages are reckoned by the database's",
        )
    })
}

fn of_standby(snapshot: &Snapshot) -> Option<Finding> {
    let behind = snapshot.base.behind.filter(|_| snapshot.base.standby)?;
    let what = format!("is a standby; the last change that it followed is {behind:.0} s old");
    Some(Finding::good(ABOUT, what))
}

/// What the role may not read, with the statement that lets it.
fn lacking(rights: &[Access]) -> Option<Finding> {
    let closed: Vec<&Access> = rights.iter().filter(|access| !access.select).collect();
    let role = &closed.first()?.role;
    let tables: Vec<String> = closed.iter().map(|a| format!("{}.{}", a.schema, a.table)).collect();
    let tables = tables.join(", ");
    Some(Finding::problem(
        ABOUT,
        format!("role {role} may not read {tables}"),
        format!("GRANT SELECT ON {tables} TO {role};"),
    ))
}

fn unreadable(missing: &Missing) -> Finding {
    let said = missing.detail.to_lowercase();
    let fix = match missing.why {
        Silence::Denied if said.contains("permission denied") => {
            "let the role read: GRANT SELECT ON v2_job_queue, v2_job_runtime, worker_ping, config TO \
             role (before 1.458: queue, worker_ping, config)"
        }
        Silence::Denied if said.contains("pg_hba") => {
            "let pg_hba.conf of the server admit this host, user and database, with TLS or without"
        }
        Silence::Denied => "correct user and password in `url` or `password_file`",
        Silence::Refused => "start postgres, or correct host and port in `url`",
        Silence::Timeout => "look whether postgres is overloaded, locked or behind a firewall",
        Silence::NotFound => "correct what is named, or set it as said",
        Silence::Stale => "let the standby follow its primary again, or name the primary in `url`",
        Silence::Malformed => "look whether `url` names a windmill database",
        _ => "check `url`, network and TLS (sslmode, ca_file)",
    };
    Finding::problem(ABOUT, missing.to_string(), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_told_as_the_statement_that_grants_it() {
        let access = |table: &str, select| Access {
            table: table.into(),
            role: "scaler".into(),
            schema: "public".into(),
            select,
        };
        assert_eq!(lacking(&[access("config", true)]), None);
        let rights = [access("config", false), access("queue", false), access("worker_ping", true)];
        let finding = lacking(&rights).unwrap();
        let expected = "GRANT SELECT ON public.config, public.queue TO scaler;";
        assert_eq!(finding.fix.as_deref(), Some(expected));
    }
}
