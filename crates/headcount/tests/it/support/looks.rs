//! Looks at a target until its workers are as they should be, and what its check finds wrong.

use std::time::Duration;

use headcount::finding::{Finding, Level};
use headcount::targets::{FleetSeen, Target};
#[cfg(any(feature = "aws", feature = "kubernetes"))]
use headcount_core::FleetReading;
use tokio::time::{Instant, sleep};

use super::wait::PATIENCE;

/// Looks until `is_so`; panics with `what` and the last look after a generous time.
pub async fn until(
    target: &mut Box<dyn Target>,
    what: &str,
    is_so: impl Fn(&FleetSeen) -> bool,
) -> FleetSeen {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = target.status().await.expect("the back end answers");
        if is_so(&seen) {
            return seen;
        }
        assert!(Instant::now() < deadline, "not {what}: {:#?}", seen.reading);
        sleep(Duration::from_millis(50)).await;
    }
}

/// One look, at numbers that do not contradict each other.
#[cfg(any(feature = "aws", feature = "kubernetes"))]
pub async fn look(target: &mut Box<dyn Target>) -> FleetReading {
    let reading = target.status().await.unwrap().reading;
    reading.credible().unwrap();
    reading
}

/// Looks until there are this many ready workers and no others.
#[cfg(any(feature = "aws", feature = "kubernetes"))]
pub async fn settled(target: &mut Box<dyn Target>, ready: u32) {
    until(target, &format!("{ready} ready"), |seen| {
        let now = seen.reading.credible().unwrap();
        (now.ready, now.starting, now.draining, now.broken) == (ready, 0, 0, 0)
    })
    .await;
}

/// What is not good, each with its fix.
pub fn problems(findings: &[Finding]) -> Vec<&str> {
    let bad = findings.iter().filter(|f| f.level != Level::Good);
    bad.inspect(|f| assert!(f.fix.is_some(), "{f:?}")).map(|f| f.what.as_str()).collect()
}
