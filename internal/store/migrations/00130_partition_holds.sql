-- +goose Up
-- One writer at a time for each partition of an asset (docs/adr/0049-partition-holds.md).

-- Partitions that a task holds from its first admission to its end. Only the holder of the admission
-- duty inserts rows, and it inserts none that overlaps another.
CREATE TABLE servo.partition_holds (
    tenant_id    uuid        NOT NULL,
    workspace_id uuid        NOT NULL,
    asset        text        NOT NULL CHECK (asset <> ''),
    series       text        NOT NULL,
    first        bigint      NOT NULL,
    last         bigint      NOT NULL CHECK (last >= first),
    run_id       uuid        NOT NULL,
    task_id      uuid        NOT NULL,
    held_at      timestamptz NOT NULL,
    PRIMARY KEY (run_id, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX partition_holds_series ON servo.partition_holds (tenant_id, workspace_id, asset, series, first);

-- Ready tasks that admission has taken out of the order until the hold of another task is released.
CREATE TABLE servo.partition_waits (
    tenant_id      uuid NOT NULL,
    run_id         uuid NOT NULL,
    task_id        uuid NOT NULL,
    holder_run_id  uuid NOT NULL,
    holder_task_id uuid NOT NULL,
    PRIMARY KEY (run_id, task_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0);
CREATE INDEX partition_waits_holder ON servo.partition_waits (holder_run_id, holder_task_id);

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['partition_holds', 'partition_waits'] LOOP
        EXECUTE format('ALTER TABLE servo.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON servo.%I TO servo_tenant USING (tenant_id = servo.current_tenant())', name);
        EXECUTE format('CREATE POLICY engine ON servo.%I TO servo_engine USING (true)', name);
        EXECUTE format('GRANT SELECT ON servo.%I TO servo_tenant', name);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON servo.%I TO servo_engine', name);
    END LOOP;
END
$$;
-- +goose StatementEnd
-- Locks of rows need the right to update a column.
GRANT UPDATE (held_at) ON servo.partition_holds TO servo_engine;
GRANT UPDATE (holder_run_id, holder_task_id) ON servo.partition_waits TO servo_engine;

-- Whether the run of a ready task has partitions: a round of admission without such tasks reads no hold.
ALTER TABLE servo.ready_q ADD COLUMN divided boolean NOT NULL DEFAULT false;
UPDATE servo.ready_q q SET divided = true FROM servo.runs r WHERE r.tenant_id = q.tenant_id AND r.id = q.run_id AND r.divided;

-- Tasks that were admitted by an earlier version hold their partitions. Where two of them overlap, the
-- first one does.
INSERT INTO servo.partition_holds (tenant_id, workspace_id, asset, series, first, last, run_id, task_id, held_at)
SELECT t.tenant_id, r.workspace_id, t.asset, t.series, t.first_ordinal, t.last_ordinal, t.run_id, t.id, servo.clock()
FROM   (SELECT tenant_id, run_id, task_id FROM servo.pool_q
        UNION ALL SELECT tenant_id, run_id, task_id FROM servo.leases
        UNION ALL SELECT tenant_id, run_id, task_id FROM servo.retry_q
        UNION ALL SELECT tenant_id, run_id, task_id FROM servo.ready_q WHERE attempt > 0) AS q
JOIN   servo.tasks t ON t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.id = q.task_id
JOIN   servo.runs r ON r.tenant_id = q.tenant_id AND r.id = q.run_id
WHERE  t.first_ordinal IS NOT NULL
ON CONFLICT DO NOTHING;
