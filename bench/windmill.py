#!/usr/bin/env python3
"""What a look at a large Windmill queue costs. Needs psql, an empty database and a build.

    cargo build --release && bench/windmill.py postgres://postgres@127.0.0.1:5432/scratch [--rows 500000] [--groups 10]

Makes Windmill's tables with that many waiting jobs, 200 running ones and 100 workers in as many groups, lets one
headcount watch all groups once a second, and prints how long the server took for each look, and how many there were.
"""
import argparse, json, os, pathlib, shutil, statistics, subprocess, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "crates/headcount/tests/it/support/windmill"


def psql(url, text):
    done = subprocess.run(["psql", "-qAtX", "-v", "ON_ERROR_STOP=1", url], input=text, capture_output=True, text=True)
    done.check_returncode()
    return done.stdout.strip()


def fill(url, rows, groups):
    tables = [(TABLES / name).read_text() for name in ("v2.sql", "latest.sql")]
    jobs = f"""
      INSERT INTO worker_ping (worker, worker_instance, worker_group, custom_tags, ping_at)
        SELECT 'w' || i, 'h' || i, 'g' || i % {groups}, array['tag' || i % {groups}], now() + interval '1 hour'
        FROM generate_series(1, 100) i;
      INSERT INTO v2_job_queue (scheduled_for, tag)
        SELECT now() - random() * interval '1 hour', 'tag' || i % {groups} FROM generate_series(1, {rows}) i;
      INSERT INTO v2_job_queue (scheduled_for, tag, running, started_at, worker)
        SELECT now(), 'tag' || i % {groups}, true, now(), 'w' || i % 100 FROM generate_series(1, 200) i;
      INSERT INTO v2_job_runtime SELECT id, CASE WHEN running THEN now() + interval '1 hour' END FROM v2_job_queue;
      VACUUM ANALYZE;"""
    psql(url, "\n".join(tables) + jobs)


def looks(url, seconds):
    """The server's own account of the last query, again and again."""
    found = {}
    for _ in range(int(seconds * 5)):
        rows = psql(url, """SELECT query_start, extract(epoch FROM state_change - query_start) FROM pg_stat_activity
                            WHERE application_name = 'headcount' AND state = 'idle' AND query LIKE '%transaction_read_only%'""")
        for row in rows.splitlines():
            at, took = row.split("|")
            found[at] = 1000 * float(took)
        time.sleep(0.2)
    return list(found.values())


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("url")
    options.add_argument("--rows", type=int, default=500_000)
    options.add_argument("--groups", type=int, default=10)
    options.add_argument("--seconds", type=int, default=20)
    options.add_argument("--binary", default=str(ROOT / "target/release/headcount"))
    options = options.parse_args()
    fill(options.url, options.rows, options.groups)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="headcount-bench-"))
    config = {"http": {"listen": "none"}, "groups": {f"g{i}": {
        "look": "1s", "policy": {"occupancy": {}}, "queue": {"windmill": {"url": options.url}},
        "target": {"dry_run": {"workers": 2}}} for i in range(options.groups)}}
    (folder / "headcount.yaml").write_text(json.dumps(config))
    env = dict(os.environ, HEADCOUNT_STATE_DIR=str(folder / "state"))
    daemon = subprocess.Popen([os.path.abspath(options.binary), "run"], cwd=folder, env=env, stderr=open(folder / "log", "w"))
    try:
        took = looks(options.url, options.seconds)
    finally:
        daemon.terminate()
        daemon.wait()
        shutil.rmtree(folder)
    print(f"{options.rows} waiting jobs, {options.groups} groups: {len(took)} looks in {options.seconds} s, "
          f"median {statistics.median(took):.0f} ms, most {max(took):.0f} ms")


if __name__ == "__main__":
    main()
