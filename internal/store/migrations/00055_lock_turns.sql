-- +goose Up

-- The place of a run among those that wait for the same lock. Ids do not say it: two runs of one
-- millisecond have no order, and a server may have read the clock before another and decide later.
CREATE SEQUENCE servo.lock_turns AS bigint;
GRANT USAGE ON SEQUENCE servo.lock_turns TO servo_engine;

ALTER TABLE servo.live_runs ADD COLUMN turn bigint NOT NULL DEFAULT 0; -- 0 never waited for a lock
CREATE INDEX live_runs_waits ON servo.live_runs (tenant_id, wait_key, turn, run_id) WHERE wait_key <> '';
