//! `headcount import`: a configuration from another autoscaler's settings, as a user runs it.

use std::path::Path;

use headcount::config::{self, Config, GroupConfig, Overrides};
use headcount::queues::QueueConfig;
use headcount::targets::TargetConfig;
use headcount_core::policy::Policy;
use serde_json::{Value, json};

use crate::support::run::{Ran, headcount, run};
use crate::support::windmill::Era;
use crate::support::windmill_api::{TOKEN, WindmillApi};

/// Runs `headcount import windmill` in `folder`.
fn import(folder: &Path, args: &[&str], input: &str) -> Ran {
    run(headcount(folder, &[&["import", "windmill"], args].concat()), input.as_bytes())
}

/// What it makes of `input`, and the file.
fn imported(input: &Value) -> (Config, String) {
    let folder = tempfile::tempdir().unwrap();
    let ran = import(folder.path(), &["-"], &input.to_string());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let file = folder.path().join("headcount.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    let config = config::load(&file, &Overrides::default());
    (config.unwrap_or_else(|errors| panic!("{errors}\n{text}")), text)
}

#[test]
fn a_group_is_written_with_a_word_on_everything() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "worker_tags": ["gpu", "cuda"], "min_alive_workers_alert_threshold": 1,
        "autoscaling": {"enabled": true, "min_workers": 1, "max_workers": 12, "cooldown_seconds": 60,
            "custom_tags": ["gpu"], "integration": {"type": "script", "path": "f/ops/scale", "tags": "ops"}},
    });
    let ran = import(folder.path(), &["-", "--group", "gpu", "-o", "-"], &config.to_string());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let group = ran.out.split_once("groups:\n").unwrap().1;
    let expected = "  gpu:
    # Its tags in Windmill: gpu, cuda.
    workers: { min: 1, max: 12 }
    policy:
      occupancy:
        cooldown_seconds: 60
        full_scale_cooldown_seconds: 1500   # Windmill's default
        inc_scale_num_jobs_waiting: 1       # Windmill's default
        full_scale_jobs_waiting: 12         # Windmill's default: max_workers
        dec_scale_occupancy_rate: 25        # Windmill's default
        inc_scale_occupancy_rate: 75        # Windmill's default
        inc_num_workers: 2                  # Windmill's default: (max - min) / 5
        # parity: windmill   # judge by the occupancy that Windmill's workers report
    # Windmill does not look at the host. Remove these two, and no worker is started that this
    # host cannot carry.
    brake: { off: true }
    capacity: { off: true }
    # min_alive_workers_alert_threshold; add a webhook to be told.
    alerts: { live_workers_under: { workers: 1, for: 2m } }
    queue:
      windmill:
        <<: *windmill
        tags: [gpu]                         # custom_tags
    target:
      windmill_script:
        url: ${WINDMILL_URL:-http://windmill_server:8000}  # Windmill's base URL
        token_file: windmill-token          # of a user who may run it
        path: f/ops/scale
        tag: ops
";
    assert_eq!(group, expected);
}

