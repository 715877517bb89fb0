//! Where a program is that the configuration names.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The program as it is started: a name is searched in `PATH`, a path starts at `base`.
pub fn locate(base: &Path, name: &str) -> PathBuf {
    // By its components, as people read it: without `./` in the middle.
    if name.contains('/') { base.join(name).components().collect() } else { PathBuf::from(name) }
}

/// Why the program cannot be started, if it cannot.
pub fn fault(program: &Path) -> Option<String> {
    if program.components().count() > 1 {
        return match std::fs::metadata(program) {
            Err(e) => Some(format!("{} cannot be used: {e}", program.display())),
            Ok(found) if found.is_dir() => Some(format!("{} is a folder", program.display())),
            Ok(_) if !is_executable(program) => {
                Some(format!("{} is not executable", program.display()))
            }
            Ok(_) => None,
        };
    }
    find(program).is_none().then(|| format!("{} is not in PATH", program.display()))
}

/// The file that is started.
fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return is_executable(program).then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).map(|folder| folder.join(program));
    all.into_iter().find(|file| is_executable(file))
}

/// Whether the program is a text that does not say what runs it: it does not start.
pub fn lacks_interpreter(program: &Path) -> bool {
    let Some(file) = find(program) else { return false };
    let mut begin = Vec::new();
    let read = File::open(file).and_then(|file| file.take(512).read_to_end(&mut begin));
    let is_text = !begin.contains(&0);
    read.is_ok() && is_text && !begin.starts_with(b"#!")
}

/// Whether a text can be handed to a program: no NUL in it.
pub fn can_be_passed(text: &str) -> bool {
    CString::new(text).is_ok()
}

/// What is wrong with the name of an environment variable, if anything.
pub fn fault_of_variable(name: &str) -> Option<String> {
    if name.is_empty() || name.contains('=') || !can_be_passed(name) {
        return Some("is no name of an environment variable".into());
    }
    name.starts_with("HEADCOUNT_").then(|| "is set by headcount itself; use another name".into())
}

fn is_executable(file: &Path) -> bool {
    let mode = rustix::fs::Access::EXEC_OK;
    file.is_file() && rustix::fs::access(file.as_os_str().as_bytes(), mode).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_searched_and_a_path_starts_at_the_base() {
        let base = Path::new("/etc/headcount");
        assert_eq!(locate(base, "sh"), Path::new("sh"));
        assert_eq!(locate(base, "./scale.sh"), Path::new("/etc/headcount/scale.sh"));
        assert_eq!(locate(base, "./scale.sh").as_os_str(), "/etc/headcount/scale.sh");
        assert_eq!(locate(Path::new(""), "./a").as_os_str(), "./a");
        assert_eq!(locate(base, "/bin/sh"), Path::new("/bin/sh"));
    }

    #[test]
    fn says_why_a_program_cannot_start() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("plain");
        std::fs::write(&plain, "x").unwrap();
        assert_eq!(fault(Path::new("sh")), None);
        assert_eq!(fault(Path::new("/bin/sh")), None);
        let table = [
            (Path::new("no-such-program"), "not in PATH"),
            (Path::new("/no/such/program"), "cannot be used"),
            (plain.as_path(), "not executable"),
            (folder.path(), "is a folder"),
        ];
        for (program, why) in table {
            assert!(fault(program).unwrap().contains(why), "{program:?}");
        }
    }

    #[test]
    fn a_text_must_say_what_runs_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let lacks = |content: &[u8], mode: u32| {
            let file = folder.path().join("program");
            std::fs::write(&file, content).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            lacks_interpreter(&file)
        };
        assert!(lacks(b"echo hello\n", 0o755));
        assert!(lacks("echo gr\u{fc}n\n".as_bytes(), 0o755));
        assert!(lacks(b"\xef\xbb\xbf#!/bin/sh\n", 0o755), "a mark of byte order hides it");
        assert!(!lacks(b"#!/bin/sh\necho hello\n", 0o755));
        assert!(!lacks(b"\x7fELF\x02\x01\x01\0\0\0", 0o755));
        assert!(!lacks(b"echo hello\n", 0o644), "that is said in other words");
        assert!(!lacks_interpreter(Path::new("sh")) && !lacks_interpreter(folder.path()));
    }

    #[test]
    fn variables_of_our_own_cannot_be_set() {
        assert_eq!(fault_of_variable("PATH"), None);
        for wrong in ["", "A=B", "A\0", "HEADCOUNT_WORKER"] {
            assert!(fault_of_variable(wrong).is_some(), "{wrong:?}");
        }
    }
}
