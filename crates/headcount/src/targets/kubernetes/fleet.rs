//! What the pods are as workers. Pods that terminate are leaving; so are those that are more than the
//! number asked for, before anybody has told them. Places without a pod are starting. Pure.

use std::collections::HashMap;
use std::net::SocketAddr;

use headcount_core::reading::{Worker, WorkerState};
use headcount_core::{FleetReading, Span, Timestamp};

use crate::queues::Identity;
use crate::targets::FleetSeen;
use crate::targets::kubernetes::config::Kind;
use crate::targets::kubernetes::deletion_cost::{ordinal, rank};
use crate::targets::kubernetes::pods::{Phase, Pod};
use crate::targets::kubernetes::workload::Workload;

/// A pod that is not ready for this long takes no jobs. A Deployment gives up after as long.
const READY_WITHIN: Span = Span::from_mins(10);
/// A worker that ends by itself within this time after its start died young.
const YOUNG: Span = Span::from_secs(60);

/// How a look is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown<'a> {
    pub(super) kind: &'a Kind,
    pub(super) unschedulable_after: Span,
    pub(super) now: Timestamp,
}

/// What is remembered of pods from one look to the next.
#[derive(Debug, Default)]
pub(super) struct Memory {
    has_looked: bool,
    /// How often each was started again, by uid.
    restarts: HashMap<String, i32>,
    /// Why each takes no jobs, as far as it was told.
    told: HashMap<String, String>,
}

impl Memory {
    /// How many pods died young since the last look.
    pub(super) fn deaths(&mut self, pods: &[Pod]) -> u32 {
        let has_looked = std::mem::replace(&mut self.has_looked, true);
        let died = |pod: &&Pod| {
            let before = self.restarts.get(&pod.uid).copied().unwrap_or(0);
            pod.restarts > before && pod.lived.is_none_or(|lived| lived < YOUNG)
        };
        let count = pods.iter().filter(|_| has_looked).filter(died).count();
        self.restarts = pods.iter().map(|pod| (pod.uid.clone(), pod.restarts)).collect();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Says of each pod that takes no jobs why, once.
    pub(super) fn tell(&mut self, pods: &[Pod], shown: &Shown<'_>) {
        let broken = |pod: &Pod| trouble(pod, shown).map(|why| (pod.uid.clone(), why));
        let now: HashMap<String, String> = pods.iter().filter_map(broken).collect();
        for pod in pods {
            let Some(why) = now.get(&pod.uid) else { continue };
            if self.told.get(&pod.uid).is_none_or(|told| kind_of(told) != kind_of(why)) {
                tracing::warn!(worker = pod.name, "takes no jobs: {why}");
            }
        }
        self.told = now;
    }
}

/// The reason without its details, which change.
fn kind_of(why: &str) -> &str {
    why.split([':', ' ']).next().unwrap_or(why)
}

/// Why a pod takes no jobs and will hardly do so soon.
pub(super) fn trouble(pod: &Pod, shown: &Shown<'_>) -> Option<String> {
    if pod.deleting {
        return None;
    }
    let passed = |at: Option<Timestamp>| at.map_or(Span::ZERO, |at| shown.now.since(at));
    match pod.phase {
        Phase::Failed if pod.is_running() => {
            return Some("Failed: its node is gone, or does not answer".into());
        }
        Phase::Failed | Phase::Succeeded => return None,
        Phase::Unknown => return Some("Unknown: its node does not answer".into()),
        Phase::Pending | Phase::Running => {}
    }
    if let Some(why) = &pod.stuck {
        return Some(why.clone());
    }
    if let Some((why, since)) = &pod.unschedulable {
        let waited = passed(since.or(pod.created_at));
        return (waited >= shown.unschedulable_after).then(|| why.clone());
    }
    let unready = passed(pod.ready_since.or(pod.created_at));
    (!pod.ready && unready >= READY_WITHIN).then(|| format!("NotReady for {unready:#}"))
}

fn state(pod: &Pod, leaves: bool, shown: &Shown<'_>) -> WorkerState {
    match pod.phase {
        Phase::Succeeded => WorkerState::Stopped,
        // What was evicted stays as a record; its place is another pod's.
        Phase::Failed if pod.deleting || !pod.is_running() => WorkerState::Stopped,
        _ if pod.deleting || leaves => WorkerState::Draining,
        _ if trouble(pod, shown).is_some() => WorkerState::Broken,
        _ if pod.ready => WorkerState::Ready,
        _ => WorkerState::Starting,
    }
}

/// The active pods in the order in which the controller deletes them, at the costs that `cost` tells.
pub(super) fn in_order<'a>(
    pods: &'a [Pod],
    kind: &Kind,
    cost: impl Fn(&Pod) -> i32,
) -> Vec<&'a Pod> {
    let mut active: Vec<&Pod> = pods.iter().filter(|pod| pod.is_active()).collect();
    match kind {
        Kind::StatefulSet => active.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod))),
        _ => rank(&mut active, cost),
    }
    active
}

