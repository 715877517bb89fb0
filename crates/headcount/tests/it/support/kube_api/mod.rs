//! A Kubernetes API server for tests, with the controllers that matter: it behaves as a real control
//! plane was seen to, and breaks on request.

mod answer;
mod ask;
mod said;
pub mod world;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri};
use headcount::targets::kubernetes::KubernetesConfig;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::ask::Ask;
use self::world::{Key, Rule, World, condition, name_of};
use super::certificates::{acceptor, certificates};
use super::control_plane::{clock, cut_off};
use super::server::Server;

/// The namespace of everything, unless said otherwise.
pub const NAMESPACE: &str = "jobs";
/// The workload.
pub const WORKER: &str = "worker";

/// What is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nobody listens.
    Down,
    /// Every answer takes this long.
    Slow(Duration),
    /// Every answer is this error.
    Status(u16),
    /// Every request of this verb on this resource gets this error.
    Refuse(&'static str, &'static str, u16),
    /// Every request of this verb on this resource gets this status and this body.
    Says(&'static str, &'static str, u16, Value),
    /// Every answer is a success without end.
    Endless,
    /// Patches are made, but the answers are lost.
    Cut,
}

/// A pod, as a test wants to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView {
    pub name: String,
    pub ready: bool,
    pub deleting: bool,
    pub cost: Option<String>,
}

/// A running stand-in.
pub struct KubeApi {
    shared: Arc<Shared>,
    folder: tempfile::TempDir,
    tls: bool,
    server: Server,
    _clock: JoinSet<()>,
}

struct Shared {
    world: Mutex<World>,
    fault: Mutex<Option<Fault>>,
    /// What was asked: the verb and the resource.
    asked: Mutex<Vec<(&'static str, String)>>,
}

impl KubeApi {
    /// A cluster with a Deployment of this many ready pods.
    pub async fn start(count: u32) -> Self {
        Self::with("deployments", count, false).await
    }

    /// A cluster with a workload of this resource and this many ready pods.
    pub async fn with(plural: &str, count: u32, tls: bool) -> Self {
        let mut world = World::new();
        world.add_workload(plural, NAMESPACE, WORKER, count);
        let everything = Rule::new("*", "*", "*", &["*"]);
        world.accounts.insert("admin".into(), ("admin".into(), vec![everything]));
        world.step();
        world.step();
        let shared = Arc::new(Shared {
            world: Mutex::new(world),
            fault: Mutex::default(),
            asked: Mutex::default(),
        });
        let folder = tempfile::tempdir().unwrap();
        if tls {
            certificates(folder.path());
        }
        let app = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let server = Server::with(app, tls.then(|| acceptor(folder.path()))).await;
        let ticking = Arc::clone(&shared);
        Self { shared, folder, tls, server, _clock: clock(move || ticking.world().step()) }
    }

    /// All objects.
    pub fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world()
    }

    /// A target of the workload, for an account.
    pub fn config(&self, account: &str) -> KubernetesConfig {
        KubernetesConfig {
            name: Some(WORKER.into()),
            kubeconfig: Some(self.kubeconfig(account)),
            ..KubernetesConfig::default()
        }
    }

