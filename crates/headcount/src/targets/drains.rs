//! Containers that were told to go. Each gets its stop signal once in its life, all the time it
//! was promised, and is removed when it has ended by itself; only after that time it is killed.
//! They are remembered in a file, so that a restart neither forgets one, nor signals it twice, nor
//! shortens its time: the grace starts anew then.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use headcount_core::Silence;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::limits::{DRAIN_LOOK, DRAIN_POLL};
use crate::targets::docker_engine::{Details, Engine, EngineError};

/// The containers of one target that were told to go.
#[derive(Debug)]
pub struct Drains {
    book: Arc<Book>,
    /// Those remembered at the last look.
    at_look: BTreeSet<String>,
    claim: Claim,
    only_looks: bool,
    tasks: JoinSet<()>,
}

/// Whether this process sees the drains off. At most one does.
#[derive(Debug)]
enum Claim {
    /// Nobody told anyone to go yet, or another process sees them off.
    None,
    /// This one, as long as it holds the lock.
    Locked(#[expect(dead_code, reason = "holds the lock until it is dropped")] File),
    /// This one; the folder cannot be written, so nobody else can know.
    Unlocked,
}

#[derive(Debug)]
struct Book {
    engine: Engine,
    folder: PathBuf,
    grace: Duration,
    told: Mutex<BTreeMap<String, Told>>,
    /// The list was read or made by this process: it knows who was told even if the file is damaged.
    known: AtomicBool,
    /// Since when it is not known who was told.
    lost: OnceLock<Instant>,
    complained: AtomicBool,
}

/// What is remembered of one container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Told {
    name: String,
    /// The life in which it was signalled: a container that is started again must be told again.
    #[serde(default)]
    life: Option<String>,
}

impl Drains {
    /// The drains remembered in `folder`, which may not exist yet.
    pub fn new(engine: Engine, folder: &Path, grace: Duration) -> Self {
        let (folder, told) = (folder.to_owned(), Mutex::default());
        Self {
            book: Arc::new(Book {
                engine,
                folder,
                grace,
                told,
                known: AtomicBool::new(false),
                lost: OnceLock::new(),
                complained: AtomicBool::new(false),
            }),
            at_look: BTreeSet::new(),
            claim: Claim::None,
            only_looks: false,
            tasks: JoinSet::new(),
        }
    }

    /// From now on only remembers, and leaves it to others to go on with it.
    pub fn only_look(&mut self) {
        self.only_looks = true;
    }

    /// Looks what is remembered, and goes on with it if no other process does. Call it before
    /// every look at the containers.
    pub fn look(&mut self) {
        self.go_on();
        self.at_look = self.book.told().keys().cloned().collect();
    }

    fn go_on(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        if !self.tasks.is_empty() {
            return;
        }
        self.claim = Claim::None;
        *self.book.told() = self.book.read();
        if self.only_looks || self.book.told().is_empty() || !self.claim() {
            return;
        }
        // Somebody else may have seen one off between the look and the claim.
        *self.book.told() = self.book.read();
        let ids: Vec<String> = self.book.told().keys().cloned().collect();
        for id in ids {
            self.see_off(id);
        }
    }

    /// Whether this container was told to go. One that ends after the last look, and is forgotten,
    /// still was: else that look would show a worker, or a death.
    pub fn has(&self, id: &str) -> bool {
        self.at_look.contains(id) || self.book.told().contains_key(id)
    }

    /// Whether this container was told to go, and is not gone yet.
    pub fn sees_off(&self, id: &str) -> bool {
        self.book.told().contains_key(id)
    }

    /// For how long still nobody must be told to go: the list was damaged, and a second signal may end
    /// a worker that finishes its job after the first.
    pub fn unsure(&self) -> Option<Duration> {
        let left = self.book.grace.checked_sub(self.book.lost.get()?.elapsed())?;
        (!left.is_zero()).then_some(left)
    }

    /// Tells a container to go; returns when it has its signal, and sees it off in the background.
    ///
    /// # Errors
    /// It could not be told, and will not be.
    pub async fn tell(&mut self, id: &str, name: &str) -> Result<(), EngineError> {
        if self.has(id) {
            return Ok(());
        }
        self.claim();
        self.book.told().insert(id.to_owned(), Told { name: name.to_owned(), life: None });
        self.book.save();
        match self.book.signal(id).await {
            // The signal may have arrived all the same.
            Err(error) if error.why != Silence::Timeout && !error.is_absent() => {
                self.book.forget(id);
                return Err(error);
            }
            _ => self.see_off(id.to_owned()),
        }
        Ok(())
    }

    /// Whether this process sees the drains off.
    fn claim(&mut self) -> bool {
        if !matches!(self.claim, Claim::None) {
            return true;
        }
        let folder = &self.book.folder;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        let file = std::fs::create_dir_all(folder)
            .and_then(|()| options.open(folder.join("draining.lock")));
        self.claim = match file.map(|file| file.try_lock().map(|()| file)) {
            Ok(Ok(file)) => Claim::Locked(file),
            Ok(Err(TryLockError::WouldBlock)) => Claim::None,
            Ok(Err(TryLockError::Error(_))) | Err(_) => Claim::Unlocked,
        };
        !matches!(self.claim, Claim::None)
    }

    fn see_off(&mut self, id: String) {
        let book = Arc::clone(&self.book);
        self.tasks.spawn(async move { book.see_off(&id).await });
    }
}

