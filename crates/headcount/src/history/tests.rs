//! A known past, recorded as a daemon records it, and what is made of it again.

use headcount_core::policy::Policy;
use headcount_core::policy::slo::Slo;
use headcount_core::{Decision, Kind, Observation, Reading, Rule, Rules};
use headcount_sim::autoscaler::{Autoscaler, Core, Victims};
use headcount_sim::generate::{Arrivals, Recipe, Service};
use headcount_sim::{Score, WorldRules, in_world, run, run_with};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

use super::*;
use crate::queues::Finished;
use crate::store::{Counts, Look};

/// Longer than the world's time is ago: nothing of it counts as old.
const KEEP_DAYS: u32 = 36_500;

/// Decides as the core does, and keeps what it sees as a daemon does.
struct Recorder<'a> {
    core: Core,
    store: &'a Store,
    /// Changes what is recorded.
    edit: fn(&mut Observation),
    looks: usize,
}

impl Autoscaler for Recorder<'_> {
    fn name(&self) -> &str {
        self.core.name()
    }

    fn poll(&self) -> Span {
        self.core.poll()
    }

    fn victims(&self) -> Victims {
        self.core.victims()
    }

    fn wanted(&mut self, seen: &Observation) -> Option<u32> {
        let mut told = seen.clone();
        (self.edit)(&mut told);
        self.store.record("g", false, false, &told, &hold(seen.t), &State::default());
        self.looks += 1;
        if self.looks.is_multiple_of(1000) {
            self.store.flush();
        }
        self.core.wanted(seen)
    }
}

fn hold(t: Timestamp) -> Decision {
    Decision {
        t,
        current: Some(1),
        policy_wanted: Some(1),
        wanted: Some(1),
        kind: Kind::Hold,
        rule: Rule::Steady,
        reason: String::new(),
        trail: Vec::new(),
        victims: Vec::new(),
        look_again: None,
    }
}

fn rules(poll: Span) -> Rules {
    let slo = Slo { max_wait: Some(Span::from_secs(60)), poll, ..Slo::default() };
    let mut rules = Rules { policy: Policy::Slo(slo), ..Rules::default() };
    (rules.workers.min, rules.workers.max) = (0, 40);
    rules
}

/// Runs `trace` and keeps what was seen.
fn recorded(trace: &Trace, poll: Span, store: &Store, edit: fn(&mut Observation)) -> Score {
    let world = WorldRules::default();
    let core = Core::new(in_world(&rules(poll), &world, trace));
    let mut recorder = Recorder { core, store, edit, looks: 0 };
    run_with(trace, &mut recorder, &world, 1).unwrap()
}

fn near(what: &str, got: f64, truth: f64, share: f64) {
    let off = got / truth - 1.0;
    assert!(off.abs() <= share, "{what}: {got:.3} instead of {truth:.3} ({:+.2} %)", off * 100.0);
}

const SHORT: Service = Service::LogNormal { median: 10.0, sigma: 1.0 };

fn jobs_of(arrivals: Arrivals, service: Service, hours: f64) -> Trace {
    Recipe { arrivals, service, length: hours * 3600.0 }.trace(7)
}

