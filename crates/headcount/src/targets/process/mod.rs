//! Workers that are child processes of Headcount, each in a process group of its own.
//!
//! A worker is stopped by SIGTERM to its main process, so that it finishes its job as its own
//! documentation says; after the grace time its whole group is killed, and so is whatever the main
//! process leaves behind when it ends. Workers live on when Headcount ends or dies, and the next
//! run takes them over.

mod fleet;
mod logs;
mod record;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use headcount_core::reading::WorkerState;
use headcount_core::rules::MOST_WORKERS;
use headcount_core::{FleetReading, Missing, Silence, Span};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::process::Command;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout};

use crate::clock;
use crate::config::Place;
use crate::finding::Finding;
use crate::hosts::processes::{self, Process as Running, end_with_headcount};
use crate::limits::{EARLY_DEATH, LEFTOVERS_GRACE};
use crate::queues::Identity;
use crate::secret::Secret;
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError, canonical, program};
use fleet::{Fleet, Leader};
use logs::Logs;
use record::{FLEET, GROUP, Record, Records, WORKER};

/// Workers that are child processes of Headcount.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessConfig {
    /// The program and its arguments: `[n8n, worker]`. It must stay in the foreground. No shell.
    pub command: Vec<String>,
    /// Environment variables for the workers, besides Headcount's own.
    pub env: BTreeMap<String, Secret>,
    /// The folder the workers run in. Default: the folder of the configuration file.
    pub directory: Option<PathBuf>,
    /// How long a worker that was told to go may take to finish its job; then it is killed.
    pub grace: Span,
    /// What becomes of the workers when Headcount ends.
    pub on_exit: OnExit,
    /// A worker that has run for this long counts as ready.
    pub ready_after: Span,
    /// Where the workers' output is kept. Default: `logs` in the group's state folder.
    pub log_dir: Option<PathBuf>,
}

/// What becomes of the workers when Headcount ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnExit {
    /// They go on; the next run takes them over. In a container that ends with Headcount they cannot:
    /// there it is `stop`.
    #[default]
    Keep,
    /// They are told to go and waited for, at most for the grace time.
    Stop,
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            env: BTreeMap::new(),
            directory: None,
            grace: Span::from_secs(60),
            on_exit: OnExit::Keep,
            ready_after: Span::ZERO,
            log_dir: None,
        }
    }
}

impl ProcessConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, what: &str| found.push((key.to_owned(), what.to_owned()));
        if self.command.first().is_none_or(String::is_empty) {
            say("command", "is empty; give the program and its arguments, as [n8n, worker]");
        }
        if !self.command.iter().all(|word| program::can_be_passed(word)) {
            say("command", "holds a NUL character");
        }
        for (name, value) in &self.env {
            let wrong_value = (!program::can_be_passed(value.expose()))
                .then(|| "its value holds a NUL character".to_owned());
            if let Some(what) = program::fault_of_variable(name).or(wrong_value) {
                say(&format!("env.{name}"), &what);
            }
        }
        for (key, span) in [("grace", self.grace), ("ready_after", self.ready_after)] {
            if span.is_negative() {
                say(key, "must not be negative");
            }
        }
        found
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        let state_dir = std::path::absolute(&place.state_dir)?;
        let logs = self.log_dir.as_ref().map(|dir| place.base_dir.join(dir));
        let logs = Logs::new(logs.unwrap_or_else(|| state_dir.join("logs")));
        let records = Records::new(state_dir.join("workers"));
        let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let name = self.command.first().map(String::as_str).unwrap_or_default();
        Ok(Box::new(Process {
            program: program::locate(&place.base_dir, name),
            directory: place.base_dir.join(self.directory.as_deref().unwrap_or("".as_ref())),
            mark: state_dir.to_string_lossy().into_owned(),
            group: place.group.clone(),
            prefix: place.group.chars().map(safe).take(60).collect(),
            fleet: Arc::new(Fleet::new(records, logs, self.grace, self.ready_after)),
            config: self.clone(),
            tasks: JoinSet::new(),
            searched: false,
            unsure: HashMap::new(),
            done: None,
            only_look: false,
            output_lost: false,
            tidying: None,
        }))
    }
}

