//! The Bull queue on a real Redis, with the real Bull in the stand-in for n8n.

use std::time::Duration;

use headcount::clock;
use headcount::finding::Level;
use headcount::queues::bull::BullConfig;
use headcount::queues::redis::RedisConfig;
use headcount::queues::{Consumer, Identity, QueueSeen};
use headcount_core::{Silence, Span};
use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use crate::support::redis::{PATIENCE, TestRedis, open, sees};
use crate::support::wait::until;

fn consumers(seen: &QueueSeen) -> &[Consumer] {
    seen.consumers.as_deref().unwrap_or_default()
}

/// The consumer that is the worker of this name.
fn named<'a>(seen: &'a QueueSeen, name: &str) -> Option<&'a Consumer> {
    let container = Identity::Container(name.into());
    consumers(seen).iter().find(|consumer| consumer.known_as.contains(&container))
}

/// The consumers known by their connections only.
fn connections(seen: &QueueSeen) -> impl Iterator<Item = &Consumer> {
    let is_peer = |name: &Identity| matches!(name, Identity::Peer(_));
    consumers(seen).iter().filter(move |consumer| consumer.known_as.iter().any(is_peer))
}

#[tokio::test]
async fn jobs_are_counted_from_waiting_to_finished() {
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    redis.standin(&["fire", "3", "300"]);
    redis.standin(&["fire", "2", "300", "50"]);

    let waiting = queue.read().await.unwrap();
    assert_eq!((waiting.reading.waiting, waiting.reading.active), (5, 0));
    let tags: Vec<_> = waiting.reading.tags.clone().into_iter().collect();
    assert_eq!(tags, [("priority_100".to_owned(), 3), ("priority_50".to_owned(), 2)]);
    assert_eq!(waiting.reading.waits.len(), 5);
    assert_eq!(waiting.reading.oldest_wait, waiting.reading.waits.first().copied());
    assert_eq!(waiting.consumers, None, "nobody is there");

    let _worker = redis.worker("0123456789ab", &[]).await;
    let busy = sees(&mut queue, "an active job with its age", |seen| {
        seen.reading.active == 1 && seen.reading.ages.len() == 1
    })
    .await;
    assert!(busy.reading.waiting < 5);

    let mut durations = Vec::new();
    let done = sees(&mut queue, "all jobs finished", |seen| {
        durations.extend(seen.reading.durations.clone());
        seen.reading.finished_total == Some(5)
    })
    .await;
    durations.extend(queue.read().await.unwrap().reading.durations);
    assert_eq!((done.reading.waiting, done.reading.active), (0, 0));
    assert_eq!((done.reading.oldest_wait, done.reading.tags.len()), (None, 0));
    assert_eq!(durations.len(), 5, "{durations:?}");
    let real = Span::from_millis(250)..Span::from_secs(20);
    assert!(durations.iter().all(|d| real.contains(d)), "{durations:?}");
}

#[tokio::test]
async fn of_each_finished_job_it_is_told_when_it_came_started_and_ended() {
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    // It waits before anybody listens: when it came is known from a look while it runs.
    redis.standin(&["fire", "1", "2000"]);
    let before = clock::now();
    queue.read().await.unwrap();
    assert_eq!(queue.finished(), []);
    let _worker = redis.worker("0123456789ab", &[]).await;
    sees(&mut queue, "an active job", |seen| seen.reading.active == 1).await;
    redis.standin(&["fire", "2", "50"]);
    let mut found = Vec::new();
    until("three finished jobs", async || {
        queue.read().await.unwrap();
        found.extend(queue.finished());
        found.len() == 3
    })
    .await;
    assert!(found[0].came < before && found[1].came >= found[0].started, "{found:?}");
    for job in &found {
        assert!(job.came <= job.started && job.started <= job.ended, "{found:?}");
    }
    assert!(found[0].ended.since(found[0].started) >= Span::from_millis(1900), "{found:?}");
    assert_eq!(queue.finished(), [], "told once");
}

#[tokio::test]
async fn the_job_of_a_killed_worker_is_an_orphan_and_not_active() {
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    let brief = [("QUEUE_WORKER_LOCK_DURATION", "1000"), ("QUEUE_WORKER_LOCK_RENEW_TIME", "300")];
    let worker = redis.worker("0123456789ab", &brief).await;
    redis.standin(&["fire", "1", "60000"]);
    sees(&mut queue, "the job active", |seen| seen.reading.active == 1).await;

    worker.signal(Signal::KILL);
    let seen = sees(&mut queue, "an orphan", |seen| seen.reading.orphaned == Some(1)).await;
    assert_eq!((seen.reading.active, seen.reading.waiting), (0, 0));
    assert_eq!(seen.reading.ages.len(), 0);

    let findings = queue.check().await;
    assert!(
        findings.iter().any(|f| f.level == Level::Warning && f.what.contains("has no lock")),
        "{findings:#?}"
    );
}

