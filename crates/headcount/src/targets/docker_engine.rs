//! The Docker Engine API, for every target whose workers are its containers: one connection, the
//! few requests they need, and errors that tell silence, refusal and absence apart.

use std::collections::HashMap;
use std::error::Error as _;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::{
    ContainerInspectResponse, ContainerSummary, ContainerSummaryStateEnum, EndpointSettings,
};
use bollard::query_parameters::{
    KillContainerOptionsBuilder, ListContainersOptionsBuilder, LogsOptionsBuilder,
    RemoveContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures_util::StreamExt;
use headcount_core::{Missing, Silence, Span, Timestamp};
use tokio::net::UnixStream;

use crate::hosts;
use crate::limits::{ENGINE_TIMEOUT, LAST_LINES_TIMEOUT, OUTPUT_BYTES};
use crate::targets::{TargetError, canonical};

/// Where the engine is if nothing else is said.
const STANDARD_SOCKET: &str = "unix:///var/run/docker.sock";

/// A Docker Engine. Clones share one connection, which is made at the first request.
#[derive(Clone, Debug)]
pub struct Engine {
    host: String,
    client: Arc<Mutex<Option<Docker>>>,
}

/// One container of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Its full id.
    pub id: String,
    /// Its name, without the leading slash.
    pub name: String,
    /// Where it is in its life.
    pub life: Life,
    /// What its health check says; absent if it has none.
    pub health: Option<Health>,
    /// Whether its present state is younger than a minute, so that it may change between two
    /// looks without a trace in a list.
    pub is_fresh: bool,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// Its addresses in all its networks.
    pub addresses: Vec<IpAddr>,
    /// Its labels.
    pub labels: HashMap<String, String>,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Never started, or its start failed.
    Created,
    /// Its main process runs.
    Running,
    /// Exited, and the engine will start it again.
    Restarting,
    /// Frozen.
    Paused,
    /// Its main process is gone; with its exit code, where the list tells it.
    Exited(Option<i64>),
    /// Being removed.
    Removing,
    /// Could not be removed.
    Dead,
}

impl Life {
    /// Whether it has a main process, or soon will by itself.
    pub const fn is_alive(self) -> bool {
        matches!(self, Self::Running | Self::Restarting | Self::Paused)
    }
}

/// What a health check says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not passed yet.
    Starting,
    /// Passed.
    Healthy,
    /// Failed several times in a row.
    Unhealthy,
}

/// What only an inspection of a container tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Whether it has a main process, or soon will by itself.
    pub alive: bool,
    /// When its main process was started last, as the engine writes it: a name of that life.
    pub life: String,
    /// The same as a time.
    pub started_at: Option<Timestamp>,
    /// How long its main process ran, if that is over.
    pub lived: Option<Span>,
    /// The exit code of its main process, if that is over.
    pub exit_code: Option<i64>,
    /// How often its main process has ended so far.
    pub ends: u64,
    /// The main process, as the host numbers it.
    pub pid: Option<u32>,
    /// Its own host name; absent if it uses the host's.
    pub hostname: Option<String>,
    /// The signal that tells it to go.
    pub stop_signal: String,
    /// How long the engine waits after that signal, if the container says so.
    pub stop_timeout: Option<Duration>,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct EngineError {
    /// The kind of silence it amounts to.
    pub why: Silence,
    /// The status of the engine's answer, if it answered.
    pub status: Option<u16>,
    /// What was said.
    pub detail: String,
}

impl Engine {
    /// The engine at `host` (`unix://`, `tcp://` or `http://`), else at `DOCKER_HOST`, else at the
    /// standard socket. Connects later.
    ///
    /// # Errors
    /// An address of another kind.
    pub fn new(host: Option<&str>) -> anyhow::Result<Self> {
        let from_env = || std::env::var("DOCKER_HOST").ok().filter(|h| !h.is_empty());
        let host = host.map(str::to_owned).or_else(from_env);
        let host = host.unwrap_or_else(|| STANDARD_SOCKET.to_owned());
        if let Some(why) = Self::problem_with(&host) {
            anyhow::bail!("docker host {why}");
        }
        Ok(Self { host, client: Arc::default() })
    }

    /// Why `host` cannot be used, if so.
    pub fn problem_with(host: &str) -> Option<String> {
        let known = ["unix://", "tcp://", "http://"];
        (!known.iter().any(|scheme| host.starts_with(scheme)))
            .then(|| format!("{host} is not understood: use unix:///path, or tcp://host:port"))
    }

