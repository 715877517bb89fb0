-- Windmill 1.463: jobs that wait or run are in `v2_job_queue`, and rows are hidden from all but its
-- own roles.
CREATE TABLE config (name varchar(255) PRIMARY KEY, config jsonb);
CREATE TABLE worker_ping (
  worker varchar(255) PRIMARY KEY, worker_instance varchar(255) NOT NULL,
  ping_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz NOT NULL DEFAULT now(),
  ip varchar(50) NOT NULL DEFAULT '', jobs_executed integer NOT NULL DEFAULT 0, custom_tags text[],
  worker_group varchar(255) NOT NULL, dedicated_worker varchar(255),
  wm_version varchar(255) NOT NULL DEFAULT '', current_job_id uuid,
  current_job_workspace_id varchar(50), occupancy_rate real,
  occupancy_rate_15s real, occupancy_rate_5m real, occupancy_rate_30m real);
CREATE TABLE v2_job_queue (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), workspace_id varchar(50) NOT NULL DEFAULT 'w',
  created_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz,
  scheduled_for timestamptz NOT NULL, running boolean NOT NULL DEFAULT false,
  canceled_by varchar(255), canceled_reason text, suspend integer NOT NULL DEFAULT 0,
  suspend_until timestamptz, tag varchar(255) NOT NULL, priority smallint, worker varchar(255),
  extras jsonb);
CREATE INDEX queue_sort_v2 ON v2_job_queue (priority DESC NULLS LAST, scheduled_for, tag)
  WHERE running = false;
CREATE TABLE v2_job_runtime (id uuid PRIMARY KEY, ping timestamptz, memory_peak integer);
ALTER TABLE v2_job_queue ENABLE ROW LEVEL SECURITY;

CREATE FUNCTION add_job(tag text, due interval, running boolean DEFAULT false,
  worker text DEFAULT NULL, age interval DEFAULT NULL, ping interval DEFAULT NULL,
  suspend integer DEFAULT 0, until interval DEFAULT NULL, canceled text DEFAULT NULL)
RETURNS uuid LANGUAGE sql AS $$
  WITH job AS (
    INSERT INTO v2_job_queue (tag, scheduled_for, running, worker, started_at, suspend, suspend_until, canceled_by)
    VALUES ($1, now() - due, running, $4, now() - age, suspend, now() + until, canceled)
    RETURNING id)
  INSERT INTO v2_job_runtime (id, ping) SELECT id, now() - $6 FROM job RETURNING id
$$;
