//! A server of the user's that is told the number by HTTP POST.
//!
//! Each order has an id that stays the same when it is sent again, so that a server can tell an
//! order that it has carried out already, and a signature, so that it can tell who sends it.

mod call;
mod check;
mod sign;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use headcount_core::{Missing, Silence, Span};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clock;
use crate::config::Place;
use crate::finding::Finding;
use crate::limits::{LOOK_TIMEOUT, OUTPUT_BYTES, STATUS_BYTES};
use crate::secret::Secret;
use crate::targets::assumed::{Assumed, problem_with_initial};
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError, answer};
use call::Fault;
pub(crate) use call::{Caller, shown};

/// A server that is told the number of workers.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookConfig {
    /// Where each change is posted to, as JSON: `group`, `desired`, `current`, `reason`, `event`,
    /// `victims` (ids), `token` (grows with every new Headcount that acts for the group),
    /// `idempotency_key` and `time`. Any 2xx answer says that it is under way; it may be a JSON
    /// object with `started`, `removed` (lists of ids) and `note`. Required.
    pub url: String,
    /// Signs each request, as Standard Webhooks has it. `whsec_...` is base64; anything else is
    /// the key itself.
    pub secret: Option<Secret>,
    /// The file with the secret, relative to this file. It is read again for each request.
    pub secret_file: Option<PathBuf>,
    /// Headers for each request, for example `Authorization`.
    pub headers: BTreeMap<String, Secret>,
    /// How long one request may take. A refused connection, 408, 429 and 5xx are tried again, up
    /// to four times in all.
    pub timeout: Span,
    /// Trust only the authorities in this PEM file, instead of those of the system.
    pub ca_file: Option<PathBuf>,
    /// Where a GET tells how many workers there are: a number, or a JSON object with `ready`,
    /// `starting` and so on, or with a list of `workers`.
    pub status_url: Option<String>,
    /// Without `status_url`: how many workers there are before the first change. From then on the
    /// number that was set last is taken for the number there is.
    pub initial: Option<u32>,
    /// The server removes exactly the workers in `victims`, and no others.
    pub exact_victims: bool,
}

impl Default for WebhookConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            secret: None,
            secret_file: None,
            headers: BTreeMap::new(),
            timeout: Span::from_secs(10),
            ca_file: None,
            status_url: None,
            initial: None,
            exact_victims: false,
        }
    }
}

impl WebhookConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, what: &str| found.push((key.to_owned(), what.to_owned()));
        if self.url.is_empty() {
            say("url", "is missing; write where each change is posted to, as https://ops/scale");
        }
        let urls = [("url", Some(&self.url)), ("status_url", self.status_url.as_ref())];
        for (key, url) in urls {
            if let Some(Err(what)) = url.filter(|url| !url.is_empty()).map(|url| parse(url)) {
                say(key, &what);
            }
        }
        if self.secret.is_some() && self.secret_file.is_some() {
            say("secret_file", "give either secret or secret_file");
        }
        if let Some(Err(what)) = self.secret.as_ref().map(sign::key) {
            say("secret", &what);
        }
        for (name, value) in &self.headers {
            let key = format!("headers.{name}");
            let lower = name.to_ascii_lowercase();
            if HeaderName::try_from(name).is_err() {
                say(&key, "is no name of a header");
            } else if call::OURS.contains(&lower.as_str()) {
                say(&key, "is set by headcount itself; use another name");
            } else if HeaderValue::from_str(value.expose()).is_err() {
                say(&key, "has a value that no header can have");
            }
        }
        if self.timeout < Span::from_millis(100) || self.timeout > Span::from_mins(5) {
            say("timeout", "must be 100ms to 5m");
        }
        if let Some(what) = problem_with_initial(self.initial) {
            say("initial", &what);
        }
        match (&self.status_url, self.initial) {
            (None, None) => {
                say("initial", "is missing: without status_url say how many workers there are now");
            }
            (Some(_), Some(_)) => say("initial", "has no meaning beside status_url; remove it"),
            _ => {}
        }
        found
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        Ok(Box::new(Webhook {
            url: parse(&self.url).map_err(anyhow::Error::msg)?,
            status: self
                .status_url
                .as_deref()
                .map(parse)
                .transpose()
                .map_err(anyhow::Error::msg)?,
            caller: Caller::new(self, &place.base_dir)?,
            assumed: Assumed::new(&place.state_dir, self.initial.unwrap_or(0)),
            group: place.group.clone(),
            limit: clock::duration(self.timeout).min(LOOK_TIMEOUT),
            exact_victims: self.exact_victims,
            sent: None,
        }))
    }
}

