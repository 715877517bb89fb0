//! What a worker takes of the machine: how a gauge moves when the number of workers does.
//!
//! Only the difference between two spells of steady numbers counts, so that what others do on the
//! machine, and how it changes over the day, stays apart; and only the median of many, so that no
//! single one can mislead.

use serde::{Deserialize, Serialize};

use crate::guard::Look;
use crate::reading::HostReading;
use crate::time::{Span, Timestamp, seconds};

/// Differences that are remembered.
const MOST_STEPS: usize = 64;
/// With fewer nothing is said.
const FEWEST_STEPS: usize = 8;
/// Looks at a steady number that are remembered.
const MOST_POINTS: usize = 16;
/// A number must have been the same for so long, s: hosts are sampled over the last second.
const STEADY: f64 = 2.0;
/// Numbers that differ by at most this share are the same: large fleets never stand still.
const SAME: f64 = 0.1;
/// From here on a gauge says no more how much is wanted, percent.
const FULL: f64 = 97.0;
/// Beyond this many seconds a difference says more of the others than of the workers.
const LONGEST_GAP: f64 = 600.0;

/// What the workers of a group take of their machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Load {
    /// CPU for each busy worker.
    #[serde(skip_serializing_if = "Share::is_new")]
    pub cpu: Share,
    /// Memory for each worker.
    #[serde(skip_serializing_if = "Share::is_new")]
    pub memory: Share,
    /// The machine's cores: with others, a percent of them is something else.
    cores: Option<f64>,
}

/// How much of a gauge each of something takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Share {
    /// By how many percent the gauge moved for each one more or less, oldest first.
    steps: Vec<f64>,
    /// How many there were and what the gauge said, while the number was steady, oldest first.
    points: Vec<(f64, f64)>,
    /// When the last of them was.
    noted_at: Option<Timestamp>,
    /// The number and since when it is so.
    since: Option<(Timestamp, f64)>,
}

/// What is known of a [`Share`], percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// What each takes at least, with 19 in 20 certainty; above 0.
    pub each: f64,
    /// What others take.
    pub others: f64,
}

impl Load {
    /// Takes in what the machine says, if it is the one that the workers run on.
    pub(crate) fn observe(&mut self, look: &Look<'_>, host: &HostReading) {
        if host.elsewhere || host.cores.is_none() {
            return;
        }
        if host.cores != self.cores {
            *self = Self { cores: host.cores, ..Self::default() };
        }
        let fleet = look.fleet;
        if fleet.starting > 0 {
            // A start takes more, or less, than a worker that works.
            self.interrupted();
            return;
        }
        let workers = f64::from(fleet.ready) + f64::from(fleet.draining);
        match busy(look) {
            Some(busy) => self.cpu.observe(look.now, busy.min(workers), host.cpu_raw),
            None => self.cpu.since = None,
        }
        match host.mem {
            Some(mem) => self.memory.observe(look.now, workers, mem),
            None => self.memory.since = None,
        }
    }

    /// The numbers of some time are not known.
    pub(crate) fn interrupted(&mut self) {
        self.cpu.since = None;
        self.memory.since = None;
    }

    pub(crate) fn shift(&mut self, delta: Span) {
        for share in [&mut self.cpu, &mut self.memory] {
            share.noted_at = share.noted_at.map(|at| at.plus(delta));
            share.since = share.since.map(|(at, number)| (at.plus(delta), number));
        }
    }
}

/// Workers that work, draining ones, too; a worker of several slots counts as far as they are full.
fn busy(look: &Look<'_>) -> Option<f64> {
    let slots = look.rules.workers.slots.max(1);
    let draining = f64::from(look.fleet.draining);
    match (look.fleet.busy, look.queue) {
        (Some(busy), _) if slots == 1 => Some(f64::from(busy) + draining),
        (_, Some(queue)) => Some(queue.active as f64 / f64::from(slots)),
        _ => None,
    }
}

impl Share {
    fn is_new(&self) -> bool {
        *self == Self::default()
    }