#[test]
fn each_integration_has_its_target() {
    let group = |enabled: bool, integration: Value| json!({"autoscaling": {"enabled": enabled, "integration": integration}});
    let (config, text) = imported(&json!({
        "worker__a": group(true, json!({"type": "kubernetes"})),
        "worker__b": group(true, json!({"type": "script", "path": "u/admin/scale"})),
        "worker__c": group(true, json!({"type": "dryrun"})),
        "worker__d": group(true, json!({"type": "nomad", "job": "x"})),
        "worker__e": group(false, json!({"type": "kubernetes"})),
        "worker__native": {"worker_tags": ["bash"]},
    }));
    let kinds: Vec<String> = config.groups.iter().map(|group| group.target.kind()).collect();
    let expected = ["kubernetes", "windmill_script", "dry_run", "dry_run", "dry_run", "dry_run"];
    assert_eq!(kinds, expected, "{text}");
    let TargetConfig::Kubernetes(target) = &config.groups[0].target else { unreachable!() };
    assert_eq!(target.name.as_deref(), Some("windmill-workers-a"));
    let TargetConfig::WindmillScript(target) = &config.groups[1].target else { unreachable!() };
    assert_eq!((target.path.as_str(), &target.tag), ("u/admin/scale", &None));
    for words in [
        "Note: integration `nomad` is not known here: a dry run instead.",
        "Note: autoscaling.integration.job is not known here, and left out.",
        "Autoscaling is off in Windmill: this is only a dry run.",
        "# Windmill keeps no autoscaling of this group (its Community Edition never does)",
        "slots: 8 }",
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

/// What anybody may have set, and names that need care.
#[test]
fn whatever_it_writes_can_be_loaded() {
    let mut random = fastrand::Rng::with_seed(5);
    let long = "long".repeat(30);
    let names = [
        "default", "Big Jobs", "big jobs", "big_jobs", "ünï", "a\"b", "x: y", "$HOME", "${X}",
        "no", "1", "a\nb", "-", "..", &long,
    ];
    for _ in 0..30 {
        let group = |name: &&str| ((*name).to_owned(), any_group(&mut random));
        let groups: serde_json::Map<_, _> = names.iter().map(group).collect();
        let (config, text) = imported(&Value::Object(groups.clone()));
        assert_eq!(config.groups.len(), groups.len(), "{text}");
        for group in &config.groups {
            says_the_same(group, &groups, &text);
        }
    }
}

fn any_group(random: &mut fastrand::Rng) -> Value {
    let (mut scaling, max) = (serde_json::Map::new(), random.u32(1..=200));
    scaling.insert("max_workers".into(), json!(max));
    let numbers = [
        ("min_workers", random.u32(0..=max)),
        ("cooldown_seconds", random.u32(0..=604_800)),
        ("full_scale_cooldown_seconds", random.u32(0..=604_800)),
        ("inc_scale_num_jobs_waiting", random.u32(1..=1_000)),
        ("full_scale_jobs_waiting", random.u32(1..=100_000)),
        ("dec_scale_occupancy_rate", random.u32(0..=50)),
        ("inc_scale_occupancy_rate", random.u32(50..=100)),
        ("inc_num_workers", random.u32(1..=50)),
    ];
    for (key, number) in numbers {
        if random.bool() {
            scaling.insert(key.into(), json!(number));
        }
    }
    let integrations = [
        json!({"type": "kubernetes"}),
        json!({"type": "script", "path": "f/a b/ü$x", "tag": "t$args[x]"}),
        json!({"type": "dryrun"}),
        Value::Null,
    ];
    scaling.insert("integration".into(), random.choice(integrations).unwrap());
    let enabled = [json!(true), json!(false), Value::Null];
    scaling.insert("enabled".into(), random.choice(enabled).unwrap());
    if random.bool() {
        scaling.insert("custom_tags".into(), json!(["a", "x-$workspace", "b: #", "\u{7f}"]));
    }
    json!({"autoscaling": scaling, "worker_tags": ["a\nb", "# c"],
        "min_alive_workers_alert_threshold": random.u32(0..=50)})
}

fn says_the_same(group: &GroupConfig, groups: &serde_json::Map<String, Value>, text: &str) {
    let QueueConfig::Windmill(queue) = &group.queue else { panic!("{text}") };
    let name = queue.group.clone().unwrap_or_else(|| group.name.clone());
    let told = &groups[&name]["autoscaling"];
    let tags = told.get("custom_tags").cloned().unwrap_or_else(|| json!([]));
    assert_eq!(json!(queue.tags), tags, "{name}\n{text}");
    assert_eq!(json!(group.rules.workers.max), told["max_workers"], "{name}\n{text}");
    let Policy::Occupancy(policy) = &group.rules.policy else { panic!("{text}") };
    let policy = serde_json::to_value(policy).unwrap();
    for (key, value) in told.as_object().unwrap().iter().filter(|(_, v)| v.is_number()) {
        if key != "min_workers" && key != "max_workers" {
            assert_eq!(policy[key].as_f64(), value.as_f64(), "{name} {key}\n{text}");
        }
    }
}

/// The same observations lead to the same decisions as Windmill's parameters do, written by hand.
#[test]
fn the_rules_decide_as_they_did() {
    let table = [
        (
            json!({"enabled": true, "min_workers": 3, "max_workers": 10, "integration": {"type": "kubernetes"}}),
            "workers: { min: 3, max: 10 }\npolicy: { occupancy: {} }",
        ),
        (
            json!({"enabled": true, "min_workers": 0, "max_workers": 40, "cooldown_seconds": 30, "full_scale_cooldown_seconds": 600,
            "inc_scale_num_jobs_waiting": 4, "full_scale_jobs_waiting": 25, "dec_scale_occupancy_rate": 40,
            "inc_scale_occupancy_rate": 60, "inc_num_workers": 3}),
            "workers: { min: 0, max: 40 }\npolicy: { occupancy: { cooldown_seconds: 30, full_scale_cooldown_seconds: 600, inc_scale_num_jobs_waiting: 4, full_scale_jobs_waiting: 25, dec_scale_occupancy_rate: 40, inc_scale_occupancy_rate: 60, inc_num_workers: 3 } }",
        ),
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let mut lines = String::new();
    let (mut ready, mut decided) = (5, String::new());
    for i in 0..3_000 {
        if i % 100 == 0 {
            ready = random.u32(2..=11);
        }
        let waiting = if random.u8(..) < 240 { 0 } else { random.u32(0..=30) };
        let even = random.u32(0..=100);
        let windows = [even, random.u32(0..=100), even].map(|w| if i % 3 == 0 { w } else { even });
        let line = json!({"t": 30 * i, "host": {"cpu_raw": 10, "mem": 10},
            "queue": {"waiting": waiting, "active": 0, "tags": {"a": waiting},
                "occupancy": {"s15": windows[0], "m5": windows[1], "m30": windows[2]}},
            "fleet": {"ready": ready, "starting": 0, "busy": 0}});
        lines += &format!("{line}\n");
    }
    for (scaling, by_hand) in table {
        let (_, text) = imported(&json!({"g": {"autoscaling": scaling}}));
        let group = text.split_once("  g:\n").unwrap().1.split_once("    queue:").unwrap().0;
        let folder = tempfile::tempdir().unwrap();
        let decide = |name: &str, policy: &str| {
            std::fs::write(folder.path().join(name), policy).unwrap();
            let ran =
                run(headcount(folder.path(), &["replay", "--policy", name]), lines.as_bytes());
            assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{policy}");
            ran.out
        };
        let rules = undented(group);
        let by_hand = decide(
            "hand.yaml",
            &format!("{by_hand}\nbrake: {{ off: true }}\ncapacity: {{ off: true }}\n"),
        );
        assert_eq!(decide("imported.yaml", &rules), by_hand);
        decided += &by_hand;
    }
    for kind in ["full_scale_out", "scale_out", "scale_in", "bounds"] {
        assert!(decided.contains(&format!("\"kind\":\"{kind}\"")), "no {kind}");
    }
}

/// The lines of a group, at the margin.
fn undented(group: &str) -> String {
    group.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}

#[test]
fn a_file_that_is_there_stays() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headcount.yaml");
    std::fs::write(&file, "mine").unwrap();
    let input = r#"{"enabled": true}"#;
    let ran = import(folder.path(), &["-"], input);
    assert_eq!(ran.code, 2);
    assert_eq!(
        ran.err,
        "headcount: headcount.yaml is there already; name another with --output, or use --force\n"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    let ran = import(folder.path(), &["-", "--force"], input);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(
        ran.out,
        "wrote headcount.yaml: default (dry_run)\nnext: `headcount check`, then `headcount run --dry-run`\n"
    );
    assert!(std::fs::read_to_string(&file).unwrap().contains("default:"));
    let ran = import(folder.path(), &["-", "-o", "other/x.yaml"], input);
    assert_eq!(ran.code, 1);
    assert!(ran.err.starts_with("headcount: other/x.yaml cannot be written: "), "{}", ran.err);
    let ran = import(folder.path(), &["-", "-o", "new.yaml", "--json"], r#"{"gpu": {"x": 1}}"#);
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        told,
        json!({"file": "new.yaml", "groups": [{"group": "gpu", "enabled": false,
        "target": "dry_run", "notes": ["x is not known here, and left out"]}]})
    );
}

#[test]
fn nonsense_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let table: [(&[&str], &str, i32, &str); 8] = [
        (&[], "", 2, "required"),
        (&["-"], "", 2, "standard input: is empty; paste a group's configuration"),
        (&["-"], "[1]", 2, "standard input: item 1 is no object with `name` and `config`"),
        (&["no.json"], "", 1, "no.json cannot be read: "),
        (
            &["-"],
            r#"{"gpu": {"enabled": true, "min_workers": 9, "max_workers": 2, "cooldown_seconds": -5}}"#,
            2,
            "group gpu: autoscaling.min_workers: 9 is above max_workers 2\ngroup gpu: autoscaling.cooldown_seconds: -5 is no whole number from 0 to 604800",
        ),
        (
            &["-", "--group", "x"],
            r#"{"gpu": {}, "b": {}}"#,
            2,
            "there is no worker group `x`; there are b, gpu",
        ),
        (&["-", "-g", "x", "-g", "y"], r#"{"enabled": true}"#, 2, "give --group once"),
        (&["--url", "mysql://me:hush@x/y"], "", 2, "--url: "),
    ];
    for (args, input, code, wanted) in table {
        let ran = import(folder.path(), args, input);
        assert_eq!(ran.code, code, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(wanted) && !ran.err.contains("hush"), "{args:?}: {}", ran.err);
        assert!(!folder.path().join("headcount.yaml").exists());
    }
}

#[test]
fn one_odd_group_keeps_nobody_from_importing_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let groups = r#"{"good": {"enabled": true, "max_workers": 7},
        "off": {"enabled": false, "full_scale_jobs_waiting": 0, "integration": {"type": "script"}},
        "bad": {"enabled": true, "min_workers": -1}}"#;
    let ran = import(folder.path(), &["-"], groups);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let told = "left out, correct them in Windmill:\ngroup bad: autoscaling.min_workers: -1 is no ";
    assert!(ran.err.contains(told), "{}", ran.err);
    assert!(ran.out.contains("wrote headcount.yaml: good (dry_run), off (dry_run)"), "{}", ran.out);
    assert!(ran.out.contains("off: autoscaling.full_scale_jobs_waiting: 0 is no "), "{}", ran.out);
    let file = folder.path().join("headcount.yaml");
    let config = config::load(&file, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    let most = config.groups.iter().map(|group| (group.name.as_str(), group.rules.workers.max));
    assert_eq!(most.collect::<Vec<_>>(), [("good", 7), ("off", 10)]);
}

#[tokio::test]
async fn groups_are_read_from_the_database() {
    let database = Era::Latest.seeded().await;
    database.run("DELETE FROM config").await;
    database.run(
        "INSERT INTO config VALUES ('worker__default', '{\"autoscaling\": {\"enabled\": true, \"max_workers\": 7}, \"env_vars_static\": {\"KEY\": \"hush\"}, \"later\": 1}'),
         ('worker__gpu', '{}'), ('alert__x', '{}'), ('worker__empty', NULL),
         ('worker__list', '[1, 2]'), ('worker__', '{}')",
    ).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("db-url"), database.url()).unwrap();
    let ran = import(folder.path(), &["--url-file", "db-url"], "");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(
        ran.out.lines().next().unwrap(),
        "wrote headcount.yaml: default (dry_run), empty (dry_run), gpu (dry_run)"
    );
    assert!(ran.out.contains("default: later is not known here, and left out"), "{}", ran.out);
    let file = folder.path().join("headcount.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("url_file: db-url") && !text.contains("hush"), "{text}");
    assert!(text.contains("dry_run: { workers: 3 }"), "its live workers\n{text}");
    let config = config::load(&file, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(config.groups[0].rules.workers.max, 7);

    // With the rights that reading takes, `check` and a dry run go on from here.
    let ran = run(headcount(folder.path(), &["once", "--dry-run", "default"]), b"");
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);

    database.run(&format!("REVOKE SELECT ON config FROM {}", database.name)).await;
    let ran = import(folder.path(), &["--url", &database.url(), "--force"], "");
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.contains("permission denied for table config")
            && ran.err.contains("SELECT on config and worker_ping"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn every_era_of_the_tables_will_do() {
    for era in Era::ALL {
        let database = era.seeded().await;
        let folder = tempfile::tempdir().unwrap();
        let ran = import(folder.path(), &["--url", &database.url()], "");
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{era:?}");
        let file = folder.path().join("headcount.yaml");
        let config = config::load(&file, &Overrides::default()).unwrap_or_else(|e| panic!("{e}"));
        assert!(!config.groups.is_empty(), "{era:?}");
    }
}

/// From Windmill's settings to Windmill's own script, without a word written by hand.
#[tokio::test(flavor = "multi_thread")]
async fn an_imported_group_scales_by_its_script() {
    let (database, api) = (Era::Latest.seeded().await, WindmillApi::start().await);
    database
        .run(
            "UPDATE config SET config = config || '{\"autoscaling\": {\"enabled\": true, \"min_workers\": 1,
              \"max_workers\": 4, \"full_scale_jobs_waiting\": 2,
              \"integration\": {\"type\": \"script\", \"path\": \"f/ops/scale\", \"tags\": \"ops\"}}}'
             WHERE name = 'worker__default'",
        )
        .await;
    let row = |i: u32| json!({"worker": format!("w{i}"), "worker_instance": format!("h{i}"), "worker_group": "default"});
    api.world().rows = (0..3).map(row).collect();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("db-url"), database.url()).unwrap();
    std::fs::write(folder.path().join("windmill-token"), TOKEN).unwrap();
    let ran = import(folder.path(), &["--url-file", "db-url", "-g", "default"], "");
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    for verb in ["check", "once"] {
        let mut command = headcount(folder.path(), &[verb, "default"]);
        command.env("WINDMILL_URL", api.url());
        let ran = run(command, b"");
        match verb {
            // Windmill scales it, too.
            "check" => {
                assert!(ran.out.contains("windmill's own autoscaling is enabled"), "{}", ran.out)
            }
            _ => assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err),
        }
        assert!(!ran.out.contains(TOKEN) && !ran.err.contains(TOKEN));
    }
    let world = api.world();
    let job = world.jobs.values().next().expect("the script was run");
    assert_eq!((world.jobs.len(), job.tag.as_deref()), (1, Some("ops")));
    assert_eq!(job.arguments["worker_group"], "default");
    assert_eq!(job.arguments["desired_workers"], 4);
    assert_eq!(job.arguments["event_type"], "full_scaleout");
    assert!(job.arguments["reason"].as_str().unwrap().contains("full backlog"), "{job:?}");
}
