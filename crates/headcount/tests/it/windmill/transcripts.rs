//! Every era as a user meets it: `headcount check` and `headcount once`.

use std::path::Path;

use serde_json::Value;

use crate::support::run::{Ran, headcount, run};
use crate::support::windmill::Era;

/// Two workers are pretended, so nothing of the machine plays a part.
fn configuration(url: &str, more: &str) -> String {
    format!(
        "groups:
  default:
    workers: {{ min: 1, max: 8 }}
    policy: {{ occupancy: {{}} }}
    brake: {{ off: true }}
    queue: {{ windmill: {{ url: '{url}'{more} }} }}
    target: {{ dry_run: {{ workers: 2 }} }}
"
    )
}

fn ran(folder: &Path, args: &[&str]) -> Ran {
    run(headcount(folder, args), b"")
}

fn lines_about_queue(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| line.contains(" queue "));
    lines.map(|line| line.split(" queue ").nth(1).unwrap().trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_era_is_checked() {
    for (era, name) in [
        (Era::V1, "jobs in `queue`: a Windmill before 1.458"),
        (Era::V2, "jobs in `v2_job_queue`: a Windmill since 1.458"),
        (Era::Latest, "jobs in `v2_job_queue`, native workers: a Windmill since 1.637"),
        (
            Era::Gated,
            "jobs in `v2_job_queue`, native workers, concurrency gates: a Windmill after 1.788",
        ),
    ] {
        let database = era.seeded().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headcount.yaml");
        std::fs::write(&file, configuration(&database.url(), ", tags: [bash]")).unwrap();
        let said = ran(folder.path(), &["check"]);
        let place = format!("{}/{}", database.place, database.name);
        let expected = [
            format!("postgres {place} answers, {name}"),
            "group default, tags by the key `tags`: bash".into(),
            "4 waiting, 2 running (bash 4)".into(),
            "3 live workers of group default".into(),
            "1 more was live in the last 10 minutes".into(),
        ];
        let found = lines_about_queue(&said.out);
        assert_eq!((found.as_slice(), said.code), (&expected[..], 0), "{era:?}: {}", said.out);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_era_is_scaled_once() {
    for era in Era::ALL {
        let database = era.seeded().await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("headcount.yaml");
        std::fs::write(&file, configuration(&database.url(), "")).unwrap();
        let said = ran(folder.path(), &["once", "--json"]);
        assert_eq!(said.code, 0, "{era:?}: {}{}", said.out, said.err);
        let decision: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
        assert_eq!((&decision["current"], &decision["wanted"]), (&2.into(), &3.into()), "{era:?}");
        assert_eq!(decision["reason"], "6 waiting (1 or more): 1 more", "{era:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_check_warns_of() {
    let database = Era::Latest.seeded().await;
    database
        .run("UPDATE worker_ping SET worker_instance = 'h1' WHERE worker_instance = 'h2'")
        .await;
    let enable = "UPDATE config SET config = '{\"autoscaling\": {\"enabled\": true}}' \
                  WHERE name = 'worker__default'";
    database.run(enable).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headcount.yaml");
    std::fs::write(&file, configuration(&database.url(), "")).unwrap();
    let said = ran(folder.path(), &["check"]).out;
    assert!(said.contains("several workers share a host name: h1"), "{said}");
    assert!(said.contains("windmill's own autoscaling is enabled for group default too"), "{said}");
    assert!(
        said.contains("group default, tags by its live workers: bash, flow, python3"),
        "{said}"
    );

    let quiet =
        "UPDATE worker_ping SET ping_at = now() - interval '20 s' WHERE worker = 'wk-default-h1-a'";
    database.run(quiet).await;
    let said = ran(folder.path(), &["check"]).out;
    assert!(said.contains("fix: if they run with QUIET=true, set alive_window: 90s"), "{said}");

    std::fs::write(&file, configuration(&database.url(), ", group: native")).unwrap();
    let said = ran(folder.path(), &["check"]).out;
    assert!(said.contains("2 live workers of group native"), "{said}");
    assert!(said.contains("11 rows are of native workers, 8 each"), "{said}");
    assert!(said.contains("fix: set `slots: 8` under `workers`"), "{said}");

    std::fs::write(&file, configuration(&database.url(), ", tags: [bash, lua]")).unwrap();
    let said = ran(folder.path(), &["check"]).out;
    assert!(said.contains("no live worker of group default listens to lua"), "{said}");

    std::fs::write(&file, configuration(&database.url(), ", group: gpu")).unwrap();
    let said = ran(folder.path(), &["check"]);
    assert_eq!(said.code, 3);
    let expected = "not_found: no tags known: windmill has no worker group gpu; those it has: bare";
    assert!(said.out.contains(expected), "{}", said.out);

    std::fs::write(&file, configuration(&database.url(), ", group: gpu, tags: [gpu]")).unwrap();
    let said = ran(folder.path(), &["check"]);
    assert_eq!(said.code, 0, "{}", said.out);
    assert!(said.out.contains("windmill has no worker group gpu; those it has"), "{}", said.out);
    assert!(said.out.contains("group gpu has no live worker"), "{}", said.out);
}

#[test]
fn mistakes_in_the_configuration_are_told_with_their_keys_and_without_the_password() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headcount.yaml");
    let url = "postgres://u:hush@db/windmill?sslmode=always";
    let more = ", url_file: f, tags: [''], alive_window: 1s, statement_timeout: 9s, taggs: []";
    std::fs::write(&file, configuration(url, more)).unwrap();
    let said = ran(folder.path(), &["check"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("windmill.taggs: unknown key; did you mean `tags`?"), "{}", said.err);
    let more = more.replace(", taggs: []", "");
    std::fs::write(&file, configuration(url, &more)).unwrap();
    let said = ran(folder.path(), &["check"]).err;
    for key in ["url_file", "tags", "alive_window", "statement_timeout"] {
        assert!(said.contains(&format!("groups.default.queue.windmill.{key}: ")), "{said}");
    }
    std::fs::write(&file, configuration(url, "")).unwrap();
    let said = ran(folder.path(), &["check"]).err;
    assert!(said.contains("windmill.url: has an sslmode that is not known"), "{said}");
    assert!(!said.contains("hush"), "{said}");
}
