//! What a target must do, told by a target and its back end alone.

use std::time::Duration;

use headcount::finding::Level;
use headcount::targets::dry_run::over;
use headcount::targets::{FleetSeen, Promise, Scaled, Target, TargetError};
use headcount_core::reading::{Worker, WorkerState};
use headcount_core::{Missing, Silence};
use tokio::time::{Instant, sleep, timeout};

use super::{Fault, Rig};
use crate::support::workers::order;

/// Everything on a busy machine happens within this time.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// What a back end has not begun after this time, it has lost.
const LOST: Duration = Duration::from_secs(15);

type Opened = Box<dyn Target>;

/// From none to many and back, in steps of one and of several.
pub async fn reaches_every_number_from_any(rig: &mut dyn Rig) {
    let mut target = rig.open();
    assert_eq!(look(&mut target).await.reading.capacity(), 0, "it begins without workers");
    for to in [1, 3, 6, 2, 0, 2, 0] {
        go(rig, &mut target, to).await;
    }
}

/// The same order before the next look, and the same number after it.
pub async fn the_same_number_again_changes_nothing(rig: &mut dyn Rig) {
    let mut target = rig.open();
    go(rig, &mut target, 1).await;
    for (from, to) in [(1, 3), (3, 2)] {
        let victims = serving(&look(&mut target).await);
        let victims = if to < from { victims } else { Vec::new() };
        let order = order(from, to, &refs(&victims));
        target.scale(&order).await.expect("it is well");
        let again = target.scale(&order).await.expect("the same order again is no error");
        assert_eq!(again.removed, [""; 0], "nobody goes twice");
        assert_eq!(again.started, [""; 0], "nobody is started twice");
        settled(rig, &mut target, to).await;
    }
    let before = sorted(rig.really().await);
    target.scale(&order(2, 2, &[])).await.expect("the number that is there is no error");
    let seen = settled(rig, &mut target, 2).await;
    assert_eq!(sorted(rig.really().await), before, "the same workers");
    assert_eq!(seen.reading.died, 0, "nobody died");
    let mut other = rig.open();
    assert_eq!(look(&mut other).await.reading.capacity(), 2, "a restart changes nothing");
}

/// A worker that was started counts, also while it is not ready.
pub async fn tells_starting_from_ready(rig: &mut dyn Rig) {
    if !rig.start_slowly().await {
        return;
    }
    let mut target = rig.open();
    target.scale(&order(0, 2, &[])).await.expect("it is well");
    let seen = until(&mut target, "two start", |seen| seen.reading.capacity() == 2).await;
    assert_eq!((seen.reading.starting, seen.reading.ready), (2, 0), "{:#?}", seen.reading);
    assert_eq!(ids(&seen, WorkerState::Starting).len(), 2);
}

/// A worker that is there but does not work is told apart, and another takes its place.
pub async fn a_worker_that_takes_no_jobs_is_no_capacity(rig: &mut dyn Rig) {
    let mut target = rig.open();
    let seen = go(rig, &mut target, 2).await.1;
    let Some(id) = serving(&seen).first().cloned() else { return };
    if !rig.cripple(&id).await {
        return;
    }
    let seen = until(&mut target, "one is broken", |seen| seen.reading.capacity() == 1).await;
    assert_eq!(seen.reading.broken, 1, "{:#?}", seen.reading);
    assert!(!serving(&seen).contains(&id));
    match target.scale(&order(1, 2, &[])).await {
        Ok(_) => {
            until(&mut target, "another serves", |seen| seen.reading.capacity() == 2).await;
        }
        // Where the back end counts it as one of those that were asked for.
        Err(error) => typed(&error),
    }
}

