-- Windmill 1.413: jobs, running or not, are in `queue`.
CREATE TABLE config (name varchar(255) PRIMARY KEY, config jsonb);
CREATE TABLE worker_ping (
  worker varchar(255) PRIMARY KEY, worker_instance varchar(255) NOT NULL,
  ping_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz NOT NULL DEFAULT now(),
  ip varchar(50) NOT NULL DEFAULT '', jobs_executed integer NOT NULL DEFAULT 0, custom_tags text[],
  worker_group varchar(255) NOT NULL, dedicated_worker varchar(255),
  wm_version varchar(255) NOT NULL DEFAULT '', current_job_id uuid,
  current_job_workspace_id varchar(50), occupancy_rate real,
  occupancy_rate_15s real, occupancy_rate_5m real, occupancy_rate_30m real);
CREATE TABLE queue (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), workspace_id varchar(50) NOT NULL DEFAULT 'w',
  created_at timestamptz NOT NULL DEFAULT now(), started_at timestamptz,
  scheduled_for timestamptz NOT NULL, running boolean NOT NULL DEFAULT false,
  canceled_by varchar(255), last_ping timestamptz, suspend integer NOT NULL DEFAULT 0,
  suspend_until timestamptz, tag varchar(255) NOT NULL, priority smallint);

CREATE FUNCTION add_job(tag text, due interval, running boolean DEFAULT false,
  worker text DEFAULT NULL, age interval DEFAULT NULL, ping interval DEFAULT NULL,
  suspend integer DEFAULT 0, until interval DEFAULT NULL, canceled text DEFAULT NULL)
RETURNS uuid LANGUAGE sql AS $$
  WITH job AS (
    INSERT INTO queue (tag, scheduled_for, running, started_at, last_ping, suspend, suspend_until, canceled_by)
    VALUES ($1, now() - due, running, now() - age, now() - ping, suspend, now() + until, canceled)
    RETURNING id),
  worker AS (UPDATE worker_ping SET current_job_id = (SELECT id FROM job) WHERE worker_ping.worker = $4)
  SELECT id FROM job
$$;
