//! Knative's pod autoscaler (`knative/serving@98e5ef90:pkg/autoscaler/scaling/autoscaler.go`,
//! `config/core/configmaps/autoscaler.yaml`).
//!
//! Every 2 s: concurrency (waiting and running jobs) averaged over 60 s and over 6 s; each divided
//! by the target (70 % of the slots) and rounded up, within half and a thousand times the ready
//! workers. If the short one is at least twice the ready workers it panics until that has not been
//! so for 60 s, and while it does, it only grows. The youngest goes.

use headcount_core::{Observation, Span};

use super::window::Window;
use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Concurrency per worker that is aimed at.
    pub target: f64,
    /// The stable window, s; the panic window is a tenth of it.
    pub window: f64,
    /// How many times the ready workers are a panic.
    pub panic: f64,
    /// No shrinking below the highest number of so many s.
    pub scale_down_delay: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { target: 0.7, window: 60.0, panic: 2.0, scale_down_delay: 0.0 }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct Knative {
    bounds: Bounds,
    parameters: Parameters,
    stable: Window,
    short: Window,
    /// The last moment of panic, and the highest number in it.
    panic: Option<(f64, u32)>,
    delayed: Window,
}

impl Knative {
    /// Nothing seen yet.
    pub const fn new(bounds: Bounds, parameters: Parameters) -> Self {
        let window = parameters.window;
        Self {
            bounds,
            parameters,
            stable: Window::new(window),
            short: Window::new(window / 10.0),
            panic: None,
            delayed: Window::new(parameters.scale_down_delay),
        }
    }

    fn decide(&mut self, sight: &Sight) -> u32 {
        let Parameters { target, window, panic, .. } = self.parameters;
        let concurrency = sight.waiting + sight.active;
        self.stable.add(sight.now, concurrency);
        self.short.add(sight.now, concurrency);
        let ready = f64::from(sight.ready.max(1));
        let within = |wanted: f64| wanted.clamp((ready / 2.0).floor(), 1000.0 * ready);
        let stable = within((self.stable.mean() / target).ceil());
        let raw_short = (self.short.mean() / target).ceil();
        if raw_short / ready >= panic {
            self.panic = Some((sight.now, self.panic.map_or(sight.ready, |(_, most)| most)));
        }
        if self.panic.is_some_and(|(at, _)| sight.now - at > window) {
            self.panic = None;
        }
        let wanted = match &mut self.panic {
            Some((_, most)) => {
                *most = (*most).max(self.bounds.clamp(within(raw_short)));
                *most
            }
            None => self.bounds.clamp(stable),
        };
        if self.parameters.scale_down_delay > 0.0 {
            self.delayed.add(sight.now, f64::from(wanted));
            return self.bounds.clamp(self.delayed.max());
        }
        wanted
    }
}

impl Autoscaler for Knative {
    fn name(&self) -> &str {
        "Knative"
    }

    fn poll(&self) -> Span {
        Span::from_secs(2)
    }

    fn victims(&self) -> Victims {
        Victims::Youngest
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let sight = Sight::of(seen)?;
        Some(self.decide(&sight))
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn it_panics_at_twice_the_workers_and_then_only_grows_for_a_minute() {
        let mut rule = Knative::new(Bounds { min: 0, max: 50 }, Parameters::default());
        check(
            &mut rule,
            &[
                (0.0, 0, 0, 0, 0, None),
                // Over 6 s: (0 + 7) / 2 / 0.7 = 5, at least twice the one worker that counts.
                (2.0, 7, 0, 0, 0, Some(5)),
                (4.0, 7, 0, 0, 5, Some(7)),
                (6.0, 7, 0, 0, 7, Some(10)),
                (8.0, 0, 7, 7, 3, None),
                (60.0, 0, 0, 10, 0, None),
                // 62 s after the last panic: half at most.
                (68.1, 0, 0, 10, 0, Some(5)),
                (70.0, 0, 0, 5, 0, Some(2)),
                (72.0, 0, 0, 2, 0, Some(1)),
                (74.0, 0, 0, 1, 0, Some(0)),
            ],
        );
    }

    #[test]
    fn without_panic_the_long_mean_decides() {
        let mut rule = Knative::new(Bounds { min: 0, max: 50 }, Parameters::default());
        let rows: Vec<_> = (0..30).map(|i| (2.0 * f64::from(i), 0, 7, 10, 0, None)).collect();
        check(&mut rule, &rows);
        // (28 x 7 + 14) / 30 = 7, then up with the mean: 10.
        check(&mut rule, &[(60.0, 7, 7, 10, 0, Some(11))]);
    }
}
