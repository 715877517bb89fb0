//! Runs a program in a process group of its own: with a time limit, no input and bounded output.
//! However it ends, when the limit is reached or the caller gives up, the whole group is ended.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::limits::COMMAND_GRACE;

/// How a program ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; absent if a signal ended it.
    pub code: Option<i32>,
    /// The end of what it wrote to its standard output.
    pub stdout: String,
    /// The end of what it wrote to its standard error.
    pub stderr: String,
}

/// Why there is no [`Ended`].
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It cannot be started.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It ran too long and was ended.
    #[error("{program} did not finish within {seconds} s")]
    Timeout {
        /// The program.
        program: String,
        /// The limit.
        seconds: u64,
    },
}

/// A running process group; ended at once if it is dropped before it is `over`.
struct Group {
    leader: Option<Pid>,
}

/// The end of one output.
struct Tail {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

/// Runs `command` for at most `limit`; keeps the last `keep` bytes of each output.
///
/// # Errors
/// It cannot be started, or ran too long; then no process of its group is left.
pub async fn run(
    mut command: Command,
    limit: Duration,
    keep: usize,
) -> Result<Ended, CommandError> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command
        .spawn()
        .map_err(|source| CommandError::Start { program: program.clone(), source })?;
    let mut group = Group::of(&child);
    let (stdout, stderr) =
        (Tail::of(child.stdout.take(), keep), Tail::of(child.stderr.take(), keep));
    let Ok(status) = timeout(limit, child.wait()).await else {
        group.end(&mut child).await;
        return Err(CommandError::Timeout { program, seconds: limit.as_secs() });
    };
    group.over();
    let status = status.map_err(|source| CommandError::Start { program, source })?;
    Ok(Ended { code: status.code(), stdout: stdout.text().await, stderr: stderr.text().await })
}

impl Group {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self { leader: id.and_then(Pid::from_raw) }
    }

    fn over(&mut self) {
        self.leader = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // Fails only if no process of the group is left.
            let _ = kill_process_group(leader, signal);
        }
    }

    async fn end(&mut self, child: &mut Child) {
        self.signal(Signal::TERM);
        let _ = timeout(COMMAND_GRACE, child.wait()).await;
        self.signal(Signal::KILL);
        let _ = child.wait().await;
        self.over();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Tail {
    /// Reads to the end of the stream and keeps its last `keep` bytes.
    fn of(from: Option<impl AsyncRead + Unpin + Send + 'static>, keep: usize) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&kept);
        let reader = tokio::spawn(async move {
            let Some(mut from) = from else { return };
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut chunk).await {
                let mut kept = to.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&chunk[..n]);
                let too_many = kept.len().saturating_sub(keep);
                kept.drain(..too_many);
            }
        });
        Self { kept, reader }
    }

    /// What was kept. A process left in the background may hold the pipe open for ever: what it
    /// writes later is not waited for.
    async fn text(mut self) -> String {
        let _ = timeout(Duration::from_secs(1), &mut self.reader).await;
        self.reader.abort();
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).into_owned()
    }
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
        assert_eq!(
            ended,
            Ended { code: Some(3), stdout: "last\n".into(), stderr: "oops\n".into() }
        );
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let error = run(Command::new("/no/such"), Duration::from_secs(20), 5).await.unwrap_err();
        assert!(error.to_string().starts_with("/no/such cannot be started: "), "{error}");
    }

    #[tokio::test]
    async fn the_whole_group_ends_at_the_limit_even_if_it_ignores_being_told() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let script = format!("trap '' TERM; sleep 600 & echo $! > {}; wait", file.display());
        let error = run(shell(&script), Duration::from_secs(3), 5).await.unwrap_err();
        assert_eq!(error.to_string(), "sh did not finish within 3 s");
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
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "4\n"));
        assert!(start.elapsed() < Duration::from_secs(15));
    }
}
