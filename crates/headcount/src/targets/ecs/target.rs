//! The target: what it knows between two calls, and its looks.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use headcount_core::rules::MOST_WORKERS;
use headcount_core::{Missing, Silence, Span};
use serde_json::json;
use tokio::time::Instant;

use crate::clock::now;
use crate::config::Place;
use crate::finding::Finding;
use crate::limits::AWS_LOOK;
use crate::targets::ecs::account::Account;
use crate::targets::ecs::api::{Service, Services, Task};
use crate::targets::ecs::config::EcsConfig;
use crate::targets::ecs::error::ApiError;
use crate::targets::ecs::fleet;
use crate::targets::ecs::listing::Listing;
use crate::targets::ecs::protection::Protection;
use crate::targets::ecs::session::Api;
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError};

/// The target.
pub(super) struct Ecs {
    pub(super) config: EcsConfig,
    pub(super) group: String,
    pub(super) account: Arc<Account>,
    /// What the last look showed; none after a change.
    pub(super) last: Option<Service>,
    pub(super) listing: Listing,
    /// Whether its tasks can be listed.
    pub(super) lists_tasks: bool,
    pub(super) protection: Protection,
    /// Protection is seen to again then.
    pub(super) tend_at: Option<Instant>,
    /// Who may go by the last change although it holds a job.
    pub(super) sacrificed: HashSet<String>,
    /// The change made since the last look, by its [`Order::from`] and [`Order::to`].
    pub(super) done: Option<(u32, u32)>,
    pub(super) warned_of_protection: bool,
    warned_of_list: bool,
    told_failure: Option<String>,
}

impl Ecs {
    pub(super) fn open(config: &EcsConfig, place: &Place) -> anyhow::Result<Self> {
        Ok(Self {
            config: config.clone(),
            group: place.group.clone(),
            account: Account::open(config, &place.base_dir)?,
            last: None,
            listing: Listing::default(),
            lists_tasks: true,
            protection: Protection::load(&place.state_dir),
            tend_at: None,
            sacrificed: HashSet::new(),
            done: None,
            warned_of_protection: false,
            warned_of_list: false,
            told_failure: None,
        })
    }

    /// What it scales, for people.
    pub(super) fn shown(&self) -> String {
        format!("service {}/{}", self.config.cluster_name(), self.config.service_name())
    }

    /// The service as it is now.
    pub(super) async fn describe(&self, until: Instant) -> Result<Service, ApiError> {
        let input = json!({ "cluster": self.config.cluster, "services": [self.config.service] });
        let answer: Services =
            self.account.call(Api::Ecs, "DescribeServices", &input, until).await?;
        let silence =
            |why, what: String| Err(ApiError::silence(why, format!("{} {what}", self.shown())));
        let not_found = |what: String| silence(Silence::NotFound, what);
        let Some(service) = answer.services.into_iter().next() else {
            let why = answer.failures.into_iter().next().unwrap_or_default();
            let said = [why.reason, why.detail];
            let said: Vec<&str> = said.iter().map(|part| part.trim()).collect();
            return not_found(match said.join(" ").trim() {
                "" => "is not there".into(),
                said => format!("is not there ({said})"),
            });
        };
        if service.service_name != self.config.service_name() {
            let what = format!("was asked for, and ECS answers about {:?}", service.service_name);
            return silence(Silence::Malformed, what);
        }
        match service.status.as_str() {
            "ACTIVE" => {}
            "" => return silence(Silence::Malformed, "has no status in the answer of ECS".into()),
            "DRAINING" => return not_found("is being deleted (DRAINING)".into()),
            status => return not_found(format!("is {status}: it was deleted")),
        }
        let most = [service.desired_count, service.running_count, service.pending_count];
        if let Some(absurd) = most.into_iter().find(|number| *number > MOST_WORKERS) {
            let what = format!("counts {absurd} tasks, above the limit of {MOST_WORKERS} workers");
            return silence(Silence::Malformed, what);
        }
        if service.scheduling_strategy == "DAEMON" {
            return not_found(
                "runs one task on each instance (DAEMON): it has no number to set; use a service \
                 with the REPLICA strategy"
                    .into(),
            );
        }
        Ok(service)
    }

    async fn look(&mut self) -> Result<FleetSeen, ApiError> {
        let until = Instant::now() + AWS_LOOK;
        (self.last, self.done) = (None, None);
        let service = self.describe(until).await?;
        self.tell_failure(&service);
        let Self { listing, account, config, .. } = &mut *self;
        let ended = listing.refresh(account, config, &service, until).await;
        self.last = Some(service.clone());
        self.lists_tasks = !ended.as_ref().is_err_and(ApiError::is_denied);
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) if error.is_denied() => {
                self.warn_of_list(&error);
                self.listing = Listing::default();
                let reading = fleet::counted(&service, now());
                return Ok(FleetSeen { reading, known_as: HashMap::new() });
            }
            Err(error) => return Err(error),
        };
        let is_protected = |task: &Task| self.protection.holds(task);
        let mut seen = fleet::seen(&service, &self.listing.tasks, is_protected, now());
        let died: Vec<&Task> = ended.iter().filter(|task| task.died_young()).collect();
        for task in &died {
            tracing::warn!(group = self.group, worker = task.id(), "died: {}", task.last_words());
        }
        seen.reading.died = u32::try_from(died.len()).unwrap_or(u32::MAX);
        Ok(seen)
    }

    fn warn_of_list(&mut self, error: &ApiError) {
        if !std::mem::replace(&mut self.warned_of_list, true) {
            let (group, shown) = (&self.group, self.shown());
            tracing::warn!(group, "{shown} is known by its numbers only: {error}");
        }
    }

    /// Says once why no more tasks come.
    fn tell_failure(&mut self, service: &Service) {
        let failure = service.failure(now());
        if let Some(why) = failure.as_ref().filter(|_| failure != self.told_failure) {
            tracing::warn!(group = self.group, "{}: {why}", self.shown());
        }
        self.told_failure = failure;
    }
}

#[async_trait]
impl Target for Ecs {
    fn promise(&self) -> Promise {
        Promise::DrainedVictims
    }

    fn scales(&self) -> String {
        let config = &self.config;
        let region = config.region.as_deref().or_else(|| config.region_of_arn()).unwrap_or("");
        let place = config.endpoint.as_deref().unwrap_or(region);
        let (cluster, service) = (config.cluster_name(), config.service_name());
        format!("ecs:{place}:{}:{cluster}/{service}", config.account())
    }

    fn runs_here(&self) -> bool {
        false
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        self.look().await.map_err(ApiError::into_missing)
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        self.change(order).await
    }

    async fn watch_over(&mut self, busy: &HashMap<String, Option<Span>>) {
        self.keep_promises(busy).await;
    }

    async fn check(&mut self) -> Vec<Finding> {
        self.findings().await
    }
}
