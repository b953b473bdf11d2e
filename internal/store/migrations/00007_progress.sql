-- +goose Up
-- How far a running attempt is, in its own numbers; eta is when its worker thinks it ends.
ALTER TABLE servo.heartbeats
    ADD COLUMN records_extracted   bigint NOT NULL DEFAULT 0 CHECK (records_extracted >= 0),
    ADD COLUMN records_transformed bigint NOT NULL DEFAULT 0 CHECK (records_transformed >= 0),
    ADD COLUMN records_loaded      bigint NOT NULL DEFAULT 0 CHECK (records_loaded >= 0),
    ADD COLUMN bytes               bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),
    ADD COLUMN eta                 timestamptz;
