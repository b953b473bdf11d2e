-- +goose Up
-- A repair rewrites the rows of one run to what its events say, and that includes rows
-- which no event explains. Events stay append-only: nobody may change or delete them.
GRANT DELETE ON servo.runs, servo.tasks, servo.edges TO servo_engine;
