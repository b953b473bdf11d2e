-- +goose Up
-- Lists of runs that a filter leaves empty must not walk the history of a tenant.

-- The state of a run that ended without success. It changes at that end alone: an index on
-- state would make every update of every run write to every index of the table.
ALTER TABLE servo.runs ADD COLUMN unsuccessful smallint GENERATED ALWAYS AS (CASE WHEN state > 10 THEN state END) STORED;
CREATE INDEX runs_unsuccessful ON servo.runs (tenant_id, unsuccessful, id) WHERE unsuccessful IS NOT NULL;

-- The retries of a run: an entry for each run that is one.
CREATE INDEX runs_parent ON servo.runs (tenant_id, parent_run_id, id) WHERE parent_run_id IS NOT NULL;
