//! Who goes when a ReplicaSet shrinks. Its controller looks at the pods' deletion cost, after other
//! things, so idle pods are made cheap and busy ones dear just before the number is lowered.
//! Costs: <https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#pod-deletion-cost>

use std::cmp::Reverse;
use std::collections::HashMap;

use headcount_core::{Span, Timestamp};

use crate::targets::kubernetes::pods::{Phase, Pod};

/// The annotation, an int32 as text.
pub(super) const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// An idle pod costs nothing, a busy one this much and the age of its oldest job in seconds.
const BUSY: i32 = 10;
/// The age counts up to this.
const MOST_AGE: Span = Span::from_hours(24);

/// What a pod should cost. `busy` has those that hold or may hold a job, with its age if known;
/// `may_go` those that were chosen although nobody knows that they are idle.
pub(super) fn cost(name: &str, busy: &HashMap<String, Option<Span>>, may_go: &[String]) -> i32 {
    match busy.get(name) {
        None => 0,
        Some(None) if may_go.iter().any(|chosen| chosen == name) => 0,
        Some(age) => {
            let age = age.unwrap_or(Span::ZERO).clamp(Span::ZERO, MOST_AGE).as_secs();
            BUSY.saturating_add(i32::try_from(age).unwrap_or(i32::MAX))
        }
    }
}

/// What a ReplicaSet's controller looks at first: a pod of a lower class goes before one of a higher.
pub(super) fn class(pod: &Pod, cost: i32) -> (bool, u8, bool, i32) {
    let phase = match pod.phase {
        Phase::Pending => 0,
        Phase::Unknown => 1,
        _ => 2,
    };
    (pod.scheduled, phase, pod.ready, cost)
}

/// The order in which a ReplicaSet's controller deletes: the first goes first. `cost` tells what a
/// pod will cost then. Inside a class it is a guess: the controller takes those first whose node has
/// more of them, then compares only the logarithms of ages, then UIDs.
pub(super) fn rank(pods: &mut [&Pod], cost: impl Fn(&Pod) -> i32) {
    pods.sort_by_key(|pod| {
        let ready_since = pod.ready_since.filter(|_| pod.ready);
        let youth = |at: Option<Timestamp>| Reverse(at.map(Timestamp::as_millis));
        let rest = (youth(ready_since), Reverse(pod.restarts), youth(pod.created_at));
        (class(pod, cost(pod)), rest)
    });
}

/// Who goes, as far as anybody can know.
#[derive(Debug, Default)]
pub(super) struct Going<'a> {
    /// These.
    pub(super) sure: Vec<&'a Pod>,
    /// And so many of `alike`.
    pub(super) picked: usize,
    /// Pods of one class, of which some go and some stay.
    pub(super) alike: Vec<&'a Pod>,
}

impl<'a> Going<'a> {
    /// The first `go` in this order, which goes by `class`.
    pub(super) fn of<C: PartialEq>(
        order: &[&'a Pod],
        go: usize,
        class: impl Fn(&Pod) -> C,
    ) -> Self {
        let go = go.min(order.len());
        let stays = order.get(go).map(|pod| class(pod));
        let is_like_it = |pod: &&&Pod| stays.as_ref().is_some_and(|stays| class(pod) == *stays);
        let sure: Vec<&Pod> = order[..go].iter().take_while(|p| !is_like_it(p)).copied().collect();
        let picked = go - sure.len();
        let rest = order[sure.len()..].iter().take_while(is_like_it).copied();
        let alike = if picked > 0 { rest.collect() } else { Vec::new() };
        Self { sure, picked, alike }
    }

    /// All that may go.
    pub(super) fn all(&self) -> impl Iterator<Item = &'a Pod> {
        self.sure.iter().chain(&self.alike).copied()
    }
}

