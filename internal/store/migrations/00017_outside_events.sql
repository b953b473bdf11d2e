-- +goose Up
-- Events from outside, and templates of schedules that tenants have of their own.

-- What was sent, for as long as its key is remembered. A row that is not done waits for the
-- scheduler, which goes through the configs that listen in the order of their ids.
CREATE TABLE servo.event_inbox (
    tenant_id    uuid        NOT NULL,
    id           uuid        NOT NULL,
    workspace_id uuid        NOT NULL,
    name         text        NOT NULL CHECK (name <> '' AND length(name) <= 100),
    dedupe_key   text        NOT NULL CHECK (dedupe_key <> '' AND length(dedupe_key) <= 200),
    parameters   jsonb       NOT NULL,
    reason       text        NOT NULL DEFAULT '',
    version      integer     NOT NULL CHECK (version > 0),
    sent_by      text        NOT NULL DEFAULT '',
    received_at  timestamptz NOT NULL,
    listeners    integer     NOT NULL, -- configs that listened when it came
    after_id     uuid,                 -- configs up to this one have had their run
    runs         integer     NOT NULL DEFAULT 0,
    skipped      jsonb       NOT NULL DEFAULT '{}', -- how many got none, by outcome
    done_at      timestamptz,
    PRIMARY KEY (tenant_id, id),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES servo.workspaces (tenant_id, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
-- A workspace is its tenant's alone. With the tenant in it, this index would look as good as the
-- primary key to the planner of an empty table.
CREATE UNIQUE INDEX event_inbox_key ON servo.event_inbox (workspace_id, name, dedupe_key);
CREATE INDEX event_inbox_pending ON servo.event_inbox (received_at, id) WHERE done_at IS NULL;
CREATE INDEX event_inbox_done ON servo.event_inbox (received_at) WHERE done_at IS NOT NULL;

-- Expressions with a name. Who uses one keeps the expression as well.
CREATE TABLE servo.templates (
    tenant_id   uuid        NOT NULL,
    id          uuid        NOT NULL,
    name        text        NOT NULL CHECK (name <> '' AND length(name) <= 100),
    version     integer     NOT NULL CHECK (version > 0),
    cron        text        NOT NULL,
    description text        NOT NULL DEFAULT '',
    changed_by  text        NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX templates_name ON servo.templates (tenant_id, name);

-- Listeners are gone through in the order of their ids, and those who depend on a config are
-- found before it is deleted, those who use a template before it changes.
DROP INDEX servo.configs_event;
CREATE INDEX configs_event ON servo.configs (tenant_id, workspace_id, on_event, id) WHERE on_event IS NOT NULL AND deleted_at IS NULL;
CREATE INDEX configs_depends ON servo.configs (tenant_id, workspace_id, depends_on) WHERE depends_on IS NOT NULL AND deleted_at IS NULL;
ALTER TABLE servo.configs ADD COLUMN template text GENERATED ALWAYS AS (spec->'trigger'->>'template') STORED;
CREATE INDEX configs_template ON servo.configs (tenant_id, template, id) WHERE template IS NOT NULL AND deleted_at IS NULL;

-- A success whose listeners are too many for one transaction goes on after this one.
ALTER TABLE servo.config_results ADD COLUMN after_id uuid;

ALTER TABLE servo.event_inbox ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.templates ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.event_inbox TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.templates TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.event_inbox TO servo_engine USING (true);
CREATE POLICY engine ON servo.templates TO servo_engine USING (true);
GRANT SELECT ON servo.event_inbox, servo.templates TO servo_tenant;
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.event_inbox, servo.templates TO servo_engine;
