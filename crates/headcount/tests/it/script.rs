//! The `script` target with real scripts.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use headcount::targets::script::{ScriptConfig, Words};
use headcount::targets::{Order, Promise, Target, TargetConfig, TargetError};
use headcount_core::{Kind, Silence, Span};

use crate::support::wait::until;
use crate::support::workers::{order, place};

/// The custom script of Windmill's documentation for Kubernetes, as it stands there: no `#!` line.
const WINDMILL: &str = r#"worker_group="$1"
desired_workers="$2"
reason="$3"
event_type="$4"

namespace="mynamespace"

echo "Applying $event_type of $desired_workers to $worker_group bc $reason"
# authenticate to the cluster here if needed
kubectl scale deployment windmill-workers-$worker_group --replicas=$desired_workers -n $namespace
"#;

fn write(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::write(&file, text).expect("the test's folder can be written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&file, mode).expect("the mode can be set");
}

fn one(program: &str) -> Words {
    Words::One(program.into())
}

fn shell(script: &str) -> Words {
    Words::Many(["sh", "-c", script].map(String::from).to_vec())
}

fn assuming(command: Words, initial: u32) -> ScriptConfig {
    ScriptConfig { command, initial: Some(initial), ..ScriptConfig::default() }
}

fn asking(status_command: &str) -> ScriptConfig {
    let status_command = Some(shell(status_command));
    ScriptConfig { command: one("true"), status_command, ..ScriptConfig::default() }
}

fn open(config: &ScriptConfig, folder: &Path) -> Box<dyn Target> {
    let place = place(folder, "default");
    TargetConfig::Script(config.clone()).open(&place).expect("nothing is read at this time")
}

#[tokio::test]
async fn runs_the_script_of_windmills_documentation_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "scale.sh", WINDMILL);
    write(folder.path(), "kubectl", "#!/bin/sh\necho kubectl \"$@\"\n");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let config = ScriptConfig {
        interpreter: Some(one("bash")),
        env: [("PATH".to_owned(), path.as_str().into())].into(),
        ..assuming(one("scale.sh"), 1)
    };
    let mut target = open(&config, folder.path());
    assert_eq!(target.promise(), Promise::NumberOnly);
    let order = Order { reason: "3 waiting; `rm -rf /` $(boom) 'x'".into(), ..order(1, 3, &[]) };
    let scaled = target.scale(&order).await.unwrap();
    let said = "Applying scaleout of 3 to default bc 3 waiting; `rm -rf /` $(boom) 'x'; \
                kubectl scale deployment windmill-workers-default --replicas=3 -n mynamespace";
    assert_eq!(scaled.note, said);
    assert_eq!(target.status().await.unwrap().reading.capacity(), 3);
    let found = target.check().await;
    assert!(found.iter().all(|f| f.level < headcount::finding::Level::Problem), "{found:?}");

    // Without `interpreter` the error says what is missing.
    let config = ScriptConfig { interpreter: None, ..config };
    let mut target = open(&ScriptConfig { command: one("./scale.sh"), ..config }, folder.path());
    let error = target.scale(&order).await.unwrap_err().to_string();
    assert!(error.contains("has no #! line; set `interpreter: bash`"), "{error}");
    let found = target.check().await;
    let problem = found.iter().find(|f| f.what.contains("has no #! line")).unwrap();
    assert!(problem.fix.as_ref().unwrap().contains("`interpreter: bash`"), "{problem:?}");
}

#[tokio::test]
async fn tells_everything_in_the_environment_too() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"echo "$HEADCOUNT_GROUP|$HEADCOUNT_DESIRED|$HEADCOUNT_REASON|$HEADCOUNT_EVENT|"\
"$HEADCOUNT_CURRENT|$HEADCOUNT_VICTIMS|$HEADCOUNT_TOKEN|$TOKEN""#;
    let config = ScriptConfig {
        exact_victims: true,
        env: [("TOKEN".to_owned(), "s3cret".into())].into(),
        ..assuming(shell(script), 3)
    };
    assert!(!format!("{config:?}").contains("s3cret"), "secrets are not shown");
    let mut target = open(&config, folder.path());
    assert_eq!(target.promise(), Promise::ExactVictims);
    let order = Order { kind: Kind::EmergencyScaleIn, ..order(3, 1, &["w1", "w2"]) };
    let note = target.scale(&order).await.unwrap().note;
    assert_eq!(note, "default|1|a test says so|emergency_scale_in|3|w1 w2|1|s3cret");
}

