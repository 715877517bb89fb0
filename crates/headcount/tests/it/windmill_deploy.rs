//! The files in `deploy/windmill` and the page about them: they are read, they fit each other and
//! Windmill's own, and the SQL gives what is needed in every shape of the tables.

use std::path::{Path, PathBuf};
use std::process::Command;

use headcount::config::{self, Config, Overrides};
use headcount::finding::Level;
use headcount::queues::windmill::WindmillConfig;
use headcount::targets::TargetConfig;
use serde_json::Value;

use crate::support::docker::Docker;
use crate::support::postgres::Database;
use crate::support::windmill::{Era, config as of_group, open};

/// What Windmill's own Compose file says of the services that ours changes.
const WINDMILL: &str = "
services:
  db:
    image: postgres:16
    healthcheck: { test: [CMD, pg_isready] }
  windmill_worker:
    image: windmill
    pull_policy: always
    deploy: { replicas: 3 }
  windmill_worker_native:
    image: windmill
    pull_policy: always
";

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap()
}

fn kinds(config: &Config) -> Vec<(String, String, String)> {
    let groups = config.groups.iter();
    groups.map(|g| (g.name.clone(), g.queue.kind(), g.target.kind())).collect()
}

fn expected(target: &str) -> Vec<(String, String, String)> {
    ["default", "native"].map(|name| (name.into(), "windmill".into(), target.into())).to_vec()
}

#[test]
fn the_configuration_for_compose_names_what_is_there() {
    let file = root("deploy/windmill/headcount.yaml");
    let config = config::load(&file, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(kinds(&config), expected("compose"));
    let base: Value = serde_saphyr::from_str(WINDMILL).unwrap();
    let ours: Value =
        serde_saphyr::from_str(&read("deploy/windmill/docker-compose.headcount.yml")).unwrap();
    for group in &config.groups {
        let TargetConfig::Compose(target) = &group.target else { unreachable!() };
        assert!(base["services"].get(&target.service).is_some(), "{}", target.service);
        let grace = ours["services"][&target.service]["stop_grace_period"].as_str().unwrap();
        assert_eq!(grace.parse::<headcount_core::Span>().unwrap(), target.grace);
    }
}

#[test]
fn compose_merges_the_file_into_windmills() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("docker-compose.yml"), WINDMILL).unwrap();
    let ours = root("deploy/windmill/docker-compose.headcount.yml");
    std::fs::copy(ours, folder.path().join("docker-compose.headcount.yml")).unwrap();
    let mut compose = Command::new("docker");
    compose.args(["compose", "-p", "other", "-f", "docker-compose.yml"]);
    compose.args(["-f", "docker-compose.headcount.yml", "config", "--format", "json"]);
    compose.current_dir(folder.path()).env("PWD", folder.path()).env_remove("HEADCOUNT_IMAGE");
    compose.env("DOCKER_CONFIG", Docker::get().config);
    let output = compose.output().expect("no docker: run ./test.sh first");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let merged: Value = serde_json::from_slice(&output.stdout).unwrap();
    let services = &merged["services"];
    assert_eq!(services["windmill_worker"]["stop_grace_period"], "1h0m0s");
    assert_eq!(services["windmill_worker"]["pull_policy"], "missing");
    assert_eq!(services["windmill_worker"]["deploy"]["replicas"], 3);
    let ours = &services["headcount"];
    // The image that has the command in it, by the name that the Dockerfile says.
    let image = ours["image"].as_str().unwrap();
    let made = format!("docker build -t {image} --target compose .");
    assert!(read("Dockerfile").contains(&made), "{made}");
    assert_eq!(ours["environment"]["COMPOSE_PROJECT_NAME"], "other");
    let here = folder.path().to_str().unwrap();
    let file = format!("{here}/headcount.yaml");
    assert_eq!(ours["command"], serde_json::json!(["run", "--config", file]));
    let volumes = ours["volumes"].as_array().unwrap();
    let mounted = |target: &str| volumes.iter().find(|volume| volume["target"] == target).unwrap();
    assert_eq!(mounted(here)["source"], here, "the same name inside and outside");
    assert_eq!(mounted("/var/lib/headcount")["type"], "volume", "state outlives the container");
    mounted("/var/run/docker.sock");
}

