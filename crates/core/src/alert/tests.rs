//! Sequences of looks, and what is told at each.

use super::*;
use crate::reading::{Missing, Reading, Silence};

const STALE: Span = Span::from_secs(90);

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

fn missing<T>() -> Reading<T> {
    Reading::Missing(Missing { why: Silence::Refused, detail: String::new() })
}

/// One look: jobs that wait and workers that are ready, each perhaps unknown.
fn look(t: i64, waiting: Option<u64>, ready: Option<u32>) -> Observation {
    let queue = |waiting| QueueReading { waiting, ..QueueReading::default() };
    let fleet = |ready| FleetReading { ready, ..FleetReading::default() };
    Observation {
        t: at(t),
        queue: waiting.map_or_else(missing, |n| Reading::known(queue(n), at(t))),
        host: missing(),
        fleet: ready.map_or_else(missing, |n| Reading::known(fleet(n), at(t))),
        budget: None,
    }
}

fn alerts() -> Alerts {
    Alerts {
        waiting_over: Some(WaitingOver { jobs: 3, lasts: half_a_minute(), tags: Vec::new() }),
        live_workers_under: Some(LiveWorkersUnder { workers: 2, lasts: two_minutes() }),
        every: Alerts::EVERY,
    }
}

/// What is told at which second. The state is written and read again between any two looks, as a
/// restart does.
fn told(looks: &[(i64, Option<u64>, Option<u32>)]) -> Vec<String> {
    let mut state = AlertState::default();
    let mut told = Vec::new();
    for (t, waiting, ready) in looks {
        state = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
        let found = alerts().judge(&mut state, &look(*t, *waiting, *ready), STALE, at(*t));
        told.extend(found.iter().map(|alert| format!("{t} {} {alert}", alert.state)));
    }
    told
}

#[test]
fn waiting_jobs_and_missing_workers_are_told_after_their_time() {
    type Looks<'a> = &'a [(i64, Option<u64>, Option<u32>)];
    let cases: [(&str, Looks<'_>, &[&str]); 9] = [
        ("as many as allowed is not over", &[(0, Some(3), Some(2)), (60, Some(3), Some(2))], &[]),
        ("not for long enough", &[(0, Some(9), None), (29, Some(9), None)], &[]),
        (
            "raised once, and resolved at once",
            &[
                (0, Some(9), None),
                (30, Some(8), None),
                (60, Some(7), None),
                (65, Some(3), None),
                (70, Some(0), None),
            ],
            &[
                "30 raised 8 waiting, more than 3 for 30 s",
                "65 resolved 3 waiting, no longer more than 3, after 65 s",
            ],
        ),
        (
            "a moment without starts anew",
            &[(0, Some(9), None), (20, Some(0), None), (25, Some(9), None), (50, Some(9), None)],
            &[],
        ),
        (
            "silence does not count",
            &[(0, Some(9), None), (20, None, None), (80, None, None), (85, Some(9), None)],
            &[],
        ),
        (
            "nor does it resolve",
            &[(0, Some(9), None), (30, Some(9), None), (60, None, None), (65, Some(9), None)],
            &["30 raised 9 waiting, more than 3 for 30 s"],
        ),
        ("nor does a time without looks", &[(0, Some(9), None), (91, Some(9), None)], &[]),
        (
            "told again while it lasts, and held back after it was told",
            &[
                (0, Some(9), None),
                (30, Some(9), None),
                (90, Some(0), None),
                (95, Some(9), None),
                (165, Some(9), None),
                (250, Some(9), None),
                (330, Some(9), None),
                (410, Some(9), None),
                (490, Some(9), None),
                (570, Some(9), None),
                (629, Some(9), None),
                (630, Some(9), None),
            ],
            &[
                "30 raised 9 waiting, more than 3 for 30 s",
                "90 resolved 0 waiting, no longer more than 3, after 90 s",
                "630 raised 9 waiting, more than 3 for 535 s",
            ],
        ),
        (
            "workers",
            &[(0, None, Some(1)), (60, None, Some(1)), (120, None, Some(0)), (121, None, Some(2))],
            &[
                "120 raised 0 live workers, fewer than 2 for 120 s",
                "121 resolved 2 live workers, no longer fewer than 2, after 121 s",
            ],
        ),
    ];
    for (what, looks, expected) in cases {
        assert_eq!(told(looks), expected, "{what}");
    }
}

#[test]
fn one_that_lasts_is_told_again() {
    let looks: Vec<_> = (0..=130).map(|i| (i * 10, Some(9), Some(2))).collect();
    let expected = [
        "30 raised 9 waiting, more than 3 for 30 s",
        "630 lasts 9 waiting, more than 3 for 630 s",
        "1230 lasts 9 waiting, more than 3 for 1230 s",
    ];
    assert_eq!(told(&looks), expected);
}

#[test]
fn tags_are_added_up_and_unknown_where_the_queue_tells_none() {
    let alert = WaitingOver {
        jobs: 3,
        lasts: Span::ZERO,
        tags: ["bash", "deno"].map(String::from).to_vec(),
    };
    let tags = |tags: &[(&str, u64)]| tags.iter().map(|(tag, n)| ((*tag).into(), *n)).collect();
    let count = |waiting, list: &[(&str, u64)]| {
        let queue = QueueReading { waiting, tags: tags(list), ..QueueReading::default() };
        alert.look(&queue).map(|seen| (seen.count, seen.wrong))
    };
    assert_eq!(count(9, &[("bash", 2), ("deno", 2), ("go", 5)]), Some((4, true)));
    assert_eq!(count(5, &[("go", 5)]), Some((0, false)));
    assert_eq!(count(0, &[]), Some((0, false)));
    assert_eq!(count(9, &[]), None, "it does not tell");
}

#[test]
fn one_that_nobody_asks_for_any_more_is_resolved() {
    let mut state = AlertState::default();
    for t in [0, 30] {
        alerts().judge(&mut state, &look(t, Some(9), None), STALE, at(t));
    }
    assert!(state.raised()[0].1 && !state.is_blank());
    let told = Alerts::default().judge(&mut state, &look(31, None, None), STALE, at(31));
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].to_string(), "nobody asks for this alert any more");
    assert!(state.is_blank());
}

#[test]
fn a_clock_that_is_set_moves_all_times() {
    let mut state = AlertState::default();
    for t in [0, 30] {
        alerts().judge(&mut state, &look(t, Some(9), Some(1)), STALE, at(t));
    }
    let hour = Span::from_hours(1);
    state.shift(hour);
    let expected = AlertState {
        seen_at: Some(at(3630)),
        waiting_over: Watch { since: Some(at(3600)), raised: true, told_at: Some(at(3630)) },
        live_workers_under: Watch { since: Some(at(3600)), raised: false, told_at: None },
    };
    assert_eq!(state, expected);
}

#[test]
fn problems_name_their_key() {
    assert_eq!(alerts().problems(), []);
    let wrong = Alerts {
        waiting_over: Some(WaitingOver { jobs: 0, lasts: Span::from_secs(-1), tags: Vec::new() }),
        live_workers_under: Some(LiveWorkersUnder { workers: 0, lasts: Span::from_hours(25) }),
        every: Span::ZERO,
    };
    let keys: Vec<_> = wrong.problems().into_iter().map(|(key, _)| key).collect();
    let expected =
        ["live_workers_under.workers", "waiting_over.for", "live_workers_under.for", "every"];
    assert_eq!(keys, expected);
}
