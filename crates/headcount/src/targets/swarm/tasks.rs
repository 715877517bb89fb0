//! The tasks of a Swarm service: which of them serve, start, leave, or never come up. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};

use headcount_core::reading::{Worker, WorkerState};
use headcount_core::{FleetReading, Span, Timestamp};
use serde::Deserialize;

use crate::queues::Identity;
use crate::targets::FleetSeen;

/// A task that ends by itself within this time after it was made died young.
const YOUNG: Span = Span::from_secs(60);

/// A task that no node takes for this long counts as broken: until then a node may come.
const UNPLACED_AFTER: Span = Span::from_secs(60);

/// A task, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Task {
    #[serde(rename = "ID")]
    pub(super) id: String,
    #[serde(rename = "ServiceID")]
    pub(super) service: String,
    slot: u64,
    #[serde(rename = "NodeID")]
    pub(super) node: String,
    created_at: String,
    desired_state: String,
    status: Status,
    spec: Spec,
    networks_attachments: Vec<Attachment>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Status {
    timestamp: String,
    state: String,
    err: String,
    container_status: Option<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    #[serde(rename = "ContainerID")]
    id: String,
    #[serde(rename = "PID")]
    pid: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Spec {
    container_spec: ContainerSpec,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ContainerSpec {
    image: String,
    hostname: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Attachment {
    addresses: Vec<String>,
}

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Not running yet.
    Coming,
    /// Its container is being started, or is not healthy yet.
    Starting,
    Running,
    /// Over.
    Ended,
}

/// How a look is shown.
pub(super) struct Shown<'a> {
    pub(super) service: &'a str,
    /// The node whose process ids mean the same here.
    pub(super) own_node: Option<&'a str>,
    pub(super) ready_after: Span,
    pub(super) now: Timestamp,
}

/// What is wrong with a task.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// The task, and what Swarm says.
    pub(super) says: String,
    /// It waits for a node that takes it.
    pub(super) may_pass: bool,
}

/// What is remembered between two looks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Tasks that were told to go.
    told: HashSet<String>,
    /// Tasks that have ended.
    ended: HashSet<String>,
    has_looked: bool,
    /// What was said last of each slot.
    said: HashMap<u64, String>,
}

impl Task {
    fn life(&self) -> Life {
        match self.status.state.as_str() {
            "running" => Life::Running,
            "starting" => Life::Starting,
            "new" | "allocated" | "pending" | "assigned" | "accepted" | "preparing" | "ready" => {
                Life::Coming
            }
            _ => Life::Ended,
        }
    }

    fn is_told(&self) -> bool {
        ["shutdown", "remove", "complete"].contains(&self.desired_state.as_str())
    }

    fn has_failed(&self) -> bool {
        ["failed", "rejected"].contains(&self.status.state.as_str())
    }

