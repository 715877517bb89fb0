//! The `windmill_script` target against a stand-in for Windmill's API.

use std::path::Path;

use headcount::finding::Level;
use headcount::targets::windmill_script::WindmillScriptConfig;
use headcount::targets::{Target, TargetConfig, TargetError};
use headcount_core::{Kind, Silence, Span};
use serde_json::json;
use tempfile::TempDir;

use crate::support::windmill_api::{Job, TOKEN, WindmillApi};
use crate::support::workers::{order, place};

struct Bench {
    api: WindmillApi,
    folder: TempDir,
}

impl Bench {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        Self { api: WindmillApi::start().await, folder }
    }

    fn config(&self) -> WindmillScriptConfig {
        WindmillScriptConfig {
            url: self.api.url(),
            token_file: Some("token".into()),
            path: "f/ops/scale".into(),
            timeout: Span::from_secs(2),
            ..WindmillScriptConfig::default()
        }
    }

    fn open(&self, config: WindmillScriptConfig) -> Box<dyn Target> {
        open(config, self.folder.path())
    }

    fn jobs(&self) -> Vec<Job> {
        self.api.world().jobs.values().cloned().collect()
    }
}

fn open(config: WindmillScriptConfig, folder: &Path) -> Box<dyn Target> {
    assert_eq!(config.problems(), []);
    TargetConfig::WindmillScript(config).open(&place(folder, "g")).unwrap()
}

#[tokio::test]
async fn a_change_is_a_job_with_windmills_four_arguments() {
    let bench = Bench::new().await;
    let config = WindmillScriptConfig { tag: Some("ops".into()), ..bench.config() };
    let mut target = bench.open(config);
    let mut order = order(1, 7, &[]);
    order.kind = Kind::FullScaleOut;
    order.reason = "7 waiting; `rm -rf /`".into();
    let scaled = target.scale(&order).await.unwrap();
    let world = bench.api.world();
    let (id, job) = world.jobs.first_key_value().unwrap();
    let expected = json!({"worker_group": "g", "desired_workers": 7,
        "reason": "7 waiting; `rm -rf /`", "event_type": "full_scaleout"});
    assert_eq!(job.arguments, expected);
    assert_eq!(job.tag.as_deref(), Some("ops"));
    let page = format!("{}/run/{id}?workspace=admins", bench.api.url());
    assert_eq!(scaled.note, format!("scaled to 7; {page}"));
    assert_eq!(world.workers, 7);
}

#[tokio::test]
async fn a_failed_job_is_a_failed_action_with_its_error_and_its_page() {
    let bench = Bench::new().await;
    let failure = json!({"error": {"name": "ExecutionErr", "message": "no\naccess"}});
    bench.api.world().failure = Some(failure);
    let mut target = bench.open(bench.config());
    let error = target.scale(&order(0, 1, &[])).await.unwrap_err().to_string();
    let id = bench.api.world().jobs.keys().next().unwrap().clone();
    let page = format!("{}/run/{id}?workspace=admins", bench.api.url());
    assert_eq!(error, format!("windmill script f/ops/scale: ExecutionErr: no access: {page}"));
    bench.api.world().failure = None;
    target.scale(&order(0, 1, &[])).await.unwrap();
    assert_eq!(bench.api.world().workers, 1);
}

#[tokio::test]
async fn a_job_that_takes_too_long_is_cancelled_before_another_starts() {
    let bench = Bench::new().await;
    bench.api.world().holds = true;
    let mut target = bench.open(bench.config());
    let error = target.scale(&order(0, 1, &[])).await.unwrap_err();
    assert!(matches!(error, TargetError::Timeout { seconds: 2, .. }), "{error}");
    assert!(error.to_string().contains("/run/"), "it names the job: {error}");
    let cancelled = bench.jobs()[0].cancelled.clone();
    assert_eq!(cancelled.as_deref(), Some("headcount: not finished within 2 s"));

    // One that goes on all the same stands in the way of the next, also after a restart.
    bench.api.world().ignores_cancel = true;
    target.scale(&order(0, 1, &[])).await.unwrap_err();
    assert_eq!(bench.jobs().len(), 2);
    for mut target in [target, bench.open(bench.config())] {
        let error = target.scale(&order(0, 3, &[])).await.unwrap_err().to_string();
        assert!(error.contains("the job of an earlier change still runs"), "{error}");
        assert_eq!(bench.jobs().len(), 2);
    }
    let mut target = bench.open(bench.config());
    {
        let mut world = bench.api.world();
        world.finish();
        world.holds = false;
    }
    target.scale(&order(1, 3, &[])).await.unwrap();
    let world = bench.api.world();
    assert_eq!((world.workers, world.jobs.len(), world.most_running), (3, 3, 1));
}

