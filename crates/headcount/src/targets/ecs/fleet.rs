//! What a service and its tasks are as workers. Tasks that are told to go are leaving; so are those that
//! are more than the number asked for, before anybody has told them. Places without a task are starting.
//! Pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use headcount_core::reading::{Worker, WorkerState};
use headcount_core::{FleetReading, Span, Timestamp};

use crate::queues::Identity;
use crate::targets::FleetSeen;
use crate::targets::ecs::api::{Deployment, Service, Task, short};

/// A task that ends by itself within this time after its start died young.
const YOUNG: Span = Span::from_secs(60);
/// An event that is older says nothing about now.
const EVENTS_COUNT: Span = Span::from_mins(10);

/// The numbers of a service and of its deployments.
pub(super) type Signs = Vec<(String, u32, u32, u32)>;

impl Task {
    /// Its id.
    pub(super) fn id(&self) -> &str {
        short(&self.task_arn)
    }

    /// Whether it will run no more.
    pub(super) fn has_stopped(&self) -> bool {
        matches!(self.last_status.as_str(), "STOPPED" | "DELETED")
    }

    /// Whether it was told to go and has not ended yet.
    pub(super) fn is_leaving(&self) -> bool {
        let last = self.last_status.as_str();
        let ends = matches!(last, "DEACTIVATING" | "STOPPING" | "DEPROVISIONING");
        !self.has_stopped() && (ends || self.desired_status == "STOPPED")
    }

    /// Whether it holds a place.
    pub(super) fn is_active(&self) -> bool {
        !self.has_stopped() && !self.is_leaving()
    }

    /// Whether it runs and is not told to go.
    pub(super) fn runs(&self) -> bool {
        self.is_active() && self.last_status == "RUNNING"
    }

    /// Since when it is there.
    fn since(&self) -> Option<Timestamp> {
        self.started_at.0.or(self.created_at.0)
    }

    /// Whether it ended by itself, and so soon that something must be wrong.
    pub(super) fn died_young(&self) -> bool {
        let itself = ["TaskFailedToStart", "EssentialContainerExited"];
        let lived = self.started_at.0.zip(self.stopped_at.0).map(|(from, to)| to.since(from));
        itself.contains(&self.stop_code.as_str()) && lived.is_none_or(|lived| lived < YOUNG)
    }

    /// Why it ended.
    pub(super) fn last_words(&self) -> String {
        let mut said = self.stopped_reason.clone();
        for container in &self.containers {
            let code = container.exit_code.filter(|code| *code != 0);
            let code = code.map(|code| format!("exit code {code}"));
            let reason = Some(container.reason.clone()).filter(|reason| !reason.is_empty());
            let words: Vec<String> = code.into_iter().chain(reason).collect();
            if !words.is_empty() {
                said += &format!("; container {}: {}", container.name, words.join(", "));
            }
        }
        said
    }

    fn state(&self, leaves: bool) -> WorkerState {
        match self.last_status.as_str() {
            _ if self.has_stopped() => WorkerState::Stopped,
            _ if self.is_leaving() || leaves => WorkerState::Draining,
            "RUNNING" if self.health_status == "UNHEALTHY" => WorkerState::Broken,
            "RUNNING" => WorkerState::Ready,
            _ => WorkerState::Starting,
        }
    }

    fn names(&self) -> Vec<Identity> {
        let mut names = vec![Identity::Name(self.id().to_owned())];
        let detail = |name: &str| {
            let all = self.attachments.iter().flat_map(|attachment| &attachment.details);
            let name = name.to_owned();
            all.filter(move |detail| detail.name == name).map(|detail| detail.value.as_str())
        };
        for host in detail("privateDnsName") {
            names.push(Identity::Hostname(host.to_owned()));
            let label = host.split('.').next().unwrap_or(host);
            names.push(Identity::Hostname(label.to_owned()));
        }
        let interfaces = self.containers.iter().flat_map(|c| &c.network_interfaces);
        let addresses =
            interfaces.flat_map(|i| [i.private_ipv4_address.as_str(), i.ipv6_address.as_str()]);
        let mut ips: Vec<IpAddr> = addresses
            .chain(detail("privateIPv4Address"))
            .filter_map(|address| address.parse().ok())
            .collect();
        ips.sort_unstable();
        ips.dedup();
        names.extend(ips.into_iter().map(|ip| Identity::Peer(SocketAddr::new(ip, 0))));
        for id in self.containers.iter().map(|c| &c.runtime_id).filter(|id| !id.is_empty()) {
            names.push(Identity::Container(id.clone()));
            // Docker's own name for a container's host.
            if id.len() >= 12 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                names.push(Identity::Hostname(id[..12].to_owned()));
            }
        }
        names
    }
}

