//! What was online, by month: minutes, worker-months and compute units.
//!
//! A worker-month is one worker for every minute of a month, and a compute unit 2 GB of one worker's
//! memory for as long: ten workers of 2 GB for a tenth of a month are 1, as Windmill bills them.

use std::collections::BTreeMap;

use headcount_core::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::daemon::dry_name;
use crate::store::{HOUR, UsageHour, minute_of};

/// The memory of one worker that counts as one compute unit, bytes.
pub const UNIT: u64 = 2 << 30;

/// How memory counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// In proportion: 2 GB are one unit.
    Proportional,
    /// As Windmill's self-hosted plans count: small workers (up to 1 GB) half a unit, standard ones
    /// (up to 2 GB) one, all larger ones two.
    SelfHosted,
}

/// What a group used in a month, or in the part of it that was asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// The month, `2026-11`, of the time zone asked for.
    pub month: String,
    /// Which group.
    pub group: String,
    /// Its changes were only pretended.
    pub dry_run: bool,
    /// The sum over the minutes of the most workers that were online at once in each.
    pub worker_minutes: u64,
    /// The same in months of one worker.
    pub worker_months: f64,
    /// The same in compute units for a month.
    pub compute_units: f64,
    /// The most workers in any minute.
    pub peak_workers: u32,
    /// Minutes in which somebody looked.
    pub observed_minutes: u64,
    /// Minutes since the group was first seen in which nobody looked: they count as nothing, whatever
    /// was online.
    pub unobserved_minutes: u64,
    /// The length of the whole month.
    pub minutes_in_month: u64,
}

/// Minutes since the Unix epoch, the last one excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub from: i64,
    /// The one after the last.
    pub to: i64,
}

impl Plan {
    /// The compute units of one worker with this memory in bytes.
    pub fn units(self, memory: u64) -> f64 {
        match self {
            Self::Proportional => memory as f64 / UNIT as f64,
            Self::SelfHosted if memory > UNIT => 2.0,
            Self::SelfHosted if memory > UNIT / 2 => 1.0,
            Self::SelfHosted => 0.5,
        }
    }
}

/// The usage by month and group of `hours`, which are in order, as far as they are in `range`. `first`
/// tells since when each group is known.
pub fn by_month(
    hours: &[UsageHour],
    first: &[UsageHour],
    zone: &TimeZone,
    range: Range,
    plan: Plan,
) -> Vec<Usage> {
    let mut known: BTreeMap<_, i64> = BTreeMap::new();
    for hour in first {
        let seen = (0..HOUR).find(|minute| hour.minutes.get(*minute as usize).is_some());
        let minute = hour.hour * HOUR + seen.unwrap_or(0);
        known.entry(name_of(hour)).and_modify(|m| *m = minute.min(*m)).or_insert(minute);
    }
    let mut found: BTreeMap<(i64, String, bool), Month> = BTreeMap::new();
    for hour in hours.chunk_by(|a, b| (a.hour, name_of(a)) == (b.hour, name_of(b))) {
        let (name, dry) = name_of(&hour[0]);
        let mut month: Option<&mut Month> = None;
        for minute in hour[0].hour * HOUR..(hour[0].hour + 1) * HOUR {
            let most = most_in(hour, minute, plan).filter(|_| range.has(minute));
            let Some((workers, units)) = most else { continue };
            if month.as_ref().is_none_or(|month| !month.range.has(minute)) {
                let new = Month::of(minute, zone);
                let key = (new.range.from, name.clone(), dry);
                month = Some(found.entry(key).or_insert(new));
            }
            if let Some(month) = month.as_mut() {
                month.count(workers, units);
            }
        }
    }
    let usage = found.into_iter().map(|((_, group, dry), month)| {
        let since = known.get(&(group.clone(), dry)).copied().unwrap_or(i64::MIN);
        month.usage(group, dry, since, range)
    });
    usage.collect()
}

/// The workers in a minute, and their units. Rows of other memory or another name for the same group
/// are there if that was changed: the minute of the change counts once, with what was more.
fn most_in(hour: &[UsageHour], minute: i64, plan: Plan) -> Option<(u32, f64)> {
    let within = usize::try_from(minute.rem_euclid(HOUR)).expect("a remainder is 0 to 59");
    let units = |row: &UsageHour| {
        let workers = row.minutes.get(within)?;
        Some((workers, f64::from(workers) * plan.units(row.memory)))
    };
    hour.iter().filter_map(units).max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The minutes from the beginning of `from` to that of `to`.
///
/// # Errors
/// A date beyond the calendar.
pub fn days(from: Date, to: Date, zone: &TimeZone) -> Result<Range, jiff::Error> {
    let minute = |date: Date| {
        let midnight = date.to_zoned(zone.clone())?.timestamp();
        Ok::<_, jiff::Error>(minute_of(Timestamp::from_millis(midnight.as_millisecond())))
    };
    Ok(Range { from: minute(from)?, to: minute(to)? })
}

impl Range {
    fn has(&self, minute: i64) -> bool {
        (self.from..self.to).contains(&minute)
    }
}

/// A month in the making.
struct Month {
    name: String,
    range: Range,
    workers: u64,
    units: f64,
    peak: u32,
    observed: u64,
}

impl Month {
    fn of(minute: i64, zone: &TimeZone) -> Self {
        let at = jiff::Timestamp::from_second(minute.saturating_mul(60)).unwrap_or_default();
        let first = at.to_zoned(zone.clone()).date().first_of_month();
        let next = first.last_of_month().tomorrow().unwrap_or(Date::MAX);
        let range = days(first, next, zone).unwrap_or(Range { from: minute, to: minute + 1 });
        let name = first.strftime("%Y-%m").to_string();
        Self { name, range, workers: 0, units: 0.0, peak: 0, observed: 0 }
    }

    fn count(&mut self, workers: u32, units: f64) {
        self.workers += u64::from(workers);
        self.units += units;
        self.peak = self.peak.max(workers);
        self.observed += 1;
    }

    fn usage(self, group: String, dry_run: bool, since: i64, asked: Range) -> Usage {
        let Self { name: month, range, workers, units, peak, observed } = self;
        let length = u64::try_from(range.to - range.from).unwrap_or(1).max(1);
        let from = range.from.max(asked.from).max(since);
        let passed = u64::try_from(range.to.min(asked.to) - from).unwrap_or(0);
        Usage {
            month,
            group,
            dry_run,
            worker_minutes: workers,
            worker_months: workers as f64 / length as f64,
            compute_units: units / length as f64,
            peak_workers: peak,
            observed_minutes: observed,
            unobserved_minutes: passed.saturating_sub(observed),
            minutes_in_month: length,
        }
    }
}

/// The name of the group, also of one that `--dry-run` remembers apart, and whether it ran dry.
fn name_of(hour: &UsageHour) -> (String, bool) {
    let name = hour.group.as_str();
    let plain = name.strip_suffix(dry_name("").as_str()).unwrap_or(name);
    (plain.to_owned(), hour.dry)
}

#[cfg(test)]
mod tests;
