-- +goose Up
-- Versions of outputs, and the pointers that name the promoted ones.

-- One row for each version of an asset's partition or range. Its version is the fencing token of the
-- attempt that wrote it. The row outlives its run.
CREATE TABLE servo.materializations (
    tenant_id     uuid        NOT NULL,
    workspace_id  uuid        NOT NULL,
    asset         text        NOT NULL CHECK (asset <> ''),
    token         bigint      NOT NULL CHECK (token > 0),
    id            uuid        NOT NULL, -- of its task, which ends once; the stream of its reviews
    version       integer     NOT NULL DEFAULT 0 CHECK (version >= 0), -- of that stream
    state         text        NOT NULL CHECK (state IN ('PROMOTED', 'SUPERSEDED', 'QUARANTINED', 'REJECTED', 'WIPED')),
    gate          text        NOT NULL,
    partition     text        NOT NULL, -- as its task names it: a partition, a range, or ''
    series        text        NOT NULL DEFAULT '',
    first_ordinal bigint,
    last_ordinal  bigint,
    run_id        uuid,                 -- null if another system has reported it
    attempt       integer     NOT NULL,
    deployment_id uuid,
    format        text        NOT NULL,
    path          text        NOT NULL, -- in the blob store; '' for tables
    rows          bigint      NOT NULL,
    bytes         bigint      NOT NULL,
    files         integer     NOT NULL,
    digest        text        NOT NULL,
    schema_hash   text        NOT NULL,
    detail        jsonb       NOT NULL, -- schema, checks, inputs, partitions of a range
    started_at    timestamptz,
    committed_at  timestamptz,
    recorded_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id, asset, token),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES servo.workspaces (tenant_id, id)
) WITH (fillfactor = 90);
CREATE UNIQUE INDEX materializations_id ON servo.materializations (tenant_id, id);
CREATE INDEX materializations_partition ON servo.materializations (tenant_id, workspace_id, asset, partition, token);
CREATE INDEX materializations_run ON servo.materializations (tenant_id, run_id) WHERE run_id IS NOT NULL;
-- Versions that wait for review.
CREATE INDEX materializations_quarantined ON servo.materializations (tenant_id, token) WHERE state = 'QUARANTINED';

-- The versions that a version was made from.
CREATE TABLE servo.materialization_inputs (
    tenant_id    uuid   NOT NULL,
    workspace_id uuid   NOT NULL,
    asset        text   NOT NULL,
    token        bigint NOT NULL,
    input_asset  text   NOT NULL,
    input_token  bigint NOT NULL,
    PRIMARY KEY (tenant_id, workspace_id, asset, token, input_asset, input_token)
);
CREATE INDEX materialization_inputs_input ON servo.materialization_inputs (tenant_id, workspace_id, input_asset, input_token);

-- The promoted version of each partition. Completions, approvals and rollbacks lock the row, last in
-- the lock order and by key.
CREATE TABLE servo.pointers (
    tenant_id    uuid        NOT NULL,
    workspace_id uuid        NOT NULL,
    asset        text        NOT NULL CHECK (asset <> ''),
    partition    text        NOT NULL COLLATE "C", -- '' of an asset without partitions
    current      bigint      NOT NULL DEFAULT 0 CHECK (current >= 0), -- 0 is none
    highest      bigint      NOT NULL DEFAULT 0 CHECK (highest >= current), -- token that was ever promoted
    changed_at   timestamptz,
    PRIMARY KEY (tenant_id, workspace_id, asset, partition)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 500);
-- The partitions that name a version: its files live as long as there is one.
CREATE INDEX pointers_current ON servo.pointers (tenant_id, workspace_id, asset, current) WHERE current > 0;

-- +goose StatementBegin
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['materializations', 'materialization_inputs', 'pointers'] LOOP
        EXECUTE format('ALTER TABLE servo.%I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON servo.%I TO servo_tenant USING (tenant_id = servo.current_tenant())', name);
        EXECUTE format('CREATE POLICY engine ON servo.%I TO servo_engine USING (true)', name);
        EXECUTE format('GRANT SELECT ON servo.%I TO servo_tenant', name);
        EXECUTE format('GRANT SELECT, INSERT ON servo.%I TO servo_engine', name);
    END LOOP;
END
$$;
-- +goose StatementEnd
GRANT UPDATE (state, version) ON servo.materializations TO servo_engine;
GRANT UPDATE (current, highest, changed_at) ON servo.pointers TO servo_engine;
GRANT DELETE ON servo.materializations, servo.materialization_inputs TO servo_engine;

-- Whether a check of an output of the run has warned, and how many of its outputs are in quarantine.
ALTER TABLE servo.runs ADD COLUMN warned boolean NOT NULL DEFAULT false, ADD COLUMN quarantined integer NOT NULL DEFAULT 0;
