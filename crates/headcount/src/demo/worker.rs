//! The worker of the demo: one job at a time, and SIGTERM lets it finish that job first.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep, sleep_until};

use crate::clock;
use crate::demo::table::{Job, Table};
use crate::hosts::processes::{self, Process};

/// How often a worker without a job asks for one.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// A job computes for this long, then rests: light enough for four on a small machine.
const BURN: Duration = Duration::from_millis(4);
/// How long a job rests in between.
const REST: Duration = Duration::from_millis(46);

/// Works until SIGTERM, until the table is gone, or until the process `parent` is.
///
/// # Errors
/// The table cannot be opened or written.
pub async fn work(database: &Path, start_up: Duration, parent: Option<u32>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let told = terminate.recv();
    tokio::pin!(told);
    let me = Process::find(std::process::id()).context("/proc does not show this process")?;
    let parent = parent.and_then(Process::find);
    tokio::select! {
        () = sleep(start_up) => {}
        _ = &mut told => return Ok(()),
    }
    let table = Table::open(database)
        .with_context(|| format!("job table {} cannot be opened", database.display()))?;
    table.enter(&me)?;
    let wanted = || {
        database.exists() && parent.is_none_or(|p| processes::running(p.pid, p.started).is_some())
    };
    let mut going = false;
    while wanted() && !going {
        let Some(job) = table.claim(&me, clock::now())? else {
            table.release_orphans()?;
            tokio::select! {
                () = sleep(ASK_EVERY) => {}
                _ = &mut told => going = true,
            }
            continue;
        };
        let running = run(&job);
        tokio::pin!(running);
        tokio::select! {
            () = &mut running => {}
            _ = &mut told => {
                going = true;
                table.drain(&me)?;
                running.await;
            }
        }
        table.finish(&job, clock::now())?;
    }
    Ok(table.leave(&me)?)
}

/// Takes as long as the job costs, computing now and then.
async fn run(job: &Job) {
    let end = Instant::now() + Duration::from_secs_f64(job.cost_s);
    while Instant::now() < end {
        let rest = Instant::now() + BURN;
        while Instant::now() < rest {
            std::hint::spin_loop();
        }
        sleep_until(end.min(Instant::now() + REST)).await;
    }
}
