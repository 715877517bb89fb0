//! The host's limits. From the emergency limit on nothing grows beyond the fewest workers that
//! must be, until the gauge is below the resume limit again, or until it is known that the CPU carries
//! more workers (`capacity`); and in an emergency one idle worker at a time is removed.

use serde::{Deserialize, Serialize};

use crate::decision::{Gauge, Kind, Rule, Why};
use crate::estimate::load::Load;
use crate::guard::{Draft, Look, capacity};
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
    /// The higher of the averaged CPU and its EWMA, which takes in this sample if it is `due`.
    fn cpu(&mut self, host: &HostReading, due: bool) -> f64 {
        let now = host.cpu_mean.unwrap_or(host.cpu_raw);
        if due {
            self.cpu_ema.add(now, ALPHA_UP, ALPHA_DOWN);
        }
        self.cpu_ema.value().map_or(now, |ema| ema.max(now))
    }

    pub(crate) fn times(&mut self) -> [&mut Option<Timestamp>; 2] {
        [&mut self.sampled_at, &mut self.removed_at]
    }
}

/// A gauge, its value and its limits.
struct Watched<'a> {
    what: Gauge,
    now: f64,
    limits: Pressure,
    /// It is known that more workers find room.
    carries_more: bool,
    on: &'a mut bool,
}

/// Blocks growth, and removes one worker in an emergency.
pub(crate) fn apply(state: &mut BrakeState, load: &Load, look: &Look<'_>, draft: &mut Draft) {
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
        if limits.off {
            *on = false;
            continue;
        }
        // Where it is known that the CPU carries more, growth need not wait for it to be calm, only
        // for the emergency to be over; how far it goes is for the next guard to say.
        let carries_more = what == Gauge::Cpu
            && now < limits.emergency
            && draft.grows()
            && capacity::cpu(load, look).is_some_and(|cpu| cpu.workers > draft.current);
        if let Some(emergency) = (Watched { what, now, limits, carries_more, on }).apply(draft)
            && removed_at.is_none_or(|at| look.now.since(at) >= COOLDOWN)
            && draft.wanted == draft.current
            && draft.current > draft.range.min.max(draft.floor)
        {
            draft.rule(Kind::EmergencyScaleIn, Rule::Brake, draft.current - 1, emergency);
        }
    }
}

/// The CPU that counts; `None` where the policy watches CPU itself.
fn smoothed_cpu(state: &mut BrakeState, host: &HostReading, look: &Look<'_>) -> Option<f64> {
    if look.rules.policy.watches_cpu() {
        return None;
    }
    let poll = look.rules.policy.poll();
    let due = look.every_look || state.sampled_at.is_none_or(|at| look.now.since(at) >= poll);
    if due {
        state.sampled_at = Some(look.now);
    }
    Some(state.cpu(host, due))
}

