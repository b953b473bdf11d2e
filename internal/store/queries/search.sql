-- Search by an id or by a part of a name. Under the role of the engine it searches all tenants, under
-- the role of a tenant its own rows.

-- name: OwnersOf :many
-- The tenant of an id, by the keys of each tenant. All entities except tasks and runs have events by their id.
SELECT t.id AS tenant_id
FROM   (SELECT x.id FROM servo.tenants x ORDER BY x.id LIMIT @walk::int) AS t
WHERE  EXISTS (SELECT FROM servo.runs r WHERE r.tenant_id = t.id AND r.id = @id::uuid OFFSET 0)
OR     EXISTS (SELECT FROM servo.entity_events e WHERE e.tenant_id = t.id AND e.subject_id = @id::uuid OFFSET 0)
LIMIT  2;

-- name: OwnersOfTask :many
-- A task has no key without its run. Its id is created with that of the run, so the run is one of the
-- last that its tenant created before.
SELECT t.id AS tenant_id, k.run_id
FROM   (SELECT x.id FROM servo.tenants x ORDER BY x.id LIMIT @walk::int) AS t
JOIN   LATERAL (SELECT r.id FROM servo.runs r WHERE r.tenant_id = t.id AND r.id >= @lower::uuid AND r.id < @id::uuid ORDER BY r.tenant_id DESC, r.id DESC LIMIT @runs::int) AS n ON true
JOIN   LATERAL (SELECT x.run_id FROM servo.tasks x WHERE x.tenant_id = t.id AND x.run_id = n.id AND x.id = @id::uuid OFFSET 0) AS k ON true
LIMIT  1;

-- name: OwnersOfAddedTask :many
-- A task that a fan-out has added is younger than its run. This searches the live runs, and the last
-- runs of any tenant that are older than the task.
SELECT n.tenant_id, n.run_id
FROM   ((SELECT l.tenant_id, l.run_id FROM servo.live_runs l LIMIT @live::int)
        UNION ALL
        (SELECT r.tenant_id, r.id FROM servo.runs r WHERE r.created_at <= @at::timestamptz ORDER BY r.created_at DESC LIMIT @runs::int)) AS n
JOIN   LATERAL (SELECT x.run_id FROM servo.tasks x WHERE x.tenant_id = n.tenant_id AND x.run_id = n.run_id AND x.id = @id::uuid OFFSET 0) AS k ON true
LIMIT  1;

-- name: ThingsByID :many
-- The entity of an id, of any kind. The filter for deleted rows comes afterwards, so that the planner
-- uses the key and not a partial index.
SELECT n.kind::text AS kind, n.name::text AS name, n.state::text AS state, n.number::smallint AS number, coalesce(w.name, n.workspace)::text AS workspace
FROM   (SELECT 'run' AS kind, x.pipeline AS name, '' AS state, x.state AS number, x.workspace_id, '' AS workspace
        FROM   servo.runs x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid
        UNION ALL
        SELECT 'config', x.name, CASE WHEN NOT x.enabled THEN 'DISABLED' WHEN x.paused_at IS NOT NULL THEN 'PAUSED' ELSE 'ACTIVE' END, 0, x.workspace_id, ''
        FROM   (SELECT x.name, x.enabled, x.paused_at, x.workspace_id, x.deleted_at FROM servo.configs x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid OFFSET 0) AS x WHERE x.deleted_at IS NULL
        UNION ALL
        SELECT 'deployment', x.digest, '', 0, x.workspace_id, ''
        FROM   servo.deployments x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid
        UNION ALL
        SELECT 'workspace', x.name, '', 0, x.id, ''
        FROM   servo.workspaces x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid
        UNION ALL
        SELECT 'event', x.name, CASE WHEN x.done_at IS NULL THEN 'PENDING' ELSE 'DONE' END, 0, x.workspace_id, ''
        FROM   servo.event_inbox x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid
        UNION ALL
        SELECT 'alert', x.kind, CASE WHEN x.resolved_at IS NULL THEN 'OPEN' ELSE 'RESOLVED' END, 0, NULL, ''
        FROM   servo.alerts x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid
        UNION ALL
        SELECT 'channel', x.name, '', 0, NULL, ''
        FROM   (SELECT x.name, x.deleted_at FROM servo.alert_channels x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid OFFSET 0) AS x WHERE x.deleted_at IS NULL
        UNION ALL
        SELECT 'subscription', x.name, CASE WHEN x.paused_at IS NULL THEN 'ACTIVE' ELSE 'PAUSED' END, 0, NULL, x.workspace
        FROM   (SELECT x.name, x.paused_at, x.workspace, x.deleted_at FROM servo.subscriptions x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid OFFSET 0) AS x WHERE x.deleted_at IS NULL
        UNION ALL
        SELECT 'key', x.name, CASE WHEN x.revoked_at IS NULL THEN '' ELSE 'REVOKED' END, 0, NULL, coalesce(x.workspace, '')
        FROM   servo.api_keys x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid
        UNION ALL
        SELECT 'template', x.name, '', 0, NULL, ''
        FROM   servo.templates x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid
        UNION ALL
        SELECT 'tenant', x.name, '', 0, NULL, ''
        FROM   servo.tenants x WHERE x.id = @tenant_id::uuid AND x.id = @id::uuid) AS n