struct Process {
    config: ProcessConfig,
    program: PathBuf,
    directory: PathBuf,
    group: String,
    /// The group's name as it can be part of a file's name.
    prefix: String,
    /// What tells our workers from those of another Headcount.
    mark: String,
    fleet: Arc<Fleet>,
    /// One for each worker, see [`Fleet::follow`].
    tasks: JoinSet<()>,
    /// The workers that an earlier run left were searched by their environment.
    searched: bool,
    /// Workers whose record was damaged, since when that is known: they may have been told to go.
    unsure: HashMap<String, Instant>,
    /// The scale-out carried out since the last look, by its [`Order::from`] and [`Order::to`].
    done: Option<(u32, u32)>,
    only_look: bool,
    /// The output of the last worker that was started is lost.
    output_lost: bool,
    /// See [`Logs::tidy`].
    tidying: Option<JoinHandle<()>>,
}

impl Process {
    /// Takes over the workers that somebody else started, and stops that somebody else began.
    fn adopt(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        for record in self.fleet.records.read() {
            self.fleet.heed(&record);
            self.take_over(record);
        }
        if !std::mem::replace(&mut self.searched, true) {
            for record in record::search(&self.mark, clock::now()) {
                if !self.fleet.knows(&record.id) {
                    if self.fleet.records.has(&record.id) {
                        self.doubt(&record.id);
                    }
                    if !self.only_look {
                        self.fleet.write(&record);
                    }
                    self.take_over(record);
                }
            }
        }
        if self.only_look {
            self.fleet.drop_ended();
        }
    }

    /// Whether a worker was told to go stands in its record, which is damaged.
    fn doubt(&mut self, id: &str) {
        tracing::warn!(
            worker = id,
            "its record is damaged: it may have been told to go, and is not told again for {:#}",
            self.config.grace
        );
        self.unsure.insert(id.to_owned(), Instant::now());
    }

    /// Whether a worker may have been told to go less than its grace ago.
    fn is_unsure(&self, id: &str) -> bool {
        let grace = clock::duration(self.config.grace);
        self.unsure.get(id).is_some_and(|since| since.elapsed() < grace)
    }

    fn take_over(&mut self, record: Record) {
        let Some(told) = self.fleet.add(record.clone()) else { return };
        if self.only_look {
            return;
        }
        // If it ended while nobody watched, only what it left behind is of interest.
        let leader = if record.has_ended() { Leader::Gone } else { Leader::Adopted };
        tracing::info!(worker = record.id, pid = record.pid, "worker of an earlier run found");
        self.tasks.spawn(Arc::clone(&self.fleet).follow(record, leader, told));
    }

    /// Starts one worker.
    fn start(&mut self) -> Result<String, TargetError> {
        let id = format!("{}-{:08x}", self.prefix, fastrand::u32(..));
        let (output, errors) = self.output_of(&id);
        let child = Command::new(&self.program)
            .args(&self.config.command[1..])
            .envs(self.config.env.iter().map(|(name, value)| (name, value.expose())))
            .env(WORKER, &id)
            .env(GROUP, &self.group)
            .env(FLEET, &self.mark)
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .map_err(|e| self.start_failed(&e))?;
        let pid = child.id().expect("a child that nobody waited for has an id");
        let record = Record {
            id: id.clone(),
            pid,
            // Known even if it has ended: its result was not fetched yet.
            started: Running::find(pid).map_or(0, |p| p.started),
            boot_id: processes::boot_id(),
            started_at: clock::now(),
            draining_since: None,
        };
        self.fleet.write(&record);
        if let Some(told) = self.fleet.add(record.clone()) {
            let leader = Leader::Child(child);
            self.tasks.spawn(Arc::clone(&self.fleet).follow(record, leader, told));
        }
        Ok(id)
    }

