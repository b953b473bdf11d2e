-- +goose Up
-- Alerts, who hears of them, and what is on its way. What belongs to the installation has the
-- tenant of zeros, which no request can be for.

CREATE TABLE servo.alerts (
    tenant_id   uuid        NOT NULL,
    id          uuid        NOT NULL,
    version     integer     NOT NULL,
    kind        text        NOT NULL CHECK (kind <> ''),
    severity    smallint    NOT NULL CHECK (severity BETWEEN 1 AND 4),
    about_id    uuid        NOT NULL, -- a config, a tenant, or zeros for the installation
    name        text        NOT NULL DEFAULT '',
    message     text        NOT NULL,
    raised_at   timestamptz NOT NULL,
    resolved_at timestamptz,
    PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX alerts_open ON servo.alerts (tenant_id, kind, about_id) WHERE resolved_at IS NULL;

CREATE TABLE servo.alert_channels (
    tenant_id     uuid        NOT NULL,
    id            uuid        NOT NULL,
    version       integer     NOT NULL,
    name          text        NOT NULL CHECK (name <> '' AND length(name) <= 100),
    url           text        NOT NULL CHECK (url <> ''),
    severity      smallint    NOT NULL CHECK (severity BETWEEN 1 AND 4), -- the least that it hears of
    allow_private boolean     NOT NULL DEFAULT false,
    secret        bytea       NOT NULL CHECK (length(secret) >= 24),
    created_by    text        NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL,
    deleted_at    timestamptz,
    PRIMARY KEY (tenant_id, id)
);
CREATE UNIQUE INDEX alert_channels_name ON servo.alert_channels (tenant_id, name) WHERE deleted_at IS NULL;

-- One row for each change of an alert and channel that hears of it, written with the change.
-- due_at is when it is tried, or tried again if nobody says what came of the try.
CREATE TABLE servo.alert_deliveries (
    tenant_id         uuid        NOT NULL, -- of the alert
    alert_id          uuid        NOT NULL,
    change            smallint    NOT NULL CHECK (change IN (1, 2)), -- begun, ended
    channel_tenant_id uuid        NOT NULL,
    channel_id        uuid        NOT NULL,
    created_at        timestamptz NOT NULL,
    due_at            timestamptz,
    tries             integer     NOT NULL DEFAULT 0,
    delivered_at      timestamptz,
    error             text        NOT NULL DEFAULT '', -- of the last try
    PRIMARY KEY (tenant_id, alert_id, channel_id, change),
    CONSTRAINT tried_until_delivered CHECK (delivered_at IS NULL OR due_at IS NULL)
) WITH (fillfactor = 70);
CREATE INDEX alert_deliveries_due ON servo.alert_deliveries (due_at) WHERE due_at IS NOT NULL;

-- What the rules ask for.
CREATE INDEX configs_failing ON servo.configs (tenant_id, id) WHERE failures >= 3 AND deleted_at IS NULL;
CREATE INDEX configs_disabled ON servo.configs (tenant_id, id) WHERE NOT enabled AND failures > 0 AND deleted_at IS NULL;
CREATE INDEX configs_overran ON servo.configs (tenant_id, id) WHERE last_run_state = 12 AND deleted_at IS NULL;
CREATE INDEX run_totals_breaches ON servo.run_totals (day) WHERE breaches > 0;

ALTER TABLE servo.alerts ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.alert_channels ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.alert_deliveries ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.alerts TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.alert_channels TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.alert_deliveries TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.alerts TO servo_engine USING (true);
CREATE POLICY engine ON servo.alert_channels TO servo_engine USING (true);
CREATE POLICY engine ON servo.alert_deliveries TO servo_engine USING (true);
GRANT SELECT ON servo.alerts, servo.alert_deliveries TO servo_tenant;
GRANT SELECT (tenant_id, id, version, name, url, severity, allow_private, created_by, created_at, deleted_at) ON servo.alert_channels TO servo_tenant;
GRANT SELECT, INSERT, UPDATE ON servo.alerts, servo.alert_channels, servo.alert_deliveries TO servo_engine;
