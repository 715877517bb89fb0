//! PostgreSQL: the one that `test.sh` started, in which each test has a database of its own, and
//! servers of a test's own that it may kill.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use tokio_postgres::{Client, Config, NoTls};

use super::redis::free_port;
use super::services::setting;

/// A database of a test's own.
pub struct Database {
    /// `host:port`.
    pub place: String,
    /// Its name, and that of its role that may only read.
    pub name: String,
    admin: Client,
}

/// A server of a test's own; it ends with the test.
pub struct Server {
    folder: PathBuf,
    pub port: u16,
    options: String,
}

/// Where the programs are, and as whom they run.
struct Programs {
    place: String,
    folder: PathBuf,
    user: String,
}

impl Database {
    /// An empty one on the shared server.
    pub async fn new() -> Self {
        Self::on(&Programs::get().place).await
    }

    /// An empty one on the server at `place`, with a role of the same name that may do nothing yet.
    pub async fn on(place: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{}_{number}", std::process::id());
        let first = connect(place, "postgres", "postgres").await;
        first.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
        first.batch_execute(&format!("CREATE ROLE {name} LOGIN")).await.unwrap();
        let admin = connect(place, "postgres", &name).await;
        Self { place: place.to_owned(), name, admin }
    }

    /// Runs statements as its owner.
    pub async fn run(&self, script: &str) {
        let done = self.admin.batch_execute(script).await;
        done.unwrap_or_else(|error| panic!("{error:?} in {script}"));
    }

    /// The first column of the first row.
    pub async fn ask(&self, query: &str) -> String {
        use tokio_postgres::SimpleQueryMessage::Row;
        let rows = self.admin.simple_query(query).await.unwrap();
        let first = rows.iter().find_map(|message| match message {
            Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        first.unwrap_or_default()
    }

    /// Another connection of its owner.
    pub async fn connect(&self) -> Client {
        connect(&self.place, "postgres", &self.name).await
    }

    /// Another connection, as another role.
    pub async fn connect_as(&self, role: &str) -> Client {
        connect(&self.place, role, &self.name).await
    }

    /// A connection of its role, by way of `place`.
    pub async fn connect_by(&self, place: &str) -> Client {
        connect(place, &self.name, &self.name).await
    }

    /// Lets its role read these tables.
    pub async fn grant(&self, tables: &str) {
        let name = &self.name;
        self.run(&format!("GRANT SELECT ON {tables} TO {name}")).await;
    }

    /// How its role reaches it.
    pub fn url(&self) -> String {
        let Self { place, name, .. } = self;
        format!("postgres://{name}@{place}/{name}")
    }
}

impl Server {
    /// A server with further options, such as `-c ssl=on`.
    pub fn start(options: &str) -> Self {
        let programs = Programs::get();
        let made = programs.run("/", "mktemp", &["-d", "-t", "headcount-own-postgres.XXXXXX"]);
        let folder = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
        let server = Self { folder, port: free_port(), options: options.to_owned() };
        let data = server.data();
        server.program("initdb", &["-D", &data, "-A", "trust", "-U", "postgres", "-N"]);
        server.start_again();
        server
    }

    /// A standby of it that follows it.
    pub fn standby(&self) -> Self {
        let programs = Programs::get();
        let made = programs.run("/", "mktemp", &["-d", "-t", "headcount-own-postgres.XXXXXX"]);
        let folder = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
        let standby = Self { folder, port: free_port(), options: String::new() };
        let from = format!("host=127.0.0.1 port={} user=postgres", self.port);
        standby.program("pg_basebackup", &["-D", &standby.data(), "-d", &from, "-R", "-c", "fast"]);
        standby.start_again();
        standby
    }

    /// Starts it after it was killed.
    pub fn start_again(&self) {
        let (data, log) = (self.data(), self.folder.join("log").display().to_string());
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={} -c fsync=off {}",
            self.port,
            self.folder.display(),
            self.options
        );
        self.program("pg_ctl", &["-D", &data, "-w", "-s", "-l", &log, "-o", &options, "start"]);
    }

    /// Ends it at once.
    pub fn kill(&self) {
        self.program("pg_ctl", &["-D", &self.data(), "-w", "-s", "-m", "immediate", "stop"]);
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        self.program("pg_ctl", &["-D", &self.data(), "-w", "-s", "promote"]);
    }

    /// Writes a file into its folder, for it alone: a key, or what decides who may log in.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.folder.join(name);
        std::fs::write(&path, text).unwrap();
        let user = Programs::get().user;
        let path = path.to_str().unwrap();
        assert!(Command::new("chown").args([&user, path]).status().unwrap().success());
        assert!(Command::new("chmod").args(["600", path]).status().unwrap().success());
    }

