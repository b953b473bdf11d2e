-- +goose Up
-- What ended and what broke, by hour, for the last days.

-- In which hour of its day a delta happened, and the longest that a run in it had waited to be
-- started. A server that does not say the hour yet writes now.
ALTER TABLE servo.run_deltas
    ADD COLUMN hour  smallint         NOT NULL DEFAULT extract(hour FROM servo.clock() AT TIME ZONE 'UTC') CHECK (hour BETWEEN 0 AND 23),
    ADD COLUMN delay double precision NOT NULL DEFAULT 0;

-- Made from the same rows as the totals by day, in the same statement, and forgotten by age.
CREATE TABLE servo.run_hours (
    tenant_id uuid             NOT NULL, -- zeros are all tenants together
    hour      timestamptz      NOT NULL, -- its beginning
    succeeded bigint           NOT NULL,
    failed    bigint           NOT NULL,
    timed_out bigint           NOT NULL,
    cancelled bigint           NOT NULL,
    started   bigint           NOT NULL, -- of those that ended, and have seconds
    seconds   double precision NOT NULL, -- from start to end
    breaches  bigint           NOT NULL, -- that happened in that hour, of whatever run
    delay     double precision NOT NULL, -- the longest that one of those that ended had waited to be started
    PRIMARY KEY (tenant_id, hour)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX run_hours_age ON servo.run_hours (hour);

ALTER TABLE servo.run_hours ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.run_hours TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.run_hours TO servo_engine USING (true);
GRANT SELECT ON servo.run_hours TO servo_tenant;
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.run_hours TO servo_engine;
