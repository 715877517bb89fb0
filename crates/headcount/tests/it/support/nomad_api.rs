//! A stand-in for Nomad's documented HTTP API, with a scheduler like Nomad's own: a stopped
//! allocation gets a successor, a lowered count takes allocations that were stopped first and then
//! those of the highest index. What changes the job and what evaluates it are written one after the
//! other, as Nomad's servers do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::time::sleep;

use super::server::Server;

/// The job and its group.
pub const JOB: &str = "web";
/// The group of workers in it.
pub const GROUP: &str = "work";

/// The server; it ends with the test.
pub struct NomadApi {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    _server: Server,
}

struct Shared {
    world: Mutex<World>,
    changed: watch::Sender<u64>,
}

/// What the servers know.
pub struct World {
    /// `service`, `batch`, `system`.
    pub kind: &'static str,
    pub stopped: bool,
    pub count: u32,
    /// The bounds of the `scaling` block.
    pub scaling: Option<(u32, u32)>,
    /// With more than 0 each change is a deployment.
    pub max_parallel: u32,
    /// Whether one is under way.
    pub deploying: bool,
    pub kill_timeout: Duration,
    pub allocs: Vec<Alloc>,
    /// Allocations that hold a job: told to go they end when it does.
    pub jobs: BTreeSet<String>,
    /// New allocations stay pending.
    pub slow_start: bool,
    /// More allocations than this find no node.
    pub room: usize,
    /// So much later than the count its evaluation is written.
    pub commit: Duration,
    /// A stop is held up this long.
    pub late_stops: Duration,
    /// Capabilities by token; without any there are no access lists.
    pub tokens: BTreeMap<String, Vec<&'static str>>,
    /// What is answered to the next requests instead, by the start of `METHOD path`.
    pub next: VecDeque<(&'static str, u16, &'static str)>,
    /// All requests: method, path with query, body.
    pub asked: Vec<(Method, String, Value)>,
    index: u64,
    job_index: u64,
    version: u64,
    born: u64,
}

/// An allocation.
#[derive(Clone, Debug)]
pub struct Alloc {
    pub id: String,
    pub index: u32,
    pub desired: &'static str,
    pub client: &'static str,
    /// What a deployment found.
    pub healthy: Option<bool>,
    /// Nomad will give it a successor later.
    pub comes_again: bool,
    pub events: Vec<Value>,
    migrate: bool,
    next: String,
    version: u64,
    started: String,
}

impl NomadApi {
    /// Starts it on a free port.
    pub async fn start() -> Self {
        let world = World {
            kind: "service",
            stopped: false,
            count: 0,
            scaling: None,
            max_parallel: 0,
            deploying: false,
            kill_timeout: Duration::from_secs(600),
            allocs: Vec::new(),
            jobs: BTreeSet::new(),
            slow_start: false,
            room: usize::MAX,
            commit: Duration::ZERO,
            late_stops: Duration::ZERO,
            tokens: BTreeMap::new(),
            next: VecDeque::new(),
            asked: Vec::new(),
            index: 10,
            job_index: 10,
            version: 0,
            born: 0,
        };
        let shared = Arc::new(Shared { world: Mutex::new(world), changed: watch::Sender::new(10) });
        let server = Server::start(app(&shared)).await;
        Self { address: server.address, shared, _server: server }
    }

    /// Listens at a socket too.
    pub fn listen_at(&self, path: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        let app = app(&self.shared);
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    }

    /// What there is.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock().unwrap()
    }

    /// As many allocations as the count says, at once.
    pub fn set_count(&self, count: u32) {
        let mut world = self.world();
        world.count = count;
        world.bump(true);
        world.evaluate();
        self.shared.tell(&world);
    }

    /// The ids of those that run, draining ones among them.
    pub fn running(&self) -> Vec<String> {
        let mut world = self.world();
        world.turn();
        let runs = |alloc: &&Alloc| ["pending", "running"].contains(&alloc.client);
        world.allocs.iter().filter(runs).map(|alloc| alloc.id.clone()).collect()
    }

    /// The id of the one that has this index and shall run.
    pub fn at(&self, index: u32) -> String {
        let world = self.world();
        let mut all = world.allocs.iter().rev();
        let found = all.find(|alloc| alloc.index == index && alloc.desired == "run");
        found.expect("there is one").id.clone()
    }

    /// Requests of this method whose path ends so.
    pub fn asked(&self, method: &Method, end: &str) -> Vec<(String, Value)> {
        let world = self.world();
        let fits = |path: &str| path.split('?').next().unwrap().ends_with(end);
        let asked = world.asked.iter().filter(|(m, path, _)| m == method && fits(path));
        asked.map(|(_, path, body)| (path.clone(), body.clone())).collect()
    }
}

