//! The allocations of a task group of a Nomad job: the job's count is scaled, and the chosen ones
//! are stopped where Nomad would take others. See `fleet` for whom Nomad takes, and `scale` for
//! what follows from it.

mod api;
mod check;
mod client;
mod config;
mod fleet;
mod scale;

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use headcount_core::rules::MOST_WORKERS;
use headcount_core::{Missing, Silence};
use tokio::time::Instant;

use crate::finding::Finding;
use crate::limits::{INSPECTS_PER_LOOK, NEIGHBOURS, NEIGHBOURS_EVERY, NOMAD_LOOK};
use crate::targets::nomad::api::{Allocation, Details, Job, ScaleStatus};
use crate::targets::nomad::client::{Answer, ApiError, Client, Topic};
pub use crate::targets::nomad::config::{NomadConfig, NomadTls};
use crate::targets::nomad::fleet::{Memory, Names, Places};
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError};

/// The target.
struct Nomad {
    config: NomadConfig,
    client: Client,
    /// The group of Headcount's that it is for.
    owner: String,
    /// The job as it was when its index last changed.
    job: Option<Job>,
    memory: Memory,
    /// Names that the networks of allocations give them.
    networks: HashMap<String, Names>,
    /// Jobs or groups that are there instead, and when they were looked for.
    neighbours: Option<(Instant, String)>,
    /// Allocations cannot be stopped one by one.
    may_not_stop: bool,
    /// The change carried out since the last look, by its [`Order::from`] and [`Order::to`].
    done: Option<(u32, u32)>,
}

/// What the servers know of the group.
struct Known {
    /// Its allocations, those that are gone among them.
    allocs: Vec<Allocation>,
    /// The index of the state that the list of them tells.
    index: u64,
    /// As the job has it.
    count: u32,
    job_modify_index: u64,
    is_batch: bool,
}

impl Known {
    fn places(&self) -> Places {
        Places::of(&self.allocs, self.is_batch)
    }
}

impl Nomad {
    fn new(config: NomadConfig, client: Client, owner: String) -> Self {
        Self {
            config,
            client,
            owner,
            job: None,
            memory: Memory::default(),
            networks: HashMap::new(),
            neighbours: None,
            may_not_stop: false,
            done: None,
        }
    }

    /// What it is, for people.
    fn shown(&self) -> String {
        format!("{}.{}", self.config.job, self.config.group)
    }

    /// Asks for the group's count and allocations; the job itself only if it has changed.
    async fn read(&mut self) -> Result<Known, ApiError> {
        let what = format!("reading job {}", self.config.job);
        let reading = Topic { what: &what, needs: "read-job" };
        let (status, list) = {
            let Self { client, config, .. } = &*self;
            let path = ["job", &config.job, "scale"];
            let scale = Topic { needs: "read-job-scaling", ..reading };
            let status = client.get::<ScaleStatus>(&path, &[], NOMAD_LOOK, scale);
            tokio::join!(status, self.allocations(None))
        };
        let status = match status {
            Ok(status) => status.value,
            Err(error) if error.is(404) => return Err(self.with_neighbours(error).await),
            Err(error) => return Err(error),
        };
        let (allocs, index) = list?;
        let known_index = self.job.as_ref().map(|job| job.job_modify_index);
        if known_index != Some(status.job_modify_index) {
            let path = ["job", &self.config.job];
            self.job = Some(self.client.get::<Job>(&path, &[], NOMAD_LOOK, reading).await?.value);
        }
        let is_batch = self.fit_to_scale(status.job_stopped)?;
        let group = status.task_groups.as_ref().and_then(|all| all.get(&self.config.group));
        let Some(group) = group else { return Err(self.no_group()) };
        let (count, job_modify_index) = (group.desired, status.job_modify_index);
        self.credible(count, job_modify_index, &allocs)?;
        Ok(Known { allocs, index, count, job_modify_index, is_batch })
    }

    /// The group's allocations and the index of that list; `after` an index: as soon as there is a
    /// later one, or that long later.
    async fn allocations(
        &self,
        after: Option<(u64, Duration)>,
    ) -> Result<(Vec<Allocation>, u64), ApiError> {
        let what = format!("listing the allocations of job {}", self.config.job);
        let topic = Topic { what: &what, needs: "read-job" };
        let (mut query, mut limit) = (Vec::new(), NOMAD_LOOK);
        if let Some((index, wait)) = after {
            query.push(("index", index.to_string()));
            query.push(("wait", format!("{}ms", wait.as_millis())));
            limit += wait;
        }
        let path = ["job", &self.config.job, "allocations"];
        let answer: Answer<Option<Vec<Allocation>>> =
            self.client.get(&path, &query, limit, topic).await?;
        let mut allocs = answer.value.unwrap_or_default();
        // One that does not say whose it is may be ours.
        allocs.retain(|alloc| alloc.task_group == self.config.group || alloc.task_group.is_empty());
        Ok((allocs, answer.index))
    }

    /// Whether it is a batch job, or why the job cannot be scaled at all.
    fn fit_to_scale(&self, stopped: bool) -> Result<bool, ApiError> {
        let Some(job) = &self.job else { return Ok(false) };
        let id = &self.config.job;
        let wrong = |what: String| Err(self.client.wrong(what));
        if stopped || job.stop {
            return wrong(format!("job {id} is stopped: start it again with `nomad job run`"));
        }
        if matches!(job.kind.as_str(), "system" | "sysbatch") {
            let kind = &job.kind;
            return wrong(format!(
                "job {id} is of type {kind}, which runs once on each node and has no count: make \
                 it a `service`"
            ));
        }
        if job.periodic.is_some() || job.parameterized_job.is_some() {
            return wrong(format!(
                "job {id} only starts others (periodic or parameterized): name a `service`"
            ));
        }
        Ok(job.is_batch())
    }

