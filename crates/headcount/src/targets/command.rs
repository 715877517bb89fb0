//! One short-lived command: in a process group of its own, without input, with a time limit and a
//! limit on what is kept of its output. Given up, at the limit or by the caller, it is killed with its
//! whole process group; what it started in a group of its own (`setsid`) is left alone.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::hosts::processes;
use crate::limits::LAST_WORDS;

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// The end of what it wrote to standard output.
    pub output: String,
    /// The end of what it wrote to standard error.
    pub errors: String,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It could not be started.
    #[error("{0}")]
    Start(std::io::Error),
    /// It took too long, and was killed with its process group.
    #[error("it was killed after {} s", .0.as_secs_f64())]
    Timeout(Duration),
}

impl Ended {
    /// Both outputs on one line.
    pub fn said(&self) -> String {
        let lines = self.output.lines().chain(self.errors.lines());
        lines.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// Runs a command to its end, for at most `limit`; keeps the last `keep` bytes of each output.
///
/// # Errors
/// It cannot be started, or took too long.
pub async fn run(mut command: Command, limit: Duration, keep: usize) -> Result<Ended, Fault> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(Fault::Start)?;
    let output = Pipe::read(child.stdout.take(), keep);
    let errors = Pipe::read(child.stderr.take(), keep);
    let mut group = Group(Some(child));
    let status = timeout(limit, group.end()).await.map_err(|_| Fault::Timeout(limit))?;
    let status = status.map_err(Fault::Start)?;
    Ok(Ended { status, output: output.finish().await, errors: errors.finish().await })
}

/// A command that runs. Dropped before its end, it is killed with its process group.
struct Group(Option<Child>);

impl Group {
    async fn end(&mut self) -> std::io::Result<ExitStatus> {
        let child = self.0.as_mut().expect("it is waited for once");
        let status = child.wait().await?;
        self.0 = None;
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0.as_ref().and_then(Child::id) {
            processes::signal_group(pid, Signal::KILL);
        }
    }
}

/// The last bytes of a pipe. Everything is read, so that the writer never waits.
struct Pipe {
    kept: Arc<Mutex<Vec<u8>>>,
    reading: JoinHandle<()>,
}

impl Pipe {
    fn read(pipe: Option<impl AsyncRead + Send + Unpin + 'static>, keep: usize) -> Self {
        let kept = Arc::new(Mutex::default());
        let reading = tokio::spawn(keep_last(keep, pipe, Arc::clone(&kept)));
        Self { kept, reading }
    }

    /// What was read when the command had ended. Something it left in the background may still
    /// hold the pipe; that is not waited for.
    async fn finish(mut self) -> String {
        let _ = timeout(LAST_WORDS, &mut self.reading).await;
        String::from_utf8_lossy(&lock(&self.kept)).into_owned()
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn keep_last(keep: usize, pipe: Option<impl AsyncRead + Unpin>, kept: Arc<Mutex<Vec<u8>>>) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        let mut kept = lock(&kept);
        kept.extend_from_slice(&chunk[..read]);
        let surplus = kept.len().saturating_sub(keep);
        kept.drain(..surplus);
    }
}

fn lock(kept: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    kept.lock().expect("nothing panics while it holds this lock")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    async fn is_gone(pid: &str) -> bool {
        let stat = format!("/proc/{pid}/stat");
        for _ in 0..100 {
            let text = std::fs::read_to_string(&stat).unwrap_or_default();
            if text.is_empty() || text.contains(") Z") {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        false
    }

    #[tokio::test]
    async fn tells_the_code_and_the_end_of_both_outputs() {
        let script = "echo first; echo last; echo oops >&2; exit 3";
        let ended = run(shell(script), Duration::from_secs(20), 5).await.unwrap();
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!((ended.output.as_str(), ended.errors.as_str()), ("last\n", "oops\n"));
    }

    #[tokio::test]
    async fn a_program_that_is_missing_does_not_start() {
        let error = run(Command::new("/no/such"), Duration::from_secs(20), 5).await.unwrap_err();
        assert!(matches!(error, Fault::Start(_)), "{error}");
    }

    #[tokio::test]
    async fn the_whole_group_ends_at_the_limit_even_if_it_ignores_being_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("trap '' TERM; sleep 600 & echo $! > {}; wait", file.display());
        let error = run(shell(&script), Duration::from_secs(3), 5).await.unwrap_err();
        assert_eq!(error.to_string(), "it was killed after 3 s");
        assert!(is_gone(std::fs::read_to_string(file).unwrap().trim()).await);
    }

    #[tokio::test]
    async fn the_whole_group_ends_when_the_caller_gives_up() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let running = run(shell(&script), Duration::from_secs(60), 5);
        assert!(timeout(Duration::from_secs(3), running).await.is_err());
        assert!(is_gone(std::fs::read_to_string(file).unwrap().trim()).await);
    }

    #[tokio::test]
    async fn a_process_left_in_the_background_is_not_waited_for() {
        let start = std::time::Instant::now();
        let ended = run(shell("sleep 20 & echo 4"), Duration::from_secs(60), 5).await.unwrap();
        assert_eq!((ended.status.code(), ended.output.as_str()), (Some(0), "4\n"));
        assert!(start.elapsed() < Duration::from_secs(15));
    }
}
