//! What the machine can carry: growth stops where one more worker would find no CPU or no memory,
//! as learnt from what the workers took so far. Where that is not known well enough it says nothing;
//! and it never asks for fewer workers than there are.

use crate::decision::{Gauge, Rule, Why};
use crate::estimate::load::{Load, Taken};
use crate::guard::{Draft, Look};

/// How many workers a gauge of the machine has room for, and why.
pub(crate) struct Carries {
    /// The number, whatever there is already.
    pub(crate) workers: u32,
    what: Gauge,
    taken: Taken,
    limit: f64,
    cores: f64,
}

/// Takes in what the machine says.
pub(crate) fn watch(load: &mut Load, look: &Look<'_>) {
    match look.host.filter(|_| !look.rules.capacity.off) {
        Some(host) => load.observe(look, host),
        None => load.interrupted(),
    }
}

/// Cuts growth to what the machine carries.
pub(crate) fn apply(load: &Load, look: &Look<'_>, draft: &mut Draft) {
    // The first worker may always try, and so may the fewest that must be.
    let least = draft.current.max(draft.range.min).max(1);
    for carries in [cpu, memory] {
        if draft.wanted <= least {
            return;
        }
        if let Some(carries) = carries(load, look) {
            carries.cut(least, draft);
        }
    }
}

/// What the CPU carries, if it is known and limited. A policy with a CPU rule of its own is followed
/// in it unless the user says otherwise.
pub(crate) fn cpu(load: &Load, look: &Look<'_>) -> Option<Carries> {
    let rules = &look.rules.capacity;
    if rules.cpu.is_none() && look.rules.policy.watches_cpu() {
        return None;
    }
    // CPU is shared: the last worker may find less than it wants, but not next to nothing.
    Carries::of(look, Gauge::Cpu, load.cpu.taken()?, rules.cpu(), |room| (room - 0.1).ceil())
}

/// The same for memory. What does not fit there kills something.
fn memory(load: &Load, look: &Look<'_>) -> Option<Carries> {
    let limit = look.rules.capacity.memory();
    Carries::of(look, Gauge::Memory, load.memory.taken()?, limit, f64::floor)
}

impl Carries {
    fn of(
        look: &Look<'_>,
        what: Gauge,
        taken: Taken,
        limit: f64,
        round: fn(f64) -> f64,
    ) -> Option<Self> {
        let host = look.host.filter(|host| !look.rules.capacity.off && !host.elsewhere)?;
        let room = (limit - taken.others).max(0.0) / taken.each;
        // `as` saturates: workers that take next to nothing have no limit here. Those that drain
        // take their share as long as they do.
        let workers = (round(room) as u32).saturating_sub(look.fleet.draining);
        Some(Self { workers, what, taken, limit, cores: host.cores? })
    }

