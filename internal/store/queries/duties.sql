-- name: TakeDuty :one
-- Takes a free or expired duty, or renews the own one. A takeover raises the epoch, and
-- waits for transactions that still hold the row.
UPDATE servo.duties
SET    epoch = CASE WHEN holder = @holder::text AND expires_at > @now::timestamptz THEN epoch ELSE epoch + 1 END,
       holder = @holder::text,
       expires_at = @expires_at::timestamptz
WHERE  name = @name::text AND (holder = @holder::text OR expires_at <= @now::timestamptz)
RETURNING epoch;

-- name: ReleaseDuty :exec
UPDATE servo.duties SET expires_at = '-infinity' WHERE name = @name::text AND holder = @holder::text;

-- name: HoldDuty :one
-- Under a duty: the row cannot change hands before this transaction ends, and a second
-- transaction of the same holder waits for the first. FOR SHARE would let it pass while
-- the commit of the first is under way, and both would see the same room.
SELECT epoch FROM servo.duties WHERE name = @name::text AND holder = @holder::text AND epoch = @epoch::bigint FOR NO KEY UPDATE;
