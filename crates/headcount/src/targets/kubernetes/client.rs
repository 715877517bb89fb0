//! The connection to a cluster, shared by all groups that reach it in the same way, and what its
//! errors mean. Nothing of a credential may get into a message: neither what a login command
//! printed, nor a line of a kubeconfig, nor the object that a rejection quotes.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context, bail};
use headcount_core::{Missing, Silence};
use kube::client::AuthError;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::{Instant, timeout};

use crate::brief::brief;
use crate::limits::{
    CERTIFICATE_BYTES, DETAIL_CHARS, KUBERNETES_CONNECT, KUBERNETES_TIMEOUT, SECRETS_READ_EVERY,
};
use crate::regular_file;
use crate::targets::TargetError;
use crate::targets::kubernetes::config::KubernetesConfig;
use crate::targets::kubernetes::pods::Pods;

/// How a cluster is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// By the service account of the pod that this process runs in.
    InCluster {
        /// The folder with its token.
        folder: PathBuf,
        /// The API server.
        server: String,
    },
    /// By kubeconfig files, the first one counts most.
    Kubeconfig {
        /// The files.
        files: Vec<PathBuf>,
        /// The context, if not the current one.
        context: Option<String>,
    },
}

/// A cluster, as reached in one way.
pub(super) struct Cluster {
    access: Access,
    /// The API server's address, for messages and leases.
    pub(super) server: String,
    /// The namespace of whoever names none.
    pub(super) namespace: String,
    /// The pods of its namespaces.
    pub(super) pods: Pods,
    login: tokio::sync::Mutex<Option<Login>>,
}

/// A client, or why there is none, and since when.
struct Login {
    at: Instant,
    client: Result<Client, ApiError>,
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

impl Access {
    /// How the cluster of `config` is reached, whose relative paths start at `base`.
    fn of(config: &KubernetesConfig, base: &Path) -> anyhow::Result<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let context = config.context.clone();
        if let Some(file) = &config.kubeconfig {
            return Ok(Self::Kubeconfig { files: vec![base.join(file)], context });
        }
        if let (Some(host), true) = (set("KUBERNETES_SERVICE_HOST"), context.is_none()) {
            let host = host.to_string_lossy().into_owned();
            let host = if host.contains(':') { format!("[{host}]") } else { host };
            let port = set("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".into());
            let server = format!("https://{host}:{}", port.to_string_lossy());
            return Ok(Self::InCluster { folder: config.service_account.clone(), server });
        }
        let files: Vec<PathBuf> = match set("KUBECONFIG") {
            Some(paths) => {
                std::env::split_paths(&paths).filter(|p| !p.as_os_str().is_empty()).collect()
            }
            None => {
                set("HOME").map(|home| Path::new(&home).join(".kube/config")).into_iter().collect()
            }
        };
        if !files.iter().any(|file| file.try_exists().unwrap_or(true)) {
            let pod = match set("KUBERNETES_SERVICE_HOST") {
                Some(_) => "`context` asks for a kubeconfig",
                None => "no cluster is around this process (KUBERNETES_SERVICE_HOST is not set)",
            };
            let shown: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            let kubeconfig = match shown.is_empty() {
                true => "no kubeconfig is known".to_owned(),
                false => format!("there is no kubeconfig {}", shown.join(", ")),
            };
            bail!("{pod}, and {kubeconfig}: set `kubeconfig` or KUBECONFIG, or run in a pod");
        }
        Ok(Self::Kubeconfig { files, context })
    }

