//! What a program or a server of the user's says: how many workers there are, and what it did.

use std::collections::HashMap;

use headcount_core::rules::MOST_WORKERS;
use headcount_core::{FleetReading, Silence};
use serde::Deserialize;

use crate::queues::Identity;
use crate::targets::assumed::{brief, number, plain};
use crate::targets::{FleetSeen, Scaled};

/// What was done, as the last line of a program's output or the answer of a server may tell it:
/// `{"started": ["w4"], "removed": ["w2"], "note": "as asked"}`.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Report {
    started: Option<Vec<String>>,
    removed: Option<Vec<String>>,
    note: Option<String>,
}

/// How many workers there are: a number, or a JSON object with `ready`, `starting` and so on, or
/// with a list of `workers`. The id of a listed worker is also the name or the host name by which
/// a queue may know it.
///
/// # Errors
/// What makes no sense. An answer that says nothing is never zero workers.
pub(super) fn fleet(text: &str) -> Result<FleetSeen, (Silence, String)> {
    let text = text.trim();
    let malformed = |detail: String| (Silence::Malformed, detail);
    if !text.starts_with('{') {
        let ready = number(text).map_err(malformed)?;
        return Ok(FleetSeen {
            reading: FleetReading { ready, ..FleetReading::default() },
            ..FleetSeen::default()
        });
    }
    let value: serde_json::Value = serde_json::from_str(text)
        .map_err(|e| malformed(format!("says `{}`, which is no JSON: {e}", brief(text))))?;
    let listed = value.get("workers").is_some_and(|w| !w.is_null());
    let counted = value.get("ready").is_some_and(|r| !r.is_null());
    if !listed && !counted {
        // An object that says nothing must not count as zero workers.
        return Err(malformed(format!("says `{}` without `ready` or `workers`", brief(text))));
    }
    let told: FleetReading = serde_json::from_value(value)
        .map_err(|e| malformed(format!("says `{}`: {e}", brief(text))))?;
    let reading = if listed { of_list(&told) } else { told.clone() };
    if counted && (told.ready, told.starting) != (reading.ready, reading.starting) {
        let detail = format!(
            "counts {} ready and {} starting, but lists {} and {}",
            told.ready, told.starting, reading.ready, reading.starting
        );
        return Err((Silence::Contradictory, detail));
    }
    if reading.capacity() > MOST_WORKERS {
        let detail = format!("{} is above the limit of {MOST_WORKERS} workers", reading.capacity());
        return Err(malformed(detail));
    }
    let names = |id: &String| vec![Identity::Name(id.clone()), Identity::Hostname(id.clone())];
    let known_as: HashMap<_, _> =
        reading.workers.iter().map(|w| (w.id.clone(), names(&w.id))).collect();
    Ok(FleetSeen { reading, known_as })
}

/// Counted from the list; what no list tells is kept.
fn of_list(told: &FleetReading) -> FleetReading {
    let FleetReading { died, desired, workers, .. } = told.clone();
    FleetReading { died, desired, ..FleetReading::of(workers) }
}

/// What was done, by the whole of `text` or its last line if that is a report; the rest is the note.
pub(super) fn done(text: &str) -> Scaled {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let (rest, report) = match (report(text.trim()), lines.split_last()) {
        (Some(whole), _) => (&[][..], whole),
        (None, Some((last, before))) => match report(last) {
            Some(report) => (before, report),
            None => (&lines[..], Report::default()),
        },
        (None, None) => (&[][..], Report::default()),
    };
    let Report { started, removed, note } = report;
    let names = |ids: Option<Vec<String>>| -> Vec<String> {
        ids.unwrap_or_default().iter().map(|id| plain(id)).collect()
    };
    let (started, removed) = (names(started), names(removed));
    let mut said: Vec<String> = rest.iter().map(|line| (*line).to_owned()).chain(note).collect();
    for (what, ids) in [("started", &started), ("removed", &removed)] {
        if !ids.is_empty() {
            said.push(format!("{what} {}", ids.join(", ")));
        }
    }
    said.retain(|part| !part.is_empty());
    Scaled { note: brief(&said.join("; ")), started, removed, pretended: false }
}

/// A JSON object that tells at least one thing that was done. Anything else is just text.
fn report(text: &str) -> Option<Report> {
    let report: Report = text.starts_with('{').then(|| serde_json::from_str(text).ok())??;
    (report != Report::default()).then_some(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_numbers_and_objects() {
        let fleet = |text| fleet(text).unwrap();
        assert_eq!(fleet("3\n").reading.ready, 3);
        let counts = fleet(r#"{"ready": 2, "starting": 1, "busy": 1}"#).reading;
        assert_eq!((counts.ready, counts.starting, counts.busy), (2, 1, Some(1)));
        let list = fleet(
            r#"{"workers": [{"id": "a", "state": "ready", "busy": false},
            {"id": "b", "state": "draining"}], "desired": 1, "died": 2}"#,
        );
        let FleetReading { ready, draining, busy, desired, died, .. } = list.reading;
        assert_eq!((ready, draining, busy, desired, died), (1, 1, Some(0), Some(1), 2));
        assert!(list.known_as["a"].contains(&Identity::Hostname("a".into())));
        assert_eq!(fleet(r#"{"workers": []}"#).reading.capacity(), 0);
    }

    #[test]
    fn garbage_is_never_a_number() {
        let table = [
            ("", Silence::Malformed),
            ("three", Silence::Malformed),
            ("-1", Silence::Malformed),
            ("3 workers", Silence::Malformed),
            ("10001", Silence::Malformed),
            ("{}", Silence::Malformed),
            ("{\"ready\": null}", Silence::Malformed),
            ("{\"ready\": -1}", Silence::Malformed),
            ("{\"ready\": 4294967295, \"starting\": 1}", Silence::Malformed),
            ("{\"ready\": 1", Silence::Malformed),
            ("{\"ready\": 2, \"workers\": []}", Silence::Contradictory),
            ("[3]", Silence::Malformed),
        ];
        for (output, why) in table {
            assert_eq!(fleet(output).unwrap_err().0, why, "{output}");
        }
    }

    #[test]
    fn a_report_is_told_from_text() {
        let table = [
            ("", "", 0),
            ("scaled\n  to 3\n", "scaled; to 3", 0),
            (r#"{"removed": ["a", "b"]}"#, "removed a, b", 2),
            (
                "hello\n{\"removed\": [\"a\"], \"note\": \"as asked\"}\n",
                "hello; as asked; removed a",
                1,
            ),
            ("{\n \"removed\": [\"a\"]\n}", "removed a", 1),
            (r#"{"removed": [], "note": ""}"#, "", 0),
            (r#"{"removed": 3}"#, r#"{"removed": 3}"#, 0),
            (r#"{"ok": true}"#, r#"{"ok": true}"#, 0),
        ];
        for (text, note, removed) in table {
            let done = done(text);
            assert_eq!((done.note.as_str(), done.removed.len()), (note, removed), "{text}");
        }
        let odd = done(r#"{"removed": ["a\nb"], "note": "1\n2\u001b[2J3"}"#);
        assert_eq!(
            (odd.note.as_str(), odd.removed),
            ("1 2[2J3; removed a b", vec!["a b".to_owned()])
        );
        let both = done(r#"{"started": ["c"], "removed": ["a"]}"#);
        assert_eq!(
            (both.note.as_str(), both.started),
            ("started c; removed a", vec!["c".to_owned()])
        );
    }
}
