//! What the world is like, as a file says it.

use headcount_core::rules::MOST_WORKERS;
use headcount_core::{Span, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::moment::Moment;
use crate::trace::Trace;

/// The most outages of a world.
pub const MOST_OUTAGES: usize = 1000;

/// What the world is like for a group.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorldRules {
    /// The mean time from order to ready.
    pub start_up: Span,
    /// Its spread: standard deviation as a share of the mean.
    pub start_up_spread: f64,
    /// The share of starts that fail: the worker dies when it should be ready.
    pub start_up_failures: f64,
    /// What a worker costs at least.
    pub minimum_billing: Span,
    /// Instead of the policy file's min.
    pub min_workers: Option<u32>,
    /// Instead of the policy file's max.
    pub max_workers: Option<MostWorkers>,
    /// Jobs that one worker runs at once; instead of the policy file's slots.
    pub slots: Option<u32>,
    /// How long a worker that is told to go may finish its job; absent: for ever.
    pub grace: Option<Span>,
    /// The machine that the workers share; absent: it has room for all.
    pub host: Option<HostRules>,
    /// When sources do not answer.
    pub outages: Vec<Outage>,
    /// When the trace begins, if it is known: schedules and what the clock brings go by that.
    #[serde(skip)]
    pub begins: Option<Timestamp>,
}

/// The most workers: a number, or `peak`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a number of workers, or `peak`")]
pub enum MostWorkers {
    /// So many.
    Number(u32),
    /// What the trace says.
    OfTrace(OfTrace),
}

/// What a trace can say of the most workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OfTrace {
    /// As many as ever run at once if each job starts on arrival; at least 4.
    Peak,
}

/// A machine. Its cores are shared equally by whoever wants them.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostRules {
    /// Its cores.
    pub cores: f64,
    /// What a running job keeps busy.
    pub cores_per_job: f64,
    /// What a starting worker keeps busy.
    pub start_up_cores: f64,
    /// For how long, on an idle machine.
    pub start_up_cpu: Span,
    /// What others keep busy all the time.
    pub background_cores: f64,
    /// Its memory, in any unit; absent: enough.
    pub memory: Option<f64>,
    /// What a worker takes of it, in the same unit.
    pub memory_per_worker: f64,
}

/// A time in which a source does not answer, or says what it said before.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Outage {
    /// Who.
    pub source: Source,
    /// When it begins, from the start of the trace.
    pub at: Span,
    /// How long it lasts.
    pub lasts: Span,
    /// Whether it repeats its last answer instead of giving none.
    #[serde(default)]
    pub stale: bool,
}

/// Who may fall silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The queue.
    Queue,
    /// The machine.
    Host,
    /// The list of workers.
    Fleet,
}

impl Default for WorldRules {
    fn default() -> Self {
        Self {
            start_up: Span::from_secs(15),
            start_up_spread: 0.2,
            start_up_failures: 0.0,
            minimum_billing: Span::ZERO,
            min_workers: None,
            max_workers: None,
            slots: None,
            grace: None,
            host: None,
            outages: Vec::new(),
            begins: None,
        }
    }
}

impl Default for HostRules {
    /// A small server; a worker's start, as of a Node.js program, keeps a core busy for 10 s.
    fn default() -> Self {
        Self {
            cores: 4.0,
            cores_per_job: 1.0,
            start_up_cores: 1.0,
            start_up_cpu: Span::from_secs(10),
            background_cores: 0.0,
            memory: None,
            memory_per_worker: 0.0,
        }
    }
}

impl WorldRules {
    /// The most workers for this trace, if these rules say so.
    pub fn most_workers(&self, trace: &Trace) -> Option<u32> {
        self.max_workers.map(|most| match most {
            MostWorkers::Number(n) => n,
            MostWorkers::OfTrace(OfTrace::Peak) => trace.peak_concurrency().max(4),
        })
    }

