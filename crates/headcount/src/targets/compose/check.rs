//! What `headcount check` says of a Compose target: reachable, resolvable, and what in the service
//! stands in the way of more than one worker or of a gentle stop.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use headcount_core::Span;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::finding::{Fact, Finding, Level};
use crate::targets::compose::{Compose, n8n};
use crate::targets::docker_engine::Container;

pub(super) const ABOUT: &str = "target";

/// What Docker and Compose wait after the stop signal if nothing else is said.
const STANDARD_STOP: Span = Span::from_secs(10);

/// The output of `docker compose config`, as far as it matters here. Not to be printed: it may hold
/// secrets.
#[derive(Default, Deserialize)]
struct Project {
    #[serde(default)]
    services: BTreeMap<String, Service>,
}

/// One service of it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Service {
    image: Option<String>,
    build: Option<IgnoredAny>,
    container_name: Option<String>,
    hostname: Option<String>,
    network_mode: Option<String>,
    restart: Option<String>,
    stop_grace_period: Option<String>,
    pre_stop: Option<Vec<IgnoredAny>>,
    /// A mapping, or a list of `NAME=value`.
    environment: Value,
    /// A list, or one line.
    command: Value,
    /// `{ type, source, target }` each, or `source:target:mode` from Compose v1.
    volumes: Vec<Value>,
}

impl Service {
    /// What the variable `name` is set to.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        match &self.environment {
            Value::Array(lines) => lines
                .iter()
                .find_map(|line| line.as_str()?.strip_prefix(name)?.strip_prefix('='))
                .map(str::to_owned),
            mapping => text(&mapping[name]),
        }
    }

    /// The words of its command.
    pub(super) fn words(&self) -> Vec<String> {
        let split = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        match &self.command {
            Value::Array(words) => words.iter().filter_map(Value::as_str).flat_map(split).collect(),
            line => line.as_str().map(split).unwrap_or_default(),
        }
    }

    /// Whether its image is n8n's, or made from it as its name tells.
    pub(super) fn is_n8n(&self) -> bool {
        self.image.as_ref().is_some_and(|image| image.contains("n8n"))
    }

    /// Whether it mounts something from `folder`: what was written as a relative path.
    fn mounts_from(&self, folder: &Path) -> bool {
        let source = |volume: &Value| {
            let short = || volume.as_str()?.split(':').next().map(PathBuf::from);
            volume["source"].as_str().map(PathBuf::from).or_else(short)
        };
        self.volumes.iter().filter_map(source).any(|source| source.starts_with(folder))
    }
}

