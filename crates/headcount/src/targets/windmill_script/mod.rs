//! A script in a Windmill that is told the number of workers, run as a job through Windmill's HTTP
//! API: what Windmill's own autoscaling calls a custom script.
//!
//! Headcount itself chooses each job's id. So a job whose start was not answered can be asked for by
//! its id, and a new one is started only when the last one has ended.

mod api;
mod check;
mod job;

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use headcount_core::{FleetReading, Missing, Silence, Span};
use reqwest::Url;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use crate::clock;
use crate::config::Place;
use crate::finding::Finding;
use crate::limits::WINDMILL_WORKERS_MOVE;
use crate::secret::Secret;
use crate::targets::assumed::{Assumed, problem_with_initial};
use crate::targets::{FleetSeen, Order, Promise, Scaled, Target, TargetError};
use api::Api;

/// Workers of a native process, each with a row of its own.
const NATIVE_ROWS: usize = 8;

/// A script in a Windmill that is told the number of workers.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WindmillScriptConfig {
    /// Where Windmill is, as its base URL says: `https://windmill.example`. Required.
    pub url: String,
    /// A token of a user who may run the script; best as `${ENV}`.
    pub token: Option<Secret>,
    /// The file with the token, relative to this file. It is read again for each request.
    pub token_file: Option<PathBuf>,
    /// The script's path: `f/ops/scale`. It gets the arguments `worker_group`, `desired_workers`,
    /// `reason` and `event_type` (`full_scaleout`, `scaleout` or `scalein`), as from Windmill itself.
    /// Required.
    pub path: String,
    /// The script's workspace.
    pub workspace: String,
    /// The tag of the workers that run the script. Default: the script's own. Best not one of the
    /// group that is scaled: with no worker left there, nobody could start one.
    pub tag: Option<String>,
    /// After this long the job is cancelled, and the change has failed.
    pub timeout: Span,
    /// The worker group in Windmill. Default: this group's name.
    pub group: Option<String>,
    /// How many workers there are before the first change; from then on the number that was set last
    /// is taken for the number there is. Default: Windmill is asked for the group's live workers.
    pub initial: Option<u32>,
    /// A worker that told of itself within this time is alive: 30 s. With `QUIET=true` workers tell
    /// less often: 90 s.
    pub alive_window: Span,
}

impl Default for WindmillScriptConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            token: None,
            token_file: None,
            path: String::new(),
            workspace: "admins".into(),
            tag: None,
            timeout: Span::from_secs(60),
            group: None,
            initial: None,
            alive_window: Span::from_secs(30),
        }
    }
}

impl WindmillScriptConfig {
    /// See [`crate::registry`].
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut say = |key: &str, what: &str| found.push((key.to_owned(), what.to_owned()));
        if self.url.is_empty() {
            say("url", "is missing; write where windmill is, as https://windmill.example");
        } else if let Err(what) = base(&self.url) {
            say("url", &what);
        }
        match (&self.token, &self.token_file) {
            (None, None) => say("token_file", "is missing; name the file that holds a token"),
            (Some(_), Some(_)) => say("token_file", "give either token or token_file"),
            _ => {}
        }
        if self.path.is_empty() {
            say("path", "is missing; write the script's path, as f/ops/scale");
        } else if !is_path(&self.path) {
            say("path", "is no path of a script: those begin with u/ or f/, as f/ops/scale");
        }
        if self.workspace.is_empty() || self.workspace.contains(['/', '.']) {
            say("workspace", "is no workspace; the script of an instance is in admins");
        }
        for (key, text) in [("tag", &self.tag), ("group", &self.group)] {
            if text.as_ref().is_some_and(String::is_empty) {
                say(key, "is empty; leave it out");
            }
        }
        if let Some(what) = problem_with_initial(self.initial) {
            say("initial", &what);
        }
        if self.timeout < Span::from_secs(1) || self.timeout > Span::from_mins(30) {
            say("timeout", "must be 1s to 30m");
        }
        if self.alive_window < Span::from_secs(10) || self.alive_window > Span::from_mins(10) {
            let what = "must be 10s to 10m: workers tell of themselves every 5 s, with QUIET=true \
                        every 50 s";
            say("alive_window", what);
        }
        found
    }

    /// See [`crate::registry`].
    pub fn open(&self, place: &Place) -> anyhow::Result<Box<dyn Target>> {
        let url = base(&self.url).map_err(|what| anyhow::anyhow!("the url of windmill {what}"))?;
        Ok(Box::new(WindmillScript {
            api: Api::new(url, self, &place.base_dir)?,
            group: self.group.clone().unwrap_or_else(|| place.group.clone()),
            job_file: place.state_dir.join("windmill-job"),
            assumed: self.initial.map(|initial| Assumed::new(&place.state_dir, initial)),
            moving: None,
            timeout: clock::duration(self.timeout),
            config: self.clone(),
        }))
    }
}

