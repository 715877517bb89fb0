//! The machine that the workers run on: CPU, memory, pressure, limits.

pub mod processes;
pub mod sockets;

use headcount_core::{HostReading, Reading, Silence, Span, Timestamp};

/// Samples the machine in the background, so that no tick has to wait for it.
#[derive(Clone, Debug)]
pub struct HostWatch {}

impl HostWatch {
    /// Starts sampling; must be called inside a tokio runtime.
    pub fn start() -> Self {
        Self {}
    }

    /// What the machine says at `now`; `cpu_mean` is over the last `window`.
    pub fn read(&self, _now: Timestamp, _window: Span) -> Reading<HostReading> {
        Reading::missing(Silence::Absent, "")
    }
}
