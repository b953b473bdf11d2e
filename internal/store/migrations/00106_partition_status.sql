-- +goose Up
-- The status of partitions: which have succeeded, and which failed last.

-- The series that have a status. A merger locks this row first, so that one transaction at a time
-- folds the deltas of a series, in the order of their ids.
CREATE TABLE servo.partition_series (
    tenant_id    uuid NOT NULL,
    workspace_id uuid NOT NULL,
    asset        text NOT NULL CHECK (asset <> ''),
    series       text NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id, asset, series)
);

-- Ordinals of a series in rows of 16,384: a million partitions are some sixty rows.
CREATE TABLE servo.partition_status (
    tenant_id    uuid           NOT NULL,
    workspace_id uuid           NOT NULL,
    asset        text           NOT NULL,
    series       text           NOT NULL,
    bucket       bigint         NOT NULL, -- the ordinals from bucket × 16384 on
    succeeded    int8multirange NOT NULL DEFAULT '{}',
    failed       int8multirange NOT NULL DEFAULT '{}', -- the last task of the partition failed
    PRIMARY KEY (tenant_id, workspace_id, asset, series, bucket)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);

-- What a transaction that ends tasks adds to the status. Deltas do not commute: a failure after a
-- success is another status than a success after a failure.
CREATE TABLE servo.partition_deltas (
    id           bigint   GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id    uuid     NOT NULL,
    workspace_id uuid     NOT NULL,
    asset        text     NOT NULL,
    series       text     NOT NULL,
    first        bigint   NOT NULL,
    last         bigint   NOT NULL CHECK (last >= first),
    succeeded    boolean  NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX partition_deltas_series ON servo.partition_deltas (tenant_id, workspace_id, asset, series, id);

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['partition_series', 'partition_status', 'partition_deltas'] LOOP
        EXECUTE format('ALTER TABLE servo.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON servo.%I TO servo_tenant USING (tenant_id = servo.current_tenant())', name);
        EXECUTE format('CREATE POLICY engine ON servo.%I TO servo_engine USING (true)', name);
        EXECUTE format('GRANT SELECT ON servo.%I TO servo_tenant', name);
        EXECUTE format('GRANT SELECT, INSERT, DELETE ON servo.%I TO servo_engine', name);
    END LOOP;
END
$$;
-- +goose StatementEnd
GRANT UPDATE ON servo.partition_series, servo.partition_status TO servo_engine;

-- Whether a task of the run has declared partitions. The end of a task of any other run writes no
-- delta, and needs no statement.
ALTER TABLE servo.runs ADD COLUMN divided boolean NOT NULL DEFAULT false;
