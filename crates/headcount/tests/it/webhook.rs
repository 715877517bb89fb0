//! The `webhook` target with a real server.

use std::path::Path;
use std::time::{Duration, Instant};

use headcount::finding::Level;
use headcount::targets::webhook::WebhookConfig;
use headcount::targets::{Order, Promise, Target, TargetConfig, TargetError};
use headcount_core::{Silence, Span};

use crate::support::certificates::{acceptor, certificates};
use crate::support::hook::{Asked, Hook, Reply};
use crate::support::redis::free_port;
use crate::support::run::run;
use crate::support::server::Server;
use crate::support::workers::{order, place};

fn to(hook: &Hook) -> WebhookConfig {
    let url = format!("http://{}/scale", hook.address);
    WebhookConfig { url, initial: Some(1), ..WebhookConfig::default() }
}

fn asking(hook: &Hook) -> WebhookConfig {
    let status_url = Some(format!("http://{}/list", hook.address));
    WebhookConfig { status_url, initial: None, ..to(hook) }
}

fn open(config: &WebhookConfig, folder: &Path) -> Box<dyn Target> {
    assert_eq!(config.problems(), []);
    TargetConfig::Webhook(config.clone()).open(&place(folder, "shop")).unwrap()
}

/// Whether a request is genuine, by the code in the documentation.
fn genuine(asked: &Asked, secret: &str) -> bool {
    let page = include_str!("../../../../docs/webhook.md");
    let code = page.split("```python").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let call = "import json, sys\ngiven = json.load(sys.stdin)\n\
                print(genuine(given['headers'], given['body'].encode(), given['secret']))";
    let header = |name: &str| (name.to_owned(), asked.header(name).to_owned());
    let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(header);
    let given = serde_json::json!({
        "headers": std::collections::BTreeMap::from(headers),
        "body": std::str::from_utf8(&asked.body).unwrap(),
        "secret": secret,
    });
    let mut python = std::process::Command::new("python3");
    python.args(["-c", &format!("{code}\n{call}")]);
    let ran = run(python, given.to_string().as_bytes());
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    ran.out.trim() == "True"
}

#[tokio::test]
async fn an_order_is_posted_with_everything_and_signed() {
    let (hook, folder) = (Hook::start().await, tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("key"), "first key\n").unwrap();
    let config = WebhookConfig {
        secret_file: Some("key".into()),
        headers: [("X-Api-Key".to_owned(), "s3cret".into())].into(),
        exact_victims: true,
        ..asking(&hook)
    };
    assert!(!format!("{config:?}").contains("s3cret"), "secrets are not shown");
    let mut target = open(&config, folder.path());
    assert_eq!(target.promise(), Promise::ExactVictims);
    let out = target.scale(&order(1, 2, &[])).await.unwrap();
    assert_eq!((out.note.as_str(), out.started.len()), ("as asked; started w1, w2", 2));
    std::fs::write(folder.path().join("key"), "second key\n").unwrap();
    let back = target.scale(&order(2, 1, &["w2"])).await.unwrap();
    assert_eq!((back.note.as_str(), back.removed), ("as asked; removed w2", vec!["w2".into()]));
    target.status().await.unwrap();

    let asked = hook.world().asked.clone();
    let [first, second, look] = &asked[..] else { panic!("{asked:#?}") };
    let (told, key) = (first.json(), first.header("idempotency-key"));
    let time: jiff::Timestamp = told["time"].as_str().unwrap().parse().unwrap();
    let sent: i64 = first.header("webhook-timestamp").parse().unwrap();
    assert!((time.as_second() - sent).abs() < 60);
    let expected = serde_json::json!({
        "group": "shop", "desired": 2, "current": 1, "reason": "a test says so",
        "event": "scale_out", "victims": [], "token": 1,
        "idempotency_key": key, "time": told["time"],
    });
    assert_eq!(told, expected);
    assert_eq!(second.json()["victims"], serde_json::json!(["w2"]));
    assert_eq!(second.json()["event"], "scale_in");
    assert_ne!(second.header("idempotency-key"), key, "another order");
    assert_eq!(look.path, "/list");
    for (asked, key) in
        [(first, "first key"), (second, "whsec_c2Vjb25kIGtleQ=="), (look, "second key")]
    {
        assert!(genuine(asked, key), "with {key}: {asked:?}");
        assert!(!genuine(asked, "another key"));
        let forged = Asked { body: b"{}".to_vec(), ..asked.clone() };
        assert!(!genuine(&forged, key), "the body is signed");
        assert_eq!(asked.header("x-api-key"), "s3cret");
    }
    assert_eq!(first.header("webhook-id"), first.header("idempotency-key"));
    assert_eq!(first.header("content-type"), "application/json");
}

