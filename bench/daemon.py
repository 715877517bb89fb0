#!/usr/bin/env python3
"""What a running headcount costs, and how fast it is. Needs redis-server and a release build.

    cargo build --release && bench/daemon.py [--seconds 60] [--groups 1000] [--burst 10]

Prints CPU and memory of one group polled every second and of many, and the time from a burst of jobs
to the call of `docker compose` (a recorder stands in for it: what Docker then does is Docker's time).
The last needs a Docker Engine for the status; name it with DOCKER_HOST or leave it out.
"""
import argparse, json, os, pathlib, shutil, socket, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADCOUNT = ROOT / "target/release/headcount"
TICKS = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Redis:
    def __init__(self, folder):
        self.port = free_port()
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", folder],
            stdout=subprocess.DEVNULL)
        for _ in range(200):
            if self.cli("ping") == "PONG":
                return
            time.sleep(0.05)
        sys.exit("redis-server does not answer")

    def cli(self, *args):
        done = subprocess.run(["redis-cli", "-p", str(self.port), *args], capture_output=True, text=True)
        return done.stdout.strip()

    def stop(self):
        self.process.terminate()
        self.process.wait()


class Daemon:
    def __init__(self, folder, config):
        (folder / "headcount.yaml").write_text(json.dumps(config))
        env = dict(os.environ, HEADCOUNT_STATE_DIR=str(folder / "state"))
        self.log = open(folder / "log", "w")
        self.process = subprocess.Popen([HEADCOUNT, "run"], cwd=folder, env=env, stderr=self.log)

    def cpu(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self):
        status = open(f"/proc/{self.process.pid}/status").read()
        return {k: int(v.split()[0]) / 1024 for k, v in (l.split(":", 1) for l in status.splitlines())
                if k in ("VmRSS", "VmHWM")}

    def stop(self):
        self.process.terminate()
        self.process.wait()


def group(redis, target, poll="1s"):
    return {
        "look": "1s",
        "policy": {"cpu_aware": {"poll": poll, "scale_out_below": 101, "emergency": 101, "cooldown": "0s"}},
        "queue": {"bull": {"redis": {"url": f"redis://127.0.0.1:{redis.port}"}}},
        "target": target,
    }


def cost(name, groups, seconds):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="headcount-bench-"))
    redis = Redis(folder)
    config = {"http": {"listen": "none"}, "groups": {
        f"g{i}": group(redis, {"dry_run": {"workers": 2}}) for i in range(groups)}}
    daemon = Daemon(folder, config)
    time.sleep(5)
    before, start = daemon.cpu(), time.monotonic()
    calls = int(redis.cli("info", "commandstats").split("cmdstat_eval")[1].split("calls=")[1].split(",")[0])
    time.sleep(seconds)
    spent, passed = daemon.cpu() - before, time.monotonic() - start
    calls = int(redis.cli("info", "commandstats").split("cmdstat_eval")[1].split("calls=")[1].split(",")[0]) - calls
    memory = daemon.memory()
    print(f"{name}: {100 * spent / passed:.2f} % of a core, RSS {memory['VmRSS']:.1f} MB "
          f"(peak {memory['VmHWM']:.1f}), {calls / passed:.1f} looks/s over {passed:.0f} s")
    daemon.stop()
    redis.stop()
    shutil.rmtree(folder)


def burst(times):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="headcount-bench-"))
    redis = Redis(folder)
    calls, recorder = folder / "calls", folder / "compose"
    recorder.write_text(f'#!/bin/sh\ncase "$*" in *--scale*) date +%s.%N >> {calls};; esac\n')
    recorder.chmod(0o755)
    (folder / "a.yml").write_text("services: {worker: {image: 'bb:1'}}\n")
    target = {"compose": {"project": "headcount-bench", "service": "worker", "files": ["a.yml"],
                          "command": [str(recorder)]}}
    # A policy that does not watch the CPU: what else runs here must not change the answer.
    policy = {"ratio": {"poll": "1s", "jobs_per_worker": 5}}
    config = {"http": {"listen": "none"}, "groups": {"g": dict(
        group(redis, target), workers={"min": 0, "max": 4}, policy=policy, brake={"off": True})}}
    daemon = Daemon(folder, config)
    try:
        measure(redis, calls, times)
    finally:
        daemon.stop()
        redis.stop()
        shutil.rmtree(folder)


def measure(redis, calls, times):
    time.sleep(4)
    waits = []
    for i in range(times):
        calls.write_text("")
        time.sleep(1 + i / times)
        at = time.time()
        redis.cli("eval", "redis.call('incr','bull:jobs:id') for i=1,20 do redis.call('lpush','bull:jobs:wait',i) end "
                  "redis.call('publish','bull:jobs:waiting@1','1')", "0")
        while not calls.read_text() and time.time() < at + 10:
            time.sleep(0.005)
        waits.append(float(calls.read_text().split()[0]) - at)
        redis.cli("del", "bull:jobs:wait")
    print(f"burst to compose call, {times} times: median {statistics.median(waits):.2f} s, "
          f"most {max(waits):.2f} s")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=int, default=60)
    options.add_argument("--groups", type=int, default=1000)
    options.add_argument("--burst", type=int, default=10)
    options = options.parse_args()
    cost("one group, a look a second", 1, options.seconds)
    cost(f"{options.groups} groups, a look a second each", options.groups, options.seconds)
    if options.burst and os.environ.get("DOCKER_HOST"):
        burst(options.burst)


if __name__ == "__main__":
    main()