/// Of four workers the two in the middle are chosen: neither the oldest nor the youngest.
pub async fn scale_in_removes_whom_it_says(rig: &mut dyn Rig) {
    let mut target = rig.open();
    let seen = go(rig, &mut target, 4).await.1;
    let before = sorted(rig.really().await);
    let all = serving(&seen);
    let chosen: Vec<String> = all.iter().skip(1).take(2).cloned().collect();
    let others: Vec<String> = all.iter().filter(|id| !chosen.contains(id)).cloned().collect();
    let mut busy = Vec::new();
    if target.promise() == Promise::DrainedVictims && !rig.picks_blindly() {
        // It may only guess from what is busy; who is only starting holds no job.
        until(&mut target, "all are ready", |seen| seen.reading.starting == 0).await;
        assert!(rig.busy(&others).await, "a target that protects busy workers can have some");
        look(&mut target).await;
        busy = others;
    }
    let mut order = order(4, 2, &refs(&chosen));
    order.busy = busy.into_iter().map(|id| (id, None)).collect();
    let scaled = target.scale(&order).await.expect("it is well");
    settled(rig, &mut target, 2).await;
    let after = rig.really().await;
    let gone: Vec<String> = before.into_iter().filter(|id| !after.contains(id)).collect();
    match target.promise() {
        Promise::ExactVictims => {
            assert_eq!(gone, sorted(chosen), "exactly the chosen ones are gone");
            assert_eq!(sorted(scaled.removed), gone, "it reports who went");
        }
        Promise::DrainedVictims if rig.picks_blindly() => {
            assert_eq!(sorted(scaled.removed), gone, "it reports who went");
        }
        Promise::DrainedVictims => {
            assert_eq!(gone, sorted(chosen), "the busy ones were protected");
            assert!(scaled.removed.iter().all(|id| gone.contains(id)), "{scaled:?}");
        }
        Promise::NumberOnly => {
            assert!(scaled.removed.iter().all(|id| gone.contains(id)), "{scaled:?}");
        }
    }
}

/// A worker that was told to go while it held a job stays until the job is done.
pub async fn a_busy_worker_drains_and_is_no_capacity(rig: &mut dyn Rig) {
    let mut target = rig.open();
    let seen = go(rig, &mut target, 2).await.1;
    let all = serving(&seen);
    if all.is_empty() || !rig.busy(&all).await {
        return;
    }
    let scaled = target.scale(&order(2, 1, &refs(&all))).await.expect("it is well");
    let seen = until(&mut target, "one drains", |seen| seen.reading.draining == 1).await;
    assert_eq!(seen.reading.capacity(), 1, "one that drains is no capacity");
    let going = ids(&seen, WorkerState::Draining);
    if target.promise() == Promise::ExactVictims {
        assert_eq!(going, all[..1], "the best one goes");
        assert_eq!(scaled.removed, going, "it reports who goes");
    }
    for _ in 0..10 {
        sleep(Duration::from_millis(200)).await;
        look(&mut target).await;
        assert_eq!(sorted(rig.really().await), sorted(all.clone()), "no job is cut short");
    }
    // A restart does not forget who goes, and asks nobody twice.
    let mut again = rig.open();
    let seen = look(&mut again).await;
    assert_eq!((ids(&seen, WorkerState::Draining), seen.reading.capacity()), (going.clone(), 1));
    rig.finish(&going).await;
    let seen = settled(rig, &mut target, 1).await;
    assert_eq!(seen.reading.died, 0, "one that was told to go did not die");
    assert!(!rig.really().await.contains(&going[0]));
    rig.finish(&all).await;
}

/// [`Fault::Down`].
pub async fn down_is_no_answer_and_no_change(rig: &mut dyn Rig) {
    fails_safely(rig, Fault::Down).await;
}

/// [`Fault::Slow`].
pub async fn slow_is_no_answer_and_no_change(rig: &mut dyn Rig) {
    fails_safely(rig, Fault::Slow).await;
}

/// [`Fault::Refuses`].
pub async fn a_refusal_is_no_answer_and_no_change(rig: &mut dyn Rig) {
    fails_safely(rig, Fault::Refuses).await;
}

/// [`Fault::Fails`].
pub async fn a_failure_is_no_answer_and_no_change(rig: &mut dyn Rig) {
    fails_safely(rig, Fault::Fails).await;
}

/// [`Fault::HalfDone`]: the next look tells what was done, and the next orders do the rest.
pub async fn half_done_is_an_error_and_the_rest_follows(rig: &mut dyn Rig) {
    let mut target = rig.open();
    let seen = go(rig, &mut target, 2).await.1;
    let before = sorted(rig.really().await);
    if !rig.break_it(Fault::HalfDone).await {
        return;
    }
    let error = in_time(target.scale(&order(2, 5, &[]))).await.expect_err("half is not done");
    typed(&error);
    rig.mend().await;
    let after = rig.really().await;
    assert!(before.iter().all(|id| after.contains(id)), "those that worked are left alone");
    assert!(after.len() < 5, "{after:?}");
    true_again(rig, &mut target).await;
    go(rig, &mut target, 5).await;

    let stay = serving(&seen);
    let seen = look(&mut target).await;
    let victims: Vec<String> = serving(&seen).into_iter().filter(|v| !stay.contains(v)).collect();
    if !victims.is_empty() && rig.break_it(Fault::HalfDone).await {
        let order = order(5, 2, &refs(&victims));
        in_time(target.scale(&order)).await.expect_err("half is not done");
        rig.mend().await;
        let after = rig.really().await;
        assert!(stay.iter().all(|id| after.contains(id)), "nobody else is taken instead");
        true_again(rig, &mut target).await;
        go(rig, &mut target, 2).await;
    }
}