#[tokio::test]
async fn a_paused_queue_has_no_demand_and_says_so() {
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    redis.standin(&["fire", "3"]);
    redis.standin(&["pause"]);
    let seen = queue.read().await.unwrap();
    assert_eq!((seen.reading.waiting, seen.reading.paused), (0, Some(true)));
    assert_eq!(seen.reading.held, Some(3));
    let findings = queue.check().await;
    let paused = findings.iter().any(|f| f.what.contains("is paused: 3 jobs wait in it"));
    assert!(paused, "{findings:#?}");

    redis.standin(&["resume"]);
    let seen = queue.read().await.unwrap();
    assert_eq!((seen.reading.waiting, seen.reading.paused), (3, Some(false)));
    assert_eq!(seen.reading.held, None);
}

#[tokio::test]
async fn delayed_jobs_wait_from_the_moment_they_are_due() {
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    redis.standin(&["later", "2", "600000"]);
    redis.standin(&["later", "1", "1000"]);
    let seen = sees(&mut queue, "one due", |seen| seen.reading.waiting == 1).await;
    assert_eq!(seen.reading.delayed, Some(2));
}

#[tokio::test]
async fn a_wrong_name_tells_the_queues_that_exist() {
    let redis = TestRedis::start();
    let empty = redis.queue().read().await.unwrap();
    assert_eq!((empty.reading.waiting, empty.reading.active), (0, 0), "a fresh n8n is no mistake");

    // Not ours, and not Bull's.
    redis.cli(&["SET", "user:7:id", "7"]);
    assert!(redis.queue().read().await.is_ok());

    redis.standin_with(&["fire", "2"], &[("QUEUE_BULL_PREFIX", "acme")]);
    redis.standin_with(&["fire", "1"], &[("STANDIN_QUEUE", "reports")]);
    let missing = redis.queue().read().await.unwrap_err();
    assert_eq!(missing.why, Silence::NotFound);
    let end = "has no queue bull:jobs; queues that exist: acme:jobs, bull:reports";
    assert!(missing.detail.ends_with(end), "{missing}");
    let findings = redis.queue().check().await;
    assert_eq!(findings.len(), 1, "{findings:#?}");
    assert_eq!(findings[0].level, Level::Problem);
    assert!(findings[0].fix.as_deref().unwrap().contains("QUEUE_BULL_PREFIX"));

    let acme = BullConfig { redis: redis.config(), prefix: "acme".into(), ..BullConfig::default() };
    assert_eq!(open(&acme).read().await.unwrap().reading.waiting, 2);
    redis.standin(&["fire", "1"]);
    assert_eq!(redis.queue().read().await.unwrap().reading.waiting, 1);
}

#[tokio::test]
async fn exactly_the_idle_one_of_two_workers_is_idle() {
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    let names = ["aaaaaaaaaaaa", "bbbbbbbbbbbb"];
    let first = redis.worker(names[0], &[]).await;
    let second = redis.worker(names[1], &[]).await;
    // A worker says that it is ready a moment before it waits for its first job.
    sees(&mut queue, "two answers and two connections, all idle", |seen| {
        let all = seen.consumers.as_deref().unwrap_or_default();
        all.len() == 4 && all.iter().all(|consumer| consumer.busy == Some(false))
    })
    .await;

    redis.standin(&["fire", "1", "30000"]);
    let seen = sees(&mut queue, "one of two busy", |seen| {
        let mut busy: Vec<_> = names.iter().map(|n| named(seen, n).and_then(|c| c.busy)).collect();
        busy.sort_unstable();
        let mut free: Vec<_> = connections(seen).map(|c| c.busy).collect();
        free.sort_unstable();
        busy == [Some(false), Some(true)] && free == busy
    })
    .await;
    let age = |name| named(&seen, name).and_then(|consumer| consumer.oldest_job);
    assert_eq!(names.iter().filter(|name| age(name).is_some()).count(), 1, "{seen:#?}");
    sees(&mut queue, "the age of its job", |seen| {
        let ages = names.iter().filter_map(|name| named(seen, name)?.oldest_job);
        ages.max().is_some_and(|age| (1..30).contains(&age.as_secs()))
    })
    .await;
    let runs = if named(&seen, names[0]).unwrap().busy == Some(true) { first } else { second };
    runs.says("started execution").await;
}

