//! The page: markup around the summary, the plots and the table.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use headcount_core::Span;
use headcount_sim::world::{MostWorkers, OfTrace};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::table::table;
use super::{Report, hours, plots, seconds, summary, with_commas};
use crate::plotly;

/// A plot: its element, its title, and what to look at.
struct Plot {
    id: &'static str,
    title: &'static str,
    hint: &'static str,
}

const ARRIVALS: Plot = Plot {
    id: "arrivals",
    title: "Jobs arriving",
    hint: "What the workers had to cope with: steady load is easy, bursts and steps are not. Drag \
           across any plot over time to zoom all of them; double-click to see the whole again.",
};
const WAITING: Plot = Plot {
    id: "waiting",
    title: "Jobs waiting",
    hint: "The most jobs that waited at once. Peaks right after a burst are the time that workers \
           take to start; plateaus are a fleet that is too small.",
};
const LONGEST: Plot = Plot {
    id: "longest",
    title: "Longest wait",
    hint: "How long the unluckiest job waited, by when it arrived. Below the dashed line the wanted \
           wait was kept by all; one job in twenty may be above it.",
};
const WORKERS: Plot = Plot {
    id: "workers",
    title: "Workers",
    hint: "Workers that were paid: starting, serving or finishing. The dotted line is how many jobs \
           would run if none waited; the space between it and a line is idle time and start-ups.",
};
const LABOUR: Plot = Plot {
    id: "labour",
    title: "What the workers did",
    hint: "Only the busy part does work. Much idle: a fleet that shrinks too late; much starting: one \
           that changes its mind too often.",
};
const CPU: Plot = Plot {
    id: "cpu",
    title: "CPU",
    hint: "What the host was asked for. Above the line at 100 % every job and every start takes \
           longer.",
};
const DISTRIBUTION: Plot = Plot {
    id: "distribution",
    title: "How long jobs waited",
    hint: "The further to the left, the better. Each curve should cross the line at 95 % to the left \
           of the wanted wait; the marks show where it does.",
};
const FRONTIER: Plot = Plot {
    id: "frontier",
    title: "Cost against wait",
    hint: "Cheap and fast is at the lower left. The shaded area is what even knowing the future did \
           not reach; a policy's own curve shows what other wanted waits would have cost.",
};

/// The page of a report.
pub fn page(report: &Report) -> String {
    let title = format!("Headcount: {}", report.trace);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (title) }
                style { (PreEscaped(include_str!("page.css"))) }
            }
            body {
                main { (content(report)) }
                script type="application/json" id="data" { (PreEscaped(plots::json(report))) }
                // Base64 of gzip: a third of its size, and no character that means anything here.
                script type="text/plain" id="plotly" {
                    (PreEscaped(STANDARD.encode(plotly::SCRIPT_GZIP)))
                }
                script { (PreEscaped(include_str!("page.js"))) }
            }
        }
    };
    page.into_string()
}

/// What the browser lets the page do: run and show what is in it, and load nothing.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      img-src data: blob:";

fn content(report: &Report) -> Markup {
    let done = report.runs.iter().any(|run| run.outcome.is_ok());
    html! {
        p.eyebrow { "Headcount simulation" }
        h1 { (summary::headline(report)) }
        @for sentence in summary::details(report) { p { (sentence) } }
        p.muted { (origin(report)) }
        @if let Some(known) = &report.known { p.muted { (known) "." } }
        (facts(report))
        p #trouble hidden {}
        noscript { p { "The plots are drawn by a script in this page; the table below needs none." } }
        @if done {
            @if report.runs.len() > 1 { (legend(report)) }
            @for plot in [ARRIVALS, WAITING, LONGEST, WORKERS] { (section(&plot, None)) }
            (section(&LABOUR, Some(whose(report))))
            @if report.world.host.is_some() { (section(&CPU, None)) }
            (section(&DISTRIBUTION, None))
            (section(&FRONTIER, None))
        }
        section {
            h2 { "Scores" }
            p.hint { "✓ and ✗: whether 95 of 100 jobs waited no longer than is wanted. Point at a \
                      heading to see what it means." }
            (table(report))
        }
        section { h2 { "Parameters" } (parameters(report)) }
        section { h2 { "What this shows, and what not" } (caveats(report)) }
        footer {
            "Made by headcount " (env!("CARGO_PKG_VERSION")) ". The same files and seed give the same \
             page. It loads nothing from anywhere. Plots: plotly.js, MIT licence."
        }
    }
}

