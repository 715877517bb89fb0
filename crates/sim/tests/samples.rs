//! The trace in `docs/tuning/` is our own: what a recipe makes.

use std::fmt::Write;
use std::path::Path;

use headcount_sim::Trace;
use headcount_sim::generate::{Arrivals, Recipe, Service};

/// A day: a trickle of jobs, and every half an hour 40 of them within 20 s.
const BURSTS: Recipe = Recipe {
    arrivals: Arrivals::Bursts { rate: 0.01, every: 1800.0, jobs: 40, spread: 20.0 },
    service: Service::LogNormal { median: 10.0, sigma: 1.0 },
    length: 86_400.0,
};

/// The trace as a file, to a tenth of a second.
fn csv(trace: &Trace) -> String {
    let mut text = String::from("t_seconds,service_seconds\n");
    for job in &trace.jobs {
        let (at, service) = (job.at.as_seconds(), job.service.as_seconds().max(0.1));
        writeln!(text, "{at:.1},{service:.1}").expect("text can be written");
    }
    text
}

#[test]
fn the_bursts_are_made_by_their_recipe() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tuning/bursts.csv");
    let text = std::fs::read_to_string(&path).expect("the sample is there");
    let made = csv(&BURSTS.trace(1));
    assert!(text == made, "docs/tuning/bursts.csv is not what its recipe makes");
    assert!(text.len() < 50_000, "{} bytes are a lot for a sample", text.len());
    assert_eq!(Trace::open(&path).expect("it is a trace").jobs.len(), text.lines().count() - 1);
}