    /// There are so many, and the gauge says this.
    fn observe(&mut self, now: Timestamp, number: f64, gauge: f64) {
        let same = |a: f64, b: f64| (a - b).abs() <= SAME * a.min(b);
        let since = match self.since.filter(|(_, was)| same(*was, number)) {
            Some(since) => since,
            None => (now, number),
        };
        self.since = Some(since);
        let steady = seconds(now.since(since.0));
        if steady < STEADY || gauge >= FULL {
            return;
        }
        let gap = self.noted_at.map_or(f64::INFINITY, |at| seconds(now.since(at)));
        self.noted_at = Some(now);
        if let Some((before, at_it)) = self.spell(same).filter(|(n, _)| !same(*n, number))
            && (0.0..=LONGEST_GAP).contains(&gap)
        {
            push(&mut self.steps, short((gauge - at_it) / (number - before)), MOST_STEPS);
        }
        push(&mut self.points, (short(number), short(gauge)), MOST_POINTS);
    }

    /// The last steady number, and the mean of the gauge while it was that.
    fn spell(&self, same: impl Fn(f64, f64) -> bool) -> Option<(f64, f64)> {
        let (number, _) = *self.points.last()?;
        let (mut sum, mut n) = (0.0, 0.0);
        for (_, gauge) in self.points.iter().rev().take_while(|(other, _)| same(*other, number)) {
            sum += gauge;
            n += 1.0;
        }
        Some((number, sum / n))
    }

    /// What each takes and what others do; `None` while it is not known well enough, or nothing.
    pub fn taken(&self) -> Option<Taken> {
        if self.steps.len() < FEWEST_STEPS {
            return None;
        }
        let mut steps = self.steps.clone();
        steps.sort_by(f64::total_cmp);
        let at = |share: f64| steps[((steps.len() - 1) as f64 * share).round() as usize];
        // Of a normal distribution: its spread from its quartiles, and the error of its median.
        let spread = (at(0.75) - at(0.25)) / 1.349;
        let error = 1.253 * spread / (steps.len() as f64).sqrt();
        let each = at(0.5) - 2.0 * error;
        let mut others: Vec<f64> = self.points.iter().map(|(n, gauge)| gauge - n * each).collect();
        others.sort_by(f64::total_cmp);
        let others = others.get(others.len() / 2).copied().unwrap_or_default().max(0.0);
        (each > 0.0).then_some(Taken { each, others })
    }
}

fn push<T>(list: &mut Vec<T>, value: T, most: usize) {
    if list.len() >= most {
        list.remove(0);
    }
    list.push(value);
}

