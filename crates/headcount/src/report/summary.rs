//! What the runs come to, in plain words.

use super::{Report, Run, hours, seconds};

/// Costs this close to the future's are the same to a reader.
const AS_GOOD_AS: f64 = 0.005;

/// The sentence in front: how the first policy did.
pub(super) fn headline(report: &Report) -> String {
    let alone = report.runs.iter().filter(|run| run.file.is_some()).count() < 2;
    let name = |run: &Run| if alone { run.policy.clone() } else { run.name() };
    report.runs.first().map(|run| verdict(run, &name(run))).unwrap_or_default()
}

/// What else is worth knowing, a sentence each.
pub(super) fn details(report: &Report) -> Vec<String> {
    let Some((first, rest)) = report.runs.split_first() else { return Vec::new() };
    let (ours, others): (Vec<&Run>, Vec<&Run>) = rest.iter().partition(|run| run.file.is_some());
    let mut told: Vec<String> = ours.into_iter().map(|run| verdict(run, &run.name())).collect();
    told.extend(against(first, &others));
    told.extend(killed(report));
    told
}

/// How one policy did.
fn verdict(run: &Run, name: &str) -> String {
    let score = match &run.outcome {
        Ok((score, _)) => score,
        Err(why) => return format!("{name} never got the jobs done: {why}."),
    };
    let hours = format!("for {} worker-hours", hours(score.worker_hours));
    let p95 = seconds(score.waits.p95);
    let Some(wanted) = run.wait.map(|wait| seconds(wait.as_secs_f64())) else {
        return format!("{name} kept 95 of 100 waits under {p95} {hours}.");
    };
    match (run.kept(), run.cost_ratio()) {
        (Some(true), Some(ratio)) => format!(
            "{name} kept 95 of 100 waits under {wanted} at {} what knowing the future would have \
             cost.",
            beyond(ratio)
        ),
        (Some(true), None) => format!("{name} kept 95 of 100 waits under {wanted} {hours}."),
        // The future kept the wait, so its cost is no measure for a policy that did not.
        _ => format!(
            "{name} kept 95 of 100 waits under {p95}, not under the wanted {wanted}, {hours}."
        ),
    }
}

/// A ratio to the future's cost, in words before "what ... cost".
fn beyond(ratio: f64) -> String {
    let percent = format!("{:.0} %", 100.0 * (ratio - 1.0).abs());
    match ratio {
        r if (r - 1.0).abs() < AS_GOOD_AS => "exactly".into(),
        r if r >= 3.0 => format!("{r:.1} times"),
        r if r > 1.0 => format!("{percent} above"),
        _ => format!("{percent} below"),
    }
}

/// The first policy against other autoscalers.
fn against(first: &Run, others: &[&Run]) -> Option<String> {
    let (ours, kept) = (first.score()?, first.kept()?);
    let count = others.len();
    if count == 0 {
        return None;
    }
    let keepers = others.iter().filter(|run| run.kept() == Some(true));
    let hours_of = |run: &&&Run| run.score().map_or(f64::INFINITY, |score| score.worker_hours);
    let cheapest = keepers.clone().min_by(|a, b| hours_of(a).total_cmp(&hours_of(b)));
    let Some(cheapest) = cheapest else {
        let none = if count == 1 { "The other one" } else { "None of the others" };
        let verb = if count == 1 { "did not keep" } else { "kept" };
        return Some(format!("{none}, with published parameters, {verb} that wait."));
    };
    let of = keepers.count();
    let ratio = hours_of(&cheapest) / ours.worker_hours;
    let took = match ratio {
        _ if !kept => format!("took {} worker-hours", hours(hours_of(&cheapest))),
        r if r >= 1.1 => format!("took {r:.1} times as many worker-hours"),
        r if r > 1.0 + AS_GOOD_AS => format!("took {:.0} % more worker-hours", 100.0 * (r - 1.0)),
        r if r < 1.0 - AS_GOOD_AS => format!("took {:.0} % fewer worker-hours", 100.0 * (1.0 - r)),
        _ => "took as many worker-hours".into(),
    };
    Some(format!(
        "With published parameters, {of} of {count} others kept that wait; the cheapest of them, \
         {}, {took}.",
        cheapest.policy
    ))
}

/// Jobs that died with their workers.
fn killed(report: &Report) -> Option<String> {
    let killers: Vec<String> = report
        .runs
        .iter()
        .filter_map(|run| Some((run, run.score()?.busy_kills)).filter(|(_, kills)| *kills > 0))
        .map(|(run, kills)| format!("{} ({kills})", run.policy))
        .collect();
    (!killers.is_empty()).then(|| {
        format!("Jobs were killed with their worker, and started again, by {}.", killers.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use headcount_core::Span;

    use super::super::tests::{report, run};
    use super::*;

    #[test]
    fn a_policy_is_judged_by_the_wait_and_by_the_future() {
        let wait = Some(Span::from_secs(60));
        for (p95, wait, future, expected) in [
            (
                48.0,
                wait,
                Some(100.0),
                "under 60 s at 12 % above what knowing the future would have cost.",
            ),
            (
                60.0,
                wait,
                Some(112.2),
                "under 60 s at exactly what knowing the future would have cost.",
            ),
            (
                60.0,
                wait,
                Some(20.0),
                "under 60 s at 5.6 times what knowing the future would have cost.",
            ),
            (
                60.0,
                wait,
                Some(140.0),
                "under 60 s at 20 % below what knowing the future would have cost.",
            ),
            (
                75.4,
                wait,
                Some(90.0),
                "under 75 s, not under the wanted 60 s, for 112.0 worker-hours.",
            ),
            (48.0, wait, None, "under 60 s for 112.0 worker-hours."),
            (7.25, None, None, "under 7.2 s for 112.0 worker-hours."),
        ] {
            let run = Run { wait, future, ..run("slo", Some("a.yaml"), p95, 112.0) };
            assert_eq!(verdict(&run, "slo"), format!("slo kept 95 of 100 waits {expected}"));
        }
        let stuck = Run { outcome: Err("3 jobs still wait".into()), ..run("slo", None, 0.0, 0.0) };
        assert_eq!(verdict(&stuck, "slo"), "slo never got the jobs done: 3 jobs still wait.");
    }

    #[test]
    fn others_are_compared_only_if_they_kept_the_wait() {
        let wanted = |run: Run| Run { wait: Some(Span::from_secs(60)), ..run };
        let told = |others: Vec<Run>| {
            let ours = wanted(run("slo", Some("a.yaml"), 48.0, 100.0));
            details(&report([ours].into_iter().chain(others.into_iter().map(wanted)).collect()))
        };
        assert_eq!(told(vec![]), [""; 0]);
        let late = || run("KEDA + HPA", None, 70.0, 50.0);
        assert_eq!(
            told(vec![late()]),
            ["The other one, with published parameters, did not keep that wait."]
        );
        assert_eq!(
            told(vec![late(), run("fixed", None, 0.0, 400.0), run("Knative", None, 9.0, 210.0)]),
            [
                "With published parameters, 2 of 3 others kept that wait; the cheapest of them, Knative, \
             took 2.1 times as many worker-hours."
            ]
        );
        let mut killer = run("reference rule", None, 9.0, 95.0);
        killer.outcome.as_mut().unwrap().0.busy_kills = 4;
        assert_eq!(
            told(vec![killer]),
            [
                "With published parameters, 1 of 1 others kept that wait; the cheapest of them, \
             reference rule, took 5 % fewer worker-hours.",
                "Jobs were killed with their worker, and started again, by reference rule (4).",
            ]
        );
    }
}
