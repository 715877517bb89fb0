#!/usr/bin/env python3
"""A stand-in for a Windmill worker: worker.py CONNECTION GROUP TAG...

It takes rows of v2_job_queue as Windmill's workers do, one at a time, each lasting extras.seconds; tells of itself and
of its job; and on SIGTERM ends once its job is done. What it did is written into the table `done`. It claims to run
for ten hours already and its occupancy windows are LAPSE times shorter, so that a test need not wait half an hour.
"""
import os, random, signal, socket, string, sys, threading, time
import psycopg2

LAPSE = float(os.environ.get("LAPSE", "360"))
WINDOWS = [15, 300, 1800]
PING = float(os.environ.get("PING", "1"))


class Worker:
    def __init__(self, connection, group, tags):
        self.database = psycopg2.connect(connection, application_name="windmill")
        self.told_by = psycopg2.connect(connection, application_name="windmill")
        self.told_by.autocommit = True
        self.group, self.tags = group, tags
        self.instance = os.environ.get("FORCE_HOSTNAME") or socket.gethostname()
        letters = "".join(random.choices(string.ascii_letters, k=5))
        self.name = f"wk-{group}-{self.instance.split('-')[-1]}-{letters}"
        self.going, self.job, self.since, self.busy = False, None, None, 0.0
        self.history = [(time.monotonic(), 0.0)]
        self.lock = threading.Lock()

    def busy_until_now(self):
        return self.busy + (time.monotonic() - self.since if self.job else 0.0)

    def rates(self):
        now, busy = time.monotonic(), self.busy_until_now()
        self.history = [h for h in self.history if h[0] > now - WINDOWS[2] / LAPSE - 10] + [(now, busy)]
        rates = []
        for window in WINDOWS:
            # Not shorter than a few pings.
            at, then = next(h for h in self.history if h[0] >= now - max(window / LAPSE, 3 * PING) or h[0] == now)
            rates.append((busy - then) / (now - at) if now > at else None)
        return rates

    def tell(self):
        with self.lock, self.told_by.cursor() as cursor:
            cursor.execute(
                """INSERT INTO worker_ping (worker, worker_instance, worker_group, custom_tags, started_at,
                     current_job_id, occupancy_rate_15s, occupancy_rate_5m, occupancy_rate_30m)
                   VALUES (%s, %s, %s, %s, now() - interval '10 hours', %s, %s, %s, %s)
                   ON CONFLICT (worker) DO UPDATE SET ping_at = now(),
                     current_job_id = coalesce(excluded.current_job_id, worker_ping.current_job_id),
                     occupancy_rate_15s = excluded.occupancy_rate_15s,
                     occupancy_rate_5m = excluded.occupancy_rate_5m,
                     occupancy_rate_30m = excluded.occupancy_rate_30m""",
                (self.name, self.instance, self.group, self.tags, self.job, *self.rates()))
            if self.job:
                cursor.execute("UPDATE v2_job_runtime SET ping = now() WHERE id = %s", (self.job,))

    def keep_telling(self):
        while True:
            time.sleep(PING)
            try:
                self.tell()
            except psycopg2.Error as error:
                print(error, flush=True)

    def take(self):
        with self.database, self.database.cursor() as cursor:
            cursor.execute(
                """UPDATE v2_job_queue SET running = true, started_at = now(), worker = %s WHERE id = (
                     SELECT id FROM v2_job_queue WHERE running = false AND tag = ANY(%s) AND scheduled_for <= now()
                     ORDER BY priority DESC NULLS LAST, scheduled_for FOR UPDATE SKIP LOCKED LIMIT 1)
                   RETURNING id, coalesce(extras->>'seconds', '0')::float8""", (self.name, self.tags))
            row = cursor.fetchone()
            if row:
                cursor.execute("UPDATE v2_job_runtime SET ping = now() WHERE id = %s", (row[0],))
            return row

    def work(self):
        self.tell()
        threading.Thread(target=self.keep_telling, daemon=True).start()
        while not self.going:
            row = self.take()
            if row is None:
                time.sleep(0.05)
                continue
            with self.lock:
                self.job, self.since = row[0], time.monotonic()
            end = time.monotonic() + row[1]
            while time.monotonic() < end:
                time.sleep(max(0, min(0.2, end - time.monotonic())))
            with self.database, self.database.cursor() as cursor:
                cursor.execute("DELETE FROM v2_job_queue WHERE id = %s AND worker = %s", (self.job, self.name))
                cursor.execute("INSERT INTO done VALUES (%s, %s)", (self.job, self.instance))
                cursor.execute("UPDATE worker_ping SET jobs_executed = jobs_executed + 1 WHERE worker = %s", (self.name,))
            with self.lock:
                self.busy, self.job = self.busy_until_now(), None

    def go(self, *_):
        self.going = True


if __name__ == "__main__":
    worker = Worker(sys.argv[1], sys.argv[2], sys.argv[3:])
    signal.signal(signal.SIGTERM, worker.go)
    worker.work()
