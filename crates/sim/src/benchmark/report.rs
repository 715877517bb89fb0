//! The benchmark as a page in Markdown.

use std::fmt::Write;

use super::{
    Cell, Matched, Peer, Priced, Summary, Tuned, best_of_each_cell, geometric_mean, peers_table,
    priced_table, summary_table,
};

/// Everything that was measured.
pub struct Results<'a> {
    /// The commit that was measured.
    pub commit: &'a str,
    /// Where the traces came from.
    pub traces: &'a str,
    /// The cells.
    pub cells: &'a [Cell],
    /// Ours, one for each cell.
    pub ours: &'a [Summary],
    /// The policy that ours ran.
    pub policy: &'a str,
    /// The others.
    pub peers: &'a [Peer],
    /// Ours against the best tuned peer of each cell.
    pub matched: &'a [Matched],
    /// Ours, told the price of waiting.
    pub priced: &'a [Priced],
    /// Ours with a price per start, s, in one cell.
    pub churn: &'a [(u32, Summary)],
}

const INTRODUCTION: &str = "\
How well does Headcount decide? This page is written by one command:

    bench/decisions [--traces DIR]

Each autoscaler runs the same jobs in the same simulated world, and is compared with a schedule that
knows the future. `ratio = worker-hours / clairvoyant worker-hours x max(1, p95 wait / W)^2`, where W
is the wait that 95 of 100 jobs shall not exceed: missing it by 2 costs as much as paying 4 times as
much. **ACR**, the attained cost ratio, is the geometric mean over the traces; 1.0 is knowing the
future. A cell is a start-up time and a W in seconds; with 90 s of start-up each worker is billed for
60 s at least. Up to as many workers as the trace ever has jobs at once, none at rest, one job a
worker, and every run starts cold, with a hint of the start-up time. Headcount runs with one
configuration: W is all it is told.
";

const CAVEATS: &str = "\
## What this shows and what it does not

- The others are our own versions of their published rules, not their programs. *Tuned* takes, for
  each cell, the best of a grid of settings chosen after the fact on these very traces, counting
  running jobs and picking idle victims where the system can be made to. No user can tune so well.
  A blind victim that holds a job drains for ever here, which is kinder than most systems are.
- The world is simulated: start-up times are drawn, workers never fail, the host has room for all,
  and each change is done at once.
- The clairvoyant schedule is feasible, not optimal: the true optimum is lower still, by 1 to 19 % at
  15 s of start-up and by more at 90 s, for all alike.
- The claim is about a stated wait: meeting it at a low cost, without tuning. Where a second of
  waiting has a price instead (J), the best tuned of the others are close.
- Where W is below the start-up time, workers must be kept warm for jobs that have not come, and
  every autoscaler is far from 1.0; so are load by the clock and bursts of correlated jobs.
- A queue may run below its demand for up to W for free, so an autoscaler that does well here scores
  badly on measures of elasticity that punish every moment of under-provisioning.
";

/// The whole page.
pub fn page(results: &Results<'_>) -> String {
    let Results { commit, traces, cells, ours, policy, peers, matched, priced, churn } = results;
    let mut text = String::from("# The decision benchmark\n\n");
    text.push_str(INTRODUCTION);
    let _ = writeln!(
        text,
        "\nMeasured at commit `{commit}` on {traces}.\n\n## Headcount (`{policy}`)\n"
    );
    text.push_str(&summary_table(ours));
    text.push_str(
        "\nmet: traces whose p95 is at most 1.05 W. Waits are medians over the traces. actions: \
         changes of the number; reversals: changes against the last one within 10 minutes; both are \
         means over the traces. wasted: workers that were stopped before they ran a job. killed: jobs \
         that were killed with their worker. J(c): (worker-s + c x wait-s) / work-s.\n",
    );
    text.push_str("\n## The others, as published / tuned\n\n");
    let acrs: Vec<f64> = ours.iter().map(|s| s.acr).collect();
    let mut table = peers_table(cells, peers);
    let mut own = format!("| **Headcount** | **{:.2}** |", geometric_mean(acrs.iter().copied()));
    acrs.iter().for_each(|acr| _ = write!(own, " **{acr:.2}** |"));
    own.push('\n');
    if let Some(end) = table.find("\n\n") {
        table.insert_str(end + 1, &own);
    }
    text.push_str(&table);
    text.push_str(&standing(cells, ours, peers));
    text.push_str(
        "\n## If waiting has a price\n\nJ(c) of Headcount, told `price_of_waiting: c` and no \
         `max_wait`, and of the others in the setting of all that suits c best:\n\n",
    );
    text.push_str(&priced_table(priced, peers));
    text.push_str(&churn_table(churn));
    text.push_str(&matched_table(peers, cells, matched));
    text.push('\n');
    text.push_str(CAVEATS);
    text
}

/// In how many cells ours is ahead.
fn standing(cells: &[Cell], ours: &[Summary], peers: &[Peer]) -> String {
    let best = best_of_each_cell(cells, peers);
    let ahead = |(own, (_, tuned)): &(&Summary, (&Peer, &Tuned))| own.acr < tuned.summary.acr;
    let cells = best.len();
    let ahead = ours.iter().zip(best).filter(ahead).count();
    format!("\nHeadcount is ahead of the best tuned setting in {ahead} of {cells} cells.\n")
}

/// What fewer changes cost.
fn churn_table(churn: &[(u32, Summary)]) -> String {
    let Some((_, first)) = churn.first() else { return String::new() };
    let mut text = format!(
        "\n## If changes have a price\n\nHeadcount in cell {} with `price_per_start`:\n\n\
         | price_per_start | ACR | met | actions/h | reversals/h |\n|--:|--:|--:|--:|--:|\n",
        first.cell.name()
    );
    for (price, s) in churn {
        let (actions, reversals) = (s.actions_per_hour, s.reversals_per_hour);
        let _ = writeln!(
            text,
            "| {price} s | {:.3} | {}/{} | {actions:.1} | {reversals:.1} |",
            s.acr, s.met, s.traces
        );
    }
    text
}

fn matched_table(peers: &[Peer], cells: &[Cell], matched: &[Matched]) -> String {
    let mut text = String::from(
        "\n## The same wait for less\n\nHeadcount told to reach the p95 that the best tuned peer of \
         the cell had, trace by trace: its worker-hours over the peer's.\n\n\
         | cell | peer | worker-hours | reached on |\n|--:|---|--:|--:|\n",
    );
    for ((peer, _), m) in best_of_each_cell(cells, peers).into_iter().zip(matched) {
        let Matched { cell, hours, reached, traces } = m;
        let _ = writeln!(
            text,
            "| {} | {} | {hours:.2} | {reached} of {traces} |",
            cell.name(),
            peer.name
        );
    }
    text
}