#[tokio::test]
async fn a_worker_told_to_go_is_draining_once_it_leaves_a_free_slot_unused() {
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    let env = [
        ("N8N_CONCURRENCY_PRODUCTION_LIMIT", "2"),
        ("STANDIN_ADDRESS", "127.0.0.1"),
        ("N8N_GRACEFUL_SHUTDOWN_TIMEOUT", "120"),
    ];
    let mut worker = redis.worker("aaaaaaaaaaaa", &env).await;
    redis.standin(&["fire", "1", "30000"]);
    sees(&mut queue, "a busy worker that asks for more", |seen| {
        consumers(seen).iter().any(|c| c.busy == Some(true) && c.consuming == Some(true))
    })
    .await;
    // It takes a few looks to be sure that it asked for more while it ran one.
    for _ in 0..25 {
        sleep(Duration::from_millis(200)).await;
        queue.read().await.unwrap();
    }
    worker.signal(Signal::TERM);
    let seen = sees(&mut queue, "a draining worker", |seen| {
        consumers(seen).iter().any(|consumer| consumer.draining)
    })
    .await;
    assert_eq!(named(&seen, "aaaaaaaaaaaa").and_then(|consumer| consumer.busy), Some(true));
    sees(&mut queue, "nobody", |seen| seen.consumers.is_none()).await;
    worker.says("finished execution").await;
    assert_eq!(worker.ended(), Some(0));
}

#[tokio::test]
async fn busy_workers_that_lost_their_connections_stay_busy_and_are_not_draining() {
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    let names = ["aaaaaaaaaaaa", "bbbbbbbbbbbb"];
    let _first = redis.worker(names[0], &[]).await;
    let _second = redis.worker(names[1], &[]).await;
    redis.standin(&["fire", "2", "120000"]);
    let both_busy = |seen: &QueueSeen| {
        names.iter().all(|name| named(seen, name).is_some_and(|c| c.busy == Some(true)))
            && connections(seen).count() == 2
    };
    sees(&mut queue, "two busy workers", both_busy).await;
    let before = redis.cli(&["CLIENT", "LIST", "TYPE", "NORMAL"]);
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    sees(&mut queue, "both again", both_busy).await;
    assert_ne!(before, redis.cli(&["CLIENT", "LIST", "TYPE", "NORMAL"]));
    // Longer than it takes to be sure of a draining one.
    for _ in 0..60 {
        sleep(Duration::from_millis(200)).await;
        let seen = sees(&mut queue, "both busy", both_busy).await;
        for consumer in connections(&seen) {
            assert!(!consumer.draining && consumer.consuming == Some(true), "{seen:#?}");
            assert_ne!(consumer.busy, Some(false), "{seen:#?}");
        }
    }
}

#[tokio::test]
async fn a_stuck_worker_is_unknown_and_not_idle() {
    let redis = TestRedis::start();
    let config = BullConfig { redis: redis.config(), slots: Some(2), ..BullConfig::default() };
    let mut queue = open(&config);
    let two = [("N8N_CONCURRENCY_PRODUCTION_LIMIT", "2")];
    let worker = redis.worker("aaaaaaaaaaaa", &two).await;
    redis.standin(&["fire", "1", "60000"]);
    worker.says("started execution").await;
    let seen = queue.read().await.unwrap();
    assert_eq!(named(&seen, "aaaaaaaaaaaa").unwrap().busy, Some(true));

    worker.signal(Signal::STOP);
    let seen = sees(&mut queue, "no answer", |seen| named(seen, "aaaaaaaaaaaa").is_none()).await;
    assert_eq!(connections(&seen).map(|c| c.busy).collect::<Vec<_>>(), [None]);

    worker.signal(Signal::CONT);
    sees(&mut queue, "the answer again", |seen| {
        named(seen, "aaaaaaaaaaaa").is_some_and(|consumer| consumer.busy == Some(true))
    })
    .await;
}

#[tokio::test]
async fn workers_of_one_name_are_told_apart_by_their_connections_only() {
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    let _first = redis.worker("same", &[]).await;
    let _second = redis.worker("same", &[]).await;
    let seen = sees(&mut queue, "two answers", |seen| {
        consumers(seen).iter().filter(|c| c.known_as.is_empty()).count() == 2
    })
    .await;
    assert_eq!(connections(&seen).count(), 2);
    let findings = queue.check().await;
    assert!(findings.iter().any(|f| f.what.contains("share a name")), "{findings:#?}");
}

