-- +goose Up
-- What a tenant may use. -1 is no limit; max_concurrent_tasks = 0 isolates a tenant.
ALTER TABLE servo.tenants
    ADD COLUMN max_concurrent_tasks integer          NOT NULL DEFAULT 100   CHECK (max_concurrent_tasks >= -1),
    ADD COLUMN max_queued_tasks     integer          NOT NULL DEFAULT 1000  CHECK (max_queued_tasks >= -1),
    ADD COLUMN max_concurrent_runs  integer          NOT NULL DEFAULT 10    CHECK (max_concurrent_runs >= -1),
    ADD COLUMN max_daily_runs       integer          NOT NULL DEFAULT -1    CHECK (max_daily_runs >= -1),
    ADD COLUMN max_run_duration_s   integer          NOT NULL DEFAULT 86400 CHECK (max_run_duration_s > 0),
    ADD COLUMN max_tasks_per_run    integer          NOT NULL DEFAULT 10000 CHECK (max_tasks_per_run > 0),
    ADD COLUMN max_backfill_runs    integer          NOT NULL DEFAULT 5     CHECK (max_backfill_runs >= -1),
    ADD COLUMN fairness_weight      double precision NOT NULL DEFAULT 1     CHECK (fairness_weight > 0),
    ADD COLUMN zone                 text             NOT NULL DEFAULT 'UTC' CHECK (zone <> ''); -- of its days
