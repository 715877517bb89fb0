//! A server that takes orders by webhook, over workers that are only remembered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::server::Server;

/// The server; it ends with the test.
pub struct Hook {
    pub address: SocketAddr,
    state: Arc<Mutex<World>>,
    _server: Server,
}

/// What there is, and what is asked.
#[derive(Default)]
pub struct World {
    /// Workers and their states, by id.
    pub workers: BTreeMap<String, String>,
    /// Those that hold a job.
    pub jobs: BTreeSet<String>,
    /// The state that workers begin with, unless it is `ready`.
    pub birth: Option<String>,
    /// Orders are carried out only by one worker each, and fail.
    pub half: bool,
    /// What is answered to the next requests instead of doing what they ask.
    pub next: VecDeque<Reply>,
    /// All requests, oldest first.
    pub asked: Vec<Asked>,
    /// Ids of the orders that were carried out.
    done: BTreeSet<String>,
    born: u32,
}

/// An answer that is laid down.
#[derive(Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
    pub after: Duration,
}

/// A request.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Asked {
    /// A header; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Hook {
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

    /// Lays down what is answered next.
    pub fn replies(&self, replies: impl IntoIterator<Item = Reply>) {
        self.world().next.extend(replies);
    }

    /// The orders that came, whatever was answered.
    pub fn orders(&self) -> Vec<Asked> {
        let world = self.world();
        world.asked.iter().filter(|asked| asked.method == Method::POST).cloned().collect()
    }
}

impl Reply {
    /// A bare answer.
    pub fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }
}

impl World {
    /// Workers that were told to go and have no job are gone.
    pub fn reap(&mut self) {
        let jobs = &self.jobs;
        self.workers.retain(|id, state| state != "draining" || jobs.contains(id));
    }

    fn serving(&self) -> Vec<String> {
        let serves = |state: &str| ["ready", "starting"].contains(&state);
        self.workers.iter().filter(|(_, s)| serves(s)).map(|(id, _)| id.clone()).collect()
    }

    fn list(&self) -> Value {
        let worker = |(id, state): (&String, &String)| json!({ "id": id, "state": state, "busy": self.jobs.contains(id) });
        json!({
            "desired": self.serving().len(),
            "workers": self.workers.iter().map(worker).collect::<Vec<_>>(),
        })
    }

    /// Carries out an order, once.
    fn scale(&mut self, order: &Value) -> (StatusCode, Value) {
        let id = order["idempotency_key"].as_str().unwrap().to_owned();
        let most = if self.half { 1 } else { usize::MAX };
        if !self.done.insert(id) {
            let status = if self.half { StatusCode::BAD_GATEWAY } else { StatusCode::OK };
            return (status, json!({ "note": "that is done already" }));
        }
        let desired = usize::try_from(order["desired"].as_u64().unwrap()).unwrap();
        let there = self.serving();
        let new: Vec<String> = (there.len()..desired).take(most).map(|_| self.bear()).collect();
        let victims = order["victims"].as_array().unwrap();
        let mut victims: Vec<&str> = victims.iter().map(|v| v.as_str().unwrap()).collect();
        if victims.is_empty() {
            victims = there.iter().map(String::as_str).collect();
        }
        victims.retain(|id| there.iter().any(|other| other == id));
        victims.truncate(there.len().saturating_sub(desired).min(most));
        for id in &victims {
            self.workers.insert((*id).to_owned(), "draining".into());
        }
        let status = if self.half { StatusCode::BAD_GATEWAY } else { StatusCode::ACCEPTED };
        (status, json!({ "started": new, "removed": victims, "note": "as asked" }))
    }

    fn bear(&mut self) -> String {
        self.born += 1;
        let id = format!("w{}", self.born);
        let state = self.birth.clone().unwrap_or_else(|| "ready".into());
        self.workers.insert(id.clone(), state);
        id
    }
}

async fn answer(
    State(state): State<Arc<Mutex<World>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let next = {
        let mut world = state.lock().unwrap();
        let (method, path) = (method.clone(), path.clone());
        world.asked.push(Asked { method, path, headers, body: body.to_vec() });
        world.next.pop_front()
    };
    if let Some(reply) = next {
        tokio::time::sleep(reply.after).await;
        let mut response = Response::builder().status(reply.status);
        for (name, value) in reply.headers {
            response = response.header(name, value);
        }
        return response.body(reply.body.into()).unwrap();
    }
    let mut world = state.lock().unwrap();
    world.reap();
    match (method, path.as_str()) {
        (Method::POST, "/scale") => {
            let (status, said) = world.scale(&serde_json::from_slice(&body).unwrap());
            (status, said.to_string()).into_response()
        }
        (Method::POST, "/alert") => StatusCode::NO_CONTENT.into_response(),
        (Method::GET, "/list") => world.list().to_string().into_response(),
        (Method::GET, "/count") => world.serving().len().to_string().into_response(),
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}
