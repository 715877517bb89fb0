//! The rules of other autoscalers, to compare with: written anew from their documentation and their
//! public source, one file each.
//!
//! A baseline sees the same observation as the core, at its own poll, and picks its victims as the
//! system does that it stands for. A blind victim that holds a job drains for ever unless the world
//! sets a grace: that is kinder than most systems are.

pub mod aws;
pub mod dask;
pub mod exact;
pub mod fixed;
pub mod grid;
pub mod judoscale;
pub mod keda;
pub mod knative;
pub mod n8n_autoscaling;
pub mod nomad;
pub mod practo;
pub mod reference;
pub mod square_root;
pub mod windmill;
mod window;

use headcount_core::Observation;

pub use grid::{Family, families};

/// The fewest and the most workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The fewest.
    pub min: u32,
    /// The most.
    pub max: u32,
}

impl Bounds {
    /// `wanted` workers, within the bounds; a number that is not finite is the fewest.
    fn clamp(self, wanted: f64) -> u32 {
        // A cast from a float saturates, and takes NaN as 0.
        (wanted as u32).max(self.min).min(self.max)
    }
}

/// What the baselines use of an observation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sight {
    /// Unix time, s.
    now: f64,
    waiting: f64,
    active: f64,
    /// Workers that serve.
    ready: u32,
    /// Workers that serve or start.
    live: u32,
    /// Workers that hold a job.
    busy: u32,
}

impl Sight {
    /// `None` while the queue or the fleet is silent: then all of them leave the number as it is.
    fn of(seen: &Observation) -> Option<Self> {
        let (queue, fleet) = (seen.queue.value()?, seen.fleet.value()?);
        Some(Self {
            now: seen.t.as_seconds(),
            waiting: queue.waiting as f64,
            active: queue.active as f64,
            ready: fleet.ready,
            live: fleet.capacity(),
            busy: fleet.busy.unwrap_or_default(),
        })
    }
}

/// (s, waiting, active, ready, starting) and what a rule should want then, where `None` is no change.
#[cfg(test)]
type Moments<'a> = &'a [(f64, u64, u64, u32, u32, Option<u32>)];

/// Asks a rule at moments.
#[cfg(test)]
fn check(rule: &mut dyn crate::Autoscaler, rows: Moments<'_>) {
    use headcount_core::reading::{FleetReading, HostReading, QueueReading};
    use headcount_core::{Reading, Timestamp};
    for &(at, waiting, active, ready, starting, expected) in rows {
        let t = Timestamp::from_seconds(1_000_000.0 + at).unwrap();
        let busy = Some(u32::try_from(active).unwrap().min(ready));
        let seen = Observation {
            t,
            queue: Reading::known(QueueReading { waiting, active, ..QueueReading::default() }, t),
            host: Reading::known(HostReading::default(), t),
            fleet: Reading::known(
                FleetReading { ready, starting, busy, ..FleetReading::default() },
                t,
            ),
            budget: None,
        };
        let live = ready + starting;
        let wanted = rule.wanted(&seen).filter(|wanted| *wanted != live);
        assert_eq!(wanted, expected, "{} at {at}", rule.name());
    }
}
