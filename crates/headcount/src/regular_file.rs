//! Files that a user names are read only if they are regular ones: a pipe that nobody writes to, or a
//! terminal, would be waited for without end.

use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// The bytes of a file; of a larger one than `limit`, one byte more than that, so that the caller
/// can tell.
///
/// # Errors
/// It cannot be read, or is no regular file.
pub fn read(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn open(path: &Path) -> std::io::Result<File> {
    // To open a device may already do something.
    must_be_regular(&std::fs::metadata(path)?)?;
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Another file may have taken its place.
    must_be_regular(&file.metadata()?)?;
    Ok(file)
}

fn must_be_regular(about: &std::fs::Metadata) -> std::io::Result<()> {
    match (about.is_file(), about.is_dir()) {
        (true, _) => Ok(()),
        (_, true) => Err(Error::from(ErrorKind::IsADirectory)),
        _ => Err(Error::new(ErrorKind::InvalidInput, "it is no regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_or_a_device_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        for path in [pipe.as_path(), Path::new("/dev/zero"), folder.path()] {
            assert!(read(path, 10).is_err(), "{}", path.display());
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "0123456789").unwrap();
        assert_eq!(read(&file, 10).unwrap().len(), 10);
        assert_eq!(read(&file, 5).unwrap().len(), 6);
    }
}
