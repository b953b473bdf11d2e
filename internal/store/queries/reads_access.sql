-- Keys and audit records, for readers.

-- name: ListKeys :many
-- The newest first. Without the digest, which must not leave the engine.
SELECT k.tenant_id, k.id, k.version, k.public_id, k.name, k.role, k.workspace, k.pools, k.created_by, k.created_at, k.expires_at, k.replaced_by, k.revoked_at, k.last_used_at
FROM   servo.api_keys k
WHERE  k.tenant_id = @tenant_id::uuid AND k.id < @before::uuid
AND    (@everything::bool OR k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > servo.clock()))
ORDER  BY k.id DESC LIMIT @most::int;

-- name: ListAudit :many
-- The newest first. An id has the time of its row in its first bits, so the times bound the ids.
SELECT a.* FROM servo.audit_log a
WHERE  a.tenant_id = @tenant_id::uuid AND a.id < @before::uuid AND a.id >= @since::uuid
ORDER  BY a.id DESC LIMIT @most::int;

-- name: ListAuditOf :many
-- The records of one actor, the newest first.
SELECT a.* FROM servo.audit_log a
WHERE  a.tenant_id = @tenant_id::uuid AND a.actor = @actor::text AND a.id < @before::uuid AND a.id >= @since::uuid
ORDER  BY a.id DESC LIMIT @most::int;
