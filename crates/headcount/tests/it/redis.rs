//! The connection to Redis in every form, and what becomes of it when Redis goes away.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use headcount::config::MetricsList;
use headcount::metrics_list::{MetricsListWriter, Snapshot};
use headcount::queues::Identity;
use headcount::queues::bull::BullConfig;
use headcount::queues::redis::{ClusterConfig, RedisConfig, RedisTls, SentinelConfig};
use headcount_core::{Missing, Silence, Span};

use crate::support::certificates::certificates;
use crate::support::redis::{PATIENCE, Standin, TestRedis, free_port, open, sees};
use crate::support::wait::until;

/// One look at the queue in this Redis: how many wait.
async fn look(redis: &RedisConfig) -> Result<u64, Missing> {
    let config = BullConfig { redis: redis.clone(), ..BullConfig::default() };
    open(&config).read().await.map(|seen| seen.reading.waiting)
}

#[tokio::test]
async fn a_password_is_needed_and_never_shown() {
    let redis = TestRedis::with(&["--requirepass", "hush-hush"]);
    redis.standin_with(&["fire", "2"], &[("QUEUE_BULL_REDIS_PASSWORD", "hush-hush")]);
    let without = look(&redis.config()).await.unwrap_err();
    assert_eq!(without.why, Silence::Denied, "{without}");
    let wrong = RedisConfig { password: Some("wrong-word".into()), ..redis.config() };
    let wrong = look(&wrong).await.unwrap_err();
    assert_eq!(wrong.why, Silence::Denied, "{wrong}");
    assert!(!wrong.to_string().contains("wrong-word"));

    let right = RedisConfig { password: Some("hush-hush".into()), ..redis.config() };
    assert_eq!(look(&right).await, Ok(2));
    std::fs::write(redis.path("secret"), "hush-hush\n").unwrap();
    let file = RedisConfig { password_file: Some(redis.path("secret")), ..redis.config() };
    assert_eq!(look(&file).await, Ok(2));
    let url = format!("redis://:hush-hush@127.0.0.1:{}/0", redis.port());
    assert_eq!(look(&RedisConfig { url, ..RedisConfig::default() }).await, Ok(2));
}

#[tokio::test]
async fn a_unix_socket_and_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock");
    let redis = TestRedis::with(&["--unixsocket", socket.to_str().unwrap()]);
    redis.standin_with(&["fire", "2"], &[("STANDIN_SOCKET", socket.to_str().unwrap())]);
    let at = |url: String| RedisConfig { url, ..RedisConfig::default() };
    assert_eq!(look(&at(format!("unix://{}", socket.display()))).await, Ok(2));
    assert_eq!(look(&at(format!("unix://{}?db=3", socket.display()))).await, Ok(0));
    assert_eq!(look(&at(format!("redis://127.0.0.1:{}/3", redis.port()))).await, Ok(0));
    let gone = look(&at(format!("unix://{}x", socket.display()))).await.unwrap_err();
    assert_eq!(gone.why, Silence::Refused, "{gone}");
}

#[tokio::test]
async fn tls_believes_only_its_authority() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let port = free_port();
    let file = |name: &str| folder.path().join(name);
    let text = |name: &str| file(name).to_str().unwrap().to_owned();
    let redis = TestRedis::with(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &text("server.pem"),
        "--tls-key-file",
        &text("server.key"),
        "--tls-ca-cert-file",
        &text("ca.pem"),
        "--tls-auth-clients",
        "optional",
    ]);
    redis.standin(&["fire", "2"]);
    let secure = |tls: Option<RedisTls>| RedisConfig {
        url: format!("rediss://127.0.0.1:{port}"),
        tls,
        ..RedisConfig::default()
    };
    let with_ca = RedisTls { ca_file: Some(file("ca.pem")), ..RedisTls::default() };
    assert_eq!(look(&secure(Some(with_ca.clone()))).await, Ok(2));
    let insecure = RedisTls { insecure: true, ..RedisTls::default() };
    assert_eq!(look(&secure(Some(insecure))).await, Ok(2));
    let stranger = look(&secure(None)).await.unwrap_err();
    assert_eq!(stranger.why, Silence::Unreachable, "{stranger}");
    assert!(stranger.detail.contains("certificate"), "{stranger}");
    let plain = RedisConfig { url: format!("redis://127.0.0.1:{port}"), ..RedisConfig::default() };
    assert!(look(&plain).await.is_err());

    redis.cli(&["CONFIG", "SET", "tls-auth-clients", "yes"]);
    assert!(look(&secure(Some(with_ca.clone()))).await.is_err(), "it wants our certificate");
    let ours = RedisTls {
        cert_file: Some(file("client.pem")),
        key_file: Some(file("client.key")),
        ..with_ca
    };
    assert_eq!(look(&secure(Some(ours))).await, Ok(2));
}

