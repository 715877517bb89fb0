//! A private Docker daemon and Compose projects in it, each with a name of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use headcount::config::Place;
use headcount::targets::Target;
use headcount::targets::compose::ComposeConfig;
use headcount::targets::docker::DockerConfig;
use headcount::targets::swarm::SwarmConfig;
use headcount_core::Span;

use super::services::setting;
use super::workers::place;

/// A worker that runs until it is told to go, and then goes at once.
pub const OBEDIENT: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $$!; done";

/// A worker that finishes its job, the file /jobs/HOSTNAME, first when it is told to go.
pub const CAREFUL: &str = "trap 'while [ -e /jobs/$$HOSTNAME ]; do sleep 0.1; done; exit 0' TERM; \
                           while :; do sleep 3600 & wait $$!; done";

/// The jobs of workers that run [`CAREFUL`]: files in a folder that they see as /jobs.
pub struct Jobs(PathBuf);

impl Jobs {
    /// No jobs yet, in the folder `jobs` of `folder`.
    pub fn new(folder: &Path) -> Self {
        let jobs = folder.join("jobs");
        std::fs::create_dir(&jobs).expect("the folder can be written");
        Self(jobs)
    }

    /// These containers take up a job.
    pub fn begin(&self, containers: &[String]) {
        for id in containers {
            std::fs::write(self.file(id), "").expect("the folder can be written");
        }
    }

    /// These containers finish their job, if they hold one.
    pub fn end(&self, containers: &[String]) {
        for id in containers {
            let _ = std::fs::remove_file(self.file(id));
        }
    }

    fn file(&self, container: &str) -> PathBuf {
        self.0.join(&container[..12])
    }
}

/// The daemon that the tests may use.
pub struct Docker {
    /// `DOCKER_HOST`.
    pub host: String,
    /// `DOCKER_CONFIG`.
    pub config: String,
}

impl Docker {
    /// The one that `test.sh` started.
    pub fn get() -> Self {
        let value = |name: &str| setting("docker", name);
        Self { host: value("DOCKER_HOST"), config: value("DOCKER_CONFIG") }
    }

    /// The path of its socket.
    pub fn socket(&self) -> &str {
        self.host.strip_prefix("unix://").expect("it has a socket")
    }

    /// Runs `docker ARGS`.
    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new("docker");
        command.args(args).env("DOCKER_HOST", &self.host).env("DOCKER_CONFIG", &self.config);
        command.output().expect("no docker: run ./test.sh first")
    }

    /// The standard output of `docker ARGS`, which must succeed.
    pub fn ask(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "docker {args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// A Compose project in a folder of its own. Its containers and networks end with it.
pub struct Project {
    /// The daemon.
    pub docker: Docker,
    /// Its name.
    pub name: String,
    /// Its folder; `a.yml` is the Compose file.
    pub folder: tempfile::TempDir,
}

impl Project {
    /// A project whose service `worker` runs the shell `script`; `more` are further lines of the
    /// service.
    pub fn new(script: &str, more: &str) -> Self {
        let project = Self::empty();
        project.write("a.yml", &format!("services:\n{}", service("worker", script, more)));
        project
    }

    /// A project without a Compose file.
    pub fn empty() -> Self {
        Self {
            docker: Docker::get(),
            name: unique(),
            folder: tempfile::tempdir().expect("no temporary folder"),
        }
    }

    /// Writes a file into its folder.
    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.path(file), text).expect("the folder can be written");
    }

    /// The configuration of a target for its service `worker`.
    pub fn config(&self) -> ComposeConfig {
        let docker_config = format!("DOCKER_CONFIG={}", self.docker.config);
        let command = ["env", &docker_config, "docker", "compose"];
        ComposeConfig {
            project: self.name.clone(),
            service: "worker".into(),
            files: vec!["a.yml".into()],
            command: Some(command.map(str::to_owned).to_vec()),
            docker_host: Some(self.docker.host.clone()),
            grace: Span::from_secs(30),
            ..ComposeConfig::default()
        }
    }

    /// Opens a target; what it remembers is kept in the project's folder.
    pub fn open(&self, config: &ComposeConfig) -> Box<dyn Target> {
        assert_eq!(config.problems(), []);
        config.open(&self.place()).expect("the configuration is right")
    }

    /// Where its targets are.
    pub fn place(&self) -> Place {
        place(self.folder.path(), "g")
    }

    /// A target for its service `worker`, as lines of a configuration file.
    pub fn target(&self) -> String {
        format!(
            "    target:
      compose:
        project: {}
        service: worker
        files: [{}]
        command: [env, DOCKER_CONFIG={}, docker, compose]
        docker_host: {}
",
            self.name,
            self.path("a.yml").display(),
            self.docker.config,
            self.docker.host
        )
    }

    /// Runs `docker compose ARGS` on it, as a person would.
    pub fn compose(&self, args: &[&str]) -> String {
        let file = self.path("a.yml");
        let file = file.to_str().expect("a temporary path is UTF-8");
        let all = [&["compose", "-p", &self.name, "-f", file], args].concat();
        self.docker.ask(&all)
    }

    /// The path of a file in its folder.
    pub fn path(&self, file: &str) -> PathBuf {
        Path::new(self.folder.path()).join(file)
    }

    /// Ids of its containers, running or not.
    pub fn containers(&self) -> Vec<String> {
        let label = format!("label=com.docker.compose.project={}", self.name);
        let ids = self.docker.ask(&["ps", "-aq", "--no-trunc", "--filter", &label]);
        ids.lines().map(str::to_owned).collect()
    }
}

