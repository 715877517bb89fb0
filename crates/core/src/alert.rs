//! Alerts: what people want to hear of, whatever the scaling does about it. Each is judged at every
//! look. Silence neither raises nor resolves one, and the time it lasts counts for nothing.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::observation::Observation;
use crate::reading::{FleetReading, QueueReading};
use crate::time::{Span, Timestamp, seconds};

/// The alerts of a group, and how often they are told.
#[derive(Clone, Debug, PartialEq)]
pub struct Alerts {
    /// Too many jobs wait.
    pub waiting_over: Option<WaitingOver>,
    /// Too few workers are there.
    pub live_workers_under: Option<LiveWorkersUnder>,
    /// An alert is raised at most so often, and told again so often while it lasts.
    pub every: Span,
}

/// Too many jobs wait.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WaitingOver {
    /// More jobs than this wait. Windmill's `jobs_num_threshold`.
    #[serde(default = "three")]
    pub jobs: u64,
    /// For this long. Windmill's `alert_time_threshold_seconds`.
    #[serde(default = "half_a_minute", rename = "for")]
    pub lasts: Span,
    /// Only jobs with these tags, added up; all that wait if there are none.
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Too few workers are there.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LiveWorkersUnder {
    /// Fewer workers than this are ready.
    #[schemars(range(min = 1, max = 10_000))]
    pub workers: u32,
    /// For this long.
    #[serde(default = "two_minutes", rename = "for")]
    pub lasts: Span,
}

/// The names of the alerts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "they are those of the keys")]
pub enum AlertName {
    WaitingOver,
    LiveWorkersUnder,
}

/// What became of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlertNews {
    /// It has begun.
    Raised,
    /// It goes on; told again.
    Lasts,
    /// It is over.
    Resolved,
}

/// One alert that is to be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alert {
    /// Which one.
    pub name: AlertName,
    /// What became of it.
    pub state: AlertNews,
    /// When that was seen.
    pub t: Timestamp,
    /// Since when it was so.
    pub since: Timestamp,
    /// What was counted; absent if nobody asks for the alert any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The number that it is compared with; absent if nobody asks for the alert any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

/// What is remembered of a group's alerts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AlertState {
    /// When they were last judged.
    pub seen_at: Option<Timestamp>,
    /// Of [`AlertName::WaitingOver`].
    pub waiting_over: Watch,
    /// Of [`AlertName::LiveWorkersUnder`].
    pub live_workers_under: Watch,
}

/// What is remembered of one alert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Watch {
    /// Since when it is as it should not be, without the time in which nobody could tell.
    pub since: Option<Timestamp>,
    /// It was raised, and not resolved since.
    pub raised: bool,
    /// When it was last raised or told again.
    pub told_at: Option<Timestamp>,
}

/// What one alert looks at: what was counted, its limit, and how long it must be so.
struct Seen {
    count: u64,
    limit: u64,
    wrong: bool,
    lasts: Span,
}

const fn three() -> u64 {
    3
}

const fn half_a_minute() -> Span {
    Span::from_secs(30)
}

const fn two_minutes() -> Span {
    Span::from_secs(120)
}

/// An alert may take so long to be raised.
const LONGEST: Span = Span::from_hours(24);
/// As often may one be told.
const OFTENEST: Span = Span::from_secs(1);

impl Default for Alerts {
    fn default() -> Self {
        Self { waiting_over: None, live_workers_under: None, every: Self::EVERY }
    }
}

impl Alerts {
    /// How often an alert is told unless the user says. Windmill's `alert_cooldown_seconds`.
    pub const EVERY: Span = Span::from_secs(600);

    /// Everything that makes no sense, as (key, what is wrong and what to do).
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, what: String| found.push((key.to_owned(), what));
        if self.live_workers_under.as_ref().is_some_and(|alert| alert.workers == 0) {
            say("live_workers_under.workers", "there are never fewer than 0; use 1 or more".into());
        }
        let waiting = self.waiting_over.as_ref().map(|alert| alert.lasts);
        let live = self.live_workers_under.as_ref().map(|alert| alert.lasts);
        for (key, lasts) in [("waiting_over.for", waiting), ("live_workers_under.for", live)] {
            if let Some(lasts) = lasts.filter(|lasts| !(Span::ZERO..=LONGEST).contains(lasts)) {
                say(key, format!("{lasts:#} is not 0s to {LONGEST:#}"));
            }
        }
        if self.every < OFTENEST {
            say("every", format!("{:#} is too often; use {OFTENEST:#} or more", self.every));
        }
        found
    }

    /// What is to be told of what was seen at `now`. After a time without a look that is longer than
    /// `stale_after`, nobody knows what was in between.
    pub fn judge(
        &self,
        state: &mut AlertState,
        seen: &Observation,
        stale_after: Span,
        now: Timestamp,
    ) -> Vec<Alert> {
        let passed = state.seen_at.replace(now).map_or(Span::ZERO, |at| now.since(at));
        let unwatched = if passed > stale_after { passed } else { Span::ZERO };
        let queue = seen.queue.fresh(now, stale_after).ok();
        let fleet = seen.fleet.fresh(now, stale_after).ok().filter(|f| f.credible().is_ok());
        let watched = [
            (
                AlertName::WaitingOver,
                &mut state.waiting_over,
                self.waiting_over.as_ref().map(|alert| alert.look(queue?)),
            ),
            (
                AlertName::LiveWorkersUnder,
                &mut state.live_workers_under,
                self.live_workers_under.as_ref().map(|alert| Some(alert.look(fleet?))),
            ),
        ];
        let told = watched.into_iter().filter_map(|(name, watch, asked)| {
            let Some(asked) = asked else { return watch.drop(name, now) };
            let unknown = if asked.is_some() { unwatched } else { passed };
            watch.since = watch.since.map(|since| since.plus(unknown));
            watch.see(name, &asked?, self.every, now)
        });
        told.collect()
    }
}

