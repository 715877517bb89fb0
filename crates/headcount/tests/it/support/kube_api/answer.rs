//! What the stand-in answers: authentication, then permission, then the object, then what is asked
//! of it, in the order of the real one.

use serde_json::{Value, json};

use super::ask::Ask;
use super::said::{self, Answer};
use super::world::{HPAS, Key, SCALED_OBJECTS, World};

/// Leases need exactly six digits after the second.
fn is_micro_time(text: &str) -> bool {
    let Some((_, rest)) = text.split_once('.') else { return false };
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    digits == 6 && matches!(&rest[6..], "Z" | "+00:00")
}

impl World {
    /// Answers a request.
    pub fn answer(&mut self, ask: &Ask) -> Answer {
        let anonymous = ("system:anonymous".to_owned(), Vec::new());
        let (user, rules) = match &ask.token {
            None => anonymous,
            Some(token) => match self.accounts.get(token) {
                Some(account) => account.clone(),
                None => return said::unauthorized(),
            },
        };
        let may = |namespace: &str, group: &str, resource: &str, verb: &str| {
            rules.iter().any(|rule| rule.allows(namespace, group, resource, verb))
        };
        if ask.plural == "selfsubjectaccessreviews" && ask.token.is_some() {
            let mut body = ask.body.clone().unwrap();
            let asked = &body["spec"]["resourceAttributes"];
            let text = |key: &str| asked[key].as_str().unwrap_or("").to_owned();
            let resource = match text("subresource").as_str() {
                "" => text("resource"),
                sub => format!("{}/{sub}", text("resource")),
            };
            body["status"] = match may(&text("namespace"), &text("group"), &resource, &text("verb"))
            {
                true => json!({ "allowed": true, "reason": "RBAC: allowed by RoleBinding \"x\"" }),
                false => json!({ "allowed": false }),
            };
            body["metadata"] = json!({});
            return (201, body);
        }
        if !may(&ask.namespace, &ask.group, &ask.resource(), ask.verb) {
            return said::forbidden(ask, &user);
        }
        match ask.verb {
            "list" => self.list(ask),
            "create" => self.create(ask),
            _ => self.on_object(ask),
        }
    }

    fn key(ask: &Ask) -> Key {
        (ask.plural.clone(), ask.namespace.clone(), ask.name.clone())
    }

    fn on_object(&mut self, ask: &Ask) -> Answer {
        let key = Self::key(ask);
        let Some(object) = self.objects.get(&key).cloned() else { return said::not_found(ask) };
        match ask.verb {
            "get" => (200, shown(ask, object)),
            "patch" => self.patch(ask, key, object),
            "update" => self.update(ask, key, object),
            _ => said::unknown_path(),
        }
    }

