//! The alerts of a group as written.

use headcount_core::Span;
use headcount_core::alert::{Alerts, LiveWorkersUnder, WaitingOver};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::sinks::webhook::AlertWebhookConfig;

/// What people want to hear of, whatever the scaling does about it. Alerts are events, metrics and log
/// lines, and are posted to `webhook`. While readings are missing none is raised or resolved.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct AlertsFile {
    /// Too many jobs wait: `{ jobs: 3, for: 30s, tags: [bash] }`.
    waiting_over: Option<WaitingOver>,
    /// Too few workers are ready: `{ workers: 2, for: 2m }`.
    live_workers_under: Option<LiveWorkersUnder>,
    /// An alert is raised at most so often, and posted again so often while it lasts.
    every: Span,
    /// The server that alerts are posted to.
    webhook: Option<AlertWebhookConfig>,
}

impl Default for AlertsFile {
    fn default() -> Self {
        Self { waiting_over: None, live_workers_under: None, every: Alerts::EVERY, webhook: None }
    }
}

impl AlertsFile {
    /// The alerts that are meant and who is told, with everything that makes no sense, as (key, what
    /// is wrong and what to do).
    pub(super) fn meant(self) -> (Alerts, Option<AlertWebhookConfig>, Vec<(String, String)>) {
        let Self { waiting_over, live_workers_under, every, webhook } = self;
        let none = waiting_over.is_none() && live_workers_under.is_none();
        let alerts = Alerts { waiting_over, live_workers_under, every };
        let mut found = alerts.problems();
        if let Some(webhook) = &webhook {
            let inside = |(key, what)| (format!("webhook.{key}"), what);
            found.extend(webhook.problems().into_iter().map(inside));
            if none {
                let what =
                    "has nothing to tell; write waiting_over or live_workers_under beside it";
                found.push(("webhook".into(), what.into()));
            }
        }
        (alerts, webhook, found)
    }
}