/// A URL that can be asked.
pub(crate) fn parse(url: &str) -> Result<Url, String> {
    let parsed = Url::parse(url).map_err(|e| format!("is no URL: {e}"))?;
    if !["http", "https"].contains(&parsed.scheme()) || !parsed.has_host() {
        return Err("must begin with https:// or http://".into());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("must not hold a password; use headers".into());
    }
    Ok(parsed)
}

struct Webhook {
    url: Url,
    status: Option<Url>,
    caller: Caller,
    assumed: Assumed,
    group: String,
    /// How long a look may take.
    limit: Duration,
    exact_victims: bool,
    /// The last order that the next one may be a repetition of.
    sent: Option<Sent>,
}

/// An order that was posted.
struct Sent {
    order: Order,
    id: String,
    /// When it was given.
    time: String,
    /// Nobody knows whether it was carried out: there was no answer.
    is_open: bool,
}

/// What is posted.
#[derive(Serialize)]
struct Payload<'a> {
    group: &'a str,
    desired: u32,
    current: u32,
    reason: &'a str,
    event: &'a str,
    victims: &'a [String],
    token: u64,
    idempotency_key: &'a str,
    time: &'a str,
}

impl Webhook {
    /// Asks `status_url`.
    async fn ask(&self, url: &Url) -> Result<FleetSeen, Missing> {
        let missing = |why, detail: String| {
            Err(Missing { why, detail: format!("status_url {}: {detail}", shown(url)) })
        };
        let id = new_id();
        let asked = self.caller.once(Method::GET, url, &id, b"", self.limit, STATUS_BYTES);
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(fault) => {
                let why = match fault {
                    Fault::Timeout(_) => Silence::Timeout,
                    Fault::Unreachable(_) => Silence::Unreachable,
                    Fault::Unusable(_) => Silence::Absent,
                };
                return missing(why, fault.to_string());
            }
        };
        if !answer.status.is_success() {
            let why = match answer.status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Silence::Denied,
                StatusCode::NOT_FOUND | StatusCode::GONE => Silence::NotFound,
                _ => Silence::Refused,
            };
            return missing(why, answer.said());
        }
        let Some(body) = answer.body else {
            return missing(Silence::Malformed, format!("says more than {STATUS_BYTES} bytes"));
        };
        answer::fleet(&body).or_else(|(why, detail)| missing(why, detail))
    }
}

impl Sent {
    /// Whether it is the same change, for whatever reason.
    fn is_repeated_by(&self, order: &Order) -> bool {
        let change = |order: &Order| (order.from, order.to);
        change(&self.order) == change(order) && self.order.victims == order.victims
    }
}

#[async_trait]
impl Target for Webhook {
    fn promise(&self) -> Promise {
        if self.exact_victims { Promise::ExactVictims } else { Promise::NumberOnly }
    }