impl Service {
    /// Places without a task.
    fn missing(&self, active: u32) -> u32 {
        self.desired_count.saturating_sub(active)
    }

    /// Why tasks cannot be started, if ECS says so.
    pub(super) fn failure(&self, now: Timestamp) -> Option<String> {
        let failed = self.deployments.iter().find(|d| d.status == "PRIMARY");
        if let Some(failed) = failed.filter(|d| d.rollout_state == "FAILED") {
            return Some(match failed.rollout_state_reason.as_str() {
                "" => "its deployment has failed".into(),
                why => why.to_owned(),
            });
        }
        let recent = |at: Option<Timestamp>| at.is_some_and(|at| now.since(at) <= EVENTS_COUNT);
        let good = |said: &str| said.contains("has started") || said.contains("steady state");
        let bad = |said: &str| finds_no_room(said) || said.contains("unable to consistently start");
        let events = self.events.iter().take_while(|event| recent(event.created_at.0));
        let last = events.map(|e| e.message.as_str()).find(|said| good(said) || bad(said));
        last.filter(|said| bad(said)).map(str::to_owned)
    }

    /// What has to change before its tasks need to be listed again.
    pub(super) fn signs(&self) -> Signs {
        let all = ("".to_owned(), self.desired_count, self.running_count, self.pending_count);
        let of = |d: &Deployment| (d.id.clone(), d.failed_tasks, d.running_count, d.pending_count);
        std::iter::once(all).chain(self.deployments.iter().map(of)).collect()
    }

    /// Whether a task is of an older version than the one that is wanted now.
    fn is_old(&self, task: &Task) -> bool {
        let primary = self.deployments.iter().find(|d| d.status == "PRIMARY");
        let by_deployment = primary.filter(|_| task.started_by.starts_with("ecs-svc/"));
        match by_deployment {
            Some(primary) => primary.id != task.started_by,
            None => task.task_definition_arn != self.task_definition,
        }
    }
}

/// The active tasks in the order in which they will go, as far as that can be foreseen.
pub(super) fn in_order<'a>(
    service: &Service,
    tasks: &'a [Task],
    is_protected: impl Fn(&Task) -> bool,
) -> Vec<&'a Task> {
    let mut active: Vec<&Task> = tasks.iter().filter(|task| task.is_active()).collect();
    active.sort_by_key(|task| {
        let key = (is_protected(task), !service.is_old(task), task.runs());
        (key, Reverse(task.since()), task.task_arn.as_str())
    });
    active
}

/// The look at the fleet, with its tasks one by one.
pub(super) fn seen(
    service: &Service,
    tasks: &[Task],
    is_protected: impl Fn(&Task) -> bool,
    now: Timestamp,
) -> FleetSeen {
    let order = in_order(service, tasks, is_protected);
    let active = u32::try_from(order.len()).unwrap_or(u32::MAX);
    let excess = active.saturating_sub(service.desired_count) as usize;
    let leaving: Vec<&str> = order.iter().take(excess).map(|task| task.id()).collect();
    let (mut workers, mut known_as) = (Vec::new(), HashMap::new());
    for task in tasks.iter().filter(|task| !task.has_stopped()) {
        let id = task.id().to_owned();
        workers.push(Worker {
            state: task.state(leaving.contains(&task.id())),
            busy: None,
            started_at: task.since(),
            version: Some(short(&task.task_definition_arn).to_owned()),
            id: id.clone(),
        });
        known_as.insert(id, task.names());
    }
    let mut reading = FleetReading::of(workers);
    reading.desired = Some(service.desired_count);
    let missing = service.missing(active);
    match service.failure(now) {
        Some(_) => reading.broken = reading.broken.saturating_add(missing),
        None => reading.starting = reading.starting.saturating_add(missing),
    }
    FleetSeen { reading, known_as }
}