impl Shared {
    fn tell(&self, world: &World) {
        self.changed.send_replace(world.index);
    }
}

impl World {
    fn bump(&mut self, job: bool) {
        self.index += 1;
        if job {
            self.job_index = self.index;
            self.version += 1;
        }
    }

    /// Time goes on at the nodes: what was told to go and holds no job ends.
    pub fn turn(&mut self) {
        let mut changed = false;
        for alloc in &mut self.allocs {
            let runs = ["pending", "running"].contains(&alloc.client);
            if alloc.desired == "stop" && runs && !self.jobs.contains(&alloc.id) {
                (alloc.client, changed) = ("complete", true);
            }
        }
        if changed {
            self.bump(false);
        }
    }

    /// What Nomad's scheduler does for the group.
    fn evaluate(&mut self) {
        let count = if self.stopped { 0 } else { self.count as usize };
        let held = |alloc: &Alloc| {
            let dead = alloc.client == "failed" && alloc.next.is_empty();
            alloc.desired == "run" && (dead || ["pending", "running"].contains(&alloc.client))
        };
        let mut all: Vec<usize> =
            (0..self.allocs.len()).filter(|i| held(&self.allocs[*i])).collect();
        // The highest index first, stopped ones before others.
        all.sort_by_key(|i| {
            let alloc = &self.allocs[*i];
            (std::cmp::Reverse(alloc.migrate), std::cmp::Reverse(alloc.index))
        });
        let mut remove = all.len().saturating_sub(count);
        for i in &all {
            let alloc = &mut self.allocs[*i];
            if remove > 0 && alloc.client != "failed" {
                (alloc.desired, remove) = ("stop", remove - 1);
            }
        }
        let migrating: Vec<usize> = all
            .iter()
            .copied()
            .filter(|i| self.allocs[*i].migrate && held(&self.allocs[*i]))
            .collect();
        for i in migrating {
            self.allocs[i].desired = "stop";
            let id = self.place(self.allocs[i].index);
            self.allocs[i].next = id;
        }
        let taken =
            |world: &Self| world.allocs.iter().filter(|a| held(a)).map(|a| a.index).collect();
        let mut names: BTreeSet<u32> = taken(self);
        let mut there = self.allocs.iter().filter(|alloc| held(alloc)).count();
        while there < count.min(self.room) {
            let free = (0..).find(|index| !names.contains(index)).expect("there are many");
            names.insert(free);
            self.place(free);
            there += 1;
        }
        self.bump(false);
        self.turn();
    }

    fn place(&mut self, index: u32) -> String {
        self.born += 1;
        let id = format!(
            "{:08x}-0000-4000-8000-{:012x}",
            0xa000_0000_u64 + self.born * 0x1111,
            self.born
        );
        self.allocs.push(Alloc {
            id: id.clone(),
            index,
            desired: "run",
            client: if self.slow_start { "pending" } else { "running" },
            healthy: None,
            comes_again: false,
            events: Vec::new(),
            migrate: false,
            next: String::new(),
            version: self.version,
            started: format!("2026-11-30T10:{:02}:{:02}Z", self.born / 60 % 60, self.born % 60),
        });
        id
    }

    fn list(&self) -> Value {
        let alloc = |alloc: &Alloc| {
            let healthy = alloc.healthy.map(|healthy| json!({ "Healthy": healthy }));
            let state = match alloc.client {
                "pending" => "pending",
                "running" => "running",
                _ => "dead",
            };
            json!({
                "ID": alloc.id,
                "Name": format!("{JOB}.{GROUP}[{}]", alloc.index),
                "NodeName": format!("node-{}", alloc.index % 2),
                "TaskGroup": GROUP,
                "DesiredStatus": alloc.desired,
                "ClientStatus": alloc.client,
                "ClientDescription": "",
                "JobVersion": alloc.version,
                "CreateTime": 1_790_000_000_000_000_000_u64,
                "DeploymentStatus": healthy,
                "NextAllocation": alloc.next,
                "FollowupEvalID": if alloc.comes_again { "later" } else { "" },
                "PreemptedAllocations": null,
                "TaskStates": { "main": {
                    "State": state, "Failed": alloc.client == "failed", "Restarts": 0,
                    "StartedAt": alloc.started, "FinishedAt": null, "Events": alloc.events,
                } },
            })
        };
        self.allocs.iter().map(alloc).collect()
    }

