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

/// The order in which a ReplicaSet's controller deletes: the first goes first. `cost` tells what a
/// pod will cost then.
pub(super) fn rank(pods: &mut [&Pod], cost: impl Fn(&Pod) -> i32) {
    pods.sort_by_key(|pod| {
        let phase = match pod.phase {
            Phase::Pending => 0,
            Phase::Unknown => 1,
            _ => 2,
        };
        let ready_since = pod.ready_since.filter(|_| pod.ready);
        let youth = |at: Option<Timestamp>| Reverse(at.map(Timestamp::as_millis));
        let rest = (youth(ready_since), Reverse(pod.restarts), youth(pod.created_at));
        (pod.scheduled, phase, pod.ready, cost(pod), rest)
    });
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
}
