//! What there is to tune: for each policy its parameters, with the range in which a search looks and
//! the step that a person would write.

use headcount_core::{Policy, Rules, Span};
use serde_json::Value;

/// One thing that can be set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// Its key in the rules, parts separated by dots.
    pub key: &'static str,
    /// The least value that is tried, in seconds, percent or as it is.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// How values are spread between them.
    pub scale: Scale,
    /// What it is.
    pub unit: Unit,
    /// What more of it does.
    pub what: &'static str,
}

/// How values are spread over a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    Linear,
    /// As many between 1 and 2 as between 10 and 20; the range does not begin at 0.
    Log,
    /// Denser towards 0.
    Square,
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A length of time such as `90s`.
    Time,
    /// A number of seconds.
    Seconds,
    /// A whole number.
    Whole,
    /// Percent.
    Percent,
    /// 0 to 1, in steps of a twentieth.
    Share,
    /// Any number from 0 on, to two digits.
    Ratio,
}

/// Makes the tables below readable.
const fn row(
    key: &'static str,
    (low, high): (f64, f64),
    scale: Scale,
    unit: Unit,
    what: &'static str,
) -> Parameter {
    Parameter { key, low, high, scale, unit, what }
}

use Scale::{Linear, Log, Square};
use Unit::{Percent, Ratio, Seconds, Share, Time, Whole};

/// For every policy. The highest numbers of workers depend on the trace.
const WORKERS: [Parameter; 2] = [
    row("workers.min", (0.0, 4.0), Square, Whole, "more are always there, whatever it costs"),
    row("workers.max", (1.0, 8.0), Log, Whole, "more may run when much comes at once"),
];

const CPU_AWARE: [Parameter; 7] = [
    row("policy.cpu_aware.poll", (5.0, 60.0), Log, Time, "later and fewer decisions"),
    row("policy.cpu_aware.cooldown", (0.0, 300.0), Square, Time, "slower growth, fewer changes"),
    row("policy.cpu_aware.idle", (10.0, 900.0), Log, Time, "idle workers stay longer"),
    row("policy.cpu_aware.alpha_up", (0.05, 1.0), Linear, Share, "a peak of CPU counts at once"),
    row("policy.cpu_aware.alpha_down", (0.05, 1.0), Log, Share, "a peak is forgotten sooner"),
    row(
        "policy.cpu_aware.scale_out_below",
        (40.0, 101.0),
        Linear,
        Percent,
        "grows on a busier host",
    ),
    row(
        "policy.cpu_aware.emergency",
        (70.0, 101.0),
        Linear,
        Percent,
        "shrinks on a busier host only",
    ),
];

const OCCUPANCY: [Parameter; 8] = [
    row("policy.occupancy.poll", (5.0, 60.0), Log, Time, "later and fewer decisions"),
    row("policy.occupancy.cooldown_seconds", (10.0, 600.0), Log, Seconds, "fewer changes"),
    row(
        "policy.occupancy.full_scale_cooldown_seconds",
        (30.0, 3000.0),
        Log,
        Seconds,
        "all workers stay longer after a full scale-out",
    ),
    row(
        "policy.occupancy.inc_scale_num_jobs_waiting",
        (1.0, 20.0),
        Log,
        Whole,
        "a longer queue until a step is made",
    ),
    row(
        "policy.occupancy.full_scale_jobs_waiting",
        (1.0, 100.0),
        Log,
        Whole,
        "a longer queue until all workers are started",
    ),
    row(
        "policy.occupancy.dec_scale_occupancy_rate",
        (5.0, 60.0),
        Linear,
        Percent,
        "shrinks sooner",
    ),
    row("policy.occupancy.inc_scale_occupancy_rate", (60.0, 100.0), Linear, Percent, "grows later"),
    row("policy.occupancy.inc_num_workers", (1.0, 10.0), Log, Whole, "larger steps"),
];

