//! All readings of one tick, and their JSON form (one line of `headcount replay`).

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::guard::budget::Allowance;
use crate::reading::{FleetReading, HostReading, QueueReading, Reading, Silence};
use crate::time::Timestamp;

/// Everything that was seen at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// When it was put together.
    pub t: Timestamp,
    /// Demand.
    pub queue: Reading<QueueReading>,
    /// The machine.
    pub host: Reading<HostReading>,
    /// The workers.
    pub fleet: Reading<FleetReading>,
    /// What the group may have of a budget that it shares; absent if there is none.
    pub budget: Option<Allowance>,
}

impl Serialize for Observation {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut line = to.serialize_struct("Observation", 5)?;
        line.serialize_field("t", &self.t)?;
        line.serialize_field("queue", &self.queue)?;
        line.serialize_field("host", &self.host)?;
        line.serialize_field("fleet", &self.fleet)?;
        if let Some(budget) = &self.budget {
            line.serialize_field("budget", budget)?;
        }
        line.end()
    }
}

/// A reading is its value with `taken_at` beside it, or `{"missing": "kind: detail"}`.
impl<T: Serialize> Serialize for Reading<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Known<'a, T> {
            #[serde(flatten)]
            value: &'a T,
            taken_at: Timestamp,
        }
        #[derive(Serialize)]
        struct Missing {
            missing: String,
        }
        match self {
            Self::Known { value, taken_at } => Known { value, taken_at: *taken_at }.serialize(to),
            Self::Missing(missing) => Missing { missing: missing.to_string() }.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Observation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let line = Value::deserialize(from)?;
        let t = line.get("t").ok_or_else(|| D::Error::custom("key `t` is missing"))?;
        let t = Timestamp::deserialize(t)
            .map_err(|e| D::Error::custom(format!("t: {e}; write Unix seconds")))?;
        let fleet = match reading::<FleetReading, _>(&line, "fleet", t)? {
            Reading::Known { value, taken_at } => Reading::known(value.counted(), taken_at),
            missing @ Reading::Missing(_) => missing,
        };
        let budget = match line.get("budget").filter(|part| !part.is_null()) {
            None => None,
            Some(part) => Some(
                Allowance::deserialize(part)
                    .map_err(|e| D::Error::custom(format!("budget: {e}")))?,
            ),
        };
        let (queue, host) = (reading(&line, "queue", t)?, reading(&line, "host", t)?);
        Ok(Self { t, queue, host, fleet, budget })
    }
}

fn reading<T: DeserializeOwned, E: serde::de::Error>(
    line: &Value,
    key: &str,
    t: Timestamp,
) -> Result<Reading<T>, E> {
    let Some(part) = line.get(key).filter(|part| !part.is_null()) else {
        return Ok(Reading::missing(Silence::Absent, ""));
    };
    if let Some(why) = part.get("missing") {
        let text = why.as_str().unwrap_or_default();
        let (kind, detail) = text.split_once(": ").unwrap_or((text, ""));
        return Ok(match Silence::named(kind) {
            Some(kind) => Reading::missing(kind, detail),
            None => Reading::missing(Silence::Unreachable, text),
        });
    }
    let taken_at = match part.get("taken_at") {
        Some(at) => Timestamp::deserialize(at).map_err(|e| E::custom(format!("{key}: {e}")))?,
        None => t,
    };
    let value = T::deserialize(part).map_err(|e| E::custom(format!("{key}: {e}")))?;
    Ok(Reading::known(value, taken_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_as_the_design_writes_it() {
        let line = r#"{"t": 1000, "queue": {"waiting": 3, "active": 1, "oldest_wait_s": 2.5},
            "host": {"cpu_raw": 41.5}, "fleet": {"ready": 1, "starting": 1, "busy": 1},
            "budget": {"allowed": 5, "total": 10}}"#;
        let seen: Observation = serde_json::from_str(line).unwrap();
        let queue = seen.queue.value().unwrap();
        assert_eq!((queue.waiting, queue.active), (3, 1));
        assert_eq!(queue.oldest_wait, Some(crate::Span::from_millis(2500)));
        assert_eq!(seen.fleet.value().unwrap().capacity(), 2);
        assert_eq!(seen.budget, Some(Allowance { allowed: 5, total: 10 }));
        let again: Observation =
            serde_json::from_str(&serde_json::to_string(&seen).unwrap()).unwrap();
        assert_eq!(again, seen);
    }

    #[test]
    fn a_list_of_workers_is_counted() {
        let line = r#"{"t": 1, "fleet": {"workers": [{"id": "a", "state": "ready", "busy": true},
            {"id": "b", "state": "starting"}, {"id": "c", "state": "draining"}]}}"#;
        let seen: Observation = serde_json::from_str(line).unwrap();
        let fleet = seen.fleet.value().unwrap();
        assert_eq!((fleet.ready, fleet.starting, fleet.draining), (1, 1, 1));
        assert_eq!(fleet.busy, Some(2));
    }

    #[test]
    fn absent_and_missing_parts_are_missing_readings() {
        let line = r#"{"t": 1, "queue": {"missing": "timeout: 2 s"}, "host": {"missing": "odd"}}"#;
        let seen: Observation = serde_json::from_str(line).unwrap();
        assert_eq!(seen.queue, Reading::missing(Silence::Timeout, "2 s"));
        assert_eq!(seen.host, Reading::missing(Silence::Unreachable, "odd"));
        assert_eq!(seen.fleet, Reading::missing(Silence::Absent, ""));
    }

    #[test]
    fn nonsense_is_an_error_never_a_number() {
        let read = |line| serde_json::from_str::<Observation>(line);
        let negative = read(r#"{"t": 1, "queue": {"waiting": -1, "active": 0}}"#).unwrap_err();
        assert!(negative.to_string().starts_with("queue: invalid value"), "{negative}");
        assert!(read(r#"{"queue": {}}"#).is_err());
    }
}
