-- Alerts: their conditions, changes and messages.

-- name: TryWatch :one
-- One transaction at a time evaluates alerts: two would raise the same alert.
SELECT pg_try_advisory_xact_lock(hashtextextended('servo.alerts', 0))::bool AS alone;

-- name: Conditions :many
-- All conditions that currently need an alert. Each part reads an index of rows with a problem.
SELECT c.kind::text AS kind, c.tenant_id::uuid AS tenant_id, c.about_id::uuid AS about_id, c.workspace::text AS workspace, c.name::text AS name,
       c.count::int AS count, coalesce(c.since, @now::timestamptz)::timestamptz AS since, c.reason::text AS reason
FROM  (
    SELECT 'PIPELINE_FAILED' AS kind, f.tenant_id, f.id AS about_id, w.name AS workspace, f.name, f.failures AS count, f.updated_at AS since, '' AS reason
    FROM   (SELECT * FROM servo.configs x WHERE x.failures > 0 AND x.deleted_at IS NULL
            AND   x.failures >= coalesce((x.spec->'alerts'->>'failures')::int, 1)
            AND   (x.enabled OR x.failures >= (x.spec->>'max_consecutive_failures')::int)) AS f
    JOIN   LATERAL (SELECT y.name FROM servo.workspaces y WHERE y.tenant_id = f.tenant_id AND y.id = f.workspace_id OFFSET 0) AS w ON true
    UNION ALL
    SELECT 'PIPELINE_FAILING', f.tenant_id, f.id, w.name, f.name, f.failures, f.updated_at, ''
    FROM   (SELECT * FROM servo.configs x WHERE x.failures > 0 AND x.deleted_at IS NULL
            AND   x.failures >= coalesce((x.spec->'alerts'->>'medium_failures')::int, greatest(3, (x.spec->'alerts'->>'failures')::int))
            AND   (x.enabled OR x.failures >= (x.spec->>'max_consecutive_failures')::int)) AS f
    JOIN   LATERAL (SELECT y.name FROM servo.workspaces y WHERE y.tenant_id = f.tenant_id AND y.id = f.workspace_id OFFSET 0) AS w ON true
    UNION ALL
    SELECT 'PIPELINE_DISABLED', d.tenant_id, d.id, w.name, d.name, d.failures, d.updated_at, d.disabled_reason
    FROM   (SELECT * FROM servo.configs x WHERE NOT x.enabled AND x.failures > 0 AND x.deleted_at IS NULL
            AND   x.failures >= (x.spec->>'max_consecutive_failures')::int) AS d
    JOIN   LATERAL (SELECT y.name FROM servo.workspaces y WHERE y.tenant_id = d.tenant_id AND y.id = d.workspace_id OFFSET 0) AS w ON true
    UNION ALL
    SELECT b.kind, b.tenant_id, b.config_id, w.name, o.name, b.runs, b.since, ''
    FROM   (SELECT k.kind, k.tenant_id, k.config_id, sum(k.runs) AS runs, min(k.since) AS since
            FROM  (SELECT 'RUN_LATE' AS kind, l.tenant_id, l.config_id, 1 AS runs, r.start_by AS since
                   FROM   servo.live_runs l
                   JOIN   LATERAL (SELECT y.start_by FROM servo.runs y WHERE y.tenant_id = l.tenant_id AND y.id = l.run_id OFFSET 0) AS r ON true
                   WHERE  l.breaches <> 0 AND l.breaches & 1 = 1 AND l.config_id IS NOT NULL
                   UNION ALL
                   SELECT 'RUN_OVERRAN', l.tenant_id, l.config_id, 1, NULL
                   FROM   servo.live_runs l
                   WHERE  l.breaches <> 0 AND l.breaches & 2 = 2 AND l.config_id IS NOT NULL
                   UNION ALL
                   SELECT 'RUN_OVERRAN', x.tenant_id, x.id, 1, x.last_run_at
                   FROM   servo.configs x
                   WHERE  x.last_run_state = 12 AND x.deleted_at IS NULL) AS k
            GROUP BY k.kind, k.tenant_id, k.config_id) AS b
    JOIN   LATERAL (SELECT y.name, y.workspace_id FROM servo.configs y
                    WHERE y.tenant_id = b.tenant_id AND y.id = b.config_id AND y.deleted_at IS NULL OFFSET 0) AS o ON true
    JOIN   LATERAL (SELECT y.name FROM servo.workspaces y WHERE y.tenant_id = b.tenant_id AND y.id = o.workspace_id OFFSET 0) AS w ON true
    UNION ALL
    SELECT CASE b.state WHEN 3 THEN 'BACKFILL_PAUSED' ELSE 'BACKFILL_FAILED' END, b.tenant_id, b.id, w.name, b.asset, b.failed, coalesce(b.paused_at, b.finished_at), b.reason
    FROM   (SELECT k.tenant_id, k.id, k.workspace_id, k.asset, k.state, k.failed, k.paused_at, k.finished_at, k.reason FROM servo.backfills k
            WHERE k.state IN (3, 11) AND (k.state = 3 OR k.finished_at > servo.clock() - interval '1 day')) AS b
    JOIN   LATERAL (SELECT y.name FROM servo.workspaces y WHERE y.tenant_id = b.tenant_id AND y.id = b.workspace_id OFFSET 0) AS w ON true
    UNION ALL
    SELECT 'SLA_BREACHES', t.tenant_id, t.tenant_id, '', n.name, t.breaches, @now::timestamptz, ''
    FROM   (SELECT s.tenant_id, sum(s.breaches) AS breaches
            FROM  (SELECT x.tenant_id, x.breaches FROM servo.run_totals x WHERE x.day = (@today::text)::date AND x.breaches > 0
                   UNION ALL
                   SELECT x.tenant_id, x.breaches FROM servo.run_deltas x WHERE x.day = (@today::text)::date AND x.breaches > 0) AS s
            GROUP BY s.tenant_id HAVING sum(s.breaches) >= 10) AS t
    JOIN   LATERAL (SELECT y.name FROM servo.tenants y WHERE y.id = t.tenant_id OFFSET 0) AS n ON true
    UNION ALL
    SELECT CASE WHEN r.rollout ->> 'state' = 'PAUSED' THEN 'ROLLOUT_WAITS' ELSE 'ROLLOUT_STOPPED' END, '00000000-0000-0000-0000-000000000000'::uuid,
           (r.rollout ->> 'id')::uuid, '', r.name, 1, r.updated_at, coalesce(r.rollout ->> 'reason', '')
    FROM   (SELECT x.name, x.updated_at, x.rollout::jsonb AS rollout FROM servo.release_channels x WHERE x.rollout <> '') AS r
    WHERE  r.rollout ->> 'automatic' = 'true' AND r.rollout ->> 'state' IN ('PAUSED', 'ROLLED_BACK')) AS c;