    fn job(&self) -> Value {
        let scaling =
            self.scaling.map(|(min, max)| json!({ "Min": min, "Max": max, "Enabled": false }));
        let kill_timeout = u64::try_from(self.kill_timeout.as_nanos()).unwrap();
        json!({
            "ID": JOB, "Type": self.kind, "Stop": self.stopped, "JobModifyIndex": self.job_index,
            "Periodic": null, "ParameterizedJob": null,
            "TaskGroups": [
                { "Name": "other", "Count": 1, "Tasks": null },
                { "Name": GROUP, "Count": self.count, "Scaling": scaling, "ShutdownDelay": null,
                  "Update": { "MaxParallel": self.max_parallel },
                  "Tasks": [{ "Name": "main", "KillTimeout": kill_timeout, "ShutdownDelay": 0,
                              "Lifecycle": null }] },
            ],
        })
    }

    fn status(&self) -> Value {
        let runs = |alloc: &&Alloc| alloc.desired == "run" && alloc.client == "running";
        let running = self.allocs.iter().filter(runs).count();
        json!({
            "JobID": JOB, "JobModifyIndex": self.job_index, "JobStopped": self.stopped,
            "TaskGroups": { GROUP: { "Desired": self.count, "Placed": running, "Running": running,
                "Healthy": running, "Unhealthy": 0, "Events": null } },
        })
    }

    /// Why a count is not taken, as Nomad says it.
    fn refusal(&self, body: &Value) -> Option<String> {
        let count = body["Count"].as_u64().unwrap();
        let enforced = body["EnforceIndex"] == true;
        let expected = body["JobModifyIndex"].as_u64().filter(|_| enforced).unwrap_or(0);
        match self.scaling {
            _ if self.kind == "system" => Some("cannot scale jobs of type \"system\"".into()),
            _ if body["Target"]["Group"] != GROUP => {
                Some("task group specified for scaling does not exist in job".into())
            }
            Some((min, _)) if count < u64::from(min) => {
                Some(format!("group count was less than scaling policy minimum: {count} < {min}"))
            }
            Some((_, max)) if count > u64::from(max) => Some(format!(
                "group count was greater than scaling policy maximum: {count} > {max}"
            )),
            _ if self.deploying => Some("job scaling blocked due to active deployment".into()),
            _ if expected > 0 && expected != self.job_index => Some(format!(
                "Enforcing job modify index {expected}: job exists with conflicting job modify \
                 index: {}",
                self.job_index
            )),
            _ => None,
        }
    }
}

fn app(shared: &Arc<Shared>) -> Router {
    Router::new().fallback(answer).with_state(Arc::clone(shared))
}

fn text(status: u16, body: impl Into<String>) -> Response {
    (StatusCode::from_u16(status).unwrap(), body.into()).into_response()
}

/// The value of a key of the query.
fn key(uri: &Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let path = uri.path().to_owned();
    {
        let mut world = shared.world.lock().unwrap();
        world.asked.push((method.clone(), uri.to_string(), body.clone()));
        let line = format!("{method} {path}");
        if world.next.front().is_some_and(|(start, ..)| line.starts_with(start)) {
            let (_, status, said) = world.next.pop_front().unwrap();
            return text(status, said);
        }
    }
    let parts: Vec<&str> = path.trim_start_matches("/v1/").split('/').collect();
    if let Some(refused) = denied(&shared, &method, &parts, &headers) {
        return refused;
    }
    if key(&uri, "region").is_some_and(|region| region != "global") {
        return text(500, "No path to region");
    }
    let elsewhere = key(&uri, "namespace").is_some_and(|namespace| namespace != "default");
    let unknown = matches!(parts[..], ["job", id, ..] if id != JOB) || elsewhere;
    if matches!(parts[..], ["job", ..]) && unknown {
        return text(404, format!("job \"{}\" not found", parts[1]));
    }
    if let ["job", _, "allocations" | "deployment"] = parts[..] {
        wait_for(&shared, &uri).await;
    }
    match (method, &parts[..]) {
        (Method::POST, ["job", _, "scale"]) => scale(shared, body).await,
        (Method::POST, ["allocation", id, "stop"]) => {
            let late = shared.world.lock().unwrap().late_stops;
            sleep(late).await;
            stop(&shared, id)
        }
        (Method::GET, parts) => read(&shared, parts, &headers),
        _ => text(405, "Invalid method"),
    }
}

