//! Everything the demo needs, in one temporary folder: the table, the group that scales, and the
//! end in which nothing is left.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use headcount_core::policy::cpu_aware::{CpuAware, NO_LIMIT};
use headcount_core::rules::{Bounds, Brake, Capacity};
use headcount_core::{Alerts, Policy, Rules, Span};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;

use crate::budget::Budget;
use crate::clock;
use crate::config::Place;
use crate::daemon::{Stop, Tuning};
use crate::demo::folder::Folder;
use crate::demo::load;
use crate::demo::table::Table;
use crate::group::{Group, News, Parts, Tick};
use crate::hosts::HostWatch;
use crate::lease::FileLease;
use crate::limits::TICKS_BEHIND;
use crate::queues::demo::DemoConfig;
use crate::store::Store;
use crate::targets::process::{OnExit, ProcessConfig};
use crate::usage::UNIT;

/// The group's name.
const GROUP: &str = "demo";
/// How long a worker pretends to take to start.
pub const START_UP: Span = Span::from_secs(1);
/// How long a worker gets at the end; its jobs are shorter.
const GRACE: Span = Span::from_secs(4);

/// A running demo.
pub struct Stage {
    folder: Folder,
    config: ProcessConfig,
    ticks: broadcast::Receiver<Arc<Tick>>,
    stop: watch::Sender<Stop>,
    group: JoinHandle<()>,
    load: JoinHandle<anyhow::Result<()>>,
}

/// The rules of the demo: the reference's policy with its times shortened and its CPU limits off.
pub fn rules(max: u32) -> Rules {
    let policy = CpuAware {
        poll: Span::from_secs(1),
        cooldown: Span::from_secs(3),
        idle: Span::from_secs(8),
        scale_out_below: NO_LIMIT,
        emergency: NO_LIMIT,
        ..CpuAware::default()
    };
    Rules {
        workers: Bounds { min: 1, max, start_up: Some(START_UP), ..Bounds::default() },
        policy: Policy::CpuAware(policy),
        brake: Brake { off: true, ..Brake::default() },
        capacity: Capacity { off: true, ..Capacity::default() },
        ..Rules::default()
    }
}

impl Stage {
    /// Starts it, with at most `max` workers and the bursts of `seed`. Must be called inside a
    /// tokio runtime.
    ///
    /// # Errors
    /// The temporary folder or something in it cannot be made.
    pub fn start(max: u32, seed: u64) -> anyhow::Result<Self> {
        let folder = Folder::make()
            .context("a temporary folder cannot be made; set TMPDIR to one that can be written")?;
        let database = folder.path().join("jobs.db");
        Table::create(&database).context("the job table cannot be made")?;
        let config = workers(&database)?;
        let queue = DemoConfig { database: database.clone() }.open(&place(&folder))?;
        let target = config.open(&place(&folder))?;
        let (ticks, watched) = broadcast::channel(TICKS_BEHIND);
        let host = HostWatch::start();
        let rules = rules(max);
        let group = Group::new(Parts {
            name: GROUP.into(),
            memory: GROUP.into(),
            look: rules.policy.poll(),
            news: News::default(),
            rules: rules.clone(),
            queue,
            host: Arc::new(move |now, window| host.read(now, window)),
            store: Arc::new(Store::open(folder.path(), 1)),
            budget: Arc::new(Budget::default()).member(GROUP, None),
            lease: Box::new(FileLease::new(folder.path(), &target.scales())),
            target,
            metrics_list: None,
            ticks,
            clock: Arc::new(clock::now),
        });
        let (stop, told) = watch::channel(Stop::No);
        // The rules never change, so nobody keeps the other end.
        let look = rules.policy.poll();
        let (_, tuned) =
            watch::channel(Tuning { rules, look, worker_memory: UNIT, alerts: Alerts::default() });
        let group = tokio::spawn(group.run(tuned, told));
        let load = tokio::spawn(async move { load::run(&database, seed).await });
        Ok(Self { folder, config, ticks: watched, stop, group, load })
    }

    /// The next tick; `None` when the group has ended, which it does only if it broke.
    pub async fn tick(&mut self) -> Option<Arc<Tick>> {
        loop {
            match self.ticks.recv().await {
                Ok(tick) => return Some(tick),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// Ends it: the workers finish their job or are killed, and the folder is removed.
    ///
    /// # Errors
    /// The folder cannot be removed, or the group or the load had broken.
    pub async fn end(self) -> anyhow::Result<()> {
        self.load.abort();
        self.stop.send_replace(Stop::End);
        let group = self.group.await.context("the group broke");
        // If it broke it has not stopped its workers.
        self.config.open(&place(&self.folder))?.close().await;
        let removed = self.folder.close().context("the temporary folder cannot be removed");
        let load = match self.load.await {
            Ok(broken) => broken.context("the load broke"),
            Err(_stopped) => Ok(()),
        };
        group.and(removed).and(load)
    }
}

/// This very program as the workers.
fn workers(database: &std::path::Path) -> anyhow::Result<ProcessConfig> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let text = |path: PathBuf| {
        path.into_os_string().into_string().ok().context("a path that is not UTF-8 is in the way")
    };
    let start_up = format!("{START_UP:#}");
    let command = vec![
        text(program)?,
        "demo-worker".into(),
        "--database".into(),
        text(database.to_owned())?,
        "--start-up".into(),
        start_up,
        "--parent".into(),
        std::process::id().to_string(),
    ];
    Ok(ProcessConfig {
        command,
        grace: GRACE,
        on_exit: OnExit::Stop,
        ready_after: START_UP,
        ..ProcessConfig::default()
    })
}

fn place(folder: &Folder) -> Place {
    let path = folder.path();
    Place { group: GROUP.into(), state_dir: path.join(GROUP), base_dir: path.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_make_sense() {
        for max in [1, 4, 100] {
            assert_eq!(rules(max).problems(), []);
        }
    }
}
