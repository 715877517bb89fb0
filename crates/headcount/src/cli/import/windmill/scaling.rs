//! What a group's `autoscaling` means, checked. Names, defaults and limits: Windmill's settings page
//! and its documentation.

use std::ops::RangeInclusive;

use headcount_core::rules::MOST_WORKERS;
use serde_json::{Map, Value};

use super::rows::GROUP_KEYS;

/// A cooldown of more than a week is a mistake.
const WEEK: u64 = 7 * 86_400;
/// More waiting jobs than this are a mistake.
const MOST_JOBS: u64 = 1_000_000_000;

/// A group's rules.
#[derive(Debug, PartialEq)]
pub(super) struct Scaling {
    /// `None`: nothing is said of autoscaling.
    pub(super) enabled: Option<bool>,
    pub(super) min: u32,
    pub(super) max: u32,
    /// The numbers of the policy, in Windmill's order.
    pub(super) numbers: Vec<Number>,
    pub(super) custom_tags: Vec<String>,
    /// The tags of the group, for the reader.
    pub(super) worker_tags: Vec<String>,
    pub(super) integration: Integration,
    /// Fewer live workers than this are worth an alert.
    pub(super) least_alive: Option<u32>,
    /// What could not be taken over.
    pub(super) notes: Vec<String>,
}

/// A parameter of the policy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) key: &'static str,
    pub(super) value: u64,
    /// Where the value comes from, if it is not given.
    pub(super) default: Option<&'static str>,
}

/// Who carries changes out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Integration {
    DryRun,
    Script {
        path: String,
        tag: Option<String>,
    },
    Kubernetes,
    /// One that Headcount does not know by this name.
    Other(String),
}

/// Reads an object, remembers what was wrong with it and which keys were asked for.
struct Reader<'a> {
    map: &'a Map<String, Value>,
    /// Where it is, with a dot at the end.
    place: &'static str,
    known: Vec<&'static str>,
    faults: Vec<String>,
}

impl Scaling {
    /// The rules in a group's configuration. Where its scaling is off, what makes no sense is a note.
    ///
    /// # Errors
    /// Everything that makes no sense, with its key.
    pub(super) fn of(config: &Map<String, Value>) -> Result<Self, Vec<String>> {
        let mut group = Reader::new(config, "");
        let nothing = Map::new();
        let told = group.object("autoscaling");
        let worker_tags = group.texts("worker_tags");
        let alive = group.whole("min_alive_workers_alert_threshold", 0..=u64::from(MOST_WORKERS));
        group.known.extend(GROUP_KEYS);
        let mut notes = group.unknown();
        let mut reader = Reader::new(told.unwrap_or(&nothing), "autoscaling.");
        let enabled = told.map(|_| reader.flag("enabled"));
        let (min, max) = reader.bounds();
        let numbers = reader.numbers(min, max);
        let custom_tags = reader.texts("custom_tags");
        let integration = match reader.object("integration") {
            Some(told) => {
                let mut inner = Reader::new(told, "autoscaling.integration.");
                let integration = inner.integration(&mut notes);
                notes.extend(inner.unknown());
                reader.faults.append(&mut inner.faults);
                integration
            }
            None => Integration::DryRun,
        };
        notes.extend(reader.unknown());
        group.faults.append(&mut reader.faults);
        if enabled == Some(true) && !group.faults.is_empty() {
            return Err(group.faults);
        }
        // What scales nothing keeps nobody from importing the rest.
        notes.extend(group.faults.into_iter().map(|fault| format!("{fault}: left out")));
        let bound = |n: u64| u32::try_from(n).unwrap_or(MOST_WORKERS);
        let (min, max) = (bound(min), bound(max));
        let least_alive = alive.filter(|alive| *alive > 0).map(bound);
        Ok(Self {
            enabled,
            min,
            max,
            numbers,
            custom_tags,
            worker_tags,
            integration,
            least_alive,
            notes,
        })
    }
}

impl<'a> Reader<'a> {
    const fn new(map: &'a Map<String, Value>, place: &'static str) -> Self {
        Self { map, place, known: Vec::new(), faults: Vec::new() }
    }

    fn fault(&mut self, key: &str, what: &str) {
        self.faults.push(format!("{}{key}: {what}", self.place));
    }