/// Whether this can be the path of a script: of a user, a folder, or the hub.
pub(crate) fn is_path(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let plain = |part: &&str| !part.is_empty() && !part.starts_with('.');
    let least = match parts[0] {
        "u" | "f" => 3,
        "hub" => 2,
        _ => return false,
    };
    parts.len() >= least && parts.iter().all(plain)
}

/// The base of all addresses of a Windmill.
fn base(url: &str) -> Result<Url, String> {
    let parsed = Url::parse(url).map_err(|e| format!("is no URL: {e}"))?;
    if !["http", "https"].contains(&parsed.scheme()) || !parsed.has_host() {
        return Err("must begin with https:// or http://".into());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err("must not hold a password; use token_file".into());
    }
    if parsed.query().is_some() || parsed.fragment().is_some() {
        return Err("must end before ? and #".into());
    }
    if parsed.path().trim_end_matches('/').ends_with("/api") {
        return Err("must end before /api".into());
    }
    Ok(parsed)
}

struct WindmillScript {
    api: Api,
    config: WindmillScriptConfig,
    /// The worker group in Windmill.
    group: String,
    timeout: Duration,
    /// Keeps the id of a job of which it is not known that it has ended.
    job_file: PathBuf,
    /// The number that was set last, if Windmill is not asked.
    assumed: Option<Assumed>,
    /// The last change while Windmill does not show it yet: the number, and since when.
    moving: Option<(u32, Instant)>,
}

impl WindmillScript {
    /// The live workers of the group.
    async fn count(&mut self) -> Result<FleetSeen, Missing> {
        let rows = self.api.workers(self.config.alive_window.as_secs()).await?;
        if rows.is_empty() {
            let detail = "windmill shows no worker of any group: there is none, or the token is not \
                          an admin's and HIDE_WORKERS_FOR_NON_ADMINS is set; use an admin's token, \
                          or set `initial`";
            return Err(Missing { why: Silence::Denied, detail: detail.into() });
        }
        let of_group = rows.iter().filter(|row| row.worker_group == self.group);
        let is_native = |row: &&api::Worker| row.native_mode.unwrap_or(self.group == "native");
        let (native, plain): (Vec<_>, Vec<_>) = of_group.partition(is_native);
        let live = plain.len() + native.len().div_ceil(NATIVE_ROWS);
        let reading = self.understood(u32::try_from(live).unwrap_or(u32::MAX));
        Ok(FleetSeen { reading, ..FleetSeen::default() })
    }

    /// What a number of live workers means. After a change, those that are missing still start and
    /// those that are too many finish their job, for a while.
    fn understood(&mut self, live: u32) -> FleetReading {
        self.moving = self
            .moving
            .filter(|(to, since)| *to != live && since.elapsed() < WINDMILL_WORKERS_MOVE);
        let Some((to, _)) = self.moving else {
            return FleetReading { ready: live, ..FleetReading::default() };
        };
        let ready = live.min(to);
        FleetReading {
            ready,
            starting: to - ready,
            draining: live - ready,
            ..FleetReading::default()
        }
    }
}

#[async_trait]
impl Target for WindmillScript {
    fn promise(&self) -> Promise {
        Promise::NumberOnly
    }

