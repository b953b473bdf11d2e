-- Reads for people: quotas and locks of one tenant.

-- name: GetQuotas :one
SELECT t.* FROM servo.tenants t WHERE t.id = @tenant_id::uuid;

-- name: ListLocks :many
SELECT l.lock_key, l.run_id, l.created_at, l.due_at, l.locked_by, l.pipeline, l.pending, w.name AS workspace
FROM   servo.live_runs l
JOIN   servo.workspaces w ON w.tenant_id = l.tenant_id AND w.id = l.workspace_id
WHERE  l.tenant_id = @tenant_id::uuid AND l.lock_key > @after::text AND l.lock_key <> ''
ORDER  BY l.lock_key
LIMIT  @most::int;

-- name: GetLock :one
SELECT l.lock_key, l.run_id, l.created_at, l.due_at, l.locked_by, l.pipeline, l.pending, w.name AS workspace
FROM   servo.live_runs l
JOIN   servo.workspaces w ON w.tenant_id = l.tenant_id AND w.id = l.workspace_id
WHERE  l.tenant_id = @tenant_id::uuid AND l.lock_key = @lock_key::text AND l.lock_key <> '';
