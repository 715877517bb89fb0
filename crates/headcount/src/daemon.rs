//! The daemon: runs every group, serves HTTP, reloads the configuration, and ends in order.

mod keep;

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use headcount_core::{Alerts, Reading, Rules, Silence, Span};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinHandle;

use crate::budget::Budget;
use crate::clock;
use crate::config::changes::{Changes, GroupChange, changes};
use crate::config::{Config, GroupConfig};
use crate::group::{Group, News, Parts, Tick};
use crate::hosts::HostWatch;
use crate::lease;
use crate::limits::{
    FIRST_SAMPLE, FLUSH_EVERY, LEAVE_TIMEOUT, OPEN_FILES, RELOAD_EVERY, STOP_TIMEOUT, TICKS_BEHIND,
};
use crate::metrics_list::MetricsListWriter;
use crate::sinks::windmill::WindmillEvents;
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
    /// What all groups may have together.
    pub budget: Arc<Budget>,
    /// Only pretend to act.
    pub dry_run: bool,
    /// Where state is kept.
    pub state_dir: PathBuf,
}

/// A group's task and the ways to reach it.
struct Task {
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
    /// The memory of one worker, bytes.
    pub worker_memory: u64,
    /// What people want to hear of.
    pub alerts: Alerts,
}

/// Under which name a dry run remembers a live group.
pub fn dry_name(group: &str) -> String {
    format!("{group} (dry run)")
}

impl Tuning {
    fn of(config: &GroupConfig) -> Self {
        Self {
            rules: config.rules.clone(),
            look: config.look,
            worker_memory: config.worker_memory,
            alerts: config.alerts.clone(),
        }
    }
}

struct Daemon {
    config: Config,
    shared: Shared,
    health: Arc<Health>,
    groups: HashMap<String, Task>,
}

impl Shared {
    /// For the groups of `config`.
    pub fn new(config: &Config, dry_run: bool) -> Self {
        Self {
            store: Arc::new(Store::open(&config.state_dir, config.keep_days)),
            host: HostWatch::start(),
            ticks: broadcast::Sender::new(TICKS_BEHIND),
            budget: Arc::new(Budget::new(config)),
            dry_run,
            state_dir: config.state_dir.clone(),
        }
    }

    /// A dry run of a live group remembers apart: its cooldowns and events are not the group's.
    fn memory_of(&self, name: &str, live: bool) -> String {
        if self.dry_run && live { dry_name(name) } else { name.into() }
    }

