//! What goes wrong with PostgreSQL is told for what it is, nothing shrinks meanwhile, and afterwards
//! all is as before.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use headcount::budget::Budget;
use headcount::group::{Group, News, Parts};
use headcount::lease::{Held, Lease};
use headcount::queues::windmill::WindmillConfig;
use headcount::store::Store;
use headcount::targets::TargetConfig;
use headcount_core::policy::Policy;
use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::rules::{Bounds, Rules};
use headcount_core::{HostReading, Missing, Reading, Silence, Span};
use tokio::sync::broadcast;

use crate::support::certificates::certificates;
use crate::support::postgres::{Database, Server};
use crate::support::wait::until;
use crate::support::windmill::{Era, config, open};
use crate::support::workers::place;

/// A loop with four pretended workers that removes one at each tick, as soon as it knows that
/// nothing waits or runs.
struct Loop {
    folder: tempfile::TempDir,
    store: Arc<Store>,
    group: Group,
}

struct Ours;

#[async_trait::async_trait]
impl Lease for Ours {
    async fn hold(&mut self) -> Result<u64, Held> {
        Ok(1)
    }
}

impl Loop {
    fn new(config: &WindmillConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(folder.path(), 30));
        let host = |now, _| Reading::known(HostReading::default(), now);
        let target: TargetConfig =
            serde_json::from_value(serde_json::json!({ "dry_run": { "workers": 4 } })).unwrap();
        let short = Span::from_millis(100);
        let group = Group::new(Parts {
            name: "g".into(),
            memory: "g".into(),
            rules: Rules {
                workers: Bounds { min: 1, max: 4, ..Bounds::default() },
                policy: Policy::CpuAware(CpuAware {
                    poll: short,
                    cooldown: Span::ZERO,
                    idle: Span::ZERO,
                    ..CpuAware::default()
                }),
                settle: Some(Span::ZERO),
                ..Rules::default()
            },
            look: short,
            news: News::default(),
            queue: open(config),
            target: target.open(&place(folder.path(), "g")).unwrap(),
            host: Arc::new(host),
            store: Arc::clone(&store),
            lease: Box::new(Ours),
            metrics_list: None,
            budget: Arc::new(Budget::default()).member("g", None),
            ticks: broadcast::Sender::new(16),
            clock: Arc::new(headcount::clock::now),
        });
        Self { folder, store, group }
    }

    /// Looks for a while, and nothing is removed.
    async fn holds(&mut self) {
        for _ in 0..8 {
            self.group.tick().await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        assert_eq!(self.changes(), 0);
    }

    /// And when all is well again, something is.
    async fn shrinks(&mut self) {
        until("it shrinks", async || {
            self.group.tick().await;
            self.changes() > 0
        })
        .await;
    }

    fn changes(&self) -> usize {
        assert!(self.folder.path().is_dir());
        self.store.flush();
        self.store.events(None, None, 100).len()
    }
}

/// A database without jobs, and a group that listens to one tag.
async fn quiet(server: &Server) -> (Database, WindmillConfig) {
    let database = Database::on(&server.place()).await;
    Era::Latest.make(&database).await;
    let mut config = config(&database, "default");
    config.tags = vec!["bash".into()];
    (database, config)
}

async fn shared() -> (Database, WindmillConfig) {
    let database = Database::new().await;
    Era::Latest.make(&database).await;
    let mut config = config(&database, "default");
    config.tags = vec!["bash".into()];
    (database, config)
}

async fn fails(config: &WindmillConfig) -> Missing {
    let mut queue = open(config);
    let mut last = None;
    until("it fails", async || {
        last = queue.read().await.err();
        last.is_some()
    })
    .await;
    last.unwrap()
}

