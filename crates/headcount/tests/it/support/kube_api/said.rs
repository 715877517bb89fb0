//! What an API server says when it refuses: the `Status` objects, word by word.

use serde_json::{Value, json};

use super::ask::Ask;

/// An answer: its HTTP status and its body.
pub type Answer = (u16, Value);

fn failure(code: u16, reason: &str, message: String, details: Option<Value>) -> Answer {
    let mut body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    if let Some(details) = details {
        body["details"] = details;
    }
    (code, body)
}

fn details(ask: &Ask, kind: &str) -> Value {
    let mut details = json!({ "kind": kind });
    if !ask.name.is_empty() {
        details["name"] = json!(ask.name);
    }
    if !ask.group.is_empty() {
        details["group"] = json!(ask.group);
    }
    details
}

/// `deployments.apps "worker"`.
fn object(ask: &Ask) -> String {
    let dot = if ask.group.is_empty() { "" } else { "." };
    let resource = format!("{}{dot}{}", ask.plural, ask.group);
    if ask.name.is_empty() { resource } else { format!("{resource} {:?}", ask.name) }
}

pub fn unauthorized() -> Answer {
    failure(401, "Unauthorized", "Unauthorized".into(), None)
}

pub fn forbidden(ask: &Ask, user: &str) -> Answer {
    let place = match ask.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {namespace:?}"),
    };
    let message = format!(
        "{} is forbidden: User {user:?} cannot {} resource {:?} in API group {:?} {place}",
        object(ask),
        ask.verb,
        ask.resource(),
        ask.group
    );
    failure(403, "Forbidden", message, Some(details(ask, &ask.plural)))
}

pub fn not_found(ask: &Ask) -> Answer {
    let message = format!("{} not found", object(ask));
    failure(404, "NotFound", message, Some(details(ask, &ask.plural)))
}

pub fn unknown_path() -> Answer {
    let message = "the server could not find the requested resource".into();
    failure(404, "NotFound", message, Some(json!({})))
}

pub fn conflict(ask: &Ask) -> Answer {
    let message = format!(
        "Operation cannot be fulfilled on {}: the object has been modified; please apply your \
         changes to the latest version and try again",
        object(ask)
    );
    failure(409, "Conflict", message, Some(details(ask, &ask.plural)))
}

pub fn exists(ask: &Ask) -> Answer {
    let message = format!("{} already exists", object(ask));
    failure(409, "AlreadyExists", message, Some(details(ask, &ask.plural)))
}

pub fn bad_patch() -> Answer {
    let message = "error decoding patch: unexpected end of JSON input".into();
    failure(400, "BadRequest", message, None)
}

pub fn wrong_type() -> Answer {
    let message = "415: Unsupported Media Type".into();
    failure(415, "UnsupportedMediaType", message, Some(json!({})))
}

/// One field makes no sense; the server finds it `times` times.
pub fn invalid(ask: &Ask, kind: &str, field: &str, what: &str, times: usize) -> Answer {
    let ask = match kind {
        "Scale" => Ask { group: "autoscaling".into(), ..ask.clone() },
        _ => ask.clone(),
    };
    let dot = if ask.group.is_empty() { "" } else { "." };
    let message = format!("{kind}{dot}{} {:?} is invalid: {field}: {what}", ask.group, ask.name);
    let mut details = details(&ask, kind);
    let cause = json!({ "reason": "FieldValueInvalid", "message": what, "field": field });
    details["causes"] = json!(vec![cause; times]);
    failure(422, "Invalid", message, Some(details))
}

/// A patch whose result does not fit the type: the whole object is quoted, twice.
pub fn misfit(object: &Value, why: &str) -> Answer {
    let what = format!("Invalid value: {:?}: {why}", object.to_string());
    let cause = json!({ "reason": "FieldValueInvalid", "message": what, "field": "patch" });
    let message = format!(" \"\" is invalid: patch: {what}");
    failure(422, "Invalid", message, Some(json!({ "causes": [cause] })))
}

/// Something is broken inside.
pub fn broken(code: u16) -> Answer {
    let (reason, message) = match code {
        429 => ("TooManyRequests", "too many requests, please try again later"),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504 => ("Timeout", "request did not complete within the allotted timeout"),
        _ => ("InternalError", "an error on the server has prevented the request from succeeding"),
    };
    failure(code, reason, message.into(), None)
}
