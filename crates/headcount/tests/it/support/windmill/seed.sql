-- A Windmill with something of everything. The comments say what counts.
CREATE FUNCTION add_worker(worker text, instance text, worker_group text, tags text[],
  ping interval DEFAULT '1 s', up interval DEFAULT '1 h', r15s real DEFAULT NULL,
  r5m real DEFAULT NULL, r30m real DEFAULT NULL)
RETURNS void LANGUAGE sql AS $$
  INSERT INTO worker_ping (worker, worker_instance, worker_group, custom_tags, ping_at, started_at,
    occupancy_rate_15s, occupancy_rate_5m, occupancy_rate_30m)
  VALUES ($1, $2, $3, $4, now() - ping, now() - up, r15s, r5m, r30m)
$$;

INSERT INTO config VALUES
  ('worker__default', '{"worker_tags": ["python3", "deno"], "init_bash": "true"}'),
  ('worker__native', '{"worker_tags": ["postgresql", "mysql"]}'),
  ('worker__reports', '{"dedicated_worker": "demo:f/reports/daily"}'),
  ('worker__long', '{"dedicated_workers": ["workspace:f/a_folder/with_a_very_long_path/to_a_script"]}'),
  ('worker__narrow', '{"worker_tags": ["python3", "bash"], "autoscaling": {"enabled": true, "custom_tags": ["bash"]}}'),
  ('worker__bare', '{"cache_clear": 3}'),
  ('alert__something', '{}');

-- Three live workers of `default`, one of them too young for two windows, and one that is gone.
SELECT add_worker('wk-default-h1-a', 'h1', 'default', '{python3,bash,flow}', '1 s', '1 h', 1.0, 0.9, 0.82);
SELECT add_worker('wk-default-h2-b', 'h2', 'default', '{python3,bash,flow}', '4 s', '1 h', 1.0, 0.82, 0.82);
SELECT add_worker('wk-default-h3-c', 'h3', 'default', '{python3,bash,flow}', '8 s', '60 s', 0.0, NULL, NULL);
SELECT add_worker('wk-default-h4-d', 'h4', 'default', '{python3,bash,old}', '90 s', '1 h', 0.0, 0.0, 0.0);
SELECT add_worker('wk-default-h5-e', 'h5', 'default', '{python3,ancient}', '1 h', '2 h', 0.0, 0.0, 0.0);
-- Eleven rows of native workers: two of them.
SELECT add_worker('wk-native-n1-' || i, 'n1', 'native', '{postgresql,mysql}') FROM generate_series(1, 8) i;
SELECT add_worker('wk-native-n2-' || i, 'n2', 'native', '{postgresql,mysql}') FROM generate_series(1, 3) i;

-- python3: 6 wait (one is cancelled, which a worker must still take), of 22 rows.
SELECT add_job('python3', i * interval '10 s') FROM generate_series(1, 5) i;
SELECT add_job('python3', '60 s', canceled => 'somebody');
SELECT add_job('python3', '0 s') FROM generate_series(1, 2) i;
SELECT add_job('python3', '-1 h') FROM generate_series(1, 3) i;
SELECT add_job('python3', '50 s', true, 'wk-default-h1-a', '40 s', '2 s');
SELECT add_job('python3', '50 s', true, 'wk-default-h2-b', '35 s', '5 s');
SELECT add_job('python3', '1 h', true, NULL, '1 h', NULL, 1, '14 days') FROM generate_series(1, 9) i;
SELECT add_job('bash', '100 s') FROM generate_series(1, 4) i;
SELECT add_job('postgresql', '5 s') FROM generate_series(1, 11) i;
SELECT add_job('demo:f/reports/daily', '20 s') FROM generate_series(1, 7) i;
SELECT add_job('workspace:f/a_folder/with_a_very_#de1aeb63eaf6bddd', '20 s') FROM generate_series(1, 3) i;
-- flow: 3 may go on, 2 sleep, 1 runs its steps and occupies nobody.
SELECT add_job('flow', '1 h', true, NULL, '1 h', NULL, 0, '14 days') FROM generate_series(1, 2) i;
SELECT add_job('flow', '1 h', true, NULL, '1 h', NULL, 1, '-1 s');
SELECT add_job('flow', '1 h', true, NULL, '1 h', NULL, 1, '14 days') FROM generate_series(1, 2) i;
SELECT add_job('flow', '10 m', true, 'wk-default-h3-c', '10 m', NULL);