fn section(plot: &Plot, more: Option<Markup>) -> Markup {
    html! {
        section {
            h2 { (plot.title) }
            p.hint { (plot.hint) }
            @if let Some(more) = more { (more) }
            div.plot id=(plot.id) role="img" aria-label=(plot.title) {}
        }
    }
}

/// Where the numbers are from, in a line.
fn origin(report: &Report) -> String {
    let jobs: u64 = report.demand.arrivals.iter().sum();
    format!(
        "{}: {} {}, {} hours of work; seed {}.",
        report.trace,
        with_commas(jobs),
        if jobs == 1 { "job" } else { "jobs" },
        hours(report.work_hours),
        report.seed
    )
}

/// The first policy's numbers, large.
fn facts(report: &Report) -> Markup {
    let Some((run, score)) = report.runs.first().and_then(|run| Some((run, run.score()?))) else {
        return html! {};
    };
    let wanted = match run.wait {
        Some(wait) => format!("wanted: {}", seconds(wait.as_secs_f64())),
        None => "no wait was wanted".into(),
    };
    let against = match (run.cost_ratio(), run.future) {
        (Some(ratio), Some(future)) => {
            Some((format!("{ratio:.2}×"), format!("knowing the future: {} h", hours(future))))
        }
        _ => None,
    };
    let share = 100.0 * report.work_hours / score.worker_hours.max(f64::MIN_POSITIVE);
    let changes = (score.scale_outs + score.scale_ins) as f64 / score.span_hours.max(1e-9);
    let wasted = match score.wasted_starts {
        1 => "1 wasted start".into(),
        n => format!("{} wasted starts", with_commas(n)),
    };
    html! {
        dl.facts {
            (fact("p95 wait", &seconds(score.waits.p95), &wanted))
            (fact("worker-hours", &hours(score.worker_hours), &format!("{share:.0} % of them at work")))
            @if let Some((ratio, note)) = against { (fact("against the future", &ratio, &note)) }
            (fact("changes an hour", &format!("{changes:.1}"), &wasted))
            (fact("killed jobs", &with_commas(score.busy_kills), "stopped with their worker"))
        }
    }
}

fn fact(name: &str, value: &str, note: &str) -> Markup {
    html! { div { dt { (name) } dd { (value) small { (note) } } } }
}

/// Which policies are drawn.
fn legend(report: &Report) -> Markup {
    html! {
        div.legend role="group" aria-label="Policies that are drawn" {
            @for (number, run) in report.runs.iter().enumerate() {
                @if run.outcome.is_ok() {
                    button.chip type="button" data-run=(number) aria-pressed="true" {
                        i {} (run.name())
                    }
                }
            }
            button.plain type="button" data-show="all" { "all" }
            button.plain type="button" data-show="ours" { "only mine" }
        }
    }
}

/// Whose workers are looked at.
fn whose(report: &Report) -> Markup {
    html! {
        select #whose aria-label="Whose workers" {
            @for (number, run) in report.runs.iter().enumerate() {
                @if run.outcome.is_ok() { option value=(number) { (run.name()) } }
            }
        }
    }
}

fn parameters(report: &Report) -> Markup {
    html! {
        dl.parameters {
            dt { "jobs" } dd { (report.trace) }
            dt { "seed" } dd { (report.seed) }
            @for (name, value) in world(report) { dt { (name) } dd { (value) } }
        }
        @for run in &report.runs {
            @if let Some(rules) = &run.rules {
                details {
                    summary { "Rules of " (run.name()) }
                    pre { (rules) }
                }
            }
        }
        @if report.runs.iter().any(|run| run.file.is_none()) {
            p.hint {
                "Other autoscalers ran with their published parameters and with the bounds and slots \
                 of the first policy."
            }
        }
    }
}

