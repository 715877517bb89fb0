//! What the allocations of a group are: workers, workers that leave, places that are held by what
//! takes no jobs. And whom Nomad removes if the count is lowered. Pure.
//!
//! What is documented: a lowered count stops allocations, a stopped allocation gets a successor.
//! Whom a lowered count takes is not documented. As its source has it, Nomad's scheduler
//! (`computeStop` of its reconciler) takes allocations that were told to migrate, which is what a stop
//! does, and then those whose names have the highest index, also where such a name belongs to a dead
//! one.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use headcount_core::reading::{Worker, WorkerState};
use headcount_core::{FleetReading, Span, Timestamp};

use crate::queues::Identity;
use crate::targets::FleetSeen;
use crate::targets::nomad::api::{Allocation, Details, TaskEvent, TaskState};

/// A worker that ends by itself within this time after its start died young.
const YOUNG: Span = Span::from_secs(60);

/// What an allocation is to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Has a place, and does not run yet.
    Starts,
    /// Takes jobs.
    Serves,
    /// Runs, or would, but takes no jobs: unhealthy, restarting, out of sight.
    Unfit,
    /// Ended and keeps its place until Nomad gives it a successor, if ever.
    Dead {
        /// Nomad will, after a while.
        comes_again: bool,
    },
    /// Was told to go.
    Leaves,
    /// Has no place any more.
    Gone,
}

/// What an allocation is to the target.
pub(super) fn role(alloc: &Allocation, is_batch: bool) -> Role {
    let ended = matches!(alloc.client_status.as_str(), "complete" | "failed" | "lost");
    if alloc.desired_status != "run" {
        return if ended { Role::Gone } else { Role::Leaves };
    }
    match alloc.client_status.as_str() {
        _ if ended && !alloc.next_allocation.is_empty() => Role::Gone,
        "failed" => Role::Dead { comes_again: !alloc.followup_eval_id.is_empty() },
        // Nomad starts another at once; one of a batch job is done and keeps its place.
        "complete" if is_batch => Role::Dead { comes_again: false },
        "complete" | "lost" => Role::Gone,
        "unknown" => Role::Unfit,
        _ if is_restarting(alloc) => Role::Unfit,
        "running" => match &alloc.deployment_status {
            Some(status) if status.healthy == Some(false) => Role::Unfit,
            Some(status) if status.healthy.is_none() => Role::Starts,
            _ => Role::Serves,
        },
        _ => Role::Starts,
    }
}

/// Whether a task crashed and waits for its next start.
fn is_restarting(alloc: &Allocation) -> bool {
    tasks(alloc).any(|task| task.state == "pending" && task.restarts > 0)
}

/// Why an allocation takes no jobs, in the words of its latest event that says so.
pub(super) fn trouble(alloc: &Allocation) -> String {
    let says = |event: &&TaskEvent| {
        event.fails_task
            || matches!(
                event.kind.as_str(),
                "Terminated"
                    | "Driver Failure"
                    | "Setup Failure"
                    | "Failed Validation"
                    | "Failed Artifact Download"
                    | "Not Restarting"
                    | "Alloc Unhealthy"
            )
    };
    let mut latest = tasks(alloc).filter_map(|task| task.events.iter().flatten().rfind(says));
    match latest.next() {
        Some(event) if !event.display_message.is_empty() => event.display_message.clone(),
        Some(event) => event.kind.clone(),
        None if !alloc.client_description.is_empty() => alloc.client_description.clone(),
        None => alloc.client_status.clone(),
    }
}

/// What is worth telling between two looks.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Ends of tasks by allocation; absent before the first look.
    ends: Option<HashMap<String, u64>>,
}

impl Memory {
    /// How many workers died young since the last look, and those to tell of, each once.
    pub(super) fn deaths<'a>(&mut self, allocs: &'a [Allocation]) -> (u32, Vec<&'a Allocation>) {
        let ends: HashMap<String, u64> =
            allocs.iter().map(|alloc| (alloc.id.clone(), count_ends(alloc))).collect();
        let Some(before) = self.ends.replace(ends) else { return (0, Vec::new()) };
        let mut died = 0;
        let mut told = Vec::new();
        for alloc in allocs.iter().filter(|alloc| alloc.desired_status == "run") {
            let old = before.get(&alloc.id).copied().unwrap_or(0);
            if count_ends(alloc) > old && lived(alloc).is_none_or(|lived| lived < YOUNG) {
                died += 1;
                if old == 0 {
                    told.push(alloc);
                }
            }
        }
        (died, told)
    }
}

