-- +goose Up
-- The open alerts of all tenants, the newest first: few rows, however many there have been.
CREATE INDEX alerts_open_newest ON servo.alerts (id) WHERE resolved_at IS NULL;
