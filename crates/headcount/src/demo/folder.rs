//! The demo's temporary folder. A demo that is killed leaves its own behind; the next one removes it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tempfile::TempDir;

/// What the folders' names begin with.
const PREFIX: &str = "headcount-demo-";
/// A file in the folder that its demo holds locked: the kernel lets go of it with the process, so
/// that nobody has to guess from process ids, which mean nothing in another container.
const HELD: &str = "held";
/// So many entries are looked at in the folder of all temporary files.
const MOST_ENTRIES: usize = 10_000;

/// A temporary folder, removed at the end.
#[derive(Debug)]
pub struct Folder {
    folder: TempDir,
    /// Locked as long as it is open.
    _held: File,
}

impl Folder {
    /// Makes one among the temporary files, after it has removed those that were left behind.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make() -> io::Result<Self> {
        Self::make_in(&std::env::temp_dir())
    }

    fn make_in(parent: &Path) -> io::Result<Self> {
        remove_left_behind(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // It gets its name when it is locked, so that nobody sees it unlocked.
        let unnamed = folder.path().join("new");
        let held = File::create(&unnamed)?;
        held.lock()?;
        std::fs::rename(unnamed, folder.path().join(HELD))?;
        Ok(Self { folder, _held: held })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes it.
    ///
    /// # Errors
    /// Something in it cannot be removed.
    pub fn close(self) -> io::Result<()> {
        self.folder.close()
    }
}

/// Removes the folders of demos that have ended. What cannot be read or removed is left.
fn remove_left_behind(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    let ours = |name: &OsStr| name.to_string_lossy().starts_with(PREFIX);
    for entry in entries.flatten().take(MOST_ENTRIES).filter(|e| ours(&e.file_name())) {
        let path = entry.path();
        // Not through a link, and not what another user put there.
        let me = rustix::process::geteuid().as_raw();
        if !std::fs::symlink_metadata(&path).is_ok_and(|at| at.is_dir() && at.uid() == me) {
            continue;
        }
        let Ok(held) = File::open(path.join(HELD)) else { continue };
        if held.try_lock().is_ok() {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = || Folder::make_in(parent.path()).unwrap();
        let (running, killed) = (make(), make());
        let foreign = parent.path().join("headcount-demo-foreign");
        std::fs::create_dir(&foreign).unwrap();
        let target = tempfile::tempdir().unwrap();
        std::fs::write(target.path().join(HELD), "").unwrap();
        let link = parent.path().join("headcount-demo-link");
        std::os::unix::fs::symlink(target.path(), &link).unwrap();

        let left = killed.folder.keep();
        drop(killed._held);
        assert!(left.exists());
        let next = make();
        assert!(!left.exists());
        assert!(running.path().exists() && next.path().exists());
        assert!(foreign.exists() && link.exists() && target.path().join(HELD).exists());
        running.close().unwrap();
        next.close().unwrap();
    }
}
