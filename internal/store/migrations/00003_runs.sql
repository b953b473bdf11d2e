-- +goose Up
-- Runs and their tasks. The wide rows (runs, tasks, edges, run_events) are partitioned by
-- the month in the run's UUIDv7 and dropped together. No foreign keys point at them: they
-- would block the drop.

CREATE TABLE servo.runs (
    tenant_id     uuid        NOT NULL,
    id            uuid        NOT NULL,
    workspace_id  uuid        NOT NULL,
    deployment_id uuid        NOT NULL,
    parent_run_id uuid,
    created_at    timestamptz NOT NULL,
    started_at    timestamptz,
    finished_at   timestamptz,
    version       integer     NOT NULL,
    total         integer     NOT NULL CHECK (total > 0),
    remaining     integer     NOT NULL CHECK (remaining >= 0),
    succeeded     integer     NOT NULL DEFAULT 0,
    failed        integer     NOT NULL DEFAULT 0,
    skipped       integer     NOT NULL DEFAULT 0,
    cancelled     integer     NOT NULL DEFAULT 0,
    state         smallint    NOT NULL CHECK (state IN (1, 2, 3, 10, 11, 12, 13)),
    priority      smallint    NOT NULL,
    timed_out     boolean     NOT NULL DEFAULT false,
    cancel_reason text        NOT NULL DEFAULT '',
    pipeline      text        NOT NULL,
    trigger_type  text        NOT NULL,
    triggered_by  text        NOT NULL DEFAULT '',
    fingerprint   text        NOT NULL,
    parameters    jsonb,
    retry         jsonb,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT counters_add_up CHECK (total = remaining + succeeded + failed + skipped + cancelled),
    CONSTRAINT ends_with_its_last_task CHECK ((state >= 10) = (remaining = 0)),
    CONSTRAINT finished_when_terminal CHECK ((state >= 10) = (finished_at IS NOT NULL))
) PARTITION BY RANGE (id);

-- Written when a task is made and when it ends. In between it is a row of one queue table.
CREATE TABLE servo.tasks (
    tenant_id   uuid        NOT NULL,
    run_id      uuid        NOT NULL,
    id          uuid        NOT NULL,
    created_at  timestamptz NOT NULL,
    finished_at timestamptz,
    token       bigint,
    ix          integer     NOT NULL,
    timeout_s   integer     NOT NULL,
    version     integer,
    attempt     integer,
    failures    integer,
    fan_outs    integer,
    state       smallint    CHECK (state IN (10, 11, 12, 13)),
    priority    smallint    NOT NULL,
    late_result boolean     NOT NULL DEFAULT false,
    asset       text        NOT NULL,
    partition   text        NOT NULL DEFAULT '',
    pool        text        NOT NULL,
    outcome     text,
    cursor      text,
    result      jsonb,
    failure     jsonb,
    PRIMARY KEY (tenant_id, run_id, id),
    CONSTRAINT ends_whole CHECK (num_nulls(state, outcome, finished_at, version, attempt, failures, fan_outs, token) IN (0, 8))
) PARTITION BY RANGE (run_id);

-- task_id waits for upstream_id.
CREATE TABLE servo.edges (
    tenant_id   uuid NOT NULL,
    run_id      uuid NOT NULL,
    upstream_id uuid NOT NULL,
    task_id     uuid NOT NULL,
    PRIMARY KEY (tenant_id, run_id, upstream_id, task_id)
) PARTITION BY RANGE (run_id);

-- The events of runs (subject = the run) and of tasks (subject = the task). Versions of a
-- stream are unique by the row locks that order it; verify checks them. A unique index
-- would cost a quarter of the throughput.
CREATE TABLE servo.run_events (
    tenant_id   uuid        NOT NULL,
    run_id      uuid        NOT NULL,
    subject_id  uuid        NOT NULL,
    position    bigint      NOT NULL DEFAULT nextval('servo.event_position'),
    txid        xid8        NOT NULL DEFAULT pg_current_xact_id(),
    recorded_at timestamptz NOT NULL,
    version     integer     NOT NULL CHECK (version > 0),
    schema      smallint    NOT NULL,
    type        text        NOT NULL,
    actor       text        NOT NULL DEFAULT '',
    trace       text        NOT NULL DEFAULT '',
    data        jsonb       NOT NULL
) PARTITION BY RANGE (run_id);
CREATE INDEX run_events_stream ON servo.run_events (tenant_id, run_id);

