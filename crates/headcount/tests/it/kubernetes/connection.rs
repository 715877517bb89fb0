//! How the cluster is reached, what it costs, and what `check` says.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use headcount::finding::Level;
use headcount::queues::{Consumer, Identity};
use headcount::targets::kubernetes::KubernetesConfig;
use headcount::targets::{Order, TargetError};
use headcount_core::{Silence, Span};
use serde_json::{Value, json};

use super::{MINIMAL, NO_PODS, SCALE_ONLY, look, open, running, settled, shrink};
use crate::support::certificates::certificates;
use crate::support::kube_api::world::Ill;
use crate::support::kube_api::{Fault, KubeApi, NAMESPACE, WORKER};
use crate::support::redis::{TestRedis, sees};
use crate::support::run::{headcount, run};
use crate::support::wait::until;
use crate::support::workers::order;

/// A folder as a pod finds its service account.
fn service_account(api: &KubeApi, authority: &Path, token: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(authority, folder.path().join("ca.crt")).unwrap();
    std::fs::write(folder.path().join("token"), token).unwrap();
    std::fs::write(folder.path().join("namespace"), format!("{NAMESPACE}\n")).unwrap();
    let api_folder = api.folder();
    assert!(api_folder.join("ca.pem").exists());
    folder
}

/// `headcount` as it runs in a pod, with a group of Windmill workers and nothing else said.
fn in_pod(api: &KubeApi, account: &Path, args: &[&str]) -> (i32, String, String) {
    in_pod_with(api, account, args, &[])
}

fn in_pod_with(
    api: &KubeApi,
    account: &Path,
    args: &[&str],
    env: &[(&str, &str)],
) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({ "groups": { "default": {
        "workers": { "min": 1, "max": 9 },
        "policy": { "cpu_aware": {} },
        "lease": "kubernetes",
        "queue": { "demo": { "database": "jobs.db" } },
        "target": { "kubernetes": { "service_account": account } },
    } } });
    std::fs::write(folder.path().join("headcount.yaml"), config.to_string()).unwrap();
    let mut command = headcount(folder.path(), args);
    command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1");
    command.env("KUBERNETES_SERVICE_PORT", api.port().to_string());
    command.envs(env.iter().copied());
    let ran = run(command, b"");
    (ran.code, ran.out, ran.err)
}