    /// Reads its configuration again.
    pub fn reload(&self) {
        self.program("pg_ctl", &["-D", &self.data(), "-s", "reload"]);
    }

    /// `host:port`.
    pub fn place(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn data(&self) -> String {
        self.folder.join("data").display().to_string()
    }

    fn program(&self, name: &str, args: &[&str]) {
        let programs = Programs::get();
        let program = programs.folder.join(name).display().to_string();
        programs.run("/", &program, args);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let programs = Programs::get();
        let program = programs.folder.join("pg_ctl").display().to_string();
        // It may have been killed already.
        let _ = programs
            .command("/", &program, &["-D", &self.data(), "-m", "immediate", "stop"])
            .output();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Programs {
    fn get() -> Self {
        let value = |name: &str| setting("postgres", name);
        let folder = value("POSTGRES_BIN").into();
        Self { place: value("POSTGRES"), folder, user: value("POSTGRES_AS") }
    }

    /// A program as the user that PostgreSQL runs as.
    fn command(&self, folder: &str, program: &str, args: &[&str]) -> Command {
        let is_root = rustix::process::getuid().is_root();
        let mut command = if is_root {
            let mut command = Command::new("runuser");
            command.args(["-u", &self.user, "--", program]);
            command
        } else {
            Command::new(program)
        };
        command.args(args).current_dir(folder);
        command
    }

    fn run(&self, folder: &str, program: &str, args: &[&str]) -> Output {
        // `pg_ctl` leaves its output to the server, which never closes it.
        let is_server = args.contains(&"start");
        let mut command = self.command(folder, program, args);
        if is_server {
            use std::process::Stdio;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
        let output = command.output().expect("no PostgreSQL: run ./test.sh first");
        assert!(output.status.success(), "{program} {args:?}: {output:?}");
        output
    }
}

/// PgBouncer before a server, each transaction on whichever connection is free.
pub struct Pooler {
    folder: PathBuf,
    pub port: u16,
    child: std::process::Child,
}

impl Pooler {
    /// Starts one before the server at `place`, which lets these users in.
    pub async fn start(place: &str, users: &[&str]) -> Self {
        let programs = Programs::get();
        let made = programs.run("/", "mktemp", &["-d", "-t", "headcount-pgbouncer.XXXXXX"]);
        let folder = PathBuf::from(String::from_utf8_lossy(&made.stdout).trim());
        let (host, port) = place.split_once(':').unwrap();
        let own = free_port();
        let text = format!(
            "[databases]\n* = host={host} port={port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {own}\nunix_socket_dir =\nauth_type = trust\npool_mode = transaction\n\
             default_pool_size = 1\nauth_file = {0}/users\n",
            folder.display()
        );
        std::fs::write(folder.join("ini"), text).unwrap();
        let lines: String = users.iter().map(|user| format!("\"{user}\" \"\"\n")).collect();
        std::fs::write(folder.join("users"), lines).unwrap();
        let ini = folder.join("ini").display().to_string();
        let mut command = programs.command("/", "pgbouncer", &["-q", &ini]);
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let log = std::fs::File::create(folder.join("log")).unwrap();
        command.stdin(std::process::Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().expect("no pgbouncer: run ./test.sh first");
        let pooler = Self { folder, port: own, child };
        super::wait::until("pgbouncer listens", async || {
            std::net::TcpStream::connect(("127.0.0.1", own)).is_ok()
        })
        .await;
        pooler
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // `runuser` hands the signal on.
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A connection that lasts as long as its client.
async fn connect(place: &str, user: &str, database: &str) -> Client {
    let (host, port) = place.split_once(':').expect("a place is host:port");
    let mut config = Config::new();
    config.host(host).port(port.parse().unwrap()).user(user).dbname(database);
    let (client, connection) =
        config.connect(NoTls).await.expect("no PostgreSQL: run ./test.sh first");
    tokio::spawn(connection);
    client
}
