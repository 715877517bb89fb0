//! The connection to a cluster, shared by all groups that reach it in the same way, and what its
//! errors mean. Nothing of a credential may get into a message: neither what a login command
//! printed, nor a line of a kubeconfig, nor the object that a rejection quotes.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use headcount_core::{Missing, Silence};
use kube::Client;
use tokio::time::timeout;

use crate::brief::brief;
use crate::limits::{DETAIL_CHARS, KUBERNETES_TIMEOUT};
use crate::targets::TargetError;
use crate::targets::kubernetes::access::Access;
use crate::targets::kubernetes::answers::TooLarge;
use crate::targets::kubernetes::config::KubernetesConfig;
use crate::targets::kubernetes::login::Logins;
use crate::targets::kubernetes::pods::Pods;
use crate::targets::kubernetes::turns::Turns;

/// A cluster, as reached in one way.
pub(super) struct Cluster {
    access: Access,
    /// The API server's address, for messages and leases.
    pub(super) server: String,
    /// The namespace of whoever names none.
    pub(super) namespace: String,
    /// The pods of its namespaces.
    pub(super) pods: Pods,
    /// When its API server is asked; shared by all who reach the same one.
    pub(super) turns: Arc<Turns>,
    login: tokio::sync::Mutex<Logins>,
}

/// Why the API did not do something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub(super) struct ApiError {
    /// The kind of silence that it means for a reading.
    pub(super) why: Silence,
    /// The HTTP status, if there was an answer.
    pub(super) status: Option<u16>,
    /// What was said, without secrets.
    pub(super) detail: String,
    /// The API server that was asked.
    pub(super) server: String,
}

/// Who shares what: the clusters in use.
static OPEN: Mutex<Vec<Weak<Cluster>>> = Mutex::new(Vec::new());

impl Cluster {
    /// The cluster of `config`. Nothing is connected yet.
    ///
    /// # Errors
    /// No way to a cluster is known, or a file that says it cannot be read.
    pub(super) fn open(config: &KubernetesConfig, base: &Path) -> anyhow::Result<Arc<Self>> {
        let access = Access::of(config, base)?;
        let (server, namespace) = access.place()?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|cluster| cluster.strong_count() > 0);
        let same =
            |c: &Arc<Self>| c.access == access && c.server == server && c.namespace == namespace;
        if let Some(cluster) = open.iter().filter_map(Weak::upgrade).find(same) {
            return Ok(cluster);
        }
        let mut all = open.iter().filter_map(Weak::upgrade);
        let turns = all.find(|c| c.server == server).map(|c| Arc::clone(&c.turns));
        drop(all);
        let cluster = Arc::new(Self {
            access,
            server,
            namespace,
            pods: Pods::default(),
            turns: turns.unwrap_or_default(),
            login: tokio::sync::Mutex::default(),
        });
        open.push(Arc::downgrade(&cluster));
        Ok(cluster)
    }

    /// Asks the API something, for at most `limit`. If the token is not accepted any more, logs in
    /// again, once in [`SECRETS_READ_EVERY`].
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) async fn ask<T, Answer>(
        &self,
        limit: Duration,
        request: impl Fn(Client) -> Answer,
    ) -> Result<T, ApiError>
    where
        Answer: Future<Output = kube::Result<T>>,
    {
        let answer = async {
            let answer = request(self.client(false).await?).await.map_err(|e| self.error(&e));
            match answer {
                Err(error) if error.is(401) && self.may_log_in_again().await => {
                    request(self.client(true).await?).await.map_err(|e| self.error(&e))
                }
                answer => answer,
            }
        };
        let late = |_| {
            let logs_in = self.login.try_lock().map_or(true, |login| login.is_under_way());
            let what = if logs_in { "no login" } else { "no answer" };
            let detail = format!("{what} within {} s", limit.as_secs_f64());
            Err(self.silence(Silence::Timeout, None, detail))
        };
        timeout(limit, answer).await.unwrap_or_else(late)
    }

    /// The same with the usual limit.
    pub(super) async fn act<T, Answer>(
        &self,
        request: impl Fn(Client) -> Answer,
    ) -> Result<T, ApiError>
    where
        Answer: Future<Output = kube::Result<T>>,
    {
        self.ask(KUBERNETES_TIMEOUT, request).await
    }

    async fn may_log_in_again(&self) -> bool {
        self.login.lock().await.may_log_in_again()
    }

    /// The client; `anew` if the one that is there is of no use.
    async fn client(&self, anew: bool) -> Result<Client, ApiError> {
        let mut login = self.login.lock().await;
        let made = login.client(anew, &self.access).await;
        made.map_err(|detail| self.silence(Silence::Denied, None, detail))
    }

    fn silence(&self, why: Silence, status: Option<u16>, detail: String) -> ApiError {
        ApiError { why, status, detail, server: self.server.clone() }
    }

    fn error(&self, error: &kube::Error) -> ApiError {
        match error {
            kube::Error::Api(status) => {
                let why = match status.code {
                    401 | 403 => Silence::Denied,
                    404 => Silence::NotFound,
                    408 | 504 => Silence::Timeout,
                    429 | 500..=599 => Silence::Unreachable,
                    _ => Silence::Malformed,
                };
                let said = without_objects(&status.message);
                let detail = match status.code {
                    401 => "the API server does not accept the credentials (401)".into(),
                    code if said.is_empty() => format!("the API server answers {code}"),
                    code @ (429 | 500..=599) => format!("the API server answers {code}: {said}"),
                    _ => said,
                };
                self.silence(why, Some(status.code), detail)
            }
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => {
                let detail = "the answer is not what Kubernetes answers".into();
                self.silence(Silence::Malformed, None, detail)
            }
            other => {
                let (why, detail) = told(other);
                self.silence(why, None, detail)
            }
        }
    }
}