#[tokio::test]
async fn a_failure_is_an_error_with_what_the_script_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut target =
        open(&assuming(shell("echo trying; echo no quota >&2; exit 7"), 1), folder.path());
    let error = target.scale(&order(1, 2, &[])).await.unwrap_err();
    assert_eq!(error.to_string(), "script sh: exit status: 7: trying; no quota");
    assert_eq!(target.status().await.unwrap().reading.capacity(), 1, "nothing is assumed");

    let mut absent = open(&assuming(one("./no-such.sh"), 1), folder.path());
    let error = absent.scale(&order(1, 2, &[])).await.unwrap_err().to_string();
    assert!(error.contains("no-such.sh cannot be used"), "{error}");
}

#[tokio::test]
async fn the_last_line_may_report_what_was_done() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"echo asking >&2; echo done; echo '{"removed": ["w2"], "note": "by hand"}'"#;
    let mut target = open(&assuming(shell(script), 2), folder.path());
    let scaled = target.scale(&order(2, 1, &["w2"])).await.unwrap();
    assert_eq!(scaled.removed, ["w2"]);
    assert_eq!(scaled.note, "asking; done; by hand; removed w2");
}

#[tokio::test]
async fn of_a_long_output_the_end_tells_why_it_failed() {
    let folder = tempfile::tempdir().unwrap();
    let script = "seq 1000; echo quota exceeded; exit 1";
    let error = open(&assuming(shell(script), 1), folder.path()).scale(&order(1, 2, &[])).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains(": ...") && error.ends_with("; 1000; quota exceeded"), "{error}");
}

#[tokio::test]
async fn a_long_list_of_workers_is_read_whole() {
    let folder = tempfile::tempdir().unwrap();
    let script = r#"printf '{"workers": ['; i=0
        while [ $i -lt 500 ]; do
          printf '{"id": "worker-with-a-long-name-%s", "state": "ready"},\n' $i; i=$((i + 1))
        done; echo '{"id": "last", "state": "draining"}]}'"#;
    let seen = open(&asking(script), folder.path()).status().await.unwrap();
    assert_eq!((seen.reading.ready, seen.reading.draining), (500, 1));
    let missing = open(&asking("head -c 2000000 /dev/zero"), folder.path()).status().await;
    let missing = missing.unwrap_err();
    assert!(missing.detail.ends_with("says more than 1048576 bytes"), "{missing}");
}

#[tokio::test]
async fn the_number_that_was_set_is_remembered_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let config = assuming(one("true"), 1);
    let mut target = open(&config, folder.path());
    target.scale(&order(1, 4, &[])).await.unwrap();
    let mut again = open(&config, folder.path());
    assert_eq!(again.status().await.unwrap().reading.capacity(), 4);
}

#[tokio::test]
async fn what_cannot_be_kept_for_after_a_restart_is_not_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    // A folder below a file cannot be made, not even by root.
    std::fs::write(folder.path().join("state"), "").unwrap();
    let config = assuming(shell("echo ran >> ran"), 1);
    let mut target = open(&config, folder.path());
    let error = target.scale(&order(1, 2, &[])).await.unwrap_err().to_string();
    assert!(error.contains("nothing was changed, since the number of workers"), "{error}");
    assert!(!folder.path().join("ran").exists());

    std::fs::remove_file(folder.path().join("state")).unwrap();
    target.scale(&order(1, 5, &[])).await.unwrap();
    let mut failing = open(&assuming(shell("exit 1"), 1), folder.path());
    failing.scale(&order(5, 9, &[])).await.unwrap_err();
    let again = open(&config, folder.path()).status().await.unwrap();
    assert_eq!(again.reading.capacity(), 5, "what failed was not set");
}

