-- Alerts, for readers.

-- name: ListAlerts :many
-- The newest first.
SELECT a.* FROM servo.alerts a
WHERE  a.tenant_id = @tenant_id::uuid AND a.id < @before::uuid
AND    (@kind::text = '' OR a.kind = @kind::text)
ORDER  BY a.id DESC LIMIT @most::int;

-- name: ListOpenAlerts :many
-- The open alerts of one tenant, the newest first.
SELECT a.* FROM servo.alerts a
WHERE  a.tenant_id = @tenant_id::uuid AND a.resolved_at IS NULL AND a.id < @before::uuid
AND    (@kind::text = '' OR a.kind = @kind::text)
ORDER  BY a.id DESC LIMIT @most::int;

-- name: GetAlert :one
SELECT a.* FROM servo.alerts a WHERE a.tenant_id = @tenant_id::uuid AND a.id = @id::uuid;

-- name: DeliveriesOf :many
SELECT d.change, d.created_at, d.due_at, d.tries, d.delivered_at, d.error, coalesce(c.name, '')::text AS channel
FROM   servo.alert_deliveries d
LEFT   JOIN LATERAL (SELECT x.name FROM servo.alert_channels x WHERE x.tenant_id = d.channel_tenant_id AND x.id = d.channel_id OFFSET 0) AS c ON true
WHERE  d.tenant_id = @tenant_id::uuid AND d.alert_id = @alert_id::uuid
ORDER  BY d.channel_id, d.change;