/// Jobs within 0.5 %, work within 1 % and three times what is told; under the same policy the p95
/// wait within 6 s, a look and a second, and the cost within 2 % or as the work.
#[test]
fn what_was_recorded_gives_the_jobs_back() {
    let bursts = Arrivals::Bursts { rate: 0.02, every: 900.0, jobs: 40, spread: 10.0 };
    for (name, truth) in [
        ("poisson", jobs_of(Arrivals::Poisson { rate: 0.2 }, SHORT, 6.0)),
        ("bursts", jobs_of(bursts, SHORT, 6.0)),
        ("cron", jobs_of(Arrivals::Cron { jobs: 6 }, SHORT, 6.0)),
        ("tiny", jobs_of(Arrivals::Poisson { rate: 0.5 }, Service::Exponential { mean: 0.5 }, 6.0)),
    ] {
        for poll in [1, 5] {
            let name = format!("{name} at {poll} s");
            let (folder, poll) = (tempfile::tempdir().unwrap(), Span::from_secs(poll));
            let store = Store::open(folder.path(), KEEP_DAYS);
            let past = recorded(&truth, poll, &store, |_| {});
            let History { trace, known } = read(&store, "g", None).unwrap();
            assert_eq!((known.gaps, known.counted, known.exact), (0, true, 0), "{name}");
            assert!(known.error <= poll, "{name}: {known}");
            near(&name, trace.jobs.len() as f64, truth.jobs.len() as f64, 0.005);
            let work_error = 0.01_f64.max(3.0 * known.work_error);
            assert!(work_error < 0.1, "{name}: {known}");
            near(&name, trace.work().as_hours(), truth.work().as_hours(), work_error);
            let again = run(&trace, &rules(poll), &WorldRules::default(), 1).unwrap();
            near(&name, again.worker_hours, past.worker_hours, work_error.max(0.02));
            let (p95, was) = (again.waits.p95, past.waits.p95);
            assert!((p95 - was).abs() <= 6.0, "{name}: p95 {p95} s instead of {was} s");
        }
    }
}

#[test]
fn a_source_that_counts_no_finished_jobs_loses_only_those_between_looks() {
    let truth = jobs_of(Arrivals::Poisson { rate: 0.2 }, SHORT, 6.0);
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), KEEP_DAYS);
    recorded(&truth, Span::from_secs(5), &store, |seen| {
        let Reading::Known { value, .. } = &mut seen.queue else { return };
        (value.finished_total, value.oldest_wait) = (None, None);
    });
    let History { trace, known } = read(&store, "g", None).unwrap();
    assert!(!known.counted);
    near("work", trace.work().as_hours(), truth.work().as_hours(), 0.02);
    let share = trace.jobs.len() as f64 / truth.jobs.len() as f64;
    assert!((0.3..0.9).contains(&share), "one job may hide another: {share}");
}

/// When so many workers would have done these jobs, in the order of their end.
fn done_by(workers: usize, trace: &Trace, since: Timestamp) -> Vec<Finished> {
    let mut free = vec![0; workers];
    let mut done: Vec<Finished> = Vec::new();
    for job in &trace.jobs {
        let came = job.at.as_micros() / 1000;
        let worker = free.iter_mut().min().unwrap();
        let started = came.max(*worker);
        *worker = started + job.service.as_micros() / 1000;
        let at = |ms: u64| since.plus(Span::from_millis(ms as i64));
        done.push(Finished { came: at(came), started: at(started), ended: at(*worker) });
    }
    done.sort_by_key(|job| job.ended);
    done
}

/// What looks at these jobs show.
fn looks_at(jobs: &[Finished], from: Timestamp, every: Span, count: i64) -> Vec<Look> {
    let seen = |n| {
        let t = from.plus(every * n);
        let here = |job: &&Finished| job.came <= t && job.ended > t;
        let waits = jobs.iter().filter(here).filter(|job| job.started > t);
        let counts = Counts {
            waiting: waits.clone().count() as u64,
            active: jobs.iter().filter(here).filter(|job| job.started <= t).count() as u64,
            oldest: waits.map(|job| t.since(job.came)).max(),
            finished: Some(jobs.iter().filter(|job| job.ended <= t).count() as u64),
        };
        Look { t, queue: Some(counts) }
    };
    (0..count).map(|n| seen(i32::try_from(n).unwrap())).collect()
}

