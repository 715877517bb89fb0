//! The Dockerfile, and what deploys the image made by it: they mean the same. And the program as the
//! first process of a container.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};

use headcount::hosts::processes::{self, Process};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::run::headcount;
use crate::support::wait::until;

fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file:?}: {error}"))
}

/// Instructions of the Dockerfile, each on one line.
fn instructions() -> Vec<String> {
    let text = read("Dockerfile").replace("\\\n", " ");
    let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

/// What follows this word in the one instruction that begins with it.
fn only(word: &str) -> String {
    let all = instructions();
    let mut found = all.iter().filter_map(|line| line.strip_prefix(&format!("{word} ")));
    let first = found.next().unwrap_or_else(|| panic!("no {word}"));
    assert_eq!(found.next(), None, "one {word} is enough");
    first.to_owned()
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap()
}

#[test]
fn the_image_is_built_from_what_there_is() {
    let rust = instructions().iter().find_map(|line| {
        let (version, _) = line.strip_prefix("FROM rust:")?.split_once('-')?;
        Some(version.to_owned())
    });
    assert_eq!(rust.as_deref(), Some(env!("CARGO_PKG_RUST_VERSION")));
    let manifest = read("crates/headcount/Cargo.toml");
    let build = instructions().into_iter().find(|line| line.contains("cargo build")).unwrap();
    assert!(build.contains("--features full") && manifest.contains("\nfull = ["), "{build}");
    assert!(build.contains("--profile dist") && read("Cargo.toml").contains("[profile.dist]"));
    // What is copied is let through, and is there.
    let ignore = read(".dockerignore");
    let copied = instructions().into_iter().filter(|line| line.starts_with("COPY "));
    let copied: Vec<String> = copied.filter(|line| !line.contains("--from=")).collect();
    assert!(!copied.is_empty());
    for line in &copied {
        let words: Vec<&str> = line.split(' ').collect();
        for name in &words[1..words.len() - 1] {
            assert!(ignore.lines().any(|line| line == format!("!{name}")), "{name}");
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name).exists());
        }
    }
}

#[test]
fn each_stage_comes_from_one_before_and_the_plain_image_is_the_last() {
    let mut stages: Vec<String> = Vec::new();
    for line in instructions() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["FROM", from, "AS", name] => {
                let is_outside = from.contains(':');
                assert!(is_outside || stages.iter().any(|stage| stage == from), "{line}");
                stages.push(name.to_owned());
            }
            ["FROM", ..] => panic!("a stage without a name: {line}"),
            _ => {}
        }
    }
    assert_eq!(stages.last().map(String::as_str), Some("headcount"));
    assert!(stages.iter().any(|stage| stage == "compose"), "{stages:?}");
    for text in [read("README.md"), read("Dockerfile")] {
        assert!(text.contains(concat!("docker build -t headcount:", env!("CARGO_PKG_VERSION"))));
        assert!(text.contains("--target compose"));
    }
}

#[test]
fn whatever_deploys_it_names_it_and_fits_it() {
    assert_eq!(only("ENTRYPOINT"), r#"["tini", "-s", "--", "headcount"]"#);
    assert!(
        instructions()
            .iter()
            .any(|line| line.contains("apt-get install") && line.contains(" tini "))
    );
    assert_eq!(only("CMD"), r#"["run"]"#);
    let (user, state) = (only("USER"), only("VOLUME"));
    assert_eq!(only("ENV"), format!("HEADCOUNT_STATE_DIR={state}"));
    let image = concat!("headcount:", env!("CARGO_PKG_VERSION"));

    let pod = yaml("deploy/kubernetes/deployment.yaml")["spec"]["template"]["spec"].clone();
    let context = &pod["securityContext"];
    assert_eq!(user, format!("{}:{}", context["runAsUser"], context["fsGroup"]));
    let container = &pod["containers"][0];
    assert_eq!((&container["image"], &container["args"][0]), (&image.into(), &"run".into()));
    assert_eq!(container["env"][0]["value"], state.as_str());
    assert_eq!(yaml("deploy/helm/headcount/values.yaml")["image"], image);
    assert!(read("deploy/nomad/headcount.nomad.hcl").contains(&format!("image = \"{image}\"")));

    let with_compose = format!("${{HEADCOUNT_IMAGE:-{image}-compose}}");
    let beside_windmill = yaml("deploy/windmill/docker-compose.headcount.yml");
    assert_eq!(beside_windmill["services"]["headcount"]["image"], with_compose);

    let task: Value = serde_json::from_str(&read("deploy/ecs/task-definition.json")).unwrap();
    let container = &task["containerDefinitions"][0];
    assert!(container["image"].as_str().unwrap().ends_with(&format!("/{image}")));
    assert_eq!(container["command"][0], "run");
    assert_eq!(container["environment"][0]["value"], state.as_str());
    // What `docker build` makes on most machines; another one must be said.
    assert_eq!(task["runtimePlatform"]["cpuArchitecture"], "X86_64");
    assert!(read("README.md").contains("`cpuArchitecture`"));
}

/// One worker, which says when it has finished.
const ONE_WORKER: &str = r#"
http: { listen: none }
groups:
  g:
    workers: { min: 1, max: 1 }
    brake: off
    capacity: off
    queue: { demo: { database: jobs.db } }
    target:
      process:
        command: [sh, -c, "trap 'echo finished; exit' TERM; touch ready; while :; do sleep 0.1; done"]
        grace: 30s
"#;

/// `headcount run` as the first process of a namespace, and of nothing else of a container.
struct Container {
    folder: tempfile::TempDir,
    outside: Child,
}

impl Container {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("headcount.yaml"), ONE_WORKER).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = contained(folder.path(), "run");
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let outside = command.spawn().expect("no unshare: run ./test.sh first");
        Self { folder, outside }
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// Tells the first process to end, and waits for that; its exit code.
    async fn stop(&mut self) -> Option<i32> {
        let outside = self.outside.id();
        let children = std::fs::read_to_string(format!("/proc/{outside}/task/{outside}/children"));
        let first = Process::find(children.unwrap().trim().parse().unwrap()).unwrap();
        assert!(processes::signal(first.pid, first.started, Signal::TERM));
        let mut ended = None;
        until("it has ended", async || {
            ended = self.outside.try_wait().unwrap();
            ended.is_some()
        })
        .await;
        ended.and_then(|status| status.code())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.outside.kill();
        let _ = self.outside.wait();
    }
}

fn contained(folder: &Path, verb: &str) -> Command {
    let inner = headcount(folder, &[verb]);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(inner.get_program());
    command.args(inner.get_args()).current_dir(folder).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

#[tokio::test]
async fn workers_that_end_with_the_container_finish_first() {
    let mut container = Container::start();
    until("the worker runs", async || container.folder.path().join("ready").exists()).await;
    let check = contained(container.folder.path(), "check").output().unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(said.contains("make that longer than 30s"), "{said}");

    assert_eq!(container.stop().await, Some(0), "{}", container.text("log"));
    let logs = std::fs::read_dir(container.folder.path().join("state/groups/g/logs")).unwrap();
    let output: String =
        logs.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert_eq!(output, "finished\n", "{}", container.text("log"));
}

#[tokio::test]
async fn the_first_process_of_a_container_hears_sigterm_from_the_start() {
    let mut container = Container::start();
    until("it has started", async || container.text("log").contains("headcount runs")).await;
    assert_eq!(container.stop().await, Some(0), "{}", container.text("log"));
}
