//! Keeps the loop of a group running. One that breaks is told at once, and starts again from what is
//! stored, after a wait that grows.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::daemon::Stop;
use crate::limits::{LOOP_BACK_OFF, LOOP_BACK_OFF_MAX};
use crate::web::Health;

/// Runs the loop of `group` until it ends by itself, or is told to stop while it is broken. `run`
/// opens the group and runs it.
pub(super) async fn keep_running<Running>(
    group: String,
    health: Arc<Health>,
    mut told: watch::Receiver<Stop>,
    mut run: impl FnMut() -> Running,
) where
    Running: Future<Output = anyhow::Result<()>>,
{
    let mut rest = LOOP_BACK_OFF;
    loop {
        let began = Instant::now();
        let why = match AssertUnwindSafe(async { run().await }).catch_unwind().await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => format!("cannot be opened again: {error:#}"),
            Err(panic) => format!("its loop broke: {}", said(&*panic)),
        };
        if began.elapsed() > LOOP_BACK_OFF_MAX {
            rest = LOOP_BACK_OFF;
        }
        tracing::error!(group, "{why}; it starts again in {} s", rest.as_secs());
        health.set_broken(&group, why);
        tokio::select! {
            () = sleep(rest) => {}
            _ = told.wait_for(|stop| *stop != Stop::No) => return,
        }
        rest = (rest * 2).min(LOOP_BACK_OFF_MAX);
    }
}

/// What a panic says.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it does not say why")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::store::Store;

    fn health(folder: &tempfile::TempDir) -> Arc<Health> {
        let health = Health::new(Arc::new(Store::open(folder.path(), 30)));
        health.expect_groups(["g"].into_iter());
        health
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_breaks_starts_again_ever_later_and_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let health = health(&folder);
        let (_stop, told) = watch::channel(Stop::No);
        let (runs, began) = (AtomicU32::new(0), Instant::now());
        let run = || async {
            match runs.fetch_add(1, Ordering::Relaxed) {
                0 => panic!("the target is {}", "odd"),
                1 => anyhow::bail!("no file"),
                2..12 => panic!("again"),
                _ => Ok(()),
            }
        };
        keep_running("g".into(), Arc::clone(&health), told, run).await;
        assert_eq!(runs.load(Ordering::Relaxed), 13);
        let waited = began.elapsed().as_secs();
        assert_eq!(waited, 1 + 2 + 4 + 8 + 16 + 32 + 64 + 128 + 256 + 3 * 300);
        assert_eq!(health.broken(), ["g: its loop broke: again"]);
        assert!(health.page().contains("headcount_loop_failures_total{group=\"g\"} 12"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_group_can_be_told_to_stop() {
        let folder = tempfile::tempdir().unwrap();
        let (stop, told) = watch::channel(Stop::No);
        let run = || async { panic!("always") };
        let task = tokio::spawn(keep_running("g".into(), health(&folder), told, run));
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert!(!task.is_finished());
        stop.send_replace(Stop::Leave);
        tokio::time::timeout(Duration::from_secs(1), task).await.unwrap().unwrap();
    }
}
