//! The environment variables of the reference n8n autoscaler, written out as the configuration file
//! that they mean. Each line ends with the name of its variable, so that errors can name it.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::errors::{ConfigError, ConfigErrors};
use super::expand::Lookup;
use super::{Found, Overrides, parse_with};

/// The variables that the reference reads. One of them is enough to mean it.
pub(super) const REFERENCE: [&str; 19] = [
    "REDIS_HOST",
    "REDIS_PORT",
    "REDIS_PASSWORD",
    "COMPOSE_PROJECT_NAME",
    "COMPOSE_FILE",
    "WORKER_COMPOSE_FILE",
    "ENV_FILE",
    "HOST_PROJECT_DIR",
    "MIN_WORKERS",
    "MAX_WORKERS",
    "CPU_SCALE_UP_MAX",
    "CPU_SCALE_DOWN_EMERGENCY",
    "IDLE_BEFORE_SCALEDOWN_SEC",
    "POLL_INTERVAL_SEC",
    "COOLDOWN_SEC",
    "EWMA_ALPHA_UP",
    "EWMA_ALPHA_DOWN",
    "N8N_BASE_URL",
    "N8N_API_KEY",
];

/// The configuration that the variables mean; `None` if none of the reference's is set.
pub(super) fn read(
    lookup: Lookup<'_>,
    overrides: &Overrides,
) -> Option<Result<Found, ConfigErrors>> {
    let mut page = Page { lookup, text: String::new(), errors: Vec::new() };
    REFERENCE.iter().find(|name| page.get(&[**name]).is_some())?;
    page.write();
    let base_dir = std::env::current_dir().unwrap_or_default();
    let nothing = |_: &str| Err(std::env::VarError::NotPresent);
    let parsed = parse_with(&page.text, FILE, &base_dir, overrides, &nothing);
    let mut errors = page.errors;
    match parsed {
        Ok(config) if errors.is_empty() => {
            let api = ["N8N_BASE_URL", "N8N_API_KEY"];
            let given = api.iter().any(|name| lookup(name).is_ok_and(|v| !v.is_empty()));
            let note = "N8N_BASE_URL and N8N_API_KEY are not needed: active jobs are counted by \
                        the locks that their workers hold";
            let notes = given.then(|| note.to_string()).into_iter().collect();
            Some(Ok(Found { config, file: None, notes }))
        }
        Ok(_) => Some(Err(ConfigErrors::new(errors))),
        Err(found) => {
            errors.extend(found.all().iter().map(|error| by_variable(error, &page.text)));
            Some(Err(ConfigErrors::new(errors)))
        }
    }
}

const FILE: &str = "environment";
/// The reference's host of Redis.
const REDIS: &str = "redis";

/// The error with the variable's name in place of the line.
fn by_variable(error: &ConfigError, text: &str) -> ConfigError {
    let line = error.line.and_then(|line| text.lines().nth(line as usize - 1));
    let name = line.and_then(|line| Some(line.rsplit_once(" # ")?.1));
    ConfigError::whole(FILE, name.unwrap_or(&error.key), error.what.clone())
}

/// The file that is being written.
struct Page<'a> {
    lookup: Lookup<'a>,
    text: String,
    errors: Vec<ConfigError>,
}

/// What a variable holds.
#[derive(Clone, Copy)]
enum Unit {
    Whole,
    Number,
    Seconds,
}