#[tokio::test]
async fn a_start_that_nobody_answered_is_asked_for_before_another() {
    for (runs_on, cancelled) in [(true, true), (false, false)] {
        let bench = Bench::new().await;
        {
            let mut world = bench.api.world();
            world.forgets_to_answer = true;
            world.holds = runs_on;
        }
        let mut target = bench.open(bench.config());
        let error = target.scale(&order(0, 2, &[])).await.unwrap_err();
        assert!(matches!(error, TargetError::Timeout { .. }), "{error}");
        {
            let mut world = bench.api.world();
            assert_eq!(world.jobs.len(), 1, "it was started all the same");
            world.forgets_to_answer = false;
            world.holds = false;
        }
        target.scale(&order(2, 1, &[])).await.unwrap();
        let world = bench.api.world();
        assert_eq!((world.workers, world.jobs.len()), (1, 2));
        assert!(world.most_running <= 1);
        assert_eq!(world.jobs.values().any(|job| job.cancelled.is_some()), cancelled);
    }
}

#[tokio::test]
async fn live_workers_are_counted_as_windmill_counts_them() {
    let bench = Bench::new().await;
    let native = |i: usize| json!({"worker": format!("w{i}"), "worker_instance": "pod", "worker_group": "g", "native_mode": true});
    bench.api.world().rows = (0..11).map(native).collect();
    bench.api.world().workers = 3;
    let mut target = bench.open(bench.config());
    assert_eq!(target.status().await.unwrap().reading.ready, 5, "3, and 11 rows of 2 pods");
    let mut other =
        bench.open(WindmillScriptConfig { group: Some("ops".into()), ..bench.config() });
    assert_eq!(other.status().await.unwrap().reading.ready, 1);
    // No row at all is no proof that there is no worker.
    bench.api.world().hides_workers = true;
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Denied);
    assert!(missing.detail.contains("HIDE_WORKERS_FOR_NON_ADMINS"), "{missing}");
}

#[tokio::test]
async fn a_token_that_is_not_known_is_told_without_being_shown() {
    let bench = Bench::new().await;
    std::fs::write(bench.folder.path().join("token"), "other-hush").unwrap();
    let mut target = bench.open(bench.config());
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Denied);
    let error = target.scale(&order(0, 1, &[])).await.unwrap_err().to_string();
    let found = format!("{:?}", target.check().await);
    for text in [missing.to_string(), error, found] {
        assert!(text.contains("windmill does not know the token"), "{text}");
        assert!(!text.contains("hush"), "{text}");
    }
    // A new one in the file needs no restart.
    std::fs::write(bench.folder.path().join("token"), TOKEN).unwrap();
    target.scale(&order(0, 1, &[])).await.unwrap();
}

#[tokio::test]
async fn check_says_what_is_in_the_way_of_a_script() {
    let bench = Bench::new().await;
    let lines = async |config: WindmillScriptConfig| {
        let found = bench.open(config).check().await;
        let text = |f: headcount::finding::Finding| {
            let mark = ["+", "?", "!"][f.level as usize];
            assert_eq!(f.fix.is_none(), f.level == Level::Good);
            format!("{mark} {}", f.what.replace(&bench.api.url(), "URL"))
        };
        found.into_iter().map(text).collect::<Vec<_>>()
    };
    let begins = ["+ windmill CE v1.788.0 at URL", "+ asks as ops@x in workspace admins"];
    let good = [
        "+ script f/ops/scale (bash) is there",
        "+ it runs on workers with the tag ops",
        "+ windmill shows 0 workers of group g",
    ];
    assert_eq!(lines(bench.config()).await, [&begins[..], &good].concat());
    let change = |key: &str, value: serde_json::Value| {
        bench.api.world().script.as_mut().unwrap()[key] = value;
    };
    change("tag", json!(null));
    change(
        "schema",
        json!({"properties": {"worker_group": {}, "desired_workers": {}, "reason": {}}}),
    );
    let found = lines(bench.config()).await;
    assert_eq!(found[2], "? script f/ops/scale takes no event_type");
    assert!(found[3].starts_with("? the script has no tag: where the scaled group itself"));
    change("schema", json!({"properties": {"x": {}}}));
    let found = lines(bench.config()).await;
    assert!(found[2].starts_with("! script f/ops/scale takes no worker_group, desired_workers"));
    change("archived", json!(true));
    assert_eq!(lines(bench.config()).await[2], "! script f/ops/scale is archived");
    bench.api.world().script = None;
    let found = lines(bench.config()).await;
    assert!(found[2].starts_with("! reading the script: windmill answers 404"), "{found:?}");
    let found = lines(WindmillScriptConfig { workspace: "other".into(), ..bench.config() }).await;
    assert!(found[1].starts_with("! asking who the token is: windmill answers 403"), "{found:?}");
    let nobody = WindmillScriptConfig { url: "http://127.0.0.1:9".into(), ..bench.config() };
    let found = lines(nobody).await;
    assert!(found[0].starts_with("! asking for the version: http://127.0.0.1:9: "), "{found:?}");
    let assumed = WindmillScriptConfig { initial: Some(2), ..bench.config() };
    let last = lines(assumed).await.pop().unwrap();
    assert_eq!(last, "? nobody is asked how many workers there are; assumed: 2 workers");
}
