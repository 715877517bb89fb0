//! From what a Windmill database holds to what it means for one worker group.
//!
//! Whoever may hold a job is never called idle: idle is a worker that told of itself within the alive
//! window, on a host of which no worker has a running job or has fallen silent, while no running job
//! of the group's tags is without a worker. A flow whose steps run is marked as running too, but
//! nobody runs it then: it has no ping.

use std::collections::{BTreeMap, HashMap, HashSet};

use headcount_core::reading::{LIST_LIMIT, Occupancies};
use headcount_core::time::span_of_seconds;
use headcount_core::{QueueReading, Span};

use super::era::JOB_PING;
use super::snapshot::{Running, Snapshot, WorkerRow};
use super::tags::Tags;
use crate::queues::{Consumer, Identity, QueueSeen};

/// A job that was just taken may not have a ping yet, seconds.
const JUST_TAKEN: f64 = 15.0;
/// The windows of the occupancy columns, seconds.
const WINDOWS: [f64; 3] = [15.0, 300.0, 1800.0];

/// What a running job says of the worker that took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Held {
    /// Nothing: a flow whose steps run.
    ByNobody,
    /// It may hold it: it has been silent about it.
    Perhaps,
    /// It holds it.
    Surely,
}

/// The part of `snapshot` that is about `group`, which listens to `tags`. Workers are live that told
/// of themselves in the last `alive` seconds. Suspended jobs that may go on count if `resumable`.
pub(super) fn seen(
    snapshot: &Snapshot,
    group: &str,
    tags: &Tags,
    alive: f64,
    resumable: bool,
) -> QueueSeen {
    let mine = |tag: &String| tags.tags.contains(tag);
    let (mut reading, mut counts) = (QueueReading::default(), BTreeMap::new());
    counts.extend(tags.tags.iter().map(|tag| (tag.clone(), 0_u64)));
    let (mut held, mut later) = (0_u64, 0_u64);
    let resumable = snapshot.resumable.iter().filter(|_| resumable);
    for row in snapshot.waiting.iter().chain(resumable).filter(|row| mine(&row.tag)) {
        let count = counts.entry(row.tag.clone()).or_default();
        *count = count.saturating_add(row.waiting);
        reading.waiting = reading.waiting.saturating_add(row.waiting);
        later = later.saturating_add(row.later);
        held = held.saturating_add(row.held);
        reading.oldest_wait = reading.oldest_wait.max(row.oldest.and_then(span));
    }
    (reading.delayed, reading.held) = (Some(later), (held > 0).then_some(held));
    reading.tags = counts;
    reading.occupancy = occupancy(snapshot, group, alive);

    let workers: HashMap<&str, &WorkerRow> =
        snapshot.workers.iter().map(|row| (row.worker.as_str(), row)).collect();
    let worker_of = |job: &Running| workers.get(job.worker.as_deref()?).copied();
    // Whose worker is not known is ours if the tag is.
    let ours = |job: &&Running| match worker_of(job) {
        Some(worker) => worker.group == group,
        None => mine(&job.tag),
    };
    let jobs: Vec<(&Running, Held)> =
        snapshot.running.iter().filter(ours).map(|job| (job, held_by(job, alive))).collect();
    // Nobody has spoken of the job for long, and of its worker nothing is known any more. One that is
    // only silent may well be at work, cut off from the database.
    let is_orphan = |job: &Running| {
        job.ping.is_some_and(|ping| ping > job_window(alive)) && worker_of(job).is_none()
    };
    let mut once = HashSet::new();
    let held_jobs = jobs.iter().filter(|(_, held)| *held != Held::ByNobody).map(|(job, _)| *job);
    let held_jobs = held_jobs.filter(|job| once.insert(job.id.as_str()));
    let (orphans, running): (Vec<&Running>, Vec<_>) = held_jobs.partition(|job| is_orphan(job));
    reading.orphaned = (!orphans.is_empty()).then_some(orphans.len() as u64);
    reading.active = running.len() as u64;
    let mut ages: Vec<Span> = running.iter().filter_map(|job| job.age.and_then(span)).collect();
    ages.sort_unstable_by(|a, b| b.cmp(a));
    ages.truncate(LIST_LIMIT);
    reading.ages = ages;
    QueueSeen { reading, consumers: Some(consumers(snapshot, group, &jobs, alive)) }
}

