//! The way to an AWS account, shared by all groups that reach it in the same way: credentials from the
//! standard chain, signed requests, and what their errors mean. The few requests that are needed are
//! plain JSON: the generated client of ECS alone would cost more to build than all the rest of AWS here.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use anyhow::Context;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4;
use axum::body::Body;
use axum::http::Request;
use headcount_core::Silence;
use reqwest::Client;
use reqwest::redirect::Policy;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use crate::limits::{
    AWS_ANSWER_BYTES, AWS_BACK_OFF, AWS_CONNECT, AWS_LOGIN, AWS_TRIES, SECRETS_READ_EVERY,
};
use crate::targets::ecs::config::EcsConfig;
use crate::targets::ecs::error::{ApiError, chain_of, of_transport, refusal};
use crate::targets::ecs::session::{Access, Api, Session, now};

/// An account, as reached in one way.
pub(super) struct Account {
    access: Access,
    client: Client,
    login: tokio::sync::Mutex<Option<Login>>,
}

/// Credentials, or why there are none, and since when.
struct Login {
    at: Instant,
    session: Result<Session, ApiError>,
}

/// One request.
struct Ask<'a> {
    api: Api,
    action: &'a str,
    content_type: &'static str,
    body: String,
}

/// Who shares what: the accounts in use.
static OPEN: Mutex<Vec<Weak<Account>>> = Mutex::new(Vec::new());

