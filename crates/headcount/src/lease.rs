//! At most one actor per group. Whoever holds the lease may act; its token grows with every new
//! holder, so that a late order of an old one can be told apart.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::GroupConfig;
use crate::finding::Finding;
#[cfg(not(feature = "kubernetes"))]
use crate::registry::not_built_in;
use crate::targets::Target;

/// A right to act that at most one holder has.
#[async_trait]
pub trait Lease: Send + Sync {
    /// Takes or keeps the lease: its token, or who else holds it.
    async fn hold(&mut self) -> Result<u64, Held>;

    /// Gives it back, so that others need not wait until they believe in our end.
    async fn release(&mut self) {}

    /// What a person setting it up should know, each with its fix.
    async fn check(&self) -> Vec<Finding> {
        Vec::new()
    }
}

/// Where the right to act is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LeaseKind {
    /// In a file of this machine: for one Headcount, or several on one machine.
    #[default]
    File,
    /// In a Lease object: for several replicas in a cluster.
    Kubernetes,
}

/// Why there is no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Held {
    /// Somebody else holds it.
    #[error("held by {0}")]
    ByOther(String),
    /// It cannot be taken by anybody.
    #[error("{0}")]
    Unusable(String),
}

/// A lease on one host: a lock on a file, which the kernel releases when the process ends.
#[derive(Debug)]
pub struct FileLease {
    path: PathBuf,
    held: Option<(File, u64)>,
}

impl FileLease {
    /// The lease for `what` (a target's [`crate::targets::Target::scales`]) in `folder`.
    pub fn new(folder: &Path, what: &str) -> Self {
        let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
        let name: String = what.chars().map(safe).take(100).collect();
        let path = folder.join(format!("{name}-{:016x}.lease", fingerprint(what)));
        Self { path, held: None }
    }

    /// Whether the held file is still the one at the path: somebody may have deleted it.
    fn is_in_place(&self, file: &File) -> bool {
        let (Ok(ours), Ok(there)) = (file.metadata(), std::fs::metadata(&self.path)) else {
            return false;
        };
        (ours.dev(), ours.ino()) == (there.dev(), there.ino())
    }

    fn take(&self) -> Result<(File, u64), Held> {
        let broken = |e: std::io::Error| {
            Held::Unusable(format!("lease file {} cannot be used: {e}", self.path.display()))
        };
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).map_err(broken)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&self.path).map_err(broken)?;
        // Whoever runs next may be another user. Fails if the file is not ours: then it is so already.
        let _ = file.set_permissions(Permissions::from_mode(0o666));
        let mut text = String::new();
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let _ = file.read_to_string(&mut text);
                let holder = text.split_whitespace().nth(1).unwrap_or("unknown");
                return Err(Held::ByOther(format!("process {holder}")));
            }
            Err(TryLockError::Error(e)) => return Err(broken(e)),
        }
        file.read_to_string(&mut text).map_err(broken)?;
        let last: u64 = text.split_whitespace().next().and_then(|t| t.parse().ok()).unwrap_or(0);
        let token = last.saturating_add(1);
        file.seek(SeekFrom::Start(0)).map_err(broken)?;
        file.set_len(0).map_err(broken)?;
        writeln!(file, "{token} {}", std::process::id()).map_err(broken)?;
        Ok((file, token))
    }
}

/// The lease for what `target` scales, as `config` wants it, with the state of all groups in
/// `state_dir`.
///
/// # Errors
/// It is to be kept in a cluster to which no way is known.
pub fn open(
    config: &GroupConfig,
    target: &dyn Target,
    state_dir: &Path,
) -> anyhow::Result<Box<dyn Lease>> {
    match config.lease {
        LeaseKind::File => Ok(Box::new(FileLease::new(&folder(state_dir), &target.scales()))),
        #[cfg(feature = "kubernetes")]
        LeaseKind::Kubernetes => {
            use crate::targets::kubernetes::lease::KubernetesLease;
            let (of, is_dry) = (config.target.as_kubernetes(), target.is_dry());
            let place = config.place(state_dir);
            Ok(Box::new(KubernetesLease::new(of, &target.scales(), is_dry, &place)?))
        }
        #[cfg(not(feature = "kubernetes"))]
        LeaseKind::Kubernetes => {
            anyhow::bail!("group {}: lease: {}", config.name, not_built_in("kubernetes"))
        }
    }
}

