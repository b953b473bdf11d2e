-- name: TryLockCall :one
-- One call with a key at a time. A call that does not get the lock ends its transaction and waits.
SELECT pg_try_advisory_xact_lock(hashtextextended('servo.call ' || (@tenant_id::uuid)::text || ' ' || @key::text, 0))::bool AS alone;

-- name: AnsweredCall :one
SELECT c.digest, c.answer
FROM   servo.answered_calls c
WHERE  c.tenant_id = @tenant_id::uuid AND c.key = @key::text AND c.created_at > servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @keep::float8);

-- name: InsertAnsweredCall :execrows
-- The row of an expired key stays until it is deleted, or replaced by a call with the same key.
INSERT INTO servo.answered_calls AS c (tenant_id, key, method, digest, answer, created_at)
VALUES (@tenant_id::uuid, @key::text, @method::text, @digest::bytea, @answer::bytea, servo.clock())
ON CONFLICT (tenant_id, key) DO UPDATE
SET    method = excluded.method, digest = excluded.digest, answer = excluded.answer, created_at = excluded.created_at
WHERE  c.created_at <= servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @keep::float8);

-- name: ForgetAnsweredCalls :execrows
DELETE FROM servo.answered_calls c
USING (
    SELECT o.tenant_id, o.key FROM servo.answered_calls o WHERE o.created_at < @before::timestamptz
    ORDER  BY o.created_at LIMIT @most::int FOR UPDATE SKIP LOCKED
) AS old
WHERE  c.tenant_id = old.tenant_id AND c.key = old.key AND c.created_at < @before::timestamptz;