    fn list(&mut self, ask: &Ask) -> Answer {
        let fits = |key: &Key, object: &Value| {
            let labels = ask.says("labelSelector").unwrap_or("");
            let fields = ask.says("fieldSelector").unwrap_or("");
            key.0 == ask.plural
                && (ask.namespace.is_empty() || key.1 == ask.namespace)
                && labels
                    .split(',')
                    .filter_map(|label| label.split_once('='))
                    .all(|(name, value)| object["metadata"]["labels"][name] == value)
                && fields.strip_prefix("metadata.name=").is_none_or(|name| key.2 == name)
        };
        let mut items: Vec<Value> = self
            .objects
            .iter()
            .filter(|(key, object)| fits(key, object))
            .map(|(_, object)| object.clone())
            .collect();
        let mut metadata = json!({ "resourceVersion": self.version() });
        let from = ask.says("continue").map_or(0, |token| token.parse().unwrap());
        let limit = ask.says("limit").map_or(usize::MAX, |limit| limit.parse().unwrap());
        let left = items.len().saturating_sub(from);
        items = items.into_iter().skip(from).take(limit).collect();
        if left > limit {
            metadata["continue"] = json!((from + limit).to_string());
        }
        if ask.accept.contains("as=PartialObjectMetadataList") {
            let part = |item: &Value| {
                json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": item["metadata"] })
            };
            let items: Vec<Value> = items.iter().map(part).collect();
            let kind = "PartialObjectMetadataList";
            return (
                200,
                json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1",
                "metadata": metadata, "items": items }),
            );
        }
        let (kind, version) = match ask.plural.as_str() {
            "pods" => ("PodList", "v1"),
            "deployments" => ("DeploymentList", "apps/v1"),
            HPAS => ("HorizontalPodAutoscalerList", "autoscaling/v2"),
            SCALED_OBJECTS if items.is_empty() => return said::unknown_path(),
            SCALED_OBJECTS => ("ScaledObjectList", "keda.sh/v1alpha1"),
            _ => ("List", "v1"),
        };
        (200, json!({ "kind": kind, "apiVersion": version, "metadata": metadata, "items": items }))
    }

    fn create(&mut self, ask: &Ask) -> Answer {
        let mut object = ask.body.clone().unwrap();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let ask = &Ask { name, ..ask.clone() };
        let key = Self::key(ask);
        if self.objects.contains_key(&key) {
            return said::exists(ask);
        }
        if let Some(wrong) = wrong_lease(ask, &object) {
            return wrong;
        }
        object["metadata"]["uid"] = json!(self.new_uid());
        object["metadata"]["creationTimestamp"] = json!(super::world::now());
        self.put(key.clone(), object);
        (201, self.objects[&key].clone())
    }

    /// A whole new object, or a whole new scale.
    fn update(&mut self, ask: &Ask, key: Key, old: Value) -> Answer {
        let Some(body) = &ask.body else { return said::bad_patch() };
        let version = &body["metadata"]["resourceVersion"];
        let is_scale = ask.subresource == "scale";
        if version.is_null() && !is_scale {
            let what = "Invalid value: 0: must be specified for an update";
            let mut answer = said::invalid(ask, "Lease", "metadata.resourceVersion", what, 1);
            let message = answer.1["message"].as_str().unwrap();
            let message = message.replace("Lease.coordination", "leases.coordination");
            answer.1["message"] = json!(message);
            answer.1["details"]["kind"] = json!(ask.plural);
            return answer;
        }
        if !version.is_null() && *version != old["metadata"]["resourceVersion"] {
            return said::conflict(ask);
        }
        if is_scale {
            let change =
                json!({ "spec": { "replicas": body["spec"]["replicas"].as_u64().unwrap_or(0) } });
            return self.store(ask, key, &old, &change);
        }
        match wrong_lease(ask, body) {
            Some(wrong) => wrong,
            None => {
                self.put(key.clone(), body.clone());
                (200, self.objects[&key].clone())
            }
        }
    }

    fn patch(&mut self, ask: &Ask, key: Key, old: Value) -> Answer {
        if ask.content_type == "application/json" {
            return said::wrong_type();
        }
        let Some(change) = &ask.body else { return said::bad_patch() };
        let version = &change["metadata"]["resourceVersion"];
        if !version.is_null() && *version != old["metadata"]["resourceVersion"] {
            return said::conflict(ask);
        }
        if let Some(wrong) = wrong_patch(ask, &old, change) {
            return wrong;
        }
        self.store(ask, key, &old, change)
    }

    fn store(&mut self, ask: &Ask, key: Key, old: &Value, change: &Value) -> Answer {
        let mut new = old.clone();
        merge(&mut new, change);
        if new["spec"]["replicas"].is_null() && old["spec"].get("replicas").is_some() {
            // A default is filled in.
            new["spec"]["replicas"] = json!(1);
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        if new != *old && ask.says("dryRun").is_none() {
            if new["spec"] != old["spec"] && key.0 != "pods" {
                let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
                new["metadata"]["generation"] = json!(generation);
            }
            self.put(key.clone(), new);
            new = self.objects[&key].clone();
        }
        (200, shown(ask, new))
    }
}