#[tokio::test]
async fn a_new_job_wakes_also_after_redis_was_away() {
    let mut redis = TestRedis::start();
    let mut queue = redis.queue();
    let wakes = queue.wakes().unwrap();
    queue.read().await.unwrap();
    // The subscription itself rings once, as something may have been missed.
    timeout(PATIENCE, wakes.notified()).await.unwrap();
    redis.standin(&["fire", "1"]);
    timeout(PATIENCE, wakes.notified()).await.expect("a job wakes");

    redis.kill();
    assert!(queue.read().await.is_err());
    redis.restart();
    timeout(PATIENCE, wakes.notified()).await.expect("a new subscription rings");
    sleep(Duration::from_millis(1500)).await;
    redis.standin(&["fire", "1"]);
    timeout(PATIENCE, wakes.notified()).await.expect("a job wakes again");
}

#[tokio::test]
async fn with_few_rights_the_numbers_stay_right_and_the_losses_are_named() {
    let redis = TestRedis::start();
    let acl = "ACL SETUSER watcher on >hush ~bull:* &nothing +@read -scan +ping +info";
    redis.cli(&acl.split(' ').collect::<Vec<_>>());
    let mut config = BullConfig { redis: redis.config(), ..BullConfig::default() };
    config.redis.username = Some("watcher".into());
    config.redis.password = Some("hush".into());
    let mut queue = open(&config);
    let wakes = queue.wakes().unwrap();
    let _worker = redis.worker("aaaaaaaaaaaa", &[]).await;

    assert_eq!(queue.read().await.unwrap().reading.waiting, 0);
    let _ = timeout(Duration::from_secs(3), wakes.notified()).await;
    redis.standin(&["fire", "3", "60000"]);
    timeout(PATIENCE, wakes.notified()).await.expect("a light look wakes");
    let seen = sees(&mut queue, "one active, two waiting", |seen| {
        let QueueSeen { reading, .. } = seen;
        (reading.waiting, reading.active, reading.ages.len(), reading.waits.len()) == (2, 1, 1, 2)
    })
    .await;
    assert_eq!(seen.consumers, None);
    assert_eq!(seen.reading.finished_total, Some(0));

    let findings = queue.check().await;
    for loss in ["scripts are refused", "connections cannot", "cannot be asked", "cannot be heard"]
    {
        let found = findings.iter().find(|f| f.what.contains(loss));
        let found = found.unwrap_or_else(|| panic!("{loss} is missing: {findings:#?}"));
        assert!(found.fix.as_deref().unwrap().contains("ACL SETUSER"), "{found:?}");
    }
    assert!(!format!("{findings:?}").contains("hush"));
}

#[tokio::test]
async fn a_changed_password_in_a_file_is_taken_up() {
    let redis = TestRedis::with(&["--requirepass", "old"]);
    let file = redis.path("password");
    std::fs::write(&file, "old\n").unwrap();
    let mut config = BullConfig { redis: redis.config(), ..BullConfig::default() };
    config.redis.password_file = Some(file.clone());
    let mut queue = open(&config);
    queue.read().await.unwrap();
    redis.cli(&["-a", "old", "CONFIG", "SET", "requirepass", "new"]);
    redis.cli(&["-a", "new", "CLIENT", "KILL", "TYPE", "normal"]);
    redis.cli(&["-a", "new", "CLIENT", "KILL", "TYPE", "pubsub"]);
    crate::support::wait::until("the old password is refused", async || {
        queue.read().await.is_err_and(|missing| missing.why == Silence::Denied)
    })
    .await;
    std::fs::write(&file, "new\n").unwrap();
    let worker = [("QUEUE_BULL_REDIS_PASSWORD", "new")];
    let _worker = redis.worker("aaaaaaaaaaaa", &worker).await;
    // The subscription is healed too: it hears what the worker says.
    sees(&mut queue, "the worker's answer", |seen| named(seen, "aaaaaaaaaaaa").is_some()).await;
}

#[tokio::test]
async fn a_user_who_may_not_read_the_queue_is_denied() {
    let redis = TestRedis::start();
    redis.standin(&["fire", "1"]);
    redis.cli(&["ACL", "SETUSER", "watcher", "on", ">hush", "~other:*", "&*", "+@all"]);
    let mut config = BullConfig { redis: redis.config(), ..BullConfig::default() };
    config.redis.url = format!("redis://watcher:hush@127.0.0.1:{}", redis.port());
    let missing = open(&config).read().await.unwrap_err();
    assert_eq!(missing.why, Silence::Denied, "{missing}");
    assert!(!missing.detail.contains("hush"));
    let fix_of = async |config: &BullConfig| open(config).check().await[0].fix.clone().unwrap();
    let fix = fix_of(&config).await;
    assert!(fix.contains("ACL SETUSER"), "{fix}, as redis said {missing}");

    redis.cli(&["CONFIG", "SET", "requirepass", "hush"]);
    config.redis.url = format!("redis://127.0.0.1:{}", redis.port());
    assert!(fix_of(&config).await.starts_with("redis wants a password"), "{config:?}");
    config.redis.url = format!("redis://watcher:wrong@127.0.0.1:{}", redis.port());
    let fix = fix_of(&config).await;
    assert!(fix.starts_with("correct `password` or `password_file`"), "{fix}");
    assert!(!fix.contains("ACL"), "{fix}");
}

