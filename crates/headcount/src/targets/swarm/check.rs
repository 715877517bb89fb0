//! What `headcount check` says of a Swarm target: reachable, a manager, the service there, and what
//! in it stands in the way of scaling or of a gentle stop.

use headcount_core::Silence;

use crate::finding::{Fact, Finding, Level};
use crate::limits::NEIGHBOURS;
use crate::targets::docker_engine::EngineError;
use crate::targets::swarm::service::Service;
use crate::targets::swarm::{Swarm, tasks};

const ABOUT: &str = "target";

impl Swarm {
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        let engine = self.engine.finding(ABOUT).await;
        let reachable = engine.level == Level::Good;
        let mut findings = vec![engine];
        if !reachable {
            return findings;
        }
        match self.service().await {
            Ok(service) => {
                findings.extend(self.service_findings(&service));
                findings.extend(self.task_findings(&service).await);
            }
            Err(error) => findings.push(self.problem(&error).await),
        }
        findings
    }

    /// Why the service cannot be scaled.
    async fn problem(&self, error: &EngineError) -> Finding {
        if error.detail.contains("is no Swarm manager") {
            let fix = "set `host` to a manager (`docker node ls` on one lists them), or run `docker \
                       swarm init`";
            return Finding::problem(ABOUT, error.detail.clone(), fix);
        }
        if error.is_absent() {
            let all = self.ask("/services").await.unwrap_or_default();
            let all = all.as_array().map(Vec::as_slice).unwrap_or_default();
            let names = all.iter().filter_map(|service| service["Spec"]["Name"].as_str());
            let wanted = &self.config.service;
            let mut names: Vec<&str> = names.collect();
            names.sort_by_key(|name| strsim::levenshtein(name, wanted));
            names.truncate(NEIGHBOURS);
            let what = format!("there is no service {wanted}; there are: {}", names.join(", "));
            return Finding::problem(ABOUT, what, "set `service` to one of them");
        }
        let fix = match error.why {
            Silence::NotFound => "deploy it as a replicated service, or name another",
            _ => "look at Docker's own log",
        };
        Finding::problem(ABOUT, error.detail.clone(), fix)
    }

    fn service_findings(&self, service: &Service) -> Vec<Finding> {
        let Service { name, replicas, .. } = service;
        let good = |what: String| Finding::good(ABOUT, what);
        let warning = |what: String, fix: &str| Finding::warning(ABOUT, what, fix);
        let mut findings = vec![good(format!("service {name} asks for {replicas}"))];
        let grace = service.grace();
        let picks = match self.config.require_victims {
            true => "nothing shrinks while one may be busy".into(),
            false => format!("Swarm picks who goes, and kills it after {grace:#}"),
        };
        findings.push(good(picks).stating(Fact::Grace(grace)));
        if !service.restarts() {
            findings.push(warning(
                format!("a worker of {name} that crashes is not replaced"),
                "set the service's restart condition to `any`",
            ));
        }
        if let Some(update) = service.update_under_way() {
            findings.push(warning(
                format!("{update} of {name} goes on: nothing shrinks until it is over"),
                "wait, or look at `docker service ps`",
            ));
        }
        findings.extend(service.update_stuck().map(|what| {
            warning(what, "correct the image or the settings and update the service again")
        }));
        findings
    }

    async fn task_findings(&mut self, service: &Service) -> Vec<Finding> {
        self.learn_own_node().await;
        let mut tasks = match self.tasks().await {
            Ok(tasks) => tasks,
            Err(error) => {
                let what = format!("the tasks cannot be listed: {error}");
                return vec![Finding::problem(ABOUT, what, "look at Docker's own log")];
            }
        };
        tasks.retain(|task| task.service == service.id);
        let ready = tasks::seen(&tasks, &self.shows()).reading.ready;
        let what = match ready {
            1 => format!("1 worker of {} runs", service.name),
            n => format!("{n} workers of {} run", service.name),
        };
        let mut findings = vec![Finding::good(ABOUT, what).stating(Fact::Workers(ready as usize))];
        let broken = tasks::troubles(&tasks, &self.shows());
        if !broken.is_empty() {
            let shown = broken.into_iter().map(|trouble| trouble.says).take(NEIGHBOURS);
            let shown = shown.collect::<Vec<_>>().join("; ");
            let fix = "look at `docker service ps --no-trunc` and the service's logs";
            findings.push(Finding::warning(ABOUT, format!("not running: {shown}"), fix));
        }
        findings
    }
}
