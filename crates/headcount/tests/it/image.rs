//! The Dockerfile, and what deploys the image made by it: they mean the same.

use std::path::Path;

use serde_json::Value;

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
    assert_eq!(only("ENTRYPOINT"), r#"["headcount"]"#);
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

    let task: Value = serde_json::from_str(&read("deploy/ecs/task-definition.json")).unwrap();
    let container = &task["containerDefinitions"][0];
    assert!(container["image"].as_str().unwrap().ends_with(&format!("/{image}")));
    assert_eq!(container["command"][0], "run");
    assert_eq!(container["environment"][0]["value"], state.as_str());
    // What `docker build` makes on most machines; another one must be said.
    assert_eq!(task["runtimePlatform"]["cpuArchitecture"], "X86_64");
    assert!(read("README.md").contains("`cpuArchitecture`"));
}