/// The world, a line each.
fn world(report: &Report) -> Vec<(&'static str, String)> {
    let world = &report.world;
    let span = |span: Span| format!("{span:#}");
    let spread = world.start_up_spread;
    let mut lines = vec![
        ("start-up of a worker", format!("{} ± {:.0} %", span(world.start_up), spread * 100.0)),
        ("minimum billing", span(world.minimum_billing)),
    ];
    if world.start_up_failures > 0.0 {
        lines.push(("starts that fail", format!("{:.1} %", world.start_up_failures * 100.0)));
    }
    lines.extend(world.min_workers.map(|min| ("fewest workers", min.to_string())));
    lines.extend(world.max_workers.map(|max| {
        let text = match max {
            MostWorkers::Number(max) => max.to_string(),
            MostWorkers::OfTrace(OfTrace::Peak) => "the peak of the jobs, at least 4".into(),
        };
        ("most workers", text)
    }));
    lines.extend(world.slots.map(|slots| ("jobs a worker runs at once", slots.to_string())));
    let grace = world.grace.map_or_else(|| "as long as it takes".into(), span);
    lines.push(("a stopped worker may finish", grace));
    lines.push(match &world.host {
        None => ("host", "room for all".into()),
        Some(host) => (
            "host",
            format!(
                "{} cores; a job keeps {} busy, a start {} for {}, others {}",
                host.cores,
                host.cores_per_job,
                host.start_up_cores,
                span(host.start_up_cpu),
                host.background_cores
            ),
        ),
    });
    if let Some(host) = &world.host
        && let Some(memory) = host.memory
    {
        lines.push(("memory", format!("{memory}; a worker takes {}", host.memory_per_worker)));
    }
    if !world.outages.is_empty() {
        lines.push(("outages of sources", world.outages.len().to_string()));
    }
    lines
}

fn caveats(report: &Report) -> Markup {
    let width = report.runs.iter().find_map(|run| run.outcome.as_ref().ok());
    html! {
        ul {
            li {
                "The policies of files are decided by the very code that runs in production. It looks \
                 at its own poll, sees no more than a real queue and host would tell, and starts \
                 without anything learnt but a hint of the start-up time."
            }
            @if let Some((_, timeline)) = width {
                li {
                    "The lines over time are drawn in steps of "
                    (seconds(timeline.width.as_seconds()))
                    ": a mean or, where it says so, the most of each step."
                }
            }
            @if report.runs.iter().any(|run| run.file.is_none()) {
                li {
                    "The rules of the others are written anew from their documentation and public \
                     source. Nobody tuned them to these jobs; tuned, they do better."
                }
            }
            @if !report.future.is_empty() {
                li {
                    "Knowing the future is the cheapest schedule found that starts 95 of 100 jobs in \
                     time, with no limit on workers, no minimum billing and no shared host. The true \
                     optimum may be a little cheaper."
                }
            }
            @if !report.frontiers.is_empty() {
                li {
                    "On a policy's curve, each mark is a run with another wanted wait and all else \
                     the same."
                }
            }
            li {
                "One trace and one seed are one sample: start-up times are drawn at random, and \
                 tomorrow's jobs are not yesterday's. Differences of a few percent mean little."
            }
            li {
                "Jobs arrive as recorded, whatever the workers do, and take as long as recorded"
                @if report.world.host.is_some() { ", or longer while the host is asked for too much" }
                ". Networks, deployments and prices by the hour are not in the picture."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{report, run};
    use super::*;

    #[test]
    fn what_a_user_wrote_is_no_markup() {
        let mut report = report(vec![run("slo", Some("<img src=x onerror=alert(1)>"), 9.0, 2.0)]);
        report.trace = "</title><script>alert(2)</script>".into();
        report.runs[0].rules = Some("a: <b>".into());
        let page = page(&report);
        for escaped in ["&lt;img src=x", "&lt;/title&gt;", "a: &lt;b&gt;"] {
            assert!(page.contains(escaped), "{escaped}");
        }
        for raw in ["<img", "<script>alert", "<b>"] {
            assert!(!page.contains(raw), "{raw}");
        }
    }

    #[test]
    fn the_page_loads_nothing() {
        let page = page(&report(vec![run("slo", Some("a.yaml"), 9.0, 2.0)]));
        let lower = page.to_lowercase();
        for load in ["src=", "href=", "http://", "https://", "@import", "url(", "<link", "fetch("] {
            assert!(!lower.contains(load), "{load}");
        }
    }
}
