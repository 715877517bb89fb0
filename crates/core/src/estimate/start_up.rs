//! How long workers take to start.

use super::{Estimate, FOLLOWED, Last};
use crate::guard::Look;
use crate::reading::WorkerState;
use crate::time::{Span, Timestamp, seconds};

/// Start-up times that are remembered: the host's caches and images change within days.
const START_UPS: usize = 50;
/// With fewer start-ups than this the hint has its say.
const FEW: usize = 5;
/// A start that took longer than this was no start.
const LONGEST_START: f64 = 3600.0;

impl Estimate {
    /// A worker that was starting and is ready now tells how long a start takes.
    pub(super) fn follow_launches(&mut self, look: &Look<'_>, gap: f64, last: Option<Last>) {
        let fleet = look.fleet;
        if self.launches.is_empty() && fleet.starting == 0 {
            return;
        }
        // It became ready some time since the last look.
        let took = |start: Timestamp| seconds(look.now.since(start)) - gap / 2.0;
        let mut learnt = Vec::new();
        let listed = fleet.workers.iter().any(|w| w.started_at.is_some());
        if listed {
            let now = |state| {
                let workers = fleet.workers.iter().filter(move |w| w.state == state);
                // Another machine's clock may be anywhere.
                let recent = |at: &Timestamp| seconds(look.now.since(*at)).abs() <= LONGEST_START;
                workers.filter_map(|w| w.started_at).filter(recent)
            };
            if last.is_some() {
                let ready = |start: &Timestamp| now(WorkerState::Ready).any(|at| at == *start);
                learnt.extend(self.launches.iter().copied().filter(ready).map(took));
            }
            self.launches = now(WorkerState::Starting).take(FOLLOWED).collect();
            self.launches.sort_unstable();
        } else {
            let starting = (fleet.starting as usize).min(FOLLOWED);
            let done = self.launches.len().saturating_sub(starting);
            let ready = last.map_or(0, |last| fleet.ready.saturating_sub(last.ready) as usize);
            learnt.extend(self.launches.drain(..done.min(ready)).map(took));
            // They were ordered at the last look; what is gone was taken back, the youngest first.
            let ordered_at = last.map_or(look.now, |last| last.at);
            self.launches.resize(starting, ordered_at);
        }
        for took in learnt.into_iter().filter(|took| *took <= LONGEST_START) {
            self.start_ups.add(took.max(0.0), START_UPS);
        }
    }

    /// How long a worker takes to start, s: the 70th percentile, so that most are in time; the hint
    /// counts as the first few.
    pub(crate) fn start_up(&self, hint: Span) -> f64 {
        let hint = seconds(hint).max(0.0);
        let learnt = self.start_ups.quantile(0.7).unwrap_or(hint);
        let weight = (self.start_ups.len() as f64 / FEW as f64).min(1.0);
        weight * learnt + (1.0 - weight) * hint
    }

    /// How long until each starting worker is ready, s, soonest first.
    pub(crate) fn until_ready(&self, look: &Look<'_>, start_up: f64) -> Vec<f64> {
        let known = self.launches.iter().map(|at| start_up - seconds(look.now.since(*at)));
        // One that is late comes any moment.
        let mut until: Vec<f64> = known.map(|s| s.clamp(1.0, start_up.max(1.0))).collect();
        until.resize((look.fleet.starting as usize).min(FOLLOWED), start_up);
        until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::{FleetReading, Worker};
    use crate::scene::{Scene, worker};

    fn observe(estimate: &mut Estimate, scene: &Scene) {
        estimate.observe(&scene.look(), scene.queue.as_ref().unwrap());
    }

    #[test]
    fn start_ups_are_learnt_from_lists_and_from_counts() {
        let hint = Span::from_secs(60);
        for listed in [true, false] {
            let (mut estimate, mut scene) = (Estimate::default(), Scene::new(0));
            assert_eq!(estimate.start_up(hint), 60.0);
            observe(&mut estimate, &scene);
            for _ in 0..FEW {
                for (age, state) in [(5, WorkerState::Starting), (20, WorkerState::Ready)] {
                    scene.later(if age == 5 { 5 } else { 15 });
                    let mut one = worker("w", state, None, 0);
                    one.started_at = Some(scene.now.plus(Span::from_secs(-age)));
                    let workers: Vec<Worker> = vec![one];
                    let counts = FleetReading::of(workers.clone());
                    let workers = if listed { workers } else { Vec::new() };
                    scene.fleet = FleetReading { workers, ..counts };
                    observe(&mut estimate, &scene);
                }
                scene.later(5);
                scene.fleet = FleetReading::default();
                observe(&mut estimate, &scene);
            }
            // Ordered 20 s before, ready in the last 15 s.
            assert_eq!(estimate.start_ups.len(), FEW, "listed: {listed}");
            assert_eq!(estimate.start_up(hint), 12.5, "listed: {listed}");
        }
    }
}
