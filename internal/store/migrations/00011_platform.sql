-- +goose Up
-- What belongs to the installation rather than to a tenant: pools, the workers and servers
-- that are there, the keys that envelopes are signed with, and the switches of an operator.
-- None of it is for the role of a tenant.

-- The events of pools, signing keys and switches: few, and never dropped.
CREATE TABLE servo.platform_events (
    subject     text        NOT NULL CHECK (subject <> ''), -- such as pool/default
    version     integer     NOT NULL CHECK (version > 0),
    position    bigint      NOT NULL DEFAULT nextval('servo.event_position'),
    txid        xid8        NOT NULL DEFAULT pg_current_xact_id(),
    recorded_at timestamptz NOT NULL,
    schema      smallint    NOT NULL,
    type        text        NOT NULL,
    actor       text        NOT NULL DEFAULT '',
    trace       text        NOT NULL DEFAULT '',
    data        jsonb       NOT NULL,
    PRIMARY KEY (subject, version)
);
GRANT SELECT, INSERT ON servo.platform_events TO servo_engine;

-- A pool that nobody has configured is a pull pool without limits.
CREATE TABLE servo.pools (
    name            text        PRIMARY KEY CHECK (name <> '' AND length(name) <= 100),
    owner_id        uuid,       -- the tenant that it belongs to; null for the platform
    kind            text        NOT NULL CHECK (kind IN ('pull', 'push')),
    url             text        NOT NULL DEFAULT '',
    max_concurrency integer     NOT NULL DEFAULT -1 CHECK (max_concurrency >= -1), -- -1 is no limit
    rate_per_s      real        NOT NULL DEFAULT 0 CHECK (rate_per_s >= 0),        -- 0 is no limit
    timeout_s       integer     NOT NULL DEFAULT 30 CHECK (timeout_s > 0),         -- of one call to the url
    allow_private   boolean     NOT NULL DEFAULT false, -- loopback and private addresses may be called
    version         integer     NOT NULL,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL,
    CONSTRAINT push_has_url CHECK ((kind = 'push') = (url <> ''))
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.pools TO servo_engine;

-- Workers by what they last said. Volatile: written every few seconds, no events.
CREATE TABLE servo.workers (
    name       text        NOT NULL CHECK (name <> ''),
    pool       text        NOT NULL CHECK (pool <> ''),
    slots      integer     NOT NULL CHECK (slots > 0),
    first_seen timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL,
    PRIMARY KEY (pool, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.workers TO servo_engine;

-- Servers likewise: whoever is alone need not tell others what it did.
CREATE TABLE servo.servers (
    name       text        PRIMARY KEY CHECK (name <> ''),
    version    text        NOT NULL DEFAULT '',
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.servers TO servo_engine;

-- Keys that envelopes and callbacks are signed with. The newest that may sign does; one that
-- may not yet, and one that was retired and has not expired, are believed; a revoked one is not.
CREATE TABLE servo.signing_keys (
    id         text        PRIMARY KEY CHECK (id <> ''),
    secret     bytea       NOT NULL CHECK (length(secret) >= 32),
    version    integer     NOT NULL,
    created_at timestamptz NOT NULL,
    signs_from timestamptz NOT NULL, -- until then workers can be told of it
    expires_at timestamptz, -- set when a newer key takes over
    revoked_at timestamptz
);
GRANT SELECT, INSERT, UPDATE ON servo.signing_keys TO servo_engine;

-- What an operator has switched off.
CREATE TABLE servo.switches (
    name       text        PRIMARY KEY CHECK (name <> ''),
    off        boolean     NOT NULL,
    reason     text        NOT NULL DEFAULT '',
    changed_by text        NOT NULL DEFAULT '',
    changed_at timestamptz NOT NULL,
    version    integer     NOT NULL
) WITH (fillfactor = 50);
GRANT SELECT, INSERT, UPDATE ON servo.switches TO servo_engine;
