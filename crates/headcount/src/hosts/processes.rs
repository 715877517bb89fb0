//! Processes as `/proc` shows them, and signals that never reach a stranger: a process is known by
//! its id and its start time, since ids are used again.

use std::io::Read;
use std::os::unix::fs::MetadataExt;

use headcount_core::{Span, Timestamp};
use rustix::process::{Pid, Signal};

/// The environment of a process is read up to this, bytes: the kernel's own limit for it is larger,
/// but nobody fills it.
const ENVIRONMENT_BYTES: u64 = 1 << 20;
/// Clock ticks a second in `/proc`: fixed by the kernel's interface (`USER_HZ`).
const TICKS_PER_SECOND: u64 = 100;
/// What the first process of a container that only runs Headcount is called, as the kernel cuts it.
const FIRST: [&str; 6] =
    ["headcount", "tini", "docker-init", "podman-init", "dumb-init", "catatonit"];

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its process group.
    pub group: u32,
    /// When it started, in clock ticks since the machine did.
    pub started: u64,
    /// The letter of its state: `R` runs, `S` sleeps, `T` is stopped, `Z` has ended.
    pub state: char,
}

impl Process {
    /// The process with this id, also when it has ended and nobody has fetched its result yet.
    pub fn find(pid: u32) -> Option<Self> {
        Self::look(pid).ok().flatten()
    }

    /// The same; `None` only if there surely is no such process.
    ///
    /// # Errors
    /// It cannot be told, for want of file descriptors for example.
    pub fn look(pid: u32) -> std::io::Result<Option<Self>> {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(text) => Ok(Self::parse(pid, &text)),
            // It may end between the opening and the reading of its file.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether it runs: it has not ended.
    pub const fn runs(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether it was stopped, as by Ctrl-Z or a debugger.
    pub const fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// The environment it was started with, as `NAME=value` entries. Empty for a process of
    /// another user: whoever can forge a name there could make us signal a process of theirs.
    pub fn environment(&self) -> Vec<String> {
        let folder = format!("/proc/{}", self.pid);
        let ours = rustix::process::geteuid().as_raw();
        if std::fs::metadata(&folder).map(|m| m.uid()).ok() != Some(ours) {
            return Vec::new();
        }
        let mut bytes = Vec::new();
        let read = std::fs::File::open(format!("{folder}/environ"))
            .and_then(|file| file.take(ENVIRONMENT_BYTES).read_to_end(&mut bytes));
        if read.is_err() {
            return Vec::new();
        }
        bytes.split(|b| *b == 0).map(|entry| String::from_utf8_lossy(entry).into_owned()).collect()
    }

    /// When it started by the wall clock, which shows `now`.
    pub fn started_at(&self, now: Timestamp) -> Timestamp {
        let uptime = std::fs::read_to_string("/proc/uptime").ok();
        let uptime = uptime.as_deref().and_then(|t| t.split(' ').next()?.parse::<f64>().ok());
        let age_s = uptime.unwrap_or(0.0) - self.started as f64 / TICKS_PER_SECOND as f64;
        now.plus(Span::from_millis((age_s.max(0.0) * -1000.0) as i64))
    }

    /// Reads a line of `/proc/PID/stat`. The name in brackets may itself hold spaces and brackets.
    fn parse(pid: u32, text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // proc(5) counts from 1 and the state is field 3.
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            pid,
            group: field(5)?.parse().ok()?,
            started: field(22)?.parse().ok()?,
            state: field(3)?.chars().next()?,
        })
    }
}

/// Every process that this one can see.
pub fn all() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::find).collect()
}

/// The running members of a process group.
pub fn members(group: u32) -> Vec<Process> {
    all().into_iter().filter(|p| p.group == group && p.runs()).collect()
}

/// The process with this id that started then, while it runs.
pub fn running(pid: u32, started: u64) -> Option<Process> {
    Process::find(pid).filter(|p| p.started == started && p.runs())
}

