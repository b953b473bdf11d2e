-- +goose Up
-- Whether a tenant still waited after the last round that looked at it: only then does it keep
-- what it is owed.
ALTER TABLE servo.shares ADD COLUMN waits boolean NOT NULL DEFAULT false;
