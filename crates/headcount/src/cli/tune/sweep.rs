//! One parameter at several values, all else as it is.

use std::process::ExitCode;

use headcount_core::Rules;
use headcount_sim::benchmark::in_parallel;
use headcount_sim::search::parameters::Parameter;
use headcount_sim::search::space::Space;
use headcount_sim::search::{Figures, Question, try_out};
use serde::Serialize;

use super::{table, unknown};
use crate::cli::WrongUse;
use crate::cli::out::{self, Table};

/// The most values of one sweep.
const MOST_VALUES: usize = 100;

/// What is asked.
#[derive(Debug)]
pub(super) struct Sweep {
    parameter: Parameter,
    values: Vec<f64>,
}

#[derive(Serialize)]
struct Told {
    key: &'static str,
    values: Vec<Line>,
}

/// What a value did.
#[derive(Serialize)]
struct Line {
    value: String,
    /// It is the present one.
    present: bool,
    #[serde(flatten)]
    figures: Option<Figures>,
}

/// Reads `cooldown=30s,60s`.
///
/// # Errors
/// There is no such parameter, or it has no such values.
pub(super) fn parse(text: &str, all: &[Parameter]) -> Result<Sweep, String> {
    let wrong = |what: String| format!("--sweep {what}");
    let (name, values) = text
        .split_once('=')
        .ok_or_else(|| wrong(format!("{text}: write a key and values: cooldown=30s,60s")))?;
    let parameter = all.iter().find(|parameter| parameter.is_called(name));
    let parameter = *parameter.ok_or_else(|| wrong(unknown(name, all)))?;
    let values: Vec<f64> = values
        .split(',')
        .map(|value| parameter.parse(value.trim()))
        .collect::<Result<_, _>>()
        .map_err(wrong)?;
    if values.len() > MOST_VALUES {
        return Err(wrong(format!("{name}: are more than {MOST_VALUES} values")));
    }
    Ok(Sweep { parameter, values })
}

/// Runs the whole trace with each value and tells how it went.
///
/// # Errors
/// A value makes no sense with the other rules, or nothing can be printed.
pub(super) fn run(
    question: &Question<'_>,
    sweeps: &[Sweep],
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut told = Vec::new();
    for Sweep { parameter, values } in sweeps {
        let base = serde_json::to_value(question.rules)?;
        let present = parameter.read(&base);
        let space = Space::new(question.rules, vec![*parameter]);
        let with = |value: &f64| {
            let (name, shown) = (parameter.name(), parameter.show(*value));
            let wrong =
                |why| WrongUse(format!("--sweep {name}={shown} makes no sense here: {why}"));
            space.rules(&vec![Some(*value)]).map_err(wrong)
        };
        let rules: Vec<Rules> = values.iter().map(with).collect::<Result<_, _>>()?;
        let figures = in_parallel(question.threads, &rules, |rules| {
            try_out(question, rules, question.trace).ok()
        });
        let line = |(value, figures): (&f64, Option<Figures>)| Line {
            value: parameter.show(*value),
            present: present == Some(*value),
            figures,
        };
        let values = values.iter().zip(figures).map(line).collect();
        told.push(Told { key: parameter.key, values });
    }
    if json {
        out::print_json(&told)?;
        return Ok(ExitCode::SUCCESS);
    }
    out::line(table::jobs(question.trace))?;
    told.iter().try_for_each(print)?;
    Ok(ExitCode::SUCCESS)
}

fn print(told: &Told) -> std::io::Result<()> {
    let mut table = Table::new(&[
        told.key,
        "p95 wait",
        "worker-hours",
        "changes/h",
        "reversals/h",
        "kills",
        "",
    ]);
    for line in &told.values {
        let mut cells = vec![out::plain(&line.value)];
        cells.extend(table::figures(line.figures.as_ref()));
        cells.push(out::cell(out::DIM, if line.present { "as it is" } else { "" }));
        table.row(cells);
    }
    out::print(&format!("\n{table}"))
}