    fn scales(&self) -> String {
        let WindmillScriptConfig { workspace, path, .. } = &self.config;
        format!("windmill_script:{}:{workspace}/{path}:{}", self.api.place(), self.group)
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        match &mut self.assumed {
            Some(assumed) => assumed.fleet(),
            None => self.count().await,
        }
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        self.settle().await?;
        if let Some(assumed) = &self.assumed {
            assumed.announce(order.to, &format!("scaling {} to {}", self.group, order.to))?;
        }
        let scaled = self.run(order).await;
        match (&mut self.assumed, &scaled) {
            (Some(assumed), Ok(_)) => assumed.set(order.to),
            (Some(assumed), Err(_)) => assumed.withdraw(),
            (None, Ok(_)) => self.moving = Some((order.to, Instant::now())),
            (None, Err(_)) => {}
        }
        scaled
    }

    async fn check(&mut self) -> Vec<Finding> {
        self.findings().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> WindmillScriptConfig {
        WindmillScriptConfig {
            url: "https://windmill.example".into(),
            token: Some(Secret::from("hush")),
            path: "f/ops/scale".into(),
            ..WindmillScriptConfig::default()
        }
    }

    fn keys(config: &WindmillScriptConfig) -> Vec<String> {
        config.problems().into_iter().map(|(key, _)| key).collect()
    }

    #[test]
    fn problems_name_their_key() {
        assert_eq!(keys(&WindmillScriptConfig::default()), ["url", "token_file", "path"]);
        assert_eq!(keys(&good()), [""; 0]);
        let wrong = WindmillScriptConfig {
            url: "https://me:pass@x/".into(),
            token_file: Some("t".into()),
            path: "scale.sh".into(),
            workspace: "a/b".into(),
            tag: Some(String::new()),
            group: Some(String::new()),
            initial: Some(10_001),
            timeout: Span::ZERO,
            alive_window: Span::ZERO,
            ..good()
        };
        let expected = [
            "url",
            "token_file",
            "path",
            "workspace",
            "tag",
            "group",
            "initial",
            "timeout",
            "alive_window",
        ];
        assert_eq!(keys(&wrong), expected);
        let said = format!("{:?} {wrong:?}", wrong.problems());
        assert!(!said.contains("hush"), "{said}");
    }

    #[test]
    fn a_base_url_may_have_a_path_but_not_the_api_in_it() {
        for url in ["http://windmill_server:8000", "https://x/", "https://x/windmill/"] {
            assert!(base(url).is_ok(), "{url}");
        }
        for url in ["x", "ftp://x", "https://x/api", "https://x/wm/api/", "https://x/?a=b"] {
            assert!(base(url).is_err(), "{url}");
        }
        for path in ["f/ops/scale", "u/admin/scale", "f/ops/scale/up"] {
            assert_eq!(keys(&WindmillScriptConfig { path: path.into(), ..good() }), [""; 0]);
        }
        for path in ["f/ops", "g/all/scale", "f//scale", "f/../scale", "/f/a/b"] {
            assert_eq!(keys(&WindmillScriptConfig { path: path.into(), ..good() }), ["path"]);
        }
    }

    #[tokio::test]
    async fn after_a_change_windmill_gets_time_to_show_it() {
        let place =
            Place { group: "gpu".into(), state_dir: "/no/state".into(), base_dir: "/no".into() };
        let mut target = WindmillScript {
            api: Api::new(base("http://x").unwrap(), &good(), &place.base_dir).unwrap(),
            config: good(),
            group: "gpu".into(),
            timeout: Duration::from_secs(1),
            job_file: "/no/state/job".into(),
            assumed: None,
            moving: Some((5, Instant::now())),
        };
        let counts = |r: FleetReading| (r.ready, r.starting, r.draining);
        assert_eq!(counts(target.understood(2)), (2, 3, 0));
        assert_eq!(counts(target.understood(7)), (5, 0, 2));
        assert_eq!(counts(target.understood(5)), (5, 0, 0));
        assert_eq!(
            counts(target.understood(2)),
            (2, 0, 0),
            "it was there, so somebody else did it"
        );
    }
}
