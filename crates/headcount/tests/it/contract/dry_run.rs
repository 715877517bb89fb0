//! The contract with a fleet that is only pretended. Nothing real is behind it, so nothing can break,
//! and a dry run over it is itself.

use async_trait::async_trait;
use headcount::targets::dry_run::DryRunConfig;
use headcount::targets::{Target, TargetConfig};
use tempfile::TempDir;

use super::{Fault, Rig};
use crate::support::workers::place;

struct Pretended {
    folder: TempDir,
}

impl Pretended {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }
}

#[async_trait]
impl Rig for Pretended {
    fn open(&self) -> Box<dyn Target> {
        let config = DryRunConfig { workers: Some(0), target: None };
        assert_eq!(config.problems(), []);
        TargetConfig::DryRun(config).open(&place(self.folder.path(), "g")).unwrap()
    }

    /// As many as the next run of Headcount would begin with.
    async fn really(&mut self) -> Vec<String> {
        let file = place(self.folder.path(), "g").state_dir.join("assumed-workers");
        let number = std::fs::read_to_string(file).map_or(0, |text| text.trim().parse().unwrap());
        (0..number).map(|n: u32| n.to_string()).collect()
    }

    async fn set_outside(&mut self, _n: u32) -> bool {
        false
    }

    async fn break_it(&mut self, _fault: Fault) -> bool {
        false
    }

    async fn mend(&mut self) {}

    async fn busy(&mut self, _ids: &[String]) -> bool {
        false
    }

    async fn finish(&mut self, _ids: &[String]) {}
}

super::contract!(Pretended::new();
    reaches_every_number_from_any,
    the_same_number_again_changes_nothing,
    scale_in_removes_whom_it_says,
    check_finds_a_broken_back_end,
);
super::contract!(in group, Pretended::new();
    a_lost_lease_stops_everything,
);
