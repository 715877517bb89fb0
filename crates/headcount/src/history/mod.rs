//! A group's own history as a trace: when its jobs came and how long they took, from what the store
//! recorded at each look, and how well that is known.

mod curves;

use std::fmt;

use headcount_core::{Span, State, Timestamp, time};
use headcount_sim::Trace;
use serde::{Serialize, Serializer};

use crate::store::Store;

/// The jobs of a time, and what is known of them.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The jobs. It begins with the first look; times of which nothing is known are left out, and
    /// what is before and after them joined.
    pub trace: Trace,
    /// How well they are known.
    pub known: Knowledge,
}

/// How well a history is known. Displayed, it is one line.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Knowledge {
    /// The first look.
    pub from: Option<Timestamp>,
    /// The last look.
    pub to: Option<Timestamp>,
    /// Looks that were recorded and at which the queue answered.
    pub looks: usize,
    /// The time of which something is known.
    #[serde(rename = "covered_hours", serialize_with = "as_hours")]
    pub covered: Span,
    /// Gaps of which nothing is known, and which are left out.
    pub gaps: usize,
    /// The longest of them.
    #[serde(rename = "longest_gap_hours", serialize_with = "as_hours")]
    pub longest_gap: Span,
    /// Jobs.
    pub jobs: usize,
    /// Jobs that the source told of one by one; the others are inferred from counts.
    pub exact: usize,
    /// Whether the source counts finished jobs. If not, those that came and went between two looks
    /// are missing.
    pub counted: bool,
    /// How far the time of an inferred arrival may be off, on average.
    #[serde(rename = "arrival_error_s", serialize_with = "as_seconds")]
    pub error: Span,
    /// How far the work of all jobs may be off, as a share of it: a look sees a job that is shorter
    /// than the time to the next only by chance.
    pub work_error: f64,
}

impl Knowledge {
    /// From the first look to the last.
    pub fn span(&self) -> Span {
        self.from.zip(self.to).map_or(Span::ZERO, |(from, to)| to.since(from))
    }
}

impl fmt::Display for Knowledge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = self.span();
        let share = |part: f64, whole: f64| percent(if whole > 0.0 { part / whole } else { 1.0 });
        let covered = share(time::seconds(self.covered), time::seconds(span));
        write!(f, "{} of history, {covered} of it known", length(span))?;
        match self.gaps {
            0 => {}
            1 => write!(f, " (a gap of {} is left out)", length(self.longest_gap))?,
            n => write!(f, " ({n} gaps are left out, the longest {})", length(self.longest_gap))?,
        }
        let exact = share(self.exact as f64, self.jobs as f64);
        match (self.exact, self.jobs - self.exact) {
            (_, 0) => write!(f, "; jobs seen one by one")?,
            (0, _) => write!(f, "; jobs inferred from counts")?,
            _ => write!(f, "; {exact} of the jobs seen one by one, the others inferred")?,
        }
        if self.exact < self.jobs {
            write!(f, ", their arrivals to about {:.1} s", time::seconds(self.error))?;
        }
        if self.work_error >= 0.005 {
            write!(f, ", the work to about {}", percent(self.work_error))?;
        }
        if !self.counted {
            write!(f, "; jobs shorter than a look apart may be missing")?;
        }
        Ok(())
    }
}

/// Reads what is recorded of a group since then, or of all time.
///
/// # Errors
/// The store cannot be read.
pub fn read(store: &Store, group: &str, since: Option<Timestamp>) -> anyhow::Result<History> {
    Ok(curves::reconstruct(&store.looks(group, since)?, store.jobs(group, since)?))
}

/// How long workers took to start, as far as that was learnt.
pub fn learnt_start_up(state: &State) -> Option<Span> {
    let start_ups = &state.policy.slo.estimate.start_ups;
    time::span_of_seconds(start_ups.mean_up_to(f64::INFINITY)?)
}

/// A share for people; only all is 100 %.
fn percent(share: f64) -> String {
    let hundredths = (share * 100.0).round();
    if share < 1.0 && hundredths >= 100.0 { "over 99 %".into() } else { format!("{hundredths} %") }
}

/// A length of time for people, in its two greatest units.
fn length(span: Span) -> String {
    let seconds = span.as_secs();
    let units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")];
    let Some(first) = units.iter().position(|(unit, _)| seconds >= *unit) else {
        return "0 s".into();
    };
    let mut parts = Vec::new();
    let mut rest = seconds;
    for (unit, name) in units.iter().skip(first).take(2) {
        if rest >= *unit {
            parts.push(format!("{} {name}", rest / unit));
        }
        rest %= unit;
    }
    parts.join(" ")
}

fn as_hours<S: Serializer>(span: &Span, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time::seconds(*span) / 3600.0)
}

fn as_seconds<S: Serializer>(span: &Span, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time::seconds(*span))
}

#[cfg(test)]
mod tests;