impl Book {
    fn told(&self) -> MutexGuard<'_, BTreeMap<String, Told>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("draining.json")
    }

    fn read(&self) -> BTreeMap<String, Told> {
        let read = match std::fs::read(self.path()) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(std::io::Error::from),
            // There is none, or none can ever have been there.
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(BTreeMap::new())
            }
            Err(error) => Err(error),
        };
        match read {
            Ok(told) => {
                self.known.store(true, Ordering::Relaxed);
                told
            }
            Err(error) => {
                if !self.known.load(Ordering::Relaxed) {
                    self.lost.get_or_init(Instant::now);
                }
                // It is read at every look: once is enough.
                if !self.complained.swap(true, Ordering::Relaxed) {
                    let file = self.path();
                    warn!(file = %file.display(), %error,
                        "the list of draining workers is unreadable; if this run does not know \
                         them, they look ready, and nobody is told to go for {} s",
                        self.grace.as_secs());
                }
                self.told().clone()
            }
        }
    }

    fn save(&self) {
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&self.folder)?;
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(&serde_json::to_vec(&*self.told())?)?;
            file.persist(self.path())?;
            Ok(())
        };
        if let Err(error) = write() {
            let file = self.path();
            warn!(file = %file.display(), %error,
                "draining workers will look ready again after a restart");
        }
    }

    fn forget(&self, id: &str) {
        self.told().remove(id);
        self.save();
    }

    /// Gives it its stop signal, unless it has got it in this life.
    async fn signal(&self, id: &str) -> Result<Details, EngineError> {
        let seen = self.engine.inspect(id).await?;
        let told = self.told().get(id).and_then(|told| told.life.clone());
        if !seen.alive || told.as_ref() == Some(&seen.life) {
            return Ok(seen);
        }
        self.engine.signal(id, &seen.stop_signal).await?;
        if let Some(told) = self.told().get_mut(id) {
            told.life = Some(seen.life.clone());
        }
        self.save();
        Ok(seen)
    }

    /// Stays with it until it is removed.
    async fn see_off(&self, id: &str) {
        let name = self.told().get(id).map(|told| told.name.clone()).unwrap_or_default();
        let mut life: Option<(String, Instant)> = None;
        let mut failures = 0_u32;
        loop {
            match self.step(id, &name, &mut life).await {
                Ok(true) => break,
                Ok(false) => failures = 0,
                Err(error) if error.is_absent() => break,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    // One failure may be a matter of the moment, and a warning a second is noise.
                    if failures == 3 {
                        warn!(worker = name, %error, "cannot see a draining worker off yet");
                    }
                    sleep(DRAIN_POLL).await;
                }
            }
        }
        self.forget(id);
        info!(worker = name, "a worker that was told to go is gone");
    }

    /// Gives it its signal if it needs one, waits a while for its end, removes it after that.
    /// Returns whether it is gone.
    async fn step(
        &self,
        id: &str,
        name: &str,
        life: &mut Option<(String, Instant)>,
    ) -> Result<bool, EngineError> {
        let seen = self.signal(id).await?;
        if !seen.alive {
            return self.engine.remove(id).await.map(|()| true);
        }
        let began = match life {
            Some((same, began)) if *same == seen.life => *began,
            _ => life.insert((seen.life.clone(), Instant::now())).1,
        };
        let grace = self.grace.max(seen.stop_timeout.unwrap_or_default());
        let left = grace.saturating_sub(began.elapsed());
        if left.is_zero() {
            warn!(worker = name, after_s = grace.as_secs(), "kills a worker that did not end");
            self.engine.signal(id, "SIGKILL").await?;
        }
        // A Compose that sees it between its end and its removal would start it again: be quick.
        let look_again = if left.is_zero() { DRAIN_POLL } else { left.min(DRAIN_LOOK) };
        if let Ok(answer) = timeout(look_again, self.engine.wait(id)).await {
            answer?;
        }
        sleep(Duration::from_millis(20)).await;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_ends_during_a_look_was_told_to_go() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("draining.json");
        std::fs::write(&file, r#"{"a": {"name": "w-1", "life": "x"}}"#).unwrap();
        let engine = Engine::new(Some("unix:///no.sock")).unwrap();
        let mut drains = Drains::new(engine, folder.path(), Duration::ZERO);
        drains.only_look();
        drains.look();
        drains.book.forget("a");
        assert!(drains.has("a") && !drains.sees_off("a"), "the list may be older than its end");
        drains.look();
        assert!(!drains.has("a"));
    }

    #[test]
    fn of_a_damaged_list_nobody_is_told_twice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("draining.json");
        let open = |grace| {
            let engine = Engine::new(Some("unix:///no.sock")).unwrap();
            let mut drains = Drains::new(engine, folder.path(), Duration::from_secs(grace));
            drains.only_look();
            drains.look();
            drains
        };
        std::fs::write(&file, r#"{"a": {"name": "w-1", "life": "x"}}"#).unwrap();
        let mut drains = open(60);
        assert!(drains.has("a") && drains.unsure().is_none());
        std::fs::write(&file, "{").unwrap();
        drains.look();
        assert!(drains.has("a") && drains.unsure().is_none(), "this run knows it");
        assert!(open(60).unsure().is_some(), "and the next one does not");
        assert!(open(0).unsure().is_none(), "whoever was told has had its time");
    }
}
