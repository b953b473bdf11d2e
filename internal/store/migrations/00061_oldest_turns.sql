-- +goose Up
-- How many tasks of a share were admitted: each eighth turn is for the task that is ready
-- longest, whatever its priority (package fair).
ALTER TABLE servo.shares ADD COLUMN admitted bigint NOT NULL DEFAULT 0;

-- Ranks are by priority alone from now on, then by time.
GRANT UPDATE (rank) ON servo.ready_q TO servo_engine;
SET LOCAL ROLE servo_engine;
UPDATE servo.ready_q
SET    rank = least(greatest(10 - priority, 0), 10) * 9007199254740992 + (extract(epoch FROM since) * 1000000)::bigint;
RESET ROLE;
REVOKE UPDATE (rank) ON servo.ready_q FROM servo_engine;
