//! What the stand-in holds: one service and its tasks, and a scheduler that starts and stops them.

use serde_json::{Value, json};

/// The account, the region and the names of everything.
pub const ACCOUNT: &str = "123456789012";
pub const REGION: &str = "eu-central-1";
pub const CLUSTER: &str = "main";
pub const SERVICE: &str = "worker";

/// Where a task is in its life; each step of the clock takes it one further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Provisioning,
    Pending,
    Running,
    Deactivating,
    Stopped,
}

/// A task.
#[derive(Clone, Debug)]
pub struct SimTask {
    pub id: String,
    pub phase: Phase,
    /// The order in which they were made.
    pub number: u32,
    pub deployment: u32,
    pub stopping: bool,
    pub busy: bool,
    pub healthy: bool,
    /// Until this step of the clock.
    pub protected: Option<u64>,
    pub stop_code: &'static str,
    pub reason: String,
    pub exit_code: Option<i64>,
    /// Seconds between its start and its end.
    pub lived: f64,
}

/// The service and its tasks.
#[derive(Debug)]
pub struct World {
    pub desired: u32,
    pub tasks: Vec<SimTask>,
    pub status: &'static str,
    pub strategy: &'static str,
    pub deployment: u32,
    pub failed_tasks: u32,
    pub events: Vec<String>,
    /// No task can be placed.
    pub full: bool,
    /// Tasks do not become ready.
    pub slow: bool,
    /// The scheduler rests.
    pub asleep: bool,
    /// Other services of the cluster.
    pub neighbours: Vec<&'static str>,
    /// Of the task definition's container.
    pub stop_timeout: Option<i64>,
    /// Bounds of AWS' own autoscaler.
    pub auto_scaling: Option<(i64, i64)>,
    /// Tasks in one page of a list.
    pub page: usize,
    made: u32,
    pub steps: u64,
}

impl World {
    /// A service with this many running tasks.
    pub fn new(count: u32) -> Self {
        let mut world = Self {
            desired: count,
            tasks: Vec::new(),
            status: "ACTIVE",
            strategy: "REPLICA",
            deployment: 1,
            failed_tasks: 0,
            events: Vec::new(),
            full: false,
            slow: false,
            asleep: false,
            neighbours: Vec::new(),
            stop_timeout: None,
            auto_scaling: None,
            page: 3,
            made: 0,
            steps: 0,
        };
        for _ in 0..4 {
            world.step();
        }
        world
    }

    /// One step of the clock: 10 ms.
    pub fn step(&mut self) {
        self.steps += 1;
        let (now, slow) = (self.steps, self.slow);
        for task in &mut self.tasks {
            task.protected = task.protected.filter(|until| *until > now);
            task.phase = match task.phase {
                Phase::Stopped => Phase::Stopped,
                // A worker that was told to go finishes its job first.
                Phase::Deactivating if !task.busy => Phase::Stopped,
                _ if task.stopping => Phase::Deactivating,
                Phase::Provisioning => Phase::Pending,
                Phase::Pending if !slow => Phase::Running,
                phase => phase,
            };
        }
        self.schedule();
    }

    /// Starts what is missing; stops what is too much: the newest first, but none that is protected.
    pub fn schedule(&mut self) {
        if self.asleep {
            return;
        }
        let active = self.tasks.iter().filter(|t| !t.stopping && t.phase < Phase::Deactivating);
        let active = u32::try_from(active.count()).unwrap();
        if active < self.desired && !self.full {
            for _ in active..self.desired {
                self.add();
            }
        }
        for _ in self.desired..active {
            let mut may_go: Vec<&mut SimTask> = self
                .tasks
                .iter_mut()
                .filter(|t| !t.stopping && t.phase < Phase::Deactivating && t.protected.is_none())
                .collect();
            may_go.sort_by_key(|task| task.number);
            let Some(task) = may_go.pop() else { break };
            task.stopping = true;
            task.stop_code = "ServiceSchedulerInitiated";
            let (id, deployment) = (SERVICE, task.deployment);
            task.reason =
                format!("Scaling activity initiated by (deployment ecs-svc/{deployment}) {id}");
        }
    }

    fn add(&mut self) {
        self.made += 1;
        self.tasks.push(SimTask {
            id: format!("{:032x}", 0xabc0_0000_u64 + u64::from(self.made)),
            phase: Phase::Provisioning,
            number: self.made,
            deployment: self.deployment,
            stopping: false,
            busy: false,
            healthy: true,
            protected: None,
            stop_code: "",
            reason: String::new(),
            exit_code: None,
            lived: 0.0,
        });
    }

    /// A task ends by itself.
    pub fn crash(&mut self, id: &str, lived: f64) {
        let task = self.task(id);
        (task.phase, task.stopping, task.lived) = (Phase::Stopped, true, lived);
        task.stop_code = "EssentialContainerExited";
        task.reason = "Essential container in task exited".into();
        task.exit_code = Some(137);
        self.failed_tasks += 1;
    }