impl WaitingOver {
    /// `None` if the queue does not tell tags.
    fn look(&self, queue: &QueueReading) -> Option<Seen> {
        let tag = |tag| queue.tags.get(tag).copied().unwrap_or(0);
        let count = match &self.tags[..] {
            [] => queue.waiting,
            _ if queue.tags.is_empty() && queue.waiting > 0 => return None,
            tags => tags.iter().map(tag).fold(0, u64::saturating_add),
        };
        Some(Seen { count, limit: self.jobs, wrong: count > self.jobs, lasts: self.lasts })
    }
}

impl LiveWorkersUnder {
    fn look(&self, fleet: &FleetReading) -> Seen {
        let (count, limit) = (fleet.ready.into(), self.workers.into());
        Seen { count, limit, wrong: count < limit, lasts: self.lasts }
    }
}

impl Watch {
    fn see(&mut self, name: AlertName, seen: &Seen, every: Span, now: Timestamp) -> Option<Alert> {
        let (count, limit) = (Some(seen.count), Some(seen.limit));
        let told = |state, since| Alert { name, state, t: now, since, count, limit };
        if !seen.wrong {
            let since = self.since.take().unwrap_or(now);
            return std::mem::take(&mut self.raised).then(|| told(AlertNews::Resolved, since));
        }
        let since = *self.since.get_or_insert(now);
        let due = self.told_at.is_none_or(|at| now.since(at) >= every);
        if !due || !self.raised && now.since(since) < seen.lasts {
            return None;
        }
        self.told_at = Some(now);
        let state = if self.raised { AlertNews::Lasts } else { AlertNews::Raised };
        self.raised = true;
        Some(told(state, since))
    }

    /// Nobody asks for it any more.
    fn drop(&mut self, name: AlertName, now: Timestamp) -> Option<Alert> {
        let Self { since, raised, .. } = std::mem::take(self);
        let (state, since) = (AlertNews::Resolved, since.unwrap_or(now));
        raised.then_some(Alert { name, state, t: now, since, count: None, limit: None })
    }
}

impl AlertState {
    /// Each alert's name, and whether it is raised.
    pub fn raised(&self) -> [(AlertName, bool); 2] {
        [
            (AlertName::WaitingOver, self.waiting_over.raised),
            (AlertName::LiveWorkersUnder, self.live_workers_under.raised),
        ]
    }

    pub(crate) fn shift(&mut self, delta: Span) {
        let [a, b] = [&mut self.waiting_over, &mut self.live_workers_under]
            .map(|watch| [&mut watch.since, &mut watch.told_at]);
        for t in a.into_iter().chain(b).chain([&mut self.seen_at]) {
            *t = t.map(|t| t.plus(delta));
        }
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.waiting_over == Watch::default() && self.live_workers_under == Watch::default()
    }
}

impl AlertName {
    /// The name used in JSON, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WaitingOver => "waiting_over",
            Self::LiveWorkersUnder => "live_workers_under",
        }
    }
}

impl fmt::Display for AlertName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl AlertNews {
    /// The name used in JSON and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Lasts => "lasts",
            Self::Resolved => "resolved",
        }
    }
}

impl fmt::Display for AlertNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What there is to say, as a sentence.
impl fmt::Display for Alert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(count), Some(limit)) = (self.count, self.limit) else {
            return f.write_str("nobody asks for this alert any more");
        };
        let (what, than) = match self.name {
            AlertName::WaitingOver => ("waiting", "more than"),
            AlertName::LiveWorkersUnder => ("live workers", "fewer than"),
        };
        let lasted = seconds(self.t.since(self.since));
        match self.state {
            AlertNews::Resolved => {
                write!(f, "{count} {what}, no longer {than} {limit}, after {lasted:.0} s")
            }
            _ => write!(f, "{count} {what}, {than} {limit} for {lasted:.0} s"),
        }
    }
}

#[cfg(test)]
mod tests;