/// The live workers of a group, without those that an instance left behind when it was restarted.
pub(super) fn live<'a>(
    snapshot: &'a Snapshot,
    group: &'a str,
    alive: f64,
) -> impl Iterator<Item = &'a WorkerRow> {
    snapshot.workers_of(group).filter(move |worker| worker.ping <= alive)
}

fn consumers(
    snapshot: &Snapshot,
    group: &str,
    jobs: &[(&Running, Held)],
    alive: f64,
) -> Vec<Consumer> {
    let mut of_worker: HashMap<&str, (Held, Option<Span>)> = HashMap::new();
    for (job, held) in jobs {
        let Some(name) = job.worker.as_deref() else { continue };
        let (most, oldest) = of_worker.entry(name).or_insert((Held::ByNobody, None));
        *most = (*most).max(*held);
        if *held != Held::ByNobody {
            *oldest = (*oldest).max(job.age.and_then(span));
        }
    }
    // Somebody has it, and nobody knows who.
    let unplaced = jobs.iter().any(|(job, held)| job.worker.is_none() && *held != Held::ByNobody);
    let mut instances: BTreeMap<&str, Vec<&WorkerRow>> = BTreeMap::new();
    for worker in snapshot.workers_of(group) {
        instances.entry(&worker.instance).or_default().push(worker);
    }
    let one = |(instance, workers): (&str, Vec<&WorkerRow>)| {
        let held = workers.iter().filter_map(|worker| of_worker.get(worker.worker.as_str()));
        let most = held.clone().map(|(held, _)| *held).max().unwrap_or(Held::ByNobody);
        let silent = workers.iter().any(|w| w.ping > alive && !was_replaced(w, &workers));
        Consumer {
            known_as: names(instance),
            busy: match most {
                Held::Surely => Some(true),
                Held::ByNobody if !silent && !unplaced => Some(false),
                _ => None,
            },
            oldest_job: held.filter_map(|(_, age)| *age).max(),
            draining: false,
            consuming: Some(workers.iter().any(|worker| worker.ping <= alive)),
        }
    };
    instances.into_iter().map(one).collect()
}

/// Whether a worker of the same host was started after this one's last word: the host was restarted.
fn was_replaced(silent: &WorkerRow, of_instance: &[&WorkerRow]) -> bool {
    of_instance.iter().any(|other| other.up < silent.ping)
}

/// A container without a name of its own is called by the first digits of its id.
fn names(instance: &str) -> Vec<Identity> {
    let mut names = vec![Identity::Hostname(instance.into()), Identity::Name(instance.into())];
    let is_id = instance.len() >= 12 && instance.bytes().all(|b| b.is_ascii_hexdigit());
    names.extend(is_id.then(|| Identity::Container(instance.into())));
    names
}

fn held_by(job: &Running, alive: f64) -> Held {
    match (job.known, job.ping) {
        // Without the row that tells of it, it must be believed.
        (false, _) => Held::Surely,
        (true, Some(ping)) if ping <= job_window(alive) => Held::Surely,
        (true, Some(_)) => Held::Perhaps,
        (true, None) if job.age.is_none_or(|age| age <= JUST_TAKEN) => Held::Perhaps,
        (true, None) => Held::ByNobody,
    }
}

/// Workers that are quiet tell less often of their jobs too.
fn job_window(alive: f64) -> f64 {
    alive.max(JOB_PING.into())
}

/// The means of the occupancy columns over the live workers, percent. A window in which a worker has
/// not run for long enough says nothing of it, whatever is written there; neither does an agent's
/// plain zero, which stands for "not known" too.
fn occupancy(snapshot: &Snapshot, group: &str, alive: f64) -> Option<Occupancies> {
    let mean = |index: usize| {
        let known = |worker: &WorkerRow| {
            let rate = worker.rates[index].filter(|rate| rate.is_finite())?;
            let is_agents_zero = worker.worker.starts_with("ag-") && rate == 0.0;
            (worker.up >= WINDOWS[index] && !is_agents_zero).then(|| rate.clamp(0.0, 1.0))
        };
        let rates: Vec<f64> = live(snapshot, group, alive).filter_map(known).collect();
        let sum: f64 = rates.iter().sum();
        (!rates.is_empty()).then(|| 100.0 * sum / rates.len() as f64)
    };
    // Without any column there is nothing that Windmill measured.
    snapshot.era.occupancy.then(|| Occupancies { s15: mean(0), m5: mean(1), m30: mean(2) })
}