#[tokio::test]
async fn redis_down_at_the_start_and_later_is_found_again() {
    let mut redis = TestRedis::start();
    redis.kill();
    let mut queue = redis.queue();
    assert_eq!(queue.read().await.unwrap_err().why, Silence::Refused);
    redis.restart();
    sees(&mut queue, "redis up", |seen| seen.reading.waiting == 0).await;
    redis.kill();
    let lost = queue.read().await.unwrap_err();
    assert!([Silence::Refused, Silence::Unreachable].contains(&lost.why), "{lost}");
    redis.restart();
    redis.standin(&["fire", "3"]);
    sees(&mut queue, "redis up again", |seen| seen.reading.waiting == 3).await;
}

#[tokio::test]
async fn a_frozen_redis_is_a_timeout_within_the_limit() {
    let redis = TestRedis::start();
    let config = RedisConfig { reply_timeout: Span::from_millis(500), ..redis.config() };
    let mut queue = open(&BullConfig { redis: config, ..BullConfig::default() });
    queue.read().await.unwrap();
    redis.freeze();
    for _ in 0..2 {
        let began = Instant::now();
        let missing = queue.read().await.unwrap_err();
        assert_eq!(missing.why, Silence::Timeout, "{missing}");
        assert!(began.elapsed() < Duration::from_secs(5));
    }
    redis.thaw();
    sees(&mut queue, "redis thawed", |seen| seen.reading.waiting == 0).await;
}