-- name: OldestDue :one
-- The due time of the most overdue config; the far future if none is due.
SELECT coalesce((SELECT c.due_at FROM servo.configs c WHERE c.due_at IS NOT NULL ORDER BY c.due_at LIMIT 1), '9999-12-31 00:00:00+00')::timestamptz AS due_at;

-- name: OpenAlerts :many
SELECT a.* FROM servo.alerts a WHERE a.resolved_at IS NULL ORDER BY a.tenant_id, a.kind, a.about_id;

-- name: InsertAlerts :exec
INSERT INTO servo.alerts (tenant_id, id, version, kind, severity, about_id, name, message, raised_at)
SELECT unnest(@tenant_ids::uuid[]), unnest(@ids::uuid[]), 1, unnest(@kinds::text[]), unnest(@severities::smallint[]), unnest(@about_ids::uuid[]),
       unnest(@names::text[]), unnest(@messages::text[]), @now::timestamptz;

-- name: ResolveAlerts :exec
UPDATE servo.alerts a
SET    version = a.version + 1, resolved_at = @now::timestamptz
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS n
WHERE  a.tenant_id = ANY (ARRAY[n.tenant_id]) AND a.id = n.id;

-- name: ChannelsOf :many
-- The channels of tenants; the zero tenant has those of the installation.
SELECT c.tenant_id, c.id, c.version, c.name, c.url, c.severity, c.created_by, c.created_at, c.deleted_at
FROM   (SELECT DISTINCT unnest(@tenant_ids::uuid[]) AS tenant_id) AS n
JOIN   LATERAL (SELECT x.tenant_id, x.id, x.version, x.name, x.url, x.severity, x.created_by, x.created_at, x.deleted_at
                FROM servo.alert_channels x WHERE x.tenant_id = n.tenant_id AND x.deleted_at IS NULL OFFSET 0) AS c ON true
ORDER  BY c.tenant_id, c.name;

-- name: InsertDeliveries :exec
INSERT INTO servo.alert_deliveries (tenant_id, alert_id, change, channel_tenant_id, channel_id, created_at, due_at)
SELECT unnest(@tenant_ids::uuid[]), unnest(@alert_ids::uuid[]), unnest(@changes::smallint[]), unnest(@channel_tenant_ids::uuid[]), unnest(@channel_ids::uuid[]),
       @now::timestamptz, @now::timestamptz;

-- name: DeliveriesDue :one
-- Whether a message is due: one index lookup.
SELECT coalesce((SELECT d.due_at FROM servo.alert_deliveries d WHERE d.due_at IS NOT NULL ORDER BY d.due_at LIMIT 1) <= servo.clock(), false)::bool AS due;

