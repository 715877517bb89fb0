-- A role for Headcount that may read four tables of Windmill's database, and nothing else. Any version
-- since 1.413; may be run again, after an upgrade too. As the owner of Windmill's tables:
--
--   psql "$DATABASE_URL" -f role.sql
--   psql "$DATABASE_URL" -c '\password headcount'

DO $$
DECLARE
  jobs text := CASE WHEN to_regclass('v2_job_queue') IS NULL THEN 'queue' ELSE 'v2_job_queue' END;
  wanted text[] := CASE jobs WHEN 'queue' THEN ARRAY['queue', 'worker_ping', 'config']
    ELSE ARRAY['v2_job_queue', 'v2_job_runtime', 'worker_ping', 'config'] END;
  name text;
BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'headcount') THEN
    CREATE ROLE headcount LOGIN;
  END IF;
  EXECUTE format('GRANT CONNECT ON DATABASE %I TO headcount', current_database());
  EXECUTE format('GRANT USAGE ON SCHEMA %I TO headcount', current_schema());
  FOREACH name IN ARRAY wanted LOOP
    EXECUTE format('GRANT SELECT ON %I TO headcount', name);
  END LOOP;
  -- Up to 1.614 row-level security hides all jobs, without an error. Where it is off, the policy has no
  -- effect.
  IF NOT EXISTS (
    SELECT FROM pg_policies WHERE tablename = jobs AND policyname = 'headcount_reads'
      AND schemaname = current_schema()
  ) THEN
    EXECUTE format('CREATE POLICY headcount_reads ON %I FOR SELECT TO headcount USING (true)', jobs);
  END IF;
END $$;