#[tokio::test]
async fn what_a_script_says_is_told_without_secrets_and_control_characters() {
    let folder = tempfile::tempdir().unwrap();
    let secret = [("MYTOK".to_owned(), "hush-hush-hush".into())];
    let script = r#"printf 'a\033[2Jb %s\r\n' "$MYTOK"; exit "$1""#;
    let words = |code: &str| Words::Many(["sh", "-c", script, "sh", code].map(String::from).into());
    let config = |code| ScriptConfig { env: secret.clone().into(), ..assuming(words(code), 1) };
    let note = open(&config("0"), folder.path()).scale(&order(1, 2, &[])).await.unwrap().note;
    assert_eq!(note, "a[2Jb ...");
    let error = open(&config("3"), folder.path()).scale(&order(1, 2, &[])).await.unwrap_err();
    assert_eq!(error.to_string(), "script sh: exit status: 3: a[2Jb ...");
    let asked = ScriptConfig { env: secret.clone().into(), ..asking("echo $MYTOK") };
    let missing = open(&asked, folder.path()).status().await.unwrap_err();
    assert!(!missing.detail.contains("hush"), "{missing}");
}

#[tokio::test]
async fn a_script_that_hangs_is_killed_with_its_process_group() {
    let folder = tempfile::tempdir().unwrap();
    let script = "sleep 1000 & echo $! > child; trap '' TERM; sleep 1000";
    let timeout = Span::from_secs(1);
    let config = ScriptConfig { timeout, ..assuming(shell(script), 1) };
    let mut target = open(&config, folder.path());
    let error = target.scale(&order(1, 2, &[])).await.unwrap_err();
    assert!(matches!(error, TargetError::Timeout { seconds: 1, .. }), "{error}");
    let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
    let child: u32 = child.trim().parse().unwrap();
    until("the script's child is gone", async || {
        headcount::hosts::processes::Process::find(child).is_none_or(|p| !p.runs())
    })
    .await;
}

#[tokio::test]
async fn what_a_script_leaves_in_the_background_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let script = "sleep 1000 & echo $!";
    let mut target = open(&assuming(shell(script), 1), folder.path());
    let start = Instant::now();
    let note = target.scale(&order(1, 2, &[])).await.unwrap().note;
    assert!(start.elapsed() < Duration::from_secs(30));
    let pid: u32 = note.parse().unwrap();
    let left = headcount::hosts::processes::Process::find(pid).expect("it is the user's business");
    headcount::hosts::processes::signal(pid, left.started, rustix::process::Signal::KILL);
}

#[tokio::test]
async fn a_flood_of_output_is_cut_and_does_not_block() {
    let folder = tempfile::tempdir().unwrap();
    let script = "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo the end >&2";
    let mut target = open(&assuming(shell(script), 1), folder.path());
    let note = target.scale(&order(1, 2, &[])).await.unwrap().note;
    assert!(note.len() < 1000, "{} bytes", note.len());
}

#[tokio::test]
async fn the_status_command_tells_the_number() {
    let folder = tempfile::tempdir().unwrap();
    let mut plain = open(&asking("echo 3"), folder.path());
    assert_eq!(plain.status().await.unwrap().reading.ready, 3);
    plain.scale(&order(3, 5, &[])).await.unwrap();
    assert_eq!(plain.status().await.unwrap().reading.ready, 3, "it is asked, not assumed");

    let listing = r#"echo '{"workers": [{"id": "'$HEADCOUNT_GROUP'-1", "state": "starting"}]}'"#;
    let seen = open(&asking(listing), folder.path()).status().await.unwrap();
    assert_eq!((seen.reading.starting, seen.reading.workers[0].id.as_str()), (1, "default-1"));
}

#[tokio::test]
async fn a_status_command_that_does_not_tell_is_a_missing_reading() {
    let folder = tempfile::tempdir().unwrap();
    let table = [
        ("echo many", Silence::Malformed, "`many` is no number of workers"),
        ("exit 0", Silence::Malformed, "`` is no number"),
        ("echo 3; echo no access >&2; exit 1", Silence::Refused, "no access"),
        ("echo '{\"ready\": 1, \"workers\": []}'", Silence::Contradictory, "counts 1 ready"),
    ];
    for (script, why, said) in table {
        let missing = open(&asking(script), folder.path()).status().await.unwrap_err();
        assert_eq!(missing.why, why, "{script}");
        assert!(missing.detail.contains(said), "{script}: {}", missing.detail);
    }
    let config = ScriptConfig { timeout: Span::from_millis(300), ..asking("sleep 1000") };
    let missing = open(&config, folder.path()).status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Timeout);
    let config = ScriptConfig { status_command: Some(one("./none")), ..asking("") };
    let missing = open(&config, folder.path()).status().await.unwrap_err();
    assert_eq!(missing.why, Silence::NotFound);
}
