//! A Swarm service as the engine tells it: the number that it asks for, and what else is in the way
//! of changing that. The rest of it goes back as it came.

use headcount_core::Span;
use serde_json::{Value, json};

/// What Swarm waits after the stop signal if nothing else is said.
const STANDARD_GRACE: Span = Span::from_secs(10);

/// A service.
#[derive(Clone, Debug)]
pub(super) struct Service {
    pub(super) id: String,
    pub(super) name: String,
    /// Counts the changes of it: a change must name the one it was decided from.
    pub(super) version: u64,
    /// How many tasks it asks for.
    pub(super) replicas: u32,
    spec: Value,
    update: Value,
}

impl Service {
    /// The service in an answer of the engine.
    ///
    /// # Errors
    /// It has no number that could be changed, or the answer is not understood.
    pub(super) fn read(mut answer: Value) -> Result<Self, String> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let id = text(&answer["ID"]).ok_or("it has no id")?;
        let name = text(&answer["Spec"]["Name"]).ok_or("it has no name")?;
        let version = answer["Version"]["Index"].as_u64().ok_or("it has no version")?;
        let mode = &answer["Spec"]["Mode"];
        let Some(replicated) = mode.get("Replicated") else {
            return Err(format!(
                "service {name} {}: there is no number to change; deploy it with \
                 `mode: replicated`",
                which(mode)
            ));
        };
        let replicas = match &replicated["Replicas"] {
            Value::Null => 1,
            number => number.as_u64().and_then(|n| n.try_into().ok()).ok_or("its number is odd")?,
        };
        let (spec, update) = (answer["Spec"].take(), answer["UpdateStatus"].take());
        Ok(Self { id, name, version, replicas, spec, update })
    }

    /// What it would be with another number.
    pub(super) fn with_replicas(&self, replicas: u32) -> Value {
        let mut spec = self.spec.clone();
        spec["Mode"]["Replicated"]["Replicas"] = json!(replicas);
        spec
    }

    /// How long a task may take to end before it is killed.
    pub(super) fn grace(&self) -> Span {
        let nanos = self.container()["StopGracePeriod"].as_i64();
        nanos.map_or(STANDARD_GRACE, |nanos| Span::from_millis(nanos / 1_000_000))
    }

    /// Whether a task that ends is replaced.
    pub(super) fn restarts(&self) -> bool {
        self.spec["TaskTemplate"]["RestartPolicy"]["Condition"] != json!("none")
    }

    /// What of an update or its undoing goes on now.
    pub(super) fn update_under_way(&self) -> Option<&'static str> {
        match self.update_state() {
            "updating" => Some("an update"),
            "rollback_started" => Some("the undoing of an update"),
            _ => None,
        }
    }

    /// Why an update stands still, if one does.
    pub(super) fn update_stuck(&self) -> Option<String> {
        let stuck = ["paused", "rollback_paused"].contains(&self.update_state());
        let said = self.update["Message"].as_str().unwrap_or_default();
        stuck.then(|| format!("an update of {} was paused: {said}", self.name))
    }

    /// Whether an update that fails is undone by itself. Any change in between becomes what it is
    /// undone to.
    pub(super) fn undoes_failures(&self) -> bool {
        self.spec["UpdateConfig"]["FailureAction"] == json!("rollback")
    }

    fn update_state(&self) -> &str {
        self.update["State"].as_str().unwrap_or_default()
    }

    fn container(&self) -> &Value {
        &self.spec["TaskTemplate"]["ContainerSpec"]
    }
}

fn which(mode: &Value) -> &'static str {
    if mode.get("Global").is_some() {
        "runs one task on each node (mode global)"
    } else {
        "is a job that ends by itself"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(mode: Value) -> Value {
        json!({
            "ID": "s1", "Version": { "Index": 7 },
            "Spec": {
                "Name": "w", "Mode": mode, "FromTheFuture": [1],
                "TaskTemplate": { "ContainerSpec": { "StopGracePeriod": 90_000_000_000_i64 } },
            },
        })
    }

    #[test]
    fn only_the_number_changes() {
        let service = Service::read(answer(json!({ "Replicated": { "Replicas": 3 } }))).unwrap();
        assert_eq!((service.replicas, service.version), (3, 7));
        assert_eq!(service.grace(), Span::from_secs(90));
        let mut expected = answer(json!({ "Replicated": { "Replicas": 5 } }))["Spec"].take();
        assert_eq!(service.with_replicas(5), expected);
        let unsaid = Service::read(answer(json!({ "Replicated": {} }))).unwrap();
        assert_eq!(unsaid.replicas, 1);
        expected["Mode"]["Replicated"]["Replicas"] = json!(0);
        assert_eq!(unsaid.with_replicas(0), expected);
    }

    #[test]
    fn what_has_no_number_is_told() {
        let global = Service::read(answer(json!({ "Global": {} }))).unwrap_err();
        assert!(global.starts_with("service w runs one task on each node (mode global)"));
        let job = Service::read(answer(json!({ "ReplicatedJob": {} }))).unwrap_err();
        assert!(job.starts_with("service w is a job"), "{job}");
        assert!(Service::read(json!({ "ID": "s1" })).is_err());
        assert!(Service::read(answer(json!({ "Replicated": { "Replicas": -1 } }))).is_err());
    }

    #[test]
    fn an_update_under_way_is_seen() {
        let with = |state: &str| {
            let mut answer = answer(json!({ "Replicated": {} }));
            answer["UpdateStatus"] = json!({ "State": state, "Message": "m" });
            Service::read(answer).unwrap()
        };
        assert_eq!(with("updating").update_under_way(), Some("an update"));
        assert_eq!(with("completed").update_under_way(), None);
        assert_eq!(with("completed").update_stuck(), None);
        assert_eq!(with("paused").update_stuck().unwrap(), "an update of w was paused: m");
    }
}
