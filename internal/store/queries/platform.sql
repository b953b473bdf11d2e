-- Pools and the keys that sign envelopes. They belong to no tenant, and the role of a tenant cannot
-- read them.

-- name: InsertPlatformEvents :exec
INSERT INTO servo.platform_events (subject, version, recorded_at, schema, type, actor, trace, data)
SELECT unnest(@subjects::text[]), unnest(@versions::int[]), unnest(@recorded_ats::timestamptz[]), unnest(@schemas::smallint[]),
       unnest(@types::text[]), unnest(@actors::text[]), unnest(@traces::text[]), unnest(@datas::text[])::jsonb;

-- name: PlatformVersion :one
-- The version of a subject: versions continue after its row was deleted.
SELECT coalesce(max(e.version), 0)::int AS version FROM servo.platform_events e WHERE e.subject = @subject::text;

-- name: Pools :many
-- All of them: an installation has few.
SELECT p.* FROM servo.pools p ORDER BY p.name;

-- name: LockPool :one
SELECT p.* FROM servo.pools p WHERE p.name = @name::text FOR UPDATE;

-- name: InsertPool :exec
-- Without its version, which is read after the insert: then no other transaction can delete the name.
INSERT INTO servo.pools (name, owner_id, accepts, kind, url, max_concurrency, rate_per_s, timeout_s, version, created_at, updated_at)
VALUES (@name::text, sqlc.narg(owner_id)::uuid, sqlc.narg(accepts)::uuid[], @kind::text, @url::text, @max_concurrency::int, @rate_per_s::real, @timeout_s::int,
        0, @now::timestamptz, @now::timestamptz);

-- name: UpdatePool :execrows
UPDATE servo.pools
SET    owner_id = sqlc.narg(owner_id)::uuid, accepts = sqlc.narg(accepts)::uuid[], url = @url::text, max_concurrency = @max_concurrency::int, rate_per_s = @rate_per_s::real,
       timeout_s = @timeout_s::int, version = @version::int, updated_at = @now::timestamptz
WHERE  name = @name::text AND version < @version::int;

-- name: PoolAccess :many
-- The tenants whose tasks the given pools accept. A pool without configuration accepts all.
SELECT p.name, p.owner_id, p.accepts FROM servo.pools p WHERE p.name = ANY (@names::text[]) AND p.accepts IS NOT NULL;

-- name: QueuedWithoutAccess :many
-- Queued tasks of tenants that may no longer use the pool: candidates, which are checked again under
-- their locks. Only pools that do not accept all tenants are read.
SELECT q.tenant_id, q.run_id, q.task_id
FROM   servo.pools p
JOIN   LATERAL (SELECT x.tenant_id, x.run_id, x.task_id FROM servo.pool_q x
                WHERE x.pool = p.name AND x.tenant_id <> ALL (p.accepts) LIMIT @most::int) AS q ON true
WHERE  p.accepts IS NOT NULL
ORDER  BY p.name
LIMIT  @most::int;

-- name: LockQueuedWithoutAccess :many
SELECT q.*
FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id ORDER BY 1, 2) AS n
JOIN   LATERAL (SELECT * FROM servo.pool_q x
                WHERE x.run_id = n.run_id AND x.task_id = n.task_id
                OFFSET 0 FOR UPDATE SKIP LOCKED) AS q ON true
JOIN   servo.pools p ON p.name = q.pool
WHERE  q.tenant_id <> ALL (p.accepts);

-- name: DeletePool :execrows
DELETE FROM servo.pools WHERE name = @name::text AND version = @version::int;

-- name: PushPools :many
-- The push pools, and which of them have queued tasks: one lookup in the queue for each, without
-- tasks of tenants that may no longer use the pool.
SELECT sqlc.embed(p), EXISTS (SELECT FROM servo.pool_q q WHERE q.pool = p.name AND coalesce(q.tenant_id = ANY (p.accepts), true)) AS queued,
       (SELECT count(*) FROM servo.servers s WHERE s.seen_at > @since::timestamptz)::int AS servers
FROM   servo.pools p
WHERE  p.kind = 'push'
ORDER  BY p.name;

-- name: LockSigningKeys :exec
-- One change of keys at a time: row locks do not cover rows that another transaction inserts.
SELECT pg_advisory_xact_lock(hashtextextended('servo.signing_keys', 0));

-- name: SigningKeys :many
SELECT k.* FROM servo.signing_keys k ORDER BY k.created_at, k.id;

-- name: InsertSigningKey :exec
INSERT INTO servo.signing_keys (id, secret, version, created_at, signs_from)
VALUES (@id::text, @secret::bytea, 1, @now::timestamptz, @signs_from::timestamptz);

-- name: UpdateSigningKey :execrows
UPDATE servo.signing_keys
SET    expires_at = sqlc.narg(expires_at)::timestamptz, revoked_at = sqlc.narg(revoked_at)::timestamptz, version = @version::int
WHERE  version < @version::int AND id = @id::text;
