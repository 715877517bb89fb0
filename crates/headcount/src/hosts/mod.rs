//! The machine that the workers run on: CPU, memory, pressure, limits.

pub mod cgroup;
pub mod processes;
pub mod procfs;
mod samples;
pub mod sockets;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use headcount_core::{HostReading, Reading, Silence, Span, Timestamp};

use crate::clock;
use crate::finding::Finding;
use crate::limits::KERNEL_FILE_BYTES;
use cgroup::CgroupLimits;
use procfs::CpuTimes;
use samples::{Gauges, LEAST_DELTA, Sample, Samples};

/// The time between two samples.
const EVERY: Duration = Duration::from_secs(1);
/// Where the host's `/proc` is, the first that is there: mounted into a container, or the own.
const PROC: [&str; 2] = ["host/proc", "proc"];

/// Samples the machine in the background, so that no tick has to wait for it. Clones share the
/// samples; sampling ends with the last one.
#[derive(Clone, Debug)]
pub struct HostWatch {
    machine: Arc<Machine>,
}

/// What is sampled, and the samples.
#[derive(Debug)]
struct Machine {
    /// `/`, or a folder that looks like it.
    root: PathBuf,
    started: Instant,
    samples: Mutex<Samples>,
}

impl HostWatch {
    /// Starts sampling. The first reading is there after half a second.
    pub fn start() -> Self {
        Self::start_at(Path::new("/"))
    }

    fn start_at(root: &Path) -> Self {
        let watch = Self { machine: Arc::new(Machine::new(root)) };
        let machine = Arc::downgrade(&watch.machine);
        let thread = thread::Builder::new().name("host-watch".into());
        if let Err(e) = thread.spawn(move || sample_until_dropped(&machine)) {
            let why = (Silence::Absent, format!("sampling cannot start: {e}"));
            watch.machine.with(|samples| samples.push(Err(why)));
        }
        watch
    }

    /// What the machine says; `cpu_mean` is over the last `window`. Never waits for a sample.
    pub fn read(&self, _now: Timestamp, window: Span) -> Reading<HostReading> {
        self.machine.with(|samples| samples.read(clock::duration(window)))
    }

    /// The file that CPU is read from, if one can be read.
    pub fn source(&self) -> Option<PathBuf> {
        stat(&self.machine.root).ok().map(|(proc, _)| proc.join("stat"))
    }

    /// What `headcount check` says of the machine besides its reading.
    pub fn facts(&self) -> Vec<Finding> {
        facts(&self.machine.root)
    }
}

fn sample_until_dropped(machine: &Weak<Machine>) {
    let mut pause = LEAST_DELTA;
    while let Some(machine) = machine.upgrade() {
        machine.sample(machine.started.elapsed());
        drop(machine);
        thread::sleep(pause);
        pause = EVERY;
    }
}

impl Machine {
    fn new(root: &Path) -> Self {
        let samples = Mutex::new(Samples::new());
        Self { root: root.into(), started: Instant::now(), samples }
    }