-- name: TakeDeliveries :many
-- Leases messages that are due. The message about an alert's end waits for the one about its
-- beginning: it is rescheduled and not leased.
UPDATE servo.alert_deliveries d
SET    due_at = coalesce(n.first_due_at + interval '1 millisecond', @until::timestamptz),
       tries = d.tries + CASE WHEN n.first_due_at IS NULL THEN 1 ELSE 0 END
FROM   (SELECT x.tenant_id, x.alert_id, x.channel_id, x.change, b.due_at AS first_due_at
        FROM   (SELECT y.tenant_id, y.alert_id, y.channel_id, y.change FROM servo.alert_deliveries y
                WHERE y.due_at <= @now::timestamptz ORDER BY y.due_at LIMIT @most::int FOR UPDATE SKIP LOCKED) AS x
        LEFT   JOIN LATERAL (SELECT z.due_at FROM servo.alert_deliveries z
                             WHERE z.tenant_id = x.tenant_id AND z.alert_id = x.alert_id AND z.channel_id = x.channel_id AND z.change = 1 AND x.change = 2 OFFSET 0) AS b ON true) AS n
WHERE  d.tenant_id = ANY (ARRAY[n.tenant_id]) AND d.alert_id = n.alert_id AND d.channel_id = n.channel_id AND d.change = n.change
RETURNING d.tenant_id, d.alert_id, d.change, d.channel_tenant_id, d.channel_id, d.created_at, d.tries, (n.first_due_at IS NULL)::bool AS ours;

-- name: Messages :many
-- The contents of messages: alerts with their channels.
SELECT a.tenant_id, a.id, a.version, a.kind, a.severity, a.about_id, a.name, a.message, a.raised_at, a.resolved_at,
       c.id AS channel_id, c.name AS channel, c.url, c.secret, c.deleted_at, coalesce(t.name, '')::text AS tenant
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@alert_ids::uuid[]) AS alert_id,
               unnest(@channel_tenant_ids::uuid[]) AS channel_tenant_id, unnest(@channel_ids::uuid[]) AS channel_id) AS n
JOIN   LATERAL (SELECT * FROM servo.alerts x WHERE x.tenant_id = n.tenant_id AND x.id = n.alert_id OFFSET 0) AS a ON true
JOIN   LATERAL (SELECT * FROM servo.alert_channels x WHERE x.tenant_id = n.channel_tenant_id AND x.id = n.channel_id OFFSET 0) AS c ON true
LEFT   JOIN LATERAL (SELECT x.name FROM servo.tenants x WHERE x.id = n.tenant_id OFFSET 0) AS t ON true;

-- name: SettleDelivery :execrows
-- The result of a delivery attempt: delivered, dropped, or retried at a time. After its lease has
-- ended, a server changes nothing that another has settled.
UPDATE servo.alert_deliveries d
SET    due_at = sqlc.narg('due_at')::timestamptz, delivered_at = sqlc.narg('delivered_at')::timestamptz, error = @error::text
WHERE  d.tenant_id = @tenant_id::uuid AND d.alert_id = @alert_id::uuid AND d.channel_id = @channel_id::uuid AND d.change = @change::smallint
AND    d.tries = @tries::int AND d.delivered_at IS NULL;

-- name: ReleaseDelivery :exec
-- The message about an alert's end is due once the one about its beginning is settled.
UPDATE servo.alert_deliveries d
SET    due_at = @now::timestamptz
WHERE  d.tenant_id = @tenant_id::uuid AND d.alert_id = @alert_id::uuid AND d.channel_id = @channel_id::uuid AND d.change = 2
AND    d.tries = 0 AND d.due_at IS NOT NULL;

-- name: InsertChannel :exec
INSERT INTO servo.alert_channels (tenant_id, id, version, name, url, severity, secret, created_by, created_at)
VALUES (@tenant_id::uuid, @id::uuid, 1, @name::text, @url::text, @severity::smallint, @secret::bytea, @created_by::text, @now::timestamptz);

-- name: ChannelSecret :one
-- A channel with the secret that signs its messages, to send a test message.
SELECT c.id, c.name, c.url, c.severity, c.secret
FROM   servo.alert_channels c
WHERE  c.tenant_id = @tenant_id::uuid AND c.name = @name::text AND c.deleted_at IS NULL;

-- name: LockChannel :one
SELECT c.tenant_id, c.id, c.version, c.name, c.url, c.severity, c.created_by, c.created_at, c.deleted_at
FROM   servo.alert_channels c
WHERE  c.tenant_id = @tenant_id::uuid AND c.name = @name::text AND c.deleted_at IS NULL
FOR NO KEY UPDATE;

-- name: DeleteChannel :exec
UPDATE servo.alert_channels SET version = version + 1, deleted_at = @now::timestamptz WHERE tenant_id = @tenant_id::uuid AND id = @id::uuid;
