-- Configs and their slots, under the role of their tenant.

-- name: GetConfig :one
SELECT sqlc.embed(c), w.name AS workspace
FROM   servo.configs c
JOIN   servo.workspaces w ON w.tenant_id = c.tenant_id AND w.id = c.workspace_id
WHERE  c.tenant_id = @tenant_id::uuid AND c.id = @id::uuid AND (@deleted::bool OR c.deleted_at IS NULL);

-- name: GetConfigByName :one
SELECT sqlc.embed(c), w.name AS workspace
FROM   servo.workspaces w
JOIN   servo.configs c ON c.tenant_id = w.tenant_id AND c.workspace_id = w.id AND c.name = @name::text AND c.deleted_at IS NULL
WHERE  w.tenant_id = @tenant_id::uuid AND w.name = @workspace::text;

-- name: ListConfigs :many
-- By id, that is by age. A config must have all given labels.
SELECT sqlc.embed(c), w.name AS workspace
FROM   servo.configs c
JOIN   servo.workspaces w ON w.tenant_id = c.tenant_id AND w.id = c.workspace_id
WHERE  c.tenant_id = @tenant_id::uuid AND c.id > @after::uuid AND (c.deleted_at IS NOT NULL) = @deleted::bool
AND    (@workspace::text = '' OR w.name = @workspace::text)
AND    (@pipeline::text = '' OR c.pipeline = @pipeline::text)
AND    (@prefix::text = '' OR starts_with(c.name, @prefix::text))
AND    c.labels @> (@labels::text)::jsonb
AND    (@state::text = '' OR @state::text = CASE WHEN NOT c.enabled THEN 'DISABLED' WHEN c.paused_at IS NOT NULL THEN 'PAUSED' ELSE 'ACTIVE' END)
AND    (NOT @failing::bool OR c.failures > 0)
ORDER  BY c.id LIMIT @most::int;

-- name: OrphanedConfigs :many
-- Active configs of a workspace that name none of some pipelines.
SELECT c.name, c.pipeline
FROM   servo.workspaces w
JOIN   servo.configs c ON c.tenant_id = w.tenant_id AND c.workspace_id = w.id AND c.deleted_at IS NULL
WHERE  w.tenant_id = @tenant_id::uuid AND w.name = @workspace::text AND c.enabled AND c.paused_at IS NULL AND NOT c.pipeline = ANY (@pipelines::text[])
ORDER  BY c.name LIMIT @most::int;

-- name: ListSlots :many
SELECT s.* FROM servo.slots s
WHERE  s.tenant_id = @tenant_id::uuid AND s.config_id = @config_id::uuid AND s.slot_at >= @from_at::timestamptz AND s.slot_at < @before::timestamptz
ORDER  BY s.slot_at DESC LIMIT @most::int;

-- name: ListSlotRanges :many
SELECT r.* FROM servo.slot_ranges r
WHERE  r.tenant_id = @tenant_id::uuid AND r.config_id = @config_id::uuid AND r.to_at >= @from_at::timestamptz AND r.from_at < @before::timestamptz
ORDER  BY r.from_at DESC LIMIT @most::int;

-- name: SlotOutcomes :many
-- The outcomes of the slots of a config, by the days that begin at the bounds; the last bound is the end.
-- A day is its index among the bounds, 0 is before them. The newest are counted, up to a
-- number of rows of each kind. Ranges do not overlap: at most one begins before the first bound
-- and ends after it, and it is the last that begins before.
SELECT n.first_day::int AS first_day, n.last_day::int AS last_day, n.outcome::smallint AS outcome, n.state::smallint AS state, n.missed::bool AS missed,
       sum(n.slots)::bigint AS slots, count(*)::bigint AS lines, min(n.at)::timestamptz AS oldest
FROM   (SELECT width_bucket(s.slot_at, @bounds::timestamptz[]) AS first_day, width_bucket(s.slot_at, @bounds::timestamptz[]) AS last_day, 1 AS outcome,
               coalesce(r.state, 0) AS state, coalesce(r.late OR r.timed_out, false) AS missed, 1 AS slots, s.slot_at AS at
        FROM   (SELECT x.slot_at, x.run_id FROM servo.slots x
                WHERE  x.tenant_id = @tenant_id::uuid AND x.config_id = @config_id::uuid AND x.slot_at >= @from_at::timestamptz AND x.slot_at < @before::timestamptz
                ORDER  BY x.slot_at DESC LIMIT @walk::int) AS s
        LEFT   JOIN LATERAL (SELECT y.state, y.late, y.timed_out FROM servo.runs y WHERE y.tenant_id = @tenant_id::uuid AND y.id = s.run_id OFFSET 0) AS r ON true
        UNION ALL
        SELECT width_bucket(s.from_at, @bounds::timestamptz[]), width_bucket(s.to_at, @bounds::timestamptz[]), s.outcome, 0, false, s.slots, s.from_at
        FROM   (SELECT x.from_at, x.to_at, x.outcome, x.slots FROM servo.slot_ranges x
                WHERE  x.tenant_id = @tenant_id::uuid AND x.config_id = @config_id::uuid AND x.from_at < @before::timestamptz
                AND    x.from_at >= coalesce((SELECT max(y.from_at) FROM servo.slot_ranges y
                                              WHERE  y.tenant_id = @tenant_id::uuid AND y.config_id = @config_id::uuid AND y.from_at <= @from_at::timestamptz), @from_at::timestamptz)
                ORDER  BY x.from_at DESC LIMIT @walk::int) AS s
        WHERE  s.to_at >= @from_at::timestamptz) AS n
GROUP  BY 1, 2, 3, 4, 5;

-- name: ConfigEvents :many
-- The events of a config, the oldest first.
SELECT e.version, e.recorded_at, e.schema, e.type, e.actor, e.trace, e.data
FROM   servo.entity_events e
WHERE  e.tenant_id = @tenant_id::uuid AND e.subject_id = @subject_id::uuid AND e.version > @after::int
ORDER  BY e.version LIMIT @most::int;

-- name: ConfigDecidedUntil :one
-- Until when the slots of a config, deleted or not, are decided.
SELECT c.decided_until FROM servo.configs c WHERE c.tenant_id = @tenant_id::uuid AND c.id = @id::uuid;

-- name: GetEvent :one
SELECT sqlc.embed(e), w.name AS workspace
FROM   servo.event_inbox e
JOIN   servo.workspaces w ON w.tenant_id = e.tenant_id AND w.id = e.workspace_id
WHERE  e.tenant_id = @tenant_id::uuid AND e.id = @id::uuid;

-- name: ListTemplates :many
SELECT x.* FROM servo.templates x WHERE x.tenant_id = @tenant_id::uuid ORDER BY x.name;
