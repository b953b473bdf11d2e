-- +goose Up
-- What the API's frame shares between servers: the secret that page tokens are signed with,
-- and how much of its rates a tenant has used.

CREATE TABLE servo.installation_secrets (
    name   text  PRIMARY KEY,
    secret bytea NOT NULL CHECK (length(secret) = 32)
);
-- Each of the ids has 122 bits of the system's strong randomness.
INSERT INTO servo.installation_secrets (name, secret)
VALUES ('page_tokens', sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));

-- How much of a rate was leased to servers in a window. What a crash of the database loses is
-- the rest of a minute, so none of it is worth a log.
CREATE UNLOGGED TABLE servo.rate_leases (
    tenant_id uuid        NOT NULL, -- zeros are the installation
    class     smallint    NOT NULL,
    scope     text        NOT NULL, -- the workspace, where each has a rate of its own
    window_at timestamptz NOT NULL, -- its beginning
    leased    integer     NOT NULL, -- in it, to all servers
    granted   integer     NOT NULL, -- by the last statement
    PRIMARY KEY (tenant_id, class, scope)
) WITH (fillfactor = 50);

-- How many streams each server has open for a tenant. A server that says nothing for a while
-- has none.
CREATE UNLOGGED TABLE servo.rate_streams (
    tenant_id  uuid        NOT NULL,
    holder     uuid        NOT NULL, -- a server, by a name that it has for one life
    streams    integer     NOT NULL CHECK (streams >= 0),
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, holder)
) WITH (fillfactor = 50);

ALTER TABLE servo.rate_leases ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE servo.rate_streams ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.rate_leases TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY tenant ON servo.rate_streams TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.rate_leases TO servo_engine USING (true);
CREATE POLICY engine ON servo.rate_streams TO servo_engine USING (true);
GRANT SELECT ON servo.installation_secrets TO servo_engine;
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.rate_leases, servo.rate_streams TO servo_engine;