/// Somebody else's change shows at the next look.
pub async fn what_somebody_else_does_is_seen_and_can_be_undone(rig: &mut dyn Rig) {
    let mut target = rig.open();
    go(rig, &mut target, 2).await;
    for n in [4, 1] {
        if !rig.set_outside(n).await {
            return;
        }
        until(&mut target, "the change", |seen| seen.reading.capacity() == n).await;
        go(rig, &mut target, 2).await;
    }
}

/// `headcount check` finds nothing in the way while all is well, and says what to do when not.
pub async fn check_finds_a_broken_back_end(rig: &mut dyn Rig) {
    let mut target = rig.open();
    go(rig, &mut target, 1).await;
    let found = target.check().await;
    assert!(found.iter().all(|f| f.level < Level::Problem), "{found:#?}");
    assert!(!found.is_empty(), "it says what it looked at");
    assert!(found.iter().all(|f| f.fix.is_some() == (f.level != Level::Good)), "{found:#?}");
    for fault in [Fault::Down, Fault::Refuses] {
        if !rig.break_it(fault).await {
            continue;
        }
        let found = in_time(target.check()).await;
        if fault == Fault::Refuses && target.status().await.is_ok() {
            // Nobody is asked, so nobody has refused.
            rig.mend().await;
            continue;
        }
        let bad = found.iter().find(|f| f.level == Level::Problem);
        let bad = bad.unwrap_or_else(|| panic!("{fault:?} is a problem: {found:#?}"));
        assert!(bad.fix.as_ref().is_some_and(|fix| !fix.is_empty()), "{bad:#?}");
        rig.mend().await;
    }
}

/// Sees what the live target sees, in good and in bad times, and changes nothing.
pub async fn a_dry_run_changes_nothing(rig: &mut dyn Rig) {
    let mut live = rig.open();
    go(rig, &mut live, 2).await;
    let seen = look(&mut live).await;
    let before = sorted(rig.really().await);
    let mut dry = over(rig.open());
    assert!(dry.is_dry() && !live.is_dry());
    assert_eq!(dry.promise(), live.promise());
    let dry_seen = look(&mut dry).await;
    assert_eq!(counts(&dry_seen), counts(&seen), "it reads the real status");
    let all = serving(&seen);
    for (from, to, victims, said) in
        [(2, 4, vec![], "would start 2"), (2, 1, all, "would stop 1"), (2, 0, vec![], "would stop")]
    {
        let scaled = dry.scale(&order(from, to, &refs(&victims))).await.expect("nothing is done");
        assert!(scaled.note.starts_with(&format!("dry run: {said}")), "{}", scaled.note);
        assert_eq!((scaled.started, scaled.removed), (vec![], vec![]));
        let dry_seen = look(&mut dry).await;
        assert_eq!(counts(&dry_seen), counts(&seen), "nothing is pretended either");
    }
    dry.close().await;
    let after = look(&mut live).await;
    assert_eq!(counts(&after), counts(&seen));
    assert_eq!(sorted(rig.really().await), before);
    if rig.break_it(Fault::Down).await {
        let (real, dry) = (live.status().await, dry.status().await);
        assert_eq!(dry.is_err(), real.is_err(), "{dry:?}, but live {real:?}");
        rig.mend().await;
    }
}

/// A fault in which nothing can be done: looks say so or the truth, orders are errors, nothing
/// changes, and when it is over all goes on.
async fn fails_safely(rig: &mut dyn Rig, fault: Fault) {
    let mut target = rig.open();
    let seen = go(rig, &mut target, 2).await.1;
    let before = sorted(rig.really().await);
    if !rig.break_it(fault).await {
        return;
    }
    in_fault(&mut target, "a look").await;
    let out = in_time(target.scale(&order(2, 3, &[]))).await;
    typed(&out.expect_err("nothing can be done"));
    in_fault(&mut target, "a look after a failure").await;
    assert_eq!(sorted(rig.really().await), before, "nothing was done");

    let victims = serving(&seen);
    let back = in_time(target.scale(&order(2, 1, &refs(&victims)))).await;
    let number = match back {
        Err(error) => {
            typed(&error);
            assert_eq!(sorted(rig.really().await), before, "nothing was done");
            2
        }
        // What is broken is not needed to stop a worker here: then it really stops.
        Ok(_) => 1,
    };
    rig.mend().await;
    settled(rig, &mut target, number).await;
    go(rig, &mut target, 3).await;
    go(rig, &mut target, 1).await;
}