    /// Its address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Its address in one way of writing, links in the socket's path resolved.
    pub fn place(&self) -> String {
        match self.host.split_once("://") {
            Some(("unix", path)) => {
                format!("unix://{}", canonical(std::path::Path::new(path)).display())
            }
            Some((_, address)) => {
                format!("tcp://{}", address.trim_end_matches('/').to_ascii_lowercase())
            }
            None => self.host.clone(),
        }
    }

    /// Whether it is on this machine, so that process ids mean the same here.
    pub fn is_local(&self) -> bool {
        self.host.starts_with("unix://")
    }

    /// Its version.
    ///
    /// # Errors
    /// No answer.
    pub async fn version(&self) -> Result<String, EngineError> {
        let version = within(self.client()?.version()).await?;
        Ok(version.version.unwrap_or_else(|| "of unknown version".into()))
    }

    /// All containers that have all these labels (`name=value`), whatever their state.
    ///
    /// # Errors
    /// No answer.
    pub async fn list(&self, labels: Vec<String>) -> Result<Vec<Container>, EngineError> {
        let filters = HashMap::from([("label", labels)]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let listed = within(self.client()?.list_containers(Some(options))).await?;
        Ok(listed.into_iter().filter_map(container).collect())
    }

    /// The details of one container.
    ///
    /// # Errors
    /// No answer, or no such container.
    pub async fn inspect(&self, id: &str) -> Result<Details, EngineError> {
        let seen = within(self.client()?.inspect_container(id, None)).await?;
        Ok(details(&seen))
    }

    /// Those of the variables `names` that a container was created with.
    ///
    /// # Errors
    /// No answer, or no such container.
    pub async fn variables(
        &self,
        id: &str,
        names: &[&str],
    ) -> Result<HashMap<String, String>, EngineError> {
        let seen = within(self.client()?.inspect_container(id, None)).await?;
        let all = seen.config.and_then(|config| config.env).unwrap_or_default();
        let pairs = all.iter().filter_map(|line| line.split_once('='));
        let wanted = pairs.filter(|(name, _)| names.contains(name));
        Ok(wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// Whether a path may mean another file to the engine than to this process: this one runs in a
    /// container, and the engine not in the same one.
    pub async fn sees_other_files(&self) -> bool {
        if !hosts::in_container(Path::new("/")) {
            return false;
        }
        let Some(path) = self.host.strip_prefix("unix://") else { return true };
        let Ok(link) = UnixStream::connect(path).await else { return true };
        let peer = link.peer_cred().ok().and_then(|peer| peer.pid());
        // Whoever listens from outside of our process namespace has no number in it.
        let Some(peer) = peer.filter(|pid| *pid > 0) else { return true };
        let mounts = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
        mounts(&peer.to_string()).is_some_and(|theirs| Some(theirs) != mounts("self"))
    }

    /// Sends a signal to the main process; the engine then leaves the container down.
    ///
    /// # Errors
    /// No answer, no such container, or it does not run.
    pub async fn signal(&self, id: &str, signal: &str) -> Result<(), EngineError> {
        let options = KillContainerOptionsBuilder::new().signal(signal).build();
        within(self.client()?.kill_container(id, Some(options))).await
    }

    /// The last lines that a container wrote, at most so many, cut to a bounded size from the end.
    ///
    /// # Errors
    /// No answer in time, no such container, or a log driver that cannot be read.
    pub async fn last_lines(&self, id: &str, lines: usize) -> Result<String, EngineError> {
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail(&lines.to_string());
        let docker = self.client()?;
        let mut output = docker.logs(id, Some(options.build()));
        let read = async {
            let mut text = Vec::new();
            while let Some(part) = output.next().await {
                text.extend_from_slice(part?.as_ref());
                let surplus = text.len().saturating_sub(OUTPUT_BYTES / 4);
                text.drain(..surplus);
            }
            Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
        };
        let read = tokio::time::timeout(LAST_LINES_TIMEOUT, read).await;
        Ok(read.unwrap_or(Err(Error::RequestTimeoutError))?)
    }

    /// Returns when the main process does not run.
    ///
    /// # Errors
    /// No answer, or no such container.
    pub async fn wait(&self, id: &str) -> Result<(), EngineError> {
        let docker = self.client()?;
        match docker.wait_container(id, None).next().await {
            None | Some(Ok(_) | Err(Error::DockerContainerWaitError { .. })) => Ok(()),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Removes a container that does not run; its anonymous volumes stay, as with Compose.
    ///
    /// # Errors
    /// No answer, no such container, or it runs.
    pub async fn remove(&self, id: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptionsBuilder::new().v(false).force(false).build();
        within(self.client()?.remove_container(id, Some(options))).await
    }

    /// Whether the engine has this image.
    ///
    /// # Errors
    /// No answer.
    pub async fn has_image(&self, image: &str) -> Result<bool, EngineError> {
        match within(self.client()?.inspect_image(image)).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_absent() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn client(&self) -> Result<Docker, EngineError> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(docker) = &*client {
            return Ok(docker.clone());
        }
        let docker = if self.is_local() {
            Docker::connect_with_unix(&self.host, ENGINE_TIMEOUT.as_secs(), API_DEFAULT_VERSION)
        } else {
            Docker::connect_with_http(&self.host, ENGINE_TIMEOUT.as_secs(), API_DEFAULT_VERSION)
        }?;
        Ok(client.insert(docker).clone())
    }
}

impl EngineError {
    /// Whether there is no such thing.
    pub fn is_absent(&self) -> bool {
        self.status == Some(404)
    }

    /// As the answer of a look.
    pub fn into_missing(self) -> Missing {
        Missing { why: self.why, detail: self.detail }
    }

    /// As the failure of `what`.
    pub fn into_target_error(self, what: &str) -> TargetError {
        match self.why {
            Silence::Timeout => {
                TargetError::Timeout { what: what.into(), seconds: ENGINE_TIMEOUT.as_secs() }
            }
            Silence::Unreachable | Silence::Refused => {
                TargetError::Unreachable { back_end: "docker".into(), detail: self.detail }
            }
            _ => TargetError::Failed { what: what.into(), detail: self.detail },
        }
    }
}

impl From<Error> for EngineError {
    fn from(error: Error) -> Self {
        let (why, status) = match &error {
            Error::SocketNotFoundError(_) => (Silence::Unreachable, None),
            Error::RequestTimeoutError => (Silence::Timeout, None),
            Error::DockerResponseServerError { status_code, .. } => match status_code {
                401 | 403 => (Silence::Denied, Some(*status_code)),
                404 => (Silence::NotFound, Some(*status_code)),
                _ => (Silence::Malformed, Some(*status_code)),
            },
            Error::JsonDataError { .. } | Error::JsonSerdeError { .. } => {
                (Silence::Malformed, None)
            }
            _ => (silence_of(&error), None),
        };
        let detail = match &error {
            Error::DockerResponseServerError { message, .. } => message.clone(),
            Error::SocketNotFoundError(path) => format!("there is no docker socket at {path}"),
            Error::RequestTimeoutError => "docker did not answer in time".into(),
            _ => format!("docker: {}", root_cause(&error)),
        };
        Self { why, status, detail }
    }
}

/// The answer, its body included, within the limit.
async fn within<T>(request: impl Future<Output = Result<T, Error>>) -> Result<T, EngineError> {
    let answer = tokio::time::timeout(ENGINE_TIMEOUT, request).await;
    Ok(answer.unwrap_or(Err(Error::RequestTimeoutError))?)
}

fn silence_of(error: &Error) -> Silence {
    let mut cause = error.source();
    while let Some(inner) = cause {
        match inner.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(ErrorKind::PermissionDenied) => return Silence::Denied,
            Some(ErrorKind::ConnectionRefused) => return Silence::Refused,
            Some(ErrorKind::TimedOut) => return Silence::Timeout,
            _ => cause = inner.source(),
        }
    }
    Silence::Unreachable
}

/// The innermost error: the one that says what happened.
fn root_cause(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}

fn container(listed: ContainerSummary) -> Option<Container> {
    use ContainerSummaryStateEnum as State;
    let status = listed.status.unwrap_or_default();
    let life = match listed.state? {
        State::RUNNING | State::STOPPING => Life::Running,
        State::RESTARTING => Life::Restarting,
        State::PAUSED => Life::Paused,
        State::EXITED => Life::Exited(exit_code(&status)),
        State::REMOVING => Life::Removing,
        State::DEAD => Life::Dead,
        State::CREATED | State::EMPTY => Life::Created,
    };
    let networks = listed.network_settings.and_then(|n| n.networks).unwrap_or_default();
    let name = listed.names.unwrap_or_default().into_iter().next().unwrap_or_default();
    Some(Container {
        id: listed.id?,
        name: name.trim_start_matches('/').to_owned(),
        life,
        health: health(&status),
        is_fresh: status.contains("second"),
        created_at: listed.created.map(|s| Timestamp::from_millis(s.saturating_mul(1000))),
        addresses: networks.values().flat_map(addresses).collect(),
        labels: listed.labels.unwrap_or_default(),
    })
}

/// Engines before API 1.52 tell the health only in the text: `Up 3 minutes (healthy)`.
fn health(status: &str) -> Option<Health> {
    let (_, said) = status.rsplit_once('(')?;
    match said.trim_end_matches(')') {
        "healthy" => Some(Health::Healthy),
        "unhealthy" => Some(Health::Unhealthy),
        "health: starting" => Some(Health::Starting),
        _ => None,
    }
}

/// The code in `Exited (137) 3 seconds ago`.
fn exit_code(status: &str) -> Option<i64> {
    status.split_once('(')?.1.split_once(')')?.0.parse().ok()
}

fn addresses(endpoint: &EndpointSettings) -> Vec<IpAddr> {
    let written = [&endpoint.ip_address, &endpoint.global_ipv6_address];
    written.into_iter().flatten().filter_map(|ip| ip.parse().ok()).collect()
}

fn details(seen: &ContainerInspectResponse) -> Details {
    let state = seen.state.clone().unwrap_or_default();
    let config = seen.config.clone().unwrap_or_default();
    let alive = state.running.unwrap_or_default();
    let life = state.started_at.unwrap_or_default();
    let started_at = time(&life);
    let finished_at = state.finished_at.as_deref().and_then(time);
    let lived = match (started_at, finished_at) {
        (Some(start), Some(end)) if end >= start => Some(end.since(start)),
        _ => None,
    };
    let restarts = seen.restart_count.and_then(|n| u64::try_from(n).ok()).unwrap_or_default();
    let mode = seen.host_config.as_ref().and_then(|host| host.network_mode.as_deref());
    Details {
        alive,
        life,
        started_at,
        lived,
        exit_code: state.exit_code.filter(|_| !alive),
        ends: restarts.saturating_add(u64::from(!alive && started_at.is_some())),
        pid: state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0),
        hostname: config.hostname.filter(|name| !name.is_empty() && mode != Some("host")),
        stop_signal: config.stop_signal.unwrap_or_else(|| "SIGTERM".into()),
        stop_timeout: config
            .stop_timeout
            .and_then(|s| Some(Duration::from_secs(s.try_into().ok()?))),
    }
}

/// A time as the engine writes it; the year 1 means never.
fn time(written: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = written.parse().ok()?;
    (at > jiff::Timestamp::UNIX_EPOCH).then(|| Timestamp::from_millis(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_text_tells_health_exit_code_and_age() {
        assert_eq!(health("Up 3 minutes (healthy)"), Some(Health::Healthy));
        assert_eq!(health("Up 3 minutes (unhealthy)"), Some(Health::Unhealthy));
        assert_eq!(health("Up 2 seconds (health: starting)"), Some(Health::Starting));
        assert_eq!(health("Up 2 hours"), None);
        assert_eq!(health("Exited (137) 3 seconds ago"), None);
        assert_eq!(exit_code("Exited (137) 3 seconds ago"), Some(137));
        assert_eq!(exit_code("Up 2 hours"), None);
    }

    #[test]
    fn the_year_one_is_never() {
        assert_eq!(time("0001-01-01T00:00:00Z"), None);
        assert_eq!(time("1970-01-01T00:00:01.5Z"), Some(Timestamp::from_millis(1500)));
    }

    #[test]
    fn one_engine_has_one_place() {
        let place = |host: &str| Engine::new(Some(host)).unwrap().place();
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        let socket = |path: &str| place(&format!("unix://{}/{path}", real.display()));
        assert_eq!(socket("link/docker.sock"), socket("docker.sock"));
        assert_eq!(place("http://Build:2375/"), place("tcp://build:2375"));
    }

    #[tokio::test]
    async fn silence_has_its_kind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("docker.sock");
        let engine = Engine::new(Some(&format!("unix://{}", path.display()))).unwrap();
        assert_eq!(engine.list(vec![]).await.unwrap_err().why, Silence::Unreachable);
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert_eq!(engine.list(vec![]).await.unwrap_err().why, Silence::Refused);
        assert!(Engine::new(Some("ssh://host")).is_err());
    }
}
