//! What one decision costs without I/O: a tick must stay far under 20 µs.

use std::hint::black_box;

use criterion::Criterion;
use headcount_core::policy::cpu_aware::CpuAware;
use headcount_core::reading::{FleetReading, HostReading, QueueReading, Worker, WorkerState};
use headcount_core::{
    Cadence, Observation, Policy, Reading, Rules, Span, State, Timestamp, decide, state::Outcome,
};

fn fleet(workers: u32) -> FleetReading {
    let worker = |i| Worker {
        id: format!("shop-worker-{i}"),
        state: WorkerState::Ready,
        busy: Some(i % 2 == 0),
        started_at: Some(Timestamp::from_millis(i64::from(i))),
        version: None,
    };
    FleetReading::of((0..workers).map(worker).collect())
}

fn observation(fleet: FleetReading, waiting: u64, active: u64) -> Observation {
    let t = Timestamp::default();
    Observation {
        t,
        queue: Reading::known(QueueReading { waiting, active, ..QueueReading::default() }, t),
        host: Reading::known(HostReading { cpu_raw: 41.5, ..HostReading::default() }, t),
        fleet: Reading::known(fleet, t),
        budget: None,
    }
}

/// Times decisions 30 s apart; every change is done.
fn run(bench: &mut Criterion, name: &str, rules: &Rules, mut seen: Observation) {
    let mut state = State::default();
    let mut now = Timestamp::from_millis(1_790_000_000_000);
    bench.bench_function(name, |b| {
        b.iter(|| {
            now = now.plus(Span::from_secs(30));
            seen.t = now;
            renew(&mut seen.queue, now);
            renew(&mut seen.host, now);
            renew(&mut seen.fleet, now);
            let decision = decide(rules, &mut state, &seen, Cadence::OwnPoll, now);
            state.note(Outcome::Done, now);
            black_box(decision)
        });
    });
}

fn renew<T>(reading: &mut Reading<T>, now: Timestamp) {
    if let Reading::Known { taken_at, .. } = reading {
        *taken_at = now;
    }
}

fn main() {
    let mut bench = Criterion::default().configure_from_args();
    let policy = Policy::CpuAware(CpuAware::default());
    let mut rules = Rules { policy, ..Rules::default() };
    let counts = FleetReading { ready: 2, ..FleetReading::default() };
    run(&mut bench, "scale-out, counts only", &rules, observation(counts, 5, 2));
    run(&mut bench, "scale-in, 4 workers listed", &rules, observation(fleet(4), 0, 0));
    rules.workers.max = 1000;
    run(&mut bench, "scale-in, 100 workers listed", &rules, observation(fleet(100), 0, 0));
    run(&mut bench, "all sources silent", &rules, {
        let mut seen = observation(fleet(4), 0, 0);
        seen.queue = Reading::missing(headcount_core::Silence::Timeout, "no answer in 5 s");
        seen.host = Reading::missing(headcount_core::Silence::NotFound, "/proc/stat");
        seen
    });
    bench.final_summary();
}