    /// Everything that makes no sense, as (key, what is wrong and what to do).
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, what: &str| found.push((key.to_string(), what.to_string()));
        let spans = [("start_up", Some(self.start_up)), ("grace", self.grace)];
        let billing = ("minimum_billing", Some(self.minimum_billing));
        for (key, span) in spans.into_iter().chain([billing]) {
            if span.is_some_and(|span| span.is_negative()) {
                say(key, "must not be negative");
            }
        }
        if !(0.0..=10.0).contains(&self.start_up_spread) {
            say("start_up_spread", "must be 0 to 10, a share of start_up");
        }
        if !(0.0..1.0).contains(&self.start_up_failures) {
            say("start_up_failures", "must be a share, at least 0 and below 1");
        }
        let most = match self.max_workers {
            Some(MostWorkers::Number(n)) => Some(n),
            _ => None,
        };
        if most.is_some_and(|most| !(1..=MOST_WORKERS).contains(&most)) {
            say("max_workers", "must be 1 to 10000, or peak");
        }
        if self.min_workers.is_some_and(|min| min > most.unwrap_or(MOST_WORKERS)) {
            say("min_workers", "is above max_workers, or above 10000");
        }
        if self.slots.is_some_and(|slots| !(1..=MOST_WORKERS).contains(&slots)) {
            say("slots", "must be 1 to 10000");
        }
        if self.outages.len() > MOST_OUTAGES {
            say("outages", "are more than 1000");
        }
        if let Some(host) = &self.host {
            host.problems(&mut say);
        }
        found
    }

    /// What the clock says at a moment.
    pub fn time(&self, at: Moment) -> Timestamp {
        self.begins.map_or_else(|| at.as_timestamp(), |begins| begins.plus(at.as_span()))
    }

    /// Whether a source is silent (`false`) or repeats itself (`true`) at a moment; `None` if it
    /// answers.
    pub(super) fn outage(&self, source: Source, now: Moment) -> Option<bool> {
        let covers = |outage: &&Outage| {
            let begins = Moment::from_span(outage.at);
            outage.source == source
                && now >= begins
                && now < begins.plus(Moment::from_span(outage.lasts))
        };
        self.outages.iter().find(covers).map(|outage| outage.stale)
    }
}

impl HostRules {
    fn problems(&self, say: &mut impl FnMut(&str, &str)) {
        if !(self.cores > 0.0 && self.cores.is_finite()) {
            say("host.cores", "must be above 0");
        }
        let shares = [
            ("host.cores_per_job", self.cores_per_job),
            ("host.start_up_cores", self.start_up_cores),
            ("host.background_cores", self.background_cores),
            ("host.memory", self.memory.unwrap_or_default()),
            ("host.memory_per_worker", self.memory_per_worker),
        ];
        for (key, value) in shares {
            if !(value >= 0.0 && value.is_finite()) {
                say(key, "must not be negative");
            }
        }
        if self.start_up_cpu.is_negative() {
            say("host.start_up_cpu", "must not be negative");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_as_the_file_writes_it() {
        let json = r#"{"start_up": "90s", "minimum_billing": "60s", "max_workers": "peak",
            "host": {"cores": 2, "cores_per_job": 0.8, "background_cores": 0.3, "memory": 4,
                     "memory_per_worker": 0.5, "start_up_cores": 1, "start_up_cpu": "10s"},
            "outages": [{"source": "queue", "at": "1h", "lasts": "20m"}]}"#;
        let world: WorldRules = serde_json::from_str(json).unwrap();
        assert_eq!(world.problems(), []);
        let host = world.host.as_ref().unwrap();
        assert_eq!((host.cores, host.memory), (2.0, Some(4.0)));
        let minutes = |m: u64| Moment::from_micros(m * 60_000_000);
        for (at, expected) in [(59, None), (60, Some(false)), (79, Some(false)), (80, None)] {
            assert_eq!(world.outage(Source::Queue, minutes(at)), expected, "{at}");
            assert_eq!(world.outage(Source::Fleet, minutes(at)), None);
        }
        assert!(serde_json::from_str::<WorldRules>(r#"{"host": {"core": 2}}"#).is_err());
    }

    #[test]
    fn the_clock_goes_by_the_beginning_of_the_trace_if_that_is_known() {
        let at = Moment::from_micros(90_000_000);
        let unknown = WorldRules::default();
        assert_eq!(unknown.time(at), at.as_timestamp());
        let begins = Timestamp::from_millis(1_793_024_000_000);
        let known = WorldRules { begins: Some(begins), ..unknown };
        assert_eq!(known.time(at), Timestamp::from_millis(1_793_024_090_000));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let json = r#"{"start_up": "-1s", "start_up_spread": -1, "start_up_failures": 1, "slots": 0,
            "host": {"cores": 0, "cores_per_job": -1, "start_up_cpu": "-1s"}}"#;
        let world: WorldRules = serde_json::from_str(json).unwrap();
        let keys: Vec<_> = world.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            [
                "start_up",
                "start_up_spread",
                "start_up_failures",
                "slots",
                "host.cores",
                "host.cores_per_job",
                "host.start_up_cpu"
            ]
        );
    }
}
