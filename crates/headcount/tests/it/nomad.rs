//! The `nomad` target against a stand-in for Nomad's HTTP API.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Method;
use headcount::finding::{Fact, Finding, Level};
use headcount::targets::nomad::{NomadConfig, NomadTls};
use headcount::targets::{Order, Target, TargetConfig, TargetError};
use headcount_core::reading::WorkerState;
use headcount_core::{Silence, Span};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::json;

use crate::support::certificates::certificates;
use crate::support::nomad_api::{GROUP, JOB, NomadApi};
use crate::support::wait::until;
use crate::support::workers::{ids, order, place, sorted};

/// Everything that may be allowed.
const ALL: [&str; 6] =
    ["read-job", "read-job-scaling", "scale-job", "alloc-lifecycle", "list-jobs", "agent:read"];

fn config(nomad: &NomadApi) -> NomadConfig {
    NomadConfig {
        job: JOB.into(),
        group: GROUP.into(),
        address: Some(format!("http://{}", nomad.address)),
        ..NomadConfig::default()
    }
}

fn open(config: &NomadConfig) -> Box<dyn Target> {
    open_in(config, Path::new("."))
}

fn open_in(config: &NomadConfig, folder: &Path) -> Box<dyn Target> {
    assert_eq!(config.problems(), []);
    TargetConfig::Nomad(config.clone()).open(&place(folder, "g")).unwrap()
}

/// A stand-in with so many workers; those of these numbers are busy.
async fn with(count: u32, busy: &[u32]) -> NomadApi {
    let nomad = NomadApi::start().await;
    nomad.set_count(count);
    let ids: BTreeSet<String> = busy.iter().map(|index| nomad.at(*index)).collect();
    nomad.world().jobs = ids;
    nomad
}

/// An order with victims by number, and the busy ones as the stand-in has them.
fn told(nomad: &NomadApi, from: u32, to: u32, victims: &[u32]) -> Order {
    let victims: Vec<String> = victims.iter().map(|index| nomad.at(*index)).collect();
    let victims: Vec<&str> = victims.iter().map(String::as_str).collect();
    let busy = nomad.world().jobs.iter().map(|id| (id.clone(), None)).collect();
    Order { busy, ..order(from, to, &victims) }
}

/// The numbers of those that shall run.
fn stays(nomad: &NomadApi) -> Vec<u32> {
    let world = nomad.world();
    let mut all: Vec<u32> =
        world.allocs.iter().filter(|a| a.desired == "run").map(|a| a.index).collect();
    all.sort_unstable();
    all
}

fn counts_asked(nomad: &NomadApi) -> Vec<u64> {
    let asked = nomad.asked(&Method::POST, "/scale");
    asked.iter().map(|(_, body)| body["Count"].as_u64().unwrap()).collect()
}

fn detail(error: &TargetError) -> String {
    error.to_string()
}

#[tokio::test]
async fn idle_ones_with_the_highest_numbers_go_by_the_count_alone() {
    let nomad = with(4, &[0]).await;
    let order = told(&nomad, 4, 2, &[2, 3]);
    let scaled = open(&config(&nomad)).scale(&order).await.unwrap();
    assert_eq!(sorted(&scaled.removed), sorted(&order.victims));
    assert_eq!((counts_asked(&nomad), stays(&nomad)), (vec![2], vec![0, 1]));
    assert_eq!(nomad.asked(&Method::POST, "/stop"), []);
    assert!(
        scaled.note.contains("web.work[3]") && scaled.note.contains("10m to finish"),
        "{scaled:?}"
    );
}

#[tokio::test]
async fn those_that_may_come_back_and_new_ones_are_no_more_than_the_most() {
    let nomad = with(5, &[]).await;
    nomad.world().allocs[0].healthy = Some(false);
    let mut target = open(&config(&nomad));
    let most = |from, to, max| Order { max, ..order(from, to, &[]) };
    let error = target.scale(&most(4, 5, 5)).await.unwrap_err();
    assert!(detail(&error).contains("5 are asked for already, but not all"), "{error}");
    for alloc in &mut nomad.world().allocs {
        alloc.client = "unknown";
    }
    target.scale(&most(0, 2, 5)).await.unwrap_err();
    assert_eq!(counts_asked(&nomad), [0; 0]);
    let scaled = target.scale(&most(0, 2, 6)).await.unwrap();
    assert_eq!(counts_asked(&nomad), [6], "one more may be there: {scaled:?}");
}