/// The number at the end of a StatefulSet's pod: the highest goes first.
pub(super) fn ordinal(pod: &Pod) -> Option<u32> {
    pod.name.rsplit_once('-')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_pods_cost_nothing_and_busy_ones_more_the_longer_they_work() {
        let s = Span::from_secs;
        let busy: HashMap<String, Option<Span>> = [
            ("busy", Some(s(42))),
            ("month", Some(s(30 * 86_400))),
            ("clock", Some(s(-5))),
            ("unsure", None),
        ]
        .map(|(name, age)| (name.to_owned(), age))
        .into();
        let table = [("idle", 0), ("busy", 52), ("month", 86_410), ("clock", 10), ("unsure", 10)];
        for (name, expected) in table {
            assert_eq!(cost(name, &busy, &[]), expected, "{name}");
        }
        let chosen = ["unsure".to_owned(), "busy".to_owned()];
        assert_eq!(cost("unsure", &busy, &chosen), 0, "chosen, and nobody says that it is busy");
        assert_eq!(
            cost("busy", &busy, &chosen),
            52,
            "chosen by `busy: any`: the youngest job first"
        );
    }

    #[test]
    fn the_controllers_order_is_known() {
        let at = |s: i64| Some(Timestamp::from_millis(s * 1_000));
        let ready = |name: &str, cost, since| Pod {
            name: name.into(),
            phase: Phase::Running,
            scheduled: true,
            ready: true,
            ready_since: at(since),
            created_at: at(since),
            cost,
            ..Pod::default()
        };
        let pods = [
            ready("dear", 52, 9),
            ready("cheap-old", 0, 1),
            ready("cheap-young", 0, 5),
            Pod { ready: false, ..ready("unready", i32::MAX, 1) },
            Pod { phase: Phase::Pending, ready: false, ..ready("pending", 99, 1) },
            Pod {
                scheduled: false,
                phase: Phase::Pending,
                ready: false,
                ..ready("nowhere", 99, 1)
            },
        ];
        let mut order: Vec<&Pod> = pods.iter().collect();
        rank(&mut order, |pod| pod.cost);
        let names: Vec<&str> = order.iter().map(|pod| pod.name.as_str()).collect();
        let expected = ["nowhere", "pending", "unready", "cheap-young", "cheap-old", "dear"];
        assert_eq!(names, expected);
    }

    #[test]
    fn of_pods_that_are_alike_nobody_knows_who_goes() {
        let pod = |name: &str, cost| Pod {
            name: name.into(),
            phase: Phase::Running,
            scheduled: true,
            ready: true,
            cost,
            ..Pod::default()
        };
        let pods = [pod("a", 0), pod("b", 0), pod("c", 0), pod("busy", 15), pod("dear", 60)];
        let mut order: Vec<&Pod> = pods.iter().collect();
        rank(&mut order, |pod| pod.cost);
        // How many go; who for sure, and how many of whom.
        type Expected = (&'static [&'static str], usize, &'static [&'static str]);
        let table: [(usize, Expected); 6] = [
            (0, (&[], 0, &[])),
            (2, (&[], 2, &["a", "b", "c"])),
            (3, (&["a", "b", "c"], 0, &[])),
            (4, (&["a", "b", "c", "busy"], 0, &[])),
            (5, (&["a", "b", "c", "busy", "dear"], 0, &[])),
            (9, (&["a", "b", "c", "busy", "dear"], 0, &[])),
        ];
        for (go, (sure, picked, alike)) in table {
            let going = Going::of(&order, go, |pod| class(pod, pod.cost));
            let names = |pods: &[&Pod]| -> Vec<String> {
                pods.iter().map(|pod| pod.name.clone()).collect()
            };
            assert_eq!(names(&going.sure), sure, "{go}");
            assert_eq!(going.picked, picked, "{go}");
            assert_eq!(names(&going.alike), alike, "{go}");
        }
        let mut unready = pods.clone();
        unready[4].ready = false;
        let mut order: Vec<&Pod> = unready.iter().collect();
        rank(&mut order, |pod| pod.cost);
        let going = Going::of(&order, 2, |pod| class(pod, pod.cost));
        assert_eq!((going.sure[0].name.as_str(), going.picked, going.alike.len()), ("dear", 1, 3));
    }
}
