//! What a new worker is made from: the configuration, over an existing container if one is named.
//! Works on the engine's own JSON, so that a copy has also what this program has no name for. It
//! holds secrets: nothing in it is to be shown.

use std::path::Path;

use headcount_core::Span;
use serde_json::{Map, Value, json};

use crate::limits::SECRET_BYTES;
use crate::regular_file;
use crate::targets::docker::config::{DockerConfig, bind, bytes, is_reserved};
use crate::targets::program;

/// Whose worker a container is.
pub(super) const GROUP: &str = "headcount.group";

/// A secret of fewer characters is no secret: hiding it would hide half of each message.
const SHORTEST_SECRET: usize = 4;

/// What a new worker is made from.
#[derive(Default)]
pub(super) struct Template {
    /// The body of the request that creates it.
    body: Value,
    /// Further networks that it joins, with its settings there.
    pub(super) networks: Vec<(String, Value)>,
}

impl Template {
    /// A copy of the container that was `inspected`, without what only that one can have.
    /// `of_image` is what its image says anyway.
    pub(super) fn like(inspected: &Value, of_image: &Value) -> Self {
        let mut body = own_part(&inspected["Config"], of_image);
        for only_its_own in ["Hostname", "MacAddress", "Image", "ExposedPorts"] {
            body.remove(only_its_own);
        }
        if let Some(Value::Object(labels)) = body.get_mut("Labels") {
            labels.retain(|label, _| !is_reserved(label));
        }
        let mut host = object(&inspected["HostConfig"]);
        for only_its_own in ["PortBindings", "PublishAllPorts", "AutoRemove", "ContainerIDFile"] {
            host.remove(only_its_own);
        }
        let first = host.get("NetworkMode").and_then(Value::as_str).unwrap_or_default().to_owned();
        body.insert("HostConfig".into(), Value::Object(host));
        let mut template = Self { body: Value::Object(body), networks: Vec::new() };
        for (network, settings) in object(&inspected["NetworkSettings"]["Networks"]) {
            let settings = endpoint(&settings, inspected);
            if network != first {
                let is_default = ["bridge", "host", "none"].contains(&network.as_str());
                template.networks.extend((!is_default).then_some((network, settings)));
            } else if settings.as_object().is_some_and(|settings| !settings.is_empty()) {
                template.body["NetworkingConfig"] =
                    json!({ "EndpointsConfig": { network: settings } });
            }
        }
        template
    }

    /// The same with what the configuration says; relative folders start at `base`.
    pub(super) fn with(mut self, config: &DockerConfig, file: &[String], base: &Path) -> Self {
        if let Some(command) = &config.command {
            self.body["Cmd"] = json!(command);
        }
        let given = config.env.iter().map(|(name, value)| format!("{name}={}", value.expose()));
        let given: Vec<String> = file.iter().cloned().chain(given).collect();
        let env = joined(&strings(&self.body["Env"]), &given);
        self.body["Env"] = json!(env);
        for (name, value) in &config.labels {
            self.body["Labels"][name] = json!(value);
        }
        if let Some(signal) = &config.stop_signal {
            self.body["StopSignal"] = json!(signal);
        }
        self.body["StopTimeout"] = json!(seconds(config.grace));
        let host = &mut self.body["HostConfig"];
        let mut binds = strings(&host["Binds"]);
        binds.extend(config.mounts.iter().filter_map(|mount| bind(mount, base)));
        host["Binds"] = json!(binds);
        if let Some(cpus) = config.cpus {
            host["NanoCpus"] = json!((cpus * 1e9).round() as i64);
            // Docker takes one way of saying it only.
            host["CpuQuota"] = json!(0);
            host["CpuPeriod"] = json!(0);
        }
        if let Some(memory) = config.memory.as_deref().and_then(bytes) {
            host["Memory"] = json!(memory);
            host["MemorySwap"] = json!(0);
            host["MemoryReservation"] = json!(0);
        }
        if let Some(restart) = &config.restart {
            host["RestartPolicy"] = json!({ "Name": restart });
        }
        if host["RestartPolicy"].is_null() {
            host["RestartPolicy"] = json!({ "Name": "unless-stopped" });
        }
        if let Some((first, others)) = config.networks.split_first() {
            host["NetworkMode"] = json!(first);
            self.body["NetworkingConfig"] = Value::Null;
            self.networks = others.iter().map(|name| (name.clone(), json!({}))).collect();
        }
        self
    }

    /// The request that creates a worker of `group` from `image`.
    pub(super) fn body(&self, image: &str, group: &str) -> Value {
        let mut body = self.body.clone();
        body["Image"] = json!(image);
        body["Labels"][GROUP] = json!(group);
        body
    }

    /// What a worker has of a part of its template, for `check`: `restart`, its network, the host's.
    pub(super) fn host(&self) -> &Value {
        &self.body["HostConfig"]
    }

