#!/usr/bin/env python3
"""How long it takes to replay 30 days of a group's own history. Needs a release build.

    cargo build --release && bench/history.py [--jobs 100000] [--days 30] [--look 5]

Fabricates a store as a daemon fills it: a sample at each look that shows something new and every 10 s, and
the times of each job; the load follows the time of day. Then measures `headcount simulate --history` with the
times of jobs and without, in the release build.
"""
import argparse, bisect, json, math, pathlib, random, sqlite3, subprocess, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADCOUNT = ROOT / "target/release/headcount"
CONFIG = """
groups:
  n8n-worker:
    workers: { min: 1, max: 20, start_up: 15s }
    policy: { slo: { max_wait: 60s } }
    queue: { demo: { database: jobs.db } }
    target: { dry_run: { workers: 1 } }
"""


def jobs(count, days, workers=8):
    """(came, started, ended) in s since the start, as `workers` workers would have done them."""
    rng, came, free, done = random.Random(1), [], [0.0] * workers, []
    while len(came) < count:
        at = rng.random() * days * 86400
        if rng.random() < 0.5 - 0.5 * math.cos(at % 86400 / 86400 * 2 * math.pi):
            # A webhook, or a schedule that starts several at once.
            came += [at] * (rng.choice((1, 1, 1, 10)))
    for at in sorted(came[:count]):
        worker = min(range(workers), key=free.__getitem__)
        started = max(at, free[worker])
        free[worker] = started + rng.lognormvariate(math.log(15), 1.2)
        done.append((at, started, free[worker]))
    return done


def samples(done, days, look):
    """What looks show, as the store keeps them."""
    came, started, ended = (sorted(job[i] for job in done) for i in range(3))
    last, kept = None, 0
    for n in range(int(days * 86400 / look)):
        at = n * look
        a, s, e = (bisect.bisect_right(times, at) for times in (came, started, ended))
        oldest = round((at - came[s]) * 1000) if a > s else None
        now = (a - s, s - e, oldest, e)
        if now != last or at - kept >= 10:
            last, kept = now, at
            yield at, now


def fabricate(folder, args):
    (folder / "headcount.yaml").write_text(CONFIG)
    # One look makes the store.
    run(folder, "once")
    done = jobs(args.jobs, args.days)
    start = int((time.time() - args.days * 86400) * 1000)
    ms = lambda at: start + round(at * 1000)
    db = sqlite3.connect(folder / "state/state.db")
    db.execute("DELETE FROM samples")
    rows = [("n8n-worker", ms(at), *seen, 8, 0, 0, seen[1], 30.0, 30.0, 40.0, 8) for at, seen in
            samples(done, args.days, args.look)]
    db.executemany("INSERT INTO samples (name, t_ms, waiting, active, oldest_ms, finished, ready, starting, "
                   "draining, busy, cpu_raw, cpu_ema, mem, wanted) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", rows)
    told = sorted(done, key=lambda job: job[2])
    db.executemany("INSERT INTO jobs (name, came_ms, started_ms, ended_ms) VALUES ('n8n-worker',?,?,?)",
                   [tuple(map(ms, job)) for job in told])
    db.commit()
    print(f"{len(done)} jobs, {len(rows)} samples, {sum(e - s for _, s, e in done) / 3600:.0f} hours of work, "
          f"{(folder / 'state/state.db').stat().st_size / 1e6:.0f} MB")
    return db


def run(folder, *args):
    command = [str(HEADCOUNT), "--state-dir", "state", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def measure(folder, name, *args):
    begin = time.monotonic()
    ran = run(folder, "simulate", "--history", "n8n-worker", "--json", *args)
    took = time.monotonic() - begin
    assert ran.returncode == 0, ran.stderr
    row = json.loads(ran.stdout.splitlines()[0])
    known = row["history"]
    print(f"{name}: {took:.2f} s; {row['jobs']} jobs, {known['exact']} exact, {row['work_hours']:.1f} hours of "
          f"work, {row['worker_hours']:.1f} worker-hours, p95 wait {row['waits']['p95']:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--days", type=float, default=30)
    parser.add_argument("--look", type=float, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        db = fabricate(folder, args)
        measure(folder, "jobs told one by one")
        db.execute("DELETE FROM jobs")
        db.commit()
        measure(folder, "jobs inferred")
        measure(folder, "the last 7 days", "--since", "7d")


if __name__ == "__main__":
    main()
