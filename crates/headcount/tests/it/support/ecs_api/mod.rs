//! Amazon ECS for tests: its JSON API, a scheduler that honours protection, and faults on request.
//! Requests must be signed with the key that it knows.

pub mod world;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use headcount::targets::ecs::EcsConfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::world::{CLUSTER, Phase, REGION, SERVICE, SimTask, World, arn};
use super::control_plane::{clock, cut_off};
use super::server::Server;

/// The key that it knows.
pub const KEY: &str = "AKIAHEADCOUNT";
/// What is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody listens.
    Down,
    /// Every answer takes this long.
    Slow(Duration),
    /// This action, or every one (`*`), gets this error.
    Error(&'static str, u16, &'static str),
    /// The next so many requests come too often.
    Throttled(u32),
    /// Changes are made, but the answers are lost.
    Cut,
    /// Protection is accepted and nothing is done.
    Stub,
    /// These tasks cannot be protected.
    Blocked(HashSet<String>),
    /// The service is described with these values instead; one that is null is left out.
    Odd(Value),
}

/// A running stand-in.
pub struct EcsApi {
    shared: Arc<Shared>,
    folder: tempfile::TempDir,
    server: Server,
    _clock: JoinSet<()>,
}

struct Shared {
    world: Mutex<World>,
    fault: Mutex<Option<Fault>>,
    /// The actions that were asked for.
    asked: Mutex<Vec<String>>,
    /// Actions that the simulation of policies denies; `None`: it is not allowed.
    denied: Mutex<Option<Vec<&'static str>>>,
    key: Mutex<String>,
}

type Answer = Result<Value, (u16, &'static str, String)>;

impl EcsApi {
    /// A service of this many running tasks.
    pub async fn start(count: u32) -> Self {
        let shared = Arc::new(Shared {
            world: Mutex::new(World::new(count)),
            fault: Mutex::default(),
            asked: Mutex::default(),
            denied: Mutex::new(Some(Vec::new())),
            key: Mutex::new(KEY.into()),
        });
        let folder = tempfile::tempdir().unwrap();
        write_key(folder.path(), KEY);
        let app = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let server = Server::start(app).await;
        let ticking = Arc::clone(&shared);
        Self { shared, folder, server, _clock: clock(move || ticking.world().step()) }
    }

    /// How it is reached.
    pub fn config(&self) -> EcsConfig {
        EcsConfig {
            cluster: CLUSTER.into(),
            service: SERVICE.into(),
            region: Some(REGION.into()),
            endpoint: Some(format!("http://{}", self.address())),
            credentials_file: Some(self.folder.path().join("credentials")),
            ..EcsConfig::default()
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The service and its tasks.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world()
    }

    /// Breaks it.
    pub fn break_by(&mut self, fault: Fault) {
        if fault == Fault::Down {
            self.server.stop();
        }
        *self.shared.fault.lock().unwrap() = Some(fault);
    }

    /// Mends it.
    pub async fn mend(&mut self) {
        *self.shared.fault.lock().unwrap() = None;
        self.server.resume().await;
    }

    /// What was asked for since the last call.
    pub fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.shared.asked.lock().unwrap())
    }

    /// What the simulation of policies denies; `None`: it may not be asked.
    pub fn simulate(&self, denied: Option<Vec<&'static str>>) {
        *self.shared.denied.lock().unwrap() = denied;
    }

    /// From now on another key is the right one.
    pub fn change_key(&self, key: &str) {
        *self.shared.key.lock().unwrap() = key.into();
    }

    /// Writes a key into the credentials file.
    pub fn write_key(&self, key: &str) {
        write_key(self.folder.path(), key);
    }
}