    /// The address may hold a secret, so it is only told apart from others.
    fn scales(&self) -> String {
        let hash = digest(&SHA256, self.url.as_str().as_bytes());
        let short: String = hash.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("webhook:{}:{}#{short}", self.group, shown(&self.url))
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        // What was answered is over with the next look. What was not may still be under way, unless
        // the number is another one: then it is not what the next order is decided from.
        self.sent.take_if(|sent| !sent.is_open);
        let seen = match &self.status {
            Some(url) => self.ask(url).await,
            None => self.assumed.fleet(),
        };
        if let Ok(seen) = &seen {
            self.sent.take_if(|sent| sent.order.from != seen.reading.capacity());
        }
        seen
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        let again = self.sent.take().filter(|sent| sent.is_repeated_by(order));
        let sent = self.sent.insert(match again {
            // The same body as well, but of a token that is too old a server wants to know nothing.
            Some(sent) => Sent { order: Order { token: order.token, ..sent.order }, ..sent },
            None => Sent {
                order: order.clone(),
                id: new_id(),
                time: rfc3339(clock::now()),
                is_open: true,
            },
        });
        sent.is_open = true;
        let Sent { order, id, time, .. } = &*sent;
        let payload = Payload {
            group: &self.group,
            desired: order.to,
            current: order.from,
            reason: &order.reason,
            event: order.kind.name(),
            victims: &order.victims,
            token: order.token,
            idempotency_key: id,
            time,
        };
        let body = serde_json::to_vec(&payload).expect("texts and numbers can be written");
        let to = order.to;
        if self.status.is_none() {
            self.assumed.announce(to, &format!("webhook {}", shown(&self.url)))?;
        }
        let said = self.caller.post(&self.url, id, &body, OUTPUT_BYTES).await;
        sent.is_open =
            matches!(said, Err(TargetError::Timeout { .. } | TargetError::Unreachable { .. }));
        match &said {
            _ if self.status.is_some() => {}
            Ok(_) => self.assumed.set(to),
            Err(_) => self.assumed.withdraw(),
        }
        Ok(answer::done(&said?))
    }

    async fn check(&mut self) -> Vec<Finding> {
        self.findings().await
    }
}

/// A new name of an order.
pub(crate) fn new_id() -> String {
    format!("hc_{:032x}", fastrand::u128(..))
}

/// A time as text.
pub(crate) fn rfc3339(at: headcount_core::Timestamp) -> String {
    let at = jiff::Timestamp::from_millisecond(at.as_millis());
    at.map(|at| at.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> WebhookConfig {
        let url = "https://ops.example/scale?key=s3cret".to_owned();
        WebhookConfig { url, initial: Some(1), ..WebhookConfig::default() }
    }

    fn keys(config: &WebhookConfig) -> Vec<String> {
        config.problems().into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn problems_name_their_key() {
        assert_eq!(keys(&WebhookConfig::default()), ["url", "initial"]);
        assert_eq!(keys(&good()), [""; 0]);
        let wrong = WebhookConfig {
            url: "ftp://x".into(),
            status_url: Some("https://me:secret@x/".into()),
            secret: Some(Secret::from("whsec_!")),
            secret_file: Some("s".into()),
            headers: [("Host", "x"), ("a b", "x"), ("X-Key", "a\nb"), ("X-Good", "x")]
                .map(|(name, value)| (name.to_owned(), Secret::from(value)))
                .into(),
            timeout: Span::ZERO,
            ..good()
        };
        let expected = [
            "url",
            "status_url",
            "secret_file",
            "secret",
            "headers.Host",
            "headers.X-Key",
            "headers.a b",
            "timeout",
            "initial",
        ];
        assert_eq!(keys(&wrong), expected);
        let said = format!("{:?}", wrong.problems());
        assert!(!said.contains("secret@") && !said.contains("a\\nb"), "{said}");
    }

    #[test]
    fn the_lease_has_a_name_without_the_secret_in_the_address() {
        let place =
            Place { group: "g".into(), state_dir: "/no/state".into(), base_dir: "/no".into() };
        let scales = |config: &WebhookConfig| config.open(&place).unwrap().scales();
        let name = scales(&good());
        assert!(name.starts_with("webhook:g:https://ops.example#") && !name.contains("s3cret"));
        let other = WebhookConfig { url: "https://ops.example/other".into(), ..good() };
        assert_ne!(scales(&other), name);
        let missing = WebhookConfig { ca_file: Some("ca.pem".into()), ..good() };
        let error = missing.open(&place).err().expect("the file is not there").to_string();
        assert_eq!(error, "certificate file /no/ca.pem cannot be read");
    }
}
