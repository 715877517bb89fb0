//! `headcount usage`: how long workers were online, by group and month.

use std::process::ExitCode;

use headcount_core::schedule::Zone;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

use crate::cli::kept::Kept;
use crate::cli::out::{self, Cell, DIM, Table, WARNING, cell, plain};
use crate::cli::{Globals, WrongUse};
use crate::clock;
use crate::store::minute_of;
use crate::usage::{Plan, Range, Usage, by_month, days};

/// Arguments of `headcount usage`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this group
    pub group: Option<String>,
    /// Only this month, for example 2026-11
    #[arg(long, value_name = "MONTH", conflicts_with_all = ["since", "until"])]
    pub month: Option<String>,
    /// Only from this day or time on, for example 2026-11-01 or 2026-11-01T12:00
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only before this day or time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Where months and days begin: an IANA time zone
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    pub time_zone: String,
    /// Count memory as Windmill's self-hosted plans do: 0.5 units up to 1 GB, 1 up to 2 GB, 2 above
    #[arg(long)]
    pub self_hosted: bool,
    /// Print CSV
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

impl Args {
    /// Prints it, the oldest month first.
    pub fn run(self, globals: &Globals) -> anyhow::Result<ExitCode> {
        let zone = Zone::try_from(self.time_zone.clone()).map_err(WrongUse)?;
        let range = self.range(zone.rules())?;
        let kept = Kept::open(globals)?;
        let plan = if self.self_hosted { Plan::SelfHosted } else { Plan::Proportional };
        let hours = kept.store.usage(range.from, range.to)?;
        let mut usage = by_month(&hours, &kept.store.first_usage()?, zone.rules(), range, plan);
        if let Some(group) = &self.group {
            usage.retain(|line| line.group == *group);
            if usage.is_empty() {
                kept.pick(Some(group))?;
            }
        }
        if globals.json {
            usage.iter().try_for_each(out::print_json_line)?;
        } else if self.csv {
            out::print(&csv(&usage))?;
        } else if usage.is_empty() {
            out::line("no usage: no worker was looked at in that time")?;
        } else {
            out::print(&table(&usage))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The minutes that are asked for; none that is yet to come.
    fn range(&self, zone: &TimeZone) -> Result<Range, WrongUse> {
        let now = minute_of(clock::now()) + 1;
        if let Some(month) = &self.month {
            let first: Result<Date, _> = format!("{month}-01").parse();
            let range =
                first.and_then(|first| days(first, first.last_of_month().tomorrow()?, zone));
            let Range { from, to } =
                range.map_err(|_| WrongUse(format!("`{month}` is no month; write 2026-11")))?;
            return Ok(Range { from, to: to.min(now) });
        }
        let minute = |text: &Option<String>, otherwise| match text {
            Some(text) => minute(text, zone),
            None => Ok(otherwise),
        };
        let range = Range { from: minute(&self.since, 0)?, to: minute(&self.until, now)?.min(now) };
        if range.from >= range.to {
            return Err(WrongUse("there is nothing between --since and --until".into()));
        }
        Ok(range)
    }
}

/// The minute of a day's beginning or of a time, there or anywhere.
fn minute(text: &str, zone: &TimeZone) -> Result<i64, WrongUse> {
    let there = || text.parse::<DateTime>().and_then(|at| at.to_zoned(zone.clone()));
    let at = text.parse().or_else(|_| there().map(|at| at.timestamp()));
    let at: jiff::Timestamp = at.map_err(|_| {
        WrongUse(format!("`{text}` is no time; write 2026-11-01 or 2026-11-01T12:00"))
    })?;
    Ok(at.as_second().div_euclid(60))
}

fn csv(usage: &[Usage]) -> String {
    let mut text = "month,group,dry_run,worker_minutes,worker_months,compute_units,peak_workers,\
                    observed_minutes,unobserved_minutes,minutes_in_month\n"
        .to_owned();
    for line in usage {
        // A group's name holds no comma.
        text += &format!(
            "{},{},{},{},{},{},{},{},{},{}\n",
            line.month,
            line.group,
            line.dry_run,
            line.worker_minutes,
            line.worker_months,
            line.compute_units,
            line.peak_workers,
            line.observed_minutes,
            line.unobserved_minutes,
            line.minutes_in_month
        );
    }
    text
}

fn table(usage: &[Usage]) -> String {
    let headings = [
        "month",
        "group",
        "worker-minutes",
        "worker-months",
        "compute units",
        "peak",
        "not observed",
    ];
    let mut table = Table::new(&headings);
    usage.iter().for_each(|line| table.row(row(line)));
    table.to_string()
}

fn row(line: &Usage) -> [Cell; 7] {
    let group = if line.dry_run {
        cell(DIM, format!("{} (dry run)", line.group))
    } else {
        plain(&line.group)
    };
    let unseen = match line.unobserved_minutes {
        0 => plain("0 min"),
        minutes => {
            let share = minutes as f64 / (minutes + line.observed_minutes) as f64 * 100.0;
            cell(WARNING, format!("{minutes} min ({share:.1} %)"))
        }
    };
    [
        plain(&line.month),
        group,
        plain(line.worker_minutes),
        plain(format!("{:.3}", line.worker_months)),
        plain(format!("{:.3}", line.compute_units)),
        plain(line.peak_workers),
        unseen,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(month: Option<&str>, since: Option<&str>, until: Option<&str>) -> Args {
        let own = |text: Option<&str>| text.map(str::to_owned);
        Args {
            group: None,
            month: own(month),
            since: own(since),
            until: own(until),
            time_zone: "UTC".into(),
            self_hosted: false,
            csv: false,
        }
    }

    #[test]
    fn months_days_and_times_are_ranges_of_minutes() {
        let berlin = Zone::try_from("Europe/Berlin".to_owned()).unwrap();
        let cases = [
            (args(Some("1970-01"), None, None), TimeZone::UTC, Ok((0, 31 * 1440))),
            (args(Some("1970-02"), None, None), berlin.rules().clone(), Ok((44_580, 84_900))),
            (
                args(None, Some("1970-01-02"), Some("1970-01-03T00:30")),
                TimeZone::UTC,
                Ok((1440, 2910)),
            ),
            (args(None, None, Some("1970-01-02T00:00:00+01:00")), TimeZone::UTC, Ok((0, 1380))),
            (args(Some("2026-13"), None, None), TimeZone::UTC, Err("is no month")),
            (args(None, Some("soon"), None), TimeZone::UTC, Err("is no time")),
            (
                args(None, Some("1970-01-02"), Some("1970-01-01")),
                TimeZone::UTC,
                Err("nothing between"),
            ),
        ];
        for (args, zone, expected) in cases {
            match (args.range(&zone), expected) {
                (Ok(range), Ok((from, to))) => assert_eq!((range.from, range.to), (from, to)),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, expected) => panic!("{args:?}: {found:?} instead of {expected:?}"),
            }
        }
    }
}