impl Page<'_> {
    fn write(&mut self) {
        self.text += "groups:\n  n8n-worker:\n    workers:\n";
        self.number("min", "MIN_WORKERS", "1", Unit::Whole);
        self.number("max", "MAX_WORKERS", "4", Unit::Whole);
        self.text += "    policy:\n     cpu_aware:\n";
        self.number("poll", "POLL_INTERVAL_SEC", "30", Unit::Seconds);
        self.number("scale_out_below", "CPU_SCALE_UP_MAX", "65", Unit::Number);
        self.number("emergency", "CPU_SCALE_DOWN_EMERGENCY", "88", Unit::Number);
        self.number("idle", "IDLE_BEFORE_SCALEDOWN_SEC", "120", Unit::Seconds);
        self.number("cooldown", "COOLDOWN_SEC", "90", Unit::Seconds);
        self.number("alpha_up", "EWMA_ALPHA_UP", "0.5", Unit::Number);
        self.number("alpha_down", "EWMA_ALPHA_DOWN", "0.1", Unit::Number);
        self.text += "    queue:\n     bull:\n";
        self.optional("prefix", &["QUEUE_BULL_PREFIX"]);
        self.text += "      redis:\n";
        self.redis();
        self.text += "    target:\n     compose:\n";
        let project = self.get(&["COMPOSE_PROJECT_NAME"]);
        let project = project.unwrap_or_else(|| "n8n-automation".into());
        self.put("project", &json!(project), "COMPOSE_PROJECT_NAME");
        self.text += "      service: n8n-worker\n";
        self.optional("env_file", &["ENV_FILE"]);
        self.optional("project_directory", &["HOST_PROJECT_DIR"]);
        self.files();
        self.text += "    metrics_list: {}\n";
    }

    fn redis(&mut self) {
        let hosts = ["REDIS_HOST", "QUEUE_BULL_REDIS_HOST"];
        let (name, mut host) = self.named(&hosts).unwrap_or(("REDIS_HOST", REDIS.into()));
        let fits = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
        if !host.chars().all(fits) {
            let what = format!("`{host}` is not a host name or address");
            self.errors.push(ConfigError::whole(FILE, name, what));
            host = REDIS.into();
        }
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let port = self.whole(&["REDIS_PORT", "QUEUE_BULL_REDIS_PORT"], 6379, 65535);
        let db = self.whole(&["QUEUE_BULL_REDIS_DB"], 0, 1_000_000);
        let tls = self.get(&["QUEUE_BULL_REDIS_TLS"]).is_some_and(|v| v == "true");
        let scheme = if tls { "rediss" } else { "redis" };
        let url = format!("{scheme}://{host}:{port}/{db}");
        self.put("  url", &json!(url), "REDIS_HOST or REDIS_PORT");
        self.optional("  username", &["QUEUE_BULL_REDIS_USERNAME"]);
        self.optional("  password", &["REDIS_PASSWORD", "QUEUE_BULL_REDIS_PASSWORD"]);
    }

    /// As Compose itself does, several files may be named with `:` in between.
    fn files(&mut self) {
        let names = ["COMPOSE_FILE", "WORKER_COMPOSE_FILE"];
        let given = names.map(|name| (name, self.get(&[name]).unwrap_or_default()));
        if given.iter().all(|(_, files)| files.is_empty()) {
            return;
        }
        self.text += "      files:\n";
        for (name, files) in given {
            for file in files.split(':').filter(|file| !file.is_empty()) {
                self.line("       -", &json!(file), name);
            }
        }
    }

    /// The first of these variables that is set and not empty.
    fn get(&self, names: &[&str]) -> Option<String> {
        self.named(names).map(|(_, value)| value)
    }

    fn named<'n>(&self, names: &[&'n str]) -> Option<(&'n str, String)> {
        let set = |name: &&'n str| {
            (self.lookup)(name).ok().filter(|v| !v.is_empty()).map(|value| (*name, value))
        };
        names.iter().find_map(set)
    }

    fn optional(&mut self, key: &str, names: &[&str]) {
        if let Some((name, value)) = self.named(names) {
            self.put(key, &json!(value), name);
        }
    }

    /// A number; anything else is written as it is, to be refused with the rest.
    fn number(&mut self, key: &str, name: &str, default: &str, unit: Unit) {
        let text = self.get(&[name]).unwrap_or_else(|| default.into());
        let number = text.trim().parse::<f64>().ok().filter(|n| n.abs() < 1e9);
        let value = match unit {
            Unit::Whole => text.trim().parse::<i64>().ok().map(Value::from),
            Unit::Number => number.map(Value::from),
            Unit::Seconds => number.map(|n| json!(seconds(n))),
        };
        self.put(key, &value.unwrap_or_else(|| json!(text)), name);
    }

    fn whole(&mut self, names: &[&str], default: u64, most: u64) -> u64 {
        let Some((name, text)) = self.named(names) else { return default };
        text.trim().parse().ok().filter(|n| *n <= most).unwrap_or_else(|| {
            let what = format!("`{text}` is not a whole number from 0 to {most}");
            self.errors.push(ConfigError::whole(FILE, name, what));
            default
        })
    }

    fn put(&mut self, key: &str, value: &Value, name: &str) {
        self.line(&format!("      {key}:"), value, name);
    }

    /// One line: JSON is YAML, and a dollar must not start a variable.
    fn line(&mut self, start: &str, value: &Value, name: &str) {
        let value = value.to_string().replace('$', "$$");
        let _ = writeln!(self.text, "{start} {value} # {name}");
    }
}

fn seconds(n: f64) -> String {
    if n.fract() == 0.0 { format!("{n}s") } else { format!("{}ms", (n * 1000.0).round()) }
}