/// A look while something is wrong: no answer, or the truth.
async fn in_fault(target: &mut Opened, what: &str) {
    match in_time(target.status()).await {
        Ok(seen) => assert_eq!(seen.reading.capacity(), 2, "{what} shows the truth"),
        Err(missing) => assert!(!missing.detail.is_empty(), "{what} says why: {missing:?}"),
    }
}

/// An error tells what, and what to look at.
fn typed(error: &TargetError) {
    let text = error.to_string();
    assert!(text.len() > 10 && text.len() < 2_000 && !text.ends_with('.'), "{text:?}");
    assert!(!matches!(error, TargetError::Contradiction { .. }), "{error}");
}

/// Looks until what is seen is what is there.
async fn true_again(rig: &mut dyn Rig, target: &mut Opened) {
    let start = Instant::now();
    loop {
        let seen = target.status().await;
        let there = rig.really().await.len();
        match &seen {
            Ok(FleetSeen { reading, .. })
                if (reading.capacity() + reading.draining) as usize == there
                    && reading.draining == 0 =>
            {
                return;
            }
            _ => assert!(start.elapsed() < PATIENCE, "{there} run, but {seen:#?}"),
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Goes from the number that is there to another, and waits until it is so.
pub async fn go(rig: &mut dyn Rig, target: &mut Opened, to: u32) -> (Scaled, FleetSeen) {
    let seen = look(target).await;
    let from = seen.reading.capacity();
    let victims = if to < from { serving(&seen) } else { Vec::new() };
    let scaled = in_time(target.scale(&order(from, to, &refs(&victims)))).await;
    let scaled = scaled.unwrap_or_else(|error| panic!("from {from} to {to}: {error}"));
    let seen = settled(rig, target, to).await;
    (scaled, seen)
}

/// Looks until `n` workers serve, none drains, and just these really run: a list may be older than the
/// number beside it. What a back end that aims at `n` has lost is asked for again, as the next decision
/// would.
pub async fn settled(rig: &mut dyn Rig, target: &mut Opened, n: u32) -> FleetSeen {
    let (start, mut asked) = (Instant::now(), Instant::now());
    loop {
        let seen = target.status().await;
        let there = rig.really().await;
        if let Ok(seen) = &seen
            && (seen.reading.capacity(), seen.reading.draining) == (n, 0)
            && there.len() == n as usize
            && (seen.reading.workers.is_empty() || sorted(serving(seen)) == sorted(there.clone()))
        {
            seen.reading.credible().expect("what it says can be true");
            if let Some(desired) = seen.reading.desired {
                assert_eq!(desired, n, "what it aims at");
            }
            return seen.clone();
        }
        assert!(start.elapsed() < PATIENCE, "never {n}: {there:?} run, seen {seen:#?}");
        if let Ok(seen) = &seen
            && asked.elapsed() > LOST
            && seen.reading.desired == Some(n)
            && seen.reading.capacity() > n
        {
            let order = order(seen.reading.capacity(), n, &refs(&serving(seen)));
            target.scale(&order).await.expect("it is well");
            asked = Instant::now();
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn until(target: &mut Opened, what: &str, is_so: impl Fn(&FleetSeen) -> bool) -> FleetSeen {
    let start = Instant::now();
    loop {
        let seen = look(target).await;
        if is_so(&seen) {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "never: {what}; {:#?}", seen.reading);
        sleep(Duration::from_millis(100)).await;
    }
}

/// A back end that is well answers; on a busy machine perhaps not the first time.
async fn look(target: &mut Opened) -> FleetSeen {
    let start = Instant::now();
    loop {
        match target.status().await {
            Ok(seen) => return seen,
            Err(Missing { why: Silence::Timeout, .. }) if start.elapsed() < PATIENCE => {}
            Err(missing) => panic!("a back end that is well answers: {missing:?}"),
        }
    }
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("everything has a time limit")
}

/// Workers that serve or soon will (some become ready meanwhile), that drain, and that are broken.
fn counts(seen: &FleetSeen) -> (u32, u32, u32) {
    let reading = &seen.reading;
    (reading.capacity(), reading.draining, reading.broken)
}

/// The ids of the workers that serve or soon will.
fn serving(seen: &FleetSeen) -> Vec<String> {
    let workers = seen.reading.workers.iter().filter(|w| w.is_capacity());
    workers.map(|w: &Worker| w.id.clone()).collect()
}

fn ids(seen: &FleetSeen, state: WorkerState) -> Vec<String> {
    let workers = seen.reading.workers.iter().filter(|w| w.state == state);
    workers.map(|w| w.id.clone()).collect()
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

fn refs(ids: &[String]) -> Vec<&str> {
    ids.iter().map(String::as_str).collect()
}