/// Whether the process with this id that started then has surely ended.
pub fn has_ended(pid: u32, started: u64) -> bool {
    let seen = Process::look(pid);
    seen.is_ok_and(|seen| seen.is_none_or(|p| p.started != started || !p.runs()))
}

/// Whether this is a container that ends, with every process in it, when Headcount does: its first
/// process is Headcount itself, or a small init that waits for its one child. Not where Headcount was
/// started from a shell in it.
pub fn end_with_headcount() -> bool {
    // Who was brought into a container from outside has no parent there.
    let is_child_of_first = rustix::process::getppid().is_none_or(|parent| parent == Pid::INIT);
    let first = || std::fs::read_to_string("/proc/1/comm").unwrap_or_default();
    std::process::id() == 1 || is_child_of_first && FIRST.contains(&first().trim_end())
}

/// The present run of the machine: start times are only comparable within one.
pub fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// Signals the process with this id if it is still the one that started then.
pub fn signal(pid: u32, started: u64, signal: Signal) -> bool {
    let target = running(pid, started).and_then(|p| raw(p.pid));
    target.is_some_and(|pid| rustix::process::kill_process(pid, signal).is_ok())
}

/// Signals every member of a process group. The caller has made sure whose group it is.
pub fn signal_group(group: u32, signal: Signal) -> bool {
    raw(group).is_some_and(|group| rustix::process::kill_process_group(group, signal).is_ok())
}

/// Ids 0 and 1 are never meant: 0 is the caller's own group, 1 the first process.
fn raw(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok().filter(|pid| *pid > 1)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_name_with_brackets_and_spaces() {
        let line = "42 (a) b (c)) S 1 40 40 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 987654 1 1";
        let seen = Process::parse(42, line).unwrap();
        assert_eq!(seen, Process { pid: 42, group: 40, started: 987_654, state: 'S' });
        assert_eq!(Process::parse(42, "42 (cut"), None);
        assert_eq!(Process::parse(42, "42 (cut) S 1 40"), None);
    }

    #[test]
    fn knows_itself_and_when_it_started() {
        let me = Process::find(std::process::id()).unwrap();
        assert!(me.runs());
        assert!(all().iter().any(|p| (p.pid, p.started) == (me.pid, me.started)));
        let now = crate::clock::now();
        let age = now.since(me.started_at(now));
        assert!(!age.is_negative() && age < Span::from_hours(2), "{age:#}");
        assert!(!boot_id().is_empty());
    }

    /// Runs itself once more, in a process that may open no file.
    #[test]
    fn want_of_file_descriptors_is_no_end_of_a_process() {
        const NAME: &str =
            "hosts::processes::tests::want_of_file_descriptors_is_no_end_of_a_process";
        const MARK: &str = "HEADCOUNT_TEST_NO_FILES";
        let me = Process::find(std::process::id()).unwrap();
        if std::env::var_os(MARK).is_none() {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            let output = again.args(["--exact", NAME]).env(MARK, "1").output().unwrap();
            assert!(output.status.success(), "{output:?}");
            return;
        }
        let none = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, none).unwrap();
        assert_eq!(Process::find(me.pid), None);
        let error = Process::look(me.pid).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
        assert!(!has_ended(me.pid, me.started));
    }

    #[test]
    fn a_process_that_started_at_another_time_is_not_signalled() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let seen = Process::find(child.id()).unwrap();
        assert!(!signal(seen.pid, seen.started + 1, Signal::KILL));
        assert!(child.try_wait().unwrap().is_none());
        assert!(signal(seen.pid, seen.started, Signal::KILL));
        child.wait().unwrap();
        assert!(has_ended(seen.pid, seen.started));
        assert!(!signal(seen.pid, seen.started, Signal::KILL));
    }

    #[test]
    fn the_first_process_and_the_own_group_are_never_signalled() {
        assert!(!signal_group(0, Signal::TERM));
        assert!(!signal_group(1, Signal::TERM));
    }
}