impl Account {
    /// The account of `config`, whose relative paths start at `base`. Nothing is connected yet.
    ///
    /// # Errors
    /// No HTTP client can be made.
    pub(super) fn open(config: &EcsConfig, base: &Path) -> anyhow::Result<Arc<Self>> {
        let access = Access::of(config, base);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|account| account.strong_count() > 0);
        let same = |account: &Arc<Self>| account.access == access;
        if let Some(account) = open.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(account);
        }
        let mut client = Client::builder()
            .user_agent(concat!("headcount/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(AWS_CONNECT)
            .redirect(Policy::none());
        if config.is_near() {
            client = client.no_proxy();
        }
        let client = client.build().context("no HTTP client can be made")?;
        let account = Arc::new(Self { access, client, login: tokio::sync::Mutex::default() });
        open.push(Arc::downgrade(&account));
        Ok(account)
    }

    /// Does `action` with `input`, both as the API reference has them.
    ///
    /// # Errors
    /// Why it was not done, or what is wrong with the answer.
    pub(super) async fn call<T: DeserializeOwned>(
        &self,
        api: Api,
        action: &str,
        input: &Value,
        until: Instant,
    ) -> Result<T, ApiError> {
        let content_type = "application/x-amz-json-1.1";
        let ask = Ask { api, action, content_type, body: input.to_string() };
        let answer = self.ask(&ask, until).await?;
        serde_json::from_slice(&answer).map_err(|error| {
            let detail = format!("the answer to {action} is not understood: {error}");
            ApiError::silence(Silence::Malformed, detail)
        })
    }

    /// The same for the services that are asked by a form and answer in XML.
    pub(super) async fn query(
        &self,
        api: Api,
        action: &str,
        form: &str,
        until: Instant,
    ) -> Result<String, ApiError> {
        let content_type = "application/x-www-form-urlencoded; charset=utf-8";
        let ask = Ask { api, action, content_type, body: form.to_owned() };
        let answer = self.ask(&ask, until).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// Asks, again after a pause if told to slow down, and once with new credentials if the old ones
    /// are not accepted.
    async fn ask(&self, ask: &Ask<'_>, until: Instant) -> Result<Vec<u8>, ApiError> {
        let mut pause = AWS_BACK_OFF;
        let mut tries = 1;
        let mut anew = false;
        loop {
            let answer = async {
                let session = self.session(anew).await?;
                self.send(ask, &session).await
            };
            let late =
                || ApiError::silence(Silence::Timeout, format!("{} took too long", ask.action));
            let answer = timeout_at(until, answer).await.unwrap_or_else(|_| Err(late()));
            match answer {
                Err(error) if error.is_throttled() && tries < AWS_TRIES => {
                    let jitter = pause.mul_f64(0.5 + fastrand::f64());
                    if Instant::now() + jitter >= until {
                        return Err(error);
                    }
                    sleep(jitter).await;
                    (pause, tries) = (pause * 2, tries + 1);
                }
                Err(error) if error.is_stale_login() && !anew && self.may_log_in_again().await => {
                    anew = true;
                }
                answer => return answer,
            }
        }
    }

    async fn send(&self, ask: &Ask<'_>, session: &Session) -> Result<Vec<u8>, ApiError> {
        let request = signed(ask, session)?;
        let address = request.url().clone();
        let answer = self.client.execute(request).await;
        let answer = answer.map_err(|error| of_transport(error, &address))?;
        let status = answer.status().as_u16();
        let named = answer.headers().get("x-amzn-errortype");
        let named = named.and_then(|name| name.to_str().ok()).map(str::to_owned);
        let body = Body::new(reqwest::Body::from(answer));
        let body = axum::body::to_bytes(body, AWS_ANSWER_BYTES).await;
        let body = body.map_err(|error| {
            let detail = format!("the answer to {} broke off: {error}", ask.action);
            ApiError::silence(Silence::Malformed, detail)
        })?;
        match status {
            200..=299 => Ok(body.to_vec()),
            _ => Err(refusal(
                &format!("{}:{}", ask.api.name(), ask.action),
                status,
                named.as_deref(),
                &body,
            )),
        }
    }

    async fn may_log_in_again(&self) -> bool {
        let login = self.login.lock().await;
        login.as_ref().is_some_and(|login| login.at.elapsed() >= SECRETS_READ_EVERY)
    }

    /// Whether it is something that only resembles AWS.
    pub(super) async fn is_stand_in(&self) -> bool {
        self.session(false).await.is_ok_and(|session| session.is_stand_in())
    }

    /// Who asks; `anew` if the credentials that are there are of no use.
    pub(super) async fn session(&self, anew: bool) -> Result<Session, ApiError> {
        let mut login = self.login.lock().await;
        if let Some(Login { at, session }) = login.as_ref() {
            let is_new = at.elapsed() < SECRETS_READ_EVERY;
            let good = session.as_ref().is_ok_and(|session| !session.ends_soon());
            if is_new || (good && !anew) {
                return session.clone();
            }
        }
        let session = match timeout_at(Instant::now() + AWS_LOGIN, self.access.log_in()).await {
            Ok(session) => session,
            Err(_) => {
                let detail = format!("no credentials within {} s", AWS_LOGIN.as_secs());
                Err(ApiError::silence(Silence::Timeout, detail))
            }
        };
        // Those that are there may serve a little longer.
        let before = login.take().and_then(|login| login.session.ok());
        let before = before.filter(|before| !anew && !before.has_ended());
        let session = session.or_else(|error| before.ok_or(error));
        *login = Some(Login { at: Instant::now(), session: session.clone() });
        session
    }
}

fn signed(ask: &Ask<'_>, session: &Session) -> Result<reqwest::Request, ApiError> {
    let wrong = |error: &dyn StdError| {
        let detail = format!("{} cannot be asked: {}", ask.action, chain_of(error));
        ApiError::silence(Silence::Malformed, detail)
    };
    let (address, region) = session.address(ask.api);
    let identity = session.credentials.clone().into();
    let params = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(ask.api.name())
        .time(now())
        .settings(SigningSettings::default())
        .build()
        .map_err(|error| wrong(&error))?
        .into();
    let target = format!("{}.{}", ask.api.target(), ask.action);
    let mut headers = vec![("content-type", ask.content_type)];
    if matches!(ask.api, Api::Ecs | Api::AutoScaling) {
        headers.push(("x-amz-target", &target));
    }
    let body = SignableBody::Bytes(ask.body.as_bytes());
    let signable = SignableRequest::new("POST", &address, headers.iter().copied(), body);
    let signature = sign(signable.map_err(|e| wrong(&e))?, &params).map_err(|e| wrong(&e))?;
    let mut request = Request::post(&address);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut request = request.body(ask.body.clone()).map_err(|e| wrong(&e))?;
    signature.into_parts().0.apply_to_request_http1x(&mut request);
    request.try_into().map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_signed_with_the_key_and_carries_no_secret() {
        let ask = Ask { api: Api::Ecs, action: "X", content_type: "a/b", body: "{}".into() };
        let request = signed(&ask, &Session::for_tests("eu-west-1", None)).unwrap();
        let header = |name| request.headers()[name].to_str().unwrap().to_owned();
        let authorization = header("authorization");
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{authorization}");
        assert!(authorization.contains("/eu-west-1/ecs/aws4_request"), "{authorization}");
        assert_eq!(header("x-amz-target"), "AmazonEC2ContainerServiceV20141113.X");
        assert_eq!(header("x-amz-security-token"), "token2");
    }
}