fn count_ends(alloc: &Allocation) -> u64 {
    let restarts = tasks(alloc).map(|task| task.restarts).fold(0, u64::saturating_add);
    restarts.saturating_add(u64::from(alloc.client_status == "failed"))
}

/// How long the task that ended last had run; `None` where that is not told.
fn lived(alloc: &Allocation) -> Option<Span> {
    let spans = tasks(alloc).filter_map(|task| {
        let (start, end) = (time(task.started_at.as_deref())?, time(task.finished_at.as_deref())?);
        (end >= start).then(|| end.since(start))
    });
    spans.min()
}

/// The places that are held beside the workers that serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    /// Ready and starting workers.
    pub(super) serving: u32,
    /// Held by what takes no jobs now, and may again: unhealthy, restarting, out of sight.
    pub(super) unfit: u32,
    /// Held by what ended and will not be replaced.
    pub(super) dead: u32,
    /// Held by what ended and will be replaced after a while.
    pub(super) awaited: u32,
}

impl Places {
    pub(super) fn of(allocs: &[Allocation], is_batch: bool) -> Self {
        let mut places = Self::default();
        for alloc in allocs {
            match role(alloc, is_batch) {
                Role::Starts | Role::Serves => places.serving += 1,
                Role::Unfit => places.unfit += 1,
                Role::Dead { comes_again: false } => places.dead += 1,
                Role::Dead { comes_again: true } => places.awaited += 1,
                Role::Leaves | Role::Gone => {}
            }
        }
        places
    }

    /// Places of those that take no jobs.
    fn lost(self) -> u32 {
        self.unfit.saturating_add(self.dead)
    }

    /// The count with which Nomad adds as many as are missing to `to`. Those that take no jobs now
    /// may take some again: together with them it stays at `max`.
    pub(super) fn count_to_grow(self, to: u32, max: u32) -> u32 {
        let with_unfit = to.saturating_add(self.unfit).min(max.max(to));
        with_unfit.saturating_add(self.dead)
    }

    /// The count with which Nomad removes as many as are too many for `to`, and no more: it counts
    /// dead ones too, but stops only living ones. It is not above `count`, the one that is set, less
    /// those that go: Nomad may have replaced some already that are out of sight.
    pub(super) fn count_to_shrink(self, to: u32, count: u32) -> u32 {
        let held = to.saturating_add(self.lost()).saturating_add(self.awaited);
        held.min(count.saturating_sub(self.serving.saturating_sub(to))).max(to)
    }

    /// The number of workers that a count aims at.
    pub(super) fn aim(self, count: u32) -> u32 {
        count.saturating_sub(self.lost())
    }
}

/// Whom Nomad removes if the count goes down by `n`; `None` where that is not certain.
pub(super) fn first_to_go(allocs: &[Allocation], is_batch: bool, n: usize) -> Option<Vec<&str>> {
    let mut held = Vec::new();
    for alloc in allocs {
        match role(alloc, is_batch) {
            Role::Leaves | Role::Gone => {}
            role => held.push((index(&alloc.name)?, role, alloc.id.as_str())),
        }
    }
    held.sort_by_key(|(index, ..)| Reverse(*index));
    // Two of one index at the border: either may go. A dead one: somebody else goes in its place.
    let at_border = |pair: &[(u32, Role, &str)]| pair[0].0 == pair[1].0;
    let twins = held.windows(2).take(n).any(at_border);
    let going = held.get(..n)?;
    let dead = going.iter().any(|(_, role, _)| matches!(role, Role::Dead { .. } | Role::Unfit));
    (!twins && !dead).then(|| going.iter().map(|(.., id)| *id).collect())
}

/// The number in `job.group[7]`.
fn index(name: &str) -> Option<u32> {
    name.strip_suffix(']')?.rsplit_once('[')?.1.parse().ok()
}