async fn reads(config: &WindmillConfig) {
    let mut queue = open(config);
    until("it reads again", async || queue.read().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_is_found_again() {
    let server = Server::start("");
    let (_database, config) = quiet(&server).await;
    reads(&config).await;
    server.kill();
    let lost = fails(&config).await;
    assert!([Silence::Refused, Silence::Unreachable].contains(&lost.why), "{lost}");
    assert!(lost.detail.contains(&server.place()), "{lost}");
    let mut group = Loop::new(&config);
    group.holds().await;
    server.start_again();
    group.shrinks().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_takes_too_long_is_ended_by_the_server() {
    let (database, mut config) = shared().await;
    config.statement_timeout = Span::from_millis(300);
    let mut locker = database.connect().await;
    let lock = locker.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE v2_job_queue").await.unwrap();
    let slow = fails(&config).await;
    assert_eq!(slow.why, Silence::Timeout, "{slow}");
    assert!(slow.detail.contains("statement timeout (57014)"), "{slow}");
    let mut group = Loop::new(&config);
    group.holds().await;
    lock.rollback().await.unwrap();
    group.shrinks().await;
    let left = database.ask("SELECT count(*) FROM pg_locks WHERE NOT granted").await;
    assert_eq!(left, "0", "nothing of ours still waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_taken_away_is_not_an_empty_queue() {
    let (database, config) = shared().await;
    reads(&config).await;
    let name = &database.name;
    database.run(&format!("REVOKE SELECT ON v2_job_queue FROM {name}")).await;
    let denied = fails(&config).await;
    assert_eq!(denied.why, Silence::Denied, "{denied}");
    assert!(
        denied.detail.contains("permission denied for table v2_job_queue (42501); `head"),
        "{denied}"
    );
    let mut group = Loop::new(&config);
    group.holds().await;
    database.run(&format!("GRANT SELECT ON v2_job_queue TO {name}")).await;
    group.shrinks().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_goes_is_missed_and_an_upgrade_is_followed() {
    let database = Database::new().await;
    Era::V1.make(&database).await;
    let mut config = config(&database, "default");
    config.tags = vec!["bash".into()];
    reads(&config).await;
    database.run("DROP TABLE queue CASCADE").await;
    let gone = fails(&config).await;
    assert_eq!(gone.why, Silence::NotFound, "{gone}");
    let mut group = Loop::new(&config);
    group.holds().await;
    // As if Windmill had been upgraded.
    database.run("DROP TABLE worker_ping, config; DROP FUNCTION add_job").await;
    Era::Latest.make(&database).await;
    group.shrinks().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_told_and_never_shown() {
    let server = Server::start("");
    let (database, mut config) = quiet(&server).await;
    let name = &database.name;
    let set = format!(
        "SET password_encryption = 'scram-sha-256'; ALTER ROLE {name} PASSWORD 'hush-hush'"
    );
    database.run(&set).await;
    server.write("data/pg_hba.conf", "host all all 127.0.0.1/32 scram-sha-256\n");
    server.reload();
    let none = fails(&config).await;
    assert_eq!(none.why, Silence::Denied, "{none}");
    config.password = Some("wrong-word".into());
    let wrong = fails(&config).await;
    assert_eq!(wrong.why, Silence::Denied, "{wrong}");
    assert!(wrong.detail.contains("password authentication failed"), "{wrong}");
    assert!(!wrong.detail.contains("wrong-word"), "{wrong}");
    Loop::new(&config).holds().await;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "hush-hush\n").unwrap();
    (config.password, config.password_file) = (None, Some(file));
    reads(&config).await;
    let url = database.url().replace('@', ":hush-hush@");
    let file = folder.path().join("url");
    std::fs::write(&file, url).unwrap();
    (config.url, config.url_file, config.password_file) = (None, Some(file), None);
    reads(&config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_will_do_and_takes_over() {
    let primary = Server::start("-c wal_level=replica");
    let (database, mut config) = quiet(&primary).await;
    database.run("SELECT add_job('bash', '1 m')").await;
    let standby = primary.standby();
    let name = &database.name;
    let alone = format!("postgres://{name}@{}/{name}", standby.place());
    let alone = WindmillConfig { url: Some(alone.as_str().into()), ..config.clone() };
    let stale = fails(&alone).await;
    assert_eq!(stale.why, Silence::Stale, "{stale}");
    assert!(stale.detail.contains("this standby has followed no change yet"), "{stale}");
    Loop::new(&alone).holds().await;
    database.run("CREATE TABLE mark ()").await;
    reads(&alone).await;
    let both = format!("postgres://{name}@{},{}/{name}", primary.place(), standby.place());
    config.url = Some(both.as_str().into());
    let mut queue = open(&config);
    assert_eq!(queue.read().await.unwrap().reading.waiting, 1);
    primary.kill();
    until("the standby answers", async || {
        queue.check().await.iter().any(|found| found.what.contains("is a standby"))
    })
    .await;
    assert_eq!(queue.read().await.unwrap().reading.waiting, 1);
    standby.promote();
    until("it is a primary", async || {
        let found = queue.check().await;
        found.len() > 2 && !found.iter().any(|found| found.what.contains("is a standby"))
    })
    .await;
    assert_eq!(queue.read().await.unwrap().reading.waiting, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_swallows_everything_costs_its_share_of_the_time() {
    let (database, mut config) = shared().await;
    let hole = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (name, hole) = (&database.name, hole.local_addr().unwrap());
    let both = format!("postgres://{name}@{hole},{}/{name}", database.place);
    config.url = Some(both.as_str().into());
    assert!(open(&config).read().await.is_ok());
    config.url = Some(format!("postgres://{name}@{hole}/{name}").as_str().into());
    config.connect_timeout = Span::from_millis(300);
    let silent = fails(&config).await;
    assert_eq!(silent.why, Silence::Timeout, "{silent}");
    assert!(silent.detail.ends_with("no answer within 300 ms"), "{silent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_reads_will_do() {
    let (database, config) = shared().await;
    let name = &database.name;
    database.run(&format!("ALTER ROLE {name} SET default_transaction_read_only = on")).await;
    reads(&config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_believes_whom_the_mode_says() {
    let server = Server::start("");
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let (_database, plain) = quiet(&server).await;
    for (from, to) in [("server.pem", "data/server.crt"), ("server.key", "data/server.key")] {
        server.write(to, &std::fs::read_to_string(folder.path().join(from)).unwrap());
    }
    server.write("data/postgresql.auto.conf", "ssl = on\n");
    server.write("data/pg_hba.conf", "hostssl all all 127.0.0.1/32 trust\n");
    server.reload();
    let ca = Some(folder.path().join("ca.pem"));
    let url = plain.url.clone().unwrap().expose().to_owned();
    let with = |mode: &str, host: &str, ca_file| {
        let url = url.replace("127.0.0.1", host);
        let url = Some(format!("{url}{mode}").as_str().into());
        WindmillConfig { url, ca_file, ..plain.clone() }
    };
    let by_name = "127.0.0.1";
    for (mode, host, ca, is_fine) in [
        ("", by_name, None, true),
        ("?sslmode=require", by_name, None, true),
        ("?sslmode=require", by_name, ca.clone(), true),
        ("", by_name, ca.clone(), true),
        ("?sslmode=verify-full", by_name, ca.clone(), true),
        ("?sslmode=verify-full", by_name, None, false),
        ("?sslmode=verify-full", "localhost", ca.clone(), false),
        ("?sslmode=verify-ca", "localhost", ca.clone(), true),
        ("?sslmode=verify-ca", "localhost", None, false),
    ] {
        let config = with(mode, host, ca);
        let seen = open(&config).read().await;
        match seen {
            Ok(_) => assert!(is_fine, "{mode} {host}"),
            Err(missing) => {
                assert!(
                    !is_fine && missing.why == Silence::Unreachable,
                    "{mode} {host}: {missing}"
                );
                assert!(missing.detail.contains("certificate"), "{missing}");
            }
        }
    }
    let refused = fails(&with("?sslmode=disable", by_name, None)).await;
    assert_eq!(refused.why, Silence::Denied, "{refused}");
    assert!(refused.detail.contains("no encryption"), "{refused}");

    server.write("data/ca.pem", &std::fs::read_to_string(folder.path().join("ca.pem")).unwrap());
    server.write("data/postgresql.auto.conf", "ssl = on\nssl_ca_file = 'ca.pem'\n");
    server.write("data/pg_hba.conf", "hostssl all all 127.0.0.1/32 trust clientcert=verify-ca\n");
    server.reload();
    let alone = with("?sslmode=verify-full", by_name, ca.clone());
    let refused = fails(&alone).await;
    assert!(refused.detail.contains("certificate"), "{refused}");
    let own = |name: &str| folder.path().join(name);
    let (cert_file, key_file) = (Some(own("client.pem")), Some(own("client.key")));
    reads(&WindmillConfig { cert_file, key_file, ..alone }).await;
    let both = format!(
        "?sslmode=require&sslcert={}&sslkey={}",
        own("client.pem").display(),
        own("client.key").display()
    );
    reads(&with(&both, by_name, None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_differ_change_nothing_and_are_told() {
    let database = Era::Latest.seeded().await;
    let name = &database.name;
    // The database's clock is an hour ahead, by which all its rows were written.
    let shift = "UPDATE worker_ping SET ping_at = ping_at + '1 h', started_at = started_at + '1 h'; \
         UPDATE v2_job_queue SET scheduled_for = scheduled_for + '1 h', started_at = started_at + '1 h', \
           suspend_until = suspend_until + '1 h'; \
         UPDATE v2_job_runtime SET ping = ping + '1 h'; \
         CREATE FUNCTION now() RETURNS timestamptz STABLE LANGUAGE sql AS \
           'SELECT pg_catalog.now() + interval ''1 h'''; \
         CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS \
           'SELECT pg_catalog.clock_timestamp() + interval ''1 h'''";
    database.run(shift).await;
    database.run(&format!("ALTER ROLE {name} SET search_path = public, pg_catalog")).await;
    let mut queue = open(&config(&database, "default"));
    let reading = queue.read().await.unwrap().reading;
    assert_eq!((reading.waiting, reading.active), (10, 2));
    assert!(reading.oldest_wait.unwrap() < Span::from_secs(200), "{reading:?}");
    let found = queue.check().await;
    let skewed = found.iter().find(|f| f.what.contains("s ahead of this machine's"));
    assert!(skewed.is_some_and(|f| f.what.contains("36")), "{found:#?}");
}
