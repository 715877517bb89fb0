//! Alerts by HTTP POST, signed as the orders of the `webhook` target are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use async_trait::async_trait;
use headcount_core::Span;
use headcount_core::alert::Alert;
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::EventSink;
use crate::finding::Finding;
use crate::limits::{ALERT_BACK_OFF, ALERT_LAST_WORDS, ALERT_ROUNDS, ALERTS_QUEUED, OUTPUT_BYTES};
use crate::secret::{self, Secret};
use crate::store::Event;
use crate::targets::webhook::{Caller, WebhookConfig, new_id, parse, rfc3339, shown};

const ABOUT: &str = "alerts";

/// A server that alerts are posted to.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AlertWebhookConfig {
    /// Where each alert is posted to, as JSON: `event` (`alert`), `alert` (its key), `state` (`raised`,
    /// `lasts`, `resolved`), `group`, `text`, `reason`, `count`, `limit`, `since`, `time`, `dry_run` and
    /// `idempotency_key`.
    pub url: Option<Secret>,
    /// The file with the address, relative to this file: addresses of chats are secret.
    pub url_file: Option<PathBuf>,
    /// Signs each request, as Standard Webhooks has it. `whsec_...` is base64; anything else is
    /// the key itself.
    pub secret: Option<Secret>,
    /// The file with the secret, relative to this file. It is read again for each request.
    pub secret_file: Option<PathBuf>,
    /// Headers for each request, for example `Authorization`.
    pub headers: BTreeMap<String, Secret>,
    /// How long one request may take. What does not get through is tried again for some minutes.
    pub timeout: Span,
    /// Trust only the authorities in this PEM file, instead of those of the system.
    pub ca_file: Option<PathBuf>,
}

impl Default for AlertWebhookConfig {
    fn default() -> Self {
        Self {
            url: None,
            url_file: None,
            secret: None,
            secret_file: None,
            headers: BTreeMap::new(),
            timeout: Span::from_secs(10),
            ca_file: None,
        }
    }
}

impl AlertWebhookConfig {
    /// Everything in it that makes no sense, as (key, what is wrong and what to do).
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let given = self.url.as_ref().map_or("", Secret::expose);
        let problem = match (given.is_empty(), &self.url_file) {
            (true, None) => Some("is missing; write where alerts are posted to, or `url_file`"),
            (false, Some(_)) => Some("give either url or url_file"),
            _ => None,
        };
        found.extend(problem.map(|what| ("url".to_owned(), what.to_owned())));
        let address = if given.is_empty() { "https://in.a.file" } else { given };
        found.extend(self.post_to(address).problems());
        found
    }

    /// Makes it.
    ///
    /// # Errors
    /// A file that it needs cannot be read, or holds no address.
    pub fn open(&self, base_dir: &Path) -> anyhow::Result<AlertWebhook> {
        let (caller, url) = self.caller(base_dir)?;
        let (queue, queued) = mpsc::channel(ALERTS_QUEUED);
        let sending = tokio::spawn(send_all(caller, url, queued));
        Ok(AlertWebhook { sending: Some((queue, sending)) })
    }

    /// What `headcount check` finds out about it, without an alert.
    pub fn check(&self, base_dir: &Path) -> Finding {
        let signed = |(caller, url): (Caller, Url)| Ok((caller.secret()?.is_some(), url));
        match self.caller(base_dir).and_then(signed) {
            Ok((true, url)) => {
                Finding::good(ABOUT, format!("are posted to {}, signed", shown(&url)))
            }
            Ok((false, url)) => {
                Finding::good(ABOUT, format!("are posted to {}, not signed", shown(&url)))
            }
            Err(error) => {
                Finding::problem(ABOUT, format!("{error:#}"), "correct `webhook` under `alerts`")
            }
        }
    }

    fn caller(&self, base_dir: &Path) -> anyhow::Result<(Caller, Url)> {
        let url = secret::resolve(self.url.as_ref(), self.url_file.as_deref(), base_dir)?;
        let url = url.context("alerts.webhook has no url")?;
        let url = parse(url.expose().trim())
            .map_err(|what| anyhow::anyhow!("the address in alerts.webhook {what}"))?;
        Ok((Caller::new(&self.post_to(""), base_dir)?, url))
    }

    fn post_to(&self, url: &str) -> WebhookConfig {
        WebhookConfig {
            url: url.to_owned(),
            secret: self.secret.clone(),
            secret_file: self.secret_file.clone(),
            headers: self.headers.clone(),
            timeout: self.timeout,
            ca_file: self.ca_file.clone(),
            initial: Some(0),
            ..WebhookConfig::default()
        }
    }
}