    /// A kubeconfig for an account: its token is its name.
    pub fn kubeconfig(&self, account: &str) -> PathBuf {
        let cluster = match self.tls {
            true => json!({ "server": self.url(), "certificate-authority": "ca.pem" }),
            false => json!({ "server": self.url() }),
        };
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": cluster }],
            "users": [{ "name": account, "user": { "token": account } }],
            "contexts": [{ "name": "test",
                "context": { "cluster": "test", "user": account, "namespace": NAMESPACE } }],
        });
        let file = self.folder.path().join(format!("kubeconfig-{account}"));
        std::fs::write(&file, config.to_string()).unwrap();
        file
    }

    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}", self.server.address)
    }

    pub fn port(&self) -> u16 {
        self.server.address.port()
    }

    /// Where its certificates are.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// An account that may do this in [`NAMESPACE`]: API group, resource, verbs.
    pub fn account(&self, name: &str, rules: &[(&str, &str, &[&str])]) {
        let rule = |(group, resource, verbs): &(&str, &str, &[&str])| {
            Rule::new(NAMESPACE, group, resource, verbs)
        };
        let user = format!("system:serviceaccount:{NAMESPACE}:{name}");
        let rules = rules.iter().map(rule).collect();
        self.world().accounts.insert(name.into(), (user, rules));
    }

    /// The key of the only workload.
    pub fn workload(&self) -> Key {
        let world = self.world();
        let is_workload = |key: &&Key| key.2 == WORKER && key.0 != "pods";
        world.objects.keys().find(is_workload).unwrap().clone()
    }

    /// The number that is asked for.
    pub fn desired(&self) -> u64 {
        let key = self.workload();
        self.world().objects[&key]["spec"]["replicas"].as_u64().unwrap()
    }

    /// Somebody else changes the number.
    pub fn set_outside(&self, number: u32) {
        self.change_outside(|object| {
            object["spec"]["replicas"] = json!(number);
            let generation = object["metadata"]["generation"].as_i64().unwrap();
            object["metadata"]["generation"] = json!(generation + 1);
        });
    }

    /// Somebody else changes the workload.
    pub fn change_outside(&self, change: impl FnOnce(&mut Value)) {
        let key = self.workload();
        let mut world = self.world();
        let mut object = world.objects[&key].clone();
        change(&mut object);
        world.put(key, object);
    }

    /// The pods of the workload, oldest first.
    pub fn pods(&self) -> Vec<PodView> {
        let key = self.workload();
        let view = |pod: &Value| PodView {
            name: name_of(pod).into(),
            ready: condition(pod, "Ready") == Some("True"),
            deleting: !pod["metadata"]["deletionTimestamp"].is_null(),
            cost: pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"]
                .as_str()
                .map(str::to_owned),
        };
        self.world().pods_of(&key).into_iter().map(view).collect()
    }

    /// The names of the pods that are not told to go, oldest first.
    pub fn staying(&self) -> Vec<String> {
        self.pods().into_iter().filter(|pod| !pod.deleting).map(|pod| pod.name).collect()
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

    /// What was asked since the last call: `get deployments`.
    pub fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut *self.shared.asked.lock().unwrap());
        asked.into_iter().map(|(verb, resource)| format!("{verb} {resource}")).collect()
    }

    /// One request by hand: its HTTP status and its answer.
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (u16, Value) {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let name = axum::http::HeaderName::from_bytes(name.as_bytes()).unwrap();
            all.insert(name, value.parse().unwrap());
        }
        let method: Method = method.parse().unwrap();
        self.shared.answer(&method, &path.parse().unwrap(), &all, body)
    }
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> (u16, Value) {
        if uri.path() == "/version" {
            return (
                200,
                json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.2",
                "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
                "goVersion": "go1.26.6", "compiler": "gc", "platform": "linux/amd64" }),
            );
        }
        let Some(ask) = Ask::new(method, uri, headers, body) else { return said::unknown_path() };
        self.asked.lock().unwrap().push((ask.verb, ask.resource()));
        match self.fault.lock().unwrap().clone() {
            Some(Fault::Says(verb, resource, code, body))
                if (verb, resource) == (ask.verb, &*ask.resource()) =>
            {
                return (code, body);
            }
            Some(Fault::Status(401)) => return said::unauthorized(),
            Some(Fault::Status(403)) => return said::forbidden(&ask, "nobody"),
            Some(Fault::Status(404)) => return said::not_found(&ask),
            Some(Fault::Status(code)) => return said::broken(code),
            Some(Fault::Refuse(verb, resource, code))
                if (verb, resource) == (ask.verb, &*ask.resource()) =>
            {
                return match code {
                    403 => said::forbidden(&ask, "nobody"),
                    409 => said::conflict(&ask),
                    422 => {
                        let what = "Invalid value: 3: must be even";
                        said::invalid(&ask, "Deployment", "spec.replicas", what, 1)
                    }
                    code => said::broken(code),
                };
            }
            _ => {}
        }
        let mut world = self.world();
        let answer = world.answer(&ask);
        world.step();
        answer
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
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
    if fault == Some(Fault::Endless) {
        let part = Bytes::from(vec![b' '; 1 << 20]);
        let parts =
            futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(part.clone()));
        return Response::new(Body::from_stream(parts));
    }
    let (code, answer) = shared.answer(&method, &uri, &headers, &body);
    if fault == Some(Fault::Cut) && method == Method::PATCH {
        return cut_off();
    }
    let builder = Response::builder().status(code).header("content-type", "application/json");
    builder.body(Body::from(answer.to_string())).unwrap()
}