/// An object, or its scale: zeros are left out.
fn shown(ask: &Ask, mut object: Value) -> Value {
    if ask.plural == "pods" {
        // In a list they go without saying.
        (object["kind"], object["apiVersion"]) = (json!("Pod"), json!("v1"));
    }
    if ask.accept.contains("as=PartialObjectMetadata;") {
        return json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": object["metadata"] });
    }
    if ask.subresource != "scale" {
        return object;
    }
    let meta = &object["metadata"];
    let labels = object["spec"]["selector"]["matchLabels"].as_object().unwrap();
    let selector: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap())).collect();
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": { "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
            "resourceVersion": meta["resourceVersion"], "creationTimestamp": meta["creationTimestamp"] },
        "spec": {},
        "status": { "replicas": object["status"]["replicas"].as_u64().unwrap_or(0),
            "selector": selector.join(",") },
    });
    if object["spec"]["replicas"] != 0 {
        scale["spec"]["replicas"] = object["spec"]["replicas"].clone();
    }
    scale
}

fn merge(object: &mut Value, change: &Value) {
    let Value::Object(fields) = change else {
        *object = change.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut object[name.as_str()], value);
        }
    }
}

fn wrong_patch(ask: &Ask, old: &Value, change: &Value) -> Option<Answer> {
    let kind = match (ask.subresource.as_str(), ask.plural.as_str()) {
        ("scale", _) => "Scale",
        (_, "pods") => "Pod",
        (_, "leases") => "Lease",
        _ => old["kind"].as_str().unwrap(),
    };
    let uid = &change["metadata"]["uid"];
    if !uid.is_null() && *uid != old["metadata"]["uid"] {
        let what = format!("Invalid value: {uid}: field is immutable");
        return Some(said::invalid(ask, kind, "metadata.uid", &what, 2));
    }
    let cost = "controller.kubernetes.io/pod-deletion-cost";
    if let Some(text) = change["metadata"]["annotations"][cost].as_str()
        && (text.starts_with('+') || text.parse::<i32>().is_err())
    {
        let what = format!("Invalid value: {text:?}: must be a 32bit integer");
        return Some(said::invalid(ask, kind, &format!("metadata.annotations[{cost}]"), &what, 2));
    }
    match &change["spec"]["replicas"] {
        Value::Null => {}
        Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => {
            let what = format!("Invalid value: {n}: must be greater than or equal to 0");
            return Some(said::invalid(ask, kind, "spec.replicas", &what, 1));
        }
        Value::Number(n) if n.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) => {}
        other => {
            let what = match other {
                Value::Number(n) => format!("number {n}"),
                _ => "string".into(),
            };
            let mut new = old.clone();
            merge(&mut new, change);
            let field = "Go struct field DeploymentSpec.spec.replicas of type int32";
            return Some(said::misfit(
                &new,
                &format!("json: cannot unmarshal {what} into {field}"),
            ));
        }
    }
    let mut new = old.clone();
    merge(&mut new, change);
    wrong_lease(ask, &new)
}

fn wrong_lease(ask: &Ask, lease: &Value) -> Option<Answer> {
    if ask.plural != "leases" {
        return None;
    }
    for field in ["renewTime", "acquireTime"] {
        if let Some(time) = lease["spec"][field].as_str().filter(|time| !is_micro_time(time)) {
            let rest = &time[19..];
            return Some(said::misfit(
                lease,
                &format!(
                    "parsing time {time:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \
                 {rest:?} as \".000000\""
                ),
            ));
        }
    }
    (lease["spec"]["leaseDurationSeconds"] == 0).then(|| {
        let what = "Invalid value: 0: must be greater than 0";
        said::invalid(ask, "Lease", "spec.leaseDurationSeconds", what, 1)
    })
}
