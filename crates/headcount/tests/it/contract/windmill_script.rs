//! The contract with a script in a Windmill: one that tells its live workers, and one that is not
//! asked.

use async_trait::async_trait;
use headcount::targets::windmill_script::WindmillScriptConfig;
use headcount::targets::{Target, TargetConfig};
use headcount_core::Span;
use tempfile::TempDir;

use super::door::Door;
use super::{Fault, Rig};
use crate::support::windmill_api::{TOKEN, WindmillApi};
use crate::support::workers::place;

struct WindmillScript {
    folder: TempDir,
    api: WindmillApi,
    door: Door,
    asked: bool,
}

impl WindmillScript {
    async fn new(asked: bool) -> Self {
        let api = WindmillApi::start().await;
        let door = Door::before(api.address).await;
        Self { folder: tempfile::tempdir().unwrap(), api, door, asked }
    }
}

#[async_trait]
impl Rig for WindmillScript {
    fn open(&self) -> Box<dyn Target> {
        let config = WindmillScriptConfig {
            url: format!("http://{}", self.door.address()),
            token: Some(TOKEN.into()),
            path: "f/ops/scale".into(),
            timeout: Span::from_secs(3),
            initial: (!self.asked).then_some(0),
            ..WindmillScriptConfig::default()
        };
        assert_eq!(config.problems(), []);
        TargetConfig::WindmillScript(config).open(&place(self.folder.path(), "g")).unwrap()
    }

    async fn really(&mut self) -> Vec<String> {
        (0..self.api.world().workers).map(|i| format!("g{i}")).collect()
    }

    async fn set_outside(&mut self, n: u32) -> bool {
        if self.asked {
            self.api.world().workers = n;
        }
        self.asked
    }

    async fn break_it(&mut self, fault: Fault) -> bool {
        match fault {
            // Nobody could tell what was done.
            Fault::HalfDone if !self.asked => return false,
            Fault::HalfDone => self.api.world().half = true,
            _ => self.door.set(Some(fault)).await,
        }
        true
    }

    async fn mend(&mut self) {
        self.api.world().half = false;
        self.door.set(None).await;
    }
}

mod asked {
    super::super::contract!(super::WindmillScript::new(true).await);
}

mod assumed {
    super::super::contract!(super::WindmillScript::new(false).await);
}