/// The look at the fleet: `count` as the job has it, `networks` by allocation.
pub(super) fn seen(
    allocs: &[Allocation],
    is_batch: bool,
    count: u32,
    died: u32,
    networks: &HashMap<String, Names>,
) -> FleetSeen {
    let roles: Vec<(&Allocation, Role)> = allocs
        .iter()
        .map(|alloc| (alloc, role(alloc, is_batch)))
        .filter(|(_, role)| *role != Role::Gone)
        .collect();
    let mut nodes: HashMap<&str, u32> = HashMap::new();
    let mut shared: HashMap<&Identity, u32> = HashMap::new();
    for (alloc, _) in &roles {
        *nodes.entry(&alloc.node_name).or_default() += 1;
        for name in networks.get(&alloc.id).into_iter().flatten() {
            *shared.entry(name).or_default() += 1;
        }
    }
    let mut workers = Vec::new();
    let mut known_as = HashMap::new();
    for (alloc, role) in roles {
        let id = alloc.id.clone();
        let state = match role {
            Role::Starts => WorkerState::Starting,
            Role::Serves => WorkerState::Ready,
            Role::Unfit | Role::Dead { .. } => WorkerState::Broken,
            Role::Leaves | Role::Gone => WorkerState::Draining,
        };
        let short = id.get(..8).unwrap_or(&id);
        let mut names = vec![Identity::Name(id.clone()), Identity::Name(alloc.name.clone())];
        for name in [&*id, short, &*alloc.name] {
            names.push(Identity::Hostname(name.to_owned()));
        }
        names.push(Identity::Name(short.to_owned()));
        // What several share tells nobody apart.
        if !alloc.node_name.is_empty() && nodes.get(&*alloc.node_name) == Some(&1) {
            names.push(Identity::Hostname(alloc.node_name.clone()));
        }
        let own = networks.get(&alloc.id).into_iter().flatten();
        names.extend(own.filter(|name| shared.get(name) == Some(&1)).cloned());
        workers.push(Worker {
            id: id.clone(),
            state,
            busy: None,
            started_at: started_at(alloc),
            version: Some(alloc.job_version.to_string()),
        });
        known_as.insert(id, names);
    }
    let mut reading = FleetReading::of(workers);
    reading.died = died;
    reading.desired = Some(Places::of(allocs, is_batch).aim(count));
    FleetSeen { reading, known_as }
}

/// Other names of an allocation.
pub(super) type Names = Vec<Identity>;

/// The names that an allocation's network gives it.
pub(super) fn names(details: &Details) -> Names {
    let resources = details.allocated_resources.as_ref();
    let networks = || resources.into_iter().flat_map(|r| r.shared.networks.iter().flatten());
    let own = details.network_status.as_ref().map(|status| status.address.as_str());
    let addresses = own.into_iter().chain(networks().map(|network| network.ip.as_str()));
    let addresses = addresses.filter_map(|text| text.parse::<IpAddr>().ok());
    // A task sees the loopback of its node: everybody's.
    let addresses = addresses.filter(|ip| !ip.is_loopback());
    let mut names: Names = addresses.map(|ip| Identity::Peer(SocketAddr::new(ip, 0))).collect();
    let hostnames = networks().map(|network| &network.hostname).filter(|name| !name.is_empty());
    names.extend(hostnames.map(|name| Identity::Hostname(name.clone())));
    names.dedup();
    names
}

fn started_at(alloc: &Allocation) -> Option<Timestamp> {
    let started = tasks(alloc).filter_map(|task| time(task.started_at.as_deref())).max();
    let created = || (alloc.create_time > 0).then_some(alloc.create_time / 1_000_000);
    started.or_else(|| created().map(Timestamp::from_millis))
}

fn tasks(alloc: &Allocation) -> impl Iterator<Item = &TaskState> {
    alloc.task_states.iter().flat_map(|tasks| tasks.values())
}