impl Compose {
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let engine = self.containers.engine.finding(ABOUT).await;
        let reachable = engine.level == Level::Good;
        findings.push(engine);
        match self.cli.version().await {
            Ok((words, version)) => {
                findings.push(Finding::good(ABOUT, format!("{words} {version}")));
            }
            Err(error) => {
                let fix = "install the Compose plugin (in a container: the image of `--target \
                           compose`), or set `command`";
                findings.push(Finding::problem(ABOUT, error.to_string(), fix));
                return findings;
            }
        }
        let service = match self.service().await {
            Ok(service) => service,
            Err(finding) => {
                findings.push(finding);
                return findings;
            }
        };
        findings.extend(self.service_findings(&service));
        if reachable {
            findings.push(self.image_finding(&service).await);
            findings.extend(self.container_findings(&service).await);
        }
        let grace = self.config.grace.max(stop_grace(&service));
        let running = if reachable { self.running_variables().await } else { HashMap::new() };
        findings.extend(n8n::findings(&self.config.service, &service, &running, grace));
        findings
    }

    /// The service as Compose resolves it, or what is wrong with it.
    async fn service(&mut self) -> Result<Service, Finding> {
        let wanted = self.config.service.clone();
        let broken = |what: String| {
            Finding::problem(ABOUT, what, "check `files`, `env_file` and `project_directory`")
        };
        let read = |yaml: String| {
            let odd = |e| broken(format!("the output of Compose config is not understood: {e}"));
            serde_saphyr::from_str::<Project>(&yaml).map_err(odd)
        };
        let yaml = self.cli.config(None).await.map_err(|error| broken(error.to_string()))?;
        let mut project = read(yaml)?;
        if let Some(service) = project.services.remove(&wanted) {
            return Ok(service);
        }
        // A service of a profile that is not active shows only if it is asked for.
        if let Ok(yaml) = self.cli.config(Some(&wanted)).await
            && let Some(service) = read(yaml)?.services.remove(&wanted)
        {
            return Ok(service);
        }
        let known: Vec<&str> = project.services.keys().map(String::as_str).collect();
        let what = format!("there is no service {wanted}; there are: {}", known.join(", "));
        Err(Finding::problem(ABOUT, what, "set `service` to one of them"))
    }

    fn service_findings(&self, service: &Service) -> Vec<Finding> {
        let name = &self.config.service;
        let mut findings = vec![Finding::good(ABOUT, format!("service {name} resolves"))];
        let mut warn = |what: String, fix: String| {
            findings.push(Finding::warning(ABOUT, what, fix));
        };
        if service.hostname.is_some() {
            let what = format!("all workers of {name} share one `hostname`");
            warn(what, "remove it: the host name tells which worker is busy".into());
        }
        if service.network_mode.as_deref() == Some("host") {
            let what = format!("all workers of {name} have the host's name and address");
            let fix = "use a network of the project: n8n then tells which worker is busy";
            warn(what, fix.into());
        }
        if service.restart.as_deref().is_none_or(|restart| restart == "no") {
            let what = format!("a worker of {name} that crashes stays down");
            warn(what, "set `restart: unless-stopped` in the service".into());
        }
        let (stop, grace) = (stop_grace(service), self.config.grace);
        if stop < grace {
            let what =
                format!("a deploy kills workers of {name} {stop:#} after telling them to go");
            let fix =
                format!("set `stop_grace_period: {grace:#}` in the service, as long as `grace`");
            warn(what, fix);
        }
        if service.pre_stop.as_ref().is_some_and(|hooks| !hooks.is_empty()) {
            let what = format!("`pre_stop` of {name} does not run when Headcount stops a worker");
            warn(what, "do that work when the worker gets its stop signal".into());
        }
        if let Some(only) = &service.container_name {
            let what = format!("`container_name: {only}` allows one worker only");
            findings.push(Finding::problem(ABOUT, what, "remove it from the service"));
        }
        findings
    }

    async fn image_finding(&self, service: &Service) -> Finding {
        let (project, name) = (&self.config.project, &self.config.service);
        let candidates = match &service.image {
            Some(image) => vec![image.clone()],
            None => vec![format!("{project}-{name}"), format!("{project}_{name}")],
        };
        for image in &candidates {
            match self.containers.engine.image(image).await {
                Ok(Some(_)) => return Finding::good(ABOUT, format!("image {image} is here")),
                Ok(None) => {}
                Err(error) => {
                    let what = format!("image {image}: {error}");
                    return Finding::problem(ABOUT, what, "look at Docker's own log");
                }
            }
        }
        let verb = if service.build.is_some() { "build" } else { "pull" };
        let what = format!("image {} is not here", candidates[0]);
        let fix =
            format!("run `docker compose -p {project} {verb} {name}`, or starts will be slow");
        Finding::problem(ABOUT, what, fix)
    }

    async fn container_findings(&mut self, service: &Service) -> Vec<Finding> {
        let listed = match self.containers.list().await {
            Ok(listed) => listed,
            Err(error) => {
                let what = format!("the containers cannot be listed: {error}");
                return vec![Finding::problem(ABOUT, what, "look at Docker's own log")];
            }
        };
        let (project, name) = (&self.config.project, &self.config.service);
        let alive: Vec<&Container> = listed.iter().filter(|c| c.life.is_alive()).collect();
        let what = match alive.len() {
            1 => format!("1 worker of {project}/{name} runs"),
            n => format!("{n} workers of {project}/{name} run"),
        };
        let known = Finding::good(ABOUT, what).stating(Fact::Workers(alive.len()));
        let mut findings = vec![known];
        let Some(first) = alive.first() else {
            if self.config.project_directory.is_none()
                && service.mounts_from(&self.project_directory())
                && self.containers.engine.sees_other_files().await
            {
                let what = format!(
                    "Headcount runs in a container: relative volumes of {name} would be looked \
                     for on the host under {}, the path inside it",
                    self.project_directory().display()
                );
                let fix = "set `project_directory` to the project's folder on the host";
                findings.push(Finding::warning(ABOUT, what, fix));
            }
            return findings;
        };
        findings.extend(self.folder_finding(first));
        if let Ok(details) = self.containers.engine.inspect(&first.id).await {
            let stop = details.stop_timeout.and_then(|t| Span::try_from(t).ok());
            let (stop, grace) = (stop.unwrap_or(STANDARD_STOP), self.config.grace);
            if stop < grace {
                let what =
                    format!("{} was created with a stop grace period of {stop:#}", first.name);
                let fix = "set `stop_grace_period` in the service; new workers get it, and a deploy \
                           replaces the old ones";
                findings.push(Finding::warning(ABOUT, what, fix));
            }
        }
        findings
    }

    /// The variables that matter of a container that runs.
    async fn running_variables(&self) -> HashMap<String, String> {
        let listed = self.containers.list().await.unwrap_or_default();
        let Some(first) = listed.iter().find(|c| c.life.is_alive()) else { return HashMap::new() };
        self.containers.engine.variables(&first.id, &n8n::VARIABLES).await.unwrap_or_default()
    }

    /// Where relative paths inside the Compose files start.
    fn project_directory(&self) -> PathBuf {
        let file = self.config.files.first().map(|file| self.base_dir.join(file));
        let folder = self.config.project_directory.as_ref().map(|d| self.base_dir.join(d));
        folder.or_else(|| Some(file?.parent()?.to_owned())).unwrap_or_else(|| self.base_dir.clone())
    }

    /// Whether relative paths mean the same to us as to whoever made the containers.
    fn folder_finding(&self, container: &Container) -> Option<Finding> {
        let theirs = container.labels.get("com.docker.compose.project.working_dir")?;
        let ours = self.project_directory();
        (ours != Path::new(theirs)).then(|| {
            let what = format!(
                "{} was created from {theirs}, but relative paths would now start at {}",
                container.name,
                ours.display()
            );
            Finding::warning(ABOUT, what, format!("set `project_directory: {theirs}`"))
        })
    }
}