fn findings(out: &str) -> String {
    let report: Value = serde_json::from_str(out).unwrap();
    let all = report["findings"].as_array().unwrap().clone();
    let of_target = all.iter().filter(|f| f["about"] == "target" || f["about"] == "lease");
    of_target.map(|f| format!("{}\n", f["what"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_pod_everything_is_inferred_and_only_its_authority_is_trusted() {
    let api = KubeApi::with("deployments", 0, true).await;
    api.world().add_workload("deployments", NAMESPACE, "windmill-workers-default", 2);
    api.account("windmill", MINIMAL);
    let good = service_account(&api, &api.folder().join("ca.pem"), "windmill");
    let (code, out, err) = in_pod(&api, good.path(), &["check", "--json"]);
    let found = findings(&out);
    assert!(found.contains("Kubernetes v1.36.2 at https://127.0.0.1:"), "{found}{err}");
    assert!(found.contains("may get and patch deployments in jobs"), "{found}");
    assert!(
        found.contains("Deployment jobs/windmill-workers-default asks for 2, 2 serve"),
        "{found}"
    );
    assert!(found.contains("a pod may take 30s to finish"), "{found}");
    assert!(found.contains("lease jobs/headcount-deployments-windmill-workers-default cannot be"));
    assert_eq!(code, 3, "{found}");

    let stranger = tempfile::tempdir().unwrap();
    certificates(stranger.path());
    let bad = service_account(&api, &stranger.path().join("ca.pem"), "hunter2-token");
    let (code, out, err) = in_pod(&api, bad.path(), &["check", "--json"]);
    let found = findings(&out);
    assert!(found.contains("its certificate is not trusted: "), "{found}");
    assert_eq!(code, 3);
    assert!(!format!("{out}{err}").contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_down_is_told_in_our_words_only() {
    let mut api = KubeApi::with("deployments", 1, true).await;
    let account = service_account(&api, &api.folder().join("ca.pem"), "admin");
    api.break_by(Fault::Down);
    let of_the_library = "failed with error";
    let (_, out, err) = in_pod(&api, account.path(), &["once"]);
    assert!(format!("{out}{err}").contains("https://127.0.0.1:"), "{out}{err}");
    assert!(!err.contains(of_the_library), "{err}");
    let asked_for = [("HEADCOUNT_LOG", "info,kube_client=error")];
    let (_, _, err) = in_pod_with(&api, account.path(), &["once"], &asked_for);
    assert!(err.contains(of_the_library), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_replaced_is_read_again() {
    let api = KubeApi::with("deployments", 1, true).await;
    let token = api.folder().join("token");
    std::fs::write(&token, "admin").unwrap();
    let file = api.kubeconfig("admin");
    let text = std::fs::read_to_string(&file).unwrap();
    let by_file = text.replace(r#""token":"admin""#, r#""tokenFile":"token""#);
    std::fs::write(&file, by_file).unwrap();
    let config = KubernetesConfig {
        name: Some(WORKER.into()),
        kubeconfig: Some(file),
        ..KubernetesConfig::default()
    };
    let mut target = open(&config);
    settled(&mut target, 1).await;
    let account = api.world().accounts.remove("admin").unwrap();
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Denied, "{missing}");
    api.world().accounts.insert("next".into(), account);
    std::fs::write(&token, "next").unwrap();
    until("it is let in again", async || target.status().await.is_ok()).await;
}

#[tokio::test]
async fn what_cannot_be_read_is_named_without_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let place = headcount::config::Place {
        group: "g".into(),
        state_dir: folder.path().into(),
        base_dir: folder.path().into(),
    };
    let said = |text: &str, context: Option<&str>| {
        std::fs::write(&file, text).unwrap();
        let config = KubernetesConfig {
            kubeconfig: Some("config".into()),
            context: context.map(str::to_owned),
            ..KubernetesConfig::default()
        };
        let error = config.open(&place).err().map(|error| format!("{error:#}")).unwrap();
        assert!(!error.contains("hunter2"), "{error}");
        error
    };
    let broken = said("users: [{name: x, user: {token: hunter2}, {]", None);
    assert!(broken.ends_with("config is not one that makes sense"), "{broken}");
    assert!(said("{}", None).contains("has no current context: set `context`"));
    let contexts = r#"{"current-context": "a", "contexts": [{"name": "b", "context": {"cluster": "c", "user": "u"}}]}"#;
    assert!(said(contexts, None).contains(r#"has no context "a"; it has: b"#));
    assert!(said(contexts, Some("b")).contains(r#"has no server for "c""#));
    std::fs::remove_file(&file).unwrap();
    let gone = KubernetesConfig { kubeconfig: Some("config".into()), ..<_>::default() };
    let error = gone.open(&place).err().map(|error| format!("{error:#}")).unwrap();
    assert!(error.contains("config cannot be read"), "{error}");
}

#[test]
fn outside_of_a_cluster_both_ways_that_were_tried_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({ "groups": { "g": {
        "policy": { "cpu_aware": {} },
        "queue": { "demo": { "database": "jobs.db" } },
        "target": { "kubernetes": {} },
    } } });
    std::fs::write(folder.path().join("headcount.yaml"), config.to_string()).unwrap();
    let ran = run(headcount(folder.path(), &["check"]), b"");
    let said = format!("{}{}", ran.out, ran.err);
    assert!(said.contains("(KUBERNETES_SERVICE_HOST is not set)"), "{said}");
    let file = folder.path().join(".kube/config");
    assert!(said.contains(&format!("there is no kubeconfig {}", file.display())), "{said}");
    assert_ne!(ran.code, 0);
}

#[tokio::test]
async fn a_login_command_that_fails_does_not_show_what_it_printed() {
    let api = KubeApi::start(1).await;
    let file = api.kubeconfig("admin");
    let text = std::fs::read_to_string(&file).unwrap();
    let exec = r#""exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"sh","args":["-c","echo hunter2; echo hunter2 >&2; exit 1"],"interactiveMode":"Never"}"#;
    std::fs::write(&file, text.replace(r#""token":"admin""#, exec)).unwrap();
    let mut target = open(&KubernetesConfig { kubeconfig: Some(file), ..<_>::default() });
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Denied);
    assert!(missing.detail.starts_with("the login of the kubeconfig failed"), "{missing}");
    assert!(!missing.to_string().contains("hunter2"));
}

#[tokio::test]
async fn a_tick_costs_three_requests_besides_annotations() {
    for rules in [MINIMAL, SCALE_ONLY, NO_PODS] {
        let api = KubeApi::start(4).await;
        api.account("it", rules);
        let mut target = open(&api.config("it"));
        settled(&mut target, 4).await;
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        api.asked();
        look(&mut target).await;
        let busy: Vec<_> = api.staying().into_iter().take(1).map(|name| (name, 9)).collect();
        target.scale(&shrink(&api, 3, &busy)).await.unwrap();
        let asked = api.asked();
        let (costs, others): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|request| request == "patch pods");
        assert!(others.len() <= 3, "{others:?}");
        assert!(costs.len() <= 1, "{costs:?}");
    }
}

/// 200 groups whose jobs wait look once a second, three seconds long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_groups_stay_under_fifty_requests_a_second() {
    const GROUPS: usize = 200;
    let api = KubeApi::start(0).await;
    for i in 0..GROUPS {
        api.world().add_workload("deployments", NAMESPACE, &format!("w-{i}"), 1);
    }
    until("all run", async || {
        let world = api.world();
        world.objects.keys().filter(|key| key.0 == "pods").count() == GROUPS
    })
    .await;
    let named =
        |i: usize| open(&KubernetesConfig { name: Some(format!("w-{i}")), ..api.config("admin") });
    let mut targets: Vec<_> = (0..GROUPS).map(named).collect();
    // The turns that pass while all look for the first time are taken in the second round.
    for _ in 0..2 {
        for target in &mut targets {
            look(target).await;
        }
    }
    let reviews = api.asked().iter().filter(|a| a.ends_with("reviews")).count();
    assert_eq!(reviews, 6 * GROUPS, "what an account may do is asked once");
    let began = Instant::now();
    for round in 1..=3 {
        for target in &mut targets {
            assert_eq!(look(target).await.ready, 1);
        }
        let next = began + Duration::from_secs(round);
        tokio::time::sleep(next.saturating_duration_since(Instant::now())).await;
    }
    let took = began.elapsed().as_secs_f64();
    let asked = api.asked();
    let count = |what: &str| asked.iter().filter(|a| *a == what).count();
    let (lists, gets) = (count("list pods"), count("get deployments"));
    assert_eq!(lists + gets, asked.len());
    assert!(lists as f64 <= took + 1.0, "{lists} lists in {took} s");
    assert!(gets as f64 <= 20.0 * (took + 1.0), "{gets} reads in {took} s");
    // These, six questions of access, and each lease every 10 s.
    let a_second = 20.0 + 1.0 + 6.0 + GROUPS as f64 / 10.0;
    assert!(a_second < 50.0, "{a_second}");

    // What was read before a change of ours does not count after it, whoever else changed it.
    let kept: Vec<usize> = {
        let mut kept = Vec::new();
        for (i, target) in targets.iter_mut().enumerate() {
            look(target).await;
            if api.asked().is_empty() {
                kept.push(i);
            }
        }
        kept
    };
    let i = kept[kept.len() / 2];
    let key = ("deployments".into(), NAMESPACE.into(), format!("w-{i}"));
    let mut object = api.world().objects[&key].clone();
    object["metadata"]["annotations"] = json!({ "touch": "1" });
    api.world().put(key.clone(), object);
    targets[i].scale(&order(1, 3, &[])).await.unwrap();
    assert_eq!(look(&mut targets[i]).await.desired, Some(3));
    let mut object = api.world().objects[&key].clone();
    object["spec"]["replicas"] = json!(2);
    api.world().put(key.clone(), object);
    let contradicted = targets[i].scale(&order(3, 4, &[])).await.unwrap_err();
    assert_eq!(contradicted, TargetError::Contradiction { there: 2, decided_for: 3 });
    assert_eq!(look(&mut targets[i]).await.desired, Some(2), "what the refusal showed");
}

#[tokio::test]
async fn busy_workers_are_known_by_pod_name_address_and_container() {
    let (api, mut target) = running(3).await;
    let seen = target.status().await.unwrap();
    let names = api.staying();
    let peer = seen.known_as[&names[1]].iter().find_map(|name| match name {
        Identity::Peer(address) => Some(*address),
        _ => None,
    });
    let container = seen.known_as[&names[2]].iter().find_map(|name| match name {
        Identity::Container(id) => Some(id[..12].to_owned()),
        _ => None,
    });
    let consumer = |name, busy, age: i64| Consumer {
        known_as: vec![name],
        busy: Some(busy),
        oldest_job: busy.then(|| Span::from_secs(age)),
        ..Consumer::default()
    };
    let mut address = peer.unwrap();
    address.set_port(51_234);
    let consumers = [
        consumer(Identity::Hostname(names[0].clone()), true, 7),
        consumer(Identity::Peer(address), false, 0),
        consumer(Identity::Container(container.unwrap()), true, 9),
    ];
    let mut map = headcount::busy_map::BusyMap::default();
    let now = headcount::clock::now();
    let joined = map.join(seen, Some(&consumers), 0, Span::from_secs(30), now);
    let busy: HashMap<_, _> = joined.workers.iter().map(|w| (w.id.clone(), w.busy)).collect();
    assert_eq!(busy[&names[0]], Some(true));
    assert_eq!(busy[&names[1]], Some(false));
    assert_eq!(busy[&names[2]], Some(true));
    let age = |s| Some(Span::from_secs(s));
    let expected = [(names[0].clone(), age(7)), (names[2].clone(), age(9))];
    let known = map.busy(&joined);
    assert_eq!(known, expected.into());
    let order = headcount::targets::Order { busy: known, ..order(3, 2, &[&names[1]]) };
    target.scale(&order).await.unwrap();
    settled(&mut target, 2).await;
    assert_eq!(api.staying(), [names[0].clone(), names[2].clone()]);
}

#[tokio::test]
async fn the_pod_whose_job_is_oldest_by_its_own_word_costs_most() {
    let (api, mut target) = running(2).await;
    let names = api.staying();
    let redis = TestRedis::start();
    let mut queue = redis.queue();
    let mut workers = Vec::new();
    for name in &names {
        workers.push(redis.worker(name, &[("N8N_CONCURRENCY_PRODUCTION_LIMIT", "1")]).await);
    }
    redis.standin(&["fire", "2", "60000"]);
    let both = sees(&mut queue, "two jobs that run for a while", |seen| {
        let consumers = seen.consumers.iter().flatten();
        consumers.filter(|c| c.oldest_job.is_some_and(|age| age.as_secs() >= 2)).count() == 2
    })
    .await;
    let mut map = headcount::busy_map::BusyMap::default();
    let (seen, now) = (target.status().await.unwrap(), headcount::clock::now());
    let joined = map.join(seen, both.consumers.as_deref(), 0, Span::from_secs(30), now);
    let order = Order { busy: map.busy(&joined), ..order(2, 1, &[&names[0]]) };
    target.scale(&order).await.unwrap();
    let costs: Vec<i32> = api.pods().into_iter().filter_map(|pod| pod.cost?.parse().ok()).collect();
    assert!(costs.iter().any(|cost| (12..70).contains(cost)), "{costs:?}");
}

async fn checked(config: &KubernetesConfig) -> Vec<(Level, String, String)> {
    let findings = open(config).check().await;
    let text = |fix: Option<String>| fix.unwrap_or_default();
    findings.into_iter().map(|f| (f.level, f.what, text(f.fix))).collect()
}

fn worst(found: &[(Level, String, String)]) -> (Level, String, String) {
    found.iter().max_by_key(|(level, ..)| *level).unwrap().clone()
}

#[tokio::test]
async fn check_says_what_the_account_may_not_do() {
    let api = KubeApi::start(2).await;
    for (name, rules) in [("minimal", MINIMAL), ("scale-only", SCALE_ONLY)] {
        api.account(name, rules);
        let found = checked(&api.config(name)).await;
        assert_eq!(worst(&found).0, Level::Good, "{name}: {found:?}");
        let grace = "a pod may take 30s to finish (terminationGracePeriodSeconds)";
        assert!(found.iter().any(|(_, what, _)| what == grace), "{name}: {found:?}");
    }
    api.account("no-pods", NO_PODS);
    let found = checked(&api.config("no-pods")).await;
    let warnings: Vec<&str> = found
        .iter()
        .filter(|(level, ..)| *level == Level::Warning)
        .map(|(_, what, _)| what.as_str())
        .collect();
    let expected = [
        "pods cannot be listed: which of them are busy, ready or broken is not known",
        "pods cannot be annotated: Kubernetes picks who goes, busy or not",
    ];
    assert_eq!(warnings, expected);
    api.account("reader", &[("apps", "deployments", &["get"]), ("", "pods", &["list", "patch"])]);
    let (level, what, fix) = worst(&checked(&api.config("reader")).await);
    assert_eq!(level, Level::Problem);
    let expected = "the account may not scale worker in jobs: it lacks patch deployments, \
                    get deployments/scale, patch deployments/scale";
    assert_eq!(what, expected);
    assert!(fix.contains("deploy/kubernetes/role.yaml"));
    let (_, what, fix) = worst(&checked(&api.config("nobody")).await);
    assert!(what.contains("does not accept the credentials (401)"), "{what}");
    assert!(fix.starts_with("renew the token"), "{fix}");
}

#[tokio::test]
async fn check_names_what_is_there_instead() {
    let api = KubeApi::start(2).await;
    api.world().add_workload("deployments", NAMESPACE, "web", 1);
    api.world().add_workload("deployments", "elsewhere", "stray", 1);
    let named = |name: &str| KubernetesConfig { name: Some(name.into()), ..api.config("admin") };
    let (_, what, fix) = worst(&checked(&named("wroker")).await);
    let expected = "there is no Deployment wroker in namespace jobs; there are: web, worker";
    assert_eq!((what.as_str(), fix.contains("set `name`")), (expected, true));
    let (_, what, fix) = worst(&checked(&named("stray")).await);
    let expected = "there is no Deployment stray in namespace jobs, but in elsewhere";
    assert_eq!((what.as_str(), fix.as_str()), (expected, "set `namespace: elsewhere`"));
    api.account("minimal", MINIMAL);
    let config = KubernetesConfig { namespace: Some("jbos".into()), ..api.config("minimal") };
    let (_, what, fix) = worst(&checked(&config).await);
    assert!(what.contains("jbos"), "{what}");
    assert!(fix.contains("namespace"), "{fix}");
}

#[tokio::test]
async fn check_says_what_is_ill_or_down() {
    let mut api = KubeApi::start(1).await;
    api.world().next_ill = Some(Ill::NoImage);
    api.set_outside(2);
    until("one is ill", async || api.staying().len() == 2).await;
    let (level, what, fix) = worst(&checked(&api.config("admin")).await);
    assert_eq!(level, Level::Warning);
    assert!(what.contains("takes no jobs: ImagePullBackOff"), "{what}");
    assert!(fix.starts_with("kubectl describe pod -n jobs worker-"), "{fix}");
    api.break_by(Fault::Down);
    let (level, what, _) = worst(&checked(&api.config("admin")).await);
    assert_eq!(level, Level::Problem);
    assert!(what.starts_with("no Kubernetes at http://127.0.0.1:"), "{what}");
}

#[tokio::test]
async fn a_long_list_comes_page_by_page() {
    let api = KubeApi::start(0).await;
    api.set_outside(1_201);
    let mut target = open(&api.config("admin"));
    until("all are there", async || api.staying().len() == 1_201).await;
    until("all are ready", async || look(&mut target).await.ready == 1_201).await;
    api.asked();
    let mut lists = 0;
    until("it is listed again", async || {
        look(&mut target).await;
        lists = api.asked().iter().filter(|a| *a == "list pods").count();
        lists > 0
    })
    .await;
    assert_eq!(lists, 3);
}