#[tokio::test]
async fn what_may_pass_is_sent_again_with_the_same_key_and_body() {
    let (hook, folder) = (Hook::start().await, tempfile::tempdir().unwrap());
    let mut target = open(&to(&hook), folder.path());
    let wait = Reply { headers: vec![("Retry-After", "1".into())], ..Reply::status(429) };
    for replies in [vec![408, 500, 503], vec![502]] {
        hook.replies(replies.into_iter().map(Reply::status));
        let scaled = target.scale(&order(1, 2, &[])).await.unwrap();
        assert!(scaled.note.contains("as asked") || scaled.note.contains("done already"));
    }
    let orders = hook.orders();
    assert_eq!(orders.len(), 6);
    assert!(orders.iter().all(|o| o.body == orders[0].body), "the order again before a look");
    assert!(orders.iter().all(|o| o.header("webhook-id") == orders[0].header("webhook-id")));

    target.status().await.unwrap();
    hook.replies([wait]);
    let start = Instant::now();
    target.scale(&order(1, 2, &[])).await.unwrap();
    assert!(start.elapsed() >= Duration::from_secs(1), "it waits as long as it is told to");
    let last = hook.orders();
    assert_ne!(last[6].body, orders[0].body, "after a look it is a new order");
    assert_eq!(last[6].body, last[7].body);
}

#[tokio::test]
async fn an_order_without_an_answer_keeps_its_key_over_a_look() {
    let (hook, folder) = (Hook::start().await, tempfile::tempdir().unwrap());
    let config = WebhookConfig { timeout: Span::from_secs(1), ..asking(&hook) };
    let mut target = open(&config, folder.path());
    let slow = || Reply { after: Duration::from_secs(5), ..Reply::status(200) };
    let again = |from, to| Order { reason: "another text".into(), ..order(from, to, &[]) };
    hook.replies([slow()]);
    let error = target.scale(&order(0, 2, &[])).await.unwrap_err();
    assert!(matches!(error, TargetError::Timeout { .. }), "{error}");
    assert_eq!(target.status().await.unwrap().reading.capacity(), 0);
    target.scale(&again(0, 2)).await.unwrap();
    let orders = hook.orders();
    assert_eq!(orders.len(), 2);
    assert_eq!(orders[0].body, orders[1].body, "nobody knows whether it was carried out");
    assert_eq!(orders[0].header("idempotency-key"), orders[1].header("idempotency-key"));

    // Another number at the look: it was carried out, or is not what is asked now.
    hook.replies([slow()]);
    target.scale(&order(2, 3, &[])).await.unwrap_err();
    hook.world().workers.insert("other".into(), "ready".into());
    assert_eq!(target.status().await.unwrap().reading.capacity(), 3);
    hook.world().workers.remove("other");
    assert_eq!(target.status().await.unwrap().reading.capacity(), 2);
    target.scale(&again(2, 3)).await.unwrap();
    // An answer, even a bad one, ends the order with the next look.
    target.status().await.unwrap();
    hook.replies([Reply::status(400)]);
    target.scale(&order(3, 4, &[])).await.unwrap_err();
    target.status().await.unwrap();
    target.scale(&again(3, 4)).await.unwrap();
    let keys: std::collections::BTreeSet<String> =
        hook.orders().iter().map(|asked| asked.header("idempotency-key").to_owned()).collect();
    assert_eq!((hook.orders().len(), keys.len()), (6, 5));
}

