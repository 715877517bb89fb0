//! The calendar, a person's fixed number and a pause set the bounds that are in force.

use crate::decision::{Direction, Kind, Rule, Why};
use crate::guard::{Draft, Look, Range};
use crate::rules::Rules;
use crate::state::Controls;
use crate::time::Timestamp;

/// The bounds at `now`: those of the schedule's window, else those of the rules.
pub(crate) fn bounds_at(rules: &Rules, now: Timestamp) -> (Range, bool) {
    let (min, max) = (rules.workers.min, rules.workers.max);
    match rules.schedule.as_ref().and_then(|s| s.window_at(now)) {
        Some(window) => {
            let (min, max) = (window.min.unwrap_or(min), window.max.unwrap_or(max));
            (Range { min, max }, true)
        }
        None => (Range { min, max }, false),
    }
}

/// Applies what a person asked for; what has expired is forgotten.
pub(crate) fn apply(controls: &mut Controls, in_window: bool, look: &Look<'_>, draft: &mut Draft) {
    controls.expire(look.now);
    if in_window {
        let Range { min, max } = look.bounds;
        draft.say(Rule::Schedule, draft.wanted, Why::InWindow { min, max });
    }
    if let Some(fixed) = &controls.fixed {
        let Range { min, max } = look.bounds;
        let workers = fixed.workers.min(max).max(min);
        draft.range = Range { min: workers, max: workers };
        let why = Why::Asked { workers: fixed.workers, until: fixed.until };
        draft.kind = Kind::Override;
        draft.insist(Rule::Override, fixed.workers.max(draft.floor), why);
        if workers != fixed.workers {
            draft.say(Rule::Bounds, workers.max(draft.floor), Why::OutOfBounds { min, max });
        }
    }
    if let Some(pause) = &controls.pause {
        let (range, current) = (&mut draft.range, draft.current);
        let would_be = draft.wanted.min(range.max).max(range.min);
        let mut after = draft.wanted;
        if pause.direction != Direction::In {
            *range = Range { min: range.min.min(current), max: range.max.min(current) };
            after = after.min(current);
        }
        if pause.direction != Direction::Out {
            *range = Range { min: range.min.max(current), max: range.max.max(current) };
            after = after.max(current);
        }
        let why = Why::Paused { direction: pause.direction, until: pause.until };
        if would_be == after.min(range.max).max(range.min) {
            draft.say(Rule::Pause, after, why);
        } else {
            draft.insist(Rule::Pause, after, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::bounds;
    use crate::scene::Scene;
    use crate::state::{Fixed, Pause};
    use crate::time::Span;

    fn judge(scene: &Scene, controls: &mut Controls, wanted: u32, floor: u32) -> Draft {
        scene.judge(wanted, |look, draft| {
            (draft.floor, draft.kind) = (floor, Kind::ScaleOut);
            apply(controls, false, look, draft);
            bounds::apply(draft);
        })
    }

    #[test]
    fn a_person_gets_the_number_they_asked_for() {
        // name, asked for, current, floor, expected (bounds 1 to 10)
        let table = [
            ("up", 7, 3, 0, 7),
            ("down", 2, 5, 0, 2),
            ("clamped to max", 50, 3, 0, 10),
            ("clamped to min", 0, 3, 0, 1),
            ("down, but a source is silent", 2, 5, 5, 5),
            ("up while a source is silent", 7, 5, 5, 7),
            ("the number that is there", 4, 4, 0, 4),
        ];
        for (name, workers, current, floor, expected) in table {
            let mut controls =
                Controls { fixed: Some(Fixed { workers, until: None }), ..Controls::default() };
            // Whatever the policy wants.
            for wanted in [current, current + 1, current - 1] {
                let draft = judge(&Scene::new(current), &mut controls, wanted, floor);
                assert_eq!((draft.wanted, draft.kind), (expected, Kind::Override), "{name}");
            }
        }
    }

    #[test]
    fn what_has_expired_is_forgotten() {
        let mut scene = Scene::new(3);
        let until = Some(scene.now.plus(Span::from_secs(60)));
        let mut controls = Controls {
            fixed: Some(Fixed { workers: 5, until }),
            pause: Some(Pause { direction: Direction::All, until }),
            retry: None,
        };
        scene.later(59);
        judge(&scene, &mut controls, 4, 0);
        assert!(controls.fixed.is_some() && controls.pause.is_some());
        scene.later(1);
        assert_eq!(judge(&scene, &mut controls, 4, 0).wanted, 4);
        assert_eq!(controls, Controls::default());
    }

    #[test]
    fn a_pause_stops_its_direction_and_no_other() {
        use Direction::{All, In, Out};
        // name, direction, current, wanted, expected (bounds 1 to 10)
        let table = [
            ("out stops growth", Out, 3, 5, 3),
            ("out lets shrink", Out, 3, 2, 2),
            ("in stops shrinking", In, 3, 2, 3),
            ("in lets grow", In, 3, 5, 5),
            ("all stops growth", All, 3, 5, 3),
            ("all stops shrinking", All, 3, 1, 3),
            ("out, above max: back into the bounds", Out, 12, 12, 10),
            ("out, below min: stays", Out, 0, 0, 0),
            ("in, above max: stays", In, 12, 12, 12),
            ("in, below min: back into the bounds", In, 0, 0, 1),
            ("all, above max: stays", All, 12, 11, 12),
            ("all, below min: stays", All, 0, 1, 0),
        ];
        for (name, direction, current, wanted, expected) in table {
            let mut controls =
                Controls { pause: Some(Pause { direction, until: None }), ..Controls::default() };
            let draft = judge(&Scene::new(current), &mut controls, wanted, 0);
            assert_eq!(draft.wanted, expected, "{name}");
        }
    }

    #[test]
    fn a_pause_is_stronger_than_a_number_asked_for() {
        let mut controls = Controls {
            fixed: Some(Fixed { workers: 6, until: None }),
            pause: Some(Pause { direction: Direction::Out, until: None }),
            retry: None,
        };
        assert_eq!(judge(&Scene::new(3), &mut controls, 3, 0).wanted, 3);
        let draft = judge(&Scene::new(8), &mut controls, 8, 0);
        assert_eq!((draft.wanted, draft.kind), (6, Kind::Override));
    }

    #[test]
    fn the_schedule_sets_the_bounds() {
        let mut scene = Scene::new(3);
        let window = r#"{"windows": [{"from": "00:00", "to": "00:00", "min": 5, "max": 6}]}"#;
        scene.rules.schedule = serde_json::from_str(window).unwrap();
        let (bounds, in_window) = bounds_at(&scene.rules, scene.now);
        assert_eq!((bounds, in_window), (Range { min: 5, max: 6 }, true));
        scene.rules.schedule = None;
        assert_eq!(bounds_at(&scene.rules, scene.now).0, Range { min: 1, max: 10 });
    }
}
