-- Reads for operators across tenants. The role decides which rows they see: under the engine's role
-- those of all tenants, under a tenant's role its own. Each statement walks an index and stops: its
-- cost depends on the page and on live rows, not on the history.

-- name: EnterAllTenants :exec
-- The role of the engine with the plans of a tenant: along keys, for the actual arguments, and in
-- the order of an index, so that the scan ends with the page.
SELECT set_config('role', 'servo_engine', true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('plan_cache_mode', 'force_custom_plan', true);

-- name: RunsOfAll :many
-- The newest first, before a position.
SELECT sqlc.embed(r), coalesce(w.name, '')::text AS workspace, coalesce(c.name, '')::text AS config
FROM   servo.runs r
LEFT   JOIN LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = r.tenant_id AND x.id = r.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT y.name FROM servo.configs y WHERE y.tenant_id = r.tenant_id AND y.id = r.config_id OFFSET 0) AS c ON true
WHERE  r.created_at >= @from_at::timestamptz AND r.created_at < @to_at::timestamptz
AND    r.created_at <= @before_at::timestamptz AND (r.created_at < @before_at::timestamptz OR r.id < @before_id::uuid)
AND    (@workspace::text = '' OR w.name = @workspace::text)
AND    (@pipeline::text = '' OR r.pipeline = @pipeline::text)
AND    (cardinality(@states::smallint[]) = 0 OR r.state = ANY(@states::smallint[]))
ORDER  BY r.created_at DESC, r.id DESC
LIMIT  @most::int;

-- name: RunsOfAllBound :many
-- How far back a filter is applied in one page: the time of creation of the run that many runs back.
SELECT r.created_at FROM servo.runs r
WHERE  r.created_at >= @from_at::timestamptz AND r.created_at < @to_at::timestamptz AND r.created_at <= @before_at::timestamptz
ORDER  BY r.created_at DESC
LIMIT  1 OFFSET @walk::int;

-- name: RunsByKey :many
SELECT r.*
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id) AS n
JOIN   LATERAL (SELECT x.* FROM servo.runs x WHERE x.tenant_id = n.tenant_id AND x.id = n.run_id OFFSET 0) AS r ON true;

-- name: LateNow :many
-- Live runs that should have begun and have not, the latest first. A run has begun if one of its
-- tasks was started, was attempted before, or has ended.
SELECT l.tenant_id, l.run_id, w.name AS workspace, coalesce(c.name, '')::text AS config, r.start_by::timestamptz AS start_by
FROM   (SELECT a.tenant_id, a.run_id, a.workspace_id, a.config_id
        FROM   ((SELECT x.tenant_id, x.run_id, x.workspace_id, x.config_id FROM servo.live_runs x
                 WHERE  x.late_at < servo.clock() ORDER BY x.late_at LIMIT @walk::int)
                UNION ALL
                (SELECT x.tenant_id, x.run_id, x.workspace_id, x.config_id FROM servo.live_runs x
                 WHERE  x.breaches <> 0 AND x.late_at IS NULL AND x.breaches & 1 = 1 LIMIT @walk::int)) AS a) AS l
JOIN   LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = l.tenant_id AND x.id = l.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT y.name FROM servo.configs y WHERE y.tenant_id = l.tenant_id AND y.id = l.config_id OFFSET 0) AS c ON true
JOIN   LATERAL (SELECT x.start_by, x.succeeded + x.failed AS tried FROM servo.runs x WHERE x.tenant_id = l.tenant_id AND x.id = l.run_id OFFSET 0) AS r ON true
WHERE  r.start_by IS NOT NULL AND r.tried = 0 AND (r.start_by, l.run_id) > (@after_at::timestamptz, @after_id::uuid)
AND    (@workspace::text = '' OR w.name = @workspace::text)
AND    NOT EXISTS (SELECT FROM servo.leases q WHERE q.run_id = l.run_id AND (q.started_at IS NOT NULL OR q.attempt > 1) OFFSET 0)
AND    NOT EXISTS (SELECT FROM servo.retry_q q WHERE q.run_id = l.run_id OFFSET 0)
AND    NOT EXISTS (SELECT FROM servo.ready_q q WHERE q.run_id = l.run_id AND q.attempt > 0 OFFSET 0)
AND    NOT EXISTS (SELECT FROM servo.pool_q q WHERE q.run_id = l.run_id AND q.attempt > 0 OFFSET 0)
ORDER  BY r.start_by, l.run_id
LIMIT  @most::int;