    /// The value of a key; null and the empty text, which an emptied input leaves, are none.
    fn get(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.map.get(key).filter(|value| !value.is_null() && *value != "")
    }

    /// Keys that nobody asked for.
    fn unknown(&self) -> Vec<String> {
        let unknown = self.map.keys().filter(|key| !self.known.contains(&key.as_str()));
        unknown
            .map(|key| {
                format!("{}{} is not known here, and left out", self.place, key.escape_debug())
            })
            .collect()
    }

    fn object(&mut self, key: &'static str) -> Option<&'a Map<String, Value>> {
        match self.get(key)? {
            Value::Object(map) => Some(map),
            _ => {
                self.fault(key, "must be an object");
                None
            }
        }
    }

    fn flag(&mut self, key: &'static str) -> bool {
        match self.get(key) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.fault(key, "must be true or false");
                false
            }
        }
    }

    fn text(&mut self, key: &'static str) -> Option<String> {
        match self.get(key)? {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.fault(key, "must be a text");
                None
            }
        }
    }

    fn texts(&mut self, key: &'static str) -> Vec<String> {
        let texts = match self.get(key) {
            None => return Vec::new(),
            Some(Value::Array(values)) => {
                let texts =
                    values.iter().map(|value| value.as_str().filter(|text| !text.is_empty()));
                texts.map(|text| text.map(str::to_owned)).collect::<Option<Vec<_>>>()
            }
            Some(_) => None,
        };
        texts.unwrap_or_else(|| {
            self.fault(key, "must be a list of texts");
            Vec::new()
        })
    }

    fn whole(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.get(key)?;
        // JavaScript may have written 3 as 3.0.
        let whole =
            |x: f64| (x >= 0.0 && x <= MOST_JOBS as f64 && x.fract() == 0.0).then_some(x as u64);
        let number = value.as_u64().or_else(|| whole(value.as_f64()?));
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let shown: String = value.to_string().chars().take(40).collect();
            let what =
                format!("{shown} is no whole number from {} to {}", range.start(), range.end());
            self.fault(key, &what);
        }
        number
    }

    /// Windmill offers 3 to 10 at first.
    fn bounds(&mut self) -> (u64, u64) {
        let most = u64::from(MOST_WORKERS);
        let min = self.whole("min_workers", 0..=most);
        let max = self.whole("max_workers", 1..=most);
        match (min, max) {
            (Some(min), Some(max)) if min > max => {
                self.fault("min_workers", &format!("{min} is above max_workers {max}"));
                (max, max)
            }
            (Some(min), None) => (min, min.max(10)),
            (None, Some(max)) => (max.min(3), max),
            (min, max) => (min.unwrap_or(3), max.unwrap_or(10)),
        }
    }

    fn numbers(&mut self, min: u64, max: u64) -> Vec<Number> {
        let usual = "Windmill's default";
        let fifth = ((max - min) / 5).max(1);
        let table = [
            ("cooldown_seconds", 0..=WEEK, 300, usual),
            ("full_scale_cooldown_seconds", 0..=WEEK, 1500, usual),
            ("inc_scale_num_jobs_waiting", 1..=MOST_JOBS, 1, usual),
            ("full_scale_jobs_waiting", 1..=MOST_JOBS, max, "Windmill's default: max_workers"),
            ("dec_scale_occupancy_rate", 0..=100, 25, usual),
            ("inc_scale_occupancy_rate", 0..=100, 75, usual),
            (
                "inc_num_workers",
                1..=u64::from(MOST_WORKERS),
                fifth,
                "Windmill's default: (max - min) / 5",
            ),
        ];
        let mut numbers = Vec::new();
        for (key, range, default, from) in table {
            let mut given = self.whole(key, range.clone());
            if key == "inc_scale_num_jobs_waiting" {
                given = given.or_else(|| self.whole("inc_scale_jobs_waiting", range));
            }
            let default_from = given.is_none().then_some(from);
            numbers.push(Number { key, value: given.unwrap_or(default), default: default_from });
        }
        if let [.., low, high, _] = numbers.as_slice()
            && low.value > high.value
        {
            let what = format!("{} is above inc_scale_occupancy_rate {}", low.value, high.value);
            self.fault("dec_scale_occupancy_rate", &what);
        }
        numbers
    }

    fn integration(&mut self, notes: &mut Vec<String>) -> Integration {
        let kind = self.text("type").unwrap_or_else(|| "dryrun".into());
        let (path, tag) = (self.text("path"), self.tag());
        match kind.to_ascii_lowercase().replace(['_', ' ', '-'], "").as_str() {
            "dryrun" => Integration::DryRun,
            "kubernetes" => Integration::Kubernetes,
            "script" => {
                let path = path.unwrap_or_default();
                if !crate::targets::windmill_script::is_path(&path) {
                    self.fault("path", "must be the path of a script, as f/ops/scale");
                }
                Integration::Script { path, tag }
            }
            _ => {
                let shown: String = kind.escape_debug().take(40).collect();
                notes.push(format!("integration `{shown}` is not known here: a dry run instead"));
                Integration::Other(shown)
            }
        }
    }

    /// Windmill's page wrote `tags` for `tag` before 1.688.
    fn tag(&mut self) -> Option<String> {
        let tag = self.text("tag");
        let old = match self.get("tags") {
            Some(Value::Array(tags)) if tags.len() > 1 => {
                self.fault("tags", "has several tags; a script runs with one, `tag`");
                None
            }
            Some(Value::Array(_)) => self.texts("tags").into_iter().next(),
            Some(_) => self.text("tags"),
            None => None,
        };
        tag.or(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(scaling: Value) -> Result<Scaling, Vec<String>> {
        let Value::Object(config) = json!({ "autoscaling": scaling }) else { unreachable!() };
        Scaling::of(&config)
    }

    fn values(scaling: &Scaling) -> Vec<u64> {
        scaling.numbers.iter().map(|number| number.value).collect()
    }

    #[test]
    fn windmills_defaults_fill_what_is_not_given() {
        let usual = of(json!({"enabled": true})).unwrap();
        assert_eq!((usual.enabled, usual.min, usual.max), (Some(true), 3, 10));
        assert_eq!(values(&usual), [300, 1500, 1, 10, 25, 75, 1]);
        assert!(usual.numbers.iter().all(|number| number.default.is_some()));
        assert_eq!(usual.integration, Integration::DryRun);
        let wide = of(json!({"min_workers": 0, "max_workers": 42, "enabled": null})).unwrap();
        assert_eq!((wide.enabled, wide.min, wide.max), (Some(false), 0, 42));
        assert_eq!(values(&wide), [300, 1500, 1, 42, 25, 75, 8]);
        assert_eq!(of(Value::Null).unwrap().enabled, None);
        let narrow = of(json!({"max_workers": 2})).unwrap();
        assert_eq!((narrow.min, narrow.max), (2, 2));
    }

    #[test]
    fn every_field_is_taken() {
        let scaling = of(json!({
            "enabled": true, "min_workers": 2, "max_workers": 20.0, "cooldown_seconds": 60,
            "full_scale_cooldown_seconds": 120, "inc_scale_jobs_waiting": 3,
            "full_scale_jobs_waiting": 50, "dec_scale_occupancy_rate": 10,
            "inc_scale_occupancy_rate": 90, "inc_num_workers": 4, "custom_tags": ["a", "b"],
            "integration": {"type": "script", "path": "f/ops/scale", "tags": "ops"},
        }))
        .unwrap();
        assert_eq!((scaling.min, scaling.max), (2, 20));
        assert_eq!(values(&scaling), [60, 120, 3, 50, 10, 90, 4]);
        assert!(scaling.numbers.iter().all(|number| number.default.is_none()));
        assert_eq!(scaling.custom_tags, ["a", "b"]);
        let script = Integration::Script { path: "f/ops/scale".into(), tag: Some("ops".into()) };
        assert_eq!(scaling.integration, script);
        assert_eq!(scaling.notes, [""; 0]);
    }

    #[test]
    fn both_spellings_of_the_tag_are_read() {
        let tag = |more: Value| {
            let mut integration = json!({"type": "script", "path": "u/a/b"});
            integration.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            match of(json!({ "integration": integration })).unwrap().integration {
                Integration::Script { tag, .. } => tag,
                other => panic!("{other:?}"),
            }
        };
        for more in [
            json!({"tag": "x"}),
            json!({"tags": "x"}),
            json!({"tags": ["x"]}),
            json!({"tag": "x", "tags": "y"}),
            json!({"tag": "", "tags": "x"}),
        ] {
            assert_eq!(tag(more.clone()).as_deref(), Some("x"), "{more}");
        }
        for more in [json!({}), json!({"tag": null}), json!({"tags": []})] {
            assert_eq!(tag(more.clone()), None, "{more}");
        }
    }

    #[test]
    fn what_is_not_known_is_named() {
        let scaling =
            of(json!({"new_rule": 3, "integration": {"type": "ecs", "cluster": "x"}})).unwrap();
        assert_eq!(scaling.integration, Integration::Other("ecs".into()));
        assert_eq!(
            scaling.notes,
            [
                "integration `ecs` is not known here: a dry run instead",
                "autoscaling.integration.cluster is not known here, and left out",
                "autoscaling.new_rule is not known here, and left out",
            ]
        );
    }

    #[test]
    fn nonsense_is_refused_with_its_key() {
        let table = [
            (json!(3), "autoscaling: must be an object"),
            (json!({"enabled": "yes"}), "autoscaling.enabled: must be true or false"),
            (
                json!({"min_workers": 5, "max_workers": 3}),
                "autoscaling.min_workers: 5 is above max_workers 3",
            ),
            (
                json!({"min_workers": -1}),
                "autoscaling.min_workers: -1 is no whole number from 0 to 10000",
            ),
            (
                json!({"max_workers": 0}),
                "autoscaling.max_workers: 0 is no whole number from 1 to 10000",
            ),
            (
                json!({"max_workers": 1e99}),
                "autoscaling.max_workers: 1e+99 is no whole number from 1 to 10000",
            ),
            (
                json!({"max_workers": "10"}),
                "autoscaling.max_workers: \"10\" is no whole number from 1 to 10000",
            ),
            (
                json!({"cooldown_seconds": 9_999_999}),
                "autoscaling.cooldown_seconds: 9999999 is no whole number from 0 to 604800",
            ),
            (
                json!({"full_scale_jobs_waiting": 0}),
                "autoscaling.full_scale_jobs_waiting: 0 is no whole number from 1 to 1000000000",
            ),
            (
                json!({"inc_num_workers": 0.5}),
                "autoscaling.inc_num_workers: 0.5 is no whole number from 1 to 10000",
            ),
            (
                json!({"inc_scale_occupancy_rate": 101}),
                "autoscaling.inc_scale_occupancy_rate: 101 is no whole number from 0 to 100",
            ),
            (
                json!({"dec_scale_occupancy_rate": 80}),
                "autoscaling.dec_scale_occupancy_rate: 80 is above inc_scale_occupancy_rate 75",
            ),
            (json!({"custom_tags": "a"}), "autoscaling.custom_tags: must be a list of texts"),
            (json!({"custom_tags": ["a", 3]}), "autoscaling.custom_tags: must be a list of texts"),
            (json!({"integration": "script"}), "autoscaling.integration: must be an object"),
            (
                json!({"integration": {"type": "script"}}),
                "autoscaling.integration.path: must be the path of a script, as f/ops/scale",
            ),
            (
                json!({"integration": {"type": "script", "path": "f/a/b", "tags": ["a", "b"]}}),
                "autoscaling.integration.tags: has several tags; a script runs with one, `tag`",
            ),
        ];
        for (mut scaling, wanted) in table {
            let off = of(scaling.clone()).unwrap();
            assert_eq!(off.notes, [format!("{wanted}: left out")], "it scales nothing: {scaling}");
            let map = scaling.as_object_mut().filter(|map| !map.contains_key("enabled"));
            if let Some(map) = map {
                map.insert("enabled".into(), true.into());
                assert_eq!(of(scaling.clone()).unwrap_err(), [wanted], "{scaling}");
            }
        }
        let many = json!({"enabled": true, "min_workers": -1, "inc_num_workers": "x",
            "integration": 1});
        let many = of(many);
        assert_eq!(many.unwrap_err().len(), 3);
    }
}
