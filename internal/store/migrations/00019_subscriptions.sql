-- +goose Up
-- The feed follows the log in the order of transactions, and subscriptions send it on.

-- One entry for each event, always at the right end of the index: the events of a transaction
-- share a key, which is stored once for many of them. Positions inside of a transaction are
-- put in order when they are read.
CREATE INDEX run_events_feed ON servo.run_events (txid);
CREATE INDEX entity_events_feed ON servo.entity_events (txid);
CREATE INDEX platform_events_feed ON servo.platform_events (txid);

-- Epochs tell events apart that have the same transaction id, since the cluster was put back to
-- an earlier state and has given the ids out again. An event belongs to the last epoch that
-- begins at its transaction or before.
CREATE TABLE servo.feed_epochs (
    epoch     integer     PRIMARY KEY CHECK (epoch > 0),
    from_tx   bigint      NOT NULL CHECK (from_tx >= 0),
    cluster   text        NOT NULL DEFAULT '', -- system identifier and timeline; empty if they are not known
    raised_at timestamptz NOT NULL,
    reason    text        NOT NULL DEFAULT ''
);
INSERT INTO servo.feed_epochs (epoch, from_tx, raised_at) VALUES (1, 0, servo.clock());
GRANT SELECT, INSERT, UPDATE ON servo.feed_epochs TO servo_engine;

-- Who hears of events. What belongs to the installation has the tenant of zeros, which no
-- request can be for. The columns from after_epoch on are about progress: no event tells of them.
CREATE TABLE servo.subscriptions (
    tenant_id      uuid        NOT NULL,
    id             uuid        NOT NULL,
    version        integer     NOT NULL,
    name           text        NOT NULL CHECK (name <> '' AND length(name) <= 100),
    url            text        NOT NULL CHECK (url <> ''),
    types          text[]      NOT NULL, -- none is all
    workspace      text        NOT NULL DEFAULT '', -- only events of its runs
    pipeline       text        NOT NULL DEFAULT '', -- likewise
    allow_private  boolean     NOT NULL DEFAULT false,
    secret         bytea       NOT NULL CHECK (length(secret) >= 24),
    paused_at      timestamptz,
    pause_reason   text        NOT NULL DEFAULT '',
    created_by     text        NOT NULL DEFAULT '',
    created_at     timestamptz NOT NULL,
    deleted_at     timestamptz,
    after_epoch    integer     NOT NULL, -- everything up to this place was accepted, or was not asked for
    after_tx       bigint      NOT NULL,
    after_position bigint      NOT NULL,
    due_at         timestamptz,          -- when it is looked after, or looked after again if nobody says what came of it
    lease          bigint      NOT NULL DEFAULT 0, -- rises when somebody takes it or moves it: who had it before changes nothing more
    tries          integer     NOT NULL DEFAULT 0, -- that have failed since the last that has not
    failing_since  timestamptz,
    error          text        NOT NULL DEFAULT '',
    delivered      bigint      NOT NULL DEFAULT 0, -- events that were accepted
    delivered_at   timestamptz,
    PRIMARY KEY (tenant_id, id),
    CONSTRAINT due_while_active CHECK ((due_at IS NOT NULL) = (paused_at IS NULL AND deleted_at IS NULL))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX subscriptions_name ON servo.subscriptions (tenant_id, name) WHERE deleted_at IS NULL;
CREATE INDEX subscriptions_due ON servo.subscriptions (due_at) WHERE due_at IS NOT NULL;

ALTER TABLE servo.subscriptions ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.subscriptions TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.subscriptions TO servo_engine USING (true);
GRANT SELECT (tenant_id, id, version, name, url, types, workspace, pipeline, allow_private, paused_at, pause_reason, created_by, created_at, deleted_at,
              after_epoch, after_tx, after_position, due_at, lease, tries, failing_since, error, delivered, delivered_at)
    ON servo.subscriptions TO servo_tenant;
GRANT SELECT, INSERT, UPDATE ON servo.subscriptions TO servo_engine;