/// What went wrong on the way.
fn told(error: &(dyn StdError + 'static)) -> (Silence, String) {
    let chain =
        || std::iter::successors(Some(error), |e: &&(dyn StdError + 'static)| (*e).source());
    if let Some(large) = chain().find_map(|e| e.downcast_ref::<TooLarge>()) {
        return (Silence::Malformed, large.to_string());
    }
    let last = chain().last().map(ToString::to_string).unwrap_or_default();
    if last.contains("certificate") {
        return (Silence::Denied, format!("its certificate is not trusted: {}", cut(&last)));
    }
    (Silence::Unreachable, cut(&last))
}

/// A message without the objects that a rejection may quote whole, secrets of their environment
/// included: the cause is at its end.
fn without_objects(message: &str) -> String {
    let cause = match (message.find('{'), message.rfind("}\": ")) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}…: {}", &message[..begin], &message[end + 4..])
        }
        (Some(begin), _) => format!("{}…", &message[..begin]),
        (None, _) => message.to_owned(),
    };
    cut(&cause)
}

fn cut(text: &str) -> String {
    brief(text, DETAIL_CHARS)
}

impl ApiError {
    /// Whether the answer had this HTTP status.
    pub(super) fn is(&self, status: u16) -> bool {
        self.status == Some(status)
    }

    /// As a reading that is missing.
    pub(super) fn into_missing(self) -> Missing {
        let detail = match self.why {
            Silence::Unreachable | Silence::Timeout => format!("{}: {}", self.server, self.detail),
            _ => self.detail,
        };
        Missing { why: self.why, detail }
    }

    /// As the failure of `what`.
    pub(super) fn into_target_error(self, what: &str) -> TargetError {
        match self.why {
            Silence::Timeout if self.status.is_none() => {
                TargetError::Timeout { what: what.into(), seconds: KUBERNETES_TIMEOUT.as_secs() }
            }
            Silence::Unreachable if self.status.is_none() => {
                let back_end = format!("the API server {}", self.server);
                TargetError::Unreachable { back_end, detail: self.detail }
            }
            _ => TargetError::Failed { what: what.into(), detail: self.detail },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_is_told_without_the_object_that_it_quotes() {
        let quoted = r#" "" is invalid: patch: Invalid value: "{\"env\":[{\"value\":\"hunter2\"}]}": cannot parse ".1" as ".000000""#;
        let told = without_objects(quoted);
        assert!(!told.contains("hunter2"), "{told}");
        assert!(told.ends_with(r#"cannot parse ".1" as ".000000""#), "{told}");
        assert!(!without_objects("value {hunter2").contains("hunter2"));
        let plain = "spec.replicas: Invalid value: -1: must be greater than or equal to 0";
        assert_eq!(without_objects(plain), plain);
        assert_eq!(without_objects(&"x".repeat(9_000)).chars().count(), DETAIL_CHARS);
    }
}
