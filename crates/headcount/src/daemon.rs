//! The daemon: runs every group, serves HTTP, reloads the configuration, and ends in order.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use headcount_core::{Rules, Span};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;

use crate::clock;
use crate::config::changes::{Changes, GroupChange, changes};
use crate::config::{Config, GroupConfig};
use crate::group::{Group, Parts, Tick};
use crate::hosts::HostWatch;
use crate::lease::FileLease;
use crate::limits::{FLUSH_EVERY, RELOAD_EVERY, STOP_TIMEOUT, TICKS_BEHIND};
use crate::metrics_list::MetricsListWriter;
use crate::store::Store;
use crate::targets::dry_run;
use crate::web::{self, Health};

/// How to get the configuration again.
pub type Load = Box<dyn Fn() -> anyhow::Result<Config> + Send + Sync>;

/// What all groups share.
#[derive(Clone)]
pub struct Shared {
    /// Where everything is kept.
    pub store: Arc<Store>,
    /// The machine.
    pub host: HostWatch,
    /// Who watches.
    pub ticks: broadcast::Sender<Arc<Tick>>,
    /// Only pretend to act.
    pub dry_run: bool,
    /// Where state is kept.
    pub state_dir: PathBuf,
}

/// A group's task and the ways to reach it.
struct Running {
    tuning: watch::Sender<Tuning>,
    stop: watch::Sender<Stop>,
    task: JoinHandle<()>,
}

/// How a group is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Go on.
    No,
    /// End and leave the workers as they are.
    Leave,
    /// End; the target does what it does at the end.
    End,
}

/// What can change while a group runs.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Its rules.
    pub rules: Rules,
    /// The longest time between two looks.
    pub look: Span,
}

impl Tuning {
    fn of(config: &GroupConfig) -> Self {
        Self { rules: config.rules.clone(), look: config.look }
    }
}

struct Daemon {
    config: Config,
    shared: Shared,
    health: Arc<Health>,
    groups: HashMap<String, Running>,
}

impl Shared {
    /// For the groups of `config`.
    pub fn new(config: &Config, dry_run: bool) -> Self {
        Self {
            store: Arc::new(Store::open(&config.state_dir, config.keep_days)),
            host: HostWatch::start(),
            ticks: broadcast::Sender::new(TICKS_BEHIND),
            dry_run,
            state_dir: config.state_dir.clone(),
        }
    }

    /// Puts a group together.
    ///
    /// # Errors
    /// A file that a connector needs cannot be read.
    pub fn open(&self, config: &GroupConfig) -> anyhow::Result<Group> {
        let place = config.place(&self.state_dir);
        let host = self.host.clone();
        let mut target = config.target.open(&place)?;
        if self.dry_run && !target.is_dry() {
            target = dry_run::over(target);
        }
        let metrics_list = match &config.metrics_list {
            Some(list) => Some(MetricsListWriter::new(list, &config.base_dir)?),
            None => None,
        };
        Ok(Group::new(Parts {
            name: config.name.clone(),
            rules: config.rules.clone(),
            look: config.look,
            queue: config.queue.open(&place)?,
            host: Arc::new(move |now, window| host.read(now, window)),
            store: Arc::clone(&self.store),
            lease: Box::new(FileLease::new(&lease_folder(), &target.scales())),
            target,
            metrics_list,
            ticks: self.ticks.clone(),
            clock: Arc::new(clock::now),
        }))
    }
}

/// Runs until SIGTERM or SIGINT. SIGHUP, or a change of the file at `watched`, reloads.
///
/// # Errors
/// A group cannot be put together at the start.
pub async fn run(
    config: Config,
    load: Load,
    watched: Option<PathBuf>,
    dry_run: bool,
) -> anyhow::Result<()> {
    let shared = Shared::new(&config, dry_run);
    let health = Health::new(Arc::clone(&shared.store));
    tokio::spawn(Arc::clone(&health).follow(shared.ticks.subscribe()));
    let mut daemon = Daemon { config, shared, health, groups: HashMap::new() };
    for config in &daemon.config.groups.clone() {
        let group = daemon.shared.open(config)?;
        daemon.start(config, group);
    }
    daemon.health.expect_groups(daemon.groups.keys().map(String::as_str));
    daemon.serve().await;
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);

    daemon.watch(&load, watched.as_deref()).await?;

    tracing::info!("stopping");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    let names: Vec<String> = daemon.groups.keys().cloned().collect();
    for name in &names {
        daemon.tell_to_stop(name, Stop::End);
    }
    for name in &names {
        daemon.wait_for(name).await;
    }
    daemon.shared.store.flush();
    Ok(())
}

