//! The reference rule of a hand-written n8n autoscaler: queue depth and host CPU, one worker at a
//! time, victims picked blindly by `docker compose up --scale`.
//!
//! Every 30 s, with `ema = raw > ema ? 0.5 raw + 0.5 ema : 0.1 raw + 0.9 ema` and
//! `cpu = max(ema, raw)`, the first match: cpu > 88 and n > min: one less; jobs wait, ema and raw
//! below 65 and n < max: one more; nothing waiting or active for 120 s and n > min: one less. 90 s
//! between two changes. It is `cpu_aware` of the core but for its victims and its lack of guards.

use headcount_core::{Observation, Span};

use super::{Bounds, Sight};
use crate::autoscaler::{Autoscaler, Victims};

/// The parameters; s and percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameters {
    /// Between two looks.
    pub poll: u32,
    /// Between two changes.
    pub cooldown: f64,
    /// Without work until one goes.
    pub idle: f64,
    /// CPU from which a worker goes; absent: never.
    pub emergency: Option<f64>,
    /// CPU below which a worker comes.
    pub scale_out_below: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self { poll: 30, cooldown: 90.0, idle: 120.0, emergency: Some(88.0), scale_out_below: 65.0 }
    }
}

/// The rule and what it remembers.
#[derive(Clone, Debug)]
pub struct Reference {
    bounds: Bounds,
    parameters: Parameters,
    ema: Option<f64>,
    idle_since: Option<f64>,
    acted_at: Option<f64>,
}

impl Reference {
    /// Nothing seen yet.
    pub const fn new(bounds: Bounds, parameters: Parameters) -> Self {
        Self { bounds, parameters, ema: None, idle_since: None, acted_at: None }
    }

    fn first_match(&mut self, sight: &Sight, raw: f64) -> Option<u32> {
        let Parameters { idle, emergency, scale_out_below, .. } = self.parameters;
        let ema = match self.ema {
            None => raw,
            Some(ema) if raw > ema => 0.5f64.mul_add(raw, 0.5 * ema),
            Some(ema) => 0.1f64.mul_add(raw, 0.9 * ema),
        };
        self.ema = Some(ema);
        let rests = sight.waiting == 0.0 && sight.active == 0.0;
        self.idle_since = rests.then(|| self.idle_since.unwrap_or(sight.now));
        let idle_for = self.idle_since.map(|since| sight.now - since);
        let (n, Bounds { min, max }) = (sight.live, self.bounds);
        if emergency.is_some_and(|limit| ema.max(raw) > limit) && n > min {
            Some(n - 1)
        } else if sight.waiting > 0.0 && ema.max(raw) < scale_out_below && n < max {
            Some(n + 1)
        } else if idle_for.is_some_and(|seconds| seconds >= idle) && n > min {
            Some(n - 1)
        } else {
            None
        }
    }
}

impl Autoscaler for Reference {
    fn name(&self) -> &str {
        "reference rule"
    }

    fn poll(&self) -> Span {
        Span::from_secs(self.parameters.poll.into())
    }

    fn victims(&self) -> Victims {
        Victims::Youngest
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let (sight, host) = (Sight::of(seen)?, seen.host.value()?);
        let wanted = self.first_match(&sight, host.cpu_raw)?;
        if self.acted_at.is_some_and(|at| sight.now - at < self.parameters.cooldown) {
            return None;
        }
        self.acted_at = Some(sight.now);
        self.idle_since = None;
        Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;

    #[test]
    fn one_at_a_time_and_ninety_seconds_apart() {
        let mut rule = Reference::new(Bounds { min: 1, max: 3 }, Parameters::default());
        check(
            &mut rule,
            &[
                (0.0, 5, 1, 1, 0, Some(2)),
                (30.0, 5, 1, 1, 1, None),
                (60.0, 5, 2, 2, 0, None),
                (90.0, 5, 2, 2, 0, Some(3)),
                (180.0, 5, 3, 3, 0, None),
                (210.0, 0, 0, 3, 0, None),
                (300.0, 0, 0, 3, 0, None),
                (330.0, 0, 0, 3, 0, Some(2)),
                (360.0, 0, 0, 2, 0, None),
                (480.0, 0, 0, 2, 0, Some(1)),
                (900.0, 0, 0, 1, 0, None),
            ],
        );
    }

    #[test]
    fn an_emergency_takes_a_worker_whatever_it_does_and_high_cpu_lets_none_come() {
        let sight = Sight { waiting: 9.0, active: 4.0, ready: 4, live: 4, busy: 4, now: 0.0 };
        for (cpu, emergency, expected) in [
            (88.1, Some(88.0), Some(3)),
            (88.0, Some(88.0), None),
            (100.0, None, None),
            (65.0, None, None),
            (64.9, None, Some(5)),
        ] {
            let parameters = Parameters { emergency, ..Parameters::default() };
            let mut rule = Reference::new(Bounds { min: 1, max: 8 }, parameters);
            assert_eq!(rule.first_match(&sight, cpu), expected, "{cpu} {emergency:?}");
        }
    }
}