#[test]
fn jobs_that_were_told_of_one_by_one_are_exact_and_only_the_others_are_inferred() {
    let truth = jobs_of(Arrivals::Poisson { rate: 0.2 }, SHORT, 1.0);
    let start = Timestamp::from_millis(1_793_024_000_000);
    let done = done_by(5, &truth, start);
    let looks = looks_at(&done, start, Span::from_secs(5), 900);
    let History { trace, known } = curves::reconstruct(&looks, done.clone());
    assert_eq!((known.jobs, known.exact), (truth.jobs.len(), truth.jobs.len()));
    let milli = |trace: &Trace| -> Vec<(u64, u64)> {
        trace.jobs.iter().map(|j| (j.at.as_micros() / 1000, j.service.as_micros() / 1000)).collect()
    };
    assert_eq!(milli(&trace), milli(&truth));
    assert!(known.to_string().ends_with("known; jobs seen one by one"), "{known}");

    let some: Vec<_> = done.iter().copied().enumerate().filter(|(n, _)| n % 10 > 0).collect();
    let some: Vec<_> = some.into_iter().map(|(_, job)| job).collect();
    let told = some.len();
    let History { trace, known } = curves::reconstruct(&looks, some);
    assert_eq!((known.jobs, known.exact), (truth.jobs.len(), told));
    near("work", trace.work().as_hours(), truth.work().as_hours(), 0.01);
    assert!(known.to_string().contains("known; 90 % of the jobs seen one by one"), "{known}");
}

fn look(at: i64, counts: Option<(u64, u64, u64)>) -> Look {
    let queue = counts.map(|(waiting, active, finished)| Counts {
        waiting,
        active,
        oldest: None,
        finished: Some(finished),
    });
    Look { t: Timestamp::from_millis(at * 1000), queue }
}

/// Seconds of arrival and service, and what is known.
fn jobs(looks: &[Look], finished: Vec<Finished>) -> (Vec<(f64, f64)>, Knowledge) {
    let History { trace, known } = curves::reconstruct(looks, finished);
    let jobs = trace.jobs.iter().map(|j| (j.at.as_seconds(), j.service.as_seconds()));
    (jobs.collect(), known)
}

#[test]
fn silence_is_left_out_and_told() {
    let idle = |from: i64, to: i64| (from..to).step_by(5).map(|at| look(at, Some((0, 0, 7))));
    // A job of 20 s, then an hour of which nothing is known, and a minute without an answer; the
    // job that runs meanwhile is cut in two.
    let mut looks: Vec<Look> = idle(0, 100).collect();
    looks.extend((100..120).step_by(5).map(|at| look(at, Some((0, 1, 7)))));
    looks.extend((120..200).step_by(5).map(|at| look(at, Some((0, 0, 8)))));
    looks.push(look(200, Some((0, 1, 8))));
    looks.push(look(3800, Some((0, 1, 8))));
    looks.push(look(3805, Some((0, 0, 9))));
    looks.push(look(3810, None));
    looks.push(look(3870, Some((0, 0, 9))));
    looks.push(look(3875, Some((0, 0, 9))));
    let (found, known) = jobs(&looks, Vec::new());
    assert_eq!(found, [(97.5, 20.0), (197.5, 2.5), (200.0, 2.5)]);
    assert_eq!((known.gaps, known.longest_gap), (2, Span::from_hours(1)));
    assert_eq!(known.covered, Span::from_secs(200 + 5 + 5));
    let line = known.to_string();
    let said = "1 h 4 min of history, 5 % of it known (2 gaps are left out, the longest 1 h); jobs \
                inferred from counts, their arrivals to about 1.7 s, the work to about 16 %";
    assert_eq!(line, said);

    // What is told of a job that came in the gap and was still there after it; another was not.
    let at = |s: i64| Timestamp::from_millis(s * 1000);
    let job = |came, ended| Finished { came: at(came), started: at(came), ended: at(ended) };
    let (found, known) = jobs(&looks, vec![job(1000, 1100), job(3700, 3804)]);
    assert_eq!(found[2], (200.0, 104.0));
    assert_eq!((found.len(), known.exact), (3, 1));
}