    /// Whether it serves, or soon will, as far as Swarm wants.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_told() && self.life() != Life::Ended
    }

    /// Its name for people: the service and the slot.
    pub(super) fn called(&self, service: &str) -> String {
        format!("{service}.{}", self.slot)
    }

    /// What Swarm says went wrong with it.
    fn err(&self) -> String {
        let (state, err) = (&self.status.state, &self.status.err);
        if err.is_empty() { state.clone() } else { format!("{state}: {err}") }
    }

    fn created_at(&self) -> Option<Timestamp> {
        time(&self.created_at)
    }

    /// When it came into its present state.
    fn since(&self) -> Option<Timestamp> {
        time(&self.status.timestamp)
    }

    fn died_young(&self) -> bool {
        let over = self.has_failed() || self.status.state == "complete";
        let lived = self.created_at().zip(self.since()).map(|(from, to)| to.since(from));
        over && lived.is_none_or(|lived| lived < YOUNG)
    }

    /// The host name that it runs under, if that tells it from the others.
    fn hostname(&self, service: &str) -> Option<String> {
        let written = &self.spec.container_spec.hostname;
        if written.is_empty() {
            let container = self.status.container_status.as_ref()?;
            return container.id.get(..12).map(str::to_owned);
        }
        let mut name = written.replace(' ', "");
        let is_own = name.contains("{{.Task.");
        for (placeholder, value) in [
            ("{{.Task.ID}}", self.id.clone()),
            ("{{.Task.Slot}}", self.slot.to_string()),
            ("{{.Task.Name}}", self.container_name(service)),
            ("{{.Service.Name}}", service.to_owned()),
            ("{{.Service.ID}}", self.service.clone()),
            ("{{.Node.ID}}", self.node.clone()),
        ] {
            name = name.replace(placeholder, &value);
        }
        (is_own && !name.contains("{{")).then_some(name)
    }

    fn container_name(&self, service: &str) -> String {
        format!("{service}.{}.{}", self.slot, self.id)
    }

    fn known_as(&self, shown: &Shown<'_>) -> Vec<Identity> {
        let mut names = vec![Identity::Hostname(self.container_name(shown.service))];
        names.extend(self.hostname(shown.service).map(Identity::Hostname));
        let addresses = self.networks_attachments.iter().flat_map(|net| &net.addresses);
        let plain = addresses.filter_map(|a| a.split('/').next()?.parse::<IpAddr>().ok());
        names.extend(plain.map(|ip| Identity::Peer(SocketAddr::new(ip, 0))));
        if let Some(container) = self.status.container_status.as_ref().filter(|c| !c.id.is_empty())
        {
            names.insert(0, Identity::Container(container.id.clone()));
            let is_here = shown.own_node == Some(self.node.as_str());
            let runs = is_here && self.life() == Life::Running && container.pid > 0;
            names.extend(runs.then_some(Identity::Process(container.pid)));
        }
        names
    }

    /// `failed` says why the task before it in its slot ended.
    fn state(&self, failed: Option<&str>, shown: &Shown<'_>) -> WorkerState {
        let age = |at: Option<Timestamp>| at.map_or(Span::MAX, |at| shown.now.since(at));
        match self.life() {
            Life::Running | Life::Starting if self.is_told() => WorkerState::Draining,
            Life::Running if age(self.since()) < shown.ready_after => WorkerState::Starting,
            Life::Running => WorkerState::Ready,
            Life::Coming | Life::Starting if failed.is_some() => WorkerState::Broken,
            Life::Coming if self.is_unplaced() && age(self.created_at()) >= UNPLACED_AFTER => {
                WorkerState::Broken
            }
            Life::Coming | Life::Starting => WorkerState::Starting,
            Life::Ended if self.status.state == "complete" => WorkerState::Stopped,
            Life::Ended => WorkerState::Broken,
        }
    }

    fn is_unplaced(&self) -> bool {
        self.status.state == "pending" && !self.status.err.is_empty()
    }
}

/// The tasks that stand for workers, with why the one before in the same slot failed: all that are
/// under way, and the last one of a slot that has none.
fn current(tasks: &[Task]) -> Vec<(&Task, Option<String>)> {
    let mut slots: BTreeMap<u64, Vec<&Task>> = BTreeMap::new();
    for task in tasks {
        slots.entry(task.slot).or_default().push(task);
    }
    let mut current = Vec::new();
    for slot in slots.values_mut() {
        slot.sort_by_key(|task| task.created_at());
        let failed = slot.iter().rev().find(|task| task.life() == Life::Ended);
        let failed = failed.filter(|task| task.has_failed()).map(|task| task.err());
        let wanted = |task: &&&Task| task.is_wanted();
        let serves = |task: &Task| task.life() == Life::Running;
        let runs = slot.iter().filter(wanted).any(|task| serves(task));
        // The successor of one that still runs would count its place twice.
        let is_extra = |task: &Task| runs && task.is_wanted() && !serves(task);
        let under_way = |task: &&&Task| match task.life() {
            Life::Ended => false,
            Life::Coming => task.is_wanted(),
            Life::Starting | Life::Running => true,
        };
        let shown = slot.iter().filter(under_way).filter(|task| !is_extra(task));
        current.extend(shown.map(|task| (*task, failed.clone())));
        if !slot.iter().any(|task| task.is_wanted())
            && let Some(last) = slot.last().filter(|task| task.life() == Life::Ended)
            && last.desired_state != "remove"
        {
            current.push((last, failed));
        }
    }
    current
}

/// The look at the fleet.
pub(super) fn seen(tasks: &[Task], shown: &Shown<'_>) -> FleetSeen {
    let mut workers = Vec::new();
    let mut known_as = HashMap::new();
    for (task, failed) in current(tasks) {
        let id = task.id.clone();
        let started_at = if task.life() == Life::Coming { None } else { task.since() };
        let image = &task.spec.container_spec.image;
        workers.push(Worker {
            id: id.clone(),
            state: task.state(failed.as_deref(), shown),
            busy: None,
            started_at: started_at.or_else(|| task.created_at()),
            version: (!image.is_empty()).then(|| image.clone()),
        });
        known_as.insert(id, task.known_as(shown));
    }
    FleetSeen { reading: FleetReading::of(workers), known_as }
}

