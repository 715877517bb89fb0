//! The Compose command line, v2 or v1: finding it, `up --scale`, one command of a project at a
//! time, and its errors cut to the lines that tell.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::{Mutex as Turns, OwnedMutexGuard};
use tokio::time::{Instant, sleep, timeout};

use crate::clock::duration;
use crate::limits::{CONFIG_BYTES, OUTPUT_BYTES, QUERY_TIMEOUT};
use crate::targets::TargetError;
use crate::targets::command::{Ended, Fault, run};
use crate::targets::compose::ComposeConfig;

/// Two `up` of one project at the same time fail: one at a time in this process, by project.
static PROJECTS: LazyLock<Mutex<HashMap<String, Arc<Turns<()>>>>> = LazyLock::new(Mutex::default);

/// What people may call the command, in the order it is looked for.
const CANDIDATES: [&[&str]; 2] = [&["docker", "compose"], &["docker-compose"]];

/// Lines of progress: Compose writes them to the same stream as its errors.
const PROGRESS: [&str; 12] = [
    "Creating", "Created", "Starting", "Started", "Running", "Recreate", "Stopping", "Stopped",
    "Pulling", "Waiting", "Removing", "Removed",
];

/// What to do about an error, by a part of its text in lower case.
const FIXES: [(&str, &str); 9] = [
    ("no such service", "check `service` against the Compose files"),
    ("no such file", "check `files`"),
    ("couldn't find env file", "check `env_file`"),
    ("pull access denied", "build or pull the image first, or log in to its registry"),
    ("no such host", "the image is not here and its registry cannot be reached: pull it first"),
    ("no such image", "build or pull the image first"),
    ("port is already allocated", "a fixed host port allows one worker: remove `ports` from it"),
    ("container_name", "remove `container_name` from the service: it allows one worker"),
    ("is already in use", "another Compose command ran at the same time"),
];

/// The command with the arguments that name the project.
pub(super) struct Cli {
    /// The words of the command, once found.
    words: Option<Vec<String>>,
    /// The arguments before the verb.
    project: Vec<OsString>,
    service: String,
    docker_host: String,
    folder: PathBuf,
    up_timeout: Duration,
    turns: Arc<Turns<()>>,
    /// Locked while a command runs, so that other processes wait too.
    lock: PathBuf,
}

/// The right to run a command that changes the project, until it is dropped.
pub(super) struct Turn {
    _here: OwnedMutexGuard<()>,
    _elsewhere: Option<File>,
}

impl Cli {
    pub(super) fn new(config: &ComposeConfig, base_dir: &Path, docker_host: &str) -> Self {
        let mut project: Vec<OsString> = vec!["-p".into(), (&config.project).into()];
        let mut add = |flag: &str, path: &PathBuf| {
            project.extend([flag.into(), base_dir.join(path).into_os_string()]);
        };
        config.project_directory.iter().for_each(|path| add("--project-directory", path));
        config.env_file.iter().for_each(|path| add("--env-file", path));
        config.files.iter().for_each(|path| add("-f", path));
        let folder = config.project_directory.as_ref().filter(|_| config.files.is_empty());
        let folder = folder.map_or(base_dir.to_owned(), |folder| base_dir.join(folder));
        let mut projects = PROJECTS.lock().unwrap_or_else(PoisonError::into_inner);
        let turns = projects.entry(format!("{docker_host}/{}", config.project)).or_default();
        Self {
            words: config.command.clone(),
            project,
            service: config.service.clone(),
            docker_host: docker_host.to_owned(),
            lock: config.files.first().map_or(folder.clone(), |file| base_dir.join(file)),
            folder,
            up_timeout: duration(config.up_timeout),
            turns: Arc::clone(turns),
        }
    }

