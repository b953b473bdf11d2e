-- +goose Up

-- Slots that fired cover the partitions that were completed up to here. Null until a slot of a config
-- with partitions has fired.
ALTER TABLE servo.configs ADD COLUMN covered_until timestamptz;

-- The partitions of time that the slot covers, such as date=2026-01-01..2026-01-03; null without.
ALTER TABLE servo.slots ADD COLUMN partitions text[];

-- 10 is SKIPPED_NO_PARTITION.
ALTER TABLE servo.slot_ranges DROP CONSTRAINT slot_ranges_outcome_check;
ALTER TABLE servo.slot_ranges ADD CONSTRAINT slot_ranges_outcome_check CHECK (outcome BETWEEN 2 AND 10);
