//! A stand-in for the part of Windmill's HTTP API that runs a script and lists workers. Statuses and
//! shapes are those of its public OpenAPI description.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::server::Server;

/// The one token that is known.
pub const TOKEN: &str = "wm-hush-token";

/// The server; it ends with the test.
pub struct WindmillApi {
    pub address: SocketAddr,
    state: Arc<Mutex<World>>,
    _server: Server,
}

/// What there is.
pub struct World {
    /// Live workers of the group `g`; one of the group `ops` is always there.
    pub workers: u32,
    /// Rows of live workers besides.
    pub rows: Vec<Value>,
    /// The token's user may see no workers.
    pub hides_workers: bool,
    /// What is known of the script, if it is there.
    pub script: Option<Value>,
    /// All jobs, by id.
    pub jobs: BTreeMap<String, Job>,
    /// Jobs go on until they are told to end.
    pub holds: bool,
    /// Jobs that run do not end by being cancelled.
    pub ignores_cancel: bool,
    /// The start of a job is not answered.
    pub forgets_to_answer: bool,
    /// What jobs end with instead of doing anything.
    pub failure: Option<Value>,
    /// Jobs carry out only one step, and fail.
    pub half: bool,
    /// The most jobs that ran at the same time.
    pub most_running: usize,
}

/// A run of the script.
#[derive(Clone, Debug)]
pub struct Job {
    pub arguments: Value,
    pub tag: Option<String>,
    pub cancelled: Option<String>,
    /// Whether it succeeded, and its result.
    pub end: Option<(bool, Value)>,
}

impl Default for World {
    fn default() -> Self {
        let names = ["worker_group", "desired_workers", "reason", "event_type"];
        let properties: BTreeMap<_, _> = names.map(|name| (name, json!({"type": "string"}))).into();
        let script = json!({"path": "f/ops/scale", "language": "bash", "archived": false,
            "tag": "ops", "schema": {"type": "object", "properties": properties}});
        Self {
            workers: 0,
            rows: Vec::new(),
            hides_workers: false,
            script: Some(script),
            jobs: BTreeMap::new(),
            holds: false,
            ignores_cancel: false,
            forgets_to_answer: false,
            failure: None,
            half: false,
            most_running: 0,
        }
    }
}

impl WindmillApi {
    /// Starts it on a free port.
    pub async fn start() -> Self {
        let state = Arc::new(Mutex::new(World::default()));
        let app = Router::new().fallback(answer).with_state(Arc::clone(&state));
        let server = Server::start(app).await;
        Self { address: server.address, state, _server: server }
    }

