//! `--report FILE`: the runs as a page, and the further runs that its plots take.

use std::fmt;
use std::fs::Permissions;
use std::io::{Error, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use headcount_core::{Policy, Span, rules::Bounds};
use headcount_sim::timeline::Demand;
use headcount_sim::{Score, Timeline, WorldRules};
use serde::Serialize;
use tempfile::{Builder, NamedTempFile};

use super::race::{Entry, Outcome, Raced, Row};
use crate::cli::WrongUse;
use crate::cli::jobs::Given;
use crate::report::{self, Frontier, FrontierPoint, Report, Run};

/// A frontier's wanted waits, as multiples of the one that is wanted: from what takes warm workers
/// to what a single worker can do.
const MULTIPLES: [(u32, u32); 8] =
    [(1, 8), (1, 4), (1, 2), (1, 1), (2, 1), (4, 1), (8, 1), (16, 1)];

/// A run of an entry with another wanted wait.
pub(super) struct Variation {
    /// Which entry.
    pub(super) entry: usize,
    /// The wait that it is told to keep.
    pub(super) wait: Span,
    /// What came of it; `None` if it never got done.
    pub(super) score: Option<Score>,
}

/// Where a page goes.
pub(super) struct Destination(PathBuf);

/// The part of the rules that a reader of a page wants to see.
#[derive(Serialize)]
struct Rules<'a> {
    workers: &'a Bounds,
    policy: &'a Policy,
}

impl Destination {
    /// A file that can be written.
    ///
    /// # Errors
    /// It cannot: better to know before the long work than after it.
    pub(super) fn new(path: &Path) -> Result<Self, WrongUse> {
        let destination = Self(path.into());
        let wrong = |e: Error| WrongUse(format!("--report {}: {e}", path.display()));
        // A rename would put a file in the place of a device.
        if path.metadata().is_ok_and(|about| !about.is_file()) {
            return Err(wrong(Error::new(ErrorKind::InvalidInput, "it is no regular file")));
        }
        destination.draft().map_err(wrong)?;
        Ok(destination)
    }

    /// Writes the file; whoever reads it sees all of it, or what was there before.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, text: &str) -> std::io::Result<()> {
        let mut draft = self.draft()?;
        draft.write_all(text.as_bytes())?;
        draft.persist(&self.0)?;
        Ok(())
    }

    /// A file beside it, which goes unless it takes its place.
    fn draft(&self) -> std::io::Result<NamedTempFile> {
        let parent = self.0.parent().filter(|parent| !parent.as_os_str().is_empty());
        // As any new file: the umask decides.
        let open_to = Permissions::from_mode(0o666);
        Builder::new()
            .prefix(".report-")
            .permissions(open_to)
            .tempfile_in(parent.unwrap_or(".".as_ref()))
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// The further runs that a page shows: each policy that keeps a wanted wait, told to keep others.
pub(super) fn variations(entries: &[Entry], world: &WorldRules) -> Vec<(usize, Span)> {
    let each = entries.iter().enumerate().filter(|(_, entry)| entry.peer.is_none());
    let varied = each.filter_map(|(number, entry)| {
        let Policy::Slo(slo) = &entry.rules.policy else { return None };
        let usual = (world.start_up + slo.poll) * 2;
        Some((number, slo.max_wait.or(entry.wait).unwrap_or(usual)))
    });
    varied.flat_map(|(number, wait)| multiples(wait).map(move |wait| (number, wait))).collect()
}

/// The waits for which a page says what knowing the future would cost.
pub(super) fn future_waits(entries: &[Entry]) -> Vec<Span> {
    entries
        .iter()
        .filter_map(Entry::comparable_wait)
        .next()
        .into_iter()
        .flat_map(multiples)
        .collect()
}

fn multiples(wait: Span) -> impl Iterator<Item = Span> {
    MULTIPLES.into_iter().map(move |(times, of)| {
        let millis = wait.as_millis() * i128::from(times) / i128::from(of);
        Span::from_millis(i64::try_from(millis).unwrap_or(i64::MAX).max(1))
    })
}

/// The page of a race.
pub(super) fn page(
    raced: &Raced<'_>,
    entries: &[Entry],
    name: String,
    given: &Given,
    world: &WorldRules,
    seed: u64,
) -> String {
    let known = given.past.as_ref().map(|past| &past.known);
    let frontiers = frontiers(&raced.variations, entries.len());
    let runs = raced.rows.iter().zip(&raced.timelines).zip(entries);
    let runs = runs.map(|((row, timeline), entry)| run(row, timeline, entry)).collect();
    let report = Report {
        trace: name,
        known: known.map(ToString::to_string),
        // Where a gap was left out, later times are not the real ones.
        begins: known.filter(|known| known.gaps == 0).and_then(|known| known.from),
        demand: Demand::of(&given.trace),
        work_hours: given.trace.work().as_hours(),
        world: world.clone(),
        seed,
        runs,
        frontiers,
        future: raced.futures.clone(),
    };
    report::page(&report)
}

fn run(row: &Row<'_>, timeline: &Option<Timeline>, entry: &Entry) -> Run {
    let rules = Rules { workers: &entry.rules.workers, policy: &entry.rules.policy };
    Run {
        policy: entry.policy.clone(),
        file: entry.file.clone(),
        rules: entry.peer.is_none().then(|| serde_saphyr::to_string(&rules).ok()).flatten(),
        wait: row.wait,
        future: row.clairvoyant_worker_hours,
        outcome: match (&row.outcome, timeline) {
            (Outcome::Scored(score), Some(timeline)) => Ok((score.clone(), timeline.clone())),
            (Outcome::Stuck { error, .. }, _) => Err(error.clone()),
            (Outcome::Scored(_), None) => Err("its course was not recorded".into()),
        },
    }
}

/// Variations by their entry; those that never got done are left out.
fn frontiers(variations: &[Variation], entries: usize) -> Vec<Frontier> {
    let point = |variation: &Variation| {
        let score = variation.score.as_ref()?;
        Some(FrontierPoint {
            wanted: variation.wait,
            p95: score.waits.p95,
            worker_hours: score.worker_hours,
        })
    };
    let of = |run: usize| Frontier {
        run,
        points: variations.iter().filter(|v| v.entry == run).filter_map(point).collect(),
    };
    (0..entries).map(of).filter(|frontier| !frontier.points.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_its_place_in_one_piece_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.html");
        let destination = Destination::new(&path).ok().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        for text in ["one", "two"] {
            destination.write(text).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_written_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().into(), folder.path().join("none/out.html"), "/dev/null".into()]
        {
            let error = Destination::new(&path).err().map(|e| e.to_string()).unwrap();
            assert!(error.starts_with(&format!("--report {}: ", path.display())), "{error}");
        }
    }

    #[test]
    fn other_waits_are_around_the_wanted_one() {
        let waits: Vec<String> = multiples(Span::from_secs(60)).map(|w| format!("{w:#}")).collect();
        assert_eq!(waits, ["7s 500ms", "15s", "30s", "1m", "2m", "4m", "8m", "16m"]);
    }
}
