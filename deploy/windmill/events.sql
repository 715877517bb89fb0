-- With `write_events: true` Headcount writes its changes into Windmill's own list of autoscaling events.
-- Run it after role.sql:  psql "$DATABASE_URL" -f events.sql
GRANT INSERT ON autoscaling_event TO headcount;
GRANT USAGE ON SEQUENCE autoscaling_event_id_seq TO headcount;
