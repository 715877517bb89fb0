//! What the demo prints: a live view on a terminal, else a line for each change and a summary, or
//! every decision as JSON.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, Write};

use headcount_core::{Decision, Kind, Observation, Outcome, counted};
use serde::Serialize;
use tokio::time::Instant;

use super::Length;
use crate::group::Tick;

/// The most columns of a chart.
const COLUMNS: usize = 50;
/// So many changes stay in view.
const CHANGES: usize = 8;

const RESET: &str = "\x1b[0m";
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const BLUE: &str = "\x1b[34m";
const CYAN: &str = "\x1b[36m";

/// How it is shown, and what was.
pub(super) struct View {
    form: Form,
    time: Length,
    max: u32,
    start: Instant,
    charts: [Chart; 4],
    changes: VecDeque<String>,
    /// The number the queue said last.
    finished: u64,
    scale_outs: u32,
    scale_ins: u32,
    failures: u32,
    /// Lines of the live view on the screen.
    drawn: usize,
    /// Tells how large the screen is now.
    screen: fn() -> Screen,
}

/// How much a terminal shows.
#[derive(Clone, Copy, Debug)]
struct Screen {
    columns: usize,
    rows: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Lines,
    Live,
}

/// A decision with the group it is for.
#[derive(Serialize)]
struct JsonLine<'a> {
    group: &'a str,
    #[serde(flatten)]
    decision: &'a Decision,
}

/// The last values of something.
#[derive(Debug, Default)]
struct Chart(VecDeque<f64>);

impl View {
    pub(super) fn new(json: bool, live: bool, time: Length, max: u32) -> Self {
        let form = match (json, live) {
            (true, _) => Form::Json,
            (false, true) => Form::Live,
            (false, false) => Form::Lines,
        };
        Self {
            form,
            time,
            max,
            start: Instant::now(),
            charts: Default::default(),
            changes: VecDeque::new(),
            finished: 0,
            scale_outs: 0,
            scale_ins: 0,
            failures: 0,
            drawn: 0,
            screen,
        }
    }

    pub(super) fn begin(&self, out: &mut impl Write) -> io::Result<()> {
        if self.form == Form::Lines {
            writeln!(out, "{}", self.headline())?;
        }
        out.flush()
    }

    /// Takes in one tick and shows it.
    pub(super) fn show(&mut self, out: &mut impl Write, tick: &Tick) -> io::Result<()> {
        let (Some(seen), Some(decision)) = (&tick.seen, &tick.decision) else { return Ok(()) };
        let change = self.count(decision, tick.outcome.as_ref());
        self.remember(seen);
        match self.form {
            Form::Json => {
                let line = JsonLine { group: &tick.group, decision };
                writeln!(out, "{}", serde_json::to_string(&line)?)?;
            }
            Form::Lines => {
                if let Some(change) = change {
                    writeln!(out, "{change}")?;
                }
            }
            Form::Live => {
                self.changes.extend(change);
                while self.changes.len() > CHANGES {
                    self.changes.pop_front();
                }
                self.draw(out, seen, decision, tick.cpu_ema)?;
            }
        }
        out.flush()
    }

    pub(super) fn finish(&self, out: &mut impl Write) -> io::Result<()> {
        if self.form == Form::Json {
            return Ok(());
        }
        let failures = match self.failures {
            0 => String::new(),
            n => format!(" ({} failed)", counted(n, "change")),
        };
        writeln!(
            out,
            "{:.0} s: {}, {}{failures}, {} done; nothing is left running",
            self.start.elapsed().as_secs_f64(),
            counted(self.scale_outs, "scale-out"),
            counted(self.scale_ins, "scale-in"),
            counted(self.finished, "job"),
        )?;
        out.flush()
    }

