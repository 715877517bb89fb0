//! A request, taken apart as an API server does.

use axum::http::{HeaderMap, Method, Uri};
use serde_json::Value;

/// A request.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// `get`, `list`, `patch`, `update`, `create`, `delete`.
    pub verb: &'static str,
    pub group: String,
    pub plural: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub query: Vec<(String, String)>,
    pub content_type: String,
    pub accept: String,
    pub token: Option<String>,
    pub body: Option<Value>,
}

impl Ask {
    /// `None` if it is about no resource.
    pub fn new(method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Option<Self> {
        let mut ask = Self::about(uri.path())?;
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
        ask.verb = match (method.as_str(), ask.name.is_empty()) {
            ("GET", false) => "get",
            ("GET", true) => "list",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", _) => "delete",
            _ => return None,
        };
        ask.query = uri.query().unwrap_or("").split('&').filter_map(pair).collect();
        ask.content_type = header("content-type").into();
        ask.accept = header("accept").into();
        ask.token = header("authorization").strip_prefix("Bearer ").map(str::to_owned);
        ask.body = serde_json::from_slice(body).ok();
        Some(ask)
    }

    fn about(path: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        let group = match parts.next()? {
            "api" => "",
            "apis" => parts.next()?,
            _ => return None,
        };
        parts.next()?;
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let part = |i: usize| rest.get(i).copied().unwrap_or("").to_owned();
        Some(Self {
            group: group.into(),
            namespace: namespace.into(),
            plural: Some(part(0)).filter(|plural| !plural.is_empty())?,
            name: part(1),
            subresource: part(2),
            ..Self::default()
        })
    }

    /// `deployments/scale`.
    pub fn resource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.plural.clone(),
            sub => format!("{}/{sub}", self.plural),
        }
    }

    /// What the query says under `key`.
    pub fn says(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }
}

fn pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    Some((key.to_owned(), decoded(value)))
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let hex: String = rest.by_ref().take(2).map(char::from).collect();
                bytes.push(u8::from_str_radix(&hex, 16).unwrap());
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}