    fn cut(self, least: u32, draft: &mut Draft) {
        let Self { workers, what, taken: Taken { each, others }, limit, cores } = self;
        let (carries, wanted) = (workers.max(least), draft.wanted);
        if wanted > carries {
            let why = Why::HostCarries { what, carries, wanted, each, others, limit, cores };
            draft.say(Rule::Capacity, carries, why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Kind;
    use crate::policy::Policy;
    use crate::policy::slo::Slo;
    use crate::reading::HostReading;
    use crate::rules::Capacity;
    use crate::scene::Scene;

    /// Workers that each take 20 % of 4 cores and 10 % of the memory; others take 10 % and 30 %.
    fn learnt() -> Load {
        let steps = |each: f64| vec![each; 20];
        serde_json::from_value(serde_json::json!({
            "cpu": {"steps": steps(20.0), "points": [[1, 30.0], [2, 50.0], [1, 30.0]]},
            "memory": {"steps": steps(10.0), "points": [[2, 50.0]]},
            "cores": 4.0,
        }))
        .unwrap()
    }

    fn scene(current: u32) -> Scene {
        let mut scene = Scene::new(current);
        scene.rules.policy = Policy::Slo(Slo::default());
        scene.rules.workers.max = 100;
        scene.host = Some(HostReading {
            cpu_raw: 30.0,
            mem: Some(50.0),
            cores: Some(4.0),
            ..HostReading::default()
        });
        scene
    }

    fn judge(scene: &Scene, wanted: u32) -> Draft {
        scene.judge(wanted, |look, draft| apply(&learnt(), look, draft))
    }

    #[test]
    fn growth_stops_where_the_machine_is_full() {
        // name, current, draining, wanted, limits of CPU and memory, expected
        let table = [
            ("four find CPU", 2, 0, 9, (90.0, 100.0), 4),
            ("a fifth finds next to nothing", 2, 0, 9, (92.0, 100.0), 4),
            ("a fifth finds some of it", 2, 0, 9, (93.0, 100.0), 5),
            ("as many as fit", 2, 0, 3, (90.0, 100.0), 3),
            ("draining ones still work", 2, 1, 9, (90.0, 100.0), 3),
            ("the sixth finds no memory", 2, 0, 9, (100.0, 80.0), 5),
            ("the fifth neither", 2, 0, 9, (100.0, 79.0), 4),
            ("more are there already", 7, 0, 9, (90.0, 90.0), 7),
            ("fewer are wanted", 7, 0, 6, (90.0, 90.0), 6),
            ("none fits, but the first may try", 0, 0, 3, (1.0, 1.0), 1),
        ];
        for (name, current, draining, wanted, (cpu, memory), expected) in table {
            let mut scene = scene(current);
            scene.fleet.draining = draining;
            let limits = (Some(cpu), Some(memory));
            scene.rules.capacity = Capacity { cpu: limits.0, memory: limits.1, off: false };
            assert_eq!(judge(&scene, wanted).wanted, expected, "{name}");
        }
    }

    #[test]
    fn the_fewest_that_must_be_may_start() {
        let mut scene = scene(0);
        scene.rules.workers.min = 8;
        assert_eq!(judge(&scene, 9).wanted, 8);
    }

    #[test]
    fn it_says_what_it_knows() {
        let draft = judge(&scene(2), 6);
        let said: Vec<String> = draft.trail.iter().map(|step| step.why.to_string()).collect();
        assert_eq!(
            said,
            ["the host carries 4, wanted 6: 0.80 cores per worker, 0.40 cores of others, \
              90 % of 4 cores"]
        );
        let mut scene = scene(2);
        scene.rules.capacity.cpu = Some(100.0);
        scene.rules.capacity.memory = Some(60.0);
        assert_eq!(
            judge(&scene, 6).trail.last().unwrap().why.to_string(),
            "the host carries 3, wanted 5: 10.0 % of memory per worker, 30.0 % of others, \
             limit 60 %"
        );
    }

    #[test]
    fn it_is_silent_where_it_has_nothing_to_say() {
        let unlimited = |change: fn(&mut Scene)| {
            let mut scene = scene(2);
            change(&mut scene);
            let draft = judge(&scene, 50);
            (draft.wanted, draft.trail.len()) == (50, 0)
        };
        assert!(!unlimited(|_| {}));
        assert!(unlimited(|scene| scene.rules.capacity.off = true));
        assert!(unlimited(|scene| scene.host = None));
        assert!(unlimited(|scene| scene.host.as_mut().unwrap().cores = None));
        assert!(unlimited(|scene| scene.host.as_mut().unwrap().elsewhere = true));
        let nothing_learnt = scene(2).judge(50, |look, draft| {
            apply(&Load::default(), look, draft);
        });
        assert_eq!((nothing_learnt.wanted, nothing_learnt.kind), (50, Kind::Hold));
    }

    #[test]
    fn a_policy_with_a_cpu_rule_of_its_own_is_followed_in_it() {
        let mut scene = scene(2);
        scene.rules.policy = Scene::new(0).rules.policy;
        assert_eq!(judge(&scene, 6).wanted, 6);
        assert_eq!(judge(&scene, 9).wanted, 6, "memory is limited all the same");
        scene.rules.capacity.cpu = Some(90.0);
        assert_eq!(judge(&scene, 6).wanted, 4);
    }
}