/// What is wrong with those that should serve and do not.
pub(super) fn troubles(tasks: &[Task], shown: &Shown<'_>) -> Vec<Trouble> {
    let trouble = |(task, failed): (&Task, Option<String>)| {
        let is_broken = task.state(failed.as_deref(), shown) == WorkerState::Broken;
        let may_pass = failed.is_none() && task.is_unplaced();
        let why = failed.unwrap_or_else(|| task.err());
        let says = || format!("{}: {why}", task.called(shown.service));
        is_broken.then(|| Trouble { says: says(), may_pass })
    };
    current(tasks).into_iter().filter_map(trouble).collect()
}

impl Memory {
    /// How many tasks died young since the last look; says so of each slot once.
    pub(super) fn deaths(&mut self, tasks: &[Task], shown: &Shown<'_>) -> u32 {
        let mut died = 0_u32;
        let over = || tasks.iter().filter(|task| task.life() == Life::Ended);
        for task in over().filter(|task| !self.ended.contains(&task.id)) {
            if !self.has_looked || self.told.contains(&task.id) || !task.died_young() {
                continue;
            }
            died = died.saturating_add(1);
            let err = task.err();
            if self.said.get(&task.slot) != Some(&err) {
                let worker = task.called(shown.service);
                tracing::warn!(worker, task = task.id, err, "worker ended by itself");
                self.said.insert(task.slot, err);
            }
        }
        self.ended = over().map(|task| task.id.clone()).collect();
        let told = |task: &&Task| task.is_told() && task.life() != Life::Ended;
        let told: HashSet<String> = tasks.iter().filter(told).map(|t| t.id.clone()).collect();
        self.told.retain(|id| tasks.iter().any(|task| task.id == *id));
        self.told.extend(told);
        self.has_looked = true;
        died
    }
}

