-- +goose Up
-- Admission reads the head of an order instead of everybody who waits. even_at is the reading
-- of the pool's clock at which a tenant is owed nothing: the lowest comes next, and it stays
-- right while the clock moves. waits marks shares with ready tasks, over_quota those whose
-- tenant has no room; both are written by admission alone, under its duty.
ALTER TABLE servo.shares
    ADD COLUMN even_at    double precision NOT NULL DEFAULT 0,
    ADD COLUMN over_quota boolean          NOT NULL DEFAULT false;
-- The owner of the table is bound by its policies, so this is done as the engine. Who waits is
-- found again by the server that takes over the duty.
SET LOCAL ROLE servo_engine;
UPDATE servo.shares SET even_at = clock - deficit, waits = false;
RESET ROLE;
ALTER TABLE servo.shares DROP COLUMN deficit, DROP COLUMN clock;
DROP INDEX servo.shares_pool;
CREATE INDEX shares_order ON servo.shares (pool, even_at, tenant_id) WHERE waits AND NOT over_quota;
CREATE INDEX shares_in_flight ON servo.shares (pool) WHERE in_flight <> 0;

-- A transaction that makes tasks ready tells admission so: arrived. A note without a pool is
-- about all pools of its tenant: its quotas have changed.
ALTER TABLE servo.settlements ADD COLUMN arrived boolean NOT NULL DEFAULT false;
