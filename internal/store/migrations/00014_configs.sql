-- +goose Up
-- Configs, the ledger of their slots, and what runs have to do with both.

-- What a config is stands in its events; where it stands in time (from decided_until on) is
-- kept with the ledger, in the transactions that write it.
CREATE TABLE servo.configs (
    tenant_id       uuid        NOT NULL,
    id              uuid        NOT NULL,
    workspace_id    uuid        NOT NULL,
    name            text        NOT NULL CHECK (name <> '' AND length(name) <= 100),
    version         integer     NOT NULL CHECK (version > 0),
    pipeline        text        NOT NULL,
    labels          jsonb       NOT NULL DEFAULT '{}',
    spec            jsonb       NOT NULL,
    enabled         boolean     NOT NULL DEFAULT true,
    disabled_reason text        NOT NULL DEFAULT '',
    paused_at       timestamptz,
    pause_note      text        NOT NULL DEFAULT '',
    moved_to        timestamptz, -- the next slot, if somebody has moved it
    created_by      text        NOT NULL DEFAULT '',
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    deleted_at      timestamptz,

    decided_until   timestamptz NOT NULL, -- every slot up to here has its outcome in the ledger
    next_slot       timestamptz,
    due_at          timestamptz,          -- when the loop looks at it; null while nothing is to come
    zone_data       text        NOT NULL DEFAULT '', -- the version of the zone data that next_slot was computed with
    range_from      timestamptz,          -- the range that the last slot before decided_until is in, if it did not fire
    last_slot       timestamptz,          -- that fired
    last_run_id     uuid,
    last_run_state  smallint,
    last_run_at     timestamptz,          -- when that run ended
    last_success_at timestamptz,
    failures        integer     NOT NULL DEFAULT 0, -- one after the other
    after_config    text        GENERATED ALWAYS AS (spec->'trigger'->'event'->>'config') STORED, -- fires when that succeeds
    on_event        text        GENERATED ALWAYS AS (spec->'trigger'->'event'->>'name') STORED,
    depends_on      text        GENERATED ALWAYS AS (spec->'depends_on'->>'config') STORED,

    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES servo.workspaces (tenant_id, id),
    CONSTRAINT due_when_alive CHECK (due_at IS NULL OR (deleted_at IS NULL AND paused_at IS NULL AND enabled))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX configs_name ON servo.configs (tenant_id, workspace_id, name) WHERE deleted_at IS NULL;
CREATE INDEX configs_after ON servo.configs (tenant_id, workspace_id, after_config) WHERE after_config IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX configs_event ON servo.configs (tenant_id, workspace_id, on_event) WHERE on_event IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX configs_due ON servo.configs (due_at, id) WHERE due_at IS NOT NULL;

-- Slots that fired: unique for ever, whatever became of the run.
CREATE TABLE servo.slots (
    tenant_id  uuid        NOT NULL,
    config_id  uuid        NOT NULL,
    slot_at    timestamptz NOT NULL,
    run_id     uuid        NOT NULL,
    decided_at timestamptz NOT NULL,
    decided_by text        NOT NULL DEFAULT '', -- the server
    PRIMARY KEY (tenant_id, config_id, slot_at)
);

-- Slots that did not: consecutive ones with the same cause are one row.
CREATE TABLE servo.slot_ranges (
    tenant_id      uuid        NOT NULL,
    config_id      uuid        NOT NULL,
    from_at        timestamptz NOT NULL,
    to_at          timestamptz NOT NULL,
    slots          bigint      NOT NULL CHECK (slots > 0),
    outcome        smallint    NOT NULL CHECK (outcome BETWEEN 2 AND 9),
    reason         text        NOT NULL DEFAULT '',
    config_version integer     NOT NULL,
    run_id         uuid,       -- the run that held the lock
    decided_at     timestamptz NOT NULL,
    decided_by     text        NOT NULL DEFAULT '',
    PRIMARY KEY (tenant_id, config_id, from_at),
    CONSTRAINT forward CHECK (to_at >= from_at)
);

-- What runs tell their configs when they end, for whoever folds it in: a config is locked
-- before runs, never after.
CREATE TABLE servo.config_results (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id uuid        NOT NULL,
    config_id uuid        NOT NULL,
    run_id    uuid        NOT NULL,
    state     smallint    NOT NULL,
    ended_at  timestamptz NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

ALTER TABLE servo.runs ADD COLUMN config_id uuid, ADD COLUMN slot_at timestamptz;
CREATE INDEX runs_config ON servo.runs (tenant_id, config_id, id) WHERE config_id IS NOT NULL;

ALTER TABLE servo.live_runs ADD COLUMN config_id uuid, ADD COLUMN wait_key text NOT NULL DEFAULT ''; -- the lock that it waits for
CREATE INDEX live_runs_config ON servo.live_runs (tenant_id, config_id) WHERE config_id IS NOT NULL;

ALTER TABLE servo.configs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.slots ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.slot_ranges ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.config_results ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.configs TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.slots TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.slot_ranges TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.config_results TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.configs TO servo_engine USING (true);
CREATE POLICY engine ON servo.slots TO servo_engine USING (true);
CREATE POLICY engine ON servo.slot_ranges TO servo_engine USING (true);
CREATE POLICY engine ON servo.config_results TO servo_engine USING (true);
GRANT SELECT ON servo.configs, servo.slots, servo.slot_ranges TO servo_tenant;
GRANT SELECT, INSERT, UPDATE ON servo.configs, servo.slot_ranges TO servo_engine;
GRANT SELECT, INSERT ON servo.slots TO servo_engine;
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.config_results TO servo_engine; -- a row is locked before it is deleted
