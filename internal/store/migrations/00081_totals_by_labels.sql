-- +goose Up
-- Sums were told apart by one label, provider. They are now told apart by all labels that the config of a
-- run had when the run was made, so that they can be grouped by any of them: JSON with sorted keys,
-- empty for none.
ALTER TABLE servo.runs RENAME COLUMN provider TO labels;
ALTER TABLE servo.run_deltas RENAME COLUMN provider TO labels;
ALTER TABLE servo.run_totals RENAME COLUMN provider TO labels;

SET LOCAL ROLE servo_engine;
UPDATE servo.runs       SET labels = format('{"provider":%s}', to_json(labels)) WHERE labels <> '';
UPDATE servo.run_deltas SET labels = format('{"provider":%s}', to_json(labels)) WHERE labels <> '';
UPDATE servo.run_totals SET labels = format('{"provider":%s}', to_json(labels)) WHERE labels <> '';
RESET ROLE;

-- The key has a digest: labels may be longer than an entry of an index.
ALTER TABLE servo.run_totals
    ADD  COLUMN labels_key uuid NOT NULL GENERATED ALWAYS AS (md5(labels)::uuid) STORED,
    DROP CONSTRAINT run_totals_pkey,
    ADD  PRIMARY KEY (tenant_id, day, labels_key);