/// The look at the fleet, with its pods one by one.
pub(super) fn seen(workload: &Workload, pods: &[Pod], died: u32, shown: &Shown<'_>) -> FleetSeen {
    let mut order = in_order(pods, shown.kind, |pod| pod.cost);
    let active = u32::try_from(order.len()).unwrap_or(u32::MAX);
    // During a rollout the old ones go.
    if *shown.kind != Kind::StatefulSet {
        let newest = order.iter().max_by_key(|pod| pod.created_at).and_then(|pod| pod.revision());
        order.sort_by_key(|pod| pod.revision() == newest);
    }
    let excess = active.saturating_sub(workload.desired) as usize;
    let leaving: Vec<&str> = order.iter().take(excess).map(|pod| pod.uid.as_str()).collect();
    let (mut workers, mut known_as) = (Vec::new(), HashMap::new());
    for pod in pods {
        let state = state(pod, leaving.contains(&pod.uid.as_str()), shown);
        workers.push(Worker {
            id: pod.name.clone(),
            state,
            busy: None,
            started_at: pod.started_at.or(pod.created_at),
            version: pod.revision().map(str::to_owned),
        });
        known_as.insert(pod.name.clone(), names(pod));
    }
    let mut reading = FleetReading::of(workers);
    (reading.died, reading.desired) = (died, Some(workload.desired));
    let missing = workload.desired.saturating_sub(active);
    match workload.failure {
        Some(_) => reading.broken = reading.broken.saturating_add(missing),
        None => reading.starting = reading.starting.saturating_add(missing),
    }
    FleetSeen { reading, known_as }
}

fn names(pod: &Pod) -> Vec<Identity> {
    let mut names = vec![Identity::Name(pod.name.clone())];
    names.extend(pod.hostname.clone().map(Identity::Hostname));
    names.extend(pod.addresses.iter().map(|ip| Identity::Peer(SocketAddr::new(*ip, 0))));
    names.extend(pod.containers.iter().cloned().map(Identity::Container));
    names
}