-- The queue tables: narrow, insert and delete, one row for each task that has not ended.
-- Their key begins with the run, so that one index serves a report and a cancel's sweep. No
-- other index of theirs has a column of the key: with statistics from an empty table it
-- would look as cheap, and be walked from end to end for each row.
CREATE TABLE servo.waiting (
    tenant_id  uuid        NOT NULL,
    run_id     uuid        NOT NULL,
    task_id    uuid        NOT NULL,
    since      timestamptz NOT NULL,
    version    integer     NOT NULL,
    timeout_s  integer     NOT NULL CHECK (timeout_s > 0),
    priority   smallint    NOT NULL,
    dependents boolean     NOT NULL,
    pool       text        NOT NULL CHECK (pool <> ''),
    unmet      integer     NOT NULL CHECK (unmet > 0),
    PRIMARY KEY (run_id, task_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);

CREATE TABLE servo.ready_q (
    tenant_id  uuid        NOT NULL,
    run_id     uuid        NOT NULL,
    task_id    uuid        NOT NULL,
    since      timestamptz NOT NULL,
    version    integer     NOT NULL,
    timeout_s  integer     NOT NULL CHECK (timeout_s > 0),
    priority   smallint    NOT NULL,
    dependents boolean     NOT NULL,
    pool       text        NOT NULL CHECK (pool <> ''),
    attempt    integer     NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures   integer     NOT NULL DEFAULT 0 CHECK (failures >= 0),
    fruitless  integer     NOT NULL DEFAULT 0 CHECK (fruitless >= 0),
    fan_outs   integer     NOT NULL DEFAULT 0 CHECK (fan_outs >= 0),
    cursor     text        NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ready_q_order ON servo.ready_q (priority DESC, since);

CREATE TABLE servo.pool_q (
    tenant_id  uuid        NOT NULL,
    run_id     uuid        NOT NULL,
    task_id    uuid        NOT NULL,
    since      timestamptz NOT NULL,
    version    integer     NOT NULL,
    timeout_s  integer     NOT NULL CHECK (timeout_s > 0),
    priority   smallint    NOT NULL,
    dependents boolean     NOT NULL,
    pool       text        NOT NULL CHECK (pool <> ''),
    attempt    integer     NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures   integer     NOT NULL DEFAULT 0 CHECK (failures >= 0),
    fruitless  integer     NOT NULL DEFAULT 0 CHECK (fruitless >= 0),
    fan_outs   integer     NOT NULL DEFAULT 0 CHECK (fan_outs >= 0),
    cursor     text        NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX pool_q_order ON servo.pool_q (pool, priority DESC, since);

-- DISPATCHED while started_at is null, RUNNING afterwards. due_at is when the reaper must
-- look at the row: the earlier of expiry and deadline as they were last seen.
CREATE TABLE servo.leases (
    tenant_id  uuid        NOT NULL,
    run_id     uuid        NOT NULL,
    task_id    uuid        NOT NULL,
    since      timestamptz NOT NULL,
    version    integer     NOT NULL,
    timeout_s  integer     NOT NULL CHECK (timeout_s > 0),
    priority   smallint    NOT NULL,
    dependents boolean     NOT NULL,
    pool       text        NOT NULL CHECK (pool <> ''),
    attempt    integer     NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures   integer     NOT NULL DEFAULT 0 CHECK (failures >= 0),
    fruitless  integer     NOT NULL DEFAULT 0 CHECK (fruitless >= 0),
    fan_outs   integer     NOT NULL DEFAULT 0 CHECK (fan_outs >= 0),
    cursor     text        NOT NULL DEFAULT '',
    token      bigint      NOT NULL,
    claim_id   uuid        NOT NULL,
    started_at timestamptz,
    deadline   timestamptz,
    expires_at timestamptz NOT NULL,
    due_at     timestamptz NOT NULL,
    cancel_requested boolean NOT NULL DEFAULT false,
    worker     text        NOT NULL,
    PRIMARY KEY (run_id, task_id),
    CONSTRAINT deadline_when_started CHECK ((started_at IS NULL) = (deadline IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX leases_due ON servo.leases (due_at);
CREATE INDEX leases_claim ON servo.leases (claim_id);

CREATE TABLE servo.retry_q (
    tenant_id  uuid        NOT NULL,
    run_id     uuid        NOT NULL,
    task_id    uuid        NOT NULL,
    since      timestamptz NOT NULL,
    version    integer     NOT NULL,
    timeout_s  integer     NOT NULL CHECK (timeout_s > 0),
    priority   smallint    NOT NULL,
    dependents boolean     NOT NULL,
    pool       text        NOT NULL CHECK (pool <> ''),
    attempt    integer     NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    failures   integer     NOT NULL DEFAULT 0 CHECK (failures >= 0),
    fruitless  integer     NOT NULL DEFAULT 0 CHECK (fruitless >= 0),
    fan_outs   integer     NOT NULL DEFAULT 0 CHECK (fan_outs >= 0),
    cursor     text        NOT NULL DEFAULT '',
    due_at     timestamptz NOT NULL,
    failure    jsonb       NOT NULL,
    PRIMARY KEY (run_id, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX retry_q_due ON servo.retry_q (due_at);

-- What workers say about running attempts: renewed in place, no events, volatile.
CREATE TABLE servo.heartbeats (
    tenant_id  uuid        NOT NULL,
    run_id     uuid        NOT NULL,
    task_id    uuid        NOT NULL,
    token      bigint      NOT NULL,
    seen_at    timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    progress   real        NOT NULL DEFAULT 0 CHECK (progress BETWEEN 0 AND 1),
    phase      text        NOT NULL DEFAULT '',
    stage      text        NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, task_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);

-- Runs with a failed or skipped task whose downstream cone was too large for one
-- transaction. The next chunk is a follow-up; the reaper finds what a crash left.
CREATE TABLE servo.cones (
    tenant_id uuid NOT NULL,
    run_id    uuid NOT NULL,
    PRIMARY KEY (run_id)
);

-- Answers to repeated triggers. Small and unpartitioned: uniqueness across partitions.
CREATE TABLE servo.idempotency_keys (
    tenant_id  uuid        NOT NULL,
    key        text        NOT NULL CHECK (key <> ''),
    digest     text        NOT NULL,
    run_id     uuid        NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX idempotency_keys_age ON servo.idempotency_keys (created_at);

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['runs', 'tasks', 'edges', 'run_events', 'waiting', 'ready_q', 'pool_q', 'leases',
                                'retry_q', 'heartbeats', 'cones', 'idempotency_keys'] LOOP
        EXECUTE format('ALTER TABLE servo.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON servo.%I TO servo_tenant USING (tenant_id = servo.current_tenant())', name);
        EXECUTE format('CREATE POLICY engine ON servo.%I TO servo_engine USING (true)', name);
        EXECUTE format('GRANT SELECT ON servo.%I TO servo_tenant', name);
        EXECUTE format('GRANT SELECT, INSERT ON servo.%I TO servo_engine', name);
    END LOOP;
END
$$;
-- +goose StatementEnd
-- Events are append-only by privilege: nobody has UPDATE or DELETE on them.
GRANT UPDATE ON servo.runs, servo.tasks, servo.waiting, servo.leases, servo.heartbeats TO servo_engine;
GRANT DELETE ON servo.waiting, servo.ready_q, servo.pool_q, servo.leases, servo.retry_q, servo.heartbeats,
    servo.cones, servo.idempotency_keys TO servo_engine;
-- SELECT … FOR UPDATE asks for UPDATE on some column.
GRANT UPDATE (version) ON servo.ready_q, servo.pool_q, servo.retry_q TO servo_engine;

-- Where every task is: the live state from the queue tables, the end from the wide row.
CREATE VIEW servo.task_states WITH (security_invoker = true) AS
SELECT tenant_id, run_id, task_id, 1::smallint AS state, since, 0 AS attempt, 0 AS failures FROM servo.waiting
UNION ALL
SELECT tenant_id, run_id, task_id, 2::smallint, since, attempt, failures FROM servo.ready_q
UNION ALL
SELECT tenant_id, run_id, task_id, 3::smallint, since, attempt, failures FROM servo.pool_q
UNION ALL
SELECT tenant_id, run_id, task_id, CASE WHEN started_at IS NULL THEN 4 ELSE 5 END::smallint, since, attempt, failures FROM servo.leases
UNION ALL
SELECT tenant_id, run_id, task_id, 6::smallint, since, attempt, failures FROM servo.retry_q
UNION ALL
SELECT tenant_id, run_id, id, state, finished_at, attempt, failures FROM servo.tasks WHERE state IS NOT NULL;
GRANT SELECT ON servo.task_states TO servo_tenant, servo_engine;

SELECT servo.make_partitions(3);
