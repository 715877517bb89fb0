-- On top of v2: Windmill since 1.637. Rows are no longer hidden, and workers may be native.
ALTER TABLE v2_job_queue DISABLE ROW LEVEL SECURITY;
ALTER TABLE worker_ping ADD dedicated_workers text[];
ALTER TABLE worker_ping ADD native_mode boolean NOT NULL DEFAULT false;
