//! What `headcount check` says of an ECS target: who asks and what they may do, whether the service is
//! there, whether its tasks have the time to finish, and who else scales it.

use headcount_core::{Silence, Span};
use serde_json::json;
use tokio::time::Instant;

use crate::finding::{Fact, Finding};
use crate::limits::{AWS_LOOK, AWS_TIMEOUT, NEIGHBOURS};
use crate::targets::Target;
use crate::targets::ecs::api::{
    ContainerDefinition, Defined, Page, ScalableTargets, Service, short,
};
use crate::targets::ecs::error::ApiError;
use crate::targets::ecs::rights;
use crate::targets::ecs::session::Api;
use crate::targets::ecs::target::Ecs;

const ABOUT: &str = "target";

/// What to do about a refusal.
const POLICY: &str = "attach a policy like deploy/ecs/policy.json";
/// What ECS waits after the stop signal if a container says nothing.
const STANDARD_STOP: i64 = 30;

impl Ecs {
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        let until = Instant::now() + AWS_TIMEOUT;
        let session = match self.account.session(false).await {
            Ok(session) => session,
            Err(error) => {
                let fix = match error.detail.contains("region") {
                    true => "set `region` (as in eu-central-1), or AWS_REGION",
                    false => {
                        "give the task or instance a role, name a `profile`, or set \
                         AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
                    }
                };
                return vec![Finding::problem(ABOUT, error.to_string(), fix)];
            }
        };
        let at = session.endpoint.as_deref().map_or(String::new(), |at| format!(" at {at}"));
        let place = Finding::good(ABOUT, format!("Amazon ECS in {}{at}", session.region));
        let mut findings = Vec::new();
        let who = rights::who(&self.account, until).await;
        findings.push(match &who {
            Ok(who) => Finding::good(ABOUT, format!("asks as {who}")),
            Err(error) if error.why == Silence::Denied => {
                let fix = "renew the credentials, or name another `profile` or `role_arn`";
                Finding::problem(ABOUT, format!("nobody knows who asks: {error}"), fix)
            }
            Err(error) => {
                let fix = "let sts.REGION.amazonaws.com be reached; scaling does without";
                Finding::warning(ABOUT, format!("nobody knows who asks: {error}"), fix)
            }
        });
        let service = match self.describe(until).await {
            Ok(service) => service,
            Err(error) => {
                // An answer, if not the one that was wished for.
                if error.status.is_some() {
                    findings.insert(0, place);
                }
                findings.push(self.not_found(&error, until).await);
                return findings;
            }
        };
        findings.insert(0, place);
        findings.push(self.tasks().await);
        findings.extend(self.allowed(&service, who.ok().as_deref(), until).await);
        findings.extend(self.made_from(&service, until).await);
        findings.extend(self.scaled_by_others(until).await);
        findings
    }

    /// The tasks one by one, if they can be listed.
    async fn tasks(&mut self) -> Finding {
        match self.status().await {
            Ok(_) if !self.lists_tasks => {
                let what = "tasks cannot be listed: which of them are busy is not known, and none \
                            can be protected";
                let fix = format!("allow ecs:ListTasks and ecs:DescribeTasks; {POLICY}");
                Finding::warning(ABOUT, what, fix)
            }
            Ok(seen) => {
                let workers = seen.reading.capacity();
                let desired = seen.reading.desired.unwrap_or(0);
                let what = format!("{} asks for {desired}, {workers} serve or start", self.shown());
                Finding::good(ABOUT, what).stating(Fact::Workers(workers as usize))
            }
            Err(missing) => {
                let fix = "look at the network and the limits of this account's API";
                Finding::problem(ABOUT, missing.to_string(), fix)
            }
        }
    }

    /// The actions that change something, which cannot be tried.
    async fn allowed(
        &self,
        service: &Service,
        who: Option<&str>,
        until: Instant,
    ) -> Option<Finding> {
        let tasks = service.service_arn.replacen(":service/", ":task/", 1);
        let tasks = tasks.rsplit_once('/').map_or(tasks.clone(), |(tasks, _)| format!("{tasks}/*"));
        let cluster = service.cluster_arn.as_str();
        let mut actions = vec![("ecs:UpdateService", service.service_arn.as_str())];
        if self.config.protect {
            actions.push(("ecs:UpdateTaskProtection", &tasks));
        }
        let (mut good, mut denied) = (Vec::new(), Vec::new());
        for (action, resource) in actions {
            match rights::may(&self.account, who?, action, resource, cluster, until).await {
                Ok(Some(true)) => good.push(action),
                Ok(Some(false)) => denied.push(action),
                Ok(None) | Err(_) => {}
            }
        }
        if denied.contains(&"ecs:UpdateService") {
            let what = format!("denied: {}", denied.join(", "));
            return Some(Finding::problem(ABOUT, what, POLICY));
        }
        if !denied.is_empty() {
            let what = match self.config.require_victims {
                true => "tasks cannot be protected, and with `require_victims` nothing shrinks so",
                false => "tasks cannot be protected: ECS picks who goes, busy or not",
            };
            let fix = format!("allow ecs:UpdateTaskProtection; {POLICY}");
            return Some(Finding::warning(ABOUT, what, fix));
        }
        let what = match good.is_empty() {
            true => "whether ecs:UpdateService is allowed shows at the first change (policies \
                     cannot be simulated)"
                .into(),
            false => format!("may do {}", good.join(", ")),
        };
        Some(Finding::good(ABOUT, what))
    }

    /// How long tasks may take to finish, and whether they can be told apart.
    async fn made_from(&self, service: &Service, until: Instant) -> Vec<Finding> {
        let input = json!({ "taskDefinition": service.task_definition });
        let answer = self.account.call(Api::Ecs, "DescribeTaskDefinition", &input, until).await;
        let Defined { task_definition } = match answer {
            Ok(defined) => defined,
            Err(error) => {
                let what = format!("how long a task may take to finish is not known: {error}");
                let fix = "allow ecs:DescribeTaskDefinition, for this check only";
                return vec![Finding::warning(ABOUT, what, fix)];
            }
        };
        let seconds =
            |container: &ContainerDefinition| container.stop_timeout.unwrap_or(STANDARD_STOP);
        let essential = |container: &&ContainerDefinition| container.essential.unwrap_or(true);
        let containers = task_definition.container_definitions.iter().filter(essential);
        let mut findings = Vec::new();
        if let Some(first) = containers.min_by_key(|container| seconds(container)) {
            let grace = Span::from_secs(seconds(first));
            let what = format!(
                "container {} may take {grace:#} to finish (stopTimeout); a protected task is not \
                 told to",
                first.name
            );
            findings.push(Finding::good(ABOUT, what).stating(Fact::Grace(grace)));
        }
        if task_definition.network_mode == "host" {
            let what = "tasks have their instance's name and address (networkMode host)";
            let fix = "use awsvpc or bridge: a task's own address tells which one is busy";
            findings.push(Finding::warning(ABOUT, what, fix));
        }
        findings
    }

    /// Whether AWS' own autoscaler has the service too. Best effort: most may not ask.
    async fn scaled_by_others(&self, until: Instant) -> Option<Finding> {
        let (cluster, service) = (self.config.cluster_name(), self.config.service_name());
        let resource = format!("service/{cluster}/{service}");
        let input = json!({ "ServiceNamespace": "ecs", "ResourceIds": [resource] });
        let answer =
            self.account.call(Api::AutoScaling, "DescribeScalableTargets", &input, until).await;
        let found: ScalableTargets = answer.ok()?;
        let target = found.scalable_targets.first()?;
        let what = format!(
            "service auto scaling is attached too ({} to {} tasks): two autoscalers fight",
            target.min_capacity, target.max_capacity
        );
        let fix = format!(
            "aws application-autoscaling deregister-scalable-target --service-namespace ecs \
             --scalable-dimension ecs:service:DesiredCount --resource-id {resource}"
        );
        Some(Finding::warning(ABOUT, what, fix))
    }

    /// Why there is nothing to scale: what is there instead.
    async fn not_found(&self, error: &ApiError, until: Instant) -> Finding {
        let said = error.to_string();
        if error.is_denied() {
            return Finding::problem(ABOUT, said, POLICY);
        }
        if error.why != Silence::NotFound {
            let fix = "look at `region`, `endpoint`, the network and this machine's clock";
            return Finding::problem(ABOUT, said, fix);
        }
        let (action, key, input) = match error.code.starts_with("ClusterNotFound") {
            true => ("ListClusters", "cluster", json!({})),
            false => ("ListServices", "service", json!({ "cluster": self.config.cluster })),
        };
        let until = until.min(Instant::now() + AWS_LOOK);
        let page = self.account.call::<Page>(Api::Ecs, action, &input, until).await;
        let Ok(page) = page else {
            let fix = format!("set `{key}` and `region` to what `aws ecs` shows");
            return Finding::problem(ABOUT, said, fix);
        };
        let mut names: Vec<&str> = page.task_arns.iter().map(|arn| short(arn)).collect();
        names.sort_unstable();
        names.truncate(NEIGHBOURS);
        // It is there, but it is being deleted or has no number.
        if key == "service" && names.contains(&self.config.service_name()) {
            return Finding::problem(ABOUT, said, "name another `service`");
        }
        let there = match names.is_empty() {
            true => "there is none in this region and account".to_owned(),
            false => format!("there are: {}", names.join(", ")),
        };
        let fix = format!("set `{key}` to one of them, or another `region` or `profile`");
        Finding::problem(ABOUT, format!("{said}; {there}"), fix)
    }
}
