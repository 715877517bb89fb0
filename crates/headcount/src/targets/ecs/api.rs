//! What the API of ECS says, as far as it matters here.

use headcount_core::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The answer to `DescribeServices`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Services {
    pub(super) services: Vec<Service>,
    pub(super) failures: Vec<Failure>,
}

/// The answer to `UpdateService`.
#[derive(Debug, Deserialize)]
pub(super) struct Updated {
    pub(super) service: Service,
}

/// A service. AWS always tells its name and its numbers: without them it is no answer, and above all
/// not "none".
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Service {
    pub(super) service_name: String,
    #[serde(default)]
    pub(super) service_arn: String,
    #[serde(default)]
    pub(super) cluster_arn: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) scheduling_strategy: String,
    pub(super) desired_count: u32,
    pub(super) running_count: u32,
    pub(super) pending_count: u32,
    #[serde(default)]
    pub(super) task_definition: String,
    #[serde(default)]
    pub(super) deployments: Vec<Deployment>,
    /// The newest first.
    #[serde(default)]
    pub(super) events: Vec<Event>,
}

/// Tasks of one version of a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Deployment {
    pub(super) id: String,
    pub(super) status: String,
    pub(super) running_count: u32,
    pub(super) pending_count: u32,
    /// Tasks that did not start, in a row.
    pub(super) failed_tasks: u32,
    pub(super) rollout_state: String,
    pub(super) rollout_state_reason: String,
}

/// Something that happened to a service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Event {
    pub(super) created_at: Time,
    pub(super) message: String,
}

/// Why something that was named is not in an answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Failure {
    pub(super) arn: String,
    pub(super) reason: String,
    pub(super) detail: String,
}

/// A page of `ListTasks`, `ListServices` or `ListClusters`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Page {
    #[serde(alias = "serviceArns", alias = "clusterArns")]
    pub(super) task_arns: Vec<String>,
    pub(super) next_token: Option<String>,
}

/// The answer to `DescribeTasks`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Tasks {
    pub(super) tasks: Vec<Task>,
}

/// A task.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Task {
    pub(super) task_arn: String,
    pub(super) last_status: String,
    pub(super) desired_status: String,
    pub(super) health_status: String,
    pub(super) created_at: Time,
    pub(super) started_at: Time,
    pub(super) stopped_at: Time,
    pub(super) stop_code: String,
    pub(super) stopped_reason: String,
    pub(super) task_definition_arn: String,
    /// The deployment that it belongs to.
    pub(super) started_by: String,
    pub(super) containers: Vec<Container>,
    pub(super) attachments: Vec<Attachment>,
}

/// A container of a task.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) runtime_id: String,
    pub(super) exit_code: Option<i64>,
    pub(super) reason: String,
    pub(super) network_interfaces: Vec<Interface>,
}

/// An address of a container.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Interface {
    pub(super) private_ipv4_address: String,
    pub(super) ipv6_address: String,
}

/// A network interface of a task.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Attachment {
    pub(super) details: Vec<Detail>,
}

/// One thing about it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Detail {
    pub(super) name: String,
    pub(super) value: String,
}

/// The answer to `UpdateTaskProtection`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Protections {
    pub(super) protected_tasks: Vec<Protected>,
    pub(super) failures: Vec<Failure>,
}

/// Whether a task is protected.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Protected {
    pub(super) task_arn: String,
    pub(super) protection_enabled: bool,
}

/// The answer to `DescribeTaskDefinition`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Defined {
    pub(super) task_definition: Definition,
}

/// What tasks are made from.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Definition {
    pub(super) container_definitions: Vec<ContainerDefinition>,
    pub(super) network_mode: String,
}

/// What a container is made from.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContainerDefinition {
    pub(super) name: String,
    pub(super) essential: Option<bool>,
    /// Seconds.
    pub(super) stop_timeout: Option<i64>,
}

/// The answer to `DescribeScalableTargets`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct ScalableTargets {
    pub(super) scalable_targets: Vec<ScalableTarget>,
}

/// Bounds that another autoscaler keeps.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct ScalableTarget {
    pub(super) min_capacity: i64,
    pub(super) max_capacity: i64,
}

/// A time: seconds since the epoch as AWS writes it, or a date as some stand-ins do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Time(pub(super) Option<Timestamp>);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(from)? {
            Value::Number(seconds) => seconds.as_f64().and_then(Timestamp::from_seconds),
            Value::String(date) => {
                let date = date.parse::<jiff::Timestamp>().ok();
                date.map(|date| Timestamp::from_millis(date.as_millisecond()))
            }
            _ => None,
        }))
    }
}

/// The last part of an ARN: a task's id, a service's or cluster's name.
pub(super) fn short(arn: &str) -> &str {
    arn.rsplit('/').next().unwrap_or(arn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_aws_writes() {
        let text = r#"{"services":[{"serviceName":"w","status":"ACTIVE","desiredCount":3,
            "runningCount":2,"pendingCount":1,
            "deployments":[{"id":"ecs-svc/1","status":"PRIMARY","failedTasks":2}],
            "events":[{"createdAt":1700000000.5,"message":"m"},{"createdAt":"2023-11-14T22:13:20Z"}]}],
            "failures":[]}"#;
        let answer: Services = serde_json::from_str(text).unwrap();
        let service = &answer.services[0];
        assert_eq!((service.desired_count, service.deployments[0].failed_tasks), (3, 2));
        let at: Vec<_> =
            service.events.iter().map(|e| e.created_at.0.unwrap().as_millis()).collect();
        assert_eq!(at, [1_700_000_000_500, 1_700_000_000_000]);
        let page: Page =
            serde_json::from_str(r#"{"serviceArns":["a/b"],"nextToken":"n"}"#).unwrap();
        assert_eq!((short(&page.task_arns[0]), page.next_token.as_deref()), ("b", Some("n")));
    }
}