fn time(written: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = written.parse().ok()?;
    Some(Timestamp::from_millis(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_767_225_600_000);

    fn shown() -> Shown<'static> {
        Shown { service: "w", own_node: Some("n1"), ready_after: Span::ZERO, now: NOW }
    }

    fn at(seconds_ago: i64) -> String {
        let millis = NOW.plus(Span::from_secs(-seconds_ago)).as_millis();
        jiff::Timestamp::from_millisecond(millis).unwrap().to_string()
    }

    fn task(id: &str, slot: u64, desired: &str, state: &str, ages: (i64, i64)) -> Task {
        Task {
            id: id.into(),
            slot,
            desired_state: desired.into(),
            created_at: at(ages.0),
            status: Status { state: state.into(), timestamp: at(ages.1), ..Status::default() },
            ..Task::default()
        }
    }

    fn states(tasks: &[Task]) -> Vec<(String, WorkerState)> {
        let seen = seen(tasks, &shown());
        seen.reading.workers.into_iter().map(|w| (w.id, w.state)).collect()
    }

    #[test]
    fn each_task_has_one_state() {
        use WorkerState::{Broken, Draining, Ready, Starting, Stopped};
        let cases = [
            ("running", "running", Some(Ready)),
            ("running", "starting", Some(Starting)),
            ("running", "preparing", Some(Starting)),
            ("running", "pending", Some(Starting)),
            ("ready", "ready", Some(Starting)),
            ("remove", "running", Some(Draining)),
            ("shutdown", "running", Some(Draining)),
            ("shutdown", "starting", Some(Draining)),
            ("remove", "pending", None),
            ("remove", "shutdown", None),
            ("shutdown", "failed", Some(Broken)),
            ("shutdown", "rejected", Some(Broken)),
            ("shutdown", "complete", Some(Stopped)),
            ("running", "orphaned", Some(Broken)),
        ];
        for (desired, state, expected) in cases {
            let seen = states(&[task("a", 1, desired, state, (100, 50))]);
            let expected: Vec<_> =
                expected.map(|state| ("a".to_owned(), state)).into_iter().collect();
            assert_eq!(seen, expected, "{desired} {state}");
        }
    }

    #[test]
    fn a_slot_that_crashes_again_and_again_is_broken_until_it_runs() {
        let crashed = task("a", 1, "shutdown", "failed", (20, 15));
        let next = |state| task("b", 1, "ready", state, (15, 15));
        let waits = states(&[next("ready"), crashed.clone()]);
        assert_eq!(waits, [("b".to_owned(), WorkerState::Broken)]);
        let runs = states(&[crashed.clone(), next("running")]);
        assert_eq!(runs, [("b".to_owned(), WorkerState::Ready)]);
        let told = troubles(
            &[
                Task { status: Status { err: "exit 3".into(), ..crashed.status }, ..crashed },
                next("ready"),
            ],
            &shown(),
        );
        let says = "w.1: failed: exit 3".into();
        assert_eq!(told, [Trouble { says, may_pass: false }]);
    }

    #[test]
    fn a_place_counts_once_while_a_successor_starts_first() {
        let old = task("a", 1, "running", "running", (900, 890));
        let new = task("b", 1, "running", "starting", (5, 2));
        assert_eq!(states(&[old, new.clone()]), [("a".to_owned(), WorkerState::Ready)]);
        let leaves = task("a", 1, "shutdown", "running", (900, 890));
        let both = states(&[leaves, new]);
        let expected =
            [("a".to_owned(), WorkerState::Draining), ("b".to_owned(), WorkerState::Starting)];
        assert_eq!(both, expected);
    }

    #[test]
    fn a_task_that_no_node_takes_is_broken_after_a_while() {
        let mut waits = task("a", 1, "running", "pending", (30, 30));
        waits.status.err = "no suitable node".into();
        assert_eq!(states(&[waits.clone()])[0].1, WorkerState::Starting);
        waits.created_at = at(60);
        assert_eq!(states(&[waits.clone()])[0].1, WorkerState::Broken);
        let says = "w.1: pending: no suitable node".into();
        assert_eq!(troubles(&[waits], &shown()), [Trouble { says, may_pass: true }]);
    }

    #[test]
    fn deaths_count_once_and_only_young_ones_that_nobody_told_to_go() {
        let mut memory = Memory::default();
        let running = |id| task(id, 1, "running", "running", (10, 9));
        let failed = |id, ages| task(id, 1, "shutdown", "failed", ages);
        let mut died = |tasks: &[Task]| memory.deaths(tasks, &shown());
        assert_eq!(died(&[failed("old", (50, 40))]), 0, "it was there before");
        assert_eq!(died(&[failed("old", (50, 40)), running("a")]), 0);
        assert_eq!(died(&[failed("a", (10, 2)), running("b")]), 1);
        assert_eq!(died(&[failed("a", (10, 2)), running("b")]), 0);
        assert_eq!(died(&[failed("b", (900, 2)), running("c")]), 0, "it lived long");
        assert_eq!(died(&[task("c", 1, "shutdown", "running", (9, 8))]), 0);
        assert_eq!(died(&[failed("c", (9, 1))]), 0, "it was told to go");
    }

    #[test]
    fn a_task_has_the_names_that_a_queue_may_know_it_by() {
        let mut task = task("t1", 2, "running", "running", (9, 9));
        task.node = "n1".into();
        task.networks_attachments = vec![Attachment { addresses: vec!["10.0.1.3/24".into()] }];
        let container = ContainerStatus { id: "0123456789abcdef".into(), pid: 7 };
        task.status.container_status = Some(container);
        let named = |name: &str| Identity::Hostname(name.to_owned());
        let ip: IpAddr = [10, 0, 1, 3].into();
        let expected = [
            Identity::Container("0123456789abcdef".into()),
            named("w.2.t1"),
            named("0123456789ab"),
            Identity::Peer((ip, 0).into()),
            Identity::Process(7),
        ];
        assert_eq!(task.known_as(&shown()), expected);
        for (written, expected) in [
            ("{{.Service.Name}}-{{ .Task.Slot }}", Some("w-2")),
            ("{{.Task.Name}}", Some("w.2.t1")),
            ("{{.Node.Hostname}}-{{.Task.Slot}}", None),
            ("same", None),
        ] {
            task.spec.container_spec.hostname = written.into();
            assert_eq!(task.hostname("w").as_deref(), expected, "{written}");
        }
        let elsewhere = Shown { own_node: Some("n2"), ..shown() };
        assert!(!task.known_as(&elsewhere).contains(&Identity::Process(7)));
    }

    #[test]
    fn a_task_is_read_as_the_engine_writes_it() {
        let text = r#"{"ID":"t","Version":{"Index":17},"CreatedAt":"2026-01-01T00:00:00.45Z",
            "Spec":{"ContainerSpec":{"Image":"bb:1","Init":false},"ForceUpdate":0},
            "ServiceID":"s","Slot":1,"NodeID":"n","Status":{"Timestamp":"2026-01-01T00:00:01Z",
            "State":"running","Message":"started","ContainerStatus":{"ContainerID":"c","PID":17,
            "ExitCode":0},"PortStatus":{}},"DesiredState":"running"}"#;
        let task: Task = serde_json::from_str(text).unwrap();
        assert_eq!((task.life(), task.spec.container_spec.image.as_str()), (Life::Running, "bb:1"));
        assert_eq!(task.since(), Some(Timestamp::from_millis(1_767_225_601_000)));
    }
}