#[cfg(feature = "kubernetes")]
#[test]
fn the_manifests_are_those_of_any_kubernetes_with_windmills_groups() {
    let text = read("deploy/windmill/kubernetes.yaml");
    let ours: Vec<Value> =
        text.split("\n---\n").map(|part| serde_saphyr::from_str(part).unwrap()).collect();
    let of_kind = |kind: &str| ours.iter().find(|m| m["kind"] == kind).unwrap();
    assert_eq!(ours.len(), 6);
    for (kind, file) in [
        ("ServiceAccount", "serviceaccount"),
        ("Role", "role"),
        ("RoleBinding", "rolebinding"),
        ("PersistentVolumeClaim", "persistentvolumeclaim"),
    ] {
        let usual: Value =
            serde_saphyr::from_str(&read(&format!("deploy/kubernetes/{file}.yaml"))).unwrap();
        assert_eq!(of_kind(kind), &usual, "{kind}");
    }
    let usual: Value = serde_saphyr::from_str(&read("deploy/kubernetes/deployment.yaml")).unwrap();
    let pod = |manifest: &Value| manifest["spec"]["template"]["spec"].clone();
    let (ours_pod, usual_pod) = (pod(of_kind("Deployment")), pod(&usual));
    for key in ["serviceAccountName", "securityContext"] {
        assert_eq!(ours_pod[key], usual_pod[key], "{key}");
    }
    for key in ["image", "args", "env", "resources", "securityContext"] {
        assert_eq!(ours_pod["containers"][0][key], usual_pod["containers"][0][key], "{key}");
    }
    let text = of_kind("ConfigMap")["data"]["headcount.yaml"].as_str().unwrap();
    let config = config::parse(text, "configmap", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(kinds(&config), expected("kubernetes"));
    let mounts = ours_pod["containers"][0]["volumeMounts"].to_string();
    assert!(mounts.contains("/run/secrets/windmill") && text.contains("/run/secrets/windmill/url"));
}

#[tokio::test]
async fn the_role_may_read_what_is_needed_in_every_era() {
    let script = read("deploy/windmill/role.sql");
    for era in Era::ALL {
        let database = era.seeded().await;
        // It was on before 1.458 too, on some at least.
        let secured = "DO $$ BEGIN IF to_regclass('v2_job_queue') IS NULL THEN \
                       ALTER TABLE queue ENABLE ROW LEVEL SECURITY; END IF; END $$";
        database.run(secured).await;
        // An upgrade comes between the two.
        database.run(&script).await;
        database.run(&script).await;
        let Database { place, name, .. } = &database;
        let url = format!("postgres://headcount@{place}/{name}");
        let config =
            WindmillConfig { url: Some(url.as_str().into()), ..of_group(&database, "default") };
        let mut queue = open(&config);
        let found = queue.check().await;
        assert!(found.iter().all(|f| f.level < Level::Problem), "{era:?}: {found:#?}");
        assert!(queue.read().await.unwrap().reading.waiting > 0, "{era:?}: no rows are hidden");
        let writes = database.connect_as("headcount").await;
        for statement in
            ["DELETE FROM worker_ping", "UPDATE config SET config = NULL", "SELECT * FROM secrets"]
        {
            assert!(writes.batch_execute(statement).await.is_err(), "{era:?}: {statement}");
        }
        database.run("DROP OWNED BY headcount").await;
    }
}

#[test]
fn the_page_has_rules_that_can_be_loaded() {
    let page = read("docs/windmill.md");
    let rules = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let rules = rules.replace("{ … }", "{ dry_run: { workers: 3 } }");
    let config = config::parse(&rules, "page", Path::new("/")).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.groups.len(), 1);
    for target in page.split("```yaml\n    target:\n").skip(1) {
        let target = target.split("```").next().unwrap();
        if cfg!(not(feature = "aws")) && target.contains("ecs:") {
            continue;
        }
        let text = format!(
            "groups:\n  g:\n    queue: {{ windmill: {{ url_file: x }} }}\n    target:\n{target}"
        );
        config::parse(&text, "page", Path::new("/")).unwrap_or_else(|e| panic!("{e}\n{text}"));
    }
    for link in page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        assert!(root("docs").join(link).exists(), "{link}");
    }
}