    fn headline(&self) -> String {
        let until = if self.time.span.is_zero() {
            "until Ctrl-C".to_owned()
        } else {
            format!("for {}, or until Ctrl-C", self.time.given)
        };
        format!(
            "headcount demo: bursts of light jobs, 1 to {} real workers, {until}\n\
             cpu_aware with a poll of 1 s, cooldown 3 s, idle 8 s; CPU is shown, its limits \
             are off so that a busy machine scales too",
            self.max
        )
    }

    /// Counts a change; returns its line.
    fn count(
        &mut self,
        decision: &Decision,
        outcome: Option<&(Outcome, String)>,
    ) -> Option<String> {
        let (from, to) = decision.change()?;
        let failed = outcome.filter(|(outcome, _)| *outcome != Outcome::Done);
        match failed {
            Some(_) => self.failures += 1,
            None if to > from => self.scale_outs += 1,
            None => self.scale_ins += 1,
        }
        let seconds = self.start.elapsed().as_secs_f64();
        let (kind, reason) = (decision.kind.name(), &decision.reason);
        let mut line = format!("{seconds:5.1} s  {kind:<18} {from} -> {to}  {reason}");
        if let Some((_, why)) = failed {
            let _ = write!(line, " (failed: {why})");
        }
        if self.form != Form::Live {
            return Some(line);
        }
        let colour = match decision.kind {
            _ if failed.is_some() => RED,
            Kind::EmergencyScaleIn => RED,
            _ if to > from => GREEN,
            _ => YELLOW,
        };
        Some(format!("{colour}{line}{RESET}"))
    }

    fn remember(&mut self, seen: &Observation) {
        let queue = seen.queue.value();
        let workers = seen.fleet.value().map(|f| f64::from(f.capacity()));
        self.finished = queue.and_then(|q| q.finished_total).unwrap_or(self.finished);
        let values = [
            queue.map(|q| q.waiting as f64),
            queue.map(|q| q.active as f64),
            workers,
            seen.host.value().map(|h| h.cpu_raw),
        ];
        for (chart, value) in self.charts.iter_mut().zip(values) {
            chart.push(value.unwrap_or(0.0));
        }
    }

    /// Draws over the last view. Lines are cut at the right edge and the lowest ones left out, not
    /// wrapped and scrolled: otherwise the number of lines to go back would be unknown.
    fn draw(
        &mut self,
        out: &mut impl Write,
        seen: &Observation,
        decision: &Decision,
        ema: Option<f64>,
    ) -> io::Result<()> {
        let text = self.text(seen, decision, ema);
        if self.drawn > 0 {
            write!(out, "\x1b[{}A", self.drawn)?;
        }
        write!(out, "\x1b[?7l")?;
        let Screen { columns, rows } = (self.screen)();
        let lines = || text.lines().take(rows.saturating_sub(1).max(1));
        for line in lines() {
            writeln!(out, "\x1b[2K{}", cut(line, columns))?;
        }
        write!(out, "\x1b[0J\x1b[?7h")?;
        self.drawn = lines().count();
        Ok(())
    }

    fn text(&self, seen: &Observation, decision: &Decision, ema: Option<f64>) -> String {
        let queue = seen.queue.value();
        let fleet = seen.fleet.value().cloned().unwrap_or_default();
        let cpu = seen.host.value().map(|h| h.cpu_raw);
        let number = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
        let percent = |x: Option<f64>| x.map_or_else(|| "?".to_owned(), |x| format!("{x:.0} %"));
        let [waiting, active, workers, load] = &self.charts;
        let mut text = String::new();
        let mut row = |name: &str,
                       colour: &str,
                       value: String,
                       chart: &Chart,
                       top: f64,
                       note: &str| {
            let bars = chart.bars(top);
            let _ = writeln!(
                text,
                "  {name:<8} {BOLD}{value:>5}{RESET}  {colour}{bars:<COLUMNS$}{RESET}  {DIM}{note}{RESET}"
            );
        };
        let most = f64::from(self.max);
        let finished = format!("{} done", self.finished);
        let states = format!("{} starting, {} draining", fleet.starting, fleet.draining);
        let smoothed = format!("{} smoothed", percent(ema));
        row("waiting", YELLOW, number(queue.map(|q| q.waiting)), waiting, waiting.top(), "");
        row("active", GREEN, number(queue.map(|q| q.active)), active, most, &finished);
        row("workers", BLUE, fleet.capacity().to_string(), workers, most, &states);
        row("CPU", CYAN, percent(cpu), load, 100.0, &smoothed);

        let elapsed = self.start.elapsed().as_secs();
        let mut all = format!(
            "{BOLD}{}{RESET}\n\n",
            self.headline().replace('\n', &format!("{RESET}{DIM}\n"))
        );
        let _ = writeln!(all, "{text}");
        let _ =
            writeln!(all, "  {DIM}{elapsed:>3} s  {}: {}{RESET}\n", decision.rule, decision.reason);
        for change in &self.changes {
            let _ = writeln!(all, "  {change}");
        }
        all
    }
}

