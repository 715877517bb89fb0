//! What `headcount check` says of a Nomad target: reachable, what the token may do, whether the job
//! and its group are there, and what in them stands in the way of scaling or of a gentle end.

use headcount_core::{Silence, Span};
use serde::Deserialize;
use serde_json::Value;

use crate::finding::{Fact, Finding};
use crate::limits::{NEIGHBOURS, NOMAD_LOOK};
use crate::targets::nomad::Nomad;
use crate::targets::nomad::api::{Job, TaskGroup};
use crate::targets::nomad::client::{ApiError, Topic};
use crate::targets::nomad::fleet;
use crate::targets::nomad::scale::grace;

const ABOUT: &str = "target";

/// What to do about a refusal.
const POLICY: &str = "give the token a policy like deploy/nomad/policy.hcl";

/// A node cuts every `kill_timeout` to its own `max_kill_timeout`, which is this unless it says so.
const STANDARD_MAX_KILL: Span = Span::from_secs(30);

/// Since this version Nomad compares the index that a request to scale carries with the job's
/// (its changelog, GH-23457).
const ENFORCES_INDEX: [u32; 3] = [1, 8, 2];

/// What is needed, what it is for, and which coarse policies contain it.
const CAPABILITIES: [(&str, &str, &[&str]); 4] = [
    ("read-job", "the allocations cannot be listed", &["read", "write"]),
    ("read-job-scaling", "the count cannot be read", &["read", "write", "scale"]),
    ("scale-job", "the count cannot be changed", &["write", "scale"]),
    (
        "alloc-lifecycle",
        "a busy worker may go where Nomad would take it before the chosen ones",
        &["write"],
    ),
];

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Token {
    #[serde(default)]
    name: String,
    #[serde(default, rename = "Type")]
    kind: String,
    #[serde(default)]
    policies: Option<Vec<String>>,
    #[serde(default)]
    roles: Option<Vec<Value>>,
    #[serde(default)]
    expiration_time: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Named {
    name: String,
    rules: String,
}

impl Nomad {
    pub(super) async fn findings(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let reachable = self.agent().await;
        let stop = reachable.is_err();
        findings.push(reachable.unwrap_or_else(|problem| problem));
        if stop {
            return findings;
        }
        findings.extend(self.tls());
        findings.extend(self.token_findings().await);
        findings.extend(self.namespace().await);
        match self.read().await {
            Ok(known) => {
                let alive = |alloc| {
                    !matches!(
                        fleet::role(alloc, known.is_batch),
                        fleet::Role::Gone | fleet::Role::Dead { .. }
                    )
                };
                let alive = known.allocs.iter().filter(|alloc| alive(alloc)).count();
                let what = format!(
                    "{} is there: {alive} of {} allocations run",
                    self.shown(),
                    known.count
                );
                findings.push(Finding::good(ABOUT, what).stating(Fact::Workers(alive)));
            }
            Err(error) => {
                let fix = match error.why {
                    Silence::Denied => POLICY,
                    Silence::NotFound => "correct `job`, `group`, `namespace` or `region`",
                    _ => "look at the log of Nomad's servers",
                };
                findings.push(Finding::problem(ABOUT, error.to_string(), fix));
            }
        }
        let agent = self.agent_self().await;
        findings.extend(agent.as_ref().and_then(of_version));
        let max_kill = agent.as_ref().and_then(max_kill_timeout);
        if let Some(job) = &self.job {
            findings.extend(of_job(job));
            if let Some(group) = self.group() {
                findings.extend(of_group(group, max_kill));
            }
        }
        findings
    }

    async fn agent(&self) -> Result<Finding, Finding> {
        let address = &self.client.address;
        let topic = Topic { what: "asking for the leader", needs: "nothing" };
        let leader = self.client.get::<String>(&["status", "leader"], &[], NOMAD_LOOK, topic).await;
        match leader {
            Ok(leader) if leader.value.is_empty() => Err(Finding::problem(
                ABOUT,
                format!("Nomad at {address} has no leader: nothing can be changed"),
                "look at the servers with `nomad server members`",
            )),
            Ok(leader) => {
                Ok(Finding::good(ABOUT, format!("Nomad at {address}, leader {}", leader.value)))
            }
            Err(error) => {
                let fix = match error.why {
                    Silence::Denied => "let the agent answer, or correct `address`",
                    Silence::NotFound => "correct `region`",
                    _ => "start the agent, or correct `address`; `tls` if it asks for https",
                };
                Err(Finding::problem(ABOUT, error.to_string(), fix))
            }
        }
    }

    fn tls(&self) -> Option<Finding> {
        let address = &self.client.address;
        let host = address.strip_prefix("http://")?;
        let here = ["127.", "localhost", "[::1]"].iter().any(|own| host.starts_with(own));
        if here || !self.client.has_token() {
            return None;
        }
        let what = format!("the ACL token goes to {address} in the clear");
        Some(Finding::warning(ABOUT, what, "let Nomad use TLS, and write https:// in `address`"))
    }

    async fn token_findings(&self) -> Vec<Finding> {
        if self.client.is_workload_identity() {
            // It has no entry of its own; what it may do shows at the job.
            return vec![Finding::good(ABOUT, "the token is a workload identity")];
        }
        let topic = Topic { what: "reading the ACL token", needs: "nothing" };
        let path = ["acl", "token", "self"];
        let token = match self.client.get::<Token>(&path, &[], NOMAD_LOOK, topic).await {
            Ok(answer) => answer.value,
            Err(error) if error.detail.contains("ACL support disabled") => {
                return vec![Finding::good(
                    ABOUT,
                    "Nomad has no access lists: everybody may scale",
                )];
            }
            // What an anonymous one may do shows at the job.
            Err(_) if !self.client.has_token() => return Vec::new(),
            Err(error) => {
                let fix = "give a token that is valid in this region: `nomad acl token self`";
                return vec![Finding::problem(ABOUT, error.to_string(), fix)];
            }
        };
        let until = token.expiration_time.as_ref().filter(|time| !time.starts_with("0001"));
        let until = until.map_or(String::new(), |time| format!(", until {time}"));
        let known = Finding::good(ABOUT, format!("ACL token {} is valid{until}", token.name));
        if token.kind == "management" {
            let what = format!("ACL token {} may do everything", token.name);
            return vec![known, Finding::warning(ABOUT, what, POLICY)];
        }
        let mut findings = vec![known];
        // A role's policies cannot be read with every token.
        if token.roles.as_ref().is_none_or(Vec::is_empty)
            && let Some(rules) = self.rules(token.policies.unwrap_or_default()).await
        {
            let lacks =
                CAPABILITIES.iter().filter(|(name, _, coarse)| !allows(&rules, name, coarse));
            findings.extend(lacks.map(|(name, what, _)| {
                let what = format!("the ACL token seems to lack `{name}`: {what}");
                Finding::warning(ABOUT, what, POLICY)
            }));
        }
        findings
    }

    /// The rules of these policies; `None` where one cannot be read.
    async fn rules(&self, policies: Vec<String>) -> Option<String> {
        let mut rules = String::new();
        for policy in policies.iter().take(NEIGHBOURS) {
            let topic = Topic { what: "reading an ACL policy", needs: "its own policy" };
            let path = ["acl", "policy", policy];
            let answer = self.client.get::<Named>(&path, &[], NOMAD_LOOK, topic).await.ok()?;
            rules += &answer.value.rules;
            rules.push('\n');
        }
        (!policies.is_empty()).then_some(rules)
    }

    async fn namespace(&self) -> Option<Finding> {
        let topic = Topic { what: "listing the namespaces", needs: "any of the namespace's" };
        let path = ["namespaces"];
        let answer = self.client.get::<Option<Vec<Named>>>(&path, &[], NOMAD_LOOK, topic).await;
        let names: Vec<String> =
            answer.ok()?.value.unwrap_or_default().into_iter().map(|named| named.name).collect();
        let own = &self.client.namespace;
        if names.is_empty() || names.contains(own) {
            return None;
        }
        let there = names.into_iter().take(NEIGHBOURS).collect::<Vec<_>>().join(", ");
        let what =
            format!("there is no namespace {own}, or the token may not see it; there are: {there}");
        Some(Finding::problem(ABOUT, what, "set `namespace` to one of them"))
    }

    /// What the agent says of itself and of its node. Others may differ.
    async fn agent_self(&self) -> Option<Value> {
        let topic = Topic { what: "reading the agent", needs: "agent:read" };
        let answer: Result<_, ApiError> =
            self.client.get::<Value>(&["agent", "self"], &[], NOMAD_LOOK, topic).await;
        Some(answer.ok()?.value)
    }
}

/// The longest `kill_timeout` that the agent's node grants, if it is one.
fn max_kill_timeout(agent: &Value) -> Option<Span> {
    let client = &agent["config"]["Client"];
    let text = client["Enabled"].as_bool()?.then(|| client["MaxKillTimeout"].as_str())??;
    text.parse().ok()
}

fn of_version(agent: &Value) -> Option<Finding> {
    let version = agent["config"]["Version"]["Version"].as_str()?;
    let digits = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let parts: Vec<u32> = digits.take(ENFORCES_INDEX.len()).collect::<Result<_, _>>().ok()?;
    (parts.as_slice() < &ENFORCES_INDEX[..]).then(|| {
        let [major, minor, patch] = ENFORCES_INDEX;
        Finding::warning(
            ABOUT,
            format!("Nomad {version} does not notice that somebody else changed the job meanwhile"),
            format!("use Nomad {major}.{minor}.{patch} or newer"),
        )
    })
}

/// Whether the rules seem to allow this, by its own name or by a coarse policy that contains it.
fn allows(rules: &str, capability: &str, coarse: &[&str]) -> bool {
    let plain: String = rules.chars().filter(|c| !c.is_whitespace()).collect();
    plain.contains(&format!("\"{capability}\""))
        || coarse.iter().any(|policy| plain.contains(&format!("policy=\"{policy}\"")))
}

fn of_job(job: &Job) -> Option<Finding> {
    job.is_batch().then(|| {
        Finding::warning(
            ABOUT,
            "the job is of type batch: a worker that ends keeps its place and gets no successor",
            "make it a `service`",
        )
    })
}

fn of_group(group: &TaskGroup, max_kill: Option<Span>) -> Vec<Finding> {
    let name = &group.name;
    let grace = grace(group);
    let limit = max_kill.unwrap_or(STANDARD_MAX_KILL);
    let mut findings = Vec::new();
    if grace > limit {
        let whose = if max_kill.is_some() { "this agent's" } else { "unless set, a node's" };
        let what = format!(
            "a task of {name} may take {grace:#} to finish, but {whose} max_kill_timeout is \
             {limit:#}"
        );
        let fix = format!(
            "set `max_kill_timeout = \"{}s\"` in the clients' configuration",
            grace.as_secs()
        );
        findings.push(Finding::warning(ABOUT, what, fix));
    }
    // Where nobody tells the node's limit, the group is believed.
    let counts = if max_kill.is_some() { grace.min(limit) } else { grace };
    let what = format!("a worker has {counts:#} to finish (kill_timeout, shutdown_delay)");
    findings.push(Finding::good(ABOUT, what).stating(Fact::Grace(counts)));
    if let Some(scaling) = group.scaling {
        let bound = |bound: Option<u32>| bound.map_or("any".into(), |n| n.to_string());
        let (min, max) = (bound(scaling.min), bound(scaling.max));
        let what = format!("Nomad allows a count of {min} to {max} (scaling block)");
        findings.push(Finding::good(ABOUT, what));
        if scaling.enabled == Some(true) {
            findings.push(Finding::warning(
                ABOUT,
                format!(
                    "the scaling policy of {name} is enabled: the Nomad Autoscaler may scale it too"
                ),
                "set `enabled = false` in the `scaling` block if that one runs",
            ));
        }
    }
    if group.update.is_some_and(|update| update.max_parallel > 0) {
        let what = format!(
            "each change of the count is a deployment of {name}, and Nomad does not scale until it \
             has ended"
        );
        let fix = "set `update { max_parallel = 0 }` in the group";
        findings.push(Finding::warning(ABOUT, what, fix));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::finding::Level;

    #[test]
    fn a_capability_has_many_ways_to_be_there() {
        let fine = "namespace \"jobs\" {\n  capabilities = [\"read-job\", \"scale-job\"]\n}";
        let coarse = "namespace \"jobs\" { policy = \"scale\" }";
        let of = |rules: &str| {
            let has = CAPABILITIES.iter().filter(|(name, _, coarse)| allows(rules, name, coarse));
            has.map(|(name, ..)| *name).collect::<Vec<_>>()
        };
        assert_eq!(of(fine), ["read-job", "scale-job"]);
        assert_eq!(of(coarse), ["read-job-scaling", "scale-job"]);
        assert_eq!(of("namespace \"*\" { policy = \"write\" }").len(), 4);
        assert_eq!(of("agent { policy = \"deny\" }"), [""; 0]);
    }

    #[test]
    fn a_version_that_does_not_look_at_the_index_is_told() {
        let of =
            |version: &str| of_version(&json!({ "config": { "Version": { "Version": version } } }));
        for old in ["1.8.1", "1.7.7+ent", "0.12.9", "1.8.1-dev"] {
            assert!(of(old).is_some_and(|f| f.level == Level::Warning), "{old}");
        }
        for new in ["1.8.2", "1.8.2+ent", "1.10.0-beta.1", "2.0.0", "", "dev"] {
            assert_eq!(of(new), None, "{new}");
        }
    }

    #[test]
    fn the_group_is_read_for_what_stands_in_the_way() {
        let group = |extra: Value| -> TaskGroup {
            let mut group = json!({ "Name": "work", "Tasks": [
                { "Name": "main", "KillTimeout": 600_000_000_000_i64 },
                { "Name": "log", "KillTimeout": 1, "Lifecycle": { "Hook": "poststart" } } ] });
            group.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            serde_json::from_value(group).unwrap()
        };
        let said = |group: &TaskGroup, max: Option<Span>| {
            let found = of_group(group, max);
            let worse = found.iter().filter(|f| f.level == Level::Warning);
            let worse: Vec<String> = worse.map(|f| f.what.clone()).collect();
            (found.iter().find_map(|f| f.fact), worse)
        };
        let (fact, worse) = said(&group(json!({})), None);
        assert_eq!(fact, Some(Fact::Grace(Span::from_mins(10))));
        assert_eq!(worse.len(), 1);
        assert!(worse[0].contains("max_kill_timeout is 30s"), "{worse:?}");
        let (fact, _) = said(&group(json!({})), Some(Span::from_secs(30)));
        assert_eq!(fact, Some(Fact::Grace(Span::from_secs(30))), "the node cuts it");
        let (_, worse) = said(
            &group(
                json!({ "Update": { "MaxParallel": 1 }, "Scaling": { "Min": 1, "Max": 9, "Enabled": true } }),
            ),
            Some(Span::from_hours(1)),
        );
        assert!(worse[0].contains("Autoscaler") && worse[1].contains("deployment"), "{worse:?}");
    }
}
