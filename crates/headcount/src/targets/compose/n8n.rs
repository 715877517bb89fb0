//! What a service says of the n8n worker in it: how many jobs it runs at once, and how long it lets
//! them finish. Both must agree with the rules of the group. Pure.

use std::collections::HashMap;

use headcount_core::Span;

use crate::finding::{Fact, Finding};
use crate::targets::compose::check::{ABOUT, Service};

/// How many jobs a worker runs at once; above 0 it counts more than the command's own flag.
const CONCURRENCY: &str = "N8N_CONCURRENCY_PRODUCTION_LIMIT";
/// How long a worker waits for its jobs after its stop signal, seconds.
const SHUTDOWN: &str = "N8N_GRACEFUL_SHUTDOWN_TIMEOUT";

/// The variables that matter here.
pub(super) const VARIABLES: [&str; 2] = [CONCURRENCY, SHUTDOWN];

/// What n8n does if nothing is said (2.x).
const STANDARD_CONCURRENCY: u32 = 10;
const STANDARD_SHUTDOWN: Span = Span::from_secs(30);

/// What must agree with the rules. `running` are the variables of a container of the service, which
/// may have more of them: from its image. `grace` is what a worker gets to finish.
pub(super) fn findings(
    name: &str,
    service: &Service,
    running: &HashMap<String, String>,
    grace: Span,
) -> Vec<Finding> {
    let variable = |name: &str| service.variable(name).or_else(|| running.get(name).cloned());
    let mut found = Vec::new();
    if let Some((jobs, said_by)) = concurrency(service, variable(CONCURRENCY)) {
        let noun = if jobs == 1 { "job" } else { "jobs" };
        let what = format!("a worker of {name} runs {jobs} {noun} at once ({said_by})");
        found.push(Finding::good(ABOUT, what).stating(Fact::Slots(jobs)));
    }
    let written = variable(SHUTDOWN).and_then(|text| text.trim().parse::<i64>().ok());
    let shutdown = written.map(Span::from_secs).or(service.is_n8n().then_some(STANDARD_SHUTDOWN));
    if let Some(shutdown) = shutdown.filter(|shutdown| grace <= *shutdown) {
        let what = format!(
            "n8n lets jobs finish for {shutdown:#} ({SHUTDOWN}), but a worker of {name} is killed \
             after {grace:#}"
        );
        let fix = "set `grace` longer than that, or the variable shorter";
        found.push(Finding::warning(ABOUT, what, fix));
    }
    found
}

/// How many jobs a worker runs at once, and what says so.
fn concurrency(service: &Service, variable: Option<String>) -> Option<(u32, &'static str)> {
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n > 0);
    if let Some(jobs) = variable.and_then(|text| number(&text)) {
        return Some((jobs, CONCURRENCY));
    }
    let words = service.words();
    let flag = words.iter().enumerate().find_map(|(i, word)| {
        let after = word.strip_prefix("--concurrency")?;
        number(after.strip_prefix('=').or(words.get(i + 1).map(String::as_str))?)
    });
    match flag {
        Some(jobs) => Some((jobs, "--concurrency")),
        None => service.is_n8n().then_some((STANDARD_CONCURRENCY, "n8n's default")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Variables = &'static [(&'static str, &'static str)];

    fn said(yaml: &str, running: Variables, grace: i64) -> (Option<Fact>, Vec<String>) {
        let service: Service = serde_saphyr::from_str(yaml).unwrap();
        let running = running.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let found = findings("w", &service, &running, Span::from_secs(grace));
        let fact = found.iter().find_map(|finding| finding.fact);
        let warned = found.into_iter().filter(|f| f.fix.is_some()).map(|f| f.what).collect();
        (fact, warned)
    }

    #[test]
    fn the_concurrency_is_the_variable_the_flag_or_the_default() {
        let cases: [(&str, Variables, Option<u32>); 8] = [
            ("image: bb:1", &[], None),
            ("image: n8nio/n8n:2", &[], Some(10)),
            ("{image: n8nio/n8n, command: [worker, --concurrency=5]}", &[], Some(5)),
            ("{image: n8nio/n8n, command: worker --concurrency 4}", &[], Some(4)),
            (
                "{environment: {N8N_CONCURRENCY_PRODUCTION_LIMIT: '3'}, command: [worker, --concurrency=5]}",
                &[],
                Some(3),
            ),
            ("{image: n8n, environment: {N8N_CONCURRENCY_PRODUCTION_LIMIT: -1}}", &[], Some(10)),
            ("{environment: [N8N_CONCURRENCY_PRODUCTION_LIMIT=2]}", &[], Some(2)),
            ("{image: my/worker}", &[(CONCURRENCY, "7")], Some(7)),
        ];
        for (yaml, running, jobs) in cases {
            assert_eq!(said(yaml, running, 600).0, jobs.map(Fact::Slots), "{yaml}");
        }
    }

    #[test]
    fn the_grace_must_be_longer_than_what_n8n_grants_its_jobs() {
        let set = "{environment: {N8N_GRACEFUL_SHUTDOWN_TIMEOUT: '600'}}";
        assert_eq!(said(set, &[], 601).1, Vec::<String>::new());
        let short = said(set, &[], 600).1.join("; ");
        assert!(short.contains("finish for 10m (N8N_GRACEFUL_SHUTDOWN_TIMEOUT)"), "{short}");
        assert!(short.ends_with("killed after 10m"), "{short}");
        assert_eq!(said("image: n8nio/n8n", &[], 30).1.len(), 1, "n8n's default");
        assert_eq!(said("image: bb:1", &[], 1).1.len(), 0);
        assert_eq!(said("image: bb:1", &[(SHUTDOWN, "90")], 60).1.len(), 1);
    }
}
