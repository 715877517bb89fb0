//! One short-lived child command: in a process group of its own, with a time limit and a limit on
//! what is kept of its output.

use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::hosts::processes;
use crate::limits::{LAST_WORDS, OUTPUT_BYTES};

/// How a command ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    /// The end of what it wrote to standard output.
    pub(super) output: String,
    /// The end of what it wrote to standard error.
    pub(super) errors: String,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// It could not be started.
    #[error("{0}")]
    Start(std::io::Error),
    /// It took too long, and was killed with everything it started.
    #[error("it was killed after {} s", .0.as_secs_f64())]
    Timeout(Duration),
}

impl Ended {
    /// Both outputs on one line.
    pub(super) fn said(&self) -> String {
        let lines = self.output.lines().chain(self.errors.lines());
        lines.map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// Runs a command to its end.
pub(super) async fn run(mut command: Command, limit: Duration) -> Result<Ended, Fault> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(Fault::Start)?;
    let (output, errors) = (Pipe::read(child.stdout.take()), Pipe::read(child.stderr.take()));
    let mut group = Group(Some(child));
    let status = timeout(limit, group.end()).await.map_err(|_| Fault::Timeout(limit))?;
    let status = status.map_err(Fault::Start)?;
    Ok(Ended { status, output: output.finish().await, errors: errors.finish().await })
}

/// A command that runs. Dropped before its end, it is killed with everything it started.
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
    fn read(pipe: Option<impl AsyncRead + Send + Unpin + 'static>) -> Self {
        let kept = Arc::new(Mutex::default());
        let reading = tokio::spawn(keep_last(pipe, Arc::clone(&kept)));
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

async fn keep_last(pipe: Option<impl AsyncRead + Unpin>, kept: Arc<Mutex<Vec<u8>>>) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = [0; 4096];
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        let mut kept = lock(&kept);
        kept.extend_from_slice(&chunk[..read]);
        let surplus = kept.len().saturating_sub(OUTPUT_BYTES);
        kept.drain(..surplus);
    }
}

fn lock(kept: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    kept.lock().expect("nothing panics while it holds this lock")
}
