-- +goose Up
-- The cursor of a lease is where its worker has moved it; claim_cursor is where it was at the claim. The
-- event that ends the lease records the cursor (docs/adr/0038). Events of moves that were recorded until
-- now cannot be read any more.
ALTER TABLE servo.leases ADD COLUMN claim_cursor text NOT NULL DEFAULT '';
SET LOCAL ROLE servo_engine;
UPDATE servo.leases SET claim_cursor = cursor;
RESET ROLE;