#[tokio::test]
async fn it_gives_up_with_what_the_server_said_and_assumes_nothing() {
    let (hook, folder) = (Hook::start().await, tempfile::tempdir().unwrap());
    let mut target = open(&to(&hook), folder.path());
    let place = format!("webhook http://{}", hook.address);
    let with = |status, body: &str| Reply { body: body.into(), ..Reply::status(status) };
    let long = Reply { headers: vec![("Retry-After", "3600".into())], ..Reply::status(429) };
    let table = [
        (vec![with(503, "no\n  room")], 4, "answers 503 Service Unavailable: no room, 4 times"),
        (vec![with(400, "no such group")], 1, "answers 400 Bad Request: no such group"),
        (vec![with(403, "")], 1, "answers 403 Forbidden"),
        (vec![long], 1, "answers 429 Too Many Requests, and asks to wait 3600 s"),
        (vec![with(404, &"x".repeat(100_000))], 1, "answers 404 Not Found"),
    ];
    for (replies, times, said) in table {
        hook.world().asked.clear();
        hook.replies(replies.into_iter().cycle().take(times));
        let error = target.scale(&order(1, 2, &[])).await.unwrap_err();
        assert_eq!(error.to_string(), format!("{place}: {said}"));
        assert_eq!(hook.orders().len(), times, "{said}");
        assert_eq!(target.status().await.unwrap().reading.capacity(), 1, "nothing is assumed");
    }
    target.scale(&order(1, 2, &[])).await.unwrap();
    assert_eq!(target.status().await.unwrap().reading.capacity(), 2);
    let again = open(&to(&hook), folder.path()).status().await.unwrap();
    assert_eq!(again.reading.capacity(), 2, "a restart does not forget");
}

#[tokio::test]
async fn what_a_server_repeats_of_the_headers_is_not_told() {
    let (hook, folder) = (Hook::start().await, tempfile::tempdir().unwrap());
    let headers = [("Authorization".to_owned(), "Bearer hush-hush".into())].into();
    let mut target = open(&WebhookConfig { headers, ..to(&hook) }, folder.path());
    let body = "Authorization: Bearer hush-hush\n\u{1b}[2Jtoken=hush-hush".to_owned();
    hook.replies([200, 400].map(|status| Reply { body: body.clone(), ..Reply::status(status) }));
    let note = target.scale(&order(1, 2, &[])).await.unwrap().note;
    assert_eq!(note, "Authorization: ...; [2Jtoken=...");
    let error = target.scale(&order(2, 3, &[])).await.unwrap_err().to_string();
    assert!(error.ends_with("Authorization: ... [2Jtoken=..."), "{error}");
}

#[tokio::test]
async fn nobody_there_and_no_answer_are_told_apart() {
    let (hook, folder) = (Hook::start().await, tempfile::tempdir().unwrap());
    let url = format!("http://127.0.0.1:{}/scale?key=s3cret", free_port());
    let status_url = Some(url.clone());
    let config = WebhookConfig { url, status_url, initial: None, ..to(&hook) };
    let mut target = open(&config, folder.path());
    let error = target.scale(&order(1, 2, &[])).await.unwrap_err();
    assert!(matches!(error, TargetError::Unreachable { .. }), "{error:?}");
    let missing = target.status().await.unwrap_err();
    assert_eq!(missing.why, Silence::Unreachable);
    for said in [error.to_string(), missing.to_string()] {
        assert!(said.contains("onnection refused") && !said.contains("s3cret"), "{said}");
    }

    let config = WebhookConfig { timeout: Span::from_secs(1), ..asking(&hook) };
    let mut target = open(&config, folder.path());
    let slow = Reply { after: Duration::from_secs(600), ..Reply::status(200) };
    hook.replies([slow.clone(), slow]);
    let error = target.scale(&order(1, 2, &[])).await.unwrap_err();
    assert!(matches!(error, TargetError::Timeout { seconds: 1, .. }), "{error}");
    assert_eq!(hook.orders().len(), 1, "it may have been carried out: the next look tells");
    assert_eq!(target.status().await.unwrap_err().why, Silence::Timeout);
}

#[tokio::test]
async fn an_order_goes_to_no_other_server() {
    let (hook, other) = (Hook::start().await, Hook::start().await);
    let folder = tempfile::tempdir().unwrap();
    let mut target = open(&to(&hook), folder.path());
    let sends =
        |status, to: String| Reply { headers: vec![("Location", to)], ..Reply::status(status) };
    let elsewhere = format!("http://{}/scale?key=s3cret", other.address);
    for status in [302, 307, 308] {
        hook.replies([sends(status, elsewhere.clone())]);
        let error = target.scale(&order(1, 2, &[])).await.unwrap_err().to_string();
        assert!(error.ends_with(&format!("and points to http://{}", other.address)), "{error}");
    }
    // A POST would become a GET.
    hook.replies([sends(303, "/list".into())]);
    target.scale(&order(1, 2, &[])).await.unwrap_err();
    hook.replies([sends(308, "/scale".into())]);
    target.scale(&order(1, 2, &[])).await.unwrap();
    assert_eq!(hook.orders().last().unwrap().json()["desired"], 2);
    hook.replies((0..5).map(|_| sends(307, "/scale".into())));
    target.scale(&order(1, 3, &[])).await.unwrap_err();
    assert_eq!(other.world().asked.len(), 0);
}

