//! One tick, as those who watch get it: metrics, views, `once`.

use std::fmt;

use headcount_core::alert::AlertName;
use headcount_core::{Decision, Observation, Outcome};

use crate::lease::Held;

/// One tick, for those who watch.
#[derive(Clone, Debug)]
pub struct Tick {
    /// Which group.
    pub group: String,
    /// Actions are only pretended.
    pub dry: bool,
    /// This process may not act for the group: why.
    pub stand_by: Option<Held>,
    /// The fewest and the most workers by the rules.
    pub bounds: (u32, u32),
    /// What was seen; absent while standing by.
    pub seen: Option<Observation>,
    /// What was decided.
    pub decision: Option<Decision>,
    /// What became of a change, and what the target said.
    pub outcome: Option<(Outcome, String)>,
    /// Smoothed CPU, percent.
    pub cpu_ema: Option<f64>,
    /// Each alert's name, and whether it is raised.
    pub alerts: [(AlertName, bool); 2],
}

impl Tick {
    /// The decision with the group's name and what became of it: one line of JSON for a tool.
    pub fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::to_value(&self.decision).unwrap_or_default();
        if !json.is_object() {
            let why = self.stand_by.as_ref().map(ToString::to_string);
            json = serde_json::json!({ "stand_by": why });
        }
        json["group"] = self.group.as_str().into();
        json["dry"] = self.dry.into();
        if let Some((outcome, note)) = &self.outcome {
            json["outcome"] = serde_json::to_value(outcome).unwrap_or_default();
            json["note"] = note.as_str().into();
        }
        json
    }
}

/// The decision in one line.
impl fmt::Display for Tick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(decision) = &self.decision else {
            let why = self.stand_by.as_ref().map(ToString::to_string).unwrap_or_default();
            return write!(f, "{}: standing by, the lease is {why}", self.group);
        };
        match decision.change() {
            Some((from, to)) => write!(f, "{}: {} {from} -> {to}", self.group, decision.kind)?,
            None => match decision.current {
                Some(n) => write!(f, "{}: hold at {n}", self.group)?,
                None => write!(f, "{}: hold", self.group)?,
            },
        }
        write!(f, ", {}", decision.reason)?;
        match &self.outcome {
            Some((Outcome::Failed, note)) => write!(f, "; failed: {note}"),
            Some((Outcome::NotNow, note)) => write!(f, "; not now: {note}"),
            Some((Outcome::Done | Outcome::Pretended, note)) if !note.is_empty() => {
                write!(f, "; {note}")
            }
            _ => Ok(()),
        }
    }
}
