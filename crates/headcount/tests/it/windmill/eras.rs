//! The same situation in every era's tables is seen as the same.

use headcount::queues::{Consumer, Identity, QueueSeen};
use headcount_core::Silence;
use headcount_core::reading::Occupancies;

use crate::support::windmill::{Era, config, open};

async fn look(era: Era, group: &str) -> QueueSeen {
    let database = era.seeded().await;
    let config = config(&database, group);
    open(&config).read().await.unwrap_or_else(|missing| panic!("{era:?} {group}: {missing}"))
}

fn consumer<'a>(seen: &'a QueueSeen, host: &str) -> &'a Consumer {
    let named = |c: &&Consumer| c.known_as.contains(&Identity::Hostname(host.into()));
    seen.consumers.as_ref().unwrap().iter().find(named).unwrap()
}

#[tokio::test]
async fn every_era_tells_the_same_of_live_workers_their_tags_and_their_jobs() {
    for era in Era::ALL {
        let seen = look(era, "default").await;
        let reading = &seen.reading;
        let tags = [("bash", 4), ("flow", 0), ("python3", 6)].map(|(t, n)| (t.to_owned(), n));
        assert_eq!(reading.tags, tags.into(), "{era:?}");
        assert_eq!((reading.waiting, reading.active), (10, 2), "{era:?}");
        assert_eq!((reading.delayed, reading.orphaned, reading.held), (Some(3), None, None));
        let oldest = reading.oldest_wait.unwrap().as_secs();
        assert!((100..160).contains(&oldest), "{era:?}: {oldest}");
        let ages: Vec<i64> = reading.ages.iter().map(|age| age.as_secs()).collect();
        assert!(ages[0] >= 40 && ages[1] >= 35 && ages[0] < 100, "{era:?}: {ages:?}");

        let Occupancies { s15, m5, m30 } = reading.occupancy.unwrap();
        let percent = [s15, m5, m30].map(|mean| (10.0 * mean.unwrap()).round() / 10.0);
        assert_eq!(percent, [66.7, 86.0, 82.0], "{era:?}");

        let busy = ["h1", "h2", "h3", "h4"].map(|host| consumer(&seen, host).busy);
        assert_eq!(busy, [Some(true), Some(true), Some(false), None], "{era:?}");
        let consuming = ["h1", "h4"].map(|host| consumer(&seen, host).consuming);
        assert_eq!(consuming, [Some(true), Some(false)], "{era:?}");
        assert!(consumer(&seen, "h1").oldest_job.unwrap().as_secs() >= 40, "{era:?}");
        assert_eq!(seen.consumers.as_ref().unwrap().len(), 4, "{era:?}: long gone workers");
    }
}

#[tokio::test]
async fn the_tags_of_a_group_without_live_workers_come_from_its_configuration() {
    let database = Era::Latest.seeded().await;
    for (group, tag, waiting) in [
        ("reports", "demo:f/reports/daily", 7),
        ("long", "workspace:f/a_folder/with_a_very_#de1aeb63eaf6bddd", 3),
        ("narrow", "bash", 4),
        ("native", "postgresql", 11),
    ] {
        let seen = open(&config(&database, group)).read().await.unwrap();
        assert_eq!((seen.reading.waiting, seen.reading.tags[tag]), (waiting, waiting), "{group}");
    }
    let mut given = config(&database, "bare");
    let bare = open(&given).read().await.unwrap_err();
    assert_eq!(bare.why, Silence::NotFound, "{bare}");
    assert!(bare.detail.contains("no tags known: worker group bare has no live"), "{bare}");
    given.tags = vec!["bash".into(), "new".into()];
    let seen = open(&given).read().await.unwrap();
    assert_eq!(seen.reading.tags, [("bash".into(), 4), ("new".into(), 0)].into());
    let none = open(&config(&database, "defalt")).read().await.unwrap_err();
    assert!(none.detail.contains("those it has: bare, default, long, narrow, native"), "{none}");
}

#[tokio::test]
async fn suspended_jobs_that_may_go_on_count_only_if_wanted() {
    for era in Era::ALL {
        let database = era.seeded().await;
        let mut config = config(&database, "default");
        let without = open(&config).read().await.unwrap().reading;
        config.resumable = true;
        let with = open(&config).read().await.unwrap().reading;
        assert_eq!((without.tags["flow"], with.tags["flow"]), (0, 3), "{era:?}");
        assert_eq!(with.waiting, without.waiting + 3, "{era:?}");
    }
}

#[tokio::test]
async fn one_odd_row_blinds_nobody() {
    let database = Era::Latest.seeded().await;
    let config = config(&database, "default");
    let before = open(&config).read().await.unwrap().reading;
    database
        .run(
            "UPDATE worker_ping SET custom_tags = array_append(custom_tags, NULL);
            UPDATE worker_ping SET occupancy_rate_15s = 'NaN', occupancy_rate_5m = 'infinity'
              WHERE worker_instance = 'h1';
            UPDATE v2_job_queue SET scheduled_for = '-infinity' WHERE id = (SELECT id FROM v2_job_queue
              WHERE tag = 'bash' AND NOT running AND scheduled_for < now() - interval '5 s' LIMIT 1);
            UPDATE v2_job_queue SET scheduled_for = 'infinity' WHERE scheduled_for > now()",
        )
        .await;
    let after = open(&config).read().await.unwrap().reading;
    assert_eq!((after.waiting, after.tags), (before.waiting, before.tags));
    assert!(after.oldest_wait.is_some() && after.occupancy.unwrap().s15.is_some());
}

#[tokio::test]
async fn a_wider_alive_window_takes_quiet_workers_for_live() {
    let database = Era::Latest.seeded().await;
    let mut config = config(&database, "default");
    config.alive_window = headcount_core::Span::from_secs(120);
    let seen = open(&config).read().await.unwrap();
    assert_eq!(consumer(&seen, "h4").busy, Some(false));
    assert!(seen.reading.tags.contains_key("old"), "{:?}", seen.reading.tags);
}

#[tokio::test]
async fn a_job_that_a_concurrency_gate_sent_back_does_not_wait() {
    let database = Era::Gated.seeded().await;
    let mark = "UPDATE v2_job_queue SET concurrency_gated_at = now() - interval '1 s' * \
                CASE WHEN scheduled_for < now() - interval '30 s' THEN 300 ELSE 2 END \
                WHERE tag = 'python3' AND NOT running";
    database.run(mark).await;
    let reading = open(&config(&database, "default")).read().await.unwrap().reading;
    // Due for 10, 20 and 30 s: fresh marks. The others' marks are old and count no more.
    assert_eq!((reading.tags["python3"], reading.held), (6 - 2, Some(2)));
}
