//! Jobs from counts. How many jobs have come, started and finished by a time are three curves, known
//! at each look. Taken in the order of arrival, job n came, started and finished where they pass n;
//! so the work of all jobs together is the area under the running ones, as it was seen.

use headcount_core::{Span, Timestamp, time};
use headcount_sim::trace::MOST_JOBS;
use headcount_sim::{Job, Moment, Trace};

use super::{History, Knowledge};
use crate::queues::Finished;
use crate::store::{Counts, Look};

/// Between two samples at most this passes while a daemon looks every few seconds, ms.
const LEAST_GAP: i64 = 30_000;
/// Where looks are rarer, a gap is so many times their usual distance.
const GAP: i64 = 4;
/// Samples this far apart or more, ms, have looks between them that showed nothing new.
const QUIET: i64 = 9_500;
/// Jobs shorter than so many times the distance of looks cannot be told from each other.
const RESOLUTION: f64 = 2.0;
/// So many neighbours of those share their work equally.
const SHARED: usize = 400;
/// The shortest job, s: what is not seen to run takes some time all the same.
const LEAST: f64 = 0.001;

/// More jobs at once, or finished between two looks, are not believed.
const MOST_AT_ONCE: u64 = 1_000_000;
/// A job that took longer, ms, is not believed.
const LONGEST: i64 = 366 * 86_400_000;

/// A look at which the queue answered; time in ms.
type Seen = (i64, Counts);

/// A time of which everything is known: looks without a gap between them.
struct Stretch<'a> {
    looks: &'a [Seen],
    /// How far two looks are apart that have none between them, at the most, ms.
    step: i64,
}

/// How many jobs have passed at each look; never falls.
struct Curve(Vec<u64>);

/// A job; seconds since the start of its stretch.
struct Placed {
    at: f64,
    service: f64,
}

/// The jobs that the source told of one by one, with times in ms, each list in order.
#[derive(Default)]
struct Exact {
    jobs: Vec<(i64, i64, i64)>,
    came: Vec<i64>,
    started: Vec<i64>,
    ended: Vec<i64>,
}

/// The history that these looks and these jobs, in the order of their end, show.
pub(super) fn reconstruct(looks: &[Look], finished: Vec<Finished>) -> History {
    let step = usual_step(looks);
    let gap = typical(distances(looks))
        .map_or(LEAST_GAP, |usual| LEAST_GAP.max(usual.saturating_mul(GAP)));
    let (seen, exact) = (stretches(looks, gap), Exact::new(finished));
    let mut known = Knowledge { counted: true, ..Knowledge::default() };
    let (mut jobs, mut offsets, mut doubt, mut variance) = (Vec::new(), Vec::new(), 0.0, 0.0);
    for looks in &seen {
        let stretch = Stretch { looks, step };
        let offset = time::seconds(known.covered);
        let (inferred, unsure) = stretch.jobs(&exact);
        let room = MOST_JOBS.saturating_sub(jobs.len());
        jobs.extend(inferred.iter().filter_map(|job| job.in_trace(offset)).take(room));
        offsets.push(offset);
        doubt += unsure;
        variance += inferred.iter().map(|job| stretch.variance(job.service)).sum::<f64>();
        known.looks += looks.len();
        known.covered += Span::from_millis(stretch.last() - stretch.first());
        known.counted &= looks[0].1.finished.is_some();
    }
    let inferred = jobs.len();
    let told = exact.jobs.iter().filter_map(|job| told(*job, &seen, &offsets));
    jobs.extend(told.filter_map(|(offset, job)| job.in_trace(offset)).take(MOST_JOBS - inferred));
    jobs.sort_by_key(|job| job.at);
    (known.jobs, known.exact) = (jobs.len(), jobs.len() - inferred);
    known.error = time::span_of_seconds(doubt / inferred.max(1) as f64).unwrap_or_default();
    known.bound(&seen);
    let trace = Trace { jobs, classes: Vec::new() };
    known.work_error = variance.sqrt() / trace.work().as_seconds().max(LEAST);
    History { trace, known }
}

impl Knowledge {
    /// Notes the ends of the time, and the gaps in it.
    fn bound(&mut self, seen: &[Vec<Seen>]) {
        let ends = |looks: &Vec<Seen>| (looks[0].0, looks[looks.len() - 1].0);
        let Some((first, last)) = seen.first().map(ends).zip(seen.last().map(ends)) else { return };
        self.from = Some(Timestamp::from_millis(first.0));
        self.to = Some(Timestamp::from_millis(last.1));
        self.gaps = seen.len() - 1;
        let gaps = seen.windows(2).map(|pair| ends(&pair[1]).0 - ends(&pair[0]).1);
        self.longest_gap = Span::from_millis(gaps.max().unwrap_or(0));
    }
}

