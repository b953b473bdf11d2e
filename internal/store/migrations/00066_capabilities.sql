-- +goose Up
-- What a worker must have to run a task: its kind, and for Go the handler ("exec", "http",
-- "go:orders"). Tasks of earlier versions need nothing that is known: every worker may have them.
ALTER TABLE servo.waiting ADD COLUMN needs text NOT NULL DEFAULT '';
ALTER TABLE servo.ready_q ADD COLUMN needs text NOT NULL DEFAULT '';
ALTER TABLE servo.pool_q  ADD COLUMN needs text NOT NULL DEFAULT '';
ALTER TABLE servo.leases  ADD COLUMN needs text NOT NULL DEFAULT '';
ALTER TABLE servo.retry_q ADD COLUMN needs text NOT NULL DEFAULT '';

-- A task that no live worker of its pool can run is held like one of a paused asset: it leaves the
-- order until such a worker is seen. The mark says which of the two reasons it has.
ALTER TABLE servo.ready_q ADD COLUMN lacks_worker boolean NOT NULL DEFAULT false;
CREATE INDEX ready_q_lacks_worker ON servo.ready_q (pool, needs) WHERE lacks_worker;
GRANT UPDATE (lacks_worker) ON servo.ready_q TO servo_engine;

-- What workers can run. Workers of one build have the same capabilities, so each list is stored
-- once, under its digest, and never changes. The digest '' is a worker that runs everything.
CREATE TABLE servo.capability_sets (
    digest       text PRIMARY KEY,
    capabilities text[] NOT NULL,
    seen_at      timestamptz NOT NULL
);
GRANT SELECT, INSERT, DELETE ON servo.capability_sets TO servo_engine;
GRANT UPDATE (seen_at) ON servo.capability_sets TO servo_engine;
ALTER TABLE servo.workers ADD COLUMN capabilities text NOT NULL DEFAULT '';
