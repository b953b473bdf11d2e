-- +goose Up
-- What operators look for across tenants.

-- The newest runs of all tenants: an entry at the right end of the index for each run, and none
-- when a run changes. The id is not in it: no index but the key may look like a way to a run.
CREATE INDEX runs_created ON servo.runs (created_at);

-- Configs whose last run has failed, and not only those that fail again and again: an entry comes
-- with the first failure and goes with the next success.
DROP INDEX servo.configs_failing;
CREATE INDEX configs_failing ON servo.configs (tenant_id, id) WHERE failures > 0 AND deleted_at IS NULL;
