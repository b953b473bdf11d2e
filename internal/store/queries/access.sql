-- API keys and audit records, under the engine's role.

-- name: KeyByPublicID :one
-- The key that a caller presents, with its digest, the name of its tenant and the time. A worker key
-- of a tenant may claim from those of its pools that the tenant owns.
SELECT k.tenant_id, k.id, k.version, k.public_id, k.name, k.role, k.workspace, k.created_by, k.created_at, k.expires_at, k.replaced_by, k.revoked_at,
       k.digest, coalesce(t.name, '')::text AS tenant, servo.clock()::timestamptz AS now,
       k.pools,
       (CASE WHEN k.role <> 'worker' OR k.tenant_id = '00000000-0000-0000-0000-000000000000' THEN k.pools
             ELSE ARRAY(SELECT p.name FROM servo.pools p WHERE p.name = ANY (k.pools) AND p.owner_id = k.tenant_id ORDER BY p.name) END)::text[] AS claims
FROM   servo.api_keys k
LEFT   JOIN LATERAL (SELECT x.name FROM servo.tenants x WHERE x.id = k.tenant_id OFFSET 0) AS t ON true
WHERE  k.public_id = @public_id::text;

-- name: LockKeys :exec
-- One transaction at a time creates keys of an owner: two would both count up to the limit.
SELECT pg_advisory_xact_lock(hashtextextended('servo.keys.' || (@tenant_id::uuid)::text, 0));

-- name: CountKeys :one
-- Valid keys of an owner, of one role or of all.
SELECT count(*) FROM servo.api_keys k
WHERE  k.tenant_id = @tenant_id::uuid AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > @now::timestamptz)
AND    (@role::text = '' OR k.role = @role::text);

-- name: LockKey :one
-- A key by its id, or a valid key by its name, which is unique among valid keys.
SELECT k.tenant_id, k.id, k.version, k.public_id, k.name, k.role, k.workspace, k.pools, k.created_by, k.created_at, k.expires_at, k.replaced_by, k.revoked_at
FROM   servo.api_keys k
WHERE  k.tenant_id = @tenant_id::uuid
AND    (k.public_id = @key::text OR k.name = @key::text AND k.revoked_at IS NULL AND k.replaced_by IS NULL)
FOR NO KEY UPDATE;

-- name: InsertKey :exec
INSERT INTO servo.api_keys (tenant_id, id, version, public_id, name, role, workspace, pools, digest, created_by, created_at, expires_at)
VALUES (@tenant_id::uuid, @id::uuid, 1, @public_id::text, @name::text, @role::text, sqlc.narg('workspace')::text, @pools::text[], @digest::bytea,
        @created_by::text, @now::timestamptz, sqlc.narg('expires_at')::timestamptz);

-- name: UpdateKey :exec
UPDATE servo.api_keys
SET    version = @version::int, expires_at = sqlc.narg('expires_at')::timestamptz, replaced_by = sqlc.narg('replaced_by')::text, revoked_at = sqlc.narg('revoked_at')::timestamptz
WHERE  tenant_id = @tenant_id::uuid AND id = @id::uuid;

-- name: TouchKeys :exec
-- The last use of many keys. An earlier time does not replace a later one.
UPDATE servo.api_keys k
SET    last_used_at = n.at
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id, unnest(@ats::timestamptz[]) AS at) AS n
WHERE  k.tenant_id = ANY (ARRAY[n.tenant_id]) AND k.id = n.id AND (k.last_used_at IS NULL OR k.last_used_at < n.at);

-- name: InsertAudit :exec
-- Audit records of many calls. A record that is written again after an error exists once.
INSERT INTO servo.audit_log (tenant_id, id, at, actor, address, request_id, method, subject, allowed, code, request)
SELECT unnest(@tenant_ids::uuid[]), unnest(@ids::uuid[]), unnest(@ats::timestamptz[]), unnest(@actors::text[]), unnest(@addresses::text[]), unnest(@request_ids::text[]),
       unnest(@methods::text[]), unnest(@subjects::text[]), unnest(@alloweds::bool[]), unnest(@codes::text[]), unnest(@requests::text[])::jsonb
ON CONFLICT DO NOTHING;
