-- +goose Up
-- API keys, and who has asked for what. What belongs to the installation has the tenant of
-- zeros, which no request can be for.

CREATE TABLE servo.api_keys (
    tenant_id    uuid        NOT NULL,
    id           uuid        NOT NULL,
    version      integer     NOT NULL,
    public_id    text        NOT NULL UNIQUE CHECK (public_id ~ '^[0-9a-f]{16}$'), -- in the text of the key
    name         text        NOT NULL CHECK (name <> '' AND length(name) <= 100),
    role         text        NOT NULL CHECK (role IN ('viewer', 'operator', 'developer', 'admin', 'platform', 'worker')),
    workspace    text,                           -- NULL is the whole tenant
    pools        text[]      NOT NULL DEFAULT '{}',
    digest       bytea       NOT NULL CHECK (length(digest) = 32), -- SHA-256 of the secret
    created_by   text        NOT NULL DEFAULT '',
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz,
    replaced_by  text,
    revoked_at   timestamptz,
    last_used_at timestamptz,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT platform_keys_have_no_tenant CHECK ((role = 'platform') <= (tenant_id = '00000000-0000-0000-0000-000000000000')),
    CONSTRAINT workers_have_pools CHECK ((role = 'worker') = (cardinality(pools) > 0))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX api_keys_name ON servo.api_keys (tenant_id, name) WHERE revoked_at IS NULL AND replaced_by IS NULL;

CREATE TABLE servo.audit_log (
    tenant_id  uuid        NOT NULL,
    id         uuid        NOT NULL,
    at         timestamptz NOT NULL,
    actor      text        NOT NULL,
    address    text        NOT NULL DEFAULT '',
    request_id text        NOT NULL DEFAULT '',
    method     text        NOT NULL CHECK (method <> ''),
    subject    text        NOT NULL DEFAULT '', -- what the call names besides the tenant
    allowed    boolean     NOT NULL,
    code       text        NOT NULL DEFAULT '', -- of what went wrong
    request    jsonb       NOT NULL,            -- without secrets, and shortened
    PRIMARY KEY (tenant_id, id)
);
CREATE INDEX audit_log_actor ON servo.audit_log (tenant_id, actor, id);

ALTER TABLE servo.api_keys ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.audit_log ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.api_keys TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.audit_log TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.api_keys TO servo_engine USING (true);
CREATE POLICY engine ON servo.audit_log TO servo_engine USING (true);
GRANT SELECT (tenant_id, id, version, public_id, name, role, workspace, pools, created_by, created_at, expires_at, replaced_by, revoked_at, last_used_at)
    ON servo.api_keys TO servo_tenant;
GRANT SELECT ON servo.audit_log TO servo_tenant;
GRANT SELECT, INSERT ON servo.api_keys, servo.audit_log TO servo_engine;
GRANT UPDATE (version, expires_at, replaced_by, revoked_at, last_used_at) ON servo.api_keys TO servo_engine;