    /// The API server and the namespace that is meant if none is named.
    fn place(&self) -> anyhow::Result<(String, String)> {
        match self {
            Self::InCluster { folder, server } => {
                let file = folder.join("namespace");
                let named = regular_file::read(&file, 1_024).ok();
                let named = named.and_then(|bytes| String::from_utf8(bytes).ok());
                let named =
                    named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty());
                let why = || {
                    format!(
                        "no service account in {}: let its token be mounted \
                     (automountServiceAccountToken), or set `kubeconfig`",
                        folder.display()
                    )
                };
                Ok((server.clone(), named.with_context(why)?))
            }
            Self::Kubeconfig { context, .. } => {
                let all = self.kubeconfig()?;
                let context = context.as_ref().or(all.current_context.as_ref());
                let name =
                    context.context("the kubeconfig has no current context: set `context`")?;
                let context = all.contexts.iter().find(|c| c.name == *name);
                let Some(context) = context.and_then(|c| c.context.as_ref()) else {
                    let known: Vec<_> = all.contexts.iter().map(|c| c.name.as_str()).collect();
                    bail!("the kubeconfig has no context {name:?}; it has: {}", known.join(", "));
                };
                let cluster = all.clusters.iter().find(|c| c.name == context.cluster);
                let server = cluster.and_then(|c| c.cluster.as_ref()?.server.clone());
                let missing = || format!("the kubeconfig has no server for {:?}", context.cluster);
                let namespace = context.namespace.clone().unwrap_or_else(|| "default".into());
                Ok((server.with_context(missing)?, namespace))
            }
        }
    }

    /// The kubeconfig files, merged. What is wrong in one of them is not quoted: it may be a secret.
    fn kubeconfig(&self) -> anyhow::Result<Kubeconfig> {
        let Self::Kubeconfig { files, .. } = self else { bail!("there is no kubeconfig") };
        let mut merged = Kubeconfig::default();
        for file in files {
            let shown = file.display();
            let bytes = regular_file::read(file, CERTIFICATE_BYTES)
                .with_context(|| format!("kubeconfig {shown} cannot be read"))?;
            if bytes.len() as u64 > CERTIFICATE_BYTES {
                bail!("kubeconfig {shown} is too large");
            }
            let read = Kubeconfig::read_from(file).and_then(|next| merged.clone().merge(next));
            let Ok(read) = read else { bail!("kubeconfig {shown} is not one that makes sense") };
            merged = read;
        }
        Ok(merged)
    }

    /// What a client needs. Certificates other than the given ones are not trusted.
    async fn config(&self) -> anyhow::Result<Config> {
        let mut config = match self {
            Self::InCluster { folder, server } => {
                let certificate = folder.join("ca.crt");
                let mut config = Config::new(server.parse().context("the server's address")?);
                config.root_cert_file = Some(certificate.clone());
                let bytes = regular_file::read(&certificate, CERTIFICATE_BYTES);
                let bytes = bytes.with_context(|| format!("{}", certificate.display()))?;
                config.root_cert = Some(certificates(&bytes)?);
                let token_file = Some(folder.join("token").to_string_lossy().into_owned());
                config.auth_info = AuthInfo { token_file, ..AuthInfo::default() };
                config
            }
            Self::Kubeconfig { context, .. } => {
                let options = KubeConfigOptions { context: context.clone(), ..<_>::default() };
                let made = Config::from_custom_kubeconfig(self.kubeconfig()?, &options).await;
                match made {
                    Ok(config) => config,
                    Err(_) => bail!("the kubeconfig names a certificate or a key that is unusable"),
                }
            }
        };
        config.connect_timeout = Some(KUBERNETES_CONNECT);
        // Nobody reaches this machine by a proxy, whatever HTTPS_PROXY says.
        let host = config.cluster_url.host().unwrap_or_default();
        if host == "localhost" || host.starts_with("127.") || host == "[::1]" {
            config.proxy_url = None;
        }
        // A retry that nobody sees would make a slow server slower.
        config.default_retry = false;
        Ok(config)
    }
}

/// The certificates in a PEM file.
fn certificates(pem: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.ok().filter(|all| !all.is_empty()).context("ca.crt holds no certificate")?;
    Ok(all.into_iter().map(|certificate| certificate.to_vec()).collect())
}

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
        let cluster = Arc::new(Self {
            access,
            server,
            namespace,
            pods: Pods::default(),
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
            let detail = format!("no answer within {} s", limit.as_secs_f64());
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
        let login = self.login.lock().await;
        login.as_ref().is_some_and(|login| login.at.elapsed() >= SECRETS_READ_EVERY)
    }

    /// The client; `anew` if the one that is there is of no use.
    async fn client(&self, anew: bool) -> Result<Client, ApiError> {
        let mut login = self.login.lock().await;
        let is_new = |login: &&Login| login.at.elapsed() < SECRETS_READ_EVERY;
        let good = |login: &&Login| is_new(login) || (login.client.is_ok() && !anew);
        if let Some(login) = login.as_ref().filter(good) {
            return login.client.clone();
        }
        let client = self.log_in().await;
        *login = Some(Login { at: Instant::now(), client: client.clone() });
        client
    }

    async fn log_in(&self) -> Result<Client, ApiError> {
        let unusable = |e: anyhow::Error| self.silence(Silence::Denied, None, format!("{e:#}"));
        let config = self.access.config().await.map_err(unusable)?;
        // A login command of the kubeconfig is run, and waited for, in there.
        let made = tokio::task::spawn_blocking(move || Client::try_from(config)).await;
        match made {
            Ok(made) => made.map_err(|error| self.error(&error)),
            Err(_) => Err(self.silence(Silence::Denied, None, "the login broke off".into())),
        }
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
            // The proxy's address may hold a password.
            kube::Error::ProxyProtocolDisabled { .. }
            | kube::Error::ProxyProtocolUnsupported { .. } => {
                let detail = "the proxy is of an unknown kind: use an http:// one".into();
                self.silence(Silence::Unreachable, None, detail)
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
    if let Some(login) = chain().find_map(|e| e.downcast_ref::<AuthError>()) {
        let detail = match login {
            AuthError::ReadTokenFile(why, file) => {
                format!("token file {} cannot be read: {why}", file.display())
            }
            AuthError::AuthExecStart(why) => format!("the login command cannot be run: {why}"),
            // What it printed may be a token.
            _ => "the login of the kubeconfig failed: run kubectl once to see why".into(),
        };
        return (Silence::Denied, detail);
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
