-- Configs and their slots as their tenant reads them.

-- name: GetConfig :one
SELECT sqlc.embed(c), w.name AS workspace
FROM   servo.configs c
JOIN   servo.workspaces w ON w.tenant_id = c.tenant_id AND w.id = c.workspace_id
WHERE  c.tenant_id = @tenant_id::uuid AND c.id = @id::uuid AND c.deleted_at IS NULL;

-- name: GetConfigByName :one
SELECT sqlc.embed(c), w.name AS workspace
FROM   servo.workspaces w
JOIN   servo.configs c ON c.tenant_id = w.tenant_id AND c.workspace_id = w.id AND c.name = @name::text AND c.deleted_at IS NULL
WHERE  w.tenant_id = @tenant_id::uuid AND w.name = @workspace::text;

-- name: ListConfigs :many
-- By id, that is by age. Labels that are asked for must all be there.
SELECT sqlc.embed(c), w.name AS workspace
FROM   servo.configs c
JOIN   servo.workspaces w ON w.tenant_id = c.tenant_id AND w.id = c.workspace_id
WHERE  c.tenant_id = @tenant_id::uuid AND c.id > @after::uuid AND c.deleted_at IS NULL
AND    (@workspace::text = '' OR w.name = @workspace::text)
AND    (@pipeline::text = '' OR c.pipeline = @pipeline::text)
AND    (@prefix::text = '' OR starts_with(c.name, @prefix::text))
AND    c.labels @> (@labels::text)::jsonb
AND    (@state::text = '' OR @state::text = CASE WHEN NOT c.enabled THEN 'DISABLED' WHEN c.paused_at IS NOT NULL THEN 'PAUSED' ELSE 'ACTIVE' END)
AND    (NOT @failing::bool OR c.failures > 0)
ORDER  BY c.id LIMIT @most::int;

-- name: ListSlots :many
SELECT sqlc.embed(s) FROM servo.slots s
WHERE  s.tenant_id = @tenant_id::uuid AND s.config_id = @config_id::uuid AND s.slot_at >= @from_at::timestamptz AND s.slot_at < @before::timestamptz
ORDER  BY s.slot_at DESC LIMIT @most::int;

-- name: ListSlotRanges :many
SELECT sqlc.embed(r) FROM servo.slot_ranges r
WHERE  r.tenant_id = @tenant_id::uuid AND r.config_id = @config_id::uuid AND r.to_at >= @from_at::timestamptz AND r.from_at < @before::timestamptz
ORDER  BY r.from_at DESC LIMIT @most::int;

-- name: ConfigEvents :many
-- The events of a config, the oldest first.
SELECT e.version, e.recorded_at, e.schema, e.type, e.actor, e.trace, e.data
FROM   servo.entity_events e
WHERE  e.tenant_id = @tenant_id::uuid AND e.subject_id = @subject_id::uuid AND e.version > @after::int
ORDER  BY e.version LIMIT @most::int;

-- name: ConfigDecidedUntil :one
-- Up to where the slots of a config, deleted or not, are decided.
SELECT c.decided_until FROM servo.configs c WHERE c.tenant_id = @tenant_id::uuid AND c.id = @id::uuid;

-- name: GetEvent :one
SELECT sqlc.embed(e), w.name AS workspace
FROM   servo.event_inbox e
JOIN   servo.workspaces w ON w.tenant_id = e.tenant_id AND w.id = e.workspace_id
WHERE  e.tenant_id = @tenant_id::uuid AND e.id = @id::uuid;

-- name: ListTemplates :many
SELECT sqlc.embed(x) FROM servo.templates x WHERE x.tenant_id = @tenant_id::uuid ORDER BY x.name;