#[test]
fn counts_that_start_anew_or_dip_make_no_jobs() {
    // The count of finished jobs starts anew, as after the loss of Redis.
    let anew = [(0, 0, 50), (0, 0, 52), (0, 0, 0), (0, 0, 1)];
    // Both waiting jobs are hidden for a while, as in a paused queue; then they run.
    let dip = [(2, 0, 0), (0, 0, 0), (2, 0, 0), (0, 2, 0), (0, 0, 2)];
    // One look saw nonsense.
    let odd = [(0, 0, 0), (u64::MAX, 0, 0), (0, 0, 0), (0, 1, 0), (0, 0, 1)];
    for (counts, expected) in [(&anew[..], 3), (&dip, 2), (&odd, 1)] {
        let looks = counts.iter().zip(0..).map(|(counts, n)| look(5 * n, Some(*counts)));
        let (found, _) = jobs(&looks.collect::<Vec<_>>(), Vec::new());
        assert_eq!(found.len(), expected, "{found:?}");
    }
}

#[test]
fn of_a_waiting_job_it_is_known_when_it_came() {
    let waits = |at: i64, waiting, active, finished, oldest: i64| {
        let mut look = look(at, Some((waiting, active, finished)));
        look.queue.as_mut().unwrap().oldest = Some(Span::from_secs(oldest));
        look
    };
    // Three came between 0 and 5 s; the oldest at 1 s, the second at 1 s too, the third at 3 s.
    let looks = [
        look(0, Some((0, 1, 0))),
        waits(5, 3, 1, 0, 4),
        waits(10, 2, 1, 1, 9),
        waits(15, 1, 1, 2, 12),
        look(20, Some((0, 1, 3))),
        look(25, Some((0, 0, 4))),
    ];
    let (found, _) = jobs(&looks, Vec::new());
    let came: Vec<f64> = found.iter().map(|(at, _)| *at).collect();
    assert_eq!(came, [0.0, 1.0, 1.0, 3.0]);
}

#[test]
fn nothing_recorded_is_no_history() {
    for looks in [&[][..], &[look(0, None)], &[look(0, Some((0, 0, 4)))]] {
        let (found, known) = jobs(looks, Vec::new());
        assert_eq!((found.len(), known.gaps, known.covered), (0, 0, Span::ZERO));
    }
}

proptest! {
    #[test]
    fn whatever_was_recorded_is_a_trace(
        looks in vec((1..60_i64, option::of((0..50_u64, 0..50_u64, 0..90_u64, 0..900_i64))), 0..60),
        ends in vec((0..2000_i64, -50..50_i64, -50..50_i64), 0..40),
    ) {
        let mut at = 0;
        let looks: Vec<Look> = looks.into_iter().map(|(later, counts)| {
            at += later;
            let mut look = look(at, counts.map(|(w, a, f, _)| (w, a, f)));
            if let Some((queue, (_, _, _, oldest))) = look.queue.as_mut().zip(counts) {
                queue.oldest = Some(Span::from_secs(oldest));
            }
            look
        }).collect();
        let t = |s: i64| Timestamp::from_millis(s * 1000);
        let mut done: Vec<Finished> = ends.into_iter().map(|(ended, run, wait)| {
            Finished { came: t(ended - run - wait), started: t(ended - run), ended: t(ended) }
        }).collect();
        done.sort_by_key(|job| job.ended);
        let History { trace, known } = curves::reconstruct(&looks, done);
        prop_assert!(trace.jobs.is_sorted_by_key(|job| job.at));
        prop_assert!(trace.jobs.iter().all(|job| job.service.as_micros() > 0));
        prop_assert_eq!(known.jobs, trace.jobs.len());
        prop_assert!(known.exact <= known.jobs && known.covered <= known.span());
        prop_assert!(trace.jobs.iter().all(|job| job.at.as_span() <= known.covered));
    }
}