/// A time as Nomad writes it; the year 1 means never.
fn time(written: Option<&str>) -> Option<Timestamp> {
    let at: jiff::Timestamp = written?.parse().ok()?;
    (at > jiff::Timestamp::UNIX_EPOCH).then(|| Timestamp::from_millis(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An allocation with what the list says of it.
    fn alloc(index: u32, desired: &str, client: &str) -> Allocation {
        Allocation {
            id: format!("{index:08x}-aaaa-bbbb-cccc-dddddddddddd"),
            name: format!("web.work[{index}]"),
            desired_status: desired.into(),
            client_status: client.into(),
            ..Allocation::default()
        }
    }

    fn with(alloc: Allocation, more: serde_json::Value) -> Allocation {
        let more: Allocation = serde_json::from_value(more).unwrap();
        Allocation {
            deployment_status: more.deployment_status,
            task_states: more.task_states,
            next_allocation: more.next_allocation,
            followup_eval_id: more.followup_eval_id,
            ..alloc
        }
    }

    #[test]
    fn each_allocation_has_one_role() {
        let running = |more| with(alloc(0, "run", "running"), more);
        let failed = |more| with(alloc(0, "run", "failed"), more);
        let task = |state: &str, restarts: u64| json!({ "TaskStates": { "t": { "State": state, "Restarts": restarts } } });
        let health = |healthy: Option<bool>| json!({ "DeploymentStatus": { "Healthy": healthy } });
        let cases = [
            (alloc(0, "run", "pending"), Role::Starts),
            (alloc(0, "run", "running"), Role::Serves),
            (running(health(Some(true))), Role::Serves),
            (running(health(None)), Role::Starts),
            (running(health(Some(false))), Role::Unfit),
            (running(task("running", 3)), Role::Serves),
            (running(task("pending", 3)), Role::Unfit),
            (with(alloc(0, "run", "pending"), task("pending", 1)), Role::Unfit),
            (with(alloc(0, "run", "pending"), task("pending", 0)), Role::Starts),
            (failed(json!({})), Role::Dead { comes_again: false }),
            (failed(json!({ "FollowupEvalID": "e" })), Role::Dead { comes_again: true }),
            (failed(json!({ "NextAllocation": "a" })), Role::Gone),
            (alloc(0, "run", "lost"), Role::Gone),
            (alloc(0, "run", "complete"), Role::Gone),
            (alloc(0, "run", "unknown"), Role::Unfit),
            (alloc(0, "stop", "running"), Role::Leaves),
            (alloc(0, "stop", "pending"), Role::Leaves),
            (alloc(0, "stop", "complete"), Role::Gone),
            (alloc(0, "evict", "running"), Role::Leaves),
            (alloc(0, "evict", "failed"), Role::Gone),
        ];
        for (alloc, expected) in cases {
            assert_eq!(role(&alloc, false), expected, "{alloc:?}");
        }
        assert_eq!(role(&alloc(0, "run", "complete"), true), Role::Dead { comes_again: false });
    }

    #[test]
    fn a_count_holds_the_places_of_those_that_take_no_jobs() {
        let unfit =
            with(alloc(2, "run", "running"), json!({ "DeploymentStatus": { "Healthy": false } }));
        let awaited = with(alloc(3, "run", "failed"), json!({ "FollowupEvalID": "e" }));
        let all = [
            alloc(0, "run", "running"),
            alloc(1, "run", "pending"),
            unfit,
            awaited,
            alloc(4, "stop", "running"),
            alloc(5, "run", "failed"),
        ];
        let places = Places::of(&all, false);
        assert_eq!(places, Places { serving: 2, unfit: 1, dead: 1, awaited: 1 });
        assert_eq!(places.count_to_grow(3, 9), 5, "the one that comes again is one of the three");
        assert_eq!(
            places.count_to_shrink(1, 5),
            4,
            "two of five places that live are one too many"
        );
        assert_eq!(places.aim(5), 3);
    }

    #[test]
    fn those_that_may_come_back_and_new_ones_are_never_more_than_the_most() {
        let of = |serving: u32, unfit: u32, dead: u32| Places { serving, unfit, dead, awaited: 0 };
        // places, to, max, expected
        let table = [
            (of(4, 1, 0), 5, 5, 5),
            (of(0, 5, 0), 2, 5, 5),
            (of(0, 5, 0), 2, 6, 6),
            (of(0, 5, 0), 2, 20, 7),
            (of(4, 0, 2), 5, 5, 7),
            (of(3, 1, 2), 5, 5, 7),
            (of(7, 1, 0), 8, 5, 8),
        ];
        for (places, to, max, expected) in table {
            assert_eq!(places.count_to_grow(to, max), expected, "{places:?} to {to} of {max}");
        }
        let replaced = of(5, 5, 0);
        assert_eq!(replaced.count_to_shrink(4, 5), 4, "and a shrink is one");
        assert_eq!(of(5, 0, 0).count_to_shrink(4, 9), 4, "also where some have no room");
        assert_eq!(of(5, 0, 0).count_to_shrink(4, 1), 4, "and never goes below what was decided");
    }

    #[test]
    fn nomad_takes_the_highest_numbers_unless_a_dead_or_a_twin_is_among_them() {
        let of = |indices: &[u32]| {
            indices.iter().map(|index| alloc(*index, "run", "running")).collect::<Vec<_>>()
        };
        let first = |allocs: &[Allocation], n| {
            let going = first_to_go(allocs, false, n)?;
            Some(going.iter().map(|id| id[..8].parse::<u32>().unwrap()).collect::<Vec<_>>())
        };
        assert_eq!(first(&of(&[0, 2, 1, 3]), 2), Some(vec![3, 2]));
        assert_eq!(first(&of(&[0, 1]), 0), Some(vec![]));
        assert_eq!(first(&of(&[0, 1]), 3), None);
        assert_eq!(first(&of(&[0, 1, 1]), 1), None, "either of the twins may go");
        assert_eq!(first(&of(&[0, 0, 1]), 1), Some(vec![1]), "twins that stay do not matter");
        let mut allocs = of(&[0, 1]);
        allocs.push(alloc(2, "run", "failed"));
        assert_eq!(first(&allocs, 1), None, "its name is taken, and somebody else goes");
        allocs[2] = alloc(2, "stop", "running");
        assert_eq!(first(&allocs, 1), Some(vec![1]), "one that leaves does not count");
        allocs[0].name = "odd".into();
        assert_eq!(first(&allocs, 1), None);
    }

    #[test]
    fn the_latest_event_that_says_why_is_told() {
        let failed = with(
            alloc(0, "run", "failed"),
            json!({ "TaskStates": { "t": { "State": "dead", "Failed": true, "Events": [
                { "Type": "Started", "DisplayMessage": "Task started by client" },
                { "Type": "Terminated", "DisplayMessage": "Exit Code: 137" },
                { "Type": "Killing", "DisplayMessage": "Sent interrupt" },
            ] } } }),
        );
        assert_eq!(trouble(&failed), "Exit Code: 137");
        let silent = Allocation {
            client_description: "no tasks have started".into(),
            ..alloc(0, "run", "failed")
        };
        assert_eq!(trouble(&silent), "no tasks have started");
        assert_eq!(trouble(&alloc(0, "run", "lost")), "lost");
    }

    #[test]
    fn a_death_counts_once_and_only_soon_after_the_start() {
        let task = |restarts: u64, end: &str| {
            let states = json!({ "TaskStates": { "t": { "State": "running", "Restarts": restarts,
                "StartedAt": "2026-11-30T10:00:00Z", "FinishedAt": end } } });
            vec![with(alloc(0, "run", "running"), states)]
        };
        let (soon, late) = ("2026-11-30T10:00:03Z", "2026-11-30T11:00:00Z");
        let mut memory = Memory::default();
        let mut died = |allocs: Vec<Allocation>| {
            let (died, told) = memory.deaths(&allocs);
            (died, told.len())
        };
        assert_eq!(died(task(5, soon)), (0, 0), "nothing is known before the first look");
        assert_eq!(died(task(5, soon)), (0, 0));
        assert_eq!(died(task(6, soon)), (1, 0), "it is no news");
        assert_eq!(died(task(7, late)), (0, 0));
        assert_eq!(died(vec![alloc(1, "run", "failed")]), (1, 1));
        assert_eq!(died(vec![alloc(1, "run", "failed")]), (0, 0));
    }

    #[test]
    fn what_several_share_tells_nobody_apart() {
        let on = |index, node: &str| Allocation {
            node_name: node.into(),
            ..alloc(index, "run", "running")
        };
        let allocs = [on(0, "big"), on(1, "big"), on(2, "small")];
        let address = |text: &str| Identity::Peer(SocketAddr::new(text.parse().unwrap(), 0));
        let networks = [(0, "10.0.0.1"), (1, "10.0.0.1"), (2, "10.0.0.2")];
        let networks =
            networks.map(|(i, ip): (usize, &str)| (allocs[i].id.clone(), vec![address(ip)])).into();
        let seen = seen(&allocs, false, 3, 0, &networks);
        let of = |i: usize| &seen.known_as[&allocs[i].id];
        assert!(!of(0).contains(&Identity::Hostname("big".into())));
        assert!(of(2).contains(&Identity::Hostname("small".into())));
        assert!(!of(1).contains(&address("10.0.0.1")) && of(2).contains(&address("10.0.0.2")));
        assert!(of(0).contains(&Identity::Hostname("00000000".into())));
        assert!(of(0).contains(&Identity::Name("web.work[0]".into())));
        assert_eq!(seen.reading.desired, Some(3));
    }

    #[test]
    fn the_network_gives_names() {
        let details: Details = serde_json::from_value(json!({
            "NetworkStatus": { "Address": "172.26.64.7" },
            "AllocatedResources": { "Shared": { "Networks": [
                { "IP": "127.0.0.1" }, { "IP": "10.1.2.3", "Hostname": "w1" } ] } },
        }))
        .unwrap();
        let address = |text: &str| Identity::Peer(SocketAddr::new(text.parse().unwrap(), 0));
        let expected =
            [address("172.26.64.7"), address("10.1.2.3"), Identity::Hostname("w1".into())];
        assert_eq!(names(&details), expected);
    }
}
