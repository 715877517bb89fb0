//! What `headcount check` says of a Docker target: reachable, what new workers are made from, and
//! what of that stands in the way of several workers or of a gentle stop.

use headcount_core::{Silence, counted};

use crate::finding::{Fact, Finding, Level};
use crate::limits::NEIGHBOURS;
use crate::targets::docker::{Docker, Source};
use crate::targets::docker_engine::{Container, EngineError, Life, Method, escaped};

const ABOUT: &str = "target";

impl Docker {
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        let engine = self.containers.engine.finding(ABOUT).await;
        let reachable = engine.level == Level::Good;
        let mut findings = vec![engine];
        if !reachable {
            return findings;
        }
        let image = match self.source().await {
            Ok(source) => {
                findings.push(Finding::good(ABOUT, format!("image {} is here", source.image)));
                findings.extend(self.source_findings(&source).await);
                Some(source.image_id)
            }
            Err(error) => {
                findings.push(self.problem(&error).await);
                None
            }
        };
        let grace = self.config.grace;
        let told = format!("a worker is killed {grace:#} after it was told to go");
        findings.push(Finding::good(ABOUT, told).stating(Fact::Grace(grace)));
        match self.containers.list().await {
            Ok(listed) => findings.extend(self.fleet_findings(&listed, image.as_deref())),
            Err(error) => {
                let what = format!("the containers cannot be listed: {error}");
                findings.push(Finding::problem(ABOUT, what, "look at Docker's own log"));
            }
        }
        findings
    }

    /// Why no worker can be made.
    async fn problem(&self, error: &EngineError) -> Finding {
        let mut what = format!("no worker can be made: {error}");
        if let Some(like) = &self.config.like
            && error.detail.contains(&format!("no container {like} "))
            && let Ok(all) = self.containers.engine.list(vec![]).await
            && !all.is_empty()
        {
            let names: Vec<String> = all.into_iter().map(|c| c.name).take(NEIGHBOURS).collect();
            what += &format!("; there are: {}", names.join(", "));
        }
        let fix = match error.why {
            Silence::NotFound => "correct that; nothing is started before it is right",
            _ => "look at Docker's own log",
        };
        Finding::problem(ABOUT, what, fix)
    }

    async fn source_findings(&self, source: &Source) -> Vec<Finding> {
        let mut findings = Vec::new();
        let host = source.template.host();
        let mode = host["NetworkMode"].as_str().unwrap_or("default");
        if mode == "host" {
            let what = "all workers have the host's name and address";
            let fix = "set `networks`: the name of its container tells which worker is busy";
            findings.push(Finding::warning(ABOUT, what, fix));
        }
        if host["RestartPolicy"]["Name"].as_str().is_none_or(|name| ["", "no"].contains(&name)) {
            let what = "a worker that crashes stays down until one more is wanted";
            findings.push(Finding::warning(ABOUT, what, "set `restart: unless-stopped`"));
        }
        let networks = source.template.networks.iter().map(|(name, _)| name.as_str());
        for network in networks.chain([mode]) {
            findings.extend(self.network_finding(network).await);
        }
        if let Some(like) = &self.config.like
            && let Ok(seen) = self.inspected(like).await
        {
            let ports = &seen["HostConfig"]["PortBindings"];
            let more = match ports.as_object().is_some_and(|ports| !ports.is_empty()) {
                true => ", without its published ports",
                false => "",
            };
            findings.push(Finding::good(ABOUT, format!("workers are like {like}{more}")));
        }
        findings
    }

    async fn network_finding(&self, network: &str) -> Option<Finding> {
        if ["default", "bridge", "host", "none"].contains(&network) || network.contains(':') {
            return None;
        }
        let engine = &self.containers.engine;
        let path = format!("/networks/{}", escaped(network));
        let error = engine.ask(Method::GET, &path, None).await.err()?;
        if !error.is_absent() {
            return None;
        }
        let all = engine.ask(Method::GET, "/networks", None).await.unwrap_or_default();
        let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<&str> =
            all.iter().filter_map(|n| n["Name"].as_str()).take(NEIGHBOURS).collect();
        let what = format!("there is no network {network}; there are: {}", names.join(", "));
        Some(Finding::problem(ABOUT, what, "set `networks` to some of them, or create it"))
    }

    fn fleet_findings(&self, listed: &[Container], image: Option<&str>) -> Vec<Finding> {
        let group = &self.group;
        let alive: Vec<&Container> = listed.iter().filter(|c| c.life.is_alive()).collect();
        let what = match alive.len() {
            1 => format!("1 worker of {group} runs"),
            n => format!("{n} workers of {group} run"),
        };
        let mut findings = vec![Finding::good(ABOUT, what).stating(Fact::Workers(alive.len()))];
        let older = alive.iter().filter(|c| image.is_some() && c.image.as_deref() != image);
        let older: Vec<&str> = older.map(|c| c.name.as_str()).collect();
        if !older.is_empty() {
            let what = format!(
                "{} of {} run another image than new ones get: {}",
                older.len(),
                counted(alive.len(), "worker"),
                first_of(&older)
            );
            let fix = "they stay; to replace one, `docker stop` it, which lets it finish";
            findings.push(Finding::warning(ABOUT, what, fix));
        }
        let is_down =
            |c: &&Container| matches!(c.life, Life::Exited(_) | Life::Dead | Life::Created);
        let down: Vec<&str> = listed.iter().filter(is_down).map(|c| c.name.as_str()).collect();
        if !down.is_empty() {
            let what = format!("not running: {}", first_of(&down));
            let fix = "see `docker logs`; they are removed when the next worker is started";
            findings.push(Finding::warning(ABOUT, what, fix));
        }
        findings
    }
}

fn first_of(names: &[&str]) -> String {
    let mut shown = names.iter().copied().take(NEIGHBOURS).collect::<Vec<_>>().join(", ");
    if names.len() > NEIGHBOURS {
        shown += ", ...";
    }
    shown
}