    /// A message without the values of the environment.
    pub(super) fn without_secrets(&self, message: &str) -> String {
        let env = strings(&self.body["Env"]);
        let values = env.iter().filter_map(|line| line.split_once('=')).map(|(_, value)| value);
        values
            .filter(|value| value.len() >= SHORTEST_SECRET)
            .fold(message.to_owned(), |text, value| text.replace(value, "..."))
    }
}

/// The lines of a file with variables; a name alone takes the value from `environment`.
///
/// # Errors
/// It cannot be read, or a line makes no sense. Its content is not shown.
pub(super) fn env_file(
    path: &Path,
    environment: impl Fn(&str) -> Option<String>,
) -> Result<Vec<String>, String> {
    let file = path.display();
    let bytes = regular_file::read(path, SECRET_BYTES).map_err(|e| format!("{file}: {e}"))?;
    if bytes.len() as u64 > SECRET_BYTES {
        return Err(format!("{file} is larger than {SECRET_BYTES} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("{file} is not UTF-8"))?;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.trim_end().is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (line.trim_end(), environment(line.trim_end())),
        };
        let has_space = name.contains(char::is_whitespace);
        if has_space || program::fault_of_variable(name).is_some() {
            return Err(format!("{file}, line {}: write NAME=value", number + 1));
        }
        lines.extend(value.map(|value| format!("{name}={value}")));
    }
    Ok(lines)
}

/// Of a container's configuration what its image does not say: a new image brings its own.
fn own_part(config: &Value, of_image: &Value) -> Map<String, Value> {
    let mut own = object(config);
    let same = |key: &str| is_same(&config[key], &of_image[key]);
    // A command without its entry point means something else.
    let keeps_entry = !same("Entrypoint");
    own.retain(|key, _| (key == "Cmd" && keeps_entry) || !same(key));
    let of_image_env = strings(&of_image["Env"]);
    if let Some(env) = own.get_mut("Env") {
        let lines = strings(env).into_iter().filter(|line| !of_image_env.contains(line));
        *env = json!(lines.collect::<Vec<_>>());
    }
    if let Some(Value::Object(labels)) = own.get_mut("Labels") {
        labels.retain(|label, value| of_image["Labels"][label] != *value);
    }
    own
}

/// Whether two parts say the same; nothing can be said in several ways.
fn is_same(one: &Value, other: &Value) -> bool {
    let is_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    };
    one == other || (is_nothing(one) && is_nothing(other))
}

/// What of a container's settings in a network another may have too.
fn endpoint(settings: &Value, inspected: &Value) -> Value {
    let mut kept = object(settings);
    kept.retain(|key, value| {
        ["Aliases", "Links", "DriverOpts"].contains(&key.as_str()) && !is_same(value, &Value::Null)
    });
    let id = inspected["Id"].as_str().unwrap_or_default();
    let name = inspected["Name"].as_str().unwrap_or_default().trim_start_matches('/');
    let is_its_own = |alias: &str| alias == name || (alias.len() >= 12 && id.starts_with(alias));
    if let Some(aliases) = kept.get_mut("Aliases") {
        let others = strings(aliases).into_iter().filter(|alias| !is_its_own(alias));
        *aliases = json!(others.collect::<Vec<_>>());
    }
    kept.retain(|_, value| !is_same(value, &Value::Null));
    Value::Object(kept)
}

