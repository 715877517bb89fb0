//! The output of the workers: one file each, of bounded size and number.
//!
//! A worker writes to its file by itself, so that its output does not depend on Headcount running.
//! The end of a file that is full is copied to `.log.1` and the file cut to nothing; what is written
//! in between is lost.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::limits::{OUTPUT_BYTES, WORKER_LOG_BYTES, WORKER_LOGS, WORKER_LOGS_BYTES};

/// A file may be this large, and so may what is kept of its past.
const HALF: u64 = WORKER_LOG_BYTES / 2;

/// The folder of the files.
#[derive(Clone, Debug)]
pub(super) struct Logs(PathBuf);

impl Logs {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// The file a new worker writes to. Only its owner may read it: it may hold anything.
    pub(super) fn open(&self, id: &str) -> std::io::Result<File> {
        std::fs::create_dir_all(&self.0)?;
        let mut file =
            OpenOptions::new().create(true).append(true).mode(0o600).open(self.file(id))?;
        // On a full disk a file can be made all the same.
        let length = file.metadata()?.len();
        let probed = file.write_all(&[b'\n'; 4096]);
        file.set_len(length)?;
        probed.map(|()| file)
    }

    pub(super) fn file(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.log"))
    }

    /// Keeps all files within their bounds: cuts those that are full, also of workers that are gone
    /// (what they left behind may write on), and removes the oldest of the latter. `group` and
    /// `keep`, the workers that are there, tell which files are ours: the folder may hold others.
    pub(super) fn tidy(&self, group: &str, keep: &dyn Fn(&str) -> bool) {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut old: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for path in paths {
            let Some(id) = worker_of(&path, group) else { continue };
            trim(&path);
            let Ok(about) = path.metadata() else { continue };
            if let Some(at) = about.modified().ok().filter(|_| !keep(&id)) {
                old.push((at, about.len(), path));
            }
        }
        old.sort();
        let (mut files, mut bytes) = (0_usize, 0_u64);
        for (_, size, path) in old.into_iter().rev() {
            (files, bytes) = (files + 1, bytes.saturating_add(size));
            if files > WORKER_LOGS || bytes > WORKER_LOGS_BYTES {
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// The last lines of a worker's output, for a message.
    pub(super) fn last_words(&self, id: &str) -> String {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(self.file(id))?;
            let start = file.metadata()?.len().saturating_sub(OUTPUT_BYTES as u64 / 4);
            file.seek(SeekFrom::Start(start))?;
            let mut bytes = Vec::new();
            file.take(OUTPUT_BYTES as u64).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Cuts a file that is too large to nothing and keeps its end beside it. Where that has no room, the
/// end is lost: a full disk is the best reason to cut.
fn trim(path: &Path) {
    let Ok(size) = std::fs::metadata(path).map(|about| about.len()) else { return };
    if size <= HALF {
        return;
    }
    // What was set aside has the right size; a larger one is of an earlier version.
    if path.extension().is_some_and(|end| end == "1") {
        let _ = std::fs::remove_file(path);
        return;
    }
    let aside = path.with_extension("log.1");
    if let Err(error) = copy_end(path, &aside, size - HALF) {
        let _ = std::fs::remove_file(&aside);
        tracing::warn!(file = %path.display(), %error, "the output of a worker is cut and lost");
    }
    if let Err(error) = OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(0)) {
        tracing::warn!(file = %path.display(), %error,
            "the output of a worker cannot be cut to its limit");
    }
}

fn copy_end(from: &Path, to: &Path, start: u64) -> std::io::Result<()> {
    let mut source = File::open(from)?;
    source.seek(SeekFrom::Start(start))?;
    let options = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).to_owned();
    std::io::copy(&mut source.take(HALF), &mut options.open(to)?)?;
    Ok(())
}

/// The worker that a file of this group belongs to: `GROUP-HEX.log` or `.log.1`.
fn worker_of(path: &Path, group: &str) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let id = name.strip_suffix(".log").or_else(|| name.strip_suffix(".log.1"))?;
    let tail = id.strip_prefix(group)?.strip_prefix('-')?;
    (tail.len() == 8 && tail.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_of_gone_workers_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().to_owned());
        std::fs::write(folder.path().join("a-notes.log"), "mine").unwrap();
        for number in 0..WORKER_LOGS + 3 {
            let file = logs.open(&format!("a-{number:08x}")).unwrap();
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            file.set_modified(at).unwrap();
        }
        logs.tidy("a", &|id| id == "a-00000000");
        assert!(logs.file("a-00000000").exists(), "a living worker's file stays");
        assert!(!logs.file("a-00000001").exists());
        assert!(!logs.file("a-00000002").exists());
        assert!(logs.file("a-00000003").exists());
        assert!(folder.path().join("a-notes.log").exists());
    }

    #[test]
    fn the_end_of_a_full_file_is_kept_and_the_worker_writes_on() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().to_owned());
        let mut worker = logs.open("a-00000000").unwrap();
        worker.write_all(&vec![b'x'; 3 * WORKER_LOG_BYTES as usize]).unwrap();
        worker.write_all(b"the end").unwrap();
        // Also if it is gone: something that it left behind may write on.
        logs.tidy("a", &|_| false);
        worker.write_all(b"one\ntwo\n").unwrap();
        assert_eq!(logs.last_words("a-00000000"), "one\ntwo");
        let aside = std::fs::read(folder.path().join("a-00000000.log.1")).unwrap();
        assert_eq!(aside.len() as u64, HALF);
        assert!(aside.ends_with(b"xthe end"));
        logs.tidy("a", &|_| false);
        assert!(folder.path().join("a-00000000.log.1").exists());
    }

    #[test]
    fn a_full_file_is_cut_also_where_its_end_cannot_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().to_owned());
        let mut worker = logs.open("a-00000000").unwrap();
        worker.write_all(&vec![b'x'; WORKER_LOG_BYTES as usize]).unwrap();
        std::fs::create_dir(folder.path().join("a-00000000.log.1")).unwrap();
        logs.tidy("a", &|_| true);
        assert_eq!(worker.metadata().unwrap().len(), 0);
    }

    #[test]
    fn all_that_gone_workers_left_has_a_limit() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().to_owned());
        for number in 0..30_u64 {
            let file = logs.open(&format!("a-{number:08x}")).unwrap();
            file.set_len(HALF).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number))
                .unwrap();
        }
        logs.tidy("a", &|_| false);
        let sizes =
            std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len());
        assert_eq!(sizes.sum::<u64>(), WORKER_LOGS_BYTES);
        assert!(logs.file("a-0000001d").exists(), "the newest stay");
    }

    #[test]
    fn a_disk_without_room_is_seen_before_a_worker_writes_to_it() {
        // Root may write anywhere, but not to this device.
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().to_owned());
        std::os::unix::fs::symlink("/dev/full", logs.file("a-00000000")).unwrap();
        assert!(logs.open("a-00000000").is_err());
        let file = logs.open("a-00000001").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0, "the probe leaves nothing");
    }
}