    fn with<T>(&self, use_it: impl FnOnce(&mut Samples) -> T) -> T {
        // A sample is pushed whole or not at all, so a panic elsewhere leaves the ring sound.
        use_it(&mut self.samples.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn sample(&self, at: Duration) {
        let taken = take(&self.root, at);
        self.with(|samples| samples.push(taken));
    }
}

/// The folder with the machine's `stat`, and that file's text.
fn stat(root: &Path) -> Result<(PathBuf, String), (Silence, String)> {
    let mut last = None;
    for proc in PROC.map(|proc| root.join(proc)) {
        let path = proc.join("stat");
        match read(&path) {
            Ok(text) => return Ok((proc, text)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => last = Some((path, e)),
            Err(e) => return Err(silence(&path, &e)),
        }
    }
    let (path, e) = last.unwrap_or_else(|| (root.into(), io::ErrorKind::NotFound.into()));
    Err(silence(&path, &e))
}

fn silence(path: &Path, e: &io::Error) -> (Silence, String) {
    let why = match e.kind() {
        io::ErrorKind::NotFound => Silence::NotFound,
        io::ErrorKind::PermissionDenied => Silence::Denied,
        _ => Silence::Unreachable,
    };
    (why, format!("{}: {e}", path.display()))
}

fn take(root: &Path, at: Duration) -> Result<Sample, (Silence, String)> {
    let (proc, stat) = stat(root)?;
    let cpu = CpuTimes::parse(&stat).ok_or_else(|| {
        (Silence::Malformed, format!("{}: no line of CPU times", proc.join("stat").display()))
    })?;
    Ok(Sample { at, taken_at: clock::now(), cpu, gauges: gauges(root, &proc, &stat) })
}

/// Memory, pressure and cores. Where the host's `/proc` is mounted, the workers run beside this
/// container, not in it, so its own limits do not count; else the smaller headroom does.
fn gauges(root: &Path, proc: &Path, stat: &str) -> Gauges {
    let pressure = |of: &str| read(&proc.join("pressure").join(of)).ok();
    let meminfo = read(&proc.join("meminfo")).unwrap_or_default();
    let host_memory = procfs::memory_in_use(&meminfo);
    let host_cores = Some(procfs::cores(stat)).filter(|n| *n > 0).map(|n| n as f64);
    let limits = if proc == root.join(PROC[0]) {
        CgroupLimits::default()
    } else {
        CgroupLimits::read(root, procfs::memory_total(&meminfo))
    };
    let tightest =
        |host: Option<f64>, own: Option<f64>, pick: fn(f64, f64) -> f64| match (host, own) {
            (Some(host), Some(own)) => Some(pick(host, own)),
            (host, own) => host.or(own),
        };
    Gauges {
        memory: tightest(host_memory, limits.memory, f64::max),
        cpu_pressure: pressure("cpu").and_then(|psi| procfs::pressure(&psi)),
        memory_pressure: pressure("memory").and_then(|psi| procfs::pressure(&psi)),
        cores: tightest(host_cores, limits.cores, f64::min),
    }
}

fn facts(root: &Path) -> Vec<Finding> {
    // What cannot be read is missing from the reading, which says so.
    let Ok((proc, text)) = stat(root) else { return Vec::new() };
    let cores = procfs::cores(&text);
    let gauges = gauges(root, &proc, &text);
    let mut found = Vec::new();
    if in_container(root) && proc != root.join(PROC[0]) {
        found.push(Finding::warning(
            "host",
            "runs in a container without the host's /proc: its CPU and memory may be only a part",
            "mount /proc read-only at /host/proc (compose: volumes: [\"/proc:/host/proc:ro\"])",
        ));
    }
    if let Some(limit) = gauges.cores.filter(|limit| *limit < cores as f64) {
        let what = format!("the cgroup allows {limit:.1} of {cores} cores");
        found.push(Finding::good("host", what));
    }
    if gauges.memory.is_none() {
        found.push(Finding::warning(
            "host",
            format!("memory cannot be read from {}", proc.join("meminfo").display()),
            "the memory brake is off until MemTotal and MemAvailable are there",
        ));
    }
    if gauges.cpu_pressure.is_none() {
        found.push(Finding::good("host", "the kernel tells no pressure (PSI is off)"));
    }
    found
}

/// Whether this process runs in a container, by the marks that engines leave below `root`.
pub fn in_container(root: &Path) -> bool {
    let marks = [".dockerenv", "run/.containerenv"];
    if marks.iter().any(|mark| root.join(mark).exists()) {
        return true;
    }
    let own = read(&root.join("proc/self/cgroup")).unwrap_or_default();
    ["docker", "kubepods", "containerd", "libpod", "lxc"].iter().any(|name| own.contains(name))
}

/// A file of the kernel, as far as [`KERNEL_FILE_BYTES`].
fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(KERNEL_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that looks like `/`.
    pub(super) struct Tree(tempfile::TempDir);

    impl Tree {
        pub(super) fn new(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            files.iter().for_each(|(path, text)| tree.write(path, text));
            tree
        }

        pub(super) fn root(&self) -> &Path {
            self.0.path()
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    const IDLE: &str = "cpu 100 0 0 900 0 0 0 0 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\n";
    const BUSY: &str = "cpu 175 0 0 925 0 0 0 0 0 0\ncpu0 1\ncpu1 1\ncpu2 1\ncpu3 1\n";
    const MEMINFO: &str = "MemTotal: 1000 kB\nMemAvailable: 600 kB\n";
    const PSI: &str = "some avg10=12.50 avg60=0 avg300=0 total=0\n";

    fn at(tree: &Tree) -> HostWatch {
        HostWatch { machine: Arc::new(Machine::new(tree.root())) }
    }

    fn sample(watch: &HostWatch, ms: u64) {
        watch.machine.sample(Duration::from_millis(ms));
    }

    fn read_now(watch: &HostWatch) -> Reading<HostReading> {
        watch.read(clock::now(), Span::from_secs(30))
    }

    fn why(watch: &HostWatch) -> Silence {
        match read_now(watch) {
            Reading::Missing(missing) => missing.why,
            Reading::Known { value, .. } => panic!("{value:?}"),
        }
    }

    #[test]
    fn the_mounted_proc_of_the_host_comes_first() {
        let tree = Tree::new(&[
            ("host/proc/stat", IDLE),
            ("host/proc/meminfo", MEMINFO),
            ("host/proc/pressure/cpu", PSI),
            ("proc/stat", "cpu 1 1 1 1\ncpu0 1\n"),
            // The limits of Headcount's own container are not those of the workers beside it.
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", ""),
            ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
        ]);
        let watch = at(&tree);
        sample(&watch, 0);
        assert_eq!(why(&watch), Silence::Absent);
        tree.write("host/proc/stat", BUSY);
        sample(&watch, 500);
        let reading = read_now(&watch);
        let host = reading.value().unwrap();
        assert_eq!((host.cpu_raw, host.mem, host.cores), (75.0, Some(40.0), Some(4.0)));
        assert_eq!((host.cpu_pressure, host.mem_pressure), (Some(12.5), None));
        assert_eq!((host.steal, host.iowait), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn without_it_the_own_proc_and_the_own_limits_count() {
        let tree = Tree::new(&[
            ("proc/stat", IDLE),
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", ""),
            ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/memory.max", "1000\n"),
            ("sys/fs/cgroup/memory.current", "900\n"),
        ]);
        let watch = at(&tree);
        sample(&watch, 0);
        tree.write("proc/stat", BUSY);
        sample(&watch, 1000);
        let reading = read_now(&watch);
        let host = reading.value().unwrap();
        assert_eq!((host.cpu_raw, host.mem, host.cores), (75.0, Some(90.0), Some(1.5)));
    }

    #[test]
    fn what_cannot_be_read_is_missing_and_comes_back() {
        let tree = Tree::new(&[]);
        let watch = at(&tree);
        sample(&watch, 0);
        assert_eq!(why(&watch), Silence::NotFound);
        tree.write("proc/stat", "no numbers here\n");
        sample(&watch, 1000);
        assert_eq!(why(&watch), Silence::Malformed);
        tree.write("proc/stat", BUSY);
        sample(&watch, 2000);
        tree.write("proc/stat", IDLE);
        sample(&watch, 3000);
        assert_eq!(why(&watch), Silence::Contradictory);
        tree.write("proc/stat", BUSY);
        sample(&watch, 4000);
        assert!(read_now(&watch).value().is_some());
    }

    #[test]
    fn check_names_the_file_and_what_limits_the_reading() {
        let tree = Tree::new(&[
            ("proc/stat", IDLE),
            ("proc/meminfo", MEMINFO),
            (".dockerenv", ""),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/cgroup.controllers", ""),
            ("sys/fs/cgroup/cpu.max", "150000 100000\n"),
        ]);
        assert_eq!(at(&tree).source(), Some(tree.root().join("proc/stat")));
        let found = at(&tree).facts();
        let all = found.iter().map(|f| f.what.as_str()).collect::<Vec<_>>().join("\n");
        for part in ["without the host's /proc", "1.5 of 4", "no pressure"] {
            assert!(all.contains(part), "{part} in\n{all}");
        }
        assert_eq!(found.len(), 3, "the reading itself is told elsewhere:\n{all}");
        let nothing = at(&Tree::new(&[]));
        assert_eq!((nothing.source(), nothing.facts()), (None, Vec::new()));
    }

    #[test]
    fn this_machine_can_be_read() {
        let watch = HostWatch::start();
        let deadline = Instant::now() + Duration::from_secs(20);
        let host = loop {
            if let Reading::Known { value, .. } = read_now(&watch) {
                break value;
            }
            assert!(Instant::now() < deadline, "{:?}", read_now(&watch));
            thread::sleep(Duration::from_millis(20));
        };
        assert!(host.is_credible(), "{host:?}");
        assert!(host.cores.is_some_and(|cores| cores > 0.0), "{host:?}");
        assert!(host.mem.is_some_and(|mem| mem > 0.0), "{host:?}");
    }

    #[test]
    fn sampling_ends_with_the_last_watch() {
        let watch = HostWatch::start_at(Tree::new(&[("proc/stat", IDLE)]).root());
        let machine = Arc::downgrade(&watch.machine);
        let second = watch.clone();
        drop(watch);
        assert!(machine.upgrade().is_some());
        drop(second);
        let deadline = Instant::now() + Duration::from_secs(20);
        while machine.upgrade().is_some() {
            assert!(Instant::now() < deadline, "the machine is still held");
            thread::sleep(Duration::from_millis(10));
        }
    }
}
