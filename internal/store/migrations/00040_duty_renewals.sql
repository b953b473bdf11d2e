-- +goose Up

-- Until when a duty is held stands in a row of its own: work under a duty holds the row in
-- servo.duties to its end, and a renewal that waited for it would come too late as soon as the
-- work takes longer than the duty lasts. Work locks servo.duties alone, renewals lock this one
-- alone, and a takeover locks this one first and then waits for the work.
CREATE TABLE servo.duty_renewals (
    name       text        PRIMARY KEY REFERENCES servo.duties (name),
    holder     text        NOT NULL DEFAULT '',
    epoch      bigint      NOT NULL DEFAULT 0,
    expires_at timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 500);
INSERT INTO servo.duty_renewals (name, holder, epoch, expires_at) SELECT name, holder, epoch, expires_at FROM servo.duties;
GRANT SELECT, UPDATE ON servo.duty_renewals TO servo_engine;

ALTER TABLE servo.duties DROP COLUMN expires_at;
