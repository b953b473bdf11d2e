-- +goose Up
-- Admission by fair shares, and what bounds runs.

-- rank is the order within a tenant and pool, the lowest first (package fair). A task of a
-- paused asset is held: it leaves the order, so that nobody walks over it again and again.
ALTER TABLE servo.ready_q
    ADD COLUMN rank bigint  NOT NULL DEFAULT 0,
    ADD COLUMN held boolean NOT NULL DEFAULT false;
DROP INDEX servo.ready_q_order;
CREATE INDEX ready_q_order ON servo.ready_q (tenant_id, pool, rank) WHERE NOT held;
CREATE INDEX ready_q_held ON servo.ready_q (tenant_id) WHERE held;
GRANT UPDATE (held) ON servo.ready_q TO servo_engine;

-- A queue is worked off in the order in which admission has filled it: that order is fair
-- already. cost is the worker-seconds that the tenant was charged for this attempt, ready_at
-- when the task became ready for it.
ALTER TABLE servo.pool_q
    ADD COLUMN rank  bigint NOT NULL DEFAULT 0,
    ADD COLUMN cost  real   NOT NULL DEFAULT 0 CHECK (cost >= 0),
    ADD COLUMN asset text   NOT NULL DEFAULT '',
    ADD COLUMN ready_at timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00';
DROP INDEX servo.pool_q_order;
CREATE INDEX pool_q_order ON servo.pool_q (pool, rank);
ALTER TABLE servo.leases
    ADD COLUMN cost  real NOT NULL DEFAULT 0 CHECK (cost >= 0),
    ADD COLUMN asset text NOT NULL DEFAULT '',
    ADD COLUMN ready_at timestamptz NOT NULL DEFAULT '0001-01-01 00:00:00+00';

-- What each tenant has of a pool: how many of its tasks are queued or leased there, and what
-- it is owed (or owes, below 0) in worker-seconds. Written by admission alone, under its duty.
CREATE TABLE servo.shares (
    tenant_id  uuid             NOT NULL,
    pool       text             NOT NULL CHECK (pool <> ''),
    in_flight  integer          NOT NULL DEFAULT 0,
    deficit    double precision NOT NULL DEFAULT 0,
    clock      double precision NOT NULL DEFAULT 0, -- of the pool, when the deficit was right
    served     double precision NOT NULL DEFAULT 0, -- worker-seconds, ever
    tasks      bigint           NOT NULL DEFAULT 0, -- attempts that have ended, ever
    updated_at timestamptz      NOT NULL,
    PRIMARY KEY (tenant_id, pool)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX shares_pool ON servo.shares (pool);

-- How far the clock of each pool has come: worker-seconds given to each tenant that waits, per
-- unit of its weight.
CREATE TABLE servo.pool_clocks (
    pool  text             PRIMARY KEY CHECK (pool <> ''),
    clock double precision NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
GRANT SELECT, INSERT, UPDATE ON servo.pool_clocks TO servo_engine;

-- What transactions have to say to admission about tasks that left a queue or a lease: one
-- row for each tenant, pool and asset of a transaction, added by anybody and folded into
-- shares and durations by admission. So reports of one tenant never wait for each other.
CREATE TABLE servo.settlements (
    id        bigint           GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id uuid             NOT NULL,
    pool      text             NOT NULL,
    asset     text             NOT NULL,
    left_by   integer          NOT NULL, -- tasks that are no longer in flight
    ended     integer          NOT NULL, -- attempts that have run
    seconds   double precision NOT NULL, -- what these have taken
    charged   double precision NOT NULL  -- what the tenant was charged for those that left
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- What an attempt of an asset takes by experience.
CREATE TABLE servo.durations (
    tenant_id  uuid             NOT NULL,
    asset      text             NOT NULL CHECK (asset <> ''),
    seconds    double precision NOT NULL CHECK (seconds >= 0),
    samples    bigint           NOT NULL,
    updated_at timestamptz      NOT NULL,
    PRIMARY KEY (tenant_id, asset)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- Every run that has not ended: what limits and locks are counted by. Unpartitioned and
-- narrow; a row lives as long as its run.
CREATE TABLE servo.live_runs (
    tenant_id    uuid        NOT NULL,
    run_id       uuid        NOT NULL,
    workspace_id uuid        NOT NULL,
    created_at   timestamptz NOT NULL,
    due_at       timestamptz,           -- when it is timed out; not before it has started, nor while it is cancelled
    limit_s      integer     NOT NULL,  -- how long it may take once started
    priority     smallint    NOT NULL,
    pending      boolean     NOT NULL,
    lock_key     text        NOT NULL DEFAULT '', -- '' takes no lock
    locked_by    text        NOT NULL DEFAULT '',
    pipeline     text        NOT NULL,
    PRIMARY KEY (tenant_id, run_id),
    CONSTRAINT due_when_started CHECK (NOT pending OR due_at IS NULL)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX live_runs_lock ON servo.live_runs (tenant_id, lock_key) WHERE lock_key <> '';
CREATE INDEX live_runs_due ON servo.live_runs (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX live_runs_running ON servo.live_runs (tenant_id) WHERE NOT pending;
CREATE INDEX live_runs_pending ON servo.live_runs (tenant_id, priority DESC, run_id) WHERE pending;

-- A trigger that finds its lock held is answered with the run that holds it, and so is its repeat.
GRANT UPDATE (run_id) ON servo.idempotency_keys TO servo_engine;

-- The trace that a run belongs to (W3C traceparent), for its workers.
ALTER TABLE servo.runs ADD COLUMN trace text NOT NULL DEFAULT '';

-- Assets whose new tasks wait.
CREATE TABLE servo.asset_pauses (
    tenant_id    uuid        NOT NULL,
    workspace_id uuid        NOT NULL,
    asset        text        NOT NULL CHECK (asset <> ''),
    paused_at    timestamptz NOT NULL,
    paused_by    text        NOT NULL DEFAULT '',
    reason       text        NOT NULL DEFAULT '',
    PRIMARY KEY (tenant_id, workspace_id, asset)
);

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['shares', 'settlements', 'durations', 'live_runs', 'asset_pauses'] LOOP
        EXECUTE format('ALTER TABLE servo.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON servo.%I TO servo_tenant USING (tenant_id = servo.current_tenant())', name);
        EXECUTE format('CREATE POLICY engine ON servo.%I TO servo_engine USING (true)', name);
        EXECUTE format('GRANT SELECT ON servo.%I TO servo_tenant', name);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON servo.%I TO servo_engine', name);
    END LOOP;
END
$$;
-- +goose StatementEnd
GRANT UPDATE ON servo.shares, servo.durations, servo.live_runs, servo.asset_pauses TO servo_engine;

-- Runs that are there already. The owner of the tables is bound by their policies like
-- everybody else, so this is done as the engine.
SET LOCAL ROLE servo_engine;
INSERT INTO servo.live_runs (tenant_id, run_id, workspace_id, created_at, due_at, limit_s, priority, pending, pipeline)
SELECT r.tenant_id, r.id, r.workspace_id, r.created_at, CASE WHEN r.state = 2 THEN r.created_at + interval '1 day' END, 86400,
       r.priority, false, r.pipeline
FROM   servo.runs r
WHERE  r.state < 10;
UPDATE servo.leases l SET asset = t.asset
FROM   servo.tasks t WHERE t.tenant_id = l.tenant_id AND t.run_id = l.run_id AND t.id = l.task_id;
RESET ROLE;
