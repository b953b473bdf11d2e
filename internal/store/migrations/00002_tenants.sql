-- +goose Up
-- Tenants, their workspaces and deployments, and the events of all of them.

CREATE TABLE servo.tenants (
    id         uuid        PRIMARY KEY,
    name       text        NOT NULL UNIQUE CHECK (name <> '' AND length(name) <= 100),
    version    integer     NOT NULL,
    created_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE servo.workspaces (
    tenant_id            uuid        NOT NULL REFERENCES servo.tenants (id),
    id                   uuid        NOT NULL,
    name                 text        NOT NULL CHECK (name <> '' AND length(name) <= 100),
    active_deployment_id uuid,
    version              integer     NOT NULL,
    created_at           timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, name)
) WITH (fillfactor = 50);

CREATE TABLE servo.deployments (
    tenant_id    uuid        NOT NULL,
    id           uuid        NOT NULL,
    workspace_id uuid        NOT NULL,
    digest       text        NOT NULL CHECK (digest <> ''),
    manifest     jsonb       NOT NULL,
    version      integer     NOT NULL,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, workspace_id, digest),
    FOREIGN KEY (tenant_id, workspace_id) REFERENCES servo.workspaces (tenant_id, id)
);

-- Positions order the events of one transaction; between transactions the id of the
-- transaction does. So each session may take them in advance.
CREATE SEQUENCE servo.event_position AS bigint CACHE 100;

-- Events of tenants, workspaces and deployments: few, and never dropped.
CREATE TABLE servo.entity_events (
    tenant_id   uuid        NOT NULL,
    subject_id  uuid        NOT NULL,
    version     integer     NOT NULL CHECK (version > 0),
    position    bigint      NOT NULL DEFAULT nextval('servo.event_position'),
    txid        xid8        NOT NULL DEFAULT pg_current_xact_id(),
    recorded_at timestamptz NOT NULL,
    schema      smallint    NOT NULL,
    type        text        NOT NULL,
    actor       text        NOT NULL DEFAULT '',
    trace       text        NOT NULL DEFAULT '',
    data        jsonb       NOT NULL,
    PRIMARY KEY (tenant_id, subject_id, version)
);

ALTER TABLE servo.tenants ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.workspaces ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.deployments ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.entity_events ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY tenant ON servo.tenants TO servo_tenant USING (id = servo.current_tenant());
CREATE POLICY tenant ON servo.workspaces TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.deployments TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.entity_events TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.tenants TO servo_engine USING (true);
CREATE POLICY engine ON servo.workspaces TO servo_engine USING (true);
CREATE POLICY engine ON servo.deployments TO servo_engine USING (true);
CREATE POLICY engine ON servo.entity_events TO servo_engine USING (true);

GRANT SELECT ON servo.tenants, servo.workspaces, servo.deployments, servo.entity_events TO servo_tenant;
GRANT SELECT, INSERT, UPDATE ON servo.tenants, servo.workspaces TO servo_engine;
GRANT SELECT, INSERT ON servo.deployments, servo.entity_events TO servo_engine;
GRANT USAGE ON SEQUENCE servo.event_position TO servo_engine;