const RATIO: [Parameter; 7] = [
    row("policy.ratio.poll", (5.0, 60.0), Log, Time, "later and fewer decisions"),
    row("policy.ratio.jobs_per_worker", (0.5, 20.0), Log, Ratio, "fewer workers for as many jobs"),
    row("policy.ratio.tolerance", (0.0, 0.5), Linear, Share, "fewer small changes"),
    row(
        "policy.ratio.activation",
        (0.0, 10.0),
        Square,
        Whole,
        "more jobs wait until the first start",
    ),
    row("policy.ratio.cooldown", (15.0, 900.0), Log, Time, "the step to zero comes later"),
    row(
        "policy.ratio.behavior.scale_up.stabilization_window",
        (0.0, 300.0),
        Square,
        Time,
        "grows only for what lasts",
    ),
    row(
        "policy.ratio.behavior.scale_down.stabilization_window",
        (0.0, 900.0),
        Square,
        Time,
        "shrinks only for what lasts",
    ),
];

/// `minimum_billing` is not here: it is a fact of the platform, not a choice.
const SLO: [Parameter; 4] = [
    row("policy.slo.max_wait", (5.0, 900.0), Log, Time, "fewer workers, longer waits"),
    row("policy.slo.poll", (1.0, 60.0), Log, Time, "later and fewer decisions"),
    row("policy.slo.price_per_start", (0.0, 600.0), Square, Time, "fewer and larger changes"),
    row(
        "policy.slo.price_of_waiting",
        (0.0, 2.0),
        Square,
        Ratio,
        "shorter waits than max_wait asks for, as far as they pay",
    ),
];

/// What can be tuned in these rules; at most `most` workers are tried.
pub fn parameters(rules: &Rules, most: u32) -> Vec<Parameter> {
    let own: &[Parameter] = match rules.policy {
        Policy::CpuAware(_) => &CPU_AWARE,
        Policy::Occupancy(_) => &OCCUPANCY,
        Policy::Ratio(_) => &RATIO,
        Policy::Slo(_) => &SLO,
    };
    let mut all = own.to_vec();
    let [mut min, mut max] = WORKERS;
    max.high = f64::from(most.max(2));
    min.high = (max.high / 2.0).floor();
    all.extend([min, max]);
    all
}

