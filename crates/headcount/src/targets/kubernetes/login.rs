//! Logging in to a cluster: one login at a time, in the background and within a limit, so that a look
//! that cannot wait for it finds it done the next time. A login command is run here and not by the
//! client, which would wait for it without end.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::{AuthInfo, ExecConfig};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock::now;
use crate::limits::{
    CERTIFICATE_BYTES, KUBERNETES_LOGIN, SECRET_BYTES, SECRETS_READ_EVERY, TOKEN_AHEAD,
    TOKEN_READ_EVERY,
};
use crate::regular_file;
use crate::targets::command::{self, Fault};
use crate::targets::kubernetes::access::Access;
use crate::targets::kubernetes::answers;

/// The logins to one cluster.
#[derive(Default)]
pub(super) struct Logins {
    last: Option<Login>,
    under_way: Option<JoinHandle<Result<Session, String>>>,
}

/// What came of a login, and when.
struct Login {
    at: Instant,
    made: Result<Session, String>,
}

/// A client that is logged in.
struct Session {
    client: Client,
    proof: Proof,
}

/// How long what a client shows is good.
#[derive(Default)]
struct Proof {
    /// The file with the token, the token in it, and when it was read.
    file: Option<(PathBuf, SecretString, Instant)>,
    /// The end by the login command.
    ends: Option<jiff::Timestamp>,
}

/// What a login command prints.
#[derive(Deserialize)]
struct Credential {
    status: Option<CredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialStatus {
    expiration_timestamp: Option<String>,
    token: Option<SecretString>,
    client_certificate_data: Option<String>,
    client_key_data: Option<SecretString>,
}

impl Logins {
    /// Whether the last login is old enough for the next one.
    pub(super) fn may_log_in_again(&self) -> bool {
        self.last.as_ref().is_some_and(|login| login.at.elapsed() >= SECRETS_READ_EVERY)
    }

    /// Whether a login is not done yet.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// The client; `anew` if the one that is there is of no use. Given up by the caller, the login
    /// goes on.
    ///
    /// # Errors
    /// Why there is none, without secrets.
    pub(super) async fn client(&mut self, anew: bool, access: &Access) -> Result<Client, String> {
        if self.under_way.is_none() {
            if let Some(made) = self.last.as_mut().and_then(|login| login.usable(anew)) {
                return made;
            }
            self.under_way = Some(tokio::spawn(log_in(access.clone())));
        }
        let task = self.under_way.as_mut().expect("it was just begun, if it was not there");
        let made = task.await.unwrap_or_else(|_| Err("the login broke off".into()));
        self.under_way = None;
        let client = made.as_ref().map(|session| session.client.clone()).map_err(String::clone);
        self.last = Some(Login { at: Instant::now(), made });
        client
    }
}

impl Drop for Logins {
    fn drop(&mut self) {
        if let Some(task) = &self.under_way {
            task.abort();
        }
    }
}

impl Login {
    fn usable(&mut self, anew: bool) -> Option<Result<Client, String>> {
        let is_new = self.at.elapsed() < SECRETS_READ_EVERY;
        match &mut self.made {
            Err(why) => is_new.then(|| Err(why.clone())),
            Ok(session) => {
                let good = is_new || (!anew && session.proof.is_good());
                good.then(|| Ok(session.client.clone()))
            }
        }
    }
}

impl Proof {
    /// Whether it is still what should be shown. A token file that is gone changes nothing, as with
    /// kubectl.
    fn is_good(&mut self) -> bool {
        if let Some((file, token, read_at)) = &mut self.file
            && read_at.elapsed() >= TOKEN_READ_EVERY
        {
            *read_at = Instant::now();
            if token_in(file).is_ok_and(|new| new.expose_secret() != token.expose_secret()) {
                return false;
            }
        }
        let now = now().as_millis();
        self.ends.is_none_or(|ends| {
            ends.as_millisecond().saturating_sub(now)
                > i64::try_from(TOKEN_AHEAD.as_millis()).unwrap_or(i64::MAX)
        })
    }

