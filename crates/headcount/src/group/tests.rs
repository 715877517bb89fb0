//! The loop against a scripted queue and target, on fake time.

use std::sync::Mutex;

use async_trait::async_trait;
use headcount_core::Kind;
use headcount_core::alert::{AlertNews, Alerts, WaitingOver};
use headcount_core::policy::Policy;
use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::policy::occupancy::{Occupancy, Parity};
use headcount_core::reading::{Occupancies, Worker, WorkerState};
use headcount_core::rules::{Fallback, Rules};
use tempfile::TempDir;
use tokio::time::{Duration, advance};

use super::*;
use crate::budget::Budget;
use crate::finding::Finding;
use crate::lease::Held;
use crate::sinks::EventSink;
use crate::store::Event;
use crate::targets::{Promise, Scaled, TargetError};

/// What the scripted parts answer now.
#[derive(Clone)]
struct Script {
    queue: Result<(u64, u64), Silence>,
    queue_hangs: bool,
    /// How busy the queue says that the workers are, over each window.
    occupancy: Option<f64>,
    fleet: Result<u32, Silence>,
    target_fails: bool,
    target_waits: bool,
    /// Somebody else sets the number to this as soon as it is changed.
    pinned: Option<u32>,
    runs_here: bool,
    lease: Result<u64, String>,
    cpu: f64,
    orders: Vec<Order>,
    clock_set_by: Span,
}

#[derive(Clone)]
struct World(Arc<Mutex<Script>>);

impl World {
    fn new(workers: u32) -> Self {
        Self(Arc::new(Mutex::new(Script {
            queue: Ok((0, 0)),
            queue_hangs: false,
            occupancy: None,
            fleet: Ok(workers),
            target_fails: false,
            target_waits: false,
            pinned: None,
            runs_here: true,
            lease: Ok(1),
            cpu: 20.0,
            orders: Vec::new(),
            clock_set_by: Span::ZERO,
        })))
    }

    fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.lock().unwrap());
    }

    fn see(&self) -> Script {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl Queue for World {
    async fn read(&mut self) -> Result<QueueSeen, Missing> {
        let script = self.see();
        if script.queue_hangs {
            std::future::pending::<()>().await;
        }
        let (waiting, active) =
            script.queue.map_err(|why| Missing { why, detail: "scripted".into() })?;
        let all = |percent| Occupancies { s15: percent, m5: percent, m30: percent };
        let occupancy = script.occupancy.map(|percent| all(Some(percent)));
        let reading = QueueReading { waiting, active, occupancy, ..QueueReading::default() };
        Ok(QueueSeen { reading, consumers: None })
    }

    async fn check(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}

#[async_trait]
impl Target for World {
    fn promise(&self) -> Promise {
        Promise::ExactVictims
    }

    fn scales(&self) -> String {
        "world".into()
    }

    fn runs_here(&self) -> bool {
        self.see().runs_here
    }

    async fn status(&mut self) -> Result<FleetSeen, Missing> {
        let n = self.see().fleet.map_err(|why| Missing { why, detail: "scripted".into() })?;
        let worker = |i: u32| Worker {
            id: format!("w{i}"),
            state: WorkerState::Ready,
            busy: None,
            started_at: Some(Timestamp::from_millis(i.into())),
            version: None,
        };
        let mut reading = FleetReading::of((0..n).map(worker).collect());
        reading.desired = self.see().pinned;
        Ok(FleetSeen { reading, ..FleetSeen::default() })
    }

    async fn scale(&mut self, order: &Order) -> Result<Scaled, TargetError> {
        let (fails, waits) = (self.see().target_fails, self.see().target_waits);
        self.set(|s| s.orders.push(order.clone()));
        if waits {
            let (what, detail) = ("scale".into(), format!("try {}", self.see().orders.len()));
            return Err(TargetError::NotNow { what, detail });
        }
        if fails {
            let (what, detail) = ("scale".into(), "scripted".into());
            return Err(TargetError::Failed { what, detail });
        }
        self.set(|s| s.fleet = Ok(s.pinned.unwrap_or(order.to)));
        Ok(Scaled::default())
    }

    async fn check(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}

#[async_trait]
impl Lease for World {
    async fn hold(&mut self) -> Result<u64, Held> {
        self.see().lease.map_err(Held::ByOther)
    }
}

struct Bench {
    world: World,
    folder: TempDir,
    rules: Rules,
    started: Instant,
}

impl Bench {
    fn new(workers: u32) -> Self {
        Self {
            world: World::new(workers),
            folder: tempfile::tempdir().unwrap(),
            rules: Rules { policy: Policy::CpuAware(CpuAware::default()), ..Rules::default() },
            started: Instant::now(),
        }
    }

    /// A group as a fresh process would make it.
    fn group(&self) -> Group {
        let (world, started) = (self.world.clone(), self.started);
        let clock = move || {
            let passed = Span::try_from(started.elapsed()).unwrap();
            Timestamp::from_millis(1_800_000_000_000).plus(passed).plus(world.see().clock_set_by)
        };
        let world = self.world.clone();
        let reading = move |now, _window| {
            let cpu_raw = world.see().cpu;
            Reading::known(HostReading { cpu_raw, ..HostReading::default() }, now)
        };
        Group::new(Parts {
            name: "g".into(),
            memory: "g".into(),
            rules: self.rules.clone(),
            look: Span::from_secs(5),
            news: News::default(),
            queue: Box::new(self.world.clone()),
            target: Box::new(self.world.clone()),
            host: Arc::new(reading),
            store: Arc::new(Store::open(self.folder.path(), 30)),
            budget: Arc::new(Budget::default()).member("g", None),
            lease: Box::new(self.world.clone()),
            metrics_list: None,
            ticks: broadcast::Sender::new(16),
            clock: Arc::new(clock),
        })
    }
}

/// Ticks every five seconds for `seconds`.
async fn pass(group: &mut Group, seconds: u64) {
    for _ in 0..seconds / 5 {
        advance(Duration::from_secs(5)).await;
        group.tick().await;
    }
}

fn targets(world: &World) -> Vec<u32> {
    world.see().orders.iter().map(|o| o.to).collect()
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_runs_no_worker_says_so() {
    let bench = Bench::new(1);
    let mut group = bench.group();
    for runs_here in [true, false] {
        bench.world.set(|s| s.runs_here = runs_here);
        let seen = group.observe().await;
        assert_eq!(seen.host.value().unwrap().elsewhere, !runs_here);
    }
}

#[tokio::test(start_paused = true)]
async fn grows_one_by_one_and_shrinks_after_idleness() {
    let bench = Bench::new(1);
    let mut group = bench.group();
    bench.world.set(|s| s.queue = Ok((60, 1)));
    pass(&mut group, 300).await;
    assert_eq!(targets(&bench.world), [2, 3, 4], "one at a time, a cooldown apart");
    bench.world.set(|s| s.queue = Ok((0, 0)));
    pass(&mut group, 600).await;
    assert_eq!(targets(&bench.world), [2, 3, 4, 3, 2, 1]);
    let victims = &bench.world.see().orders[3].victims;
    assert_eq!(victims, &["w3"], "the youngest idle worker");
}

#[tokio::test(start_paused = true)]
async fn the_windows_of_the_queue_count_only_with_parity() {
    for (parity, expected) in [(None, vec![]), (Some(Parity::Windmill), vec![2])] {
        let mut bench = Bench::new(1);
        bench.rules.policy = Policy::Occupancy(Occupancy { parity, ..Occupancy::default() });
        bench.world.set(|s| s.occupancy = Some(90.0));
        pass(&mut bench.group(), 60).await;
        assert_eq!(targets(&bench.world), expected, "{parity:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_shrinks_nothing_nor_does_the_time_after_it() {
    let bench = Bench::new(4);
    let mut group = bench.group();
    pass(&mut group, 110).await;
    bench.world.set(|s| s.queue = Err(Silence::Refused));
    pass(&mut group, 60).await;
    bench.world.set(|s| s.queue = Ok((0, 0)));
    pass(&mut group, 55).await;
    assert_eq!(targets(&bench.world), [0; 0], "idle for long, but not trusted yet");
    pass(&mut group, 300).await;
    assert_eq!(targets(&bench.world)[0], 3, "recovers by itself");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_queue_is_a_missing_reading() {
    let bench = Bench::new(4);
    let mut group = bench.group();
    bench.world.set(|s| s.queue_hangs = true);
    let mut ticks = group.parts.ticks.subscribe();
    group.tick().await;
    let seen = ticks.recv().await.unwrap().seen.clone().unwrap();
    assert!(matches!(seen.queue, Reading::Missing(m) if m.why == Silence::Timeout));
    pass(&mut group, 600).await;
    assert_eq!(targets(&bench.world), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_nothing_and_keeps_the_cooldown() {
    let bench = Bench::new(1);
    let mut group = bench.group();
    bench.world.set(|s| s.queue = Ok((9, 1)));
    group.tick().await;
    assert_eq!(targets(&bench.world), [2]);
    drop(group);
    let mut group = bench.group();
    pass(&mut group, 85).await;
    assert_eq!(targets(&bench.world), [2], "90 s after the change of the old process");
    pass(&mut group, 35).await;
    assert_eq!(targets(&bench.world), [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn killed_between_record_and_act_the_cooldown_is_kept() {
    let bench = Bench::new(1);
    let mut group = bench.group();
    bench.world.set(|s| s.queue = Ok((9, 1)));
    // What a kill in the middle of a change leaves behind: the decision recorded, no outcome.
    let mut state = group.take_up();
    let seen = group.observe().await;
    let decision = decide(&bench.rules, &mut state, &seen, Cadence::OwnPoll, group.now());
    group.record(&seen, &decision, &state, true);
    drop(group);
    let mut group = bench.group();
    pass(&mut group, 85).await;
    assert_eq!(targets(&bench.world), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn after_a_long_absence_idleness_is_measured_anew() {
    let bench = Bench::new(4);
    let mut group = bench.group();
    pass(&mut group, 60).await;
    group.parts.store.flush();
    drop(group);
    advance(Duration::from_secs(3600)).await;
    let mut group = bench.group();
    pass(&mut group, 115).await;
    assert_eq!(targets(&bench.world), [0; 0]);
    pass(&mut group, 60).await;
    assert_eq!(targets(&bench.world), [3]);
}

#[tokio::test(start_paused = true)]
async fn without_the_lease_nothing_is_done() {
    let bench = Bench::new(1);
    let mut group = bench.group();
    bench.world.set(|s| {
        s.queue = Ok((9, 1));
        s.lease = Err("process 7".into());
    });
    pass(&mut group, 300).await;
    assert_eq!(targets(&bench.world), [0; 0]);
    bench.world.set(|s| s.lease = Ok(2));
    group.tick().await;
    assert_eq!(bench.world.see().orders[0].token, 2);
}

#[tokio::test(start_paused = true)]
async fn a_failing_target_is_left_alone_for_longer_and_longer() {
    let bench = Bench::new(1);
    let mut group = bench.group();
    bench.world.set(|s| {
        s.queue = Ok((9, 1));
        s.target_fails = true;
    });
    pass(&mut group, 3600).await;
    let tries = bench.world.see().orders.len();
    assert!((4..=5).contains(&tries), "{tries} tries: at once, then 1, 15 and 30 minutes apart");
    bench.world.set(|s| s.target_fails = false);
    pass(&mut group, 3700).await;
    assert_eq!(bench.world.see().fleet.unwrap(), 4, "recovers by itself");
}

#[tokio::test(start_paused = true)]
async fn a_target_that_says_not_now_is_asked_again_and_again_and_told_of_once() {
    let bench = Bench::new(3);
    let mut group = bench.group();
    bench.world.set(|s| s.target_waits = true);
    pass(&mut group, 600).await;
    let tries = targets(&bench.world);
    assert!(tries.len() >= 10 && tries.iter().all(|to| *to == 2), "at each poll: {tries:?}");
    let told = |group: &Group| -> Vec<(Option<Outcome>, String)> {
        let events = group.parts.store.events(Some("g"), None, 100);
        events.into_iter().map(|event| (event.outcome, event.note)).collect()
    };
    assert_eq!(told(&group), [(Some(Outcome::NotNow), "scale: try 1".to_owned())]);

    // It has not failed: growth comes at the next poll.
    bench.world.set(|s| (s.queue, s.target_waits) = (Ok((60, 1)), false));
    pass(&mut group, 30).await;
    let tries = &targets(&bench.world)[tries.len()..];
    assert_eq!(tries, [4]);
    let outcomes: Vec<_> = told(&group).into_iter().map(|(outcome, _)| outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Done), Some(Outcome::NotNow)]);

    // Another change, or the same after a while, is news.
    bench.world.set(|s| (s.queue, s.target_waits) = (Ok((0, 0)), true));
    pass(&mut group, 600).await;
    assert_eq!(told(&group)[0].0, Some(Outcome::NotNow));
    assert_eq!(told(&group).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_what_a_live_one_would_do_now() {
    // At one job a worker the rate lets 1 grow to 4, and to 5 only after that.
    let ratio: Policy = serde_json::from_str(
        r#"{"ratio": {"jobs_per_worker": 1, "poll": "10s", "behavior": {"scale_up":
            {"policies": [{"workers": 4, "period": "1m"}]}}}}"#,
    )
    .unwrap();
    for policy in [ratio, Policy::CpuAware(CpuAware::default())] {
        let mut bench = Bench::new(1);
        (bench.rules.workers.max, bench.rules.policy) = (5, policy);
        bench.world.set(|s| s.queue = Ok((60, 1)));
        let dry = || {
            let mut group = bench.group();
            group.parts.target = crate::targets::dry_run::over(Box::new(bench.world.clone()));
            group
        };
        let mut group = dry();
        group.tick().await;
        let told = |group: &Group| {
            let events = group.parts.store.events(Some("g"), None, 100);
            events.into_iter().map(|e| (e.decision.change(), e.outcome)).collect::<Vec<_>>()
        };
        let first = told(&group);
        assert_eq!((first.len(), first[0].1), (1, Some(Outcome::Pretended)));
        pass(&mut group, 300).await;
        assert_eq!(told(&group), first, "the same change is told once, whatever lies between");
        let decision = group.parts.store.latest(Some("g")).remove(0).decision;
        assert!(!decision.reason.contains("cooldown"), "nothing was done: {}", decision.reason);
        group.parts.store.flush();
        drop(group);
        let mut group = dry();
        pass(&mut group, 60).await;
        assert_eq!(told(&group), first, "nor after a restart");

        // Another one is news, and so is the same one after the policy thought better of it.
        bench.world.set(|s| s.queue = Ok((0, 1)));
        pass(&mut group, 60).await;
        bench.world.set(|s| s.queue = Ok((60, 1)));
        pass(&mut group, 60).await;
        assert_eq!(told(&group), [first[0], first[0]]);
        assert_eq!(targets(&bench.world), [0; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_person_ends_the_wait_after_failures() {
    let bench = Bench::new(1);
    bench.world.set(|s| (s.queue, s.target_fails) = (Ok((60, 1)), true));
    let mut group = bench.group();
    pass(&mut group, 300).await;
    let tries = targets(&bench.world).len();
    let state = group.state.clone().unwrap();
    let reason = group.parts.store.latest(Some("g")).remove(0).decision.reason;
    assert!(reason.contains("in a row, the last: scale: scripted: next try in"), "{reason}");
    assert_eq!((tries, state.breaker.additions.count), (3, 3), "15 minutes to wait");

    // The store goes by the real clock, the bench by its own.
    bench.world.set(|s| s.target_fails = false);
    let mut state = state;
    state.controls.retry = Some(group.now());
    let seen = group.observe().await;
    let decision = decide(&bench.rules, &mut state, &seen, Cadence::EveryLook, seen.t);
    assert_eq!((decision.change(), state.breaker.additions.count), (Some((1, 2)), 0));
}

#[tokio::test(start_paused = true)]
async fn a_number_that_somebody_else_sets_is_told_of_once_and_set_rarely() {
    let bench = Bench::new(30);
    let mut group = bench.group();
    bench.world.set(|s| s.pinned = Some(30));
    pass(&mut group, 3_600).await;
    let tries = targets(&bench.world);
    let most = bench.rules.workers.max;
    assert!(tries.iter().all(|to| *to == most), "{tries:?}");
    assert!((10..25).contains(&tries.len()), "{} tries", tries.len());
    let events = group.parts.store.events(Some("g"), None, 100);
    let outcomes: Vec<_> = events.iter().map(|event| event.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Done); 4], "no failure, and told once");
    assert!(events[0].note.contains("somebody else sets the number"), "{:?}", events[0]);
    bench.world.set(|s| (s.pinned, s.fleet) = (None, Ok(30)));
    pass(&mut group, 400).await;
    assert!(bench.world.see().fleet.unwrap() <= most, "they are gone");
}

#[tokio::test(start_paused = true)]
async fn a_clock_set_back_or_forward_changes_nothing() {
    for hours in [-5, 5] {
        let bench = Bench::new(4);
        let mut group = bench.group();
        pass(&mut group, 60).await;
        bench.world.set(|s| s.clock_set_by = Span::from_hours(hours));
        pass(&mut group, 55).await;
        assert_eq!(targets(&bench.world), [0; 0], "{hours} h: not idle for 120 s yet");
        pass(&mut group, 65).await;
        assert_eq!(targets(&bench.world), [3], "{hours} h: idle for 120 s of real time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deploy_that_resets_the_fleet_is_mended() {
    let mut bench = Bench::new(4);
    bench.rules.workers.min = 3;
    let mut group = bench.group();
    group.tick().await;
    bench.world.set(|s| s.fleet = Ok(1));
    pass(&mut group, 5).await;
    assert_eq!(bench.world.see().orders[0].kind, Kind::Bounds);
    assert_eq!(targets(&bench.world), [3]);
}

#[tokio::test(start_paused = true)]
async fn a_long_silence_leads_to_the_fallback() {
    let mut bench = Bench::new(1);
    bench.rules.fallback = Some(Fallback { after: Span::from_secs(120), workers: 3 });
    let mut group = bench.group();
    bench.world.set(|s| s.queue = Err(Silence::Unreachable));
    pass(&mut group, 115).await;
    assert_eq!(targets(&bench.world), [0; 0]);
    pass(&mut group, 15).await;
    assert_eq!(targets(&bench.world), [3]);
}

#[tokio::test(start_paused = true)]
async fn usage_counts_each_minute_seen_and_none_that_was_not() {
    let bench = Bench::new(2);
    bench.world.set(|s| s.queue = Ok((0, 1)));
    let mut group = bench.group();
    group.tick().await;
    pass(&mut group, 295).await;
    bench.world.set(|s| s.fleet = Err(Silence::Refused));
    pass(&mut group, 600).await;
    bench.world.set(|s| s.fleet = Ok(1));
    pass(&mut group, 300).await;
    // From 08:00:00 on: five minutes with two, ten of silence, five with one.
    let store = &group.parts.store;
    let hours = store.usage(0, i64::MAX).unwrap();
    assert_eq!((hours.len(), hours[0].memory, hours[0].dry), (1, 2 << 30, false));
    let minutes: Vec<_> = (0..21).map(|minute| hours[0].minutes.get(minute)).collect();
    let expected = [vec![Some(2); 5], vec![None; 10], vec![Some(1); 5], vec![None]].concat();
    assert_eq!(minutes, expected);
}

/// Keeps what it is told.
struct Told(Arc<Mutex<Vec<Event>>>);

#[async_trait]
impl EventSink for Told {
    fn tell(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }

    async fn close(&mut self) {
        self.0.lock().unwrap().clear();
    }
}

#[tokio::test(start_paused = true)]
async fn alerts_are_events_are_passed_on_and_survive_a_restart_and_silence() {
    let bench = Bench::new(4);
    let told = Arc::new(Mutex::new(Vec::new()));
    let alerting = || {
        let mut group = bench.group();
        let waiting_over = Some(WaitingOver { jobs: 3, lasts: Span::from_secs(30), tags: vec![] });
        group.parts.news.alerts = Alerts { waiting_over, ..Alerts::default() };
        group.parts.news.sinks = vec![Box::new(Told(Arc::clone(&told)))];
        group
    };
    let news = || {
        let told = told.lock().unwrap();
        told.iter().map(|event| event.alert.as_ref().unwrap().state).collect::<Vec<_>>()
    };
    let none: Vec<AlertNews> = Vec::new();
    let mut group = alerting();
    bench.world.set(|s| s.queue = Ok((9, 1)));
    pass(&mut group, 20).await;
    assert_eq!(news(), none);
    group.parts.store.flush();
    drop(group);
    let mut group = alerting();
    pass(&mut group, 20).await;
    assert_eq!(news(), [AlertNews::Raised], "the time before the restart counts");
    pass(&mut group, 560).await;
    bench.world.set(|s| s.queue = Err(Silence::Refused));
    pass(&mut group, 1200).await;
    assert_eq!(news(), [AlertNews::Raised], "silence tells nothing");
    bench.world.set(|s| s.queue = Ok((9, 1)));
    pass(&mut group, 10).await;
    bench.world.set(|s| s.queue = Ok((3, 1)));
    pass(&mut group, 10).await;
    assert_eq!(news(), [AlertNews::Raised, AlertNews::Lasts, AlertNews::Resolved]);

    let events = group.parts.store.events(Some("g"), None, 10);
    let kept: Vec<_> = events.iter().map(|e| (e.kind(), e.alert.as_ref().unwrap().state)).collect();
    assert_eq!(kept, [("alert", AlertNews::Resolved), ("alert", AlertNews::Raised)]);
    assert_eq!(group.parts.store.changes(None, None, 10), []);
    let mut ticks = group.parts.ticks.subscribe();
    group.tick().await;
    assert!(!ticks.recv().await.unwrap().alerts[0].1);
    group.leave().await;
    assert_eq!(news(), none, "closed at the end");
}

#[tokio::test(start_paused = true)]
async fn a_change_is_passed_on_with_what_became_of_it() {
    let bench = Bench::new(1);
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut group = bench.group();
    group.parts.news.sinks = vec![Box::new(Told(Arc::clone(&told)))];
    bench.world.set(|s| {
        s.queue = Ok((9, 1));
        s.target_fails = true;
    });
    group.tick().await;
    let told = told.lock().unwrap();
    assert_eq!((told.len(), told[0].outcome), (1, Some(Outcome::Failed)));
    assert_eq!((told[0].decision.change(), &told[0].alert), (Some((1, 2)), &None));
}
