//! Changes that are written into Windmill's own `autoscaling_event`.

use std::path::Path;

use serde_json::Value;

use crate::support::postgres::Database;
use crate::support::run::{Ran, headcount, run};
use crate::support::windmill::Era;

/// The table as Windmill has had it since 1.413. Its default is the time of the connection's zone.
const TABLE: &str = "
CREATE TYPE autoscaling_event_type AS ENUM ('full_scaleout', 'scalein', 'scaleout');
CREATE TABLE autoscaling_event (id serial PRIMARY KEY, worker_group text NOT NULL,
    event_type autoscaling_event_type NOT NULL, desired_workers integer NOT NULL,
    applied_at timestamp NOT NULL DEFAULT now(), reason text)";

/// A database whose group `default` has jobs waiting, and whose role lives in another time zone.
async fn database() -> Database {
    let database = Era::Latest.seeded().await;
    database.run(TABLE).await;
    let name = &database.name;
    database.run(&format!("ALTER ROLE {name} SET timezone = 'America/Los_Angeles'")).await;
    database
}

/// A group of one worker that needs `min`.
fn write(folder: &Path, database: &Database, min: u32, command: &str) {
    let url = database.url();
    let text = format!(
        "groups:
  mine:
    workers: {{ min: {min}, max: 9 }}
    policy: {{ occupancy: {{ full_scale_jobs_waiting: 1000000 }} }}
    brake: {{ off: true }}
    queue: {{ windmill: {{ url: '{url}', group: default, write_events: true }} }}
    target: {{ script: {{ command: {command}, initial: 1 }} }}
"
    );
    std::fs::write(folder.join("headcount.yaml"), text).unwrap();
}

fn ran(folder: &Path, args: &[&str]) -> Ran {
    run(headcount(folder, args), b"")
}

async fn rows(database: &Database) -> Vec<Value> {
    let query = "SELECT coalesce(json_agg(e ORDER BY id), '[]') FROM (SELECT id, worker_group, \
        event_type, desired_workers, reason, \
        abs(extract(epoch FROM applied_at - (now() AT TIME ZONE 'UTC'))) < 60 AS is_now \
        FROM autoscaling_event) e";
    serde_json::from_str(&database.ask(query).await).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lacking_is_granted_by_what_check_prints() {
    let database = database().await;
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &database, 3, "'true'");

    // Without the right the change is made all the same.
    let once = ran(folder.path(), &["once"]);
    assert_eq!(once.code, 0, "{}{}", once.out, once.err);
    assert_eq!(
        once.err.matches("an event is not written into windmill").count(),
        1,
        "{}",
        once.err
    );
    assert!(once.err.contains("permission denied"), "{}", once.err);
    assert_eq!(rows(&database).await, [""; 0]);

    let check = ran(folder.path(), &["check"]);
    assert_eq!(check.code, 3, "{}", check.out);
    let name = &database.name;
    let expected = format!(
        "GRANT INSERT ON public.autoscaling_event TO {name}; GRANT USAGE ON SEQUENCE \
         public.autoscaling_event_id_seq TO {name};"
    );
    assert!(check.out.contains(&format!("fix: {expected}")), "{}", check.out);
    database.run(&expected).await;
    let check = ran(folder.path(), &["check"]);
    assert!(check.out.contains("are written into public.autoscaling_event"), "{}", check.out);

    write(folder.path(), &database, 5, "'true'");
    let once = ran(folder.path(), &["once"]);
    assert_eq!((once.code, once.err.as_str()), (0, ""), "{}", once.out);
    let rows = rows(&database).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let row = &rows[0];
    assert_eq!((&row["worker_group"], &row["event_type"]), (&"default".into(), &"scaleout".into()));
    assert_eq!((&row["desired_workers"], &row["is_now"]), (&5.into(), &true.into()), "in UTC");
    assert!(row["reason"].as_str().unwrap().contains('5'), "{row}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_changes_that_were_made_are_written() {
    let database = database().await;
    let name = &database.name;
    let all = format!("GRANT ALL ON autoscaling_event, autoscaling_event_id_seq TO {name}");
    database.run(&all).await;
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &database, 3, "'true'");
    let dry = ran(folder.path(), &["once", "--dry-run"]);
    assert_eq!(dry.code, 0, "{}{}", dry.out, dry.err);
    write(folder.path(), &database, 3, "'false'");
    let failed = ran(folder.path(), &["once"]);
    assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
    assert_eq!(rows(&database).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_in_deploy_grants_what_is_needed() {
    let database = database().await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/windmill/events.sql");
    let script = std::fs::read_to_string(root).unwrap();
    // A role is the whole server's; this test has one of its own.
    database.run(&script.replace("TO headcount", &format!("TO {}", database.name))).await;
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &database, 3, "'true'");
    let check = ran(folder.path(), &["check"]);
    assert!(check.out.contains("are written into public.autoscaling_event"), "{}", check.out);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_windmill_without_events_is_told_apart() {
    let database = Era::V1.seeded().await;
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &database, 3, "'true'");
    let check = ran(folder.path(), &["check"]);
    assert!(check.out.contains("no table autoscaling_event"), "{}", check.out);
    assert!(check.out.contains("fix: remove write_events, or upgrade windmill"), "{}", check.out);
}