/// Posts alerts, one after the other.
pub struct AlertWebhook {
    sending: Option<(mpsc::Sender<Message>, JoinHandle<()>)>,
}

/// One alert on its way: its id and its body.
struct Message {
    id: String,
    body: Vec<u8>,
}

/// What is posted.
#[derive(Serialize)]
struct Payload<'a> {
    event: &'a str,
    alert: &'a str,
    state: &'a str,
    group: &'a str,
    text: &'a str,
    reason: &'a str,
    count: Option<u64>,
    limit: Option<u64>,
    since: &'a str,
    time: &'a str,
    dry_run: bool,
    idempotency_key: &'a str,
}

impl Message {
    fn of(group: &str, dry_run: bool, alert: &Alert) -> Self {
        let (id, reason) = (new_id(), alert.to_string());
        let (name, state) = (alert.name.name(), alert.state.name());
        let payload = Payload {
            event: "alert",
            alert: name,
            state,
            group,
            text: &format!("headcount: {name} {state} in {group}: {reason}"),
            reason: &reason,
            count: alert.count,
            limit: alert.limit,
            since: &rfc3339(alert.since),
            time: &rfc3339(alert.t),
            dry_run,
            idempotency_key: &id,
        };
        let body = serde_json::to_vec(&payload).expect("texts and numbers can be written");
        Self { id, body }
    }
}

#[async_trait]
impl EventSink for AlertWebhook {
    fn tell(&self, event: &Event) {
        let (Some(alert), Some((queue, _))) = (&event.alert, &self.sending) else { return };
        if queue.try_send(Message::of(&event.group, event.dry, alert)).is_err() {
            let group = &event.group;
            tracing::warn!(group, "alert {} is not sent: too many wait for it", alert.name);
        }
    }

    async fn close(&mut self) {
        let Some((queue, mut sending)) = self.sending.take() else { return };
        drop(queue);
        if tokio::time::timeout(ALERT_LAST_WORDS, &mut sending).await.is_err() {
            tracing::warn!("an alert is not sent: there is no time left");
            sending.abort();
        }
    }
}

/// Posts what is queued until nobody can queue more.
async fn send_all(caller: Caller, url: Url, mut queued: mpsc::Receiver<Message>) {
    while let Some(Message { id, body }) = queued.recv().await {
        let mut back_off = ALERT_BACK_OFF;
        for round in 1..=ALERT_ROUNDS {
            match caller.post(&url, &id, &body, OUTPUT_BYTES).await {
                Ok(_) => break,
                Err(error) if round == ALERT_ROUNDS => {
                    tracing::warn!("an alert is not sent: {error}");
                }
                Err(error) => {
                    tracing::warn!("an alert is sent again in {} s: {error}", back_off.as_secs());
                    tokio::time::sleep(back_off).await;
                    back_off *= 2;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_tells_the_server_and_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let config =
            AlertWebhookConfig { url_file: Some("u".into()), ..AlertWebhookConfig::default() };
        let check = |config: &AlertWebhookConfig| config.check(folder.path()).what;
        let said = check(&config);
        assert!(said.contains("/u cannot be read: No such file"), "{said}");
        std::fs::write(folder.path().join("u"), "https://chat.example/s3cret\n").unwrap();
        assert_eq!(check(&config), "are posted to https://chat.example, not signed");
        let signed = AlertWebhookConfig { secret: Some("x".into()), ..config };
        assert_eq!(check(&signed), "are posted to https://chat.example, signed");
        std::fs::write(folder.path().join("u"), "chat").unwrap();
        assert!(check(&signed).starts_with("the address in alerts.webhook is no URL"));
    }

    #[test]
    fn problems_name_their_key_and_no_secret() {
        let keys = |config: &AlertWebhookConfig| {
            config.problems().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        };
        assert_eq!(keys(&AlertWebhookConfig::default()), ["url"]);
        let good = AlertWebhookConfig {
            url: Some("https://chat.example/s3cret".into()),
            ..AlertWebhookConfig::default()
        };
        assert_eq!(keys(&good), [""; 0]);
        assert!(!format!("{good:?}").contains("s3cret"));
        let file = AlertWebhookConfig { url: None, url_file: Some("u".into()), ..good.clone() };
        assert_eq!(keys(&file), [""; 0]);
        let wrong = AlertWebhookConfig {
            url: Some("chat.example".into()),
            url_file: Some("u".into()),
            secret: Some("whsec_!".into()),
            timeout: Span::ZERO,
            ..good
        };
        assert_eq!(keys(&wrong), ["url", "url", "secret", "timeout"]);
    }
}