/// The look at a fleet whose pods cannot be listed: only its numbers. Its status may lag behind, so
/// that the number asked for has the last word.
pub(super) fn counted(workload: &Workload) -> FleetReading {
    let Workload { desired, replicas, ready, terminating, .. } = *workload;
    let ready = ready.unwrap_or(replicas).min(desired);
    let missing = if workload.failure.is_some() { desired.saturating_sub(replicas) } else { 0 };
    FleetReading {
        ready,
        starting: desired.saturating_sub(ready).saturating_sub(missing),
        draining: terminating.saturating_add(replicas.saturating_sub(desired)),
        broken: missing,
        desired: Some(desired),
        ..FleetReading::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);

    fn shown(kind: &Kind) -> Shown<'_> {
        Shown { kind, unschedulable_after: Span::from_mins(3), now: NOW }
    }

    fn pod(name: &str) -> Pod {
        Pod {
            name: name.into(),
            uid: format!("uid-{name}"),
            phase: Phase::Running,
            scheduled: true,
            ready: true,
            ready_since: Some(NOW),
            created_at: Some(NOW),
            ..Pod::default()
        }
    }

    fn ago(minutes: i64) -> Option<Timestamp> {
        Some(NOW.plus(Span::from_mins(-minutes)))
    }

    #[test]
    fn each_pod_has_one_state() {
        let bad = |reason: &str| Some(format!("{reason}: x"));
        let nowhere = |since| Some(("Unschedulable: 0/3 nodes".to_owned(), since));
        let starting = Pod { ready: false, ..pod("a") };
        let pending = Pod { phase: Phase::Pending, ..starting.clone() };
        let failed = Pod { phase: Phase::Failed, ready: false, ..pod("a") };
        use WorkerState::{Broken, Draining, Ready, Starting, Stopped};
        let table = [
            ("ready", pod("a"), Ready),
            ("starting", starting.clone(), Starting),
            (
                "terminating pods stay Running and Ready",
                Pod { deleting: true, ..pod("a") },
                Draining,
            ),
            ("crashes", Pod { stuck: bad("CrashLoopBackOff"), ..starting.clone() }, Broken),
            ("no image", Pod { stuck: bad("ImagePullBackOff"), ..pending.clone() }, Broken),
            ("no node yet", Pod { unschedulable: nowhere(ago(2)), ..pending.clone() }, Starting),
            ("no node", Pod { unschedulable: nowhere(ago(3)), ..pending.clone() }, Broken),
            ("never ready", Pod { ready_since: ago(10), ..starting.clone() }, Broken),
            ("node lost", Pod { phase: Phase::Unknown, ..pod("a") }, Broken),
            ("evicted", failed.clone(), Stopped),
            ("node gone", Pod { started_at: ago(9), ..failed.clone() }, Broken),
            ("evicted and going", Pod { deleting: true, ..failed }, Stopped),
            ("ended", Pod { phase: Phase::Succeeded, ..pod("a") }, Stopped),
        ];
        let kind = Kind::Deployment;
        for (name, pod, expected) in table {
            assert_eq!(state(&pod, false, &shown(&kind)), expected, "{name}");
            assert_eq!(trouble(&pod, &shown(&kind)).is_some(), expected == Broken, "{name}");
        }
    }

    #[test]
    fn the_number_asked_for_is_the_most_that_counts() {
        let six: Vec<Pod> = ["a", "b", "c", "d", "e", "f"].map(pod).into();
        let kind = Kind::Deployment;
        let look = |desired, pods: &[Pod]| {
            let workload = Workload { desired, ..Workload::default() };
            let reading = seen(&workload, pods, 0, &shown(&kind)).reading;
            assert!(reading.credible().is_ok());
            (reading.ready, reading.starting, reading.draining, reading.broken)
        };
        assert_eq!(look(6, &six), (6, 0, 0, 0));
        assert_eq!(look(3, &six), (3, 0, 3, 0), "nobody was told to go yet");
        assert_eq!(look(8, &six), (6, 2, 0, 0), "two are not made yet");
        assert_eq!(look(0, &[]), (0, 0, 0, 0));
        let mut leaving = six.clone();
        leaving[0].deleting = true;
        assert_eq!(look(6, &leaving), (5, 1, 1, 0), "its place is filled again");
        let failure = Some("exceeded quota".to_owned());
        let workload = Workload { desired: 8, failure, ..Workload::default() };
        let reading = seen(&workload, &six, 0, &shown(&kind)).reading;
        assert_eq!((reading.capacity(), reading.broken), (6, 2), "and these never will be");
    }

    #[test]
    fn in_a_rollout_the_old_pods_leave() {
        let of = |name: &str, hash: &str, minutes| {
            let labels = [("pod-template-hash".to_owned(), hash.to_owned())].into();
            Pod { labels, created_at: ago(minutes), ..pod(name) }
        };
        let pods =
            [of("old-1", "x", 9), of("old-2", "x", 9), Pod { ready: false, ..of("new", "y", 0) }];
        let workload = Workload { desired: 2, ..Workload::default() };
        let kind = Kind::Deployment;
        let reading = seen(&workload, &pods, 0, &shown(&kind)).reading;
        assert_eq!((reading.ready, reading.starting, reading.draining), (1, 1, 1));
    }

    #[test]
    fn without_pods_the_numbers_must_do() {
        // desired, replicas, ready, terminating; ready, starting, draining
        let table = [
            ((3, 3, Some(3), 0), (3, 0, 0)),
            ((4, 3, Some(3), 0), (3, 1, 0)),
            ((3, 6, Some(6), 0), (3, 0, 3)),
            ((0, 0, Some(0), 2), (0, 0, 2)),
            ((0, 3, None, 0), (0, 0, 3)),
            ((2, 2, None, 0), (2, 0, 0)),
        ];
        for ((desired, replicas, ready, terminating), expected) in table {
            let workload =
                Workload { desired, replicas, ready, terminating, ..Workload::default() };
            let reading = counted(&workload);
            let got = (reading.ready, reading.starting, reading.draining);
            assert_eq!(got, expected, "{workload:?}");
        }
    }

    #[test]
    fn a_crash_counts_once_and_only_if_it_is_new_and_early() {
        let mut memory = Memory::default();
        let crashed =
            |restarts, lived| [Pod { restarts, lived: Some(Span::from_secs(lived)), ..pod("a") }];
        assert_eq!(memory.deaths(&crashed(3, 1)), 0, "the first look tells nothing new");
        assert_eq!(memory.deaths(&crashed(3, 1)), 0);
        assert_eq!(memory.deaths(&crashed(4, 1)), 1);
        assert_eq!(memory.deaths(&crashed(5, 3_600)), 0, "it lived long");
    }

    #[test]
    fn of_a_stateful_set_the_last_pods_go() {
        let pods = ["w-0", "w-10", "w-2"].map(pod);
        let order = in_order(&pods, &Kind::StatefulSet, |_| 0);
        let names: Vec<&str> = order.iter().map(|pod| pod.name.as_str()).collect();
        assert_eq!(names, ["w-10", "w-2", "w-0"]);
    }
}
