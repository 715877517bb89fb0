//! A running `headcount run`, as a user starts it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::run::{Ran, headcount, run};

/// What takes several rounds of scaling comes within this long, also on a slow machine.
pub const LONG_PATIENCE: Duration = Duration::from_secs(180);

/// A daemon and the folder that is its working directory, home and state.
pub struct Daemon {
    /// Its folder.
    pub folder: tempfile::TempDir,
    env: Vec<(String, String)>,
    child: Option<Child>,
}

impl Daemon {
    /// Starts one with this configuration and environment.
    pub fn start(config: &str, env: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("headcount.yaml"), config).unwrap();
        Self::start_in(folder, env)
    }

    /// Starts one in a folder that is prepared.
    pub fn start_in(folder: tempfile::TempDir, env: &[(&str, &str)]) -> Self {
        let own = |(key, value): &(&str, &str)| ((*key).to_string(), (*value).to_string());
        let mut daemon = Self { folder, env: env.iter().map(own).collect(), child: None };
        daemon.start_again();
        daemon
    }

    /// Starts it after it ended.
    pub fn start_again(&mut self) {
        let log = File::options().append(true).create(true).open(self.path("log")).unwrap();
        let mut command = self.command(&["run"]);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().expect("the program starts"));
    }

    /// A second one with the same configuration and state.
    pub fn rival(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(self.path("headcount.yaml"), folder.path().join("headcount.yaml")).unwrap();
        let state = self.path("state").to_str().unwrap().to_string();
        let env = [self.env.clone(), vec![("HEADCOUNT_STATE_DIR".into(), state)]].concat();
        let mut rival = Self { folder, env, child: None };
        rival.start_again();
        rival
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = headcount(self.folder.path(), args);
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        command
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Runs another verb on it.
    pub fn verb(&self, args: &[&str]) -> Ran {
        run(self.command(args), b"")
    }

    /// Its events, oldest first.
    pub fn events(&self) -> Vec<Value> {
        let ran = self.verb(&["events", "--json", "-n", "1000"]);
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The numbers that it went to, oldest first.
    pub fn steps(&self) -> Vec<(u64, u64)> {
        let number = |event: &Value, key| event["decision"][key].as_u64().unwrap();
        self.events().iter().map(|e| (number(e, "current"), number(e, "wanted"))).collect()
    }

    /// What `status` says of its only group.
    pub fn status(&self) -> Value {
        let ran = self.verb(&["status", "--json"]);
        ran.out.lines().next().map_or(Value::Null, |line| serde_json::from_str(line).unwrap())
    }

    /// Workers that are ready, by its last look.
    pub fn ready(&self) -> u64 {
        self.status()["observation"]["fleet"]["ready"].as_u64().unwrap_or(u64::MAX)
    }

    /// Waits until something is so; panics with the log after a long time.
    pub fn until(&self, what: &str, mut so: impl FnMut(&Self) -> bool) {
        let start = Instant::now();
        while !so(self) {
            assert!(start.elapsed() < LONG_PATIENCE, "never {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid =
            self.child.as_ref().and_then(|c| i32::try_from(c.id()).ok()).and_then(Pid::from_raw);
        kill_process(pid.expect("it runs"), signal).unwrap();
    }

    /// Tells it to end, and waits for that; its exit code.
    pub fn end(&mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        self.child.take().and_then(|mut child| child.wait().unwrap().code())
    }

    /// One page of its HTTP server on `port`.
    pub fn page(port: u16, path: &str) -> (u16, String) {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: test\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.into())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        end_workers(self.folder.path());
    }
}

/// Ends the worker processes that a killed daemon left in `folder`.
fn end_workers(folder: &Path) {
    use headcount::hosts::processes;
    let mark = format!("HEADCOUNT_FLEET={}", folder.display());
    let ours = |p: &processes::Process| p.environment().iter().any(|v| v.starts_with(&mark));
    for process in processes::all().into_iter().filter(ours) {
        processes::signal_group(process.group, Signal::KILL);
    }
}