-- name: RunningNow :many
-- Runs that have started and not ended, the oldest first, with the last reported progress of their tasks.
SELECT l.tenant_id, l.run_id, l.workspace, coalesce(c.name, '')::text AS config, coalesce(p.task_id, '00000000-0000-0000-0000-000000000000')::uuid AS task_id,
       coalesce(p.asset, '')::text AS asset, coalesce(p.phase, '')::text AS phase, coalesce(p.stage, '')::text AS stage, coalesce(p.fraction, 0)::real AS fraction,
       coalesce(p.records_extracted, 0)::bigint AS records_extracted, coalesce(p.records_transformed, 0)::bigint AS records_transformed,
       coalesce(p.records_loaded, 0)::bigint AS records_loaded, coalesce(p.bytes, 0)::bigint AS bytes, coalesce(p.stages, 0)::int AS stages,
       coalesce(p.eta, '0001-01-01 00:00:00+00')::timestamptz AS eta, coalesce(p.stage_since, '0001-01-01 00:00:00+00')::timestamptz AS stage_since,
       coalesce(p.updated_at, '0001-01-01 00:00:00+00')::timestamptz AS updated_at
FROM   (SELECT x.tenant_id, x.run_id, x.config_id, w.name AS workspace
        FROM   (SELECT y.tenant_id, y.run_id, y.workspace_id, y.config_id FROM servo.live_runs y WHERE NOT y.pending LIMIT @walk::int) AS x
        JOIN   LATERAL (SELECT z.name FROM servo.workspaces z WHERE z.tenant_id = x.tenant_id AND z.id = x.workspace_id OFFSET 0) AS w ON true
        WHERE  x.run_id > @after::uuid AND (@workspace::text = '' OR w.name = @workspace::text)
        ORDER  BY x.run_id
        LIMIT  @most::int) AS l
LEFT   JOIN LATERAL (SELECT y.name FROM servo.configs y WHERE y.tenant_id = l.tenant_id AND y.id = l.config_id OFFSET 0) AS c ON true
LEFT   JOIN LATERAL (SELECT q.task_id, q.asset, b.phase, b.stage, b.fraction, b.records_extracted, b.records_transformed, b.records_loaded, b.bytes, b.stages,
                            b.eta, b.stage_since, b.updated_at
                     FROM   (SELECT z.tenant_id, z.run_id, z.task_id, z.attempt, z.asset FROM servo.leases z WHERE z.run_id = l.run_id LIMIT 100) AS q
                     JOIN   LATERAL (SELECT x.phase, x.stage, x.fraction, x.records_extracted, x.records_transformed, x.records_loaded, x.bytes, x.stages,
                                            x.eta, x.stage_since, x.updated_at
                                     FROM   servo.attempt_progress x
                                     WHERE  x.tenant_id = q.tenant_id AND x.run_id = q.run_id AND x.task_id = q.task_id AND x.attempt = q.attempt OFFSET 0) AS b ON true
                     ORDER  BY b.updated_at DESC
                     LIMIT  1) AS p ON true
ORDER  BY l.run_id;

-- name: AllConfigs :many
-- Along the key: by tenant, then by age.
SELECT sqlc.embed(c), w.name AS workspace
FROM   servo.configs c
JOIN   LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = c.tenant_id AND x.id = c.workspace_id OFFSET 0) AS w ON true
WHERE  (c.tenant_id, c.id) > (@after_tenant::uuid, @after_id::uuid) AND (c.deleted_at IS NOT NULL) = @deleted::bool
AND    (@workspace::text = '' OR w.name = @workspace::text)
AND    (@pipeline::text = '' OR c.pipeline = @pipeline::text)
AND    (@prefix::text = '' OR starts_with(c.name, @prefix::text))
AND    c.labels @> (@labels::text)::jsonb
AND    (@state::text = '' OR @state::text = CASE WHEN NOT c.enabled THEN 'DISABLED' WHEN c.paused_at IS NOT NULL THEN 'PAUSED' ELSE 'ACTIVE' END)
AND    (NOT @failing::bool OR c.failures > 0)
ORDER  BY c.tenant_id, c.id
LIMIT  @most::int;

-- name: RecentSlots :many
-- The outcomes of the last slots of each config of a page, and its last runs without a slot. These are
-- among the newest runs of the config, so that a config with many slots costs no more.
SELECT n.config_id::uuid AS config_id, s.at::timestamptz AS at, s.slots::bigint AS slots, s.outcome::smallint AS outcome, coalesce(s.run_id, '00000000-0000-0000-0000-000000000000')::uuid AS run_id, coalesce(r.state, 0)::smallint AS state, s.triggered::bool AS triggered
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@config_ids::uuid[]) AS config_id) AS n
JOIN   LATERAL ((SELECT x.slot_at AS at, 1 AS slots, 1 AS outcome, x.run_id, false AS triggered FROM servo.slots x
                 WHERE  x.tenant_id = n.tenant_id AND x.config_id = n.config_id ORDER BY x.slot_at DESC LIMIT @most::int)
                UNION ALL
                (SELECT y.from_at, y.slots, y.outcome, y.run_id, false FROM servo.slot_ranges y
                 WHERE  y.tenant_id = n.tenant_id AND y.config_id = n.config_id ORDER BY y.from_at DESC LIMIT @most::int)
                UNION ALL
                (SELECT u.created_at, 1, 1, u.id, true
                 FROM   (SELECT v.id, v.created_at, v.slot_at FROM servo.runs v
                         WHERE  v.tenant_id = n.tenant_id AND v.config_id = n.config_id ORDER BY v.id DESC LIMIT @most::int) AS u
                 WHERE  u.slot_at IS NULL)) AS s ON true