    /// Whether an answer can be acted on: a number or an allocation that is not really told must
    /// never look like fewer workers.
    fn credible(&self, count: u32, index: u64, allocs: &[Allocation]) -> Result<(), ApiError> {
        let job = &self.config.job;
        let wrong = match () {
            () if count > MOST_WORKERS => {
                format!("wants {count} allocations, above the limit of {MOST_WORKERS} workers")
            }
            () if index == 0 => "has no JobModifyIndex".into(),
            () if allocs.iter().any(|a| a.id.is_empty() || a.task_group.is_empty()) => {
                "has an allocation without an id or a group".into()
            }
            () if allocs
                .iter()
                .any(|a| a.client_status.is_empty() || a.desired_status.is_empty()) =>
            {
                "has an allocation without a status".into()
            }
            () => return Ok(()),
        };
        let detail = format!("reading job {job}: in the answer of Nomad it {wrong}");
        Err(self.client.fault(Silence::Malformed, detail))
    }

    fn no_group(&self) -> ApiError {
        let groups = self.job.iter().flat_map(|job| job.task_groups.iter().flatten());
        let names: Vec<&str> = groups.map(|group| group.name.as_str()).take(NEIGHBOURS).collect();
        let (job, group) = (&self.config.job, &self.config.group);
        let names = names.join(", ");
        self.client.wrong(format!("job {job} has no group {group}; it has: {names}"))
    }

    /// The refusal with the jobs that are there instead, looked for now and then.
    async fn with_neighbours(&mut self, error: ApiError) -> ApiError {
        let recent = |(at, _): &&(Instant, String)| at.elapsed() < NEIGHBOURS_EVERY;
        let known = self.neighbours.as_ref().filter(recent).map(|(_, said)| said.clone());
        let said = match known {
            Some(said) => said,
            None => {
                let said = self.other_jobs().await;
                self.neighbours = Some((Instant::now(), said.clone()));
                said
            }
        };
        error.with_more(&said)
    }

    async fn other_jobs(&self) -> String {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "PascalCase")]
        struct Stub {
            #[serde(rename = "ID")]
            id: String,
        }
        let topic = Topic { what: "listing the jobs", needs: "list-jobs" };
        let query = [("per_page", NEIGHBOURS.to_string())];
        let list = self.client.get::<Option<Vec<Stub>>>(&["jobs"], &query, NOMAD_LOOK, topic).await;
        let namespace = &self.client.namespace;
        match list.map(|answer| answer.value.unwrap_or_default()) {
            Ok(jobs) if jobs.is_empty() => format!("; the namespace {namespace} has no jobs"),
            Ok(jobs) => {
                let ids: Vec<String> =
                    jobs.into_iter().map(|job| job.id).take(NEIGHBOURS).collect();
                format!("; the namespace {namespace} has: {}", ids.join(", "))
            }
            Err(_) => String::new(),
        }
    }

    /// Learns which addresses new allocations have; best effort, and bounded.
    async fn learn_networks(&mut self, allocs: &[Allocation]) {
        self.networks.retain(|id, _| allocs.iter().any(|alloc| alloc.id == *id));
        let runs = |alloc: &&Allocation| alloc.client_status == "running";
        let new = allocs.iter().filter(runs).filter(|alloc| !self.networks.contains_key(&alloc.id));
        let due: Vec<String> = new.map(|alloc| alloc.id.clone()).take(INSPECTS_PER_LOOK).collect();
        let client = &self.client;
        let ask = |id: String| async move {
            let topic = Topic { what: "reading an allocation", needs: "read-job" };
            let answer = client.get(&["allocation", &id], &[], NOMAD_LOOK, topic).await;
            Some((id, answer.ok().map(|a: Answer<Details>| fleet::names(&a.value))?))
        };
        let asked = futures_util::stream::iter(due).map(ask).buffer_unordered(8);
        let learnt: Vec<Option<(String, Names)>> = asked.collect().await;
        self.networks.extend(learnt.into_iter().flatten());
    }

    async fn look(&mut self) -> Result<FleetSeen, ApiError> {
        self.done = None;
        let known = self.read().await?;
        self.learn_networks(&known.allocs).await;
        let (died, told) = self.memory.deaths(&known.allocs);
        for alloc in told {
            let (worker, why) = (&alloc.id, fleet::trouble(alloc));
            tracing::warn!(group = self.owner, worker, why, "worker ended by itself");
        }
        Ok(fleet::seen(&known.allocs, known.is_batch, known.count, died, &self.networks))
    }
}

impl Client {
    /// Something that is there, but not as it should be.
    fn wrong(&self, detail: String) -> ApiError {
        self.fault(Silence::NotFound, detail)
    }
}

#[async_trait]
impl Target for Nomad {
    fn promise(&self) -> Promise {
        Promise::DrainedVictims
    }

    fn scales(&self) -> String {
        let address = self.client.address.trim_end_matches('/').to_ascii_lowercase();
        let (region, namespace) = (self.client.region(), &self.client.namespace);
        format!("nomad:{address}:{region}/{namespace}/{}", self.shown())
    }

    /// Its workers run on the cluster's nodes.
    fn runs_here(&self) -> bool {
        false
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        self.look().await.map_err(ApiError::into_missing)
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        self.change(order).await
    }

    async fn check(&mut self) -> Vec<Finding> {
        self.findings().await
    }
}