/// The size of the terminal that is written to; without an end if it does not tell.
fn screen() -> Screen {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let known = |n: u16| if n == 0 { usize::MAX } else { usize::from(n) };
    Screen {
        columns: size.map_or(usize::MAX, |size| known(size.ws_col)),
        rows: size.map_or(usize::MAX, |size| known(size.ws_row)),
    }
}

/// A line that takes at most `columns`, with `…` for what is missing. Colours take no place and are
/// all kept, so that they end where they did.
fn cut(line: &str, columns: usize) -> String {
    if anstream::adapter::strip_str(line).to_string().chars().count() <= columns {
        return line.to_owned();
    }
    let (mut text, mut shown, mut in_colour) = (String::new(), 0, false);
    for c in line.chars() {
        if in_colour || c == '\x1b' {
            in_colour = !c.is_ascii_alphabetic();
            text.push(c);
            continue;
        }
        match (shown + 1).cmp(&columns.max(1)) {
            Ordering::Less => text.push(c),
            Ordering::Equal => text.push('…'),
            Ordering::Greater => {}
        }
        shown += 1;
    }
    text
}

impl Chart {
    fn push(&mut self, value: f64) {
        if self.0.len() == COLUMNS {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    fn top(&self) -> f64 {
        self.0.iter().copied().fold(1.0, f64::max)
    }

    /// One character a value, from 0 to `top`.
    fn bars(&self, top: f64) -> String {
        const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let bar = |value: &f64| BARS[((value / top).clamp(0.0, 1.0) * 8.0).ceil() as usize];
        self.0.iter().map(bar).collect()
    }
}

#[cfg(test)]
mod tests {
    use headcount_core::alert::AlertState;
    use headcount_core::reading::FleetReading;
    use headcount_core::{HostReading, QueueReading, Reading, Rule, Span, Timestamp};

    use super::*;

    fn tick(from: u32, to: u32, outcome: Option<(Outcome, String)>) -> Tick {
        let t = Timestamp::from_millis(1000);
        let kind = if to == from { Kind::Hold } else { Kind::ScaleOut };
        let decision = Decision {
            t,
            current: Some(from),
            policy_wanted: Some(to),
            wanted: Some(to),
            kind,
            rule: Rule::Waiting,
            reason: "3 waiting".into(),
            trail: Vec::new(),
            victims: Vec::new(),
            look_again: None,
        };
        let queue = QueueReading { waiting: 3, finished_total: Some(7), ..QueueReading::default() };
        let host = HostReading { cpu_raw: 41.0, ..HostReading::default() };
        let seen = Observation {
            t,
            queue: Reading::known(queue, t),
            host: Reading::known(host, t),
            fleet: Reading::known(FleetReading { ready: from, ..FleetReading::default() }, t),
            budget: None,
        };
        Tick {
            bounds: (1, 4),
            group: "demo".into(),
            dry: false,
            stand_by: None,
            seen: Some(seen),
            decision: Some(decision),
            outcome,
            cpu_ema: Some(40.0),
            alerts: AlertState::default().raised(),
        }
    }

    fn shown(json: bool, live: bool, ticks: &[Tick]) -> String {
        seen_on(|| Screen { columns: 200, rows: 50 }, json, live, ticks)
    }

    fn seen_on(screen: fn() -> Screen, json: bool, live: bool, ticks: &[Tick]) -> String {
        let time = Length { span: Span::from_secs(60), given: "60s".into() };
        let mut view = View::new(json, live, time, 4);
        view.screen = screen;
        let mut out = Vec::new();
        view.begin(&mut out).unwrap();
        ticks.iter().for_each(|t| view.show(&mut out, t).unwrap());
        view.finish(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn json_is_the_decision_and_its_group() {
        let text = shown(true, false, &[tick(1, 1, None), tick(1, 2, None)]);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        let mut expected = serde_json::to_value(tick(1, 2, None).decision).unwrap();
        expected["group"] = "demo".into();
        assert_eq!(lines[1], expected);
    }

    #[test]
    fn lines_tell_changes_and_a_summary() {
        let failed = Some((Outcome::Failed, "no room".into()));
        let text = shown(false, false, &[tick(1, 1, None), tick(1, 2, None), tick(2, 3, failed)]);
        assert!(!text.contains('\x1b'), "no colours: {text}");
        assert_eq!(text.matches(" -> ").count(), 2, "{text}");
        assert!(text.contains("workers, for 60s, or until Ctrl-C"), "as given: {text}");
        assert!(text.contains("scale_out          1 -> 2  3 waiting"), "{text}");
        assert!(text.contains("(failed: no room)"), "{text}");
        let summary = "1 scale-out, 0 scale-ins (1 change failed), 7 jobs done";
        assert!(text.contains(summary), "{text}");
    }

    #[test]
    fn the_live_view_draws_over_itself() {
        let text = shown(false, true, &[tick(1, 2, None), tick(2, 2, None)]);
        let views: Vec<&str> = text.split("\x1b[?7l").skip(1).collect();
        assert_eq!(views.len(), 2);
        let lines = views[0].matches('\n').count();
        assert!(text.contains(&format!("\x1b[{lines}A")), "{text:?}");
        assert!(views[1].contains("waiting") && views[1].contains("1 -> 2"), "{text:?}");
    }

    #[test]
    fn the_live_view_fits_into_a_small_terminal() {
        let small = || Screen { columns: 70, rows: 10 };
        let text = seen_on(small, false, true, &[tick(1, 2, None), tick(2, 2, None)]);
        let views: Vec<&str> = text.split("\x1b[?7l").skip(1).collect();
        assert!(text.contains("\x1b[9A"), "as far back as was drawn: {text:?}");
        for view in views {
            let (view, _) = view.split_once("\x1b[0J").unwrap();
            assert_eq!(view.lines().count(), 9);
            let plain = anstream::adapter::strip_str(view).to_string();
            assert!(plain.lines().all(|line| line.chars().count() <= 70), "{plain}");
            assert!(plain.lines().nth(1).unwrap().ends_with('…'), "{plain}");
        }
    }

    #[test]
    fn a_line_is_cut_between_its_colours() {
        let line = "\x1b[1mabcdef\x1b[0m gh\x1b[2m";
        assert_eq!(cut(line, 9), line);
        assert_eq!(cut(line, 5), "\x1b[1mabcd…\x1b[0m\x1b[2m");
        assert_eq!(cut(line, 7), "\x1b[1mabcdef\x1b[0m…\x1b[2m");
        assert_eq!(cut("▇▇▇", 2), "▇…");
        assert_eq!(cut("", 0), "");
    }

    #[test]
    fn bars_stay_within_their_range() {
        let mut chart = Chart::default();
        for value in [0.0, 0.1, 50.0, 100.0, 250.0] {
            chart.push(value);
        }
        assert_eq!(chart.bars(100.0), " ▁▄██");
        (0..200).for_each(|n| chart.push(f64::from(n)));
        assert_eq!(chart.bars(chart.top()).chars().count(), COLUMNS);
    }
}