    pub fn task(&mut self, id: &str) -> &mut SimTask {
        self.tasks.iter_mut().find(|task| task.id == id).unwrap()
    }

    /// The ids of the tasks that are not told to go, oldest first.
    pub fn staying(&self) -> Vec<String> {
        let stays = |t: &&SimTask| !t.stopping && t.phase < Phase::Deactivating;
        self.tasks.iter().filter(stays).map(|task| task.id.clone()).collect()
    }

    /// The ids of the tasks that are protected.
    pub fn protected(&self) -> Vec<String> {
        self.tasks.iter().filter(|t| t.protected.is_some()).map(|t| t.id.clone()).collect()
    }

    fn count(&self, deployment: Option<u32>, phase: impl Fn(Phase) -> bool) -> usize {
        let counts = |t: &&SimTask| {
            !t.stopping && phase(t.phase) && deployment.is_none_or(|d| d == t.deployment)
        };
        self.tasks.iter().filter(counts).count()
    }

    pub fn service(&self) -> Value {
        let deployments: Vec<Value> = (1..=self.deployment)
            .rev()
            .filter(|d| *d == self.deployment || self.count(Some(*d), |_| true) > 0)
            .map(|d| {
                let is_newest = d == self.deployment;
                json!({
                    "id": format!("ecs-svc/{d}"),
                    "status": if is_newest { "PRIMARY" } else { "ACTIVE" },
                    "taskDefinition": definition(d),
                    "desiredCount": if is_newest { self.desired } else { 0 },
                    "runningCount": self.count(Some(d), |p| p == Phase::Running),
                    "pendingCount": self.count(Some(d), |p| p < Phase::Running),
                    "failedTasks": if is_newest { self.failed_tasks } else { 0 },
                    "rolloutState": "IN_PROGRESS",
                })
            })
            .collect();
        let event = |message: &String| json!({ "createdAt": now(), "message": message });
        json!({
            "serviceArn": arn(&format!("service/{CLUSTER}/{SERVICE}")),
            "serviceName": SERVICE,
            "clusterArn": arn(&format!("cluster/{CLUSTER}")),
            "status": self.status,
            "schedulingStrategy": self.strategy,
            "desiredCount": self.desired,
            "runningCount": self.count(None, |p| p == Phase::Running),
            "pendingCount": self.count(None, |p| p < Phase::Running),
            "taskDefinition": definition(self.deployment),
            "deployments": deployments,
            "events": self.events.iter().rev().map(event).collect::<Vec<_>>(),
        })
    }

    pub fn described(&self, task: &SimTask) -> Value {
        let status = match task.phase {
            Phase::Provisioning => "PROVISIONING",
            Phase::Pending => "PENDING",
            Phase::Running => "RUNNING",
            Phase::Deactivating => "DEACTIVATING",
            Phase::Stopped => "STOPPED",
        };
        let ip = format!("10.0.{}.{}", task.number / 250, task.number % 250 + 1);
        let host = format!("ip-{}.{REGION}.compute.internal", ip.replace('.', "-"));
        let started = now() - 100.0;
        let mut all = json!({
            "taskArn": arn(&format!("task/{CLUSTER}/{}", task.id)),
            "clusterArn": arn(&format!("cluster/{CLUSTER}")),
            "lastStatus": status,
            "desiredStatus": if task.stopping { "STOPPED" } else { "RUNNING" },
            "healthStatus": if task.healthy { "UNKNOWN" } else { "UNHEALTHY" },
            "createdAt": started - f64::from(1_000 - task.number.min(1_000)),
            "taskDefinitionArn": definition(task.deployment),
            "startedBy": format!("ecs-svc/{}", task.deployment),
            "group": format!("service:{SERVICE}"),
            "containers": [{
                "name": "worker",
                "runtimeId": format!("{}-{}", task.id, 3_000_000_000_u64 + u64::from(task.number)),
                "networkInterfaces": [{ "privateIpv4Address": ip }],
            }],
            "attachments": [{ "type": "ElasticNetworkInterface", "details": [
                { "name": "privateIPv4Address", "value": ip },
                { "name": "privateDnsName", "value": host },
            ]}],
        });
        if task.phase >= Phase::Running {
            all["startedAt"] = json!(started);
        }
        if task.stopping {
            all["stopCode"] = json!(task.stop_code);
            all["stoppedReason"] = json!(task.reason);
        }
        if task.phase == Phase::Stopped {
            all["stoppedAt"] = json!(started + task.lived);
            all["containers"][0]["exitCode"] = json!(task.exit_code.unwrap_or(0));
        }
        all
    }
}

pub fn arn(resource: &str) -> String {
    format!("arn:aws:ecs:{REGION}:{ACCOUNT}:{resource}")
}

fn definition(version: u32) -> String {
    arn(&format!("task-definition/{SERVICE}:{version}"))
}

fn now() -> f64 {
    headcount::clock::now().as_seconds()
}