    /// Waits for the first sample of the host, so that a start does not look like an outage.
    pub async fn know_host(&self) {
        let unknown = || {
            let reading = self.host.read(clock::now(), Span::from_secs(1));
            matches!(reading, Reading::Missing(missing) if missing.why == Silence::Absent)
        };
        let first = async {
            while unknown() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = tokio::time::timeout(FIRST_SAMPLE, first).await;
    }

    /// Puts a group together.
    ///
    /// # Errors
    /// A file that a connector needs cannot be read.
    pub fn open(&self, config: &GroupConfig) -> anyhow::Result<Group> {
        let place = config.place(&self.state_dir);
        let host = self.host.clone();
        let mut target = config.target.open(&place)?;
        let live = !target.is_dry();
        if self.dry_run && live {
            target = dry_run::over(target);
        }
        let metrics_list = match &config.metrics_list {
            Some(list) => Some(MetricsListWriter::new(list, &config.base_dir)?),
            None => None,
        };
        let mut news = News {
            worker_memory: config.worker_memory,
            alerts: config.alerts.clone(),
            sinks: Vec::new(),
        };
        if let Some(webhook) = &config.alert_webhook {
            news.sinks.push(Box::new(webhook.open(&config.base_dir)?));
        }
        if let Some(windmill) = config.queue.wants_events() {
            news.sinks.push(Box::new(WindmillEvents::open(windmill, &place)?));
        }
        let memory = self.memory_of(&config.name, live);
        let had = self.store.load(&memory).and_then(|state| state.current);
        Ok(Group::new(Parts {
            name: config.name.clone(),
            memory,
            budget: self.budget.member(&config.name, had),
            rules: config.rules.clone(),
            look: config.look,
            news,
            queue: config.queue.open(&place)?,
            host: Arc::new(move |now, window| host.read(now, window)),
            store: Arc::clone(&self.store),
            lease: lease::open(config, target.as_ref(), &self.state_dir)?,
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
    // First: until then a SIGTERM kills, or is not heard by the first process of a container.
    let mut signals = Signals::listen()?;
    raise_open_files();
    greet(&config, watched.as_deref(), dry_run);
    let _running = Running::mark(&config.state_dir);
    let shared = Shared::new(&config, dry_run);
    shared.know_host().await;
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

    daemon.watch(&load, watched.as_deref(), &mut signals).await;

    tracing::info!("stopping; a second signal ends at once");
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    tokio::select! {
        () = daemon.end() => {}
        () = signals.end() => tracing::warn!("ended before everything was in order"),
    }
    daemon.shared.store.flush();
    Ok(())
}

/// Says what runs, in the first line of the log.
fn greet(config: &Config, file: Option<&Path>, dry_run: bool) {
    let groups: Vec<&str> = config.groups.iter().map(|g| g.name.as_str()).collect();
    let file = file.map_or_else(|| "the environment".into(), |f| f.display().to_string());
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        groups = groups.join(", "),
        configuration = file,
        state = %config.state_dir.display(),
        dry_run = dry_run.then_some(true),
        "headcount runs"
    );
}

/// Many groups and pages need many sockets; the usual soft limit is low for historical reasons.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let most = maximum.map_or(OPEN_FILES, |hard| hard.min(OPEN_FILES));
    if current.is_some_and(|soft| soft < most) {
        // Not allowed is not fatal: the limits of buffers and connections hold anyway.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum });
    }
}

/// The mark of a running daemon in its state folder: a file that is locked as long as it runs.
#[derive(Debug)]
pub struct Running {
    _locked: Option<File>,
}

impl Running {
    fn mark(folder: &Path) -> Self {
        let mark = || -> std::io::Result<File> {
            std::fs::create_dir_all(folder)?;
            let file = File::create(folder.join("running"))?;
            // A second daemon of this folder finds it locked, and is as good a proof.
            let _ = file.try_lock();
            Ok(file)
        };
        Self { _locked: mark().ok() }
    }

    /// Whether a daemon runs that keeps its state in `folder`; `None` if nobody can tell.
    pub fn is_there(folder: &Path) -> Option<bool> {
        match File::open(folder.join("running")).ok()?.try_lock() {
            Err(TryLockError::WouldBlock) => Some(true),
            Err(TryLockError::Error(_)) => None,
            Ok(()) => Some(false),
        }
    }
}

/// The signals that steer a daemon.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next thing a signal asks for.
    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.terminate.recv() => Asked::End,
            _ = self.interrupt.recv() => Asked::End,
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }

    /// Returns when the daemon is to end. A reload that is asked for meanwhile is not forgotten.
    async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// What a signal asks for.
enum Asked {
    End,
    Reload,
}

impl Daemon {
    /// Flushes, reloads, and returns when told to stop.
    async fn watch(&mut self, load: &Load, watched: Option<&Path>, signals: &mut Signals) {
        let mut flush = tokio::time::interval(FLUSH_EVERY);
        let mut compare = tokio::time::interval(RELOAD_EVERY);
        let mut stamp = stamp_of(watched);
        loop {
            let changed = tokio::select! {
                asked = signals.next() => match asked {
                    Asked::End => return,
                    Asked::Reload => true,
                },
                _ = flush.tick() => {
                    self.shared.store.flush();
                    false
                }
                _ = compare.tick() => {
                    let now = stamp_of(watched);
                    let changed = now.is_some() && now != stamp;
                    stamp = now.or(stamp);
                    changed
                }
            };
            if changed {
                // A reload waits for groups that are opened anew; the end does not wait for it.
                tokio::select! {
                    () = self.reload(load) => {}
                    () = signals.end() => return,
                }
            }
        }
    }

    /// Ends every group, each as its target does it.
    async fn end(&mut self) {
        let names: Vec<String> = self.groups.keys().cloned().collect();
        for name in &names {
            self.tell_to_stop(name, Stop::End);
        }
        for name in &names {
            self.wait_for(name, STOP_TIMEOUT).await;
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
        self.shared.budget.configure(&config);
        let Changes { groups, restart } = changes(&self.config, &config);
        for key in restart {
            tracing::warn!("a new {key} needs a restart to count");
        }
        let mut now = Vec::new();
        // Those that are gone first: a group that only got a new name needs their lease.
        for (name, change) in sorted(groups) {
            let new = config.group(&name);
            match (self.change_group(&name, change, new).await, new) {
                (Ok(()), new) => now.extend(new.cloned()),
                (Err(error), _) => {
                    tracing::error!(group = name, "its new configuration is refused: {error:#}");
                    self.health.set_bad_config(Some(format!("{name}: {error:#}")));
                    now.extend(self.config.group(&name).cloned());
                }
            }
        }
        // What needs a restart stays what it is, so that it is told again until then.
        self.config.groups = now;
        self.config.budget = config.budget;
        self.shared.budget.configure(&self.config);
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
            self.wait_for(name, LEAVE_TIMEOUT).await;
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
                self.wait_for(name, LEAVE_TIMEOUT).await;
                self.start(new, group);
            }
        }
        Ok(())
    }

    fn start(&mut self, config: &GroupConfig, group: Group) {
        let (tuning, tuned) = watch::channel(Tuning::of(config));
        let (stop, told) = watch::channel(Stop::No);
        let (shared, opened) = (self.shared.clone(), config.clone());
        let (mut first, for_group) = (Some(group), told.clone());
        let run = move || {
            // A target whose configuration is another one is opened anew by a reload: only rules
            // change meanwhile, and the group takes them over when it starts.
            let group = first.take().map_or_else(|| shared.open(&opened), Ok);
            let (tuned, told) = (tuned.clone(), for_group.clone());
            async move {
                group?.run(tuned, told).await;
                anyhow::Ok(())
            }
        };
        let name = config.name.clone();
        let task = tokio::spawn(keep::keep_running(name, Arc::clone(&self.health), told, run));
        self.groups.insert(config.name.clone(), Task { tuning, stop, task });
    }

    fn tell_to_stop(&self, name: &str, how: Stop) {
        if let Some(running) = self.groups.get(name) {
            running.stop.send_replace(how);
        }
    }

    async fn wait_for(&mut self, name: &str, limit: Duration) {
        let Some(running) = self.groups.remove(name) else { return };
        let abort = running.task.abort_handle();
        match tokio::time::timeout(limit, running.task).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(group = name, "its loop broke: {error}"),
            Err(_) => {
                tracing::error!(group = name, "did not end in time");
                abort.abort();
            }
        }
    }
}

fn sorted(mut groups: Vec<(String, GroupChange)>) -> Vec<(String, GroupChange)> {
    groups.sort_by_key(|(_, change)| *change != GroupChange::Removed);
    groups
}

/// What changes when somebody writes the file.
fn stamp_of(path: Option<&Path>) -> Option<(SystemTime, u64)> {
    let data = std::fs::metadata(path?).ok()?;
    Some((data.modified().ok()?, data.len()))
}
