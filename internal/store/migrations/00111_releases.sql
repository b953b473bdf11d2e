-- +goose Up
-- Releases: manifests of the installation, and the channels by which workspaces follow them. Neither has a
-- tenant, and the role of tenants has no grant: a tenant reads a release through its workspace or its runs.
CREATE TABLE servo.releases (
    id         uuid        PRIMARY KEY,
    name       text        NOT NULL CHECK (name <> ''),
    digest     text        NOT NULL CHECK (digest <> ''), -- of its manifest
    note       text        NOT NULL DEFAULT '',
    version    integer     NOT NULL,
    created_at timestamptz NOT NULL,
    deleted_at timestamptz
);
CREATE UNIQUE INDEX releases_name ON servo.releases (name) WHERE deleted_at IS NULL;
GRANT SELECT, INSERT, UPDATE ON servo.releases TO servo_engine;

-- The rollout is one value that only the domain reads and writes: JSON, empty for a channel that was never
-- rolled. A wave is a number in it, so that moving any number of tenants changes one row.
CREATE TABLE servo.release_channels (
    name       text        PRIMARY KEY CHECK (name <> ''),
    current_id uuid,
    is_default boolean     NOT NULL,
    rollout    text        NOT NULL,
    version    integer     NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX release_channels_default ON servo.release_channels (is_default) WHERE is_default;
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.release_channels TO servo_engine;

ALTER TABLE servo.tenants ADD COLUMN labels text NOT NULL DEFAULT '';    -- JSON with sorted keys, empty for none
ALTER TABLE servo.workspaces ADD COLUMN channel text NOT NULL DEFAULT ''; -- that it follows, instead of its own deployments
CREATE INDEX workspaces_channel ON servo.workspaces (channel, tenant_id) WHERE channel <> '';

-- The deployment of a released run is a release.
ALTER TABLE servo.runs ADD COLUMN released boolean NOT NULL DEFAULT false;

-- Ends of released runs, added by any transaction and merged by a loop. A run that was cancelled has none.
CREATE TABLE servo.release_ends (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id    uuid        NOT NULL,
    workspace_id uuid        NOT NULL,
    run_id       uuid        NOT NULL,
    release_id   uuid        NOT NULL,
    config_id    uuid        NOT NULL, -- zeros for a run without a config
    created_at   timestamptz NOT NULL, -- of the run
    state        smallint    NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

-- Ended runs by release, config and error. A rollout judges the runs that were created since it started:
-- they have its id, others zeros.
CREATE TABLE servo.release_totals (
    tenant_id  uuid   NOT NULL,
    release_id uuid   NOT NULL,
    rollout_id uuid   NOT NULL,
    config_id  uuid   NOT NULL,
    error      text   NOT NULL, -- the code of its first failed task; empty for a success
    runs       bigint NOT NULL CHECK (runs > 0),
    PRIMARY KEY (tenant_id, config_id, release_id, rollout_id, error)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.1, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX release_totals_release ON servo.release_totals (release_id, rollout_id);

ALTER TABLE servo.release_ends ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.release_totals ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.release_ends TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.release_totals TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.release_ends TO servo_engine USING (true);
CREATE POLICY engine ON servo.release_totals TO servo_engine USING (true);
GRANT SELECT ON servo.release_ends, servo.release_totals TO servo_tenant;
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.release_ends TO servo_engine; -- a row is locked before it is deleted
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.release_totals TO servo_engine;

-- The duty under which rollouts are judged.
INSERT INTO servo.duties (name) VALUES ('rollouts');
INSERT INTO servo.duty_renewals (name, holder, epoch, expires_at) SELECT name, holder, epoch, '-infinity' FROM servo.duties WHERE name = 'rollouts';