    /// Waits until no other command changes the project.
    pub(super) async fn turn(&self) -> Result<Turn, TargetError> {
        let until = Instant::now() + self.up_timeout;
        let late = || TargetError::Timeout {
            what: "another Compose command of the same project".into(),
            seconds: self.up_timeout.as_secs(),
        };
        let here = timeout(self.up_timeout, Arc::clone(&self.turns).lock_owned());
        let here = here.await.map_err(|_| late())?;
        // What cannot be opened or locked does not keep others out; Compose will say what is wrong.
        let Ok(file) = File::open(&self.lock) else {
            return Ok(Turn { _here: here, _elsewhere: None });
        };
        while let Err(TryLockError::WouldBlock) = file.try_lock() {
            if Instant::now() >= until {
                return Err(late());
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(Turn { _here: here, _elsewhere: Some(file) })
    }

    /// Tells Compose how many containers the service shall have. It only adds if that is no less
    /// than it has.
    pub(super) async fn up(&mut self, scale: u32) -> Result<(), TargetError> {
        let scale = format!("{}={scale}", self.service);
        let service = self.service.clone();
        let verb = ["up", "--scale", &scale, "-d", "--no-recreate", "--no-deps", &service];
        self.ask(&verb, self.up_timeout, OUTPUT_BYTES).await.map(|_| ())
    }

    /// The project as Compose understands it: YAML. With a service, only that and what it needs.
    pub(super) async fn config(&mut self, service: Option<&str>) -> Result<String, TargetError> {
        let verb: Vec<&str> = std::iter::once("config").chain(service).collect();
        let keep = usize::try_from(CONFIG_BYTES).unwrap_or(usize::MAX);
        Ok(self.ask(&verb, QUERY_TIMEOUT, keep).await?.output)
    }

    /// The words of the command and its version.
    pub(super) async fn version(&mut self) -> Result<(String, String), TargetError> {
        let words = self.words().await?.to_vec();
        let ended = self.run(&words, ["version", "--short"], QUERY_TIMEOUT, OUTPUT_BYTES).await?;
        Ok((words.join(" "), ended.output.trim().to_owned()))
    }

    async fn ask(
        &mut self,
        verb: &[&str],
        limit: Duration,
        keep: usize,
    ) -> Result<Ended, TargetError> {
        let words = self.words().await?.to_vec();
        let verb = verb.iter().map(OsStr::new);
        let args: Vec<&OsStr> = self.project.iter().map(OsString::as_os_str).chain(verb).collect();
        self.run(&words, args, limit, keep).await
    }

    /// The words of the command, looked for if they are not given.
    async fn words(&mut self) -> Result<&[String], TargetError> {
        if self.words.is_none() {
            let candidates =
                CANDIDATES.map(|words| words.iter().map(ToString::to_string).collect::<Vec<_>>());
            let mut said = Vec::new();
            for words in candidates {
                match self.run(&words, ["version", "--short"], QUERY_TIMEOUT, OUTPUT_BYTES).await {
                    Ok(_) => return Ok(self.words.insert(words)),
                    Err(error) => said.push(error.to_string()),
                }
            }
            let detail = format!(
                "{}; install the Compose plugin, or name the command in `command`",
                said.join("; ")
            );
            return Err(TargetError::Failed { what: "Compose is not found".into(), detail });
        }
        Ok(self.words.as_deref().unwrap_or_default())
    }

    async fn run(
        &self,
        words: &[String],
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        limit: Duration,
        keep: usize,
    ) -> Result<Ended, TargetError> {
        let (program, first) = words.split_first().map_or(("", &[][..]), |(p, a)| (p.as_str(), a));
        let args: Vec<OsString> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let verb = args.iter().find(|arg| is_verb(arg)).map(|verb| verb.to_string_lossy());
        let what = format!("{} {}", words.join(" "), verb.unwrap_or_default());
        let mut command = Command::new(program);
        command.args(first).args(&args).current_dir(&self.folder);
        // The same engine for both, whatever Docker context is in use.
        command.env("DOCKER_HOST", &self.docker_host);
        let ended = run(command, limit, keep).await.map_err(|fault| match fault {
            Fault::Timeout(limit) => {
                TargetError::Timeout { what: what.clone(), seconds: limit.as_secs() }
            }
            Fault::Start(error) => {
                TargetError::Failed { what: what.clone(), detail: error.to_string() }
            }
        })?;
        if ended.status.success() { Ok(ended) } else { Err(failure(what, &ended)) }
    }
}

fn is_verb(arg: &OsStr) -> bool {
    ["up", "config", "version"].iter().any(|verb| arg == *verb)
}

fn failure(what: String, ended: &Ended) -> TargetError {
    let mut detail = telling(&ended.errors);
    let lower = detail.to_lowercase();
    if ["cannot connect to the docker daemon", "error while fetching server api version"]
        .iter()
        .any(|said| lower.contains(said))
    {
        return TargetError::Unreachable { back_end: "docker".into(), detail };
    }
    if detail.is_empty() {
        detail = format!("{}, and no word why", ended.status);
    }
    if let Some((_, fix)) = FIXES.iter().find(|(part, _)| lower.contains(part)) {
        detail = format!("{detail} ({fix})");
    }
    TargetError::Failed { what, detail }
}

/// The lines of Compose's output that tell what went wrong: the last few that are no progress.
fn telling(stderr: &str) -> String {
    let mut lines: Vec<String> = stderr.lines().map(plain).filter(|l| !l.is_empty()).collect();
    if lines.iter().any(|line| line.starts_with("Traceback")) {
        // Compose v1 shows where it broke; only the last line says why.
        lines = lines.split_off(lines.len() - 1);
    }
    lines.retain(|line| {
        let is_progress = PROGRESS.iter().any(|word| line.ends_with(word));
        !is_progress && !line.starts_with("time=") && !line.starts_with("[+]")
    });
    lines.dedup();
    let last = lines.len().saturating_sub(3);
    lines[last..].join("; ").chars().take(600).collect()
}

/// A line without colours and blanks around it.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut parts = line.split('\x1b');
    out.extend(parts.next());
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |end| end + 1);
        out += &part[end..];
    }
    out.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn only_the_telling_lines_are_kept() {
        let pull = " worker Pulling \n\
            \x1b[31m worker Error Get \"https://r/v2/\": lookup r: no such host\x1b[0m\n\
            Error response from daemon: Get \"https://r/v2/\": lookup r: no such host\n";
        let failed = |stderr: &str| {
            let status = ExitStatus::from_raw(1 << 8);
            let ended = Ended { status, output: String::new(), errors: stderr.into() };
            failure("docker compose up".into(), &ended)
        };
        assert_eq!(
            failed(pull).to_string(),
            "docker compose up: worker Error Get \"https://r/v2/\": lookup r: no such host; \
             Error response from daemon: Get \"https://r/v2/\": lookup r: no such host \
             (the image is not here and its registry cannot be reached: pull it first)"
        );
        let broken = "Traceback (most recent call last):\n  File \"x.py\", line 1\nOSError: odd\n";
        assert_eq!(failed(broken).to_string(), "docker compose up: OSError: odd");
        let down = "Cannot connect to the Docker daemon at unix:///x. Is it running?";
        assert!(matches!(failed(down), TargetError::Unreachable { .. }));
        let silent = " Container a-worker-1  Creating\n";
        assert_eq!(
            failed(silent).to_string(),
            "docker compose up: exit status: 1, and no word why"
        );
    }

    #[test]
    fn the_arguments_are_those_of_the_reference() {
        let config = ComposeConfig {
            project: "shop".into(),
            service: "worker".into(),
            files: vec!["a.yml".into(), "/srv/b.yml".into()],
            env_file: Some(".env".into()),
            project_directory: Some("/srv".into()),
            ..ComposeConfig::default()
        };
        let cli = Cli::new(&config, Path::new("/etc/hc"), "unix:///s");
        let expected = [
            "-p",
            "shop",
            "--project-directory",
            "/srv",
            "--env-file",
            "/etc/hc/.env",
            "-f",
            "/etc/hc/a.yml",
            "-f",
            "/srv/b.yml",
        ];
        assert_eq!(cli.project, expected);
    }
}
