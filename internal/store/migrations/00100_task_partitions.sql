-- +goose Up

-- The declared partitions of a task in numbers: a series of its asset, and the first and the last
-- ordinal in it. Null for a task without declared partitions. The column partition has their key.
ALTER TABLE servo.tasks
    ADD COLUMN series        text NOT NULL DEFAULT '',
    ADD COLUMN first_ordinal bigint,
    ADD COLUMN last_ordinal  bigint,
    ADD CONSTRAINT ordinals_whole CHECK (num_nulls(first_ordinal, last_ordinal) IN (0, 2) AND first_ordinal <= last_ordinal);