impl Watched<'_> {
    /// Turns the brake on or off and stops growth; returns the reason of an emergency.
    fn apply(self, draft: &mut Draft) -> Option<Why> {
        let Self { what, now, limits: Pressure { resume, emergency, .. }, carries_more, on } = self;
        *on = now >= emergency || (*on && now >= resume);
        let most = draft.current.max(draft.range.min);
        if *on && draft.wanted > most && !carries_more {
            draft.say(Rule::Brake, most, Why::HostFull { what, now, resume, emergency });
        }
        (now >= emergency).then_some(Why::HostCritical { what, now, emergency })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::rules::MemoryPressure;
    use crate::scene::Scene;

    fn with_memory(current: u32, mem: f64) -> Scene {
        let mut scene = Scene::new(current);
        scene.host = Some(HostReading { cpu_raw: 10.0, mem: Some(mem), ..HostReading::default() });
        scene
    }

    fn judge(scene: &Scene, state: &mut BrakeState, wanted: u32) -> Draft {
        scene.judge(wanted, |look, draft| apply(state, &Load::default(), look, draft))
    }

    #[test]
    fn one_gauge_alone_can_be_off() {
        let mut scene = with_memory(3, 99.0);
        let mut state = BrakeState { memory_on: true, ..BrakeState::default() };
        scene.rules.brake.memory = Some(MemoryPressure { off: true, ..<_>::default() });
        assert_eq!(judge(&scene, &mut state, 4).wanted, 4);
        assert!(!state.memory_on);
    }

    #[test]
    fn growth_stops_at_the_emergency_limit_and_resumes_below_the_other() {
        let mut state = BrakeState::default();
        // Memory in percent, and whether it may grow; limits 85 and 95.
        for (mem, grows) in
            [(80.0, true), (94.9, true), (95.0, false), (85.0, false), (84.9, true), (94.0, true)]
        {
            let mut scene = with_memory(1, mem);
            scene.rules.brake.memory = Some(MemoryPressure::default());
            let draft = judge(&scene, &mut state, 3);
            assert_eq!(draft.wanted, if grows { 3 } else { 1 }, "memory {mem} %");
        }
    }

    #[test]
    fn what_the_cpu_is_known_to_carry_need_not_wait_for_calm() {
        // Each worker takes a quarter of the CPU: it carries four.
        let steps = vec![25.0; 20];
        let known =
            serde_json::json!({"cpu": {"steps": steps, "points": [[1, 25.0]]}, "cores": 4.0});
        let load: Load = serde_json::from_value(known).unwrap();
        for (cpu_raw, current, expected) in
            [(75.0, 3, 9), (75.0, 4, 4), (87.9, 3, 9), (88.0, 3, 2), (64.9, 4, 9)]
        {
            let mut scene = Scene::new(current);
            scene.rules.policy = Policy::default();
            scene.host = Some(HostReading { cpu_raw, cores: Some(4.0), ..HostReading::default() });
            let mut state = BrakeState { cpu_on: true, ..BrakeState::default() };
            let draft = scene.judge(9, |look, draft| apply(&mut state, &load, look, draft));
            assert_eq!(draft.wanted, expected, "CPU {cpu_raw} with {current}");
        }
    }

    #[test]
    fn an_emergency_removes_one_worker() {
        // name, current, wanted, floor, expected (min 1)
        let table = [
            ("instead of a hold", 4, 4, 0, (3, Kind::EmergencyScaleIn)),
            ("instead of growth", 4, 6, 0, (3, Kind::EmergencyScaleIn)),
            ("the policy removes one already", 4, 3, 0, (3, Kind::Hold)),
            ("not below min", 1, 1, 0, (1, Kind::Hold)),
            ("not under the floor", 4, 4, 4, (4, Kind::Hold)),
        ];
        for (name, current, wanted, floor, expected) in table {
            let draft = with_memory(current, 99.0).judge(wanted, |look, draft| {
                draft.floor = floor;
                apply(&mut BrakeState::default(), &Load::default(), look, draft);
            });
            assert_eq!((draft.wanted, draft.kind), expected, "{name}");
        }
    }

    #[test]
    fn two_emergency_removals_are_a_cooldown_apart() {
        let (mut scene, mut state) = (with_memory(4, 99.0), BrakeState::default());
        state.removed_at = Some(scene.now);
        scene.later(89);
        assert_eq!(judge(&scene, &mut state, 4).wanted, 4);
        scene.later(1);
        assert_eq!(judge(&scene, &mut state, 4).wanted, 3);
    }

    #[test]
    fn two_gauges_in_an_emergency_remove_one_worker() {
        let mut scene = with_memory(4, 99.0);
        scene.rules.brake.cpu_pressure =
            Some(Pressure { resume: 20.0, emergency: 60.0, off: false });
        scene.host.as_mut().unwrap().cpu_pressure = Some(90.0);
        assert_eq!(judge(&scene, &mut BrakeState::default(), 4).wanted, 3);
    }

    #[test]
    fn the_fewest_workers_may_start_in_spite_of_the_brake() {
        let mut scene = with_memory(0, 99.0);
        scene.rules.workers.min = 2;
        assert_eq!(judge(&scene, &mut BrakeState::default(), 5).wanted, 2);
    }

    #[test]
    fn off_is_off_and_a_silent_host_is_not_watched() {
        let mut scene = with_memory(2, 100.0);
        scene.rules.brake.off = true;
        assert_eq!(judge(&scene, &mut BrakeState::default(), 5).wanted, 5);
        scene.rules.brake.off = false;
        scene.host = None;
        assert_eq!(judge(&scene, &mut BrakeState::default(), 5).wanted, 5);
    }

    #[test]
    fn a_policy_with_a_cpu_rule_of_its_own_keeps_the_cpu_part_off() {
        let mut scene = with_memory(2, 10.0);
        scene.host.as_mut().unwrap().cpu_raw = 100.0;
        let draft = judge(&scene, &mut BrakeState::default(), 3);
        assert_eq!((draft.wanted, draft.trail.len()), (3, 0));
    }

    #[test]
    fn cpu_counts_as_the_higher_of_its_mean_and_its_smoothed_past() {
        let mut state = BrakeState::default();
        let host = |cpu_raw, cpu_mean| HostReading { cpu_raw, cpu_mean, ..HostReading::default() };
        assert_eq!(state.cpu(&host(99.0, Some(40.0)), true), 40.0);
        assert_eq!(state.cpu(&host(80.0, None), true), 80.0);
        // Down slowly: 0.1 x 20 + 0.9 x 60.
        assert_eq!(state.cpu(&host(20.0, None), true), 56.0);
        // Between two samples the past stays and the present counts if it is higher.
        assert_eq!(state.cpu(&host(20.0, None), false), 56.0);
        assert_eq!(state.cpu(&host(70.0, None), false), 70.0);
    }
}
