//! `headcount demo`: an embedded queue, real workers, a bursty load, and a view of what happens.

mod view;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use headcount_core::Span;
use headcount_core::rules::MOST_WORKERS;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use crate::cli::{Globals, block_on};
use crate::clock;
use crate::demo::stage::Stage;
use crate::demo::worker;
use view::View;

/// Arguments of `headcount demo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How long it runs; 0s runs until Ctrl-C
    #[arg(long = "for", default_value = "60s", value_name = "TIME", value_parser = length)]
    time: Length,
    /// No live view: a line for each change and a summary
    #[arg(long)]
    headless: bool,
    /// The most workers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_WORKERS)))]
    max: u32,
    /// Which bursts of jobs come
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
}

/// A length of time, and how it was given.
#[derive(Clone, Debug)]
struct Length {
    span: Span,
    given: String,
}

/// Arguments of `headcount demo-worker`, which `headcount demo` starts.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    /// The job table
    #[arg(long, value_name = "FILE")]
    database: PathBuf,
    /// Time before it takes jobs
    #[arg(long, default_value = "0s", value_name = "TIME", value_parser = span)]
    start_up: Span,
    /// Ends when this process has
    #[arg(long, value_name = "PID")]
    parent: Option<u32>,
}

impl Args {
    /// Shows it.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let live = !self.headless && !globals.json && std::io::stdout().is_terminal();
        let mut view = View::new(globals.json, live, self.time.clone(), self.max);
        block_on(self.show(&mut view))??;
        Ok(ExitCode::SUCCESS)
    }

    async fn show(&self, view: &mut View) -> anyhow::Result<()> {
        // Before anything starts, so that no signal finds us unprepared.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // The terminal was closed.
        let mut hangup = signal(SignalKind::hangup())?;
        let mut out = std::io::stdout();
        let mut stage = Stage::start(self.max, self.seed)?;
        let shown: anyhow::Result<()> = async {
            view.begin(&mut out)?;
            let end = Instant::now() + clock::duration(self.time.span);
            loop {
                tokio::select! {
                    tick = stage.tick() => view.show(&mut out, &*tick.context("the group broke")?)?,
                    () = sleep_until(end), if !self.time.span.is_zero() => return Ok(()),
                    _ = terminate.recv() => return Ok(()),
                    _ = interrupt.recv() => return Ok(()),
                    _ = hangup.recv() => return Ok(()),
                }
            }
        }
        .await;
        stage.end().await?;
        // A reader or a terminal that has gone away is no failure of the demo.
        match shown.and_then(|()| Ok(view.finish(&mut out)?)) {
            Err(e) if has_gone(&e) => Ok(()),
            shown => shown,
        }
    }
}

impl WorkerArgs {
    /// Works.
    pub fn run(self, _globals: &Globals) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let start_up = clock::duration(self.start_up);
        runtime.block_on(worker::work(&self.database, start_up, self.parent))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn span(text: &str) -> Result<Span, String> {
    match text.parse::<Span>() {
        Ok(span) if !span.is_negative() => Ok(span),
        _ => Err("write a duration such as 90s, 15m or `1h 30m`".into()),
    }
}

fn length(text: &str) -> Result<Length, String> {
    Ok(Length { span: span(text)?, given: text.trim().into() })
}

/// Whether nobody is there to read: the pipe or the terminal was closed.
fn has_gone(error: &anyhow::Error) -> bool {
    let closed_terminal = Some(rustix::io::Errno::IO.raw_os_error());
    error.downcast_ref::<std::io::Error>().is_some_and(|error| {
        error.kind() == std::io::ErrorKind::BrokenPipe || error.raw_os_error() == closed_terminal
    })
}
