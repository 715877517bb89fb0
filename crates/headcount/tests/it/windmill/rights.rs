//! A role that may not see everything is told so, and never takes it for an empty queue.

use headcount::finding::{Finding, Level};
use headcount_core::Silence;

use crate::support::postgres::Database;
use crate::support::windmill::{Era, config, open};

fn problems(findings: &[Finding]) -> Vec<(&str, &str)> {
    let bad = findings.iter().filter(|finding| finding.level == Level::Problem);
    bad.map(|finding| (finding.what.as_str(), finding.fix.as_deref().unwrap())).collect()
}

#[tokio::test]
async fn rows_that_row_level_security_hides_are_no_empty_queue() {
    let database = Era::V2.seeded().await;
    let name = &database.name;
    let mut config = config(&database, "default");
    config.tags = vec!["bash".into()];
    let policy = |what: &str| format!("DROP POLICY reads ON v2_job_queue; {what}");
    let create = format!("CREATE POLICY reads ON v2_job_queue FOR SELECT TO {name} USING");
    for (change, is_seen) in [
        (policy(""), false),
        (format!("{create} (tag = 'bash')"), false),
        (policy(&format!("{create} (true)")), true),
        ("CREATE POLICY less ON v2_job_queue AS RESTRICTIVE USING (tag = 'bash')".into(), false),
        ("DROP POLICY less ON v2_job_queue".into(), true),
        (policy("CREATE POLICY reads ON v2_job_queue TO PUBLIC USING (true)"), true),
        (policy("CREATE POLICY reads ON v2_job_queue TO postgres USING (true)"), false),
        (format!("ALTER ROLE {name} BYPASSRLS"), true),
        (format!("ALTER ROLE {name} NOBYPASSRLS"), false),
    ] {
        database.run(&change).await;
        tokio::time::sleep(std::time::Duration::from_millis(950)).await;
        let seen = open(&config).read().await;
        match seen {
            Ok(seen) => assert!(is_seen && seen.reading.waiting == 4, "{change}: {seen:?}"),
            Err(missing) => {
                assert!(!is_seen && missing.why == Silence::Denied, "{change}: {missing}");
                assert!(missing.detail.contains("row-level security may hide rows"), "{missing}");
            }
        }
    }
    let findings = open(&config).check().await;
    let fix = format!(
        "as the owner of the table: CREATE POLICY headcount_reads ON v2_job_queue FOR SELECT TO \
         {name} USING (true); Or ALTER ROLE {name} BYPASSRLS; or, if you are sure that the role sees \
         all rows, rows_visible: true"
    );
    assert_eq!(problems(&findings).iter().map(|(_, fix)| *fix).collect::<Vec<_>>(), [fix.as_str()]);
    // What is printed is what helps.
    let statement = fix.split_once(": ").unwrap().1.split_once(" Or").unwrap().0;
    database.run(statement).await;
    tokio::time::sleep(std::time::Duration::from_millis(950)).await;
    let findings = open(&config).check().await;
    assert_eq!(problems(&findings), [], "{findings:?}");
    assert_eq!(open(&config).read().await.unwrap().reading.waiting, 4);

    database.run("DROP POLICY headcount_reads ON v2_job_queue").await;
    config.rows_visible = true;
    tokio::time::sleep(std::time::Duration::from_millis(950)).await;
    assert_eq!(open(&config).read().await.unwrap().reading.waiting, 0, "the user's word");
}

#[tokio::test]
async fn what_may_not_be_read_is_told_as_the_grant_that_is_missing() {
    for era in Era::ALL {
        let database = era.seeded().await;
        let name = &database.name;
        database.run(&format!("REVOKE SELECT ON worker_ping, config FROM {name}")).await;
        let config = config(&database, "default");
        let denied = open(&config).read().await.unwrap_err();
        assert_eq!(denied.why, Silence::Denied, "{era:?} {denied}");
        assert!(denied.detail.contains("permission denied for table"), "{denied}");
        let findings = open(&config).check().await;
        let fix = format!("GRANT SELECT ON public.config, public.worker_ping TO {name};");
        assert_eq!(problems(&findings).iter().map(|(_, fix)| *fix).collect::<Vec<_>>(), [&fix]);
        database.run(&fix).await;
        tokio::time::sleep(std::time::Duration::from_millis(950)).await;
        assert_eq!(problems(&open(&config).check().await), [], "{era:?}");
    }
}

#[tokio::test]
async fn a_database_without_windmill_is_told_from_one_in_another_schema() {
    let database = Database::new().await;
    let config = config(&database, "default");
    let none = open(&config).read().await.unwrap_err();
    assert_eq!(none.why, Silence::NotFound, "{none}");
    assert!(none.detail.contains("this is no windmill database"), "{none}");

    database.run("CREATE SCHEMA wm; SET search_path = wm").await;
    Era::Latest.make(&database).await;
    tokio::time::sleep(std::time::Duration::from_millis(950)).await;
    let hidden = open(&config).read().await.unwrap_err();
    assert!(hidden.detail.contains("there is a windmill in schema wm; let it in: "), "{hidden}");
    // What is told is what helps.
    database.run(hidden.detail.split_once("let it in: ").unwrap().1).await;
    let mut found = config.clone();
    // A connection of its own: the old one has its old search_path.
    found.url = Some(format!("{}?connect_timeout=9", database.url()).as_str().into());
    let none = open(&found).read().await.unwrap_err();
    assert!(none.detail.contains("windmill has no worker group default"), "{none}");
}