/// Where a job that was told of comes in the trace: in the stretch of its arrival; at the start of
/// the next one if it came before that and was still there.
fn told(job: (i64, i64, i64), seen: &[Vec<Seen>], offsets: &[f64]) -> Option<(f64, Placed)> {
    let (came, started, ended) = job;
    let number = seen.partition_point(|looks| looks[looks.len() - 1].0 < came);
    let start = seen.get(number)?[0].0;
    let at = seconds(came.max(start) - start);
    let service = seconds(ended - started).max(LEAST);
    let credible = ended.saturating_sub(started) <= LONGEST;
    (credible && ended > start).then_some((offsets[number], Placed { at, service }))
}

fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

/// Times between neighbouring samples, ms.
fn distances(looks: &[Look]) -> impl Iterator<Item = i64> {
    looks.windows(2).map(|pair| (pair[1].t.since(pair[0].t)).as_millis() as i64)
}

fn typical(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut values: Vec<i64> = values.collect();
    let middle = values.len() / 2;
    (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
}

/// How far looks are apart: as far as samples that are close enough to have none between them.
fn usual_step(looks: &[Look]) -> i64 {
    typical(distances(looks).filter(|ms| *ms < QUIET)).unwrap_or(i64::MAX)
}

/// Splits the looks where one is missing or the count of finished jobs starts anew.
fn stretches(looks: &[Look], gap: i64) -> Vec<Vec<Seen>> {
    let mut found: Vec<Vec<Seen>> = Vec::new();
    let mut whole = false;
    for look in looks {
        let credible = |c: &Counts| c.waiting.saturating_add(c.active) <= MOST_AT_ONCE;
        let Some(counts) = look.queue.filter(credible) else {
            whole = false;
            continue;
        };
        let at = look.t.as_millis();
        let goes_on = |(then, before): &Seen| {
            let counts_on = match (before.finished, counts.finished) {
                (Some(before), Some(now)) => before <= now && now - before <= MOST_AT_ONCE,
                (before, now) => before.is_some() == now.is_some(),
            };
            at.saturating_sub(*then) <= gap && counts_on
        };
        match found.last_mut() {
            Some(stretch) if whole && stretch.last().is_some_and(goes_on) => {
                stretch.push((at, counts));
            }
            _ => found.push(vec![(at, counts)]),
        }
        whole = true;
    }
    found
}

impl Stretch<'_> {
    fn first(&self) -> i64 {
        self.looks[0].0
    }

    fn last(&self) -> i64 {
        self.looks[self.looks.len() - 1].0
    }

    /// The jobs that nobody told of one by one, and the sum of how far their arrivals may be off, s.
    fn jobs(&self, exact: &Exact) -> (Vec<Placed>, f64) {
        // Those that were told of are taken off the counts.
        let gone = Exact::until(&exact.ended, self.first());
        let some = Exact::until(&exact.came, self.last()) > gone;
        let finished = self.finished();
        let of = |count: fn(&Counts) -> u64, told: &[i64]| {
            let all = finished.iter().zip(self.looks).map(|(finished, (at, counts))| {
                let told = Exact::until(told, *at).saturating_sub(gone);
                finished.saturating_add(count(counts)).saturating_sub(told)
            });
            Curve::new(all.collect())
        };
        let came = of(|c| c.waiting.saturating_add(c.active), &exact.came);
        let started = of(|c| c.active, &exact.started);
        let ended = of(|_| 0, &exact.ended);
        let (arrivals, doubt) = self.arrivals(&came, &started, !some);
        let starts = self.passes(&started);
        let mut ends = self.passes(&ended);
        // What still runs at the end is cut off there.
        ends.resize(starts.len(), self.end());
        let services = starts.iter().zip(&ends).map(|(start, end)| (end - start).max(0.0));
        let services = shared(services.collect(), RESOLUTION * self.apart());
        // What still waits at the end is not known; if there is more, it comes again there.
        let jobs = arrivals.into_iter().zip(services);
        (jobs.map(|(at, service)| Placed { at, service }).collect(), doubt)
    }

    /// Jobs finished since the first look; where the source does not count them, those that are no
    /// longer there.
    fn finished(&self) -> Vec<u64> {
        let here = |c: &Counts| c.waiting.saturating_add(c.active);
        let (mut total, mut before) = (0_u64, here(&self.looks[0].1));
        let start = self.looks[0].1.finished.unwrap_or(0);
        let count = |(_, counts): &Seen| {
            total = total.saturating_add(before.saturating_sub(here(counts)));
            before = here(counts);
            counts.finished.map_or(total, |finished| finished - start)
        };
        self.looks.iter().map(count).collect()
    }

    fn end(&self) -> f64 {
        seconds(self.last() - self.first())
    }

    fn since_start(&self, look: usize) -> f64 {
        seconds(self.looks[look].0 - self.first())
    }

    /// How far two looks are apart, s.
    fn apart(&self) -> f64 {
        let mean = self.end() / (self.looks.len() - 1).max(1) as f64;
        if self.step == i64::MAX { mean } else { seconds(self.step) }
    }

    /// Variance of a job's length, s, as looks at random times show it: one that is shorter than
    /// they are apart is seen by one with that chance, and then counts as so long; of a longer one
    /// both ends are somewhere between two looks.
    fn variance(&self, service: f64) -> f64 {
        let apart = self.apart();
        if service < apart { service * (apart - service) } else { apart * apart / 6.0 }
    }

    /// When something may have happened that the look `look` was the first to show, s.
    fn window(&self, look: usize) -> (f64, f64) {
        let (before, at) = (self.looks[look - 1].0, self.looks[look].0);
        let from = before.max(at.saturating_sub(self.step));
        (seconds(from - self.first()), seconds(at - self.first()))
    }

    /// When a curve passes each job: evenly between two looks.
    fn passes(&self, curve: &Curve) -> Vec<f64> {
        let mut times = vec![0.0; curve.0[0] as usize];
        for look in 1..self.looks.len() {
            let (from, to) = self.window(look);
            spread(&mut times, curve.rise(look), from, to);
        }
        times
    }

    /// When jobs came: evenly between two looks, and exactly where a look tells how long the oldest
    /// one has waited, if that is one of these jobs (`oldest`). Also the sum of how far they may be
    /// off, s.
    fn arrivals(&self, came: &Curve, started: &Curve, oldest: bool) -> (Vec<f64>, f64) {
        let (mut times, mut doubt) = (vec![0.0; came.0[0] as usize], 0.0);
        // The oldest that waits is the first that has not started.
        let looks = if oldest { self.looks.len() } else { 0 };
        let told = (0..looks).filter_map(|look| {
            let wait = self.looks[look].1.oldest?.as_secs_f64();
            (came.0[look] > started.0[look])
                .then(|| (started.0[look] as usize, self.since_start(look) - wait))
        });
        let mut told = told.peekable();
        for look in 1..self.looks.len() {
            let (mut from, to) = self.window(look);
            let until = came.0[look] as usize;
            while let Some((job, at)) = told.next_if(|(job, _)| *job < until) {
                // One that is already placed was told before.
                let Some(before) = job.checked_sub(times.len()) else { continue };
                let at = at.clamp(seconds(self.looks[look - 1].0 - self.first()), to);
                from = from.min(at);
                doubt += before as f64 * (at - from) / 2.0;
                spread(&mut times, before, from, at);
                times.push(at);
                from = at;
            }
            let rest = until - times.len();
            doubt += rest as f64 * (to - from) / 2.0;
            spread(&mut times, rest, from, to);
        }
        (times, doubt)
    }
}

