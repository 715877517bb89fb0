//! What Nomad's HTTP API tells of a job and its allocations, as far as it matters here. Its lists
//! and maps may be null.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

/// An allocation, as in the list of a job's allocations.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Allocation {
    #[serde(rename = "ID")]
    pub(super) id: String,
    /// `job.group[index]`.
    pub(super) name: String,
    pub(super) node_name: String,
    pub(super) task_group: String,
    /// What the servers want: `run`, `stop`, `evict`.
    pub(super) desired_status: String,
    /// What the node says: `pending`, `running`, `complete`, `failed`, `lost`, `unknown`.
    pub(super) client_status: String,
    pub(super) client_description: String,
    pub(super) job_version: u64,
    /// Nanoseconds since 1970.
    pub(super) create_time: i64,
    /// Absent where no deployment watches it.
    pub(super) deployment_status: Option<DeploymentStatus>,
    pub(super) task_states: Option<BTreeMap<String, TaskState>>,
    /// The one that takes its place, if there is one already.
    pub(super) next_allocation: String,
    /// The evaluation that will give it a successor, if it waits for one.
    #[serde(rename = "FollowupEvalID")]
    pub(super) followup_eval_id: String,
}

/// Whether a deployment found it healthy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct DeploymentStatus {
    /// Absent until it is known.
    pub(super) healthy: Option<bool>,
}

/// A task of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct TaskState {
    /// `pending`, `running`, `dead`.
    pub(super) state: String,
    pub(super) failed: bool,
    pub(super) restarts: u64,
    /// RFC 3339; absent, or the year 1, before it ran.
    pub(super) started_at: Option<String>,
    pub(super) finished_at: Option<String>,
    /// The latest ten.
    pub(super) events: Option<Vec<TaskEvent>>,
}

/// Something that happened to a task.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct TaskEvent {
    /// `Started`, `Terminated`, `Driver Failure`, ...
    #[serde(rename = "Type")]
    pub(super) kind: String,
    pub(super) display_message: String,
    pub(super) fails_task: bool,
}

/// An allocation by itself: only where its network is told.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Details {
    pub(super) network_status: Option<NetworkStatus>,
    pub(super) allocated_resources: Option<AllocatedResources>,
}

/// The network of a group with its own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct NetworkStatus {
    pub(super) address: String,
}

/// What was set aside for it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct AllocatedResources {
    pub(super) shared: SharedResources,
}

/// The part of the whole group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct SharedResources {
    pub(super) networks: Option<Vec<Network>>,
}

/// An address of the node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Network {
    #[serde(rename = "IP")]
    pub(super) ip: String,
    pub(super) hostname: String,
}

/// The answer of `GET /v1/job/:id/scale`. Without its index it is none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ScaleStatus {
    pub(super) job_modify_index: u64,
    #[serde(default)]
    pub(super) job_stopped: bool,
    #[serde(default)]
    pub(super) task_groups: Option<HashMap<String, GroupStatus>>,
}

/// A task group in it. Without its number it is none: that would count as zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct GroupStatus {
    pub(super) desired: u32,
}

/// The answer of `GET /v1/job/:id`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Job {
    /// `service`, `batch`, `system`, `sysbatch`.
    #[serde(rename = "Type")]
    pub(super) kind: String,
    pub(super) stop: bool,
    pub(super) job_modify_index: u64,
    pub(super) periodic: Option<serde_json::Value>,
    pub(super) parameterized_job: Option<serde_json::Value>,
    pub(super) task_groups: Option<Vec<TaskGroup>>,
}

/// A task group of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct TaskGroup {
    pub(super) name: String,
    pub(super) scaling: Option<Scaling>,
    /// Nanoseconds.
    pub(super) shutdown_delay: Option<i64>,
    pub(super) update: Option<Update>,
    pub(super) tasks: Option<Vec<Task>>,
}

/// Its bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Scaling {
    pub(super) min: Option<u32>,
    pub(super) max: Option<u32>,
    pub(super) enabled: Option<bool>,
}

/// How it is deployed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Update {
    /// With 0 there are no deployments.
    pub(super) max_parallel: u32,
}

/// A task of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Task {
    pub(super) name: String,
    /// Nanoseconds.
    pub(super) kill_timeout: Option<i64>,
    /// Nanoseconds.
    pub(super) shutdown_delay: Option<i64>,
    pub(super) lifecycle: Option<serde_json::Value>,
}

/// The answer of `GET /v1/job/:id/deployment`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Deployment {
    pub(super) status: String,
    pub(super) status_description: String,
}

impl Deployment {
    /// Whether Nomad refuses to scale because of it.
    pub(super) fn is_active(&self) -> bool {
        !matches!(self.status.as_str(), "" | "successful" | "failed" | "cancelled")
    }
}

impl Job {
    /// The task group of this name.
    pub(super) fn group(&self, name: &str) -> Option<&TaskGroup> {
        self.task_groups.iter().flatten().find(|group| group.name == name)
    }

    /// Whether an allocation that is done keeps its place.
    pub(super) fn is_batch(&self) -> bool {
        self.kind == "batch"
    }
}
