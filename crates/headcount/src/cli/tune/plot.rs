//! Cost against wait as a small picture of characters; both axes are logarithmic.

use headcount_sim::search::{Aim, Answer, Figures, Told};

const WIDTH: usize = 60;
const HEIGHT: usize = 12;
/// Waits far beyond the wanted one would squeeze the rest.
const HIGHEST: f64 = 10.0;
/// Waits below this are as good as none, s.
const LOWEST: f64 = 0.5;

/// The smallest and the largest of some numbers, a little apart.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    fn of(numbers: impl Iterator<Item = f64> + Clone) -> Self {
        let low = numbers.clone().fold(f64::INFINITY, f64::min).max(1e-6);
        let high = numbers.fold(0.0, f64::max).max(low * 1.01);
        Self { low, high }
    }

    /// The cell of so many in which a number lies.
    fn cell(&self, number: f64, cells: usize) -> usize {
        let share = (number.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        ((share * (cells - 1) as f64).round().max(0.0) as usize).min(cells - 1)
    }
}

/// Draws what was tried: `.` each, `o` the frontier, `P` the present rules, `R` the best; the line is
/// the wanted wait.
pub(super) fn draw(answer: &Answer, aim: &Aim) -> String {
    let place = |f: &Figures| (f.p95_wait_s.max(LOWEST), f.worker_hours);
    let all = answer.all.iter().map(|(wait, hours)| (wait.max(LOWEST), *hours));
    let shown: Vec<(f64, f64)> = all.filter(|(w, _)| *w <= HIGHEST * aim.max_wait_s).collect();
    let marks = |told: &[Told], mark: char| -> Vec<((f64, f64), char)> {
        told.iter().filter_map(|t| t.chosen.as_ref()).map(|f| (place(f), mark)).collect()
    };
    let mut points: Vec<((f64, f64), char)> = shown.iter().map(|point| (*point, '.')).collect();
    points.extend(marks(&answer.frontier, 'o'));
    points.extend(marks(std::slice::from_ref(&answer.best), 'R'));
    points.extend(marks(std::slice::from_ref(&answer.present), 'P'));
    let waits = Axis::of(points.iter().map(|((wait, _), _)| *wait).chain([aim.max_wait_s]));
    let costs = Axis::of(points.iter().map(|((_, hours), _)| *hours));
    let mut rows = vec![vec![' '; WIDTH]; HEIGHT];
    let row_of = |wait: f64| HEIGHT - 1 - waits.cell(wait, HEIGHT);
    rows[row_of(aim.max_wait_s)].fill('-');
    for ((wait, hours), mark) in points {
        rows[row_of(wait)][costs.cell(hours, WIDTH)] = mark;
    }
    let label = |i: usize| match i {
        _ if i == row_of(aim.max_wait_s) => format!("{:>8.1} s", aim.max_wait_s),
        0 => format!("{:>8.1} s", waits.high),
        _ if i == HEIGHT - 1 => format!("{:>8.1} s", waits.low),
        _ => " ".repeat(10),
    };
    let line = |(i, row): (usize, &Vec<char>)| {
        format!("{} |{}", label(i), row.iter().collect::<String>()).trim_end().to_string()
    };
    let mut lines: Vec<String> = rows.iter().enumerate().map(line).collect();
    lines.push(format!("{:>10} +{}", "", "-".repeat(WIDTH)));
    let (low, high) = (format!("{:.1}", costs.low), format!("{:.1} worker-hours", costs.high));
    lines.push(format!("{:>12}{low}{high:>1$}", "", WIDTH - low.len()));
    lines.push("p95 wait; . tried, o frontier, R best, P present".into());
    lines.join("\n") + "\n"
}
