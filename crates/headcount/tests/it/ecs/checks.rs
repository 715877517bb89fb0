//! What `headcount check` finds.

use headcount::finding::{Fact, Finding, Level};
use headcount::targets::ecs::EcsConfig;
use headcount_core::Span;
use serde_json::Value;

use super::{busy_map, open, running, settled, shrink};
use crate::support::ecs_api::{EcsApi, Fault};

async fn found(config: &EcsConfig) -> Vec<Finding> {
    let found = open(config).check().await;
    for finding in &found {
        assert_eq!(finding.fix.is_some(), finding.level != Level::Good, "{finding:#?}");
    }
    found
}

fn only(found: &[Finding], level: Level) -> String {
    let all = found.iter().filter(|finding| finding.level == level);
    let said = |f: &Finding| format!("{} -> {}", f.what, f.fix.clone().unwrap_or_default());
    all.map(said).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn all_is_well() {
    let api = EcsApi::start(2).await;
    let found = found(&api.config()).await;
    assert!(found.iter().all(|finding| finding.level == Level::Good), "{found:#?}");
    let said = found.iter().map(|finding| finding.what.as_str()).collect::<Vec<_>>().join("\n");
    for text in [
        "Amazon ECS in eu-central-1 at http://127.0.0.1:",
        "asks as arn:aws:sts::123456789012:assumed-role/headcount/test",
        "service main/worker asks for 2, 2 serve or start",
        "may do ecs:UpdateService, ecs:UpdateTaskProtection",
        "container worker may take 30s to finish (stopTimeout)",
    ] {
        assert!(said.contains(text), "{text} in {said}");
    }
    assert!(!said.contains("hunter2"));
    let facts: Vec<Fact> = found.iter().filter_map(|finding| finding.fact).collect();
    assert_eq!(facts, [Fact::Workers(2), Fact::Grace(Span::from_secs(30))]);
}

#[tokio::test]
async fn a_wrong_name_is_told_with_its_neighbours() {
    let api = EcsApi::start(1).await;
    api.world().neighbours = vec!["mailer", "web"];
    let other = EcsConfig { service: "workers".into(), ..api.config() };
    let problem = only(&found(&other).await, Level::Problem);
    assert!(
        problem.contains("there are: mailer, web, worker -> set `service` to one"),
        "{problem}"
    );
    let other = EcsConfig { cluster: "staging".into(), ..api.config() };
    let problem = only(&found(&other).await, Level::Problem);
    assert!(problem.contains("there are: main -> set `cluster` to one of them"), "{problem}");
    api.world().strategy = "DAEMON";
    let problem = only(&found(&api.config()).await, Level::Problem);
    assert!(
        problem.contains("(DAEMON)") && problem.ends_with("name another `service`"),
        "{problem}"
    );
}

#[tokio::test]
async fn what_is_not_allowed_is_named() {
    let mut api = EcsApi::start(1).await;
    api.simulate(Some(vec!["UpdateService", "UpdateTaskProtection"]));
    let problem = only(&found(&api.config()).await, Level::Problem);
    assert!(
        problem.starts_with("denied: ecs:UpdateService, ecs:UpdateTaskProtection"),
        "{problem}"
    );
    api.simulate(Some(vec!["UpdateTaskProtection"]));
    let warning = only(&found(&api.config()).await, Level::Warning);
    assert!(warning.starts_with("tasks cannot be protected: ECS picks who goes"), "{warning}");
    let plain = EcsConfig { protect: false, ..api.config() };
    assert_eq!(only(&found(&plain).await, Level::Warning), "");
    api.simulate(None);
    let good = only(&found(&api.config()).await, Level::Good);
    assert!(good.contains("shows at the first change"), "{good}");

    api.break_by(Fault::Error("ListTasks", 400, "AccessDeniedException"));
    let warning = only(&found(&api.config()).await, Level::Warning);
    assert!(warning.contains("tasks cannot be listed"), "{warning}");
    api.break_by(Fault::Error("DescribeTaskDefinition", 400, "AccessDeniedException"));
    let warning = only(&found(&api.config()).await, Level::Warning);
    assert!(warning.contains("-> allow ecs:DescribeTaskDefinition"), "{warning}");
    api.break_by(Fault::Error("DescribeServices", 400, "AccessDeniedException"));
    let problem = only(&found(&api.config()).await, Level::Problem);
    assert!(problem.contains("allow ecs:DescribeServices -> attach a policy"), "{problem}");
}

#[tokio::test]
async fn another_autoscaler_and_a_short_stop_are_told() {
    let api = EcsApi::start(1).await;
    api.world().auto_scaling = Some((1, 8));
    api.world().stop_timeout = Some(5);
    let found = found(&api.config()).await;
    let warning = only(&found, Level::Warning);
    assert!(warning.contains("attached too (1 to 8 tasks)"), "{warning}");
    assert!(warning.contains("deregister-scalable-target"), "{warning}");
    assert!(found.iter().any(|f| f.fact == Some(Fact::Grace(Span::from_secs(5)))), "{found:#?}");
}

#[tokio::test]
async fn no_way_in_is_a_problem_with_a_fix() {
    let mut api = EcsApi::start(1).await;
    api.change_key("AKIAOTHER");
    let problem = only(&found(&api.config()).await, Level::Problem);
    assert!(problem.contains("does not know the credentials"), "{problem}");
    api.break_by(Fault::Down);
    let down = found(&api.config()).await;
    assert!(down.iter().any(|finding| finding.level == Level::Problem), "{down:#?}");
    let empty = tempfile::NamedTempFile::new().unwrap();
    let config = EcsConfig { credentials_file: Some(empty.path().into()), ..api.config() };
    let problem = only(&found(&config).await, Level::Problem);
    assert!(
        problem.contains("no credentials") && problem.contains("name a `profile`"),
        "{problem}"
    );
}

/// A file below `deploy/ecs`.
fn deployed(file: &str) -> Value {
    let path = format!("{}/../../deploy/ecs/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_state_folder_belongs_to_the_user_of_the_image() {
    let dockerfile = include_str!("../../../../../Dockerfile");
    let user = dockerfile.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    let point = deployed("access-point.json");
    let made = &point["RootDirectory"]["CreationInfo"];
    for (uid, gid) in [("Uid", "Gid"), ("OwnerUid", "OwnerGid")] {
        let of = if uid == "Uid" { &point["PosixUser"] } else { made };
        assert_eq!(format!("{}:{}", of[uid], of[gid]), user);
    }
    for volume in deployed("task-definition.json")["volumes"].as_array().unwrap() {
        let efs = &volume["efsVolumeConfiguration"];
        assert_eq!(efs["transitEncryption"], "ENABLED", "an access point asks for it");
        let is_state = volume["name"] == "state";
        assert_eq!(efs["authorizationConfig"]["accessPointId"].is_string(), is_state);
        // ECS takes no folder beside an access point: that has its own.
        assert_eq!(efs["rootDirectory"].is_string(), !is_state);
    }
}

/// The actions of a policy below `deploy/ecs`.
fn actions(file: &str) -> Vec<String> {
    let policy = deployed(file);
    let statements = policy["Statement"].as_array().unwrap();
    let all = statements.iter().flat_map(|statement| match &statement["Action"] {
        Value::Array(actions) => actions.clone(),
        action => vec![action.clone()],
    });
    all.map(|action| action.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_policies_allow_what_is_asked() {
    let (api, mut target) = running(3).await;
    let busy = api.world().staying().split_off(1);
    target.scale(&shrink(&api, 2, &busy)).await.unwrap();
    settled(&mut target, 2).await;
    target.watch_over(&busy_map(&[])).await;
    let asked = api.asked();
    let allowed = actions("policy.json");
    for action in &asked {
        assert!(allowed.contains(&format!("ecs:{action}")), "{action} in {allowed:?}");
    }
    let minimal = actions("policy-minimal.json");
    assert!(minimal.iter().all(|action| allowed.contains(action)), "{minimal:?}");
    for neighbour in ["none", "worker"] {
        found(&EcsConfig { service: neighbour.into(), ..api.config() }).await;
    }
    found(&EcsConfig { cluster: "none".into(), ..api.config() }).await;
    for action in api.asked() {
        let name = format!(":{action}");
        assert!(allowed.iter().any(|allowed| allowed.ends_with(&name)), "{action}");
    }
}

#[tokio::test]
async fn what_was_not_reached_is_not_said_to_be_there() {
    let mut api = EcsApi::start(1).await;
    api.break_by(Fault::Down);
    let found = found(&api.config()).await;
    assert!(found.iter().all(|f| f.level != Level::Good), "{found:#?}");
    let problem = only(&found, Level::Problem);
    assert!(problem.contains(&format!("http://{}: ", api.address())), "{problem}");
}