LEFT   JOIN LATERAL (SELECT y.name FROM servo.workspaces y WHERE y.tenant_id = @tenant_id::uuid AND y.id = n.workspace_id OFFSET 0) AS w ON true;

-- name: TenantsNamed :many
SELECT t.id, t.name
FROM   (SELECT x.id, x.name FROM servo.tenants x ORDER BY x.name LIMIT @walk::int) AS t
WHERE  strpos(lower(t.name), lower(@part::text)) > 0
ORDER  BY NOT starts_with(t.name, @part::text), t.name
LIMIT  @most::int;

-- name: ConfigsNamed :many
-- Along the key, up to a number of configs: there is no index of names alone, which every slot
-- that fires would have to write to. Those that begin with the text come first.
SELECT c.tenant_id, c.id, c.name, w.name AS workspace, CASE WHEN NOT c.enabled THEN 'DISABLED' WHEN c.paused_at IS NOT NULL THEN 'PAUSED' ELSE 'ACTIVE' END::text AS state
FROM   (SELECT x.tenant_id, x.id, x.workspace_id, x.name, x.enabled, x.paused_at FROM servo.configs x
        WHERE  x.deleted_at IS NULL ORDER BY x.tenant_id, x.id LIMIT @walk::int) AS c
JOIN   LATERAL (SELECT y.name FROM servo.workspaces y WHERE y.tenant_id = c.tenant_id AND y.id = c.workspace_id OFFSET 0) AS w ON true
WHERE  strpos(lower(c.name), lower(@part::text)) > 0 AND (@workspace::text = '' OR w.name = @workspace::text)
ORDER  BY NOT starts_with(c.name, @part::text), c.name
LIMIT  @most::int;

-- name: MoreConfigs :one
-- Whether there are more configs than the search reads.
SELECT EXISTS (SELECT FROM servo.configs x WHERE x.deleted_at IS NULL ORDER BY x.tenant_id, x.id OFFSET @walk::int) AS more;

-- name: KeysNamed :many
-- Keys by a part of the name, and by the beginning of the public id. Valid keys are few; others are
-- found by their ids only.
SELECT k.tenant_id, k.public_id, k.name, k.workspace, k.state
FROM   ((SELECT x.tenant_id, x.public_id, x.name, coalesce(x.workspace, '')::text AS workspace, ''::text AS state
         FROM   (SELECT y.tenant_id, y.public_id, y.name, y.workspace FROM servo.api_keys y
                 WHERE  y.revoked_at IS NULL AND y.replaced_by IS NULL ORDER BY y.tenant_id, y.name LIMIT @walk::int) AS x
         WHERE  strpos(lower(x.name), lower(@part::text)) > 0 AND NOT (@low::text <> '' AND x.public_id BETWEEN @low::text AND @high::text)
         ORDER  BY NOT starts_with(x.name, @part::text), x.name LIMIT @most::int)
        UNION ALL
        (SELECT x.tenant_id, x.public_id, x.name, coalesce(x.workspace, '')::text, CASE WHEN x.revoked_at IS NULL THEN '' ELSE 'REVOKED' END::text
         FROM   servo.api_keys x WHERE x.public_id >= @low::text AND x.public_id <= @high::text ORDER BY x.public_id LIMIT @most::int)) AS k
LIMIT  @most::int;

-- name: LocksNamed :many
SELECT l.lock_key, l.run_id, l.pending, w.name AS workspace
FROM   (SELECT x.tenant_id, x.run_id, x.workspace_id, x.lock_key, x.pending FROM servo.live_runs x
        WHERE  x.tenant_id = @tenant_id::uuid AND x.lock_key <> '' ORDER BY x.lock_key LIMIT @walk::int) AS l
JOIN   LATERAL (SELECT y.name FROM servo.workspaces y WHERE y.tenant_id = l.tenant_id AND y.id = l.workspace_id OFFSET 0) AS w ON true
WHERE  strpos(lower(l.lock_key), lower(@part::text)) > 0 AND (@workspace::text = '' OR w.name = @workspace::text)
ORDER  BY NOT starts_with(l.lock_key, @part::text), l.lock_key
LIMIT  @most::int;