/// Writes a file with a key into a folder.
pub fn write_key(folder: &Path, key: &str) {
    let text = format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = hunter2\n");
    std::fs::write(folder.join("credentials"), text).unwrap();
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Who asks must have signed it.
    fn is_signed(&self, headers: &HeaderMap) -> bool {
        let key = self.key.lock().unwrap().clone();
        let header = headers.get("authorization").and_then(|value| value.to_str().ok());
        let Some(header) = header else { return false };
        header.starts_with(&format!("AWS4-HMAC-SHA256 Credential={key}/"))
            && header.contains(&format!("/{REGION}/"))
            && header.contains("/aws4_request, SignedHeaders=")
            && header.contains("x-amz-date")
            && header.split("Signature=").nth(1).is_some_and(|signature| signature.len() == 64)
            && headers.contains_key("x-amz-date")
    }

    fn json(&self, action: &str, input: &Value) -> Answer {
        let fault = self.fault.lock().unwrap().clone();
        match fault {
            Some(Fault::Error(of, status, code)) if of == "*" || of == action => {
                let message = match code {
                    "AccessDeniedException" => format!(
                        "User: arn:aws:sts::1:assumed-role/r/s is not authorized to perform: ecs:{action}"
                    ),
                    _ => "a test says so".into(),
                };
                return Err((status, code, message));
            }
            Some(Fault::Throttled(left)) if left > 0 => {
                *self.fault.lock().unwrap() = Some(Fault::Throttled(left - 1));
                return Err((400, "ThrottlingException", "Rate exceeded".into()));
            }
            _ => {}
        }
        let mut world = self.world();
        let cluster = input["cluster"].as_str().unwrap_or("default");
        let lists =
            matches!(action, "ListClusters" | "DescribeTaskDefinition" | "DescribeScalableTargets");
        if !lists && cluster.rsplit('/').next() != Some(CLUSTER) {
            return Err((400, "ClusterNotFoundException", "Cluster not found.".into()));
        }
        match action {
            "DescribeServices" => Ok(describe_services(&world, input)),
            "UpdateService" => update(&mut world, input),
            "ListTasks" => Ok(list_tasks(&world, input)),
            "DescribeTasks" => Ok(describe_tasks(&world, input)),
            "UpdateTaskProtection" => {
                let fault = self.fault.lock().unwrap().clone();
                Ok(protect(&mut world, input, fault.as_ref()))
            }
            "ListClusters" => Ok(json!({ "clusterArns": [arn(&format!("cluster/{CLUSTER}"))] })),
            "ListServices" => {
                let all = world.neighbours.iter().copied().chain([SERVICE]);
                let all = all.map(|name| arn(&format!("service/{CLUSTER}/{name}")));
                Ok(json!({ "serviceArns": all.collect::<Vec<_>>() }))
            }
            "DescribeTaskDefinition" => {
                let mut container = json!({ "name": "worker", "essential": true });
                if let Some(seconds) = world.stop_timeout {
                    container["stopTimeout"] = json!(seconds);
                }
                let definition =
                    json!({ "networkMode": "awsvpc", "containerDefinitions": [container] });
                Ok(json!({ "taskDefinition": definition }))
            }
            "DescribeScalableTargets" => {
                let bounds = world.auto_scaling;
                let target =
                    bounds.map(|(min, max)| json!({ "MinCapacity": min, "MaxCapacity": max }));
                Ok(json!({ "ScalableTargets": target.into_iter().collect::<Vec<_>>() }))
            }
            _ => Err((400, "UnknownOperationException", String::new())),
        }
    }

    /// The services that are asked by a form.
    fn form(&self, form: &str) -> (u16, String) {
        let has = |text: &str| form.contains(text);
        if has("Action=GetCallerIdentity") {
            let who = "arn:aws:sts::123456789012:assumed-role/headcount/test";
            return (
                200,
                format!("<GetCallerIdentityResponse><Arn>{who}</Arn></GetCallerIdentityResponse>"),
            );
        }
        assert!(
            has("PolicySourceArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fheadcount"),
            "{form}"
        );
        let denied = self.denied.lock().unwrap();
        let Some(denied) = denied.as_ref() else {
            let error = "<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
            return (403, error.into());
        };
        let is = |action: &&str| has(&format!("ActionNames.member.1=ecs%3A{action}&"));
        let decision = if denied.iter().any(is) { "implicitDeny" } else { "allowed" };
        (200, format!("<member><EvalDecision>{decision}</EvalDecision></member>"))
    }
}

fn describe_services(world: &World, input: &Value) -> Value {
    let name = input["services"][0].as_str().unwrap_or_default();
    match name.rsplit('/').next() == Some(SERVICE) {
        true => json!({ "services": [world.service()], "failures": [] }),
        false => json!({ "services": [], "failures": [{
            "arn": arn(&format!("service/{CLUSTER}/{name}")), "reason": "MISSING",
        }]}),
    }
}

fn update(world: &mut World, input: &Value) -> Answer {
    let keys: Vec<&String> = input.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["cluster", "desiredCount", "service"], "nothing else is touched");
    if world.status != "ACTIVE" {
        return Err((400, "ServiceNotActiveException", "Service was not ACTIVE.".into()));
    }
    world.desired = u32::try_from(input["desiredCount"].as_u64().unwrap()).unwrap();
    world.schedule();
    Ok(json!({ "service": world.service() }))
}

