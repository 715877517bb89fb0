//! Redis servers of a test's own, and the stand-in for n8n's queue mode that uses them.

use std::fs::{File, read_to_string};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use headcount::config::Place;
use headcount::queues::bull::BullConfig;
use headcount::queues::redis::RedisConfig;
use headcount::queues::{Queue, QueueSeen};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::wait::until;

/// What a test waits for comes within this long, also on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A Redis server in a folder and on a port of its own; it ends with the test.
pub struct TestRedis {
    folder: tempfile::TempDir,
    port: u16,
    options: Vec<String>,
    child: Child,
}

/// A process of the stand-in.
pub struct Standin {
    child: Child,
    log: PathBuf,
}

impl TestRedis {
    /// A plain server.
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// A server with further options, such as `--requirepass x`.
    pub fn with(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options: Vec<_> = options.iter().map(|o| (*o).to_owned()).collect();
        let port = free_port();
        let child = Self::spawn(folder.path(), port, &options);
        let redis = Self { folder, port, options, child };
        redis.await_port();
        redis
    }

    /// A Sentinel with this configuration.
    pub fn sentinel(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        std::fs::write(&file, config).unwrap();
        let options = vec![file.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
        let port = free_port();
        let child = Self::spawn(folder.path(), port, &options);
        let redis = Self { folder, port, options, child };
        redis.await_port();
        redis
    }

    fn spawn(folder: &Path, port: u16, options: &[String]) -> Child {
        let log = File::create(folder.join("log")).unwrap();
        let mut command = Command::new("redis-server");
        command.args(options).args(["--port", &port.to_string()]).arg("--dir").arg(folder);
        command.args(["--bind", "127.0.0.1"]);
        if !options.contains(&"--sentinel".to_owned()) {
            command.args(["--save", "", "--appendonly", "no"]);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command.spawn().expect("no redis-server: run ./test.sh first")
    }

    fn await_port(&self) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(std::time::Instant::now() < deadline, "redis-server: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends it at once; its data are lost.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again, empty, on the same port.
    pub fn restart(&mut self) {
        self.child = Self::spawn(self.folder.path(), self.port, &self.options);
        self.await_port();
    }

    /// Stops it from doing anything, connections included.
    pub fn freeze(&self) {
        signal(&self.child, Signal::STOP);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        signal(&self.child, Signal::CONT);
    }

    /// Runs one command by `redis-cli`.
    pub fn cli(&self, args: &[&str]) -> String {
        let port = self.port.to_string();
        let mut command = Command::new("redis-cli");
        command.args(["--no-auth-warning", "-p", &port]).args(args);
        let output = command.output().expect("no redis-cli: run ./test.sh first");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// How to reach it.
    pub fn config(&self) -> RedisConfig {
        RedisConfig { url: format!("redis://127.0.0.1:{}", self.port), ..RedisConfig::default() }
    }

    /// The queue as n8n makes it by default.
    pub fn queue(&self) -> Box<dyn Queue> {
        open(&BullConfig { redis: self.config(), ..BullConfig::default() })
    }

    /// Runs the stand-in to its end.
    pub fn standin(&self, args: &[&str]) {
        self.standin_with(args, &[]);
    }

    /// Runs the stand-in to its end, with further environment.
    pub fn standin_with(&self, args: &[&str], env: &[(&str, &str)]) {
        let mut command = standin(args);
        command.env("QUEUE_BULL_REDIS_PORT", self.port.to_string()).envs(env.iter().copied());
        let output = command.output().expect("no node: run ./test.sh first");
        assert!(output.status.success(), "stand-in {args:?}: {output:?}");
    }

    /// A worker that takes jobs.
    pub async fn worker(&self, name: &str, env: &[(&str, &str)]) -> Standin {
        let log = self.path(&format!("worker-{name}.log"));
        let file = File::create(&log).unwrap();
        let mut command = standin(&["worker", name]);
        command.env("QUEUE_BULL_REDIS_PORT", self.port.to_string());
        command.env("N8N_CONCURRENCY_PRODUCTION_LIMIT", "1").envs(env.iter().copied());
        command.stdout(file.try_clone().unwrap()).stderr(file);
        let worker = Standin { child: command.spawn().expect("no node: run ./test.sh first"), log };
        worker.says("ready").await;
        worker
    }
}

impl Drop for TestRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Standin {
    /// Waits until its output holds `text`.
    pub async fn says(&self, text: &str) {
        let said = || read_to_string(&self.log).unwrap_or_default();
        until(&format!("worker says {text} in {}", self.log.display()), async || {
            said().contains(text)
        })
        .await;
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        self::signal(&self.child, signal);
    }

    /// Whether it ended, and how.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }
}

impl Drop for Standin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens a queue.
pub fn open(config: &BullConfig) -> Box<dyn Queue> {
    assert_eq!(config.problems(), []);
    let here = PathBuf::from("/");
    config.open(&Place { group: "g".into(), state_dir: here.clone(), base_dir: here }).unwrap()
}

/// Looks until what is seen is as wanted.
pub async fn sees(
    queue: &mut Box<dyn Queue>,
    what: &str,
    mut wanted: impl FnMut(&QueueSeen) -> bool,
) -> QueueSeen {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = queue.read().await;
        match &seen {
            Ok(seen) if wanted(seen) => return seen.clone(),
            _ => assert!(Instant::now() < deadline, "never saw {what}, last: {seen:#?}"),
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// A port that nobody listens on at the moment.
pub fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn standin(args: &[&str]) -> Command {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let modules = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../bull/node_modules");
    assert!(modules.join("bull").is_dir(), "the package bull is missing: run ./test.sh first");
    let mut command = Command::new("node");
    command.arg(root.join("tests/bull/standin.cjs")).args(args).env("NODE_PATH", modules);
    command.stdin(Stdio::null());
    command
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}
