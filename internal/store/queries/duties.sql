-- name: TakeDuty :one
-- Takes a free or expired duty in a new epoch, and waits for transactions that still lock its row:
-- they work under the previous epoch.
WITH free AS (
    UPDATE servo.duty_renewals r
    SET    holder = @holder::text, epoch = r.epoch + 1, expires_at = @expires_at::timestamptz
    WHERE  r.name = @name::text AND r.expires_at <= @now::timestamptz
    RETURNING r.name, r.epoch
)
UPDATE servo.duties d
SET    holder = @holder::text, epoch = f.epoch
FROM   free f
WHERE  d.name = @name::text AND f.name = d.name
RETURNING d.epoch;

-- name: RenewDuty :one
-- Renews a duty that has not expired. It touches no row that work under the duty holds.
UPDATE servo.duty_renewals
SET    expires_at = @expires_at::timestamptz
WHERE  name = @name::text AND holder = @holder::text AND expires_at > @now::timestamptz
RETURNING epoch;

-- name: ReleaseDuty :exec
UPDATE servo.duty_renewals SET expires_at = '-infinity' WHERE name = @name::text AND holder = @holder::text;

-- name: HoldDuty :one
-- Locks the row of a duty: no other server can take it before this transaction ends, and a second
-- transaction of the same holder waits for the first. FOR SHARE would let the second pass while the
-- first commits, and both would see the same capacity.
SELECT epoch FROM servo.duties WHERE name = @name::text AND holder = @holder::text AND epoch = @epoch::bigint FOR NO KEY UPDATE;
