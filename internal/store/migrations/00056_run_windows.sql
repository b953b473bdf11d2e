-- +goose Up

-- What the code of a run is told about its config: the slot that it works for, the data interval
-- that ends there, and the config's name. Written once, with the run.
ALTER TABLE servo.runs ADD COLUMN window_of jsonb;
