-- +goose Up
-- What runs were promised, whether it was kept, and the sums that people read.

-- A run of a config should have begun by start_by. late says that it had not.
ALTER TABLE servo.runs
    ADD COLUMN provider      text    NOT NULL DEFAULT '', -- the label of its config when it was made
    ADD COLUMN start_by      timestamptz,
    ADD COLUMN start_limit_s integer NOT NULL DEFAULT 0,  -- the delay that start_by allows
    ADD COLUMN late          boolean NOT NULL DEFAULT false;

ALTER TABLE servo.live_runs
    ADD COLUMN late_at  timestamptz,                 -- when somebody looks whether it has begun; null once looked, or nothing to look for
    ADD COLUMN breaches smallint NOT NULL DEFAULT 0; -- 1: it began late, or has not begun; 2: it took too long
CREATE INDEX live_runs_late ON servo.live_runs (late_at) WHERE late_at IS NOT NULL;
CREATE INDEX live_runs_breached ON servo.live_runs (tenant_id, config_id) WHERE breaches <> 0;

-- Sums of the runs that have ended, by the day in UTC on which they did, and of the breaches
-- of that day. They outlive the runs.
CREATE TABLE servo.run_totals (
    tenant_id uuid             NOT NULL,
    day       date             NOT NULL,
    provider  text             NOT NULL,
    ended     bigint           NOT NULL,
    succeeded bigint           NOT NULL,
    failed    bigint           NOT NULL,
    timed_out bigint           NOT NULL,
    cancelled bigint           NOT NULL,
    started   bigint           NOT NULL, -- of those that ended, and have seconds
    seconds   double precision NOT NULL, -- from start to end
    breached  bigint           NOT NULL, -- runs that ended with a breach
    breaches  bigint           NOT NULL, -- breaches that happened on that day, of whatever run
    PRIMARY KEY (tenant_id, day, provider),
    CONSTRAINT ends_add_up CHECK (ended = succeeded + failed + timed_out + cancelled)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX run_totals_day ON servo.run_totals (day);

-- What transactions add to them: a row for each tenant, day and provider of a transaction,
-- added by anybody and merged by a loop, so that runs of one tenant can end side by side.
CREATE TABLE servo.run_deltas (
    id        bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id uuid             NOT NULL,
    day       date             NOT NULL,
    provider  text             NOT NULL,
    ended     integer          NOT NULL,
    succeeded integer          NOT NULL,
    failed    integer          NOT NULL,
    timed_out integer          NOT NULL,
    cancelled integer          NOT NULL,
    started   integer          NOT NULL,
    seconds   double precision NOT NULL,
    breached  integer          NOT NULL,
    breaches  integer          NOT NULL,
    CONSTRAINT ends_add_up CHECK (ended = succeeded + failed + timed_out + cancelled)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

ALTER TABLE servo.run_totals ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.run_deltas ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.run_totals TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.run_deltas TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.run_totals TO servo_engine USING (true);
CREATE POLICY engine ON servo.run_deltas TO servo_engine USING (true);
GRANT SELECT ON servo.run_totals, servo.run_deltas TO servo_tenant;
GRANT SELECT, INSERT, UPDATE ON servo.run_totals TO servo_engine;
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.run_deltas TO servo_engine; -- a row is locked before it is deleted

-- What is there already. A run that was timed out took too long, though no event calls it a breach.
SET LOCAL ROLE servo_engine;
INSERT INTO servo.run_totals (tenant_id, day, provider, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
SELECT r.tenant_id, (r.finished_at AT TIME ZONE 'UTC')::date, '', count(*), count(*) FILTER (WHERE r.state = 10), count(*) FILTER (WHERE r.state = 11),
       count(*) FILTER (WHERE r.state = 12), count(*) FILTER (WHERE r.state = 13), count(r.started_at),
       coalesce(sum(greatest(extract(epoch FROM r.finished_at - r.started_at), 0)), 0), count(*) FILTER (WHERE r.timed_out), 0
FROM   servo.runs r
WHERE  r.state >= 10
GROUP  BY 1, 2;
UPDATE servo.live_runs l SET breaches = 2
FROM   servo.runs r WHERE r.tenant_id = l.tenant_id AND r.id = l.run_id AND r.timed_out;
RESET ROLE;