    /// Puts what is to be shown into `user`, so that the client runs no command and reads no file
    /// with a token.
    async fn of(user: &mut AuthInfo) -> anyhow::Result<Self> {
        if let Some(provider) = &user.auth_provider {
            if provider.config.contains_key("cmd-path") {
                bail!(
                    "its user has an `auth-provider` with a command: use `exec`, as kubectl does"
                );
            }
            return Ok(Self::default());
        }
        if user.token.is_some() || (user.username.is_some() && user.password.is_some()) {
            return Ok(Self::default());
        }
        if let Some(file) = user.token_file.take() {
            let file = PathBuf::from(file);
            let token = token_in(&file)?;
            user.token = Some(token.clone());
            return Ok(Self { file: Some((file, token, Instant::now())), ends: None });
        }
        let Some(exec) = user.exec.take() else { return Ok(Self::default()) };
        let status = run(&exec).await?;
        user.token = status.token;
        if let (Some(certificate), Some(key)) =
            (status.client_certificate_data, status.client_key_data)
        {
            (user.client_certificate, user.client_key) = (None, None);
            user.client_certificate_data = Some(STANDARD.encode(certificate));
            user.client_key_data = Some(STANDARD.encode(key.expose_secret()).into());
        }
        let ends = status.expiration_timestamp.map(|at| at.parse());
        let ends = ends.transpose().map_err(|_| failed())?;
        Ok(Self { file: None, ends })
    }
}

async fn log_in(access: Access) -> Result<Session, String> {
    let made = async {
        let mut config = access.config().await?;
        let proof = Proof::of(&mut config.auth_info).await?;
        // It reads files.
        let made = tokio::task::spawn_blocking(move || answers::client(config)).await;
        let client = made.context("the login broke off")?.map_err(|error| match error {
            // The proxy's address may hold a password.
            kube::Error::ProxyProtocolDisabled { .. }
            | kube::Error::ProxyProtocolUnsupported { .. } => {
                anyhow!("the proxy is of an unknown kind: use an http:// one")
            }
            _ => anyhow!("a certificate, a key or a token is unusable"),
        })?;
        Ok(Session { client, proof })
    };
    made.await.map_err(|error: anyhow::Error| format!("{error:#}"))
}

/// The token in a file, without the line's end after it.
fn token_in(file: &Path) -> anyhow::Result<SecretString> {
    let cannot = || format!("token file {} cannot be read", file.display());
    let bytes = regular_file::read(file, SECRET_BYTES).with_context(cannot)?;
    if bytes.len() as u64 > SECRET_BYTES {
        bail!("token file {} is too large", file.display());
    }
    let text = String::from_utf8(bytes).ok().with_context(cannot)?;
    Ok(text.trim().to_owned().into())
}

/// What the login command of a kubeconfig prints. Nobody is there to answer its questions.
async fn run(exec: &ExecConfig) -> anyhow::Result<CredentialStatus> {
    let program = exec.command.as_ref().context("the login of the kubeconfig has no command")?;
    let mut spec = json!({ "interactive": false });
    if exec.provide_cluster_info {
        spec["cluster"] = serde_json::to_value(&exec.cluster)?;
    }
    let info = json!({ "kind": "ExecCredential", "apiVersion": exec.api_version, "spec": spec });
    let mut command = Command::new(program);
    command.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        if let (Some(name), Some(value)) = (variable.get("name"), variable.get("value")) {
            command.env(name, value);
        }
    }
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    exec.drop_env.iter().flatten().for_each(|name| {
        command.env_remove(name);
    });
    let keep = usize::try_from(CERTIFICATE_BYTES).unwrap_or(usize::MAX);
    let ended = match command::run(command, KUBERNETES_LOGIN, keep).await {
        Ok(ended) => ended,
        Err(Fault::Start(why)) => bail!("the login command cannot be run: {why}"),
        Err(Fault::Timeout(_)) => bail!(
            "the login command did not end within {} s: run kubectl once to see why",
            KUBERNETES_LOGIN.as_secs()
        ),
    };
    let printed = ended.status.success().then_some(ended.output).ok_or_else(failed)?;
    let printed: Credential = serde_saphyr::from_str(&printed).map_err(|_| failed())?;
    printed.status.ok_or_else(failed)
}

/// What a command printed may be a token: it is not told.
fn failed() -> anyhow::Error {
    anyhow!("the login of the kubeconfig failed: run kubectl once to see why")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::sync::mpsc;

    use super::*;

    /// A server that lets everybody in, and tells what each request showed.
    async fn server() -> (String, mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (tell, told) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                let shown = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": Bearer ")?;
                    name.eq_ignore_ascii_case("authorization").then(|| value.to_owned())
                });
                tell.send(shown.unwrap_or_default()).unwrap();
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                stream.write_all(answer).await.unwrap();
            }
        });
        (url, told)
    }

    /// A service account's token is replaced long before the old one ends.
    #[tokio::test]
    async fn a_token_file_is_read_again_although_nobody_refuses_the_old_token() {
        let (url, mut told) = server().await;
        let folder = tempfile::tempdir().unwrap();
        let (token, file) = (folder.path().join("token"), folder.path().join("config"));
        let text = json!({ "current-context": "c",
            "clusters": [{ "name": "c", "cluster": { "server": url } }],
            "users": [{ "name": "u", "user": { "tokenFile": &token } }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }] });
        std::fs::write(&file, text.to_string()).unwrap();
        std::fs::write(&token, "old").unwrap();
        let access = Access::Kubeconfig { files: vec![file], context: None };
        let mut logins = Logins::default();
        let age = |logins: &mut Logins, by: Duration| {
            let login = logins.last.as_mut().unwrap();
            login.at -= by;
            login.made.as_mut().unwrap().proof.file.as_mut().unwrap().2 -= by;
        };
        let almost = TOKEN_READ_EVERY - Duration::from_secs(10);
        for (older_by, shown) in
            [(Duration::ZERO, "old"), (almost, "old"), (TOKEN_READ_EVERY - almost, "new")]
        {
            if older_by > Duration::ZERO {
                std::fs::write(&token, "new").unwrap();
                age(&mut logins, older_by);
            }
            let client = logins.client(false, &access).await.unwrap();
            let asked = hyper::Request::get("/version").body(Vec::new()).unwrap();
            client.request_text(asked).await.unwrap();
            assert_eq!(told.recv().await.as_deref(), Some(shown), "{older_by:?} later");
        }
    }
}
