//! What groups on the same database share, and a pooler in between.

use crate::support::postgres::Pooler;
use crate::support::windmill::{Era, config, open};

#[tokio::test(flavor = "multi_thread")]
async fn groups_share_one_connection_and_one_look() {
    let database = Era::Latest.seeded().await;
    let mut first = open(&config(&database, "default"));
    let mut second = open(&config(&database, "narrow"));
    assert_eq!(first.read().await.unwrap().reading.tags["bash"], 4);
    database.run("DELETE FROM v2_job_queue WHERE tag = 'bash'").await;
    assert_eq!(second.read().await.unwrap().reading.tags["bash"], 4, "seen a moment ago");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(second.read().await.unwrap().reading.tags["bash"], 0);

    let mut all: Vec<_> = (0..40).map(|_| open(&config(&database, "default"))).collect();
    let reads: Vec<_> = all.iter_mut().map(|queue| queue.read()).collect();
    assert!(futures_util::future::join_all(reads).await.iter().all(Result::is_ok));
    let count =
        format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{}'", database.name);
    assert_eq!(database.ask(&count).await, "1");
    let name = count.replace("count(*)", "application_name");
    assert_eq!(database.ask(&name).await, "headcount");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_gives_each_transaction_another_connection_will_do() {
    let database = Era::Latest.seeded().await;
    let pooler = Pooler::start(&database.place, &[&database.name, "postgres"]).await;
    let pooled = format!("127.0.0.1:{}", pooler.port);
    let mut config = config(&database, "default");
    config.url = Some(database.url().replace(&database.place, &pooled).as_str().into());
    let mut queue = open(&config);
    for _ in 0..3 {
        assert_eq!(queue.read().await.unwrap().reading.waiting, 10);
        tokio::time::sleep(std::time::Duration::from_millis(950)).await;
    }
    let found = queue.check().await;
    assert!(found.iter().all(|f| f.level < headcount::finding::Level::Problem), "{found:#?}");
    // There is one connection: whoever comes next has it without anything of ours.
    let next = database.connect_by(&pooled).await;
    for (setting, expected) in
        [("statement_timeout", "0"), ("jit", "on"), ("transaction_read_only", "off")]
    {
        let said = next.simple_query(&format!("SHOW {setting}")).await.unwrap();
        let value = said.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        assert_eq!(value, Some(expected), "{setting}");
    }
}
