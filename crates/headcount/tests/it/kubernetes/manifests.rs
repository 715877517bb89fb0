//! The manifests and the chart: they are read, the configuration in them makes sense, and what their
//! Role allows is enough for everything and nothing more.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headcount::finding::Level;
use headcount::lease::Lease;
use headcount::targets::kubernetes::KubernetesConfig;
use headcount::targets::kubernetes::lease::KubernetesLease;
use headcount::targets::kubernetes::rights;
use serde_json::{Value, json};

use super::{open, settled, shrink};
use crate::support::kube_api::world::Rule;
use crate::support::kube_api::{KubeApi, NAMESPACE};
use crate::support::workers::order;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// What the chart is given if nothing is said.
fn values() -> Value {
    read(&deploy().join("helm/headcount/values.yaml"))
}

/// A template of the chart as its values say, but for lists that are empty there: with the first
/// branch of each condition, and a name in place of each text.
fn rendered(name: &str) -> Value {
    let path = deploy().join("helm/headcount/templates").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let values = values();
    // For each block that is open, whether it is left out.
    let mut left_out: Vec<bool> = Vec::new();
    let plain = text.lines().filter(|line| {
        match line.trim_start().strip_prefix("{{- ") {
            Some(control) if control.starts_with("end") => drop(left_out.pop()),
            Some(control) if control.starts_with("else") => *left_out.last_mut().unwrap() = true,
            Some(control) if control.starts_with("with ") => {
                let key = control["with .Values.".len()..].split(' ').next().unwrap();
                let value = key.split('.').fold(&values, |value, key| &value[key]);
                let none = [Value::Null, json!([]), json!({}), json!("")];
                left_out.push(none.contains(value));
            }
            Some(control) if control.starts_with("if not") => left_out.push(true),
            Some(control) if control.starts_with("if ") || control.starts_with("range ") => {
                left_out.push(false);
            }
            Some(control) if control.contains("toYaml .Values.resources") => {
                return !left_out.contains(&true);
            }
            Some(_) => {}
            None => return !left_out.contains(&true),
        }
        false
    });
    let filled = plain.map(|line| {
        let mut line = line
            .replace(
                "{{- toYaml .Values.resources | nindent 12 }}",
                &values["resources"].to_string(),
            )
            .replace("{{ . }}", "deployments")
            .replace("{{ .Values.persistence.size }}", "1Gi")
            .replace("{{ .Values.replicas }}", &values["replicas"].to_string());
        while let (Some(begin), Some(end)) = (line.find("{{"), line.find("}}")) {
            line.replace_range(begin..end + 2, "headcount");
        }
        line + "\n"
    });
    serde_saphyr::from_str(&filled.collect::<String>())
        .unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// Group, resource and verb of each rule of a Role.
fn allowed(role: &Value) -> BTreeSet<(String, String, String)> {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let mut all = BTreeSet::new();
    for rule in role["rules"].as_array().unwrap() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    all.insert((group.clone(), resource.clone(), verb));
                }
            }
        }
    }
    all
}

#[test]
fn every_manifest_is_read_and_fits_the_others() {
    let folder = deploy().join("kubernetes");
    let list = read(&folder.join("kustomization.yaml"));
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        .collect();
    files.sort();
    let mut listed: Vec<&str> =
        list["resources"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    listed.sort_unstable();
    assert_eq!(listed, files);
    for name in &files {
        let (manifest, template) = (read(&folder.join(name)), rendered(name));
        for key in ["apiVersion", "kind"] {
            assert_eq!(manifest[key], template[key], "{name}");
        }
        assert_eq!(manifest["metadata"]["name"], "headcount", "{name}");
    }
    let deployment = read(&folder.join("deployment.yaml"));
    let (spec, chart) = (&deployment["spec"], &rendered("deployment.yaml")["spec"]);
    let pod = |spec: &Value| spec["template"]["spec"].clone();
    assert_eq!(pod(spec)["securityContext"], pod(chart)["securityContext"]);
    let container = |spec: &Value| pod(spec)["containers"][0].clone();
    for key in ["args", "resources", "securityContext", "volumeMounts"] {
        assert_eq!(container(spec)[key], container(chart)[key], "{key}");
    }
    assert_eq!(pod(spec)["volumes"], pod(chart)["volumes"]);
    for key in ["replicas", "strategy"] {
        assert_eq!(spec[key], chart[key], "{key}");
    }
    assert_eq!(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
}

#[test]
fn the_configurations_in_them_make_sense() {
    let folder = deploy();
    let map = read(&folder.join("kubernetes/configmap.yaml"));
    let text = map["data"]["headcount.yaml"].as_str().unwrap();
    let from_map = headcount::config::parse(text, "configmap", Path::new("/")).unwrap();
    // A chart merges maps: a group of its own would stay beside the user's.
    assert_eq!(values()["config"], json!({}));
    let text = std::fs::read_to_string(folder.join("helm/headcount/values.yaml")).unwrap();
    let (_, example) = text.split_once("For example:\n# config:\n").unwrap();
    let example = example.lines().map_while(|line| line.strip_prefix("#   "));
    let text = example.collect::<Vec<_>>().join("\n");
    let from_values = headcount::config::parse(&text, "values", Path::new("/")).unwrap();
    assert_eq!(from_map, from_values);
    assert_eq!(read(&folder.join("helm/headcount/Chart.yaml"))["name"], "headcount");
}

#[tokio::test]
async fn the_role_is_enough_and_no_more() {
    let role = read(&deploy().join("kubernetes/role.yaml"));
    let allowed = allowed(&role);
    assert_eq!(allowed, self::allowed(&rendered("role.yaml")));
    let known: BTreeSet<_> = rights::actions("deployment")
        .unwrap()
        .into_iter()
        .chain(rights::of_leases())
        .chain(rights::of_rivals())
        .map(|action| {
            let slash = if action.subresource.is_empty() { "" } else { "/" };
            let resource = format!("{}{slash}{}", action.resource, action.subresource);
            (action.group, resource, action.verb.to_owned())
        })
        .collect();
    let unused: Vec<_> = allowed.difference(&known).collect();
    assert!(unused.is_empty(), "nobody asks for {unused:?}");

    let api = KubeApi::start(3).await;
    let rules = allowed
        .iter()
        .map(|(group, resource, verb)| Rule::new(NAMESPACE, group, resource, &[verb.as_str()]));
    let account = ("headcount".to_owned(), rules.collect());
    api.world().accounts.insert("headcount".into(), account);
    let config: KubernetesConfig = api.config("headcount");
    let mut target = open(&config);
    let findings = target.check().await;
    assert!(findings.iter().all(|finding| finding.level == Level::Good), "{findings:?}");
    settled(&mut target, 3).await;
    let busy = [(api.staying()[2].clone(), 60)];
    target.scale(&shrink(&api, 1, &busy)).await.unwrap();
    settled(&mut target, 1).await;
    assert_eq!(api.staying(), [busy[0].0.clone()]);
    target.scale(&order(1, 2, &[])).await.unwrap();
    settled(&mut target, 2).await;
    let place = headcount::config::Place {
        group: "g".into(),
        state_dir: "/nonexistent".into(),
        base_dir: std::env::temp_dir(),
    };
    let mut lease = KubernetesLease::new(Some(&config), "", false, &place).unwrap();
    assert_eq!(lease.hold().await, Ok(1));
    assert!(lease.check().await.iter().all(|finding| finding.level == Level::Good));
}