/// How long a deploy lets workers finish.
fn stop_grace(service: &Service) -> Span {
    let written = service.stop_grace_period.as_deref();
    written.and_then(|text| text.parse().ok()).unwrap_or(STANDARD_STOP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_both_versions_of_compose_print() {
        let v2 = "name: a\nservices:\n  worker:\n    image: bb:1\n    restart: unless-stopped\n    \
                  stop_grace_period: 1m30s\n    pre_stop:\n      - command:\n          - \"true\"\n";
        let v1 = "services:\n  worker:\n    command:\n    - sh\n    image: bb:1\n    \
                  stop_grace_period: 90s\nversion: '3.9'\n";
        for yaml in [v2, v1] {
            let project: Project = serde_saphyr::from_str(yaml).unwrap();
            let service = &project.services["worker"];
            assert_eq!(service.image.as_deref(), Some("bb:1"));
            assert_eq!(stop_grace(service), Span::from_secs(90));
        }
        assert_eq!(stop_grace(&Service::default()), STANDARD_STOP);
    }

    #[test]
    fn a_volume_from_the_project_was_written_as_a_relative_path() {
        let mounts = |volumes: &str| {
            let service: Service = serde_saphyr::from_str(&format!("volumes: {volumes}")).unwrap();
            service.mounts_from(Path::new("/app"))
        };
        assert!(mounts("[{type: bind, source: /app/files, target: /files}]"));
        assert!(mounts("['/app/files:/files:rw']"));
        assert!(!mounts("[{type: volume, source: data, target: /app}, {type: tmpfs, target: /t}]"));
        assert!(!mounts(
            "['data:/app:rw', '/srv/app:/x', {type: bind, source: /apple, target: /a}]"
        ));
        assert!(!mounts("[]"));
    }
}
