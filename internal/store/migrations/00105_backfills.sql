-- +goose Up
-- Backfills: a set of partitions that runs cover, some at a time.

CREATE TABLE servo.backfills (
    tenant_id    uuid        NOT NULL,
    id           uuid        NOT NULL,
    workspace_id uuid        NOT NULL,
    version      integer     NOT NULL CHECK (version > 0),
    state        smallint    NOT NULL CHECK (state IN (1, 2, 3, 10, 11, 12)),
    reason       text        NOT NULL DEFAULT '',
    asset        text        NOT NULL CHECK (asset <> ''),
    settings     jsonb       NOT NULL,
    round        integer     NOT NULL CHECK (round >= 0),
    partitions   jsonb       NOT NULL, -- of this round: ranges of ordinals by series
    undone       jsonb       NOT NULL, -- ended without success, and not left in this round
    chunks       integer     NOT NULL CHECK (chunks > 0),
    next_chunk   integer     NOT NULL CHECK (next_chunk BETWEEN 0 AND chunks),
    open_runs    integer     NOT NULL CHECK (open_runs >= 0),
    max_runs     integer     NOT NULL CHECK (max_runs > 0),
    total        bigint      NOT NULL,
    completed    bigint      NOT NULL,
    failed       bigint      NOT NULL,
    skipped      bigint      NOT NULL,
    round_failed bigint      NOT NULL,
    created_by   text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL,
    paused_at    timestamptz,
    finished_at  timestamptz,
    waits_for    text        NOT NULL DEFAULT '', -- why the next run could not start; no event has it
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES servo.workspaces (tenant_id, id),
    CONSTRAINT within_limit CHECK (open_runs <= max_runs),
    CONSTRAINT counted CHECK (completed >= 0 AND failed >= 0 AND skipped >= 0 AND completed + failed + skipped <= total)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
-- Backfills whose next run may start.
CREATE INDEX backfills_startable ON servo.backfills (tenant_id, id) WHERE state < 3 AND next_chunk < chunks AND open_runs < max_runs;
-- Backfills with a state that needs attention.
CREATE INDEX backfills_stopped ON servo.backfills (state) WHERE state IN (3, 11);
CREATE INDEX backfills_asset ON servo.backfills (tenant_id, workspace_id, asset, id);

-- The run of each chunk. The key makes a second run of the same chunk impossible. No event ends a
-- row early: a run that has ended is found by its missing row in live_runs.
CREATE TABLE servo.backfill_chunks (
    tenant_id   uuid        NOT NULL,
    backfill_id uuid        NOT NULL,
    round       integer     NOT NULL,
    chunk       integer     NOT NULL,
    run_id      uuid        NOT NULL,
    started_at  timestamptz NOT NULL,
    ended_at    timestamptz,
    failed      bigint      NOT NULL DEFAULT 0,
    skipped     bigint      NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, backfill_id, round, chunk),
    FOREIGN KEY (tenant_id, backfill_id) REFERENCES servo.backfills (tenant_id, id)
);
CREATE UNIQUE INDEX backfill_chunks_run ON servo.backfill_chunks (tenant_id, run_id);
CREATE INDEX backfill_chunks_open ON servo.backfill_chunks (tenant_id, backfill_id, round, chunk) WHERE ended_at IS NULL;

ALTER TABLE servo.backfills ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.backfill_chunks ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.backfills TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.backfill_chunks TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.backfills TO servo_engine USING (true);
CREATE POLICY engine ON servo.backfill_chunks TO servo_engine USING (true);
GRANT SELECT ON servo.backfills, servo.backfill_chunks TO servo_tenant;
GRANT SELECT, INSERT, UPDATE ON servo.backfills TO servo_engine;
GRANT SELECT, INSERT ON servo.backfill_chunks TO servo_engine;
GRANT UPDATE (ended_at, failed, skipped) ON servo.backfill_chunks TO servo_engine;

-- One server at a time starts the runs of backfills.
INSERT INTO servo.duties (name) VALUES ('backfills');
INSERT INTO servo.duty_renewals (name) VALUES ('backfills');