/// The folder of all leases of this machine, so that Headcounts with different state folders, and of
/// different users, see each other. Where the machine lends no such folder, as in a container that
/// may only write its state, those with the same state folder do.
fn folder(state_dir: &Path) -> PathBuf {
    let shared = Path::new("/run/lock/headcount");
    if std::fs::create_dir(shared).is_ok() {
        let _ = std::fs::set_permissions(shared, Permissions::from_mode(0o1777));
    }
    let state = state_dir.join("leases");
    let all = [shared, &std::env::temp_dir().join("headcount-leases"), &state];
    all.into_iter().find(|folder| is_writable(folder).is_ok()).unwrap_or(&state).to_path_buf()
}

/// Makes a file in `folder`, and the folder if need be; the file goes at once.
fn is_writable(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    tempfile::tempfile_in(folder).map(drop)
}

/// FNV-1a over 64 bits: keeps names apart that are equal once made safe for a file.
pub(crate) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[async_trait]
impl Lease for FileLease {
    async fn hold(&mut self) -> Result<u64, Held> {
        if let Some((file, token)) = &self.held
            && self.is_in_place(file)
        {
            return Ok(*token);
        }
        self.held = None;
        let (file, token) = self.take()?;
        self.held = Some((file, token));
        Ok(token)
    }

    async fn check(&self) -> Vec<Finding> {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let shown = folder.display();
        vec![match is_writable(folder) {
            Ok(()) => Finding::good("lease", format!("leases are files in {shown}")),
            Err(error) => Finding::problem(
                "lease",
                format!("no lease can be kept in {shown}: {error}"),
                "let this user write there, or set `state_dir` to a folder it may write",
            ),
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Level;

    #[tokio::test]
    async fn one_holds_and_the_next_gets_a_higher_token() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = FileLease::new(folder.path(), "compose:shop/worker");
        let mut second = FileLease::new(folder.path(), "compose:shop/worker");
        assert_eq!(first.hold().await, Ok(1));
        assert_eq!(first.hold().await, Ok(1));
        let refused = second.hold().await.unwrap_err();
        assert_eq!(refused, Held::ByOther(format!("process {}", std::process::id())));
        drop(first);
        assert_eq!(second.hold().await, Ok(2));
    }

    #[tokio::test]
    async fn names_that_look_alike_do_not_meet() {
        let folder = tempfile::tempdir().unwrap();
        let mut leases = ["a/b_c", "a_b/c", &"x".repeat(200), &"x".repeat(201)]
            .map(|name| FileLease::new(folder.path(), name));
        for lease in &mut leases {
            assert_eq!(lease.hold().await, Ok(1));
        }
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_used_is_told_apart_from_another_holder() {
        let mut lease = FileLease::new(Path::new("/dev/null/leases"), "g");
        assert!(matches!(lease.hold().await, Err(Held::Unusable(_))));
    }

    #[tokio::test]
    async fn check_tells_whether_a_lease_can_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let good = FileLease::new(&folder.path().join("leases"), "g").check().await;
        assert_eq!(good[0].level, Level::Good, "{good:?}");
        let bad = FileLease::new(Path::new("/dev/null/leases"), "g").check().await;
        assert_eq!((bad[0].level, bad[0].fix.is_some()), (Level::Problem, true), "{bad:?}");
        assert!(bad[0].what.starts_with("no lease can be kept in /dev/null/leases: "), "{bad:?}");
    }

    #[tokio::test]
    async fn a_deleted_lease_file_is_a_lost_lease() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = FileLease::new(folder.path(), "g");
        let mut second = FileLease::new(folder.path(), "g");
        assert_eq!(first.hold().await, Ok(1));
        std::fs::remove_file(&first.path).unwrap();
        assert!(second.hold().await.is_ok());
        assert!(first.hold().await.is_err());
    }
}
