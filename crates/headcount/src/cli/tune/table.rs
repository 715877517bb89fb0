//! The answer in words, tables and a plot.

use std::io;

use headcount_core::counted;
use headcount_sim::search::space::Change;
use headcount_sim::search::split::Parts;
use headcount_sim::search::{Answer, Figures, Keep, Question, Told};
use headcount_sim::{Trace, in_world};

use super::{plot, yaml};
use crate::cli::jobs::Given;
use crate::cli::out::{self, Cell, Table};

/// The headings of [`figures`].
const HEADINGS: [&str; 5] = ["p95 wait", "worker-hours", "changes/h", "reversals/h", "kills"];
/// And of the part that was not chosen on.
const CHECKED: [&str; 2] = ["p95 checked", "hours checked"];

/// Prints all of it.
pub(super) fn print(
    question: &Question<'_>,
    parts: &Parts,
    given: &Given,
    answer: &Answer,
) -> io::Result<()> {
    if let Some(past) = &given.past {
        out::line(past)?;
    }
    let policy = question.rules.policy.name();
    out::line(format!(
        "{}; {policy}, to keep a p95 wait of {} at the lowest cost\n{} runs on two thirds of it; {} \
         was kept to check the choice\n",
        jobs(question.trace),
        wait(question.aim.max_wait_s),
        answer.runs,
        parts.how,
    ))?;
    out::print(&frontier(answer).to_string())?;
    out::print(&format!("\n{}\n", plot::draw(answer, &question.aim)))?;
    verdict(question, parts, answer)
}

/// The present rules, the best, and the frontier.
fn frontier(answer: &Answer) -> Table {
    let mut headings = vec![""];
    headings.extend(HEADINGS);
    headings.extend(CHECKED);
    headings.push("differs in");
    let mut table = Table::new(&headings);
    table.row(row("present", &answer.present));
    let found = if answer.keep.is_none() { "recommended" } else { "best found" };
    if answer.best != answer.present {
        table.row(row(found, &answer.best));
    }
    let others = answer.frontier.iter().filter(|told| told.changes != answer.best.changes);
    others.for_each(|told| table.row(row("frontier", told)));
    table
}

fn row(name: &str, told: &Told) -> Vec<Cell> {
    let mut cells = vec![out::plain(name)];
    cells.extend(figures(told.chosen.as_ref()));
    cells.extend(figures(told.checked.as_ref()).into_iter().take(2).zip(CHECKED).map(
        |((style, text), heading)| (style, format!("{:>1$}", text.trim_start(), heading.len())),
    ));
    cells.push(out::cell(out::DIM, differences(&told.changes)));
    cells
}

fn differences(changes: &[Change]) -> String {
    let say = |change: &Change| {
        let name = change.key.rsplit('.').next().unwrap_or(change.key);
        format!("{name} {}", change.to)
    };
    changes.iter().map(say).collect::<Vec<_>>().join(", ")
}

/// The cells below [`HEADINGS`].
pub(super) fn figures(figures: Option<&Figures>) -> Vec<Cell> {
    let Some(f) = figures else {
        let mut cells = vec![out::cell(out::PROBLEM, "never")];
        cells.resize(HEADINGS.len(), out::plain(""));
        return cells;
    };
    let texts = [
        format!("{:.1} s", f.p95_wait_s),
        hours(f.worker_hours),
        format!("{:.1}", f.changes_per_hour),
        format!("{:.1}", f.reversals_per_hour),
        f.kills.to_string(),
    ];
    let right = |(text, heading): (String, &str)| out::plain(format!("{text:>0$}", heading.len()));
    texts.into_iter().zip(HEADINGS).map(right).collect()
}

