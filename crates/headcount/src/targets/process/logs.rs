//! The output of the workers: one file each, of bounded size and number.
//!
//! A worker writes to its file by itself, so that its output does not depend on Headcount running.
//! A file that is full is copied to `.log.1` and cut to nothing; what is written in between is
//! lost.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::limits::{OUTPUT_BYTES, WORKER_LOG_BYTES, WORKER_LOGS};

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
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.file(id))
    }

    pub(super) fn file(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.log"))
    }

    /// Keeps a worker's file within its bounds.
    pub(super) fn trim(&self, id: &str) {
        let file = self.file(id);
        if std::fs::metadata(&file).is_ok_and(|m| m.len() > WORKER_LOG_BYTES) {
            let cut = std::fs::copy(&file, file.with_extension("log.1"))
                .and_then(|_| OpenOptions::new().write(true).open(&file)?.set_len(0));
            if let Err(e) = cut {
                tracing::warn!(file = %file.display(), error = %e,
                    "the output of a worker cannot be cut to its limit");
            }
        }
    }

    /// Removes the oldest files of workers that are gone. `group` and `keep` tell which files are
    /// ours: the folder may hold others.
    pub(super) fn prune(&self, group: &str, keep: &dyn Fn(&str) -> bool) {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return };
        let paths = entries.flatten().map(|entry| entry.path());
        let mut old: Vec<(SystemTime, PathBuf)> = paths
            .filter(|path| worker_of(path, group).is_some_and(|id| !keep(&id)))
            .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
            .collect();
        old.sort();
        let surplus = old.len().saturating_sub(WORKER_LOGS);
        for (_, path) in old.into_iter().take(surplus) {
            let _ = std::fs::remove_file(path);
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

/// The worker that a file of this group belongs to: `GROUP-HEX.log` or `.log.1`.
fn worker_of(path: &Path, group: &str) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let id = name.strip_suffix(".log").or_else(|| name.strip_suffix(".log.1"))?;
    let tail = id.strip_prefix(group)?.strip_prefix('-')?;
    (tail.len() == 8 && tail.bytes().all(|b| b.is_ascii_hexdigit())).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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
        logs.prune("a", &|id| id == "a-00000000");
        assert!(logs.file("a-00000000").exists(), "a living worker's file stays");
        assert!(!logs.file("a-00000001").exists());
        assert!(!logs.file("a-00000002").exists());
        assert!(logs.file("a-00000003").exists());
        assert!(folder.path().join("a-notes.log").exists());
    }

    #[test]
    fn a_full_file_moves_aside_and_the_worker_writes_on() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().to_owned());
        let mut worker = logs.open("a-00000000").unwrap();
        worker.write_all(&vec![b'x'; WORKER_LOG_BYTES as usize + 1]).unwrap();
        logs.trim("a-00000000");
        worker.write_all(b"one\ntwo\n").unwrap();
        assert_eq!(logs.last_words("a-00000000"), "one\ntwo");
        let aside = folder.path().join("a-00000000.log.1");
        assert_eq!(aside.metadata().unwrap().len(), WORKER_LOG_BYTES + 1);
    }
}