#[tokio::test]
async fn an_answer_without_its_numbers_is_never_none() {
    let nomad = with(5, &[]).await;
    let mut target = open(&config(&nomad));
    target.status().await.unwrap();
    let scale = "GET /v1/job/web/scale";
    let table = [
        (scale, r#"{"JobModifyIndex": 7, "TaskGroups": {"work": {}}}"#, "missing field `Desired`"),
        (scale, r#"{"TaskGroups": {"work": {"Desired": 5}}}"#, "missing field `JobModifyIndex`"),
        (
            scale,
            r#"{"JobModifyIndex": 0, "TaskGroups": {"work": {"Desired": 5}}}"#,
            "has no JobModifyIndex",
        ),
        (
            scale,
            r#"{"JobModifyIndex": 7, "TaskGroups": {"work": {"Desired": 10001}}}"#,
            "above the limit of 10000",
        ),
        ("GET /v1/job/web/allocations", "[{}]", "an allocation without an id"),
        (
            "GET /v1/job/web/allocations",
            r#"[{"ID": "a", "TaskGroup": "work"}]"#,
            "an allocation without a status",
        ),
    ];
    for (path, body, text) in table {
        nomad.world().next = [(path, 200, body)].into();
        let missing = target.status().await.unwrap_err();
        assert_eq!(missing.why, Silence::Malformed, "{missing}");
        assert!(missing.detail.contains(text), "{missing}");
        nomad.world().next = [(path, 200, body)].into();
        target.scale(&order(0, 2, &[])).await.unwrap_err();
        nomad.world().next.clear();
    }
    assert_eq!(counts_asked(&nomad), [0; 0]);
}

#[tokio::test]
async fn another_idle_one_is_as_good_if_it_goes_for_certain() {
    let nomad = with(4, &[1, 2]).await;
    let order = told(&nomad, 4, 3, &[0]);
    let last = nomad.at(3);
    let scaled = open(&config(&nomad)).scale(&order).await.unwrap();
    assert_eq!((scaled.removed, stays(&nomad)), (vec![last], vec![0, 1, 2]));
    assert_eq!(nomad.asked(&Method::POST, "/stop"), []);
}

#[tokio::test]
async fn what_goes_for_certain_goes_first_and_the_rest_is_for_later() {
    let nomad = with(4, &[2]).await;
    let scaled = open(&config(&nomad)).scale(&told(&nomad, 4, 2, &[3, 0])).await.unwrap();
    assert_eq!(stays(&nomad), [0, 1, 2]);
    assert!(scaled.note.ends_with("Nomad takes web.work[2] first, which may not go"), "{scaled:?}");
}

#[tokio::test]
async fn the_chosen_are_stopped_in_the_same_moment_where_nomad_would_take_busy_ones() {
    let nomad = with(4, &[2, 3]).await;
    nomad.world().commit = Duration::from_millis(500);
    let order = told(&nomad, 4, 2, &[1, 0]);
    let mut target = open(&config(&nomad));
    let scaled = target.scale(&order).await.unwrap();
    assert_eq!(stays(&nomad), [2, 3], "the busy ones stay: {scaled:?}");
    let removed: BTreeSet<_> = scaled.removed.iter().collect();
    assert_eq!(removed, order.victims.iter().collect());
    // One after the other: of two stops Nomad may see only one in time.
    assert_eq!(counts_asked(&nomad), [3, 2]);
    assert_eq!(nomad.asked(&Method::POST, "/stop").len(), 2);
    assert_eq!(target.status().await.unwrap().reading.capacity(), 2);
    assert_eq!(target.scale(&told(&nomad, 2, 3, &[])).await.unwrap().started.len(), 1);
    assert_eq!(stays(&nomad), [0, 2, 3], "a place that is free is taken again");
}

#[tokio::test]
async fn a_stop_that_comes_too_late_is_told_and_the_busy_one_drains() {
    let nomad = with(3, &[2]).await;
    let (busy, order) = (nomad.at(2), told(&nomad, 3, 1, &[0, 1]));
    let mut target = open(&config(&nomad));
    // Each stop is held up until Nomad has evaluated the count.
    nomad.world().late_stops = Duration::from_millis(300);
    let scaled = target.scale(&order).await.unwrap();
    assert!(scaled.removed.contains(&busy), "{scaled:?}");
    assert!(scaled.note.contains("Nomad took web.work[2]"), "{}", scaled.note);
    assert_eq!(counts_asked(&nomad), [2], "and no other busy one is put at risk");
    let seen = target.status().await.unwrap();
    assert_eq!(ids(&seen, WorkerState::Draining), [busy.as_str()], "it finishes its job");
    assert_eq!(seen.reading.capacity(), 2);
    nomad.world().jobs.clear();
    until("it is gone", async || !nomad.running().contains(&busy)).await;
}

#[tokio::test]
async fn with_require_victims_a_busy_one_is_never_put_at_risk() {
    let nomad = with(3, &[2]).await;
    let careful = NomadConfig { require_victims: true, ..config(&nomad) };
    let mut target = open(&careful);
    let error = target.scale(&told(&nomad, 3, 2, &[0])).await.unwrap_err();
    assert!(matches!(error, TargetError::NotNow { .. }), "{error:?}");
    let said = "refused, since `require_victims` is set: Nomad takes web.work[2] first";
    assert!(detail(&error).contains(said), "{error}");
    assert_eq!((counts_asked(&nomad), stays(&nomad)), (vec![], vec![0, 1, 2]));
    nomad.world().jobs.clear();
    let order = Order { busy: [(nomad.at(0), None)].into(), ..told(&nomad, 3, 2, &[1]) };
    target.scale(&order).await.unwrap();
    assert_eq!(stays(&nomad), [0, 1], "the last is idle now");
}

#[tokio::test]
async fn a_job_that_would_be_cut_short_is_not_put_at_risk() {
    let nomad = with(3, &[2]).await;
    nomad.world().kill_timeout = Duration::from_secs(5);
    let mut target = open(&config(&nomad));
    let running = |age: i64| Order {
        busy: [(nomad.at(2), Some(Span::from_secs(age)))].into(),
        ..told(&nomad, 3, 2, &[0])
    };
    let error = target.scale(&running(40)).await.unwrap_err();
    assert!(detail(&error).contains("has run for 40s, and it would have 5s to finish"), "{error}");
    assert_eq!((counts_asked(&nomad), stays(&nomad)), (vec![], vec![0, 1, 2]));
    nomad.world().commit = Duration::from_millis(500);
    target.scale(&running(3)).await.unwrap();
    assert_eq!(stays(&nomad), [1, 2]);
}

#[tokio::test]
async fn nobody_is_picked_blindly() {
    let nomad = with(2, &[0]).await;
    let mut target = open(&config(&nomad));
    let error = target.scale(&order(2, 1, &[])).await.unwrap_err();
    assert!(detail(&error).contains("none is picked blindly"), "{error}");
    let error = target.scale(&order(2, 1, &["gone"])).await.unwrap_err();
    assert!(detail(&error).contains("none of the workers that may go is there"), "{error}");
    let error = target.scale(&order(3, 4, &[])).await;
    assert!(error.is_ok(), "fewer than thought is no reason not to grow: {error:?}");
    let there = TargetError::Contradiction { there: 4, decided_for: 1 };
    assert_eq!(target.scale(&order(1, 2, &[])).await.unwrap_err(), there);
    assert_eq!(counts_asked(&nomad), [4]);
}

#[tokio::test]
async fn during_a_deployment_nothing_is_scaled_and_a_later_tick_decides_anew() {
    let nomad = with(3, &[2]).await;
    nomad.world().deploying = true;
    let mut target = open(&config(&nomad));
    for (from, to, victims) in [(3, 4, &[][..]), (3, 2, &[0])] {
        let order = told(&nomad, from, to, victims);
        let error = target.scale(&order).await.unwrap_err();
        assert!(matches!(error, TargetError::NotNow { .. }), "{error:?}");
        let said = "Nomad does not scale during a deployment, and one is running (";
        assert!(detail(&error).contains(said), "{error}");
        assert!(detail(&error).contains("`nomad job deployments web`"), "{error}");
        assert!(detail(&error).contains("`update { max_parallel = 0 }`"), "{error}");
        assert_eq!(stays(&nomad), [0, 1, 2]);
    }
    nomad.world().deploying = false;
    assert_eq!(
        nomad.asked(&Method::POST, "/stop"),
        [],
        "a stop alone would replace the chosen one"
    );
    target.scale(&told(&nomad, 3, 4, &[])).await.unwrap();
    assert_eq!(stays(&nomad), [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_refusal_is_told_with_its_fix() {
    let nomad = with(2, &[]).await;
    nomad.world().scaling = Some((1, 3));
    nomad.set_count(2);
    let mut target = open(&config(&nomad));
    let error = target.scale(&told(&nomad, 2, 5, &[])).await.unwrap_err();
    let said = "a count of 5 is outside of the `scaling` block of the group, 1 to 3";
    assert!(detail(&error).contains(said), "{error}");
    assert_eq!(counts_asked(&nomad), [0; 0], "Nomad is not even asked");

    let cases = [
        (
            500,
            "Enforcing job modify index 9: job exists with conflicting job modify index: 12",
            "somebody else changed the job",
        ),
        (403, "Permission denied", "an ACL token with `scale-job`"),
        (429, "Too many requests", "too many requests"),
        (500, "No cluster leader", "have no leader"),
        (503, "", "answers 503"),
        (418, "tea", "answers 418: tea"),
    ];
    for (status, body, said) in cases {
        nomad.world().next = [("POST", status, body)].into();
        let error = target.scale(&told(&nomad, 2, 3, &[])).await.unwrap_err();
        assert!(detail(&error).contains(said), "{error}");
        assert_eq!(stays(&nomad), [0, 1]);
    }
    let looks = [
        (429, "Too many requests", Silence::Refused),
        (500, "No cluster leader", Silence::Unreachable),
        (502, "", Silence::Unreachable),
        (200, "<html>", Silence::Malformed),
    ];
    for (status, body, why) in looks {
        nomad.world().next = [("GET /v1/job/web/scale", status, body)].into();
        assert_eq!(target.status().await.unwrap_err().why, why, "{status} {body}");
        nomad.world().next.clear();
    }
    assert_eq!(target.status().await.unwrap().reading.ready, 2);
}

#[tokio::test]
async fn what_is_not_there_is_told_with_its_neighbours() {
    let nomad = with(1, &[]).await;
    let right = config(&nomad);
    let text = |text: &str| Some(text.to_owned());
    let cases = [
        (NomadConfig { job: "wbe".into(), ..right.clone() }, "the namespace default has: api, web"),
        (NomadConfig { group: "works".into(), ..right.clone() }, "it has: other, work"),
        (NomadConfig { namespace: text("qa"), ..right.clone() }, "job \"web\" not found"),
        (NomadConfig { region: text("mars"), ..right.clone() }, "there is no region `mars`"),
    ];
    for (config, said) in cases {
        let missing = open(&config).status().await.unwrap_err();
        assert_eq!(missing.why, Silence::NotFound, "{missing:?}");
        assert!(missing.detail.contains(said), "{}", missing.detail);
        let found = open(&config).check().await;
        let problem = found.iter().find(|f| f.level == Level::Problem).unwrap();
        assert!(
            problem.fix.as_ref().unwrap().starts_with("correct") || problem.what.contains("qa"),
            "{found:#?}"
        );
    }
    for (kind, stopped, said) in
        [("system", false, "is of type system"), ("service", true, "is stopped")]
    {
        (nomad.world().kind, nomad.world().stopped) = (kind, stopped);
        nomad.set_count(1);
        let mut target = open(&right);
        let missing = target.status().await.unwrap_err();
        assert!(missing.detail.contains(said), "{}", missing.detail);
        let error = target.scale(&order(1, 2, &[])).await.unwrap_err();
        assert!(detail(&error).contains(said), "{error}");
    }
    assert_eq!(counts_asked(&nomad), [0; 0]);
}

#[tokio::test]
async fn each_allocation_is_told_apart() {
    let nomad = with(6, &[1]).await;
    let mut target = open(&config(&nomad));
    target.status().await.unwrap();
    {
        let mut world = nomad.world();
        world.allocs[0].client = "pending";
        world.allocs[1].desired = "stop";
        world.allocs[2].client = "failed";
        world.allocs[2].events =
            vec![json!({ "Type": "Driver Failure", "DisplayMessage": "no such image" })];
        world.allocs[3].client = "failed";
        world.allocs[3].comes_again = true;
        world.allocs[4].healthy = Some(false);
    }
    let seen = target.status().await.unwrap();
    let reading = &seen.reading;
    let counts = (reading.ready, reading.starting, reading.draining, reading.broken);
    assert_eq!(counts, (1, 1, 1, 3), "{reading:#?}");
    assert_eq!((reading.died, reading.desired), (2, Some(4)));
    let names = &seen.known_as[&nomad.world().allocs[5].id];
    assert!(names.len() > 4, "{names:?}");
    assert_eq!(target.status().await.unwrap().reading.died, 0, "each death counts once");
    nomad.world().room = 3;
    let error = target.scale(&told(&nomad, 2, 3, &[])).await.unwrap_err();
    assert!(detail(&error).contains("web.work[2]: no such image"), "{error}");
    assert!(matches!(error, TargetError::Failed { .. }), "{error:?}");
}

#[tokio::test]
async fn a_count_that_finds_no_node_is_not_asked_for_again() {
    let nomad = with(1, &[]).await;
    nomad.world().room = 2;
    let mut target = open(&config(&nomad));
    let scaled = target.scale(&told(&nomad, 1, 3, &[])).await.unwrap();
    assert_eq!(scaled.started.len(), 1, "there was room for one: {scaled:?}");
    let reading = target.status().await.unwrap().reading;
    assert_eq!((reading.capacity(), reading.desired), (2, Some(3)));
    let error = target.scale(&told(&nomad, 2, 3, &[])).await.unwrap_err();
    assert!(detail(&error).contains("no node has room"), "{error}");
    assert!(matches!(error, TargetError::NotNow { .. }), "room may come: {error:?}");
    assert_eq!(counts_asked(&nomad), [3]);
}

#[tokio::test]
async fn requests_are_as_documented() {
    let nomad = with(1, &[]).await;
    nomad.world().tokens = [("secret".into(), ALL.to_vec())].into();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("token"), "secret\n").unwrap();
    let whole = NomadConfig {
        token_file: Some("token".into()),
        region: Some("global".into()),
        policy_override: true,
        ..config(&nomad)
    };
    let mut target = open_in(&whole, folder.path());
    assert!(!format!("{whole:?}").contains("secret"));
    target.scale(&told(&nomad, 1, 2, &[])).await.unwrap();
    let (path, body) = nomad.asked(&Method::POST, "/scale").remove(0);
    assert_eq!(path, "/v1/job/web/scale?namespace=default&region=global");
    assert_eq!(body["Target"], json!({ "Group": "work" }));
    assert_eq!((&body["Count"], &body["Error"]), (&json!(2), &json!(false)));
    assert_eq!(body["PolicyOverride"], true);
    assert_eq!(body["Message"], "headcount: a test says so");
    assert_eq!(body["Meta"]["headcount_group"], "g");
    let watched = nomad.asked(&Method::GET, "/allocations");
    assert!(watched.iter().any(|(path, _)| path.contains("index=") && path.contains("wait=")));

    // A token that is renewed is read again, and one that is wrong is told.
    std::fs::write(folder.path().join("token"), "stale").unwrap();
    let missing = target.status().await.unwrap_err();
    assert!(missing.detail.contains("does not know the ACL token"), "{}", missing.detail);
    assert!(!missing.detail.contains("stale"));
    std::fs::write(folder.path().join("token"), "secret").unwrap();
    target.status().await.unwrap();
}

#[tokio::test]
async fn a_capability_that_lacks_is_named() {
    for lacks in ALL {
        let nomad = with(2, &[1]).await;
        let may: Vec<&str> = ALL.into_iter().filter(|name| *name != lacks).collect();
        nomad.world().tokens = [("scaler".into(), may)].into();
        let with_token = NomadConfig { token: Some("scaler".into()), ..config(&nomad) };
        let mut target = open(&with_token);
        let found = target.check().await;
        let named = |level: Level| {
            let quoted = format!("`{lacks}`");
            found.iter().any(|f| f.level == level && f.what.contains(&quoted))
        };
        let looked = target.status().await;
        let scaled = target.scale(&told(&nomad, 2, 1, &[0])).await;
        match lacks {
            "read-job" | "read-job-scaling" => {
                assert!(named(Level::Problem), "{lacks}: {found:#?}");
                let missing = looked.unwrap_err();
                assert_eq!(missing.why, Silence::Denied);
                assert!(missing.detail.contains(lacks) && scaled.is_err(), "{missing:?}");
            }
            "scale-job" => {
                assert!(named(Level::Warning), "{found:#?}");
                assert!(detail(&scaled.unwrap_err()).contains("needs `scale-job`"));
            }
            "alloc-lifecycle" => {
                assert!(named(Level::Warning), "{found:#?}");
                let note = scaled.unwrap().note;
                assert!(note.contains("lacks `alloc-lifecycle`"), "{note}");
            }
            _ => assert!(!named(Level::Problem) && scaled.is_ok(), "{lacks}: {found:#?}"),
        }
    }
}

fn warnings(found: &[Finding]) -> String {
    let worse = found.iter().filter(|finding| finding.level != Level::Good);
    worse.map(|finding| finding.what.clone()).collect::<Vec<_>>().join("; ")
}

#[tokio::test]
async fn check_says_what_stands_in_the_way() {
    let nomad = with(2, &[]).await;
    let mut target = open(&config(&nomad));
    let found = target.check().await;
    assert!(warnings(&found).contains("max_kill_timeout is 30s"), "{found:#?}");
    let facts: Vec<Fact> = found.iter().filter_map(|finding| finding.fact).collect();
    assert_eq!(facts, [Fact::Workers(2), Fact::Grace(Span::from_secs(30))]);
    {
        let mut world = nomad.world();
        world.kill_timeout = Duration::from_secs(20);
        (world.max_parallel, world.kind, world.scaling) = (1, "batch", Some((1, 9)));
    }
    nomad.set_count(2);
    let found = target.check().await;
    let said = warnings(&found);
    assert!(!said.contains("max_kill_timeout") && said.contains("type batch"), "{said}");
    assert!(said.contains("does not scale until it has ended"), "{said}");
    let bounds = found.iter().any(|f| f.what == "Nomad allows a count of 1 to 9 (scaling block)");
    assert!(bounds, "{found:#?}");
    nomad.world().tokens = [("other".into(), vec![])].into();
    let unknown = NomadConfig { token: Some("unknown".into()), ..config(&nomad) };
    let found = open(&unknown).check().await;
    let problem = found.iter().find(|f| f.level == Level::Problem).unwrap();
    assert!(problem.what.contains("does not know the ACL token"), "{found:#?}");
}

#[tokio::test]
async fn it_speaks_through_a_socket_too() {
    let nomad = with(3, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("api.sock");
    nomad.listen_at(&socket);
    let address = Some(format!("unix://{}", socket.display()));
    let mut target = open(&NomadConfig { address, ..config(&nomad) });
    assert_eq!(target.status().await.unwrap().reading.ready, 3);
}

/// A server that is only known as `server.global.nomad`, asks for a certificate, and passes on.
async fn tls_front(folder: &Path, back: SocketAddr) -> SocketAddr {
    std::fs::write(folder.join("ext"), "subjectAltName=DNS:server.global.nomad").unwrap();
    let sign = "x509 -req -days 2 -extfile ext -in server.csr -CA ca.pem -CAkey ca.key \
                -CAcreateserial -out named.pem";
    let mut command = Command::new("openssl");
    let made = command.current_dir(folder).args(sign.split(' ').filter(|w| !w.is_empty()));
    assert!(made.output().expect("no openssl: run ./test.sh first").status.success());
    let chain = CertificateDer::pem_file_iter(folder.join("named.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.pem")).unwrap()).unwrap();
    let clients = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let config = rustls::ServerConfig::builder()
        .with_client_cert_verifier(clients)
        .with_single_cert(chain.map(Result::unwrap).collect(), key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut back = tokio::net::TcpStream::connect(back).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut back).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn both_sides_show_their_certificates() {
    let nomad = with(3, &[]).await;
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let front = tls_front(folder.path(), nomad.address).await;
    let tls = NomadTls {
        ca_file: Some("ca.pem".into()),
        cert_file: Some("client.pem".into()),
        key_file: Some("client.key".into()),
        server_name: Some("server.global.nomad".into()),
        insecure: false,
    };
    let look = async |tls: NomadTls| {
        let address = Some(format!("https://{front}"));
        let config = NomadConfig { address, tls, ..config(&nomad) };
        open_in(&config, folder.path()).status().await
    };
    assert_eq!(look(tls.clone()).await.unwrap().reading.ready, 3);
    let wrong = [
        NomadTls { server_name: None, ..tls.clone() },
        NomadTls { ca_file: None, ..tls.clone() },
        NomadTls { cert_file: None, key_file: None, ..tls.clone() },
    ];
    for tls in wrong {
        let missing = look(tls.clone()).await.unwrap_err();
        assert!(missing.detail.contains("https://127.0.0.1"), "{tls:?}: {missing:?}");
    }
    let blind = NomadTls { server_name: None, ca_file: None, insecure: true, ..tls };
    assert_eq!(look(blind).await.unwrap().reading.ready, 3);
    let none = NomadTls { ca_file: Some("none.pem".into()), ..NomadTls::default() };
    let address = Some(format!("https://{front}"));
    let config = TargetConfig::Nomad(NomadConfig { address, tls: none, ..config(&nomad) });
    let error = config.open(&place(folder.path(), "g")).err().expect("there is no such file");
    assert!(format!("{error:#}").contains("none.pem"), "{error:#}");
}