impl Parameter {
    /// The last part of its key.
    pub fn name(&self) -> &'static str {
        self.key.rsplit('.').next().unwrap_or(self.key)
    }

    /// Whether a person means it by this: its key, or as much of the end of it as they like.
    pub fn is_called(&self, name: &str) -> bool {
        self.key == name || self.key.strip_suffix(name).is_some_and(|rest| rest.ends_with('.'))
    }

    /// The value at a place between 0, the lowest, and 1, the highest, as a person would write it.
    pub fn at(&self, place: f64) -> f64 {
        let place = place.clamp(0.0, 1.0);
        let value = match self.scale {
            Scale::Linear => (self.high - self.low).mul_add(place, self.low),
            Scale::Square => (self.high - self.low).mul_add(place * place, self.low),
            Scale::Log => self.low * (self.high / self.low).powf(place),
        };
        self.rounded(value).clamp(self.low, self.high)
    }

    /// Where a value lies; the inverse of [`Parameter::at`] but for rounding.
    pub fn place(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        let share = (value - self.low) / (self.high - self.low);
        let place = match self.scale {
            Scale::Linear => share,
            Scale::Square => share.sqrt(),
            Scale::Log => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.5 }
    }

    fn rounded(&self, value: f64) -> f64 {
        let to = |step: f64| (value / step).round() * step;
        match self.unit {
            Unit::Time | Unit::Seconds => to(match value {
                ..10.0 => 1.0,
                ..60.0 => 5.0,
                ..600.0 => 15.0,
                _ => 60.0,
            }),
            Unit::Whole | Unit::Percent => value.round(),
            // Not to(0.05): its multiples are no round decimals.
            Unit::Share => (value * 20.0).round() / 20.0,
            Unit::Ratio if value >= 1.0 => (value * 10.0).round() / 10.0,
            Unit::Ratio => (value * 100.0).round() / 100.0,
        }
    }

    /// What the rules, as JSON, have; `None` where they leave it to a default.
    pub fn read(&self, rules: &Value) -> Option<f64> {
        let found = self.key.split('.').try_fold(rules, |at, part| at.get(part))?;
        match found {
            Value::String(text) => text.parse::<Span>().ok().map(|span| span.as_secs_f64()),
            other => other.as_f64(),
        }
    }

    /// Sets it in the rules, as JSON.
    pub fn write(&self, rules: &mut Value, value: f64) {
        let mut at = rules;
        for part in self.key.split('.') {
            if !at.is_object() {
                *at = Value::Object(serde_json::Map::new());
            }
            at = &mut at[part];
        }
        *at = match self.unit {
            Unit::Time => Value::from(self.show(value)),
            Unit::Seconds | Unit::Whole => Value::from(value.round() as u64),
            Unit::Percent | Unit::Share | Unit::Ratio => Value::from(value),
        };
    }

    /// The value as the file format writes it.
    pub fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Time => format!("{:#}", Span::from_millis((value * 1000.0).round() as i64)),
            _ => value.to_string(),
        }
    }

    /// The value that a text says.
    ///
    /// # Errors
    /// It says none.
    pub fn parse(&self, text: &str) -> Result<f64, String> {
        let value = match self.unit {
            Unit::Time => text.parse::<Span>().ok().map(|span| span.as_secs_f64()),
            _ => text.parse::<f64>().ok(),
        };
        value.filter(|value| value.is_finite() && *value >= 0.0).ok_or_else(|| {
            let example = self.show(self.at(0.5));
            format!("{}: `{text}` is no value of it; write one such as {example}", self.name())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(policy: &str) -> Rules {
        let text = format!(r#"{{"policy": {{"{policy}": {{}}}}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn every_value_of_every_parameter_makes_sense_and_can_be_read_again() {
        for policy in ["cpu_aware", "occupancy", "ratio", "slo"] {
            let base = serde_json::to_value(rules(policy)).unwrap();
            for parameter in parameters(&rules(policy), 8) {
                for step in 0..=20 {
                    let value = parameter.at(f64::from(step) / 20.0);
                    let mut changed = base.clone();
                    parameter.write(&mut changed, value);
                    assert_eq!(parameter.read(&changed), Some(value), "{}", parameter.key);
                    assert_eq!(parameter.parse(&parameter.show(value)), Ok(value));
                    let rules: Rules = serde_json::from_value(changed).unwrap();
                    let wrong = rules.problems();
                    // Two that must be in order are no matter of one.
                    let ordered = wrong.iter().all(|(_, what)| what.contains("above"));
                    assert!(ordered, "{}: {wrong:?}", parameter.key);
                    assert_eq!(parameter.at(parameter.place(value)), value, "{}", parameter.key);
                }
                assert_eq!(parameter.at(0.0), parameter.low, "{}", parameter.key);
                assert_eq!(parameter.at(1.0), parameter.high, "{}", parameter.key);
            }
        }
    }

    #[test]
    fn every_parameter_is_a_key_of_the_rules() {
        // A key that is misspelt would be an error, as rules know no other.
        for policy in ["cpu_aware", "occupancy", "ratio", "slo"] {
            let base = serde_json::to_value(rules(policy)).unwrap();
            for parameter in parameters(&rules(policy), 8) {
                let mut changed = base.clone();
                parameter.write(&mut changed, parameter.high);
                let read: Rules = serde_json::from_value(changed).unwrap();
                assert_ne!(read, rules(policy), "{}", parameter.key);
            }
        }
    }

    #[test]
    fn people_call_them_by_the_end_of_their_key() {
        let all = parameters(&rules("cpu_aware"), 4);
        let called = |name: &str| all.iter().filter(|p| p.is_called(name)).count();
        for name in ["cooldown", "cpu_aware.cooldown", "policy.cpu_aware.cooldown", "max"] {
            assert_eq!(called(name), 1, "{name}");
        }
        for name in ["down", "", "workers", "Cooldown"] {
            assert_eq!(called(name), 0, "{name}");
        }
    }
}