#[tokio::test]
async fn what_is_no_redis_is_malformed_and_what_has_no_name_unreachable() {
    let http = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", http.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in http.incoming().flatten() {
            let _ = stream.read(&mut [0; 512]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let missing = look(&RedisConfig { url, ..RedisConfig::default() }).await.unwrap_err();
    assert_eq!(missing.why, Silence::Malformed, "{missing}");
    let url = "redis://no-such-host.invalid:6379".to_owned();
    let missing = look(&RedisConfig { url, ..RedisConfig::default() }).await.unwrap_err();
    assert!([Silence::Unreachable, Silence::Timeout].contains(&missing.why), "{missing}");
}

#[tokio::test]
async fn sentinel_leads_to_the_master_of_the_moment() {
    let mut master = TestRedis::start();
    let replica = TestRedis::with(&["--replicaof", &format!("127.0.0.1 {}", master.port())]);
    let watch = TestRedis::sentinel(&format!(
        "sentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 500\n\
         sentinel failover-timeout main 3000\n",
        master.port()
    ));
    master.standin(&["fire", "2"]);
    let config = RedisConfig {
        sentinel: Some(SentinelConfig {
            nodes: vec!["127.0.0.1:1".into(), format!("127.0.0.1:{}", watch.port())],
            master: "main".into(),
            ..SentinelConfig::default()
        }),
        ..RedisConfig::default()
    };
    let mut queue = open(&BullConfig { redis: config.clone(), ..BullConfig::default() });
    sees(&mut queue, "the master's jobs", |seen| seen.reading.waiting == 2).await;
    let count = || replica.cli(&["LLEN", "bull:jobs:wait"]);
    until("the replica follows", async || count() == "2").await;
    until("sentinel knows the replica", async || {
        watch.cli(&["SENTINEL", "REPLICAS", "main"]).contains(&replica.port().to_string())
    })
    .await;

    master.kill();
    assert!(queue.read().await.is_err());
    until("the replica is promoted", async || replica.cli(&["ROLE"]).starts_with("master")).await;
    replica.standin(&["fire", "1"]);
    sees(&mut queue, "the new master's jobs", |seen| seen.reading.waiting == 3).await;

    let mut unknown = config;
    unknown.sentinel.as_mut().unwrap().master = "other".into();
    unknown.sentinel.as_mut().unwrap().nodes.remove(0);
    let missing = look(&unknown).await.unwrap_err();
    assert_eq!(missing.why, Silence::NotFound, "{missing}");
}

#[tokio::test]
async fn a_cluster_holds_the_queue_under_a_hash_tag() {
    let nodes: Vec<_> = (0..3).map(|_| TestRedis::with(&["--cluster-enabled", "yes"])).collect();
    let places: Vec<_> = nodes.iter().map(|n| format!("127.0.0.1:{}", n.port())).collect();
    let create =
        [&["--cluster", "create"], &*places.iter().map(String::as_str).collect::<Vec<_>>()];
    let made = nodes[0].cli(&[&create.concat()[..], &["--cluster-yes"]].concat());
    assert!(made.contains("All 16384 slots covered"), "{made}");
    let list = places.join(",");
    let env = [("QUEUE_BULL_REDIS_CLUSTER_NODES", list.as_str())];

    let redis = RedisConfig {
        cluster: Some(ClusterConfig { nodes: vec![places[1].clone()] }),
        ..RedisConfig::default()
    };
    let mut queue = open(&BullConfig { redis: redis.clone(), ..BullConfig::default() });
    sees(&mut queue, "an empty cluster", |seen| seen.reading.waiting == 0).await;
    let wakes = queue.wakes().unwrap();
    tokio::time::timeout(PATIENCE, wakes.notified()).await.unwrap();

    nodes[0].standin_with(&["fire", "3", "2000"], &env);
    tokio::time::timeout(PATIENCE, wakes.notified()).await.expect("a job wakes");
    sees(&mut queue, "three waiting", |seen| seen.reading.waiting == 3).await;
    let worker: Standin = nodes[0].worker("aaaaaaaaaaaa", &env).await;
    worker.says("started execution").await;
    let is_peer = |name: &Identity| matches!(name, Identity::Peer(_));
    let seen = sees(&mut queue, "one active, its worker's answer and its connection", |seen| {
        let mut busy = seen.consumers.iter().flatten().filter(|c| c.busy == Some(true));
        let by_connection = busy.clone().any(|c| c.known_as.iter().any(is_peer));
        let by_answer = busy.any(|c| !c.known_as.iter().any(is_peer));
        seen.reading.active == 1 && by_connection && by_answer
    })
    .await;
    assert!(seen.reading.tags.contains_key("priority_100"));
    assert!(seen.consumers.iter().flatten().all(|consumer| !consumer.draining), "{seen:#?}");

    let acme = BullConfig { redis, prefix: "acme".into(), ..BullConfig::default() };
    let missing = open(&acme).read().await.unwrap_err();
    assert!(missing.detail.contains("queues that exist: {bull}:jobs"), "{missing}");
}

fn snapshot(ts: f64) -> Snapshot {
    Snapshot { ts, cpu_raw: 41.5, cpu_ema: 40.0, workers: 2, waiting: 3, active: 1 }
}

#[tokio::test]
async fn the_compatible_list_is_written_newest_first_and_cut() {
    let mut redis = TestRedis::start();
    let list = MetricsList { redis: redis.config(), key: "autoscaler:metrics".into(), keep: 3 };
    let mut writer = MetricsListWriter::new(&list, Path::new("/")).unwrap();
    for ts in 1..=5 {
        writer.push(&snapshot(f64::from(ts))).await;
    }
    let kept = redis.cli(&["LRANGE", "autoscaler:metrics", "0", "-1"]);
    let kept: Vec<_> = kept.lines().collect();
    assert_eq!(kept.len(), 3);
    assert_eq!(
        kept[0],
        r#"{"ts":5.0,"cpu_raw":41.5,"cpu_ema":40.0,"workers":2,"waiting":3,"active":1}"#
    );

    redis.freeze();
    let began = Instant::now();
    writer.push(&snapshot(6.0)).await;
    assert!(began.elapsed() < Duration::from_secs(4), "a frozen redis holds nobody up");
    redis.thaw();
    redis.kill();
    writer.push(&snapshot(7.0)).await;
    redis.restart();
    let length = || redis.cli(&["LLEN", "autoscaler:metrics"]);
    until("the list is written again", async || {
        writer.push(&snapshot(8.0)).await;
        length() != "0"
    })
    .await;
}