fn denied(
    shared: &Shared,
    method: &Method,
    parts: &[&str],
    headers: &HeaderMap,
) -> Option<Response> {
    let world = shared.world.lock().unwrap();
    if world.tokens.is_empty() {
        return None;
    }
    let needs = match (method.as_str(), parts) {
        ("POST", ["job", _, "scale"]) => "scale-job",
        ("POST", ["allocation", ..]) => "alloc-lifecycle",
        ("GET", ["job", _, "scale"]) => "read-job-scaling",
        ("GET", ["job" | "allocation", ..]) => "read-job",
        ("GET", ["jobs"]) => "list-jobs",
        ("GET", ["agent", ..]) => "agent:read",
        _ => return None,
    };
    let token = headers.get("x-nomad-token").map_or("", |token| token.to_str().unwrap());
    let may = world.tokens.get(token);
    if !token.is_empty() && may.is_none() {
        return Some(text(403, "ACL token not found"));
    }
    let may = may.is_some_and(|may| may.contains(&needs));
    (!may).then(|| text(403, "Permission denied"))
}

/// A blocking query.
async fn wait_for(shared: &Shared, uri: &Uri) {
    let Some(index) = key(uri, "index").and_then(|index| index.parse::<u64>().ok()) else { return };
    let wait = key(uri, "wait").unwrap_or_default();
    let wait = match wait.strip_suffix("ms") {
        Some(millis) => Duration::from_millis(millis.parse().unwrap()),
        None => Duration::from_secs(wait.trim_end_matches('s').parse().unwrap()),
    };
    let mut changed = shared.changed.subscribe();
    let later = changed.wait_for(|now| *now > index);
    let _ = tokio::time::timeout(wait, later).await;
}

async fn scale(shared: Arc<Shared>, body: Value) -> Response {
    let commit = {
        let mut world = shared.world.lock().unwrap();
        if let Some(said) = world.refusal(&body) {
            let status = if said.starts_with("Enforcing") { 500 } else { 400 };
            return text(status, said);
        }
        world.count = u32::try_from(body["Count"].as_u64().unwrap()).unwrap();
        world.deploying = world.max_parallel > 0;
        world.bump(true);
        world.commit
    };
    // Whether or not the client still waits.
    let later = Arc::clone(&shared);
    let evaluated = tokio::spawn(async move {
        sleep(commit).await;
        let mut world = later.world.lock().unwrap();
        world.evaluate();
        later.tell(&world);
        world.index
    });
    let index = evaluated.await.unwrap();
    json!({ "EvalID": "e", "EvalCreateIndex": index, "JobModifyIndex": index, "Index": index })
        .to_string()
        .into_response()
}

fn stop(shared: &Shared, id: &str) -> Response {
    let mut world = shared.world.lock().unwrap();
    let Some(alloc) = world.allocs.iter_mut().find(|alloc| alloc.id == id) else {
        return text(404, "alloc not found");
    };
    alloc.migrate = true;
    world.evaluate();
    shared.tell(&world);
    json!({ "EvalID": "e", "Index": world.index }).to_string().into_response()
}

fn read(shared: &Shared, parts: &[&str], headers: &HeaderMap) -> Response {
    let mut world = shared.world.lock().unwrap();
    world.turn();
    let body = match parts {
        ["status", "leader"] => json!("127.0.0.1:4647"),
        ["agent", "self"] => {
            json!({ "config": { "Client": { "Enabled": true, "MaxKillTimeout": "30s" } } })
        }
        ["namespaces"] => json!([{ "Name": "default" }]),
        ["acl", ..] if world.tokens.is_empty() => return text(400, "ACL support disabled"),
        ["acl", "token", "self"] => {
            let token = headers.get("x-nomad-token").map_or("", |token| token.to_str().unwrap());
            if !world.tokens.contains_key(token) {
                return text(403, "ACL token not found");
            }
            json!({ "Name": "scaler", "Type": "client", "Policies": [token], "Roles": null,
                    "ExpirationTime": null })
        }
        ["acl", "policy", name] => {
            let may = world.tokens.get(*name).map_or(&[][..], |may| &may[..]);
            let rules = format!("namespace \"default\" {{ capabilities = {may:?} }}");
            json!({ "Name": name, "Rules": rules })
        }
        ["jobs"] => json!([{ "ID": "api" }, { "ID": JOB }]),
        ["job", _] => world.job(),
        ["job", _, "scale"] => world.status(),
        ["job", _, "allocations"] => world.list(),
        ["job", _, "deployment"] if world.deploying => {
            json!({ "Status": "running", "StatusDescription": "Deployment is running" })
        }
        ["job", _, "deployment"] => Value::Null,
        ["allocation", id] => json!({ "ID": id, "NetworkStatus": null,
            "AllocatedResources": { "Shared": { "Networks": [{ "IP": "10.0.0.1" }] } } }),
        _ => return text(404, "not found"),
    };
    ([("x-nomad-index", world.index.to_string())], body.to_string()).into_response()
}