    /// Where a worker writes to. Without a file its output is lost, but it works: many programs end
    /// when they cannot write.
    fn output_of(&mut self, id: &str) -> (Stdio, Stdio) {
        let opened = self.fleet.logs.open(id).and_then(|file| Ok((file.try_clone()?, file)));
        let lost_before = std::mem::replace(&mut self.output_lost, opened.is_err());
        match opened {
            Ok((output, errors)) => (output.into(), errors.into()),
            Err(e) => {
                if !lost_before {
                    tracing::warn!(worker = id, error = %e,
                        log = %self.fleet.logs.file(id).display(),
                        "the output of new workers cannot be kept and is lost; free or unlock the \
                         disk");
                }
                (Stdio::null(), Stdio::null())
            }
        }
    }

    /// Keeps the output within its bounds, in the background: that may take its time.
    fn tidy_logs(&mut self) {
        if self.only_look || self.tidying.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        let (fleet, prefix) = (Arc::clone(&self.fleet), self.prefix.clone());
        let tidy = move || fleet.logs.tidy(&prefix, &|id| fleet.is_listed(id));
        self.tidying = Some(tokio::task::spawn_blocking(tidy));
    }

    fn start_failed(&self, error: &std::io::Error) -> TargetError {
        let detail = if self.directory.is_dir() {
            program::fault(&self.program).unwrap_or_else(|| error.to_string())
        } else {
            format!("directory {} is no folder", self.directory.display())
        };
        TargetError::Failed { what: format!("start of {}", self.program.display()), detail }
    }

    fn scale_out(&mut self, from: u32, to: u32) -> Result<Scaled, TargetError> {
        let there = self.capacity();
        if there >= to {
            if self.done != Some((from, to)) {
                return Err(TargetError::Contradiction { there, decided_for: from });
            }
            return Ok(Scaled { note: format!("there are {there} already"), ..Scaled::default() });
        }
        let started = (there..to).map(|_| self.start()).collect::<Result<Vec<_>, _>>()?;
        self.done = Some((from, to));
        let note = format!("started {}", started.join(", "));
        Ok(Scaled { started, note, ..Scaled::default() })
    }

    fn scale_in(&self, order: &Order) -> Result<Scaled, TargetError> {
        let refuse = |detail: String| {
            let what = format!("scale-in from {} to {}", order.from, order.to);
            Err(TargetError::Failed { what, detail })
        };
        if order.victims.is_empty() {
            return refuse("no worker was chosen, and this target stops only chosen ones".into());
        }
        let unknown: Vec<&str> =
            order.victims.iter().map(String::as_str).filter(|id| !self.fleet.knows(id)).collect();
        if !unknown.is_empty() {
            return refuse(format!("no such worker: {}", unknown.join(", ")));
        }
        // Fewer if some went by themselves in the meantime.
        let there = self.capacity();
        let surplus = there.saturating_sub(order.to);
        let most = surplus.min(order.from.saturating_sub(order.to)) as usize;
        let mut removed = Vec::new();
        for id in &order.victims {
            if removed.len() < most && !self.is_unsure(id) && self.fleet.drain(id) {
                removed.push(id.clone());
            }
        }
        let gone = order.victims.iter().filter(|id| !self.fleet.serves(id)).count();
        let is_done = gone >= order.from.saturating_sub(order.to) as usize;
        let note = match removed.as_slice() {
            [] if !is_done && order.victims.iter().any(|id| self.is_unsure(id)) => {
                let what = format!("scale-in from {} to {}", order.from, order.to);
                let detail =
                    "the records of the chosen are damaged: they may have been told to go \
                              already, and are not told twice within their grace"
                        .into();
                return Err(TargetError::NotNow { what, detail });
            }
            [] if !is_done => {
                return Err(TargetError::Contradiction { there, decided_for: order.from });
            }
            [] => "as many of those chosen are gone or going already".to_owned(),
            ids => format!("told to go: {}", ids.join(", ")),
        };
        Ok(Scaled { removed, note, ..Scaled::default() })
    }

