//! The Docker Engine API, for every target whose workers are its containers: one connection, the
//! few requests they need, and errors that tell silence, refusal and absence apart.

mod error;
mod raw;
mod seen;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bollard::errors::Error;
use bollard::models::{ContainerInspectResponse, ContainerSummary, SystemVersion};
use bollard::query_parameters::LogsOptionsBuilder;
use bollard::{API_DEFAULT_VERSION, Docker};
use futures_util::StreamExt;
use headcount_core::Silence;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::UnixStream;

use crate::finding::Finding;
use crate::hosts;
use crate::limits::{ENGINE_TIMEOUT, LAST_LINES_TIMEOUT, OUTPUT_BYTES};
use crate::secret;
use crate::targets::canonical;

pub use error::EngineError;
pub use raw::Method;
pub(super) use raw::escaped;
pub use seen::{Container, Details, Health, Life};

/// Where the engine is if nothing else is said.
const STANDARD_SOCKET: &str = "unix:///var/run/docker.sock";

/// A Docker Engine. Clones share one connection, which is made at the first request.
#[derive(Clone, Debug)]
pub struct Engine {
    host: String,
    client: Arc<Mutex<Option<Docker>>>,
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
        if secret::has_login(host) {
            let what = "must not hold a name or a password: the engine's API knows none";
            return Some(what.to_owned());
        }
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

    /// Whether it answers, and which it is.
    pub async fn finding(&self, about: &str) -> Finding {
        let host = &self.host;
        match self.get::<SystemVersion>("/version").await {
            Ok(said) => {
                let version = said.version.unwrap_or_else(|| "of unknown version".into());
                let api = said.api_version.map(|api| format!(" (API {api})")).unwrap_or_default();
                Finding::good(about, format!("Docker Engine {version}{api} at {host}"))
            }
            Err(error) => {
                let fix = match error.why {
                    Silence::Denied => {
                        "add the user to the group of the socket (`docker`; in a container \
                         `group_add` with its number), or run as root"
                    }
                    _ => {
                        "start Docker, mount its socket into the container, or say where it is \
                         (`docker_host` of `compose`, `host` of `docker` and `swarm`)"
                    }
                };
                let what = match error.detail.starts_with("docker at ") {
                    true => error.detail,
                    false => format!("docker at {host}: {error}"),
                };
                Finding::problem(about, what, fix)
            }
        }
    }

    /// All containers that have all these labels (`name=value`), whatever their state.
    ///
    /// # Errors
    /// No answer, or one in which a container has no id or no state: it would not be counted.
    pub async fn list(&self, labels: Vec<String>) -> Result<Vec<Container>, EngineError> {
        let filters = escaped(&json!({ "label": labels }).to_string());
        let path = format!("/containers/json?all=true&filters={filters}");
        let listed: Vec<ContainerSummary> = self.get(&path).await?;
        listed.into_iter().map(seen::container).collect()
    }

    /// The details of one container.
    ///
    /// # Errors
    /// No answer, or no such container.
    pub async fn inspect(&self, id: &str) -> Result<Details, EngineError> {
        let seen = self.inspected(id).await?;
        Ok(seen::details(&seen))
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
        let seen = self.inspected(id).await?;
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
        let path = format!("/containers/{}/kill?signal={}", escaped(id), escaped(signal));
        self.ask(Method::POST, &path, None).await.map(drop)
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
        read.unwrap_or(Err(Error::RequestTimeoutError)).map_err(|error| self.named(error))
    }

    /// Returns when the main process does not run.
    ///
    /// # Errors
    /// No answer, or no such container.
    pub async fn wait(&self, id: &str) -> Result<(), EngineError> {
        let docker = self.client()?;
        match docker.wait_container(id, None).next().await {
            None | Some(Ok(_) | Err(Error::DockerContainerWaitError { .. })) => Ok(()),
            Some(Err(error)) => Err(self.named(error)),
        }
    }

    /// Removes a container that does not run; its anonymous volumes stay, as with Compose.
    ///
    /// # Errors
    /// No answer, no such container, or it runs.
    pub async fn remove(&self, id: &str) -> Result<(), EngineError> {
        let path = format!("/containers/{}?v=false&force=false", escaped(id));
        self.ask(Method::DELETE, &path, None).await.map(drop)
    }

    async fn inspected(&self, id: &str) -> Result<ContainerInspectResponse, EngineError> {
        self.get(&format!("/containers/{}/json", escaped(id))).await
    }

    /// What is there, read.
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, EngineError> {
        let answer = self.ask(Method::GET, path, None).await?;
        serde_json::from_value(answer).map_err(|e| self.named(EngineError::not_understood(e)))
    }

    /// An error that says which engine it is of.
    fn named(&self, error: impl Into<EngineError>) -> EngineError {
        error.into().at(&self.host)
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
        };
        let docker = docker.map_err(|error| self.named(error))?;
        Ok(client.insert(docker).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let refused = engine.list(vec![]).await.unwrap_err();
        assert_eq!(refused.why, Silence::Refused);
        let place = format!("docker at unix://{}: ", path.display());
        assert!(refused.detail.starts_with(&place), "{refused}");
        let refused = engine.ask(Method::GET, "/info", None).await.unwrap_err();
        assert!(refused.detail.starts_with(&place), "{refused}");
        let finding = engine.finding("target").await;
        assert_eq!(finding.what.matches("docker").count(), 2, "once, and in the path: {finding:?}");
        assert!(Engine::new(Some("ssh://host")).is_err());
        for login in ["tcp://user:hush@host:2375", "ssh://hush@host", "user:hush@host"] {
            let said = Engine::new(Some(login)).unwrap_err().to_string();
            assert!(!said.contains("hush"), "{said}");
        }
    }

    #[tokio::test]
    async fn an_answer_without_end_is_refused() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = format!("tcp://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4_096]).await;
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
                    while stream.write_all(&[b' '; 1 << 16]).await.is_ok() {}
                });
            }
        });
        let engine = Engine::new(Some(&host)).unwrap();
        let error = engine.list(vec!["a=b".into()]).await.unwrap_err();
        assert_eq!(error.why, Silence::Malformed, "{error}");
        assert!(error.to_string().contains("length limit"), "{error}");
        assert!(engine.inspect("a").await.is_err());
    }
}