/// Hundredths of a percent are exact enough, and short in JSON.
fn short(x: f64) -> f64 {
    (x * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::FleetReading;
    use crate::scene::Scene;

    /// A machine of 4 cores and workers that take `each` percent of its CPU; looks every 5 s.
    struct Machine {
        scene: Scene,
        load: Load,
        others: f64,
        each: f64,
    }

    impl Machine {
        fn new(each: f64) -> Self {
            Self { scene: Scene::new(0), load: Load::default(), others: 10.0, each }
        }

        fn look(&mut self, busy: u32, noise: f64) {
            self.scene.later(5);
            let cpu_raw = (self.others + self.each * f64::from(busy) + noise).clamp(0.0, 100.0);
            let mem = Some((20.0 + 2.0 * f64::from(busy)).min(100.0));
            let cores = Some(4.0);
            let host = HostReading { cpu_raw, mem, cores, ..HostReading::default() };
            self.scene.fleet = FleetReading { ready: busy, busy: Some(busy), ..Default::default() };
            self.load.observe(&self.scene.look(), &host);
        }

        fn cpu(&self) -> Option<Taken> {
            self.load.cpu.taken()
        }
    }

    #[test]
    fn each_and_others_are_told_apart() {
        let mut machine = Machine::new(20.0);
        for busy in [0, 1, 2, 1, 3, 0, 2, 1, 3, 2] {
            (0..3).for_each(|_| machine.look(busy, 0.0));
        }
        assert_eq!(machine.cpu(), Some(Taken { each: 20.0, others: 10.0 }));
        assert_eq!(machine.load.memory.taken(), Some(Taken { each: 2.0, others: 20.0 }));
        let stored: Load =
            serde_json::from_str(&serde_json::to_string(&machine.load).unwrap()).unwrap();
        assert_eq!(stored, machine.load);
    }

    #[test]
    fn nothing_is_said_before_enough_is_seen_or_if_the_number_makes_no_difference() {
        let mut machine = Machine::new(20.0);
        assert_eq!(machine.cpu(), None);
        for busy in [0, 1, 2, 1] {
            (0..3).for_each(|_| machine.look(busy, 0.0));
        }
        assert_eq!(machine.cpu(), None);
        // Workers elsewhere: this machine's CPU has a life of its own.
        let (mut machine, mut rng) = (Machine::new(0.0), fastrand::Rng::with_seed(1));
        for look in 0..3000 {
            machine.look(look / 3 % 4, rng.f64() * 30.0);
        }
        assert!(machine.cpu().is_none_or(|taken| taken.each < 3.0), "{:?}", machine.cpu());
    }

    #[test]
    fn noise_and_a_drifting_background_leave_it_in_doubt_but_not_wrong() {
        let (mut machine, mut rng) = (Machine::new(10.0), fastrand::Rng::with_seed(1));
        for look in 0..2000_u32 {
            // Others take more and more, and suddenly much more.
            machine.others = f64::from(look) / 100.0 + if look % 97 == 0 { 40.0 } else { 0.0 };
            machine.look(look / 3 % 5, rng.f64() * 8.0 - 4.0);
        }
        let Taken { each, others } = machine.cpu().unwrap();
        assert!((8.0..10.5).contains(&each) && (15.0..26.0).contains(&others), "{each} {others}");
    }

    #[test]
    fn a_full_machine_and_starting_workers_teach_nothing() {
        let mut machine = Machine::new(30.0);
        for busy in [0, 3, 5, 3, 9, 1, 4, 2, 7, 0, 1, 0, 3] {
            (0..3).for_each(|_| machine.look(busy, 0.0));
            machine.scene.fleet.starting = 1;
            let full = HostReading { cpu_raw: 80.0, cores: Some(4.0), ..HostReading::default() };
            machine.load.observe(&machine.scene.look(), &full);
        }
        // From 3 on it is full.
        let known: Vec<f64> = machine.load.cpu.steps.clone();
        assert!(known.iter().all(|step| *step == 30.0), "{known:?}");
    }

    #[test]
    fn another_machine_and_one_elsewhere() {
        let mut machine = Machine::new(20.0);
        for busy in [0, 1, 2, 1, 3, 0, 2, 1, 3, 2] {
            (0..3).for_each(|_| machine.look(busy, 0.0));
        }
        let known = machine.load.clone();
        let mut host = HostReading { cpu_raw: 50.0, ..HostReading::default() };
        machine.load.observe(&machine.scene.look(), &host);
        (host.cores, host.elsewhere) = (Some(8.0), true);
        machine.load.observe(&machine.scene.look(), &host);
        assert_eq!(machine.load, known);
        host.elsewhere = false;
        machine.load.observe(&machine.scene.look(), &host);
        assert_eq!(machine.cpu(), None);
    }

    #[test]
    fn slots_count_as_far_as_they_are_full() {
        let mut scene = Scene::new(2);
        scene.rules.workers.slots = 10;
        scene.queue.as_mut().unwrap().active = 5;
        (scene.fleet.busy, scene.fleet.draining) = (Some(2), 1);
        assert_eq!(busy(&scene.look()), Some(0.5));
        scene.rules.workers.slots = 1;
        assert_eq!(busy(&scene.look()), Some(3.0));
        (scene.fleet.busy, scene.queue) = (None, None);
        assert_eq!(busy(&scene.look()), None);
    }

    #[test]
    fn whatever_is_seen_it_stays_small_and_sane() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut scene, mut load) = (Scene::new(0), Load::default());
        for _ in 0..100_000 {
            scene.later(if rng.u8(..) == 0 { rng.i64(..) / 1_000_000 } else { rng.i64(0..20) });
            let ready = if rng.u8(..) == 0 { u32::MAX } else { rng.u32(0..6) };
            let busy = Some(rng.u32(0..=ready));
            scene.fleet = FleetReading { ready, busy, ..FleetReading::default() };
            let gauge = |rng: &mut fastrand::Rng| rng.f64() * 100.0;
            let host = HostReading {
                cpu_raw: gauge(&mut rng),
                mem: Some(gauge(&mut rng)),
                cores: Some(2.0),
                ..HostReading::default()
            };
            load.observe(&scene.look(), &host);
            for taken in [load.cpu.taken(), load.memory.taken()].into_iter().flatten() {
                assert!(taken.each > 0.0 && taken.each.is_finite(), "{taken:?}");
                assert!((0.0..=100.0).contains(&taken.others), "{taken:?}");
            }
        }
        let bytes = serde_json::to_string(&load).unwrap().len();
        assert!(bytes < 4096, "{bytes} bytes");
    }
}
