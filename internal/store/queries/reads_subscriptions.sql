-- Subscriptions, for readers.

-- name: ListSubscriptions :many
-- All of a tenant, by name.
SELECT s.tenant_id, s.id, s.version, s.name, s.url, s.types, s.workspace, s.pipeline, s.paused_at, s.pause_reason, s.created_by, s.created_at, s.deleted_at,
       s.after_epoch, s.after_tx, s.after_position, s.after_ordinal, s.due_at, s.tries, s.failing_since, s.error, s.delivered, s.delivered_at
FROM   servo.subscriptions s
WHERE  s.tenant_id = @tenant_id::uuid AND s.deleted_at IS NULL AND (@name::text = '' OR s.name = @name::text)
ORDER  BY s.name;
