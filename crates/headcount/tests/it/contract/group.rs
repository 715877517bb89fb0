//! What a target must do in the loop of a group: with a lease, in a dry run, after an outage.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use headcount::budget::Budget;
use headcount::finding::Finding;
use headcount::group::{Group, News, Parts};
use headcount::lease::{Held, Lease};
use headcount::queues::{Queue, QueueSeen};
use headcount::store::{Event, Store};
use headcount::targets::Target;
use headcount::targets::dry_run::over;
use headcount_core::policy::Policy;
use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::rules::{Bounds, Rules};
use headcount_core::{HostReading, Missing, Outcome, Reading, Span};
use tempfile::TempDir;
use tokio::sync::broadcast;

use super::cases::{PATIENCE, settled};
use super::{Fault, Rig};

/// Standing by, losing the lease between decision and action, and losing it to the next holder.
pub async fn a_lost_lease_stops_everything(rig: &mut dyn Rig) {
    for (from, to) in [(0, 2), (2, 1)] {
        let mut watcher = rig.open();
        settled(rig, &mut watcher, from).await;
        let before = rig.really().await;
        for (tokens, tried) in
            [(&[None][..], false), (&[Some(1), None], true), (&[Some(1), Some(2)], true)]
        {
            let bench = Bench::new(tokens);
            let mut group = bench.group(rig.open(), to);
            group.tick().await;
            let events = bench.events();
            assert_eq!(events.len(), usize::from(tried), "{tokens:?}: {events:#?}");
            assert!(events.iter().all(|e| e.note.starts_with("the lease was lost")), "{events:#?}");
            assert_eq!(rig.really().await, before, "nothing happens with {tokens:?}");
        }
        let bench = Bench::new(&[Some(3)]);
        bench.ticks_until(&mut bench.group(rig.open(), to), rig, to).await;
        assert!(bench.events().iter().any(|e| e.outcome == Some(Outcome::Done)));
    }
}

/// A dry run over it decides as a live one, and each of its events says that it is dry.
pub async fn the_events_of_a_dry_run_are_marked(rig: &mut dyn Rig) {
    let bench = Bench::new(&[Some(1)]);
    let mut group = bench.group(over(rig.open()), 2);
    for _ in 0..3 {
        group.tick().await;
    }
    assert_eq!(rig.really().await, [""; 0], "nothing was done");
    let events = bench.events();
    assert!(!events.is_empty(), "it says what it would do");
    assert!(events.iter().all(|e| e.dry && e.note.starts_with("dry run: ")), "{events:#?}");
    assert!(events.iter().all(|e| e.decision.wanted == Some(2)), "{events:#?}");

    let live = Bench::new(&[Some(1)]);
    let mut group = live.group(rig.open(), 2);
    live.ticks_until(&mut group, rig, 2).await;
    assert!(live.events().iter().all(|e| !e.dry));
}

/// Failed actions are events with the reason, and when the back end is well the loop goes on.
pub async fn the_loop_recovers_from_an_outage(rig: &mut dyn Rig) {
    let bench = Bench::new(&[Some(1)]);
    if !rig.break_it(Fault::Fails).await && !rig.break_it(Fault::Down).await {
        return;
    }
    let mut group = bench.group(rig.open(), 2);
    // Only once: a second failure is followed by a minute's rest.
    group.tick().await;
    assert_eq!(rig.really().await, [""; 0]);
    let events = bench.events();
    assert!(events.iter().all(|e| e.outcome == Some(Outcome::Failed)), "{events:#?}");
    assert!(events.iter().all(|e| !e.note.is_empty()), "{events:#?}");
    rig.mend().await;
    bench.ticks_until(&mut group, rig, 2).await;
}

/// The fencing token that the lease gives, or `None` while somebody else holds it.
type Token = Option<u64>;

/// What a group needs besides its target.
struct Bench {
    folder: TempDir,
    store: Arc<Store>,
    /// What the lease says, the next one last; the last goes on.
    tokens: Arc<Mutex<Vec<Token>>>,
}

impl Bench {
    fn new(tokens: &[Token]) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        Self {
            store: Arc::new(Store::open(folder.path(), 30)),
            folder,
            tokens: Arc::new(Mutex::new(tokens.iter().rev().copied().collect())),
        }
    }

    /// A group that wants `n` workers, with an empty queue.
    fn group(&self, target: Box<dyn Target>, n: u32) -> Group {
        let host = |now, _| Reading::known(HostReading::default(), now);
        Group::new(Parts {
            name: "g".into(),
            memory: "g".into(),
            rules: Rules {
                workers: Bounds { min: n, max: n, ..Bounds::default() },
                policy: Policy::CpuAware(CpuAware::default()),
                stale_after: Some(Span::from_hours(1)),
                settle: Some(Span::ZERO),
                ..Rules::default()
            },
            look: Span::from_secs(5),
            news: News::default(),
            queue: Box::new(Empty),
            target,
            host: Arc::new(host),
            store: Arc::clone(&self.store),
            lease: Box::new(Tokens(Arc::clone(&self.tokens))),
            metrics_list: None,
            budget: Arc::new(Budget::default()).member("g", None),
            ticks: broadcast::Sender::new(16),
            clock: Arc::new(headcount::clock::now),
        })
    }

    async fn ticks_until(&self, group: &mut Group, rig: &mut dyn Rig, n: u32) {
        let start = std::time::Instant::now();
        loop {
            group.tick().await;
            let there = rig.really().await;
            if there.len() == n as usize {
                return;
            }
            let events = self.events();
            assert!(start.elapsed() < PATIENCE, "never {n}: {there:?} run; {events:#?}");
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    fn events(&self) -> Vec<Event> {
        assert!(self.folder.path().is_dir());
        self.store.flush();
        self.store.events(None, None, 1_000)
    }
}

struct Tokens(Arc<Mutex<Vec<Token>>>);

#[async_trait]
impl Lease for Tokens {
    async fn hold(&mut self) -> Result<u64, Held> {
        let mut tokens = self.0.lock().unwrap();
        let token = if tokens.len() > 1 { tokens.pop() } else { tokens.last().copied() };
        token.flatten().ok_or_else(|| Held::ByOther("a test".into()))
    }
}

/// A queue without jobs.
struct Empty;

#[async_trait]
impl Queue for Empty {
    async fn read(&mut self) -> Result<QueueSeen, Missing> {
        Ok(QueueSeen::default())
    }

    async fn check(&mut self) -> Vec<Finding> {
        Vec::new()
    }
}
