//! Whole months, driven through a real store.

use headcount_core::Span;
use headcount_core::schedule::Zone;
use jiff::ToSpan;

use super::*;
use crate::clock;
use crate::store::{Online, Store};

const LOOK: i64 = 5;
const GAP: Span = Span::from_secs(120);

/// The last month that is over, so that its rows are not too old to be kept.
fn last_month() -> (Range, String) {
    let now = jiff::Timestamp::from_millisecond(clock::now().as_millis()).unwrap();
    let first = now.to_zoned(TimeZone::UTC).date().first_of_month();
    let from = first.checked_sub(1.month()).unwrap();
    (days(from, first, &TimeZone::UTC).unwrap(), from.strftime("%Y-%m").to_string())
}

fn online(workers: u32) -> Online {
    Online { workers, memory: UNIT, dry: false }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1000)
}

fn report(store: &Store, range: Range, plan: Plan) -> Vec<Usage> {
    let (hours, first) = (store.usage(range.from, range.to).unwrap(), store.first_usage().unwrap());
    by_month(&hours, &first, &TimeZone::UTC, range, plan)
}

#[test]
fn ten_workers_for_a_tenth_of_a_month_are_one_compute_unit() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 30);
    let (month, name) = last_month();
    let length = month.to - month.from;
    for second in (month.from * 60..month.to * 60).step_by(LOOK as usize) {
        let tenth = second / 60 - month.from < length / 10;
        store.record_usage("g", at(second), online(if tenth { 10 } else { 0 }), GAP);
    }
    let found = report(&store, month, Plan::Proportional);
    let expected = Usage {
        month: name,
        group: "g".into(),
        dry_run: false,
        worker_minutes: length.unsigned_abs(),
        worker_months: 1.0,
        compute_units: 1.0,
        peak_workers: 10,
        observed_minutes: length.unsigned_abs(),
        unobserved_minutes: 0,
        minutes_in_month: length.unsigned_abs(),
    };
    assert_eq!(found, [expected]);
}

/// How many workers there are at a second of the month: a day and a week, bursts of all lengths, and
/// changes at any second.
fn curve(second: i64) -> u32 {
    let hour = second / 3600 % 24;
    let day = if (8..18).contains(&hour) { 6 } else { 1 };
    let weekend = second / 86_400 % 7 >= 5;
    let burst = second % 4177 < (second / 4177 * 131) % 900;
    u32::try_from(if weekend { 0 } else { day } + if burst { 9 } else { 0 }).unwrap()
}

#[test]
fn a_month_with_restarts_gaps_and_a_clock_set_back_is_exact_to_the_minute() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(folder.path(), 30);
    let (month, _) = last_month();
    let start = month.from * 60;
    // Down for 3 h 20 min from the middle of a minute on; blind for a minute and a half.
    let down = 10 * 86_400 + 30..10 * 86_400 + 12_030;
    let blind = 12 * 86_400..12 * 86_400 + 90;
    let mut expected: BTreeMap<i64, u32> = BTreeMap::new();
    for second in (0..(month.to - month.from) * 60).step_by(LOOK as usize) {
        if second % 86_400 == 37_000 {
            // Killed: what the last flush did not write is lost, which here is nothing.
            store.flush();
            store = Store::open_existing(folder.path()).unwrap();
        }
        if down.contains(&second) || blind.contains(&second) {
            continue;
        }
        let workers = curve(second);
        let most = expected.entry(second / 60).or_default();
        *most = workers.max(*most);
        store.record_usage("g", at(start + second), online(workers), GAP);
        if second == 20 * 86_400 {
            // The clock is set back by an hour and ahead again: those minutes were counted already.
            store.record_usage("g", at(start + second - 3600), online(0), GAP);
            store.record_usage("g", at(start + second), online(workers), GAP);
        }
    }
    // The minute without a look between two that are close has the number before it.
    expected.insert(12 * 1440, curve(12 * 86_400 - LOOK));
    let found = report(&store, month, Plan::Proportional);
    let sum: u64 = expected.values().map(|n| u64::from(*n)).sum();
    assert_eq!((found.len(), found[0].worker_minutes), (1, sum));
    assert_eq!(found[0].peak_workers, 15);
    assert_eq!(found[0].unobserved_minutes, 199, "3 h 20 min without the two minutes half seen");
    assert_eq!(found[0].observed_minutes, expected.len() as u64);

    // A part of the month is that part.
    let day = Range { from: month.from + 1440, to: month.from + 2 * 1440 };
    let part: u64 = expected.range(1440..2880).map(|(_, n)| u64::from(*n)).sum();
    let found = report(&store, day, Plan::Proportional);
    assert_eq!((found[0].worker_minutes, found[0].observed_minutes), (part, 1440));
    assert_eq!(found[0].minutes_in_month, (month.to - month.from).unsigned_abs());
}

#[test]
fn memory_counts_as_it_was_at_the_time() {
    let gib = |n: u64| n << 30;
    for (memory, proportional, self_hosted) in
        [(gib(1) / 2, 0.25, 0.5), (gib(1), 0.5, 0.5), (gib(2), 1.0, 1.0), (gib(16), 8.0, 2.0)]
    {
        assert_eq!(Plan::Proportional.units(memory), proportional);
        assert_eq!(Plan::SelfHosted.units(memory), self_hosted);
    }
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), 30);
    let (month, _) = last_month();
    let sized = |memory| Online { memory, ..online(2) };
    for minute in 0..=20 {
        let second = (month.from + minute) * 60;
        store.record_usage("g", at(second), sized(gib(if minute < 10 { 2 } else { 4 })), GAP);
        if minute == 10 {
            store.record_usage("g", at(second + 1), sized(gib(2)), GAP);
        }
    }
    let found = report(&store, month, Plan::Proportional);
    let units = found[0].compute_units * found[0].minutes_in_month as f64;
    assert_eq!((found[0].worker_minutes, units.round()), (42, 20.0 + 44.0));
}

#[test]
fn months_begin_where_people_are_and_dry_runs_are_told() {
    let berlin = Zone::try_from("Europe/Berlin".to_owned()).unwrap().rules().clone();
    let month = |year, month| {
        let first = Date::new(year, month, 1).unwrap();
        days(first, first.last_of_month().tomorrow().unwrap(), &berlin).unwrap()
    };
    let length = |range: Range| range.to - range.from;
    // Summer time begins and ends: an hour less, an hour more.
    assert_eq!(length(month(2026, 3)), 31 * 1440 - 60);
    assert_eq!(length(month(2026, 10)), 31 * 1440 + 60);
    let hour = |group: &str, dry, minute: i64| {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path(), 30);
        store.record_usage(group, at(minute * 60), Online { dry, ..online(1) }, GAP);
        store.usage(minute, minute + 1).unwrap().remove(0)
    };
    let now = minute_of(clock::now());
    let (zone, this) = (berlin.clone(), Month::of(now, &berlin).range);
    let all = Range { from: i64::MIN, to: now };
    let hours: Vec<UsageHour> = [
        hour("g", false, this.from - 1),
        hour(&dry_name("g"), true, this.from - 1),
        hour("g", false, this.from),
    ]
    .into();
    let found = by_month(&hours, &[], &zone, all, Plan::Proportional);
    let told: Vec<_> = found.iter().map(|u| (&u.group[..], u.dry_run, u.worker_minutes)).collect();
    assert_eq!(told, [("g", false, 1), ("g", true, 1), ("g", false, 1)]);
    assert!(found[0].month < found[2].month);
}