fn list_tasks(world: &World, input: &Value) -> Value {
    assert_eq!(input["serviceName"], SERVICE);
    let stopped = input["desiredStatus"] == "STOPPED";
    let all: Vec<&SimTask> = world.tasks.iter().filter(|t| t.stopping == stopped).collect();
    let from = input["nextToken"].as_str().map_or(0, |token| token.parse().unwrap());
    let page: Vec<String> = all
        .iter()
        .skip(from)
        .take(world.page)
        .map(|task| arn(&format!("task/{CLUSTER}/{}", task.id)))
        .collect();
    let mut answer = json!({ "taskArns": page });
    if from + world.page < all.len() {
        answer["nextToken"] = json!((from + world.page).to_string());
    }
    answer
}

fn named(input: &Value) -> Vec<String> {
    let names = input["tasks"].as_array().unwrap().iter();
    names.map(|name| name.as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
}

fn describe_tasks(world: &World, input: &Value) -> Value {
    let names = named(input);
    assert!((1..=100).contains(&names.len()), "as many as the API takes");
    let tasks = world.tasks.iter().filter(|task| names.contains(&task.id));
    json!({ "tasks": tasks.map(|task| world.described(task)).collect::<Vec<_>>(), "failures": [] })
}

fn protect(world: &mut World, input: &Value, fault: Option<&Fault>) -> Value {
    let names = named(input);
    assert!((1..=10).contains(&names.len()), "as many as the API takes");
    if fault == Some(&Fault::Stub) {
        return json!({ "protectedTasks": [], "failures": [] });
    }
    let enabled = input["protectionEnabled"].as_bool().unwrap();
    let minutes = input["expiresInMinutes"].as_u64();
    assert_eq!(minutes.is_some(), enabled, "{input}");
    let until = world.steps + minutes.unwrap_or(0) * 6_000;
    let (mut done, mut failures) = (Vec::new(), Vec::new());
    for name in names {
        let arn = arn(&format!("task/{CLUSTER}/{name}"));
        let blocked = matches!(fault, Some(Fault::Blocked(ids)) if ids.contains(&name));
        match world.tasks.iter_mut().find(|task| task.id == name) {
            None => failures.push(json!({ "arn": arn, "reason": "MISSING" })),
            Some(task) if task.phase != Phase::Running || task.stopping => {
                failures.push(json!({ "arn": arn, "reason": "TASK_NOT_VALID" }));
            }
            Some(_) if blocked => {
                failures.push(json!({ "arn": arn, "reason": "DEPLOYMENT_BLOCKED" }));
            }
            Some(task) => {
                task.protected = enabled.then_some(until);
                done.push(json!({ "taskArn": arn, "protectionEnabled": enabled }));
            }
        }
    }
    json!({ "protectedTasks": done, "failures": failures })
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let fault = shared.fault.lock().unwrap().clone();
    if let Some(Fault::Slow(delay)) = fault {
        tokio::time::sleep(delay).await;
    }
    if fault == Some(Fault::Down) {
        return cut_off();
    }
    let target = headers.get("x-amz-target").map(|value| value.to_str().unwrap().to_owned());
    let action = target.as_deref().and_then(|target| target.split('.').nth(1)).unwrap_or("form");
    if !shared.is_signed(&headers) {
        let error = json!({ "__type": "UnrecognizedClientException",
            "message": "The security token included in the request is invalid." });
        return said(400, error.to_string());
    }
    if target.is_none() {
        let (status, xml) = shared.form(std::str::from_utf8(&body).unwrap());
        return said(status, xml);
    }
    assert_eq!(headers["content-type"], "application/x-amz-json-1.1");
    shared.asked.lock().unwrap().push(action.to_owned());
    let mut answer = shared.json(action, &serde_json::from_slice(&body).unwrap());
    if let (Some(Fault::Odd(values)), "DescribeServices", Ok(answer)) =
        (&fault, action, &mut answer)
    {
        let service = answer["services"][0].as_object_mut().unwrap();
        service.extend(values.as_object().unwrap().clone());
        service.retain(|_, value| !value.is_null());
    }
    let changes = action.starts_with("Update");
    if fault == Some(Fault::Cut) && changes {
        return cut_off();
    }
    match answer {
        Ok(answer) => said(200, answer.to_string()),
        Err((status, "", _)) => said(status, "<html>broken</html>".into()),
        Err((status, code, message)) => {
            let error =
                json!({ "__type": format!("com.amazonaws.ecs#{code}"), "message": message });
            said(status, error.to_string())
        }
    }
}

fn said(status: u16, body: String) -> Response<Body> {
    let answer = Response::builder().status(status);
    answer.header("content-type", "application/x-amz-json-1.1").body(Body::from(body)).unwrap()
}