    /// What there is.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.state.lock().unwrap()
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl World {
    /// Ends all jobs that run, as they would have ended.
    pub fn finish(&mut self) {
        let running = self.jobs.iter().filter(|(_, job)| job.end.is_none());
        let ids: Vec<String> = running.map(|(id, _)| id.clone()).collect();
        for id in ids {
            let arguments = self.jobs[&id].arguments.clone();
            let end = self.carry_out(&arguments);
            self.jobs.get_mut(&id).unwrap().end = Some(end);
        }
    }

    /// What the script does.
    fn carry_out(&mut self, arguments: &Value) -> (bool, Value) {
        if let Some(failure) = &self.failure {
            return (false, failure.clone());
        }
        let wanted = u32::try_from(arguments["desired_workers"].as_u64().unwrap()).unwrap();
        if self.half {
            self.workers = match wanted > self.workers {
                true => self.workers + 1,
                false => self.workers - 1,
            };
            let error = json!({"name": "ExecutionErr", "message": "half is done"});
            return (false, json!({ "error": error }));
        }
        self.workers = wanted;
        (true, json!(format!("scaled to {wanted}")))
    }

    fn run(&mut self, query: &BTreeMap<String, String>, arguments: Value) -> Response {
        let id = query.get("job_id").cloned().unwrap_or_else(|| format!("job{}", self.jobs.len()));
        if self.jobs.contains_key(&id) {
            let what = format!("Bad request: job id {id} already exists");
            return (StatusCode::BAD_REQUEST, what).into_response();
        }
        let end = (!self.holds).then(|| self.carry_out(&arguments));
        let job = Job { arguments, tag: query.get("tag").cloned(), cancelled: None, end };
        self.jobs.insert(id.clone(), job);
        let running = self.jobs.values().filter(|job| job.end.is_none()).count();
        self.most_running = self.most_running.max(running);
        (StatusCode::CREATED, id).into_response()
    }

    fn cancel(&mut self, id: &str, reason: &Value) -> Response {
        let ignores = self.ignores_cancel;
        match self.jobs.get_mut(id) {
            Some(job) if job.end.is_none() => {
                job.cancelled = Some(reason["reason"].as_str().unwrap().to_owned());
                if !ignores {
                    let error = json!({"name": "Canceled", "message": "Job canceled"});
                    job.end = Some((false, json!({ "error": error })));
                }
                id.to_owned().into_response()
            }
            _ => not_found(),
        }
    }

    fn listed(&self, query: &BTreeMap<String, String>) -> Value {
        if self.hides_workers || query["page"] != "1" {
            return json!([]);
        }
        let row = |group: &str, i: u32| {
            json!({"worker": format!("wk-{group}-{i}"), "worker_instance": format!("{group}{i}"),
                "worker_group": group, "last_ping": 1, "jobs_executed": 0})
        };
        let mut rows: Vec<Value> = (0..self.workers).map(|i| row("g", i)).collect();
        rows.push(row("ops", 0));
        rows.extend(self.rows.iter().cloned());
        json!(rows)
    }
}

fn not_found() -> Response {
    (StatusCode::NOT_FOUND, "Not found: it does not exist").into_response()
}

async fn answer(
    State(state): State<Arc<Mutex<World>>>,
    method: Method,
    uri: Uri,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().strip_prefix("/api/").unwrap_or_default().to_owned();
    if path == "version" {
        return "CE v1.788.0".into_response();
    }
    let known = format!("Bearer {TOKEN}");
    if headers.get("authorization").is_none_or(|value| value.to_str().unwrap() != known) {
        return (StatusCode::UNAUTHORIZED, "Unauthorized").into_response();
    }
    let (answer, forgotten) = {
        let mut world = state.lock().unwrap();
        let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let answer = of_path(&mut world, &method, &path, &query, body);
        (answer, world.forgets_to_answer && path.contains("jobs/run"))
    };
    if forgotten {
        tokio::time::sleep(Duration::from_secs(600)).await;
    }
    answer
}

fn of_path(
    world: &mut World,
    method: &Method,
    path: &str,
    query: &BTreeMap<String, String>,
    body: Value,
) -> Response {
    if path == "workers/list" {
        return world.listed(query).to_string().into_response();
    }
    let Some(path) = path.strip_prefix("w/admins/") else {
        return (StatusCode::FORBIDDEN, "Forbidden: not a member of the workspace").into_response();
    };
    if path == "users/whoami" {
        return json!({"email": "ops@x", "username": "ops", "is_admin": true})
            .to_string()
            .into_response();
    }
    if let (Some(script), "scripts/get/p/f/ops/scale") = (&world.script, path) {
        return script.to_string().into_response();
    }
    if path == "jobs/run/p/f/ops/scale" && method == Method::POST && world.script.is_some() {
        return world.run(query, body);
    }
    if let Some(id) = path.strip_prefix("jobs_u/completed/get_result_maybe/") {
        let end = world.jobs.get(id).and_then(|job| job.end.clone());
        return match end {
            Some((success, result)) => {
                json!({"completed": true, "success": success, "result": result})
            }
            None => json!({"completed": false, "result": null}),
        }
        .to_string()
        .into_response();
    }
    if let Some(id) = path.strip_prefix("jobs_u/get/") {
        return match world.jobs.contains_key(id) {
            true => json!({ "id": id }).to_string().into_response(),
            false => not_found(),
        };
    }
    match path.strip_prefix("jobs_u/queue/cancel/") {
        Some(id) if method == Method::POST => world.cancel(id, &body),
        _ => not_found(),
    }
}
