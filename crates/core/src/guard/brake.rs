//! The host's limits. From the emergency limit on nothing grows beyond the fewest workers that
//! must be, until the gauge is below the resume limit again; and in an emergency one idle worker at
//! a time is removed.

use serde::{Deserialize, Serialize};

use crate::decision::{Gauge, Kind, Rule, Why};
use crate::guard::{Draft, Look};
use crate::reading::HostReading;
use crate::rules::Pressure;
use crate::smooth::AsymmetricEwma;
use crate::time::{Span, Timestamp};

/// Between two emergency removals: the reference's cooldown, long enough to see what the first did.
const COOLDOWN: Span = Span::from_secs(90);
/// Weight of a CPU sample above the smoothed value: the reference's.
const ALPHA_UP: f64 = 0.5;
/// Weight of a CPU sample below it: the reference's.
const ALPHA_DOWN: f64 = 0.1;

/// Whether the brake is on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BrakeState {
    /// Smoothed CPU, percent.
    pub cpu_ema: AsymmetricEwma,
    /// When it last took in a sample.
    pub sampled_at: Option<Timestamp>,
    /// The CPU limit was reached and CPU is not below the resume limit yet.
    pub cpu_on: bool,
    /// The same for memory.
    pub memory_on: bool,
    /// The same for CPU pressure.
    pub pressure_on: bool,
    /// The last emergency removal that was carried out.
    pub removed_at: Option<Timestamp>,
}

impl BrakeState {
    pub(crate) fn times(&mut self) -> [&mut Option<Timestamp>; 2] {
        [&mut self.sampled_at, &mut self.removed_at]
    }
}

/// A gauge, its value and its limits.
struct Watched<'a> {
    what: Gauge,
    now: f64,
    limits: Pressure,
    on: &'a mut bool,
}

/// Blocks growth, and removes one worker in an emergency.
pub(crate) fn apply(state: &mut BrakeState, look: &Look<'_>, draft: &mut Draft) {
    let Some(host) = look.host.filter(|_| !look.rules.brake.off) else { return };
    let cpu = smoothed_cpu(state, host, look);
    let removed_at = state.removed_at;
    let brake = &look.rules.brake;
    let watched = [
        cpu.map(|now| (Gauge::Cpu, now, brake.cpu(), &mut state.cpu_on)),
        host.mem.map(|now| (Gauge::Memory, now, brake.memory(), &mut state.memory_on)),
        host.cpu_pressure
            .zip(brake.cpu_pressure.clone())
            .map(|(now, limits)| (Gauge::CpuPressure, now, limits, &mut state.pressure_on)),
    ];
    for (what, now, limits, on) in watched.into_iter().flatten() {
        if let Some(emergency) = (Watched { what, now, limits, on }).apply(draft)
            && removed_at.is_none_or(|at| look.now.since(at) >= COOLDOWN)
            && draft.wanted == draft.current
            && draft.current > draft.range.min.max(draft.floor)
        {
            draft.rule(Kind::EmergencyScaleIn, Rule::Brake, draft.current - 1, emergency);
        }
    }
}

/// The higher of the averaged CPU and its EWMA; `None` where the policy watches CPU itself.
fn smoothed_cpu(state: &mut BrakeState, host: &HostReading, look: &Look<'_>) -> Option<f64> {
    if look.rules.policy.watches_cpu() {
        return None;
    }
    let now = host.cpu_mean.unwrap_or(host.cpu_raw);
    let due = state.sampled_at.is_none_or(|at| look.now.since(at) >= look.rules.policy.poll());
    if due || look.every_look {
        state.sampled_at = Some(look.now);
        state.cpu_ema.add(now, ALPHA_UP, ALPHA_DOWN);
    }
    Some(state.cpu_ema.value().map_or(now, |ema| ema.max(now)))
}

impl Watched<'_> {
    /// Turns the brake on or off and stops growth; returns the reason of an emergency.
    fn apply(self, draft: &mut Draft) -> Option<Why> {
        let Self { what, now, limits: Pressure { resume, emergency }, on } = self;
        *on = now >= emergency || (*on && now >= resume);
        let most = draft.current.max(draft.range.min);
        if *on && draft.wanted > most {
            draft.say(Rule::Brake, most, Why::HostFull { what, now, resume, emergency });
        }
        (now >= emergency).then_some(Why::HostCritical { what, now, emergency })
    }
}
