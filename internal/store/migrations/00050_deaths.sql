-- +goose Up
-- How often a worker died while it ran the task: a budget of its own beside failures, since the
-- death of a worker is no fault of the task, and a task that kills its workers must end.
ALTER TABLE servo.ready_q ADD COLUMN deaths integer NOT NULL DEFAULT 0 CHECK (deaths >= 0);
ALTER TABLE servo.pool_q  ADD COLUMN deaths integer NOT NULL DEFAULT 0 CHECK (deaths >= 0);
ALTER TABLE servo.leases  ADD COLUMN deaths integer NOT NULL DEFAULT 0 CHECK (deaths >= 0);
ALTER TABLE servo.retry_q ADD COLUMN deaths integer NOT NULL DEFAULT 0 CHECK (deaths >= 0);
