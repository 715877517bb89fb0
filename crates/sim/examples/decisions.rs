//! The decision benchmark: prints the attained cost ratio of a policy, cell by cell.
//!
//! `cargo run --release -p headcount-sim --example decisions -- --traces DIR --policy slo`
#![expect(clippy::print_stdout, reason = "this is a program that prints a table")]

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Parser;
use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::{Policy, Rules, Span};
use headcount_sim::autoscaler::Core;
use headcount_sim::baselines::{Family, families};
use headcount_sim::benchmark::{
    CELLS, Case, Cell, Contender, Peer, Results, Row, Summary, Tuned, best_of_each_cell,
    clairvoyant_hours, evaluate, fill_clairvoyant, made_up, matched, open, page, peers_table,
    priced, priced_table, rows_table, summaries, summary_table, tune,
};
use serde_json::{Value, json};

/// Prints the attained cost ratio of policies, cell by cell.
#[derive(Parser)]
struct Options {
    /// The folder with the traces and clairvoyant.csv; else made-up traces are used.
    #[arg(long)]
    traces: Option<PathBuf>,
    /// A policy's name, its YAML or JSON, or a file with it; repeats. `$W` in it is the wanted wait
    /// in seconds, `$B` the start-up time.
    #[arg(long, num_args = 0.., default_value = "slo")]
    policy: Vec<String>,
    /// Only these cells, as 15/60,90/300.
    #[arg(long, value_delimiter = ',')]
    cells: Vec<String>,
    /// Only traces whose name contains this.
    #[arg(long)]
    only: Option<String>,
    /// Each trace in a line.
    #[arg(long)]
    rows: bool,
    /// All rows as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Compare our clairvoyant schedules with clairvoyant.csv instead.
    #[arg(long)]
    check_clairvoyant: bool,
    /// Also run the baselines whose names contain one of these; `all` for every one.
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Write all of it to this file, with the first policy as ours.
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// The seed of the start-up times.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many runs at once.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut cases = match &options.traces {
        Some(folder) => open(folder)?,
        None => made_up(),
    };
    cases.retain(|case| options.only.as_ref().is_none_or(|part| case.name.contains(part)));
    let chosen = |cell: &Cell| options.cells.is_empty() || options.cells.contains(&cell.name());
    let cells: Vec<Cell> = CELLS.into_iter().filter(chosen).collect();
    if cases.is_empty() || cells.is_empty() {
        bail!("no trace or no cell is left: see --traces, --only and --cells");
    }
    if options.check_clairvoyant {
        return check_clairvoyant(&cells, &cases, options.threads);
    }
    fill_clairvoyant(&cells, &mut cases, options.threads);
    let mut ours = Vec::new();
    for name in &options.policy {
        let contender = contender(name)?;
        let rows = evaluate(&contender, &cells, &cases, options.seed, options.threads)?;
        print_rows(&options, name, &rows)?;
        ours.push((contender, summaries(&rows)));
    }
    let peers = run_peers(&options, &cells, &cases);
    let told = |price| {
        let policy = format!("slo: {{ price_of_waiting: {price} }}");
        contender(&policy).expect("the policy is well-formed")
    };
    let priced = match peers.is_empty() {
        true => Vec::new(),
        false => priced(told, &cells, &cases, options.seed, options.threads)?,
    };
    if !peers.is_empty() {
        println!("{}", peers_table(&cells, &peers));
        println!("{}", priced_table(&priced, &peers));
    }
    if let (Some(path), Some((contender, summaries))) = (&options.markdown, ours.first()) {
        let match_one = |(_, tuned): &(&Peer, &Tuned)| {
            matched(contender, &tuned.rows, &cases, options.seed, options.threads)
        };
        let matched: Vec<_> =
            best_of_each_cell(&cells, &peers).iter().filter_map(match_one).collect();
        let churn = churn(&options, &cells, &cases)?;
        let results = Results {
            commit: &commit(),
            traces: &description(&options, &cases),
            cells: &cells,
            ours: summaries,
            policy: &contender.name,
            peers: &peers,
            matched: &matched,
            priced: &priced,
            churn: &churn,
        };
        std::fs::write(path, page(&results)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Ours with a price per start, in the cell where starts are quick and the wait leaves some choice.
fn churn(options: &Options, cells: &[Cell], cases: &[Case]) -> Result<Vec<(u32, Summary)>> {
    let Some(cell) = cells.iter().find(|cell| cell.name() == "15/60") else {
        return Ok(Vec::new());
    };
    let mut all = Vec::new();
    for price in [0, 15, 30, 42, 60, 90] {
        let told = contender(&format!("slo: {{ price_per_start: {price}s }}"))?;
        let rows = evaluate(&told, &[*cell], cases, options.seed, options.threads)?;
        all.extend(summaries(&rows).into_iter().map(|summary| (price, summary)));
    }
    Ok(all)
}

fn print_rows(options: &Options, name: &str, rows: &[Row]) -> Result<()> {
    if options.json {
        println!("{}", serde_json::to_string(&json!({"policy": name, "rows": rows}))?);
        return Ok(());
    }
    println!("{name}");
    if options.rows {
        println!("{}", rows_table(rows));
    }
    println!("{}", summary_table(&summaries(rows)));
    Ok(())
}

fn run_peers(options: &Options, cells: &[Cell], cases: &[Case]) -> Vec<Peer> {
    let wanted = |family: &Family| {
        let named = |part: &String| part == "all" || family.name.contains(part.as_str());
        options.peers.iter().any(named)
    };
    let chosen = families().into_iter().filter(wanted);
    chosen.map(|family| tune(&family, cells, cases, options.seed, options.threads)).collect()
}

/// The commit of the working tree, marked where it differs.
fn commit() -> String {
    let here = env!("CARGO_MANIFEST_DIR");
    let describe = ["-C", here, "describe", "--always", "--dirty"];
    let describe = Command::new("git").args(describe).output();
    let text = describe.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".into())
}

fn description(options: &Options, cases: &[Case]) -> String {
    let kind = if options.traces.is_some() { "recorded and synthetic" } else { "made-up" };
    let jobs: usize = cases.iter().map(|case| case.trace.jobs.len()).sum();
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    format!("{} {kind} traces with {jobs} jobs ({})", cases.len(), names.join(", "))
}

/// Ours may cost at most 2 % more than the shipped ones.
fn check_clairvoyant(cells: &[Cell], cases: &[Case], threads: usize) -> Result<()> {
    let mut worst: f64 = 0.0;
    for (cell, trace, ours, shipped) in clairvoyant_hours(cells, cases, threads) {
        let shipped = shipped.with_context(|| format!("no line for {} {trace}", cell.name()))?;
        let more = ours / shipped;
        worst = worst.max(more);
        println!("{:>6} {trace:<14} {ours:10.4} {shipped:10.4} {more:.4}", cell.name());
    }
    println!("worst {worst:.4}");
    if worst > 1.02 {
        bail!("a schedule costs more than 2 % more than the shipped one");
    }
    Ok(())
}

fn contender(name: &str) -> Result<Contender> {
    let text = std::fs::read_to_string(name).unwrap_or_else(|_| name.into());
    // A mistake shall show before anything runs.
    rules_for(&text, &CELLS[0], 4)?;
    let make = move |cell: &Cell, max: u32| {
        let rules = rules_for(&text, cell, max).expect("it was read before");
        Box::new(Core::new(rules)) as _
    };
    Ok(Contender { name: name.into(), make: Box::new(make) })
}

/// The rules of a policy in a cell: one configuration, the wanted wait its only input.
fn rules_for(policy: &str, cell: &Cell, max: u32) -> Result<Rules> {
    let wait = format!("{}s", cell.wait);
    let mut rules = match policy {
        "cpu_aware" => Rules { policy: Policy::CpuAware(CpuAware::default()), ..Rules::default() },
        "slo" => serde_json::from_value(json!({"policy": {"slo": {"max_wait": wait}}}))?,
        "occupancy" | "ratio" => serde_json::from_value(json!({"policy": {policy: {}}}))?,
        text => written(text, cell)?,
    };
    rules.workers.min = 0;
    rules.workers.max = max;
    rules.workers.slots = 1;
    rules.workers.start_up = Some(Span::from_secs(cell.start_up.into()));
    Ok(rules)
}

fn written(text: &str, cell: &Cell) -> Result<Rules> {
    let text = text
        .replace("$W", &format!("{}s", cell.wait))
        .replace("$B", &format!("{}s", cell.start_up));
    let mut value: Value =
        serde_saphyr::from_str(&text).with_context(|| format!("policy `{text}`"))?;
    if value.get("policy").is_none() {
        value = json!({ "policy": value });
    }
    if let Some(slo) = value.pointer_mut("/policy/slo").and_then(Value::as_object_mut)
        && !slo.contains_key("price_of_waiting")
    {
        slo.entry("max_wait").or_insert_with(|| format!("{}s", cell.wait).into());
    }
    serde_json::from_value(value).with_context(|| format!("policy `{text}`"))
}
