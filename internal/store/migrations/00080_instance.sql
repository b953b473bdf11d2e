-- +goose Up
-- Which instance of a worker has said that it executes the attempt. An envelope of a push pool may
-- arrive twice, at two instances: the second start is refused before its code runs.
ALTER TABLE servo.leases ADD COLUMN instance text NOT NULL DEFAULT '';
