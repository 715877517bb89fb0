-- On top of that: jobs that a concurrency limit sent back are marked.
ALTER TABLE v2_job_queue ADD concurrency_gated_at timestamptz;