/// Adds so many times, evenly spread.
fn spread(times: &mut Vec<f64>, count: usize, from: f64, to: f64) {
    let each = (to - from) / count.max(1) as f64;
    times.extend((0..count).map(|n| each.mul_add(n as f64 + 0.5, from)));
}

/// Lets neighbouring jobs that are too short to be told apart share their work equally.
fn shared(mut services: Vec<f64>, resolution: f64) -> Vec<f64> {
    let short: Vec<usize> = (0..services.len()).filter(|n| services[*n] < resolution).collect();
    for some in short.chunks(SHARED) {
        let mean = some.iter().map(|n| services[*n]).sum::<f64>() / some.len() as f64;
        some.iter().for_each(|n| services[*n] = mean);
    }
    services.iter_mut().for_each(|service| *service = service.max(LEAST));
    services
}

impl Exact {
    /// In the order of their end. Clocks of two machines may make a job start before it came.
    fn new(finished: Vec<Finished>) -> Self {
        let times = |job: Finished| {
            let [came, started, ended] =
                [job.came, job.started, job.ended].map(Timestamp::as_millis);
            let started = started.min(ended);
            (came.min(started), started, ended)
        };
        let jobs: Vec<_> = finished.into_iter().map(times).collect();
        let sorted = |of: fn(&(i64, i64, i64)) -> i64| {
            let mut times: Vec<i64> = jobs.iter().map(of).collect();
            times.sort_unstable();
            times
        };
        let (came, started, ended) = (sorted(|j| j.0), sorted(|j| j.1), sorted(|j| j.2));
        Self { jobs, came, started, ended }
    }

    /// How many of these times are not after `at`.
    fn until(times: &[i64], at: i64) -> u64 {
        times.partition_point(|time| *time <= at) as u64
    }
}

impl Curve {
    /// A count that falls counted something that came back; it counts when it is there for good.
    fn new(mut counts: Vec<u64>) -> Self {
        let mut least = MOST_JOBS as u64;
        for count in counts.iter_mut().rev() {
            least = least.min(*count);
            *count = least;
        }
        Self(counts)
    }

    /// How far it rises from the look before.
    fn rise(&self, look: usize) -> usize {
        (self.0[look] - self.0[look - 1]) as usize
    }
}

impl Placed {
    fn in_trace(&self, offset: f64) -> Option<Job> {
        let at = Moment::from_seconds(offset + self.at)?;
        Some(Job { at, service: Moment::from_seconds(self.service)?, class: 0 })
    }
}