LEFT   JOIN LATERAL (SELECT z.state FROM servo.runs z WHERE z.tenant_id = n.tenant_id AND z.id = s.run_id AND s.outcome = 1 OFFSET 0) AS r ON true;

-- name: EventsNewest :many
-- The log in descending order, before a position and down to a bound.
SELECT f.tx::bigint AS tx, f.position, f.ordinal, f.tenant_id, f.run_id, f.subject::text AS subject, f.version, f.recorded_at, f.type, f.actor, f.trace, f.data
FROM   (
        (SELECT (e.txid::text)::bigint AS tx, e.position, e.ordinal, e.tenant_id, e.run_id, e.subject_id::text AS subject, e.version, e.recorded_at, e.type, e.actor, e.trace, e.data
         FROM   servo.run_events e
         WHERE  e.txid >= (@floor::text)::xid8 AND e.txid <= (@tx::text)::xid8 AND (e.txid < (@tx::text)::xid8 OR (e.position, e.ordinal) < (@position::bigint, @ordinal::int))
         AND    e.recorded_at >= @from_at::timestamptz AND e.recorded_at < @to_at::timestamptz AND (@type::text = '' OR starts_with(e.type, @type::text))
         AND    (@tenant_id::uuid = '00000000-0000-0000-0000-000000000000' OR e.tenant_id = @tenant_id::uuid)
         AND    (@subject::text = '' OR e.subject_id::text = @subject::text OR e.run_id::text = @subject::text)
         ORDER  BY e.txid DESC, e.position DESC, e.ordinal DESC LIMIT @most::int)
        UNION ALL
        (SELECT (e.txid::text)::bigint, e.position, 1, e.tenant_id, '00000000-0000-0000-0000-000000000000'::uuid, e.subject_id::text, e.version, e.recorded_at, e.type, e.actor, e.trace, e.data
         FROM   servo.entity_events e
         WHERE  e.txid >= (@floor::text)::xid8 AND e.txid <= (@tx::text)::xid8 AND (e.txid < (@tx::text)::xid8 OR (e.position, 1) < (@position::bigint, @ordinal::int))
         AND    e.recorded_at >= @from_at::timestamptz AND e.recorded_at < @to_at::timestamptz AND (@type::text = '' OR starts_with(e.type, @type::text))
         AND    (@tenant_id::uuid = '00000000-0000-0000-0000-000000000000' OR e.tenant_id = @tenant_id::uuid)
         AND    (@subject::text = '' OR e.subject_id::text = @subject::text)
         ORDER  BY e.txid DESC, e.position DESC LIMIT @most::int)
        UNION ALL
        (SELECT (e.txid::text)::bigint, e.position, 1, '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, e.subject, e.version, e.recorded_at, e.type, e.actor, e.trace, e.data
         FROM   servo.platform_events e
         WHERE  e.txid >= (@floor::text)::xid8 AND e.txid <= (@tx::text)::xid8 AND (e.txid < (@tx::text)::xid8 OR (e.position, 1) < (@position::bigint, @ordinal::int))
         AND    e.recorded_at >= @from_at::timestamptz AND e.recorded_at < @to_at::timestamptz AND (@type::text = '' OR starts_with(e.type, @type::text))
         AND    @tenant_id::uuid = '00000000-0000-0000-0000-000000000000' AND (@subject::text = '' OR e.subject = @subject::text)
         ORDER  BY e.txid DESC, e.position DESC LIMIT @most::int)) AS f
ORDER  BY f.tx DESC, f.position DESC, f.ordinal DESC
LIMIT  @most::int;

-- name: EventsFloor :one
-- How far back a filter is applied in one page: the transaction of the event that many events back.
SELECT greatest(
    coalesce((SELECT (e.txid::text)::bigint FROM servo.run_events e WHERE e.txid <= (@tx::text)::xid8 ORDER BY e.txid DESC LIMIT 1 OFFSET @walk::int), 0),
    coalesce((SELECT (e.txid::text)::bigint FROM servo.entity_events e WHERE e.txid <= (@tx::text)::xid8 ORDER BY e.txid DESC LIMIT 1 OFFSET @walk::int), 0),
    coalesce((SELECT (e.txid::text)::bigint FROM servo.platform_events e WHERE e.txid <= (@tx::text)::xid8 ORDER BY e.txid DESC LIMIT 1 OFFSET @walk::int), 0))::bigint AS tx;

-- name: ListAllOpenAlerts :many
-- The open alerts of all tenants, the newest first.
SELECT sqlc.embed(a), coalesce(t.name, '')::text AS tenant
FROM   servo.alerts a
LEFT   JOIN LATERAL (SELECT x.name FROM servo.tenants x WHERE x.id = a.tenant_id OFFSET 0) AS t ON true
WHERE  a.resolved_at IS NULL AND a.id < @before::uuid
AND    (@kind::text = '' OR a.kind = @kind::text)
ORDER  BY a.id DESC LIMIT @most::int;