#[tokio::test]
async fn check_is_content_with_a_good_setting_and_names_an_evicting_redis() {
    let redis = TestRedis::start();
    let _worker = redis.worker("aaaaaaaaaaaa", &[]).await;
    redis.standin(&["fire", "1", "1"]);
    let mut queue = redis.queue();
    let findings = queue.check().await;
    assert!(findings.iter().all(|f| f.level == Level::Good), "{findings:#?}");

    redis.cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let findings = queue.check().await;
    assert!(
        findings.iter().any(|f| f.level == Level::Problem && f.what.contains("allkeys-lru")),
        "{findings:#?}"
    );
}

#[tokio::test]
async fn one_look_is_one_script_one_request_and_one_list() {
    let redis = TestRedis::start();
    let _worker = redis.worker("aaaaaaaaaaaa", &[]).await;
    redis.standin(&["fire", "3", "60000"]);
    let mut queue = redis.queue();
    queue.read().await.unwrap();
    let calls = |command: &str| -> u64 {
        let stats = redis.cli(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|l| l.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    };
    let count = || ["eval", "publish", "client|list", "subscribe"].map(calls);
    let before = count();
    for _ in 0..10 {
        queue.read().await.unwrap();
    }
    let after = count();
    // The worker itself publishes its answer, so publish counts twice.
    assert_eq!([10, 20, 10, 0], [0, 1, 2, 3].map(|i| after[i] - before[i]), "{after:?}");
}

#[tokio::test]
async fn a_redis_that_lost_its_data_is_read_anew() {
    let mut redis = TestRedis::start();
    let mut queue = redis.queue();
    redis.standin(&["fire", "4"]);
    assert_eq!(queue.read().await.unwrap().reading.waiting, 4);
    redis.kill();
    redis.restart();
    let seen = sees(&mut queue, "an empty queue", |seen| seen.reading.waiting == 0).await;
    assert_eq!(seen.reading.finished_total, Some(0), "lost jobs are not finished jobs");
    redis.standin(&["fire", "1"]);
    assert_eq!(queue.read().await.unwrap().reading.waiting, 1);
}

#[tokio::test]
async fn a_list_where_a_counter_should_be_is_malformed() {
    let redis = TestRedis::start();
    redis.cli(&["SET", "bull:jobs:wait", "x"]);
    let missing = redis.queue().read().await.unwrap_err();
    assert_eq!(missing.why, Silence::Malformed, "{missing}");
}

#[tokio::test]
async fn two_queues_in_one_redis_do_not_mix() {
    let redis = TestRedis::start();
    let pool = [("STANDIN_QUEUE", "jobs-gpu")];
    let _plain = redis.worker("aaaaaaaaaaaa", &[]).await;
    let _pooled = redis.worker("bbbbbbbbbbbb", &pool).await;
    redis.standin_with(&["fire", "2", "60000"], &pool);
    let config =
        BullConfig { redis: redis.config(), queue: "jobs-gpu".into(), ..BullConfig::default() };
    let mut gpu = open(&config);
    let seen = sees(&mut gpu, "one of two taken", |seen| seen.reading.active == 1).await;
    assert_eq!(seen.reading.waiting, 1);
    assert!(named(&seen, "aaaaaaaaaaaa").is_none());
    assert_eq!(connections(&seen).count(), 1);
    let seen = redis.queue().read().await.unwrap();
    assert_eq!(named(&seen, "aaaaaaaaaaaa").unwrap().busy, Some(false));
    assert!(named(&seen, "bbbbbbbbbbbb").is_none());
}

#[tokio::test]
async fn nothing_listens_for_a_url_that_is_wrong() {
    let config = BullConfig {
        redis: RedisConfig { url: "redis://127.0.0.1:1".into(), ..RedisConfig::default() },
        ..BullConfig::default()
    };
    let missing = open(&config).read().await.unwrap_err();
    assert_eq!(missing.why, Silence::Refused, "{missing}");
}
