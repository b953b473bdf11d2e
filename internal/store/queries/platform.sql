-- Pools and the keys that envelopes are signed with. None of it belongs to a tenant, or is
-- for the role of one.

-- name: InsertPlatformEvents :exec
INSERT INTO servo.platform_events (subject, version, recorded_at, schema, type, actor, trace, data)
SELECT unnest(@subjects::text[]), unnest(@versions::int[]), unnest(@recorded_ats::timestamptz[]), unnest(@schemas::smallint[]),
       unnest(@types::text[]), unnest(@actors::text[]), unnest(@traces::text[]), unnest(@datas::text[])::jsonb;

-- name: PlatformVersion :one
-- The version of a subject: its events go on after its row was deleted.
SELECT coalesce(max(e.version), 0)::int AS version FROM servo.platform_events e WHERE e.subject = @subject::text;

-- name: Pools :many
-- All of them: an installation has few.
SELECT sqlc.embed(p) FROM servo.pools p ORDER BY p.name;

-- name: LockPool :one
SELECT sqlc.embed(p) FROM servo.pools p WHERE p.name = @name::text FOR UPDATE;

-- name: InsertPool :exec
-- Without its version: that is read when the name is ours, and nobody else can delete it.
INSERT INTO servo.pools (name, owner_id, kind, url, max_concurrency, rate_per_s, timeout_s, version, created_at, updated_at)
VALUES (@name::text, sqlc.narg(owner_id)::uuid, @kind::text, @url::text, @max_concurrency::int, @rate_per_s::real, @timeout_s::int,
        0, @now::timestamptz, @now::timestamptz);

-- name: UpdatePool :execrows
UPDATE servo.pools
SET    owner_id = sqlc.narg(owner_id)::uuid, url = @url::text, max_concurrency = @max_concurrency::int, rate_per_s = @rate_per_s::real,
       timeout_s = @timeout_s::int, version = @version::int, updated_at = @now::timestamptz
WHERE  name = @name::text AND version < @version::int;

-- name: DeletePool :execrows
DELETE FROM servo.pools WHERE name = @name::text AND version = @version::int;

-- name: PushPools :many
-- The pools that are called, and which of them have something to send: one probe of the
-- queue for each.
SELECT sqlc.embed(p), EXISTS (SELECT FROM servo.pool_q q WHERE q.pool = p.name) AS queued,
       (SELECT count(*) FROM servo.servers s WHERE s.seen_at > @since::timestamptz)::int AS servers
FROM   servo.pools p
WHERE  p.kind = 'push'
ORDER  BY p.name;

-- name: LockSigningKeys :exec
-- One change of keys at a time: a row that another adds would escape a lock of the rows.
SELECT pg_advisory_xact_lock(hashtextextended('servo.signing_keys', 0));

-- name: SigningKeys :many
SELECT sqlc.embed(k) FROM servo.signing_keys k ORDER BY k.created_at, k.id;

-- name: InsertSigningKey :exec
INSERT INTO servo.signing_keys (id, secret, version, created_at, signs_from)
VALUES (@id::text, @secret::bytea, 1, @now::timestamptz, @signs_from::timestamptz);

-- name: UpdateSigningKey :execrows
UPDATE servo.signing_keys
SET    expires_at = sqlc.narg(expires_at)::timestamptz, revoked_at = sqlc.narg(revoked_at)::timestamptz, version = @version::int
WHERE  version < @version::int AND id = @id::text;