    fn capacity(&self) -> u32 {
        let workers = self.fleet.workers(clock::now());
        let serving = workers.iter().filter(|(worker, _)| worker.is_capacity()).count();
        u32::try_from(serving).unwrap_or(u32::MAX)
    }
}

/// Whether processes can be looked at: one always runs, this one.
fn can_see() -> Result<(), Missing> {
    let (why, detail) = match Running::look(std::process::id()) {
        Ok(Some(_)) => return Ok(()),
        Ok(None) => (Silence::Absent, "/proc does not show processes; mount it".into()),
        Err(e) => (Silence::Unreachable, format!("/proc cannot be read: {e}")),
    };
    Err(Missing { why, detail })
}

#[async_trait]
impl Target for Process {
    fn promise(&self) -> Promise {
        Promise::ExactVictims
    }

    fn scales(&self) -> String {
        format!("process:{}:{}", self.group, canonical(Path::new(&self.mark)).display())
    }

    fn only_look(&mut self) {
        self.only_look = true;
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        self.done = None;
        can_see()?;
        self.adopt();
        let (workers, groups): (Vec<_>, Vec<u32>) =
            self.fleet.workers(clock::now()).into_iter().unzip();
        // What could not be read in between looks as if it were gone.
        can_see()?;
        let known_as: HashMap<String, Vec<Identity>> = workers
            .iter()
            .zip(groups)
            .map(|(w, pid)| {
                (w.id.clone(), vec![Identity::Process(pid), Identity::Name(w.id.clone())])
            })
            .collect();
        self.tidy_logs();
        let mut reading = FleetReading::of(workers);
        reading.died = self.fleet.take_died();
        Ok(FleetSeen { reading, known_as })
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        self.adopt();
        match order.to.min(MOST_WORKERS) {
            to if to > order.from => self.scale_out(order.from, to),
            to if to < order.from => self.scale_in(order),
            _ => Ok(Scaled::default()),
        }
    }

    async fn check(&mut self) -> Vec<Finding> {
        let about = "target";
        let mut found = Vec::new();
        match program::fault(&self.program) {
            None => found.push(Finding::good(about, format!("{} starts", self.program.display()))),
            Some(what) => found.push(Finding::problem(about, what, "correct `command`")),
        }
        if !self.directory.is_dir() {
            let what = format!("directory {} is no folder", self.directory.display());
            found.push(Finding::problem(about, what, "create it or correct `directory`"));
        }
        let grace = self.config.grace;
        if grace < Span::try_from(EARLY_DEATH).unwrap_or(Span::ZERO) {
            let what = format!("grace {grace:#} is short: a worker that is busy then is killed");
            found.push(Finding::warning(about, what, "set `grace` above your longest job"));
        }
        if end_with_headcount() {
            let what = "the workers end with this container, and have only its own stop time-out";
            let fix = format!("make that longer than {grace:#} (Compose: `stop_grace_period`)");
            found.push(Finding::warning(about, what.to_owned(), fix));
        }
        found
    }

    async fn close(&mut self) {
        if self.only_look || (self.config.on_exit == OnExit::Keep && !end_with_headcount()) {
            return;
        }
        self.adopt();
        for (worker, _) in self.fleet.workers(clock::now()) {
            if worker.state != WorkerState::Draining {
                self.fleet.drain(&worker.id);
            }
        }
        let longest = clock::duration(self.config.grace) + LEFTOVERS_GRACE + EARLY_DEATH;
        let all_gone = async { while self.tasks.join_next().await.is_some() {} };
        if timeout(longest, all_gone).await.is_err() {
            tracing::warn!("some workers did not end, though they were killed");
        }
    }
}
