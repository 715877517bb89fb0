//! Looks but changes nothing: through another target, or at a fleet that is only pretended.

use async_trait::async_trait;
use headcount_core::Missing;
use headcount_core::rules::MOST_WORKERS;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Place;
use crate::finding::Finding;
use crate::targets::assumed::Assumed;
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetConfig, TargetError};

/// Looks, but changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DryRunConfig {
    /// The target whose workers are looked at.
    pub target: Option<Box<TargetConfig>>,
    /// Without a target: pretend to have this many workers at first.
    pub workers: Option<u32>,
}

impl DryRunConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let problem = |key: &str, what: String| vec![(key.to_owned(), what)];
        match (&self.target, self.workers) {
            (Some(target), None) => {
                let inside = |(key, what)| (format!("target.{}.{key}", target.kind()), what);
                target.problems().into_iter().map(inside).collect()
            }
            (None, Some(workers)) if workers > MOST_WORKERS => {
                problem("workers", format!("{workers} is above the limit of {MOST_WORKERS}"))
            }
            (None, Some(_)) => Vec::new(),
            (Some(_), Some(_)) => {
                problem("workers", "has no meaning beside `target`; remove one of them".into())
            }
            (None, None) => problem(
                "target",
                "is missing; give the target to look at, or `workers` to pretend a fleet".into(),
            ),
        }
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        if let Some(target) = &self.target {
            return Ok(over(target.open(place)?));
        }
        let workers = Assumed::new(&place.state_dir, self.workers.unwrap_or(0));
        Ok(Box::new(Pretended { group: place.group.clone(), workers }))
    }
}

/// Looks through `target`, but changes nothing.
pub fn over(mut target: Box<dyn Target>) -> Box<dyn Target> {
    if target.is_dry() {
        return target;
    }
    target.only_look();
    Box::new(DryRun(target))
}

struct DryRun(Box<dyn Target>);

#[async_trait]
impl Target for DryRun {
    fn promise(&self) -> Promise {
        self.0.promise()
    }

    fn scales(&self) -> String {
        format!("dry:{}", self.0.scales())
    }

    fn is_dry(&self) -> bool {
        true
    }

    fn runs_here(&self) -> bool {
        self.0.runs_here()
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        self.0.status().await
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        Ok(Scaled { note: would(order), pretended: true, ..Scaled::default() })
    }

    async fn check(&mut self) -> Vec<Finding> {
        self.0.check().await
    }
}

/// A fleet that is only a number.
struct Pretended {
    group: String,
    workers: Assumed,
}

#[async_trait]
impl Target for Pretended {
    fn promise(&self) -> Promise {
        Promise::NumberOnly
    }

    fn scales(&self) -> String {
        format!("dry:{}", self.group)
    }

    fn is_dry(&self) -> bool {
        true
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        self.workers.fleet()
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        // Nothing depends on it: where it cannot be kept, it is pretended for this run.
        let _ = self.workers.announce(order.to, "pretending");
        self.workers.set(order.to);
        // Unlike through a real target the number changes, so what waits after a change must wait.
        Ok(Scaled { note: would(order), ..Scaled::default() })
    }

    async fn check(&mut self) -> Vec<Finding> {
        vec![Finding::good("target", "dry run: a pretended fleet")]
    }
}

fn would(order: &Order) -> String {
    let Order { from, to, victims, .. } = order;
    let victims =
        if victims.is_empty() { String::new() } else { format!(": {}", victims.join(", ")) };
    match to.abs_diff(*from) {
        n if to > from => format!("dry run: would start {n}, from {from} to {to}"),
        n => format!("dry run: would stop {n}, from {from} to {to}{victims}"),
    }
}

#[cfg(test)]
mod tests {
    use headcount_core::{Kind, Silence};

    use super::*;
    use crate::targets::process::ProcessConfig;

    /// A target that must not be told to change anything.
    struct Real {
        only_look: bool,
    }

    #[async_trait]
    impl Target for Real {
        fn promise(&self) -> Promise {
            Promise::ExactVictims
        }
        fn scales(&self) -> String {
            "real:g".into()
        }
        fn runs_here(&self) -> bool {
            false
        }
        fn only_look(&mut self) {
            self.only_look = true;
        }
        async fn status(&mut self) -> Result<FleetSeen, Missing> {
            assert!(self.only_look, "a dry run says so before it looks");
            Err(Missing { why: Silence::Refused, detail: "as the real one says".into() })
        }
        async fn scale(&mut self, _order: &Order) -> Result<Scaled, TargetError> {
            panic!("a dry run changed something");
        }
        async fn check(&mut self) -> Vec<Finding> {
            Vec::new()
        }
        async fn close(&mut self) {
            panic!("a dry run ended something");
        }
    }

    fn order(from: u32, to: u32, victims: &[&str]) -> Order {
        Order {
            busy: <_>::default(),
            group: "g".into(),
            from,
            to,
            max: 10_000,
            victims: victims.iter().map(|v| (*v).to_string()).collect(),
            kind: Kind::ScaleOut,
            reason: "test".into(),
            token: 1,
        }
    }

    #[tokio::test]
    async fn looks_through_the_real_target_and_changes_nothing() {
        let mut dry = over(Box::new(Real { only_look: false }));
        assert!(dry.is_dry() && !dry.runs_here());
        assert_eq!((dry.promise(), dry.scales()), (Promise::ExactVictims, "dry:real:g".into()));
        assert_eq!(dry.status().await.unwrap_err().why, Silence::Refused);
        let out = dry.scale(&order(2, 4, &[])).await.unwrap();
        assert_eq!(out.note, "dry run: would start 2, from 2 to 4");
        let back = dry.scale(&order(4, 3, &["w7"])).await.unwrap();
        assert_eq!(back.note, "dry run: would stop 1, from 4 to 3: w7");
        assert_eq!((out.started, back.removed), (vec![], vec![]));
        assert!(out.pretended && back.pretended);
        dry.close().await;
        assert_eq!(over(dry).scales(), "dry:real:g", "dry stays dry");
    }

    #[tokio::test]
    async fn a_pretended_fleet_remembers_its_number_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place {
            group: "g".into(),
            state_dir: folder.path().join("g"),
            base_dir: folder.path().into(),
        };
        let config = DryRunConfig { workers: Some(1), target: None };
        let mut fleet = config.open(&place).unwrap();
        assert_eq!(fleet.status().await.unwrap().reading.capacity(), 1);
        let scaled = fleet.scale(&order(1, 3, &[])).await.unwrap();
        assert!(!scaled.pretended && fleet.is_dry(), "the pretended number did change");
        assert_eq!(fleet.status().await.unwrap().reading.capacity(), 3);
        let mut again = config.open(&place).unwrap();
        assert_eq!(again.status().await.unwrap().reading.capacity(), 3);
    }

    #[test]
    fn problems_name_the_key_inside() {
        let process = TargetConfig::Process(ProcessConfig::default());
        let inside = DryRunConfig { target: Some(Box::new(process)), workers: None };
        assert_eq!(inside.problems()[0].0, "target.process.command");
        let both = DryRunConfig { workers: Some(1), ..inside };
        assert_eq!(both.problems()[0].0, "workers");
        assert_eq!(DryRunConfig::default().problems()[0].0, "target");
    }
}