/// Whether ECS says that it found no place for a task.
pub(super) fn finds_no_room(said: &str) -> bool {
    said.contains("unable to place")
}

/// The look at a fleet whose tasks cannot be listed: only its numbers.
pub(super) fn counted(service: &Service, now: Timestamp) -> FleetReading {
    let Service { desired_count, running_count, pending_count, .. } = *service;
    let ready = running_count.min(desired_count);
    let missing = service.missing(running_count.saturating_add(pending_count));
    let broken = if service.failure(now).is_some() { missing } else { 0 };
    FleetReading {
        ready,
        starting: desired_count.saturating_sub(ready).saturating_sub(broken),
        draining: running_count.saturating_sub(desired_count),
        broken,
        desired: Some(desired_count),
        ..FleetReading::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::ecs::api::{Attachment, Container, Detail, Event, Interface, Time};

    const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

    fn ago(minutes: i64) -> Time {
        Time(Some(NOW.plus(Span::from_mins(-minutes))))
    }

    fn task(id: &str, last: &str) -> Task {
        Task {
            task_arn: format!("arn:aws:ecs:eu-west-1:1:task/main/{id}"),
            last_status: last.into(),
            desired_status: "RUNNING".into(),
            created_at: ago(5),
            ..Task::default()
        }
    }

    fn service(desired_count: u32) -> Service {
        Service { desired_count, ..Service::default() }
    }

    fn look(service: &Service, tasks: &[Task]) -> (u32, u32, u32, u32) {
        let reading = seen(service, tasks, |_| false, NOW).reading;
        assert!(reading.credible().is_ok());
        (reading.ready, reading.starting, reading.draining, reading.broken)
    }

    #[test]
    fn each_task_has_one_state() {
        use WorkerState::{Broken, Draining, Ready, Starting, Stopped};
        for last in ["PROVISIONING", "PENDING", "ACTIVATING"] {
            assert_eq!(task("a", last).state(false), Starting, "{last}");
        }
        for last in ["DEACTIVATING", "STOPPING", "DEPROVISIONING"] {
            assert_eq!(task("a", last).state(false), Draining, "{last}");
        }
        assert_eq!(task("a", "RUNNING").state(false), Ready);
        assert_eq!(task("a", "RUNNING").state(true), Draining);
        let told = Task { desired_status: "STOPPED".into(), ..task("a", "RUNNING") };
        assert_eq!(told.state(false), Draining, "it still finishes its job");
        let sick = Task { health_status: "UNHEALTHY".into(), ..task("a", "RUNNING") };
        assert_eq!(sick.state(false), Broken);
        assert_eq!(task("a", "STOPPED").state(false), Stopped);
    }

    #[test]
    fn the_number_asked_for_is_the_most_that_counts() {
        let three = ["a", "b", "c"].map(|id| task(id, "RUNNING"));
        assert_eq!(look(&service(3), &three), (3, 0, 0, 0));
        assert_eq!(look(&service(1), &three), (1, 0, 2, 0), "nobody was told to go yet");
        assert_eq!(look(&service(5), &three), (3, 2, 0, 0), "two are not made yet");
        assert_eq!(look(&service(0), &[]), (0, 0, 0, 0));
        assert_eq!(look(&service(0), &[task("a", "STOPPED")]), (0, 0, 0, 0));
        let message =
            "(service w) was unable to place a task because no container instance met all";
        let events = vec![Event { created_at: ago(1), message: message.into() }];
        let stuck = Service { events: events.clone(), ..service(5) };
        assert_eq!(look(&stuck, &three), (3, 0, 0, 2), "and these will hardly come");
        let started =
            Event { created_at: ago(0), message: "(service w) has started 2 tasks".into() };
        let again = Service { events: [vec![started], events].concat(), ..service(5) };
        assert_eq!(look(&again, &three), (3, 2, 0, 0));
        let old = Event { created_at: ago(11), message: message.into() };
        assert_eq!(look(&Service { events: vec![old], ..service(5) }, &three), (3, 2, 0, 0));
    }

    #[test]
    fn in_a_deployment_the_old_tasks_leave() {
        let deployment = |id: &str, status: &str| Deployment {
            id: id.into(),
            status: status.into(),
            ..Deployment::default()
        };
        let deployments =
            vec![deployment("ecs-svc/2", "PRIMARY"), deployment("ecs-svc/1", "ACTIVE")];
        let service = Service { deployments, ..service(2) };
        let of = |id: &str, by: &str, last: &str| Task { started_by: by.into(), ..task(id, last) };
        let tasks = [
            of("old-1", "ecs-svc/1", "RUNNING"),
            of("old-2", "ecs-svc/1", "RUNNING"),
            of("new", "ecs-svc/2", "PENDING"),
        ];
        assert_eq!(look(&service, &tasks), (1, 1, 1, 0));
        let both = |task: &Task| task.id() == "old-1";
        let order: Vec<&str> = in_order(&service, &tasks, both).iter().map(|t| t.id()).collect();
        assert_eq!(order, ["old-2", "new", "old-1"], "a protected one does not go");
    }

    #[test]
    fn without_tasks_the_numbers_must_do() {
        // desired, running, pending; ready, starting, draining
        let table = [
            ((3, 3, 0), (3, 0, 0)),
            ((4, 3, 1), (3, 1, 0)),
            ((4, 3, 0), (3, 1, 0)),
            ((3, 6, 0), (3, 0, 3)),
            ((0, 0, 0), (0, 0, 0)),
        ];
        for ((desired_count, running_count, pending_count), expected) in table {
            let service =
                Service { desired_count, running_count, pending_count, ..Service::default() };
            let got = counted(&service, NOW);
            assert_eq!((got.ready, got.starting, got.draining), expected, "{service:?}");
        }
    }

    #[test]
    fn a_death_is_one_by_itself_and_early() {
        let dead = |code: &str, started: Time, stopped: Time| Task {
            stop_code: code.into(),
            started_at: started,
            stopped_at: stopped,
            ..task("a", "STOPPED")
        };
        assert!(dead("TaskFailedToStart", Time(None), ago(0)).died_young());
        assert!(dead("EssentialContainerExited", ago(5), ago(5)).died_young());
        assert!(!dead("EssentialContainerExited", ago(5), ago(1)).died_young(), "it lived long");
        assert!(!dead("ServiceSchedulerInitiated", ago(5), ago(5)).died_young(), "it was told to");
        let container = Container {
            name: "worker".into(),
            exit_code: Some(137),
            reason: "OutOfMemoryError".into(),
            ..Container::default()
        };
        let task = Task {
            stopped_reason: "Essential container in task exited".into(),
            containers: vec![container],
            ..task("a", "STOPPED")
        };
        let expected =
            "Essential container in task exited; container worker: exit code 137, OutOfMemoryError";
        assert_eq!(task.last_words(), expected);
    }

    #[test]
    fn a_task_is_known_by_its_addresses_and_containers() {
        let detail = |name: &str, value: &str| Detail { name: name.into(), value: value.into() };
        let long = "0123456789abcdef".repeat(4);
        let interface =
            Interface { private_ipv4_address: "10.0.0.7".into(), ..Interface::default() };
        let task = Task {
            containers: vec![Container {
                runtime_id: long.clone(),
                network_interfaces: vec![interface],
                ..Container::default()
            }],
            attachments: vec![Attachment {
                details: vec![
                    detail("privateIPv4Address", "10.0.0.7"),
                    detail("privateDnsName", "ip-10-0-0-7.eu-west-1.compute.internal"),
                    detail("subnetId", "subnet-1"),
                ],
            }],
            ..task("a", "RUNNING")
        };
        let host = |name: &str| Identity::Hostname(name.into());
        let expected = [
            Identity::Name("a".into()),
            host("ip-10-0-0-7.eu-west-1.compute.internal"),
            host("ip-10-0-0-7"),
            Identity::Peer("10.0.0.7:0".parse().unwrap()),
            Identity::Container(long),
            host("0123456789ab"),
        ];
        assert_eq!(task.names(), expected);
    }
}