/// A group of containers without Compose. They end with it.
pub struct Containers {
    /// The daemon.
    pub docker: Docker,
    /// The group's name.
    pub group: String,
    /// Where its targets keep what they remember.
    pub folder: tempfile::TempDir,
}

impl Containers {
    /// A group that has no containers yet.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("no temporary folder");
        Self { docker: Docker::get(), group: unique(), folder }
    }

    /// The configuration of a target whose workers run the shell `script`.
    pub fn config(&self, script: &str) -> DockerConfig {
        DockerConfig {
            host: Some(self.docker.host.clone()),
            image: Some("bb:1".into()),
            command: Some(["sh", "-c", &script.replace("$$", "$")].map(str::to_owned).to_vec()),
            networks: vec!["none".into()],
            grace: Span::from_secs(30),
            ..DockerConfig::default()
        }
    }

    /// Opens a target.
    pub fn open(&self, config: &DockerConfig) -> Box<dyn Target> {
        assert_eq!(config.problems(), []);
        let place = place(self.folder.path(), &self.group);
        config.open(&place).expect("the configuration is right")
    }

    /// Ids of its containers, running or not.
    pub fn ids(&self) -> Vec<String> {
        self.listed(&["-a"])
    }

    /// Ids of its containers that run.
    pub fn running(&self) -> Vec<String> {
        self.listed(&["--filter", "status=running"])
    }

    fn listed(&self, more: &[&str]) -> Vec<String> {
        let label = format!("label=headcount.group={}", self.group);
        let list = ["ps", "-q", "--no-trunc", "--filter", &label];
        let ids = self.docker.ask(&[&list, more].concat());
        ids.lines().map(str::to_owned).collect()
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        for label in ["headcount.group", "test"] {
            let label = format!("label={label}={}", self.group);
            let output = self.docker.run(&["ps", "-aq", "--filter", &label]);
            for id in String::from_utf8_lossy(&output.stdout).lines() {
                self.docker.run(&["rm", "-f", id]);
            }
        }
    }
}

/// A Swarm service of the daemon, which is a Swarm of its own. It ends with it.
pub struct SwarmService {
    /// The daemon.
    pub docker: Docker,
    /// Its name.
    pub name: String,
}

impl SwarmService {
    /// A service whose tasks run the shell `script`; `options` as of `docker service create`.
    pub fn new(script: &str, replicas: u32, options: &[&str]) -> Self {
        let replicas = replicas.to_string();
        let mode = ["--replicas", &replicas, "--stop-grace-period", "30s"];
        Self::with(script, &[&mode, options].concat())
    }

    /// A service of any mode.
    pub fn with(script: &str, options: &[&str]) -> Self {
        let service = Self { docker: Docker::get(), name: unique() };
        let script = script.replace("$$", "$");
        let fixed =
            ["service", "create", "-d", "-q", "--no-resolve-image", "--restart-delay", "0s"];
        let what = ["--name", &service.name, "bb:1", "sh", "-c", &script];
        service.docker.ask(&[&fixed, options, &what].concat());
        service
    }

    /// The configuration of a target for it.
    pub fn config(&self) -> SwarmConfig {
        SwarmConfig {
            host: Some(self.docker.host.clone()),
            service: self.name.clone(),
            ..SwarmConfig::default()
        }
    }

    /// Opens a target; it keeps nothing.
    pub fn open(&self, config: &SwarmConfig) -> Box<dyn Target> {
        assert_eq!(config.problems(), []);
        let place = place(Path::new("/nonexistent"), "g");
        config.open(&place).expect("the configuration is right")
    }

    /// How many tasks it asks for.
    pub fn replicas(&self) -> u32 {
        let what = "{{.Spec.Mode.Replicated.Replicas}}";
        self.docker.ask(&["service", "inspect", "-f", what, &self.name]).parse().unwrap()
    }

    /// Somebody else sets the number.
    pub fn set(&self, replicas: u32) {
        let wanted = format!("{}={replicas}", self.name);
        self.docker.ask(&["service", "scale", "-d", &wanted]);
    }

    /// The container of a task.
    pub fn container(&self, task: &str) -> String {
        self.docker.ask(&["inspect", "-f", "{{.Status.ContainerStatus.ContainerID}}", task])
    }
}

impl Drop for SwarmService {
    /// Older engines crash if a service is removed while one of its tasks is: first the tasks, then
    /// the service, which may stay without tasks.
    fn drop(&mut self) {
        self.docker.run(&["service", "scale", "-d", &format!("{}=0", self.name)]);
        let is_global = || {
            let mode = ["service", "inspect", "-f", "{{.Spec.Mode.Global}}", &self.name];
            self.docker.run(&mode).stdout != b"<nil>\n"
        };
        for _ in 0..50 {
            let tasks = self.docker.run(&["service", "ps", "-q", &self.name]);
            if tasks.stdout.is_empty() || is_global() {
                self.docker.run(&["service", "rm", &self.name]);
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
}

/// A name that no other test uses.
pub fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("hc-{}-{count}", std::process::id())
}

/// The lines of a service that runs the shell `script`.
pub fn service(name: &str, script: &str, more: &str) -> String {
    format!(
        "  {name}:\n    image: bb:1\n    network_mode: none\n    \
         command: [\"sh\", \"-c\", \"{script}\"]\n{more}"
    )
}

impl Drop for Project {
    fn drop(&mut self) {
        let label = format!("label=com.docker.compose.project={}", self.name);
        let list = |args: &[&str]| {
            let output = self.docker.run(&[args, &["--filter", &label]].concat());
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        for container in list(&["ps", "-aq"]) {
            self.docker.run(&["rm", "-f", &container]);
        }
        for network in list(&["network", "ls", "-q"]) {
            self.docker.run(&["network", "rm", &network]);
        }
    }
}