fn span(seconds: f64) -> Option<Span> {
    span_of_seconds(seconds.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::windmill::era::Era;
    use crate::queues::windmill::snapshot::Waiting;

    const ALIVE: f64 = 30.0;

    fn worker(name: &str, instance: &str, ping: f64) -> WorkerRow {
        WorkerRow {
            worker: name.into(),
            instance: instance.into(),
            group: "default".into(),
            ping,
            up: 10_000.0,
            ..WorkerRow::default()
        }
    }

    fn job(worker: Option<&str>, known: bool, age: f64, ping: Option<f64>) -> Running {
        let (tag, worker) = ("a".to_owned(), worker.map(str::to_owned));
        Running { id: age.to_string(), tag, worker, known, age: Some(age), ping }
    }

    fn look(snapshot: &Snapshot) -> QueueSeen {
        let given = ["a".to_owned(), "b".to_owned()];
        let tags = Tags::of(snapshot, "default", &given, ALIVE).unwrap();
        seen(snapshot, "default", &tags, ALIVE, true)
    }

    #[test]
    fn only_who_is_surely_idle_is_called_idle() {
        let live = || vec![worker("w1", "h1", 1.0)];
        let (yes, no, unsure) = (Some(true), Some(false), None);
        let table = [
            ("nothing runs", live(), vec![], no),
            ("it runs a job", live(), vec![job(Some("w1"), true, 100.0, Some(3.0))], yes),
            ("its ping is old", live(), vec![job(Some("w1"), true, 100.0, Some(61.0))], unsure),
            ("a flow whose steps run", live(), vec![job(Some("w1"), true, 100.0, None)], no),
            ("just taken, no ping yet", live(), vec![job(Some("w1"), true, 1.0, None)], unsure),
            ("no runtime row", live(), vec![job(Some("w1"), false, 100.0, None)], yes),
            ("a job of nobody", live(), vec![job(None, true, 100.0, Some(1.0))], unsure),
            ("another's job", live(), vec![job(Some("w9"), true, 100.0, Some(1.0))], no),
            ("silent", vec![worker("w1", "h1", 31.0)], vec![], unsure),
            (
                "silent with a job",
                vec![worker("w1", "h1", 31.0)],
                vec![job(Some("w1"), true, 100.0, Some(31.0))],
                yes,
            ),
            (
                "one of two is silent",
                vec![worker("w1", "h1", 1.0), worker("w2", "h1", 31.0)],
                vec![],
                unsure,
            ),
            (
                "replaced after a restart",
                vec![WorkerRow { up: 20.0, ..worker("w1", "h1", 1.0) }, worker("w2", "h1", 31.0)],
                vec![],
                no,
            ),
            (
                "one of two is busy",
                vec![worker("w1", "h1", 1.0), worker("w2", "h1", 1.0)],
                vec![job(Some("w2"), true, 9.0, Some(1.0))],
                yes,
            ),
        ];
        for (name, workers, running, expected) in table {
            let snapshot = Snapshot { workers, running, ..Snapshot::default() };
            let consumers = look(&snapshot).consumers.unwrap();
            assert_eq!(consumers.len(), 1, "{name}");
            assert_eq!(consumers[0].busy, expected, "{name}");
        }
    }

    #[test]
    fn a_job_belongs_to_the_group_of_its_worker_whatever_its_tag() {
        let other = WorkerRow { group: "other".into(), ..worker("o1", "h2", 1.0) };
        let elsewhere = Running { tag: "z".into(), ..job(Some("w1"), true, 50.0, Some(1.0)) };
        let snapshot = Snapshot {
            workers: vec![worker("w1", "h1", 1.0), other],
            running: vec![
                elsewhere,
                job(Some("o1"), true, 40.0, Some(1.0)),
                job(Some("gone"), true, 30.0, Some(1.0)),
                job(Some("gone"), true, 300.0, Some(100.0)),
            ],
            ..Snapshot::default()
        };
        let seen = look(&snapshot);
        assert_eq!((seen.reading.active, seen.reading.orphaned), (2, Some(1)));
        assert_eq!(seen.reading.ages, [Span::from_secs(50), Span::from_secs(30)]);
        let consumers = seen.consumers.unwrap();
        assert_eq!(consumers[0].oldest_job, Some(Span::from_secs(50)));
    }

    #[test]
    fn a_silent_worker_may_still_hold_its_job() {
        let snapshot = Snapshot {
            workers: vec![worker("w1", "h1", 80.0)],
            running: vec![job(Some("w1"), true, 900.0, Some(80.0))],
            ..Snapshot::default()
        };
        let seen = look(&snapshot);
        assert_eq!((seen.reading.active, seen.reading.orphaned), (1, None));
        assert_eq!(seen.consumers.unwrap()[0].busy, None);
    }

    #[test]
    fn a_job_that_two_may_run_is_one_job_and_neither_is_idle() {
        let snapshot = Snapshot {
            workers: vec![worker("w1", "h1", 1.0), worker("w2", "h2", 1.0)],
            running: ["w1", "w2"].map(|name| job(Some(name), true, 9.0, Some(1.0))).into(),
            ..Snapshot::default()
        };
        let seen = look(&snapshot);
        assert_eq!((seen.reading.active, seen.reading.ages.len()), (1, 1));
        assert!(seen.consumers.unwrap().iter().all(|consumer| consumer.busy == Some(true)));
    }

    #[test]
    fn each_tag_of_the_group_is_counted_and_no_other() {
        let tag = |tag: &str, waiting, held, later, oldest| Waiting {
            tag: tag.into(),
            waiting,
            held,
            later,
            oldest,
        };
        let mut snapshot = Snapshot {
            waiting: vec![tag("a", 5, 2, 3, Some(40.0)), tag("z", 9, 9, 9, Some(900.0))],
            resumable: vec![tag("a", 1, 0, 0, None)],
            ..Snapshot::default()
        };
        let reading = look(&snapshot).reading;
        assert_eq!((reading.waiting, reading.held, reading.delayed), (6, Some(2), Some(3)));
        assert_eq!(reading.tags, [("a".into(), 6), ("b".into(), 0)].into());
        assert_eq!(reading.oldest_wait, Some(Span::from_secs(40)));
        snapshot.waiting.clear();
        snapshot.resumable.clear();
        let reading = look(&snapshot).reading;
        assert_eq!((reading.waiting, reading.held, reading.oldest_wait), (0, None, None));
        assert_eq!(reading.tags.values().sum::<u64>(), 0);
        assert_eq!(reading.occupancy, None);
    }

    #[test]
    fn occupancy_is_the_mean_of_those_who_know_theirs() {
        let rated = |name: &str, up, rates| WorkerRow { up, rates, ..worker(name, name, 1.0) };
        let workers = vec![
            rated("w1", 10_000.0, [Some(0.5), Some(0.4), Some(0.3)]),
            rated("w2", 400.0, [Some(1.2), Some(0.8), None]),
            // Before 1.629 a fresh worker says that it was always busy.
            rated("w3", 10.0, [Some(1.0), Some(1.0), Some(1.0)]),
            // An agent's zero may stand for "not known".
            rated("ag-1", 10_000.0, [Some(0.0), Some(0.0), Some(0.0)]),
            WorkerRow { ping: 31.0, ..rated("w4", 10_000.0, [Some(0.0); 3]) },
        ];
        let era = Era { occupancy: true, ..Era::default() };
        let mut snapshot = Snapshot { era, workers, ..Snapshot::default() };
        let known = look(&snapshot).reading.occupancy.unwrap();
        let near = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-9;
        assert!(
            near(known.s15, 75.0) && near(known.m5, 60.0) && near(known.m30, 30.0),
            "{known:?}"
        );
        snapshot.workers.retain(|worker| worker.up < 15.0);
        assert_eq!(look(&snapshot).reading.occupancy, Some(Occupancies::default()));
    }

    #[test]
    fn a_host_name_that_may_be_a_container_is_one_too() {
        let id = "0123456789ab";
        assert!(names(id).contains(&Identity::Container(id.into())));
        assert_eq!(names("windmill-workers-default-7d9f-x2x").len(), 2);
    }
}
