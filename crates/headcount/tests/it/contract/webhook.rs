//! The contract with a server that takes orders by webhook: one that takes away whom it is told
//! to, and one that is only told a number.

use async_trait::async_trait;
use headcount::targets::webhook::WebhookConfig;
use headcount::targets::{Target, TargetConfig};
use headcount_core::Span;
use tempfile::TempDir;

use super::door::Door;
use super::{Fault, Rig};
use crate::support::hook::Hook;
use crate::support::workers::place;

struct Webhook {
    folder: TempDir,
    hook: Hook,
    door: Door,
    lists: bool,
}

impl Webhook {
    async fn new(lists: bool) -> Self {
        let hook = Hook::start().await;
        let door = Door::before(hook.address).await;
        Self { folder: tempfile::tempdir().unwrap(), hook, door, lists }
    }
}

#[async_trait]
impl Rig for Webhook {
    fn open(&self) -> Box<dyn Target> {
        let at = |path: &str| format!("http://{}/{path}", self.door.address());
        let config = WebhookConfig {
            url: at("scale"),
            status_url: Some(at(if self.lists { "list" } else { "count" })),
            exact_victims: self.lists,
            timeout: Span::from_secs(3),
            ..WebhookConfig::default()
        };
        assert_eq!(config.problems(), []);
        TargetConfig::Webhook(config).open(&place(self.folder.path(), "g")).unwrap()
    }

    async fn really(&mut self) -> Vec<String> {
        let mut world = self.hook.world();
        world.reap();
        world.workers.keys().cloned().collect()
    }

    async fn set_outside(&mut self, n: u32) -> bool {
        let mut world = self.hook.world();
        while world.workers.len() > n as usize {
            world.workers.pop_last();
        }
        for i in world.workers.len()..n as usize {
            world.workers.insert(format!("x{i}"), "ready".into());
        }
        true
    }

    async fn break_it(&mut self, fault: Fault) -> bool {
        if fault == Fault::HalfDone {
            self.hook.world().half = true;
        } else {
            self.door.set(Some(fault)).await;
        }
        true
    }

    async fn mend(&mut self) {
        self.hook.world().half = false;
        self.door.set(None).await;
    }

    async fn busy(&mut self, ids: &[String]) -> bool {
        self.hook.world().jobs.extend(ids.iter().cloned());
        self.lists
    }

    async fn finish(&mut self, ids: &[String]) {
        self.hook.world().jobs.retain(|id| !ids.contains(id));
    }

    async fn start_slowly(&mut self) -> bool {
        self.hook.world().birth = Some("starting".into());
        self.lists
    }

    async fn cripple(&mut self, id: &str) -> bool {
        self.hook.world().workers.insert(id.to_owned(), "broken".into());
        true
    }
}

mod exact {
    super::super::contract!(super::Webhook::new(true).await);
}

mod number {
    super::super::contract!(super::Webhook::new(false).await);
}
