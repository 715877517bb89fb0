//! The command line as a user sees it: what is printed, and the exit codes.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::support::run::{Ran, headcount, run};

fn ran(folder: &Path, args: &[&str]) -> Ran {
    run(headcount(folder, args), b"")
}

#[test]
fn help_documents_the_exit_codes() {
    let folder = tempfile::tempdir().unwrap();
    let help = ran(folder.path(), &["--help"]);
    assert_eq!(help.code, 0);
    assert!(help.out.contains("Exit codes: 0 done; 1 it did not work; 2 wrong arguments"));
    assert_eq!(ran(folder.path(), &["--version"]).code, 0);
    assert_eq!(ran(folder.path(), &["no-such-verb"]).code, 2);
    assert_eq!(ran(folder.path(), &["check", "--no-such-flag"]).code, 2);
}

#[test]
fn without_a_configuration_both_ways_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let said = ran(folder.path(), &["check"]);
    assert_eq!(said.code, 2);
    for word in ["headcount.yaml", "/etc/headcount/headcount.yaml", "--config", "REDIS_HOST"] {
        assert!(said.err.contains(word), "{}", said.err);
    }
    let said = ran(folder.path(), &["check", "--config", "none.yaml"]);
    assert_eq!((said.code, said.err.as_str()), (2, "none.yaml: there is no such file\n"));
}

#[test]
fn the_file_of_this_folder_is_taken_and_its_errors_are_all_told() {
    let folder = tempfile::tempdir().unwrap();
    let text = "groups:\n  a:\n    workers: { min: -1 }\n    queue: { demo: { database: d } }\n    target: {}\n";
    std::fs::write(folder.path().join("headcount.yaml"), text).unwrap();
    let wanted = "\
headcount.yaml:3:21 groups.a.workers.min: -1 is not 0 or more
headcount.yaml:5:5 groups.a.target: needs exactly one of compose, docker, dry_run, ecs, kubernetes, nomad, process, script, swarm, webhook, windmill_script, has 0
";
    let said = ran(folder.path(), &["check"]);
    assert_eq!((said.code, said.err.as_str(), said.out.as_str()), (2, wanted, ""));

    let said = ran(folder.path(), &["check", "--json"]);
    assert_eq!((said.code, said.err.as_str()), (2, ""));
    let json: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(json["errors"].as_array().unwrap().len(), 2);
    assert_eq!(json["errors"][0]["line"], 3);
    assert_eq!(json["errors"][0]["key"], "groups.a.workers.min");
}

#[test]
fn variables_come_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let text = "keep_days: ${DAYS}\ngroups: {}\n";
    std::fs::write(folder.path().join("c.yaml"), text).unwrap();
    let said = |days: Option<&str>| {
        let mut command = headcount(folder.path(), &["check", "-c", "c.yaml"]);
        command.envs(days.map(|days| ("DAYS", days)));
        run(command, b"").err
    };
    assert!(said(None).contains("c.yaml:1:12 keep_days: variable DAYS is not set"));
    assert!(said(Some("0")).contains("c.yaml:1:12 keep_days: ${DAYS} is not 1 or more"));
    assert_eq!(
        said(Some("3")),
        "c.yaml:2:1 groups: no groups; name at least one under `groups:`\n"
    );
}

#[test]
fn the_reference_variables_alone_are_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = headcount(folder.path(), &["check"]);
    command.env("REDIS_HOST", "127.0.0.1").env("MIN_WORKERS", "5");
    let said = run(command, b"");
    let wanted = "environment MIN_WORKERS: min 5 is above max 4; swap them?\n";
    assert_eq!((said.code, said.err.as_str()), (2, wanted));
}

#[test]
fn check_finds_what_does_not_work() {
    let folder = tempfile::tempdir().unwrap();
    let text = "\
groups:
  a:
    queue: { bull: { redis: { url: \"redis://127.0.0.1:1\" } } }
    target: { process: { command: [./no-such-program] } }
";
    std::fs::write(folder.path().join("headcount.yaml"), text).unwrap();
    let said = ran(folder.path(), &["check"]);
    assert_eq!(said.code, 3, "{}{}", said.out, said.err);
    assert!(said.out.contains("✘  a  target"), "{}", said.out);
    assert!(said.out.contains("fix: "), "{}", said.out);
    assert!(!said.out.contains('\x1b'), "colours in a pipe: {}", said.out);
    assert!(said.out.contains("state   is kept in"), "{}", said.out);
    let json: Value =
        serde_json::from_str(&ran(folder.path(), &["check", "a", "--json"]).out).unwrap();
    assert_eq!(json["config"], "headcount.yaml");
    let findings = json["findings"].as_array().unwrap();
    let target = findings.iter().find(|f| f["about"] == "target").unwrap();
    assert_eq!((&target["group"], &target["level"]), (&"a".into(), &"problem".into()));
    let said = ran(folder.path(), &["check", "b"]);
    assert_eq!((said.code, said.err.as_str()), (2, "headcount: no group `b`; there are a\n"));
}

#[test]
fn the_schema_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let schema: Value = serde_json::from_str(&ran(folder.path(), &["schema"]).out).unwrap();
    assert_eq!(schema["title"], "headcount.yaml");
    assert_eq!(schema["required"], serde_json::json!(["groups"]));
    let queue = &schema["$defs"]["Group"]["properties"]["queue"];
    assert_eq!(queue["$ref"], "#/$defs/QueueConfig");
}

#[test]
fn completions_for_every_shell() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = ran(folder.path(), &["completions", shell]);
        assert_eq!(said.code, 0);
        assert!(said.out.contains("headcount") && said.out.contains("replay"), "{shell}");
    }
    assert_eq!(ran(folder.path(), &["completions", "tcsh"]).code, 2);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = headcount(folder.path(), &["schema"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