/// The variables of `lines`, those of `more` going before them.
fn joined(lines: &[String], more: &[String]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for line in lines.iter().chain(more) {
        let name = |line: &str| line.split_once('=').map(|(name, _)| name.to_owned());
        joined.retain(|there| name(there) != name(line));
        joined.push(line.clone());
    }
    joined
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn strings(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Whole seconds, rounded up.
fn seconds(span: Span) -> i64 {
    i64::try_from(span.as_millis().saturating_add(999) / 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::Secret;

    fn inspected() -> Value {
        json!({
            "Id": "0123456789abcdef", "Name": "/shop-worker-1", "Image": "sha256:1",
            "Config": {
                "Hostname": "0123456789ab", "Image": "w:1", "User": "", "Cmd": ["run"],
                "Entrypoint": ["/init"], "WorkingDir": "/srv",
                "Env": ["PATH=/bin", "TOKEN=s3cr3t", "MODE=a"],
                "Labels": {"team": "x", "com.docker.compose.project": "shop", "built": "y"},
                "FromTheFuture": 7,
            },
            "HostConfig": {
                "NetworkMode": "shop_default", "Binds": ["data:/data"], "AutoRemove": true,
                "PortBindings": {"80/tcp": [{"HostPort": "80"}]}, "NanoCpus": 0, "CpuQuota": 50000,
                "RestartPolicy": {"Name": "always"},
            },
            "NetworkSettings": {"Networks": {
                "shop_default": {"Aliases": ["0123456789ab", "worker", "shop-worker-1"], "IPAddress": "10.0.0.2"},
                "other": {"IPAMConfig": {"IPv4Address": "10.1.0.9"}},
            }},
        })
    }

    #[test]
    fn a_copy_has_all_but_what_only_one_can_have() {
        let of_image = json!({
            "Cmd": ["run"], "Entrypoint": ["/init"], "WorkingDir": "/srv", "Env": ["PATH=/bin"],
            "Labels": {"built": "y"}, "User": null,
        });
        let copy = Template::like(&inspected(), &of_image);
        let expected = json!({
            "Env": ["TOKEN=s3cr3t", "MODE=a"],
            "Labels": {"team": "x", "headcount.group": "g"},
            "FromTheFuture": 7,
            "Image": "w:2",
            "HostConfig": {
                "NetworkMode": "shop_default", "Binds": ["data:/data"], "NanoCpus": 0,
                "CpuQuota": 50000, "RestartPolicy": {"Name": "always"},
            },
            "NetworkingConfig": {"EndpointsConfig": {"shop_default": {"Aliases": ["worker"]}}},
        });
        assert_eq!(copy.body("w:2", "g"), expected);
        assert_eq!(copy.networks, [("other".to_owned(), json!({}))]);
    }

    #[test]
    fn a_command_stays_with_its_entry_point() {
        let own =
            |config: Value| own_part(&config, &json!({"Cmd": ["run"], "Entrypoint": ["/init"]}));
        let changed = own(json!({"Cmd": ["run"], "Entrypoint": ["/other"]}));
        assert_eq!(Value::Object(changed), json!({"Cmd": ["run"], "Entrypoint": ["/other"]}));
        let command = own(json!({"Cmd": ["stop"], "Entrypoint": ["/init"]}));
        assert_eq!(Value::Object(command), json!({"Cmd": ["stop"]}));
    }

    #[test]
    fn the_configuration_goes_before_the_container() {
        let config = DockerConfig {
            command: Some(vec!["w".into()]),
            env: [("MODE".to_owned(), Secret::from("c"))].into(),
            mounts: vec!["./in:/in".into()],
            networks: vec!["a".into(), "b".into()],
            labels: [("team".to_owned(), "z".to_owned())].into(),
            stop_signal: Some("SIGINT".into()),
            grace: Span::from_millis(1_500),
            cpus: Some(1.5),
            memory: Some("1g".into()),
            restart: Some("no".into()),
            ..DockerConfig::default()
        };
        let file = ["MODE=b".to_owned(), "NEW=1".to_owned()];
        let template = Template::like(&inspected(), &Value::Null);
        let template = template.with(&config, &file, Path::new("/etc"));
        let body = template.body("w", "g");
        assert_eq!(body["Cmd"], json!(["w"]));
        assert_eq!(body["Entrypoint"], json!(["/init"]));
        assert_eq!(body["Env"], json!(["PATH=/bin", "TOKEN=s3cr3t", "NEW=1", "MODE=c"]));
        assert_eq!(body["Labels"]["team"], json!("z"));
        assert_eq!((&body["StopSignal"], &body["StopTimeout"]), (&json!("SIGINT"), &json!(2)));
        let host = json!({
            "NetworkMode": "a", "Binds": ["data:/data", "/etc/in:/in"], "NanoCpus": 1_500_000_000,
            "CpuQuota": 0, "CpuPeriod": 0, "Memory": 1 << 30, "MemorySwap": 0,
            "MemoryReservation": 0, "RestartPolicy": {"Name": "no"},
        });
        assert_eq!(body["HostConfig"], host);
        assert_eq!(template.networks, [("b".to_owned(), json!({}))]);
        assert!(body["NetworkingConfig"].is_null());
    }

    #[test]
    fn without_a_template_little_is_said() {
        let body =
            Template::default().with(&DockerConfig::default(), &[], Path::new("/")).body("w", "g");
        let expected = json!({
            "Image": "w", "Env": [], "Labels": {"headcount.group": "g"}, "StopTimeout": 60,
            "HostConfig": {"Binds": [], "RestartPolicy": {"Name": "unless-stopped"}},
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn a_message_keeps_the_secrets() {
        let template = Template::like(&inspected(), &Value::Null);
        let told = template.without_secrets("no TOKEN s3cr3t in mode a");
        assert_eq!(told, "no TOKEN ... in mode a");
    }

    #[test]
    fn a_file_with_variables() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            env_file(&path, |name| (name == "HERE").then(|| "yes".to_owned()))
        };
        let lines = read("# c\n\nA=1 = 2 \n  B=\nHERE\nGONE\n").unwrap();
        assert_eq!(lines, ["A=1 = 2 ", "B=", "HERE=yes"]);
        let wrong = read("A=1\nmy secret=x\n").unwrap_err();
        assert!(wrong.ends_with("env, line 2: write NAME=value"), "{wrong}");
        assert!(env_file(Path::new("/no/such"), |_| None).is_err());
    }
}