#[tokio::test]
async fn a_look_that_does_not_tell_is_a_missing_reading() {
    let (hook, folder) = (Hook::start().await, tempfile::tempdir().unwrap());
    let mut target = open(&asking(&hook), folder.path());
    let with = |status, body: &str| Reply { body: body.into(), ..Reply::status(status) };
    let table = [
        (with(200, "many"), Silence::Malformed, "`many` is no number of workers"),
        (with(200, ""), Silence::Malformed, "`` is no number"),
        (with(200, "{}"), Silence::Malformed, "without `ready` or `workers`"),
        (with(200, &"9".repeat(2 << 20)), Silence::Malformed, "more than 1048576 bytes"),
        (with(204, ""), Silence::Malformed, "`` is no number"),
        (with(401, "who are you?"), Silence::Denied, "answers 401 Unauthorized: who are you?"),
        (with(404, ""), Silence::NotFound, "answers 404 Not Found"),
        (with(500, "boom"), Silence::Refused, "answers 500 Internal Server Error: boom"),
    ];
    for (reply, why, said) in table {
        hook.replies([reply]);
        let missing = target.status().await.unwrap_err();
        assert_eq!(missing.why, why, "{missing}");
        assert!(missing.detail.contains(said), "{missing}");
    }
    hook.replies([with(200, "3\n")]);
    assert_eq!(target.status().await.unwrap().reading.ready, 3);
}

#[tokio::test]
async fn check_says_what_is_missing() {
    let (hook, folder) = (Hook::start().await, tempfile::tempdir().unwrap());
    let told = async |config: &WebhookConfig| {
        let found = open(config, folder.path()).check().await;
        assert!(found.iter().all(|f| f.fix.is_some() == (f.level != Level::Good)), "{found:#?}");
        let bad = found.iter().filter(|f| f.level != Level::Good);
        bad.map(|f| f.what.clone()).collect::<Vec<_>>()
    };
    let good = WebhookConfig { secret: Some("key".into()), ..asking(&hook) };
    assert_eq!(told(&good).await, [""; 0]);
    assert!(hook.orders().is_empty(), "a check orders nothing");
    for status in [401, 404, 405, 501] {
        hook.replies([Reply::status(status)]);
        assert_eq!(told(&good).await, [""; 0], "{status} to HEAD is an answer");
    }
    hook.replies([Reply::status(503)]);
    assert_eq!(told(&good).await.len(), 1);
    let bare = told(&to(&hook)).await;
    assert_eq!(
        bare,
        [
            "requests are not signed: the server cannot tell who sends them",
            "nobody is asked how many workers there are; assumed: 1 worker",
        ]
    );
    let wrong = WebhookConfig {
        url: format!("http://127.0.0.1:{}/", free_port()),
        status_url: Some(format!("http://{}/nowhere", hook.address)),
        ..good
    };
    let wrong = told(&wrong).await;
    assert!(wrong[0].contains("onnection refused"), "{wrong:?}");
    assert!(wrong[1].contains("answers 405 Method Not Allowed"), "{wrong:?}");
}

#[tokio::test]
async fn only_the_given_authority_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let app = axum::Router::new().fallback(async || "3");
    let server = Server::with(app, Some(acceptor(folder.path()))).await;
    let address = server.address;
    let config = WebhookConfig {
        url: format!("https://{address}/scale"),
        status_url: Some(format!("https://{address}/list")),
        ca_file: Some("ca.pem".into()),
        ..WebhookConfig::default()
    };
    assert_eq!(open(&config, folder.path()).status().await.unwrap().reading.ready, 3);
    let other = tempfile::tempdir().unwrap();
    certificates(other.path());
    for stranger in [None, Some(other.path().join("ca.pem"))] {
        let config = WebhookConfig { ca_file: stranger, ..config.clone() };
        let missing = open(&config, folder.path()).status().await.unwrap_err();
        assert_eq!(missing.why, Silence::Unreachable);
        assert!(missing.detail.contains("certificate"), "{missing}");
    }
}
