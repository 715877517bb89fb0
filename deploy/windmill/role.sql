-- A role for Headcount that may read four tables of Windmill's database, and nothing else. Any version
-- since 1.413; may be run again, after an upgrade too. As the owner of Windmill's tables:
--
--   psql "$DATABASE_URL" -f role.sql
--   psql "$DATABASE_URL" -c '\password headcount'

DO $$
DECLARE
  wanted text[] := CASE WHEN to_regclass('v2_job_queue') IS NULL
    THEN ARRAY['queue', 'worker_ping', 'config']
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
  -- From 1.458 to 1.614 row-level security hides all jobs, without an error. Since 1.615 the policy
  -- has no effect.
  IF 'v2_job_queue' = ANY (wanted) AND NOT EXISTS (
    SELECT FROM pg_policies WHERE tablename = 'v2_job_queue' AND policyname = 'headcount_reads'
      AND schemaname = current_schema()
  ) THEN
    CREATE POLICY headcount_reads ON v2_job_queue FOR SELECT TO headcount USING (true);
  END IF;
END $$;
