//! A real browser without a window.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A cold start on a busy machine takes a while.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a browser made of a page.
pub struct Seen {
    /// The page after its scripts ran, as markup.
    pub dom: String,
    /// What scripts and the browser complained of, a line each.
    pub complaints: Vec<String>,
}

/// Opens a file in Chromium, which reaches no host at all, and lets its scripts run.
pub fn open(page: &Path) -> Seen {
    let profile = tempfile::tempdir().expect("a temporary folder");
    let out = profile.path().join("dom.html");
    let log = profile.path().join("log");
    let file = |path: &Path| std::fs::File::create(path).expect("the folder is writable");
    let mut browser = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-quic"])
        .args(["--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr"])
        .args(["--virtual-time-budget=60000", "--window-size=1280,900", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&log))
        .spawn()
        .expect("chromium is installed: run ./test.sh first");
    let ended = ends(&mut browser);
    let text =
        |path| String::from_utf8_lossy(&std::fs::read(path).expect("it is there")).into_owned();
    let log = text(&log);
    assert!(ended.is_some_and(|code| code.success()), "{ended:?}: {log}");
    let complaints = log.lines().filter(|line| line.contains(":CONSOLE")).map(Into::into);
    Seen { dom: text(&out), complaints: complaints.collect() }
}

/// How it ended; `None` if it did not, and was killed.
fn ends(browser: &mut Child) -> Option<ExitStatus> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(code) = browser.try_wait().expect("it can be waited for") {
            return Some(code);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    browser.kill().expect("it is ours");
    browser.wait().expect("it can be waited for");
    None
}