/// What to do, and what it would have brought.
fn verdict(question: &Question<'_>, parts: &Parts, answer: &Answer) -> io::Result<()> {
    let Answer { present, best, .. } = answer;
    match answer.keep {
        Some(Keep::NothingBetter) => {
            out::line("keep the present rules: none of the others is better")?;
        }
        Some(Keep::FitsOnlyWhatItWasChosenOn) => {
            out::line(format!(
                "keep the present rules: what did best where it was chosen fits only that; on {}: {}",
                parts.how,
                compare(best.checked, present.checked)
            ))?;
        }
        None => {
            out::line(format!(
                "recommended, compared with the present rules on all jobs: {}",
                compare(best.whole, present.whole)
            ))?;
            out::line(format!(
                "where it was not chosen ({}): {}",
                parts.how,
                compare(best.checked, present.checked)
            ))?;
            for Change { key, to, more, from } in &best.changes {
                let from = from.as_deref().unwrap_or("not set");
                out::line(format!("  {key}: {from} -> {to} (higher: {more})"))?;
            }
            let rules = in_world(&best.rules, question.world, question.trace);
            out::print(&format!("\n{}", yaml::styled(&rules, &best.changes)))?;
        }
    }
    let last = if answer.keep.is_none() { best } else { present };
    match missed(question, answer, last) {
        Some(what) => out::line(format!("\n{}", out::styled(out::WARNING, what))),
        None => Ok(()),
    }
}

/// That the wanted wait is not kept, and what keeping it would take.
fn missed(question: &Question<'_>, answer: &Answer, by: &Told) -> Option<String> {
    let wanted = question.aim.max_wait_s;
    let kept = |told: &&Told| told.whole.is_some_and(|f| f.p95_wait_s <= wanted);
    if kept(&by) {
        return None;
    }
    let cheapest = answer.frontier.iter().filter(kept).filter_map(|told| told.whole);
    let cheapest = cheapest.map(|f| f.worker_hours).min_by(f64::total_cmp);
    let what = match cheapest {
        Some(least) => format!(
            "on all jobs another one of the frontier keeps it, at {} worker-hours; to miss it by a \
             factor f counts as f² times the cost",
            hours(least)
        ),
        None => {
            let start_up = question.world.start_up;
            let hint = match question.rules.policy.name() {
                _ if start_up.as_secs_f64() >= wanted => {
                    format!("a worker takes {start_up:#} to start, so enough must run beforehand")
                }
                "slo" => "let more parameters vary, workers.max among them".into(),
                _ => {
                    "let more parameters vary, workers.max among them, or try the policy slo".into()
                }
            };
            format!("of the frontier none does; {hint}")
        }
    };
    Some(format!("a p95 wait of {} is not kept: {what}", wait(wanted)))
}

/// What one did, against another.
fn compare(new: Option<Figures>, old: Option<Figures>) -> String {
    let (Some(new), Some(old)) = (new, old) else {
        let what =
            |f: Option<Figures>| if f.is_some() { "ends" } else { "leaves jobs waiting for ever" };
        return format!("it {}, the present one {}", what(new), what(old));
    };
    let percent = 100.0 * (new.worker_hours / old.worker_hours - 1.0);
    let kills = match (new.kills, old.kills) {
        (0, 0) => String::new(),
        (new, old) => format!(", {new} killed jobs instead of {old}"),
    };
    format!(
        "{} worker-hours instead of {} ({percent:+.0} %), p95 wait {:.1} s instead of {:.1} s, \
         {:.1} changes/h instead of {:.1}{kills}",
        hours(new.worker_hours),
        hours(old.worker_hours),
        new.p95_wait_s,
        old.p95_wait_s,
        new.changes_per_hour,
        old.changes_per_hour,
    )
}

/// How much there was to do.
pub(super) fn jobs(trace: &Trace) -> String {
    let last = trace.jobs.last().map(|job| job.at).unwrap_or_default();
    let (jobs, work) = (trace.jobs.len(), hours(trace.work().as_hours()));
    let jobs = counted(jobs, "job");
    format!("{jobs} in {} h, {work} hours of work", hours(last.as_hours()))
}

/// A number of hours, for people.
pub(super) fn hours(hours: f64) -> String {
    if hours < 10.0 { format!("{hours:.2}") } else { format!("{hours:.1}") }
}

fn wait(seconds: f64) -> String {
    format!("{} s", (seconds * 10.0).round() / 10.0)
}
