//! Logins that take long, for ever, or a file that is not as it should be.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use headcount::targets::kubernetes::KubernetesConfig;
use headcount_core::Silence;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{open, settled};
use crate::support::kube_api::{KubeApi, NAMESPACE, WORKER};
use crate::support::run::headcount;
use crate::support::wait::until;

/// A target whose user has this instead of a token.
fn config(api: &KubeApi, user: &str) -> KubernetesConfig {
    let config = api.config("admin");
    let file = config.kubeconfig.as_ref().unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    std::fs::write(file, text.replace(r#""token":"admin""#, user)).unwrap();
    config
}

/// A user who logs in by a shell script.
fn exec(script: &str) -> String {
    let exec = json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
        "args": ["-c", script], "interactiveMode": "IfAvailable" });
    format!("\"exec\":{exec}")
}

fn printed(token: &str, ends: &str) -> String {
    let status = json!({ "token": token, "expirationTimestamp": ends });
    format!("echo '{}'", json!({ "kind": "ExecCredential", "status": status }))
}

/// The processes whose id was written, one a line, that are still there.
fn alive(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let is_there = |pid: &&str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z")
    };
    text.lines().filter(is_there).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_takes_longer_than_a_look_is_there_for_the_next_one() {
    let api = KubeApi::start(2).await;
    let begun = api.folder().join("begun");
    let script = format!(
        "echo x >> {}; sleep 8; {}",
        begun.display(),
        printed("admin", "2999-01-01T00:00:00Z")
    );
    let mut target = open(&config(&api, &exec(&script)));
    let first = tokio::time::timeout(Duration::from_secs(3), target.status()).await;
    assert!(first.is_err(), "{first:?}");
    until("it is logged in", async || target.status().await.is_ok()).await;
    settled(&mut target, 2).await;
    assert_eq!(std::fs::read_to_string(&begun).unwrap(), "x\n", "one login");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_is_about_to_end_is_made_anew() {
    let api = KubeApi::start(2).await;
    let begun = api.folder().join("begun");
    let script =
        format!("echo x >> {}; {}", begun.display(), printed("admin", "2000-01-01T00:00:00Z"));
    let mut target = open(&config(&api, &exec(&script)));
    until("a second login", async || {
        target.status().await.unwrap();
        std::fs::read_to_string(&begun).unwrap() == "x\nx\n"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_that_hangs_is_one_process_and_ends_with_headcount() {
    let api = KubeApi::start(2).await;
    let pids = api.folder().join("pids");
    let script =
        format!("trap '' TERM; echo $$ >> {}; sleep 600 & echo $! >> {0}; wait", pids.display());
    let kubeconfig = config(&api, &exec(&script)).kubeconfig;
    let folder = tempfile::tempdir().unwrap();
    let group = json!({ "groups": { "default": {
        "look": "1s",
        "workers": { "min": 1, "max": 9 },
        "policy": { "cpu_aware": {} },
        "queue": { "demo": { "database": "jobs.db" } },
        "target": { "kubernetes": { "name": WORKER, "namespace": NAMESPACE, "kubeconfig": kubeconfig } },
    } } });
    std::fs::write(folder.path().join("headcount.yaml"), group.to_string()).unwrap();
    let mut command = headcount(folder.path(), &["run"]);
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it logs in", async || alive(&pids).len() == 2).await;
    // Two looks more.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(std::fs::read_to_string(&pids).unwrap().lines().count(), 2, "one login at a time");
    let told = Instant::now();
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    until("it ends", async || run.try_wait().unwrap().is_some()).await;
    assert!(told.elapsed() < Duration::from_secs(20));
    until("its login ends", async || alive(&pids).is_empty()).await;

    let once = headcount(folder.path(), &["once"]).output().unwrap();
    assert!(!once.status.success());
    assert!(told.elapsed() < Duration::from_secs(60));
    until("its login ends", async || alive(&pids).is_empty()).await;
}

#[tokio::test]
async fn a_token_file_may_end_with_a_line_and_may_not_be_a_pipe() {
    let api = KubeApi::start(2).await;
    let token = api.folder().join("token");
    std::fs::write(&token, "admin\n").unwrap();
    let mut target = open(&config(&api, r#""tokenFile":"token""#));
    settled(&mut target, 2).await;
    drop(target);
    std::fs::remove_file(&token).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &token, 0o600.into()).unwrap();
    let mut target = open(&config(&api, r#""tokenFile":"token""#));
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Denied, "{missing}");
    assert!(missing.detail.contains("it is no regular file"), "{missing}");
}
