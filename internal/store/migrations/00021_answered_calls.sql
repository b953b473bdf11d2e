-- +goose Up
-- What calls with an idempotency key were answered, written in the transaction of their effect.
-- Secrets are not in it. A day later the row is forgotten, and the key can be used again.
CREATE TABLE servo.answered_calls (
    tenant_id  uuid        NOT NULL, -- zeros are the installation
    key        text        NOT NULL CHECK (key <> '' AND length(key) <= 255),
    method     text        NOT NULL, -- for people: the digest covers it
    digest     bytea       NOT NULL CHECK (length(digest) = 32), -- of the method, the caller and the request
    answer     bytea       NOT NULL, -- the message of the contract
    created_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key)
);
CREATE INDEX answered_calls_age ON servo.answered_calls (created_at);

ALTER TABLE servo.answered_calls ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant ON servo.answered_calls TO servo_tenant USING (tenant_id = servo.current_tenant());
CREATE POLICY engine ON servo.answered_calls TO servo_engine USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON servo.answered_calls TO servo_engine;