impl Daemon {
    /// Flushes, reloads, and returns when told to stop.
    async fn watch(&mut self, load: &Load, watched: Option<&Path>) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let mut flush = tokio::time::interval(FLUSH_EVERY);
        let mut compare = tokio::time::interval(RELOAD_EVERY);
        let mut stamp = stamp_of(watched);
        loop {
            tokio::select! {
                _ = terminate.recv() => return Ok(()),
                _ = interrupt.recv() => return Ok(()),
                _ = hang_up.recv() => self.reload(load).await,
                _ = flush.tick() => self.shared.store.flush(),
                _ = compare.tick() => {
                    let now = stamp_of(watched);
                    if now != stamp && now.is_some() {
                        self.reload(load).await;
                    }
                    stamp = now.or(stamp);
                }
            }
        }
    }

    async fn serve(&self) {
        let Some(listen) = self.config.listen else { return };
        match web::serve(Arc::clone(&self.health), listen).await {
            Ok(address) => tracing::info!("serving http://{address}/metrics, /healthz and /readyz"),
            Err(error) => tracing::warn!("{error:#}; going on without it"),
        }
    }

    /// Takes over a new configuration; a bad one is refused and the old one kept.
    async fn reload(&mut self, load: &Load) {
        let config = match load() {
            Ok(config) => config,
            Err(error) => {
                tracing::error!("the new configuration is refused, the old one stays: {error:#}");
                self.health.set_bad_config(Some(format!("{error:#}")));
                return;
            }
        };
        self.health.set_bad_config(None);
        let Changes { groups, restart } = changes(&self.config, &config);
        for key in restart {
            tracing::warn!("a new {key} needs a restart to count");
        }
        for (name, change) in groups {
            let new = config.group(&name);
            if let Err(error) = self.change_group(&name, change, new).await {
                tracing::error!(group = name, "its new configuration is refused: {error:#}");
                self.health.set_bad_config(Some(format!("{name}: {error:#}")));
            }
        }
        self.config = config;
        self.health.expect_groups(self.groups.keys().map(String::as_str));
        tracing::info!(groups = self.groups.len(), "configuration reloaded");
    }

    /// Brings one group to its new configuration. What cannot be opened leaves the old one running.
    async fn change_group(
        &mut self,
        name: &str,
        change: GroupChange,
        new: Option<&GroupConfig>,
    ) -> anyhow::Result<()> {
        let Some(new) = new else {
            tracing::info!(group = name, "is no longer in the configuration: its workers stay");
            self.tell_to_stop(name, Stop::Leave);
            self.wait_for(name).await;
            return Ok(());
        };
        match (change, self.groups.get(name)) {
            (GroupChange::Same, Some(_)) => {}
            (GroupChange::Rules, Some(running)) => {
                tracing::info!(group = name, "has new rules");
                running.tuning.send_replace(Tuning::of(new));
            }
            _ => {
                tracing::info!(group = name, "is opened anew");
                let group = self.shared.open(new)?;
                self.tell_to_stop(name, Stop::Leave);
                self.wait_for(name).await;
                self.start(new, group);
            }
        }
        Ok(())
    }

    fn start(&mut self, config: &GroupConfig, group: Group) {
        let (tuning, tuned) = watch::channel(Tuning::of(config));
        let (stop, told) = watch::channel(Stop::No);
        let task = tokio::spawn(group.run(tuned, told));
        self.groups.insert(config.name.clone(), Running { tuning, stop, task });
    }

    fn tell_to_stop(&self, name: &str, how: Stop) {
        if let Some(running) = self.groups.get(name) {
            running.stop.send_replace(how);
        }
    }

    async fn wait_for(&mut self, name: &str) {
        let Some(running) = self.groups.remove(name) else { return };
        let abort = running.task.abort_handle();
        match tokio::time::timeout(STOP_TIMEOUT, running.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(group = name, "its loop broke: {error}"),
            Err(_) => {
                tracing::error!(group = name, "did not end in time");
                abort.abort();
            }
        }
    }
}

/// What changes when somebody writes the file.
fn stamp_of(path: Option<&Path>) -> Option<(SystemTime, u64)> {
    let data = std::fs::metadata(path?).ok()?;
    Some((data.modified().ok()?, data.len()))
}

/// One folder for all Headcounts of a machine, so that two with different state folders still see
/// each other's leases.
fn lease_folder() -> PathBuf {
    let locks = Path::new("/run/lock/headcount");
    if std::fs::create_dir_all(locks).is_ok() {
        return locks.to_path_buf();
    }
    std::env::temp_dir().join("headcount-leases")
}
