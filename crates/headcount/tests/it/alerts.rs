//! Alerts of a running daemon: events, metrics, and a server that is told.

use crate::support::daemon::Daemon;
use crate::support::hook::Hook;
use crate::support::redis::free_port;

fn config(hook: &Hook, port: u16) -> String {
    let address = hook.address;
    format!(
        "http: {{ listen: '127.0.0.1:{port}' }}
groups:
  jobs:
    look: 500ms
    queue: {{ demo: {{ database: none.db }} }}
    workers: {{ min: 1, max: 4 }}
    target: {{ webhook: {{ url: 'http://{address}/scale', status_url: 'http://{address}/list' }} }}
    alerts:
      live_workers_under: {{ workers: 2, for: 1s }}
      webhook: {{ url_file: address, secret: 'a secret' }}
"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alert_is_an_event_a_metric_and_a_signed_request() {
    let (hook, port, folder) = (Hook::start().await, free_port(), tempfile::tempdir().unwrap());
    hook.world().workers.insert("w0".into(), "ready".into());
    std::fs::write(folder.path().join("headcount.yaml"), config(&hook, port)).unwrap();
    std::fs::write(folder.path().join("address"), format!("http://{}/alert\n", hook.address))
        .unwrap();
    let daemon = Daemon::start_in(folder, &[]);
    let alerts = || {
        let orders = hook.orders();
        orders.into_iter().filter(|asked| asked.path == "/alert").collect::<Vec<_>>()
    };
    daemon.until("an alert", |_| !alerts().is_empty());
    let first = &alerts()[0];
    let told = first.json();
    assert_eq!((&told["event"], &told["alert"]), (&"alert".into(), &"live_workers_under".into()));
    assert_eq!((&told["state"], &told["group"]), (&"raised".into(), &"jobs".into()));
    assert_eq!((&told["count"], &told["limit"]), (&1.into(), &2.into()));
    assert_eq!(told["dry_run"], false);
    let text = told["text"].as_str().unwrap();
    let start = "headcount: live_workers_under raised in jobs: 1 live workers, fewer than 2 for ";
    assert!(text.starts_with(start), "{text}");
    assert!(first.header("webhook-signature").starts_with("v1,"));
    assert_eq!(first.header("idempotency-key"), told["idempotency_key"]);
    let metric =
        |value| format!("headcount_alert{{group=\"jobs\",alert=\"live_workers_under\"}} {value}");
    daemon.until("the metric", |_| Daemon::page(port, "/metrics").1.contains(&metric(1)));
    let shown = daemon.verb(&["status"]).out;
    assert!(shown.contains("alert live_workers_under; "), "{shown}");

    hook.world().workers.insert("w00".into(), "ready".into());
    daemon.until("the end of it", |_| alerts().last().unwrap().json()["state"] == "resolved");
    daemon.until("the metric", |_| Daemon::page(port, "/metrics").1.contains(&metric(0)));
    let kinds = |daemon: &Daemon| {
        let events = daemon.events();
        let alerts = events.into_iter().filter(|event| event["kind"] == "alert");
        alerts.map(|e| e["alert"]["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&daemon), ["raised", "resolved"]);
    let shown = daemon.verb(&["events"]).out;
    assert!(
        shown.contains("live_workers_under: 2 live workers, no longer fewer than 2"),
        "{shown}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_or_hangs_holds_up_nothing() {
    let (hook, port) = (Hook::start().await, free_port());
    hook.world().workers.insert("w0".into(), "ready".into());
    let daemon = Daemon::start(
        &config(&hook, port)
            .replace("url_file: address", &format!("url: 'http://127.0.0.1:{}/'", free_port())),
        &[],
    );
    daemon.until("it is told that nobody is there", |d| {
        d.log().contains("an alert is sent again in 15 s")
    });
    let looks = || {
        let page = Daemon::page(port, "/metrics").1;
        let line = page.lines().find(|line| line.starts_with("headcount_looks_total{")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let before = looks();
    daemon.until("more looks", |_| looks() > before + 5);
    let mut daemon = daemon;
    assert_eq!(daemon.end(), Some(0));
    assert!(
        daemon.log().contains("an alert is not sent: there is no time left"),
        "{}",
        daemon.log()
    );
}

#[test]
fn nonsense_is_told_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let text = "groups:
  a:
    queue: { demo: { database: d } }
    target: { dry_run: { workers: 1 } }
    worker_memory: lots
    alerts:
      live_workers_under: { workers: 0 }
      every: 0s
      webhook: { secret: x }
";
    std::fs::write(folder.path().join("headcount.yaml"), text).unwrap();
    let ran =
        crate::support::run::run(crate::support::run::headcount(folder.path(), &["check"]), b"");
    for line in [
        "headcount.yaml:5:20 groups.a.worker_memory: \"lots\" is no size of at least 6m",
        "headcount.yaml:7:38 groups.a.alerts.live_workers_under.workers: ",
        "headcount.yaml:8:14 groups.a.alerts.every: 0s is too often; use 1s or more",
        "groups.a.alerts.webhook.url: is missing; write where alerts are posted to",
    ] {
        assert!(ran.err.contains(line), "{line}\n{}", ran.err);
    }
    assert_eq!(ran.code, 2);
}
