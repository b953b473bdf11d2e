-- Reads under the role of a tenant. Every statement names the tenant, which is the first column of
-- each key, and has a LIMIT or a key.
--
-- A tenant's transaction plans each statement for its arguments, so that unused filters cost nothing
-- and partitions outside the bounds are not read.

-- name: ListRuns :many
-- Backwards along the key. The partitions are in the order of the ids, so the scan begins with the
-- newest and ends when the page is full.
SELECT sqlc.embed(r), coalesce(w.name, '')::text AS workspace, coalesce(c.name, '')::text AS config
FROM   servo.runs r
LEFT   JOIN LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = r.tenant_id AND x.id = r.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT y.name FROM servo.configs y WHERE y.tenant_id = r.tenant_id AND y.id = r.config_id OFFSET 0) AS c ON true
WHERE  r.tenant_id = @tenant_id::uuid AND r.id >= @lower::uuid AND r.id < @upper::uuid
AND    (@workspace::text = '' OR r.workspace_id = (SELECT y.id FROM servo.workspaces y WHERE y.tenant_id = @tenant_id::uuid AND y.name = @workspace::text))
AND    (@pipeline::text = '' OR r.pipeline = @pipeline::text)
AND    (cardinality(@states::smallint[]) = 0 OR r.state = ANY(@states::smallint[]))
ORDER  BY r.id DESC
LIMIT  @most::int;

-- name: ListConfigRuns :many
-- The runs of one config, the newest first.
SELECT sqlc.embed(r), coalesce(w.name, '')::text AS workspace, coalesce(c.name, '')::text AS config
FROM   servo.runs r
LEFT   JOIN LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = r.tenant_id AND x.id = r.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT y.name FROM servo.configs y WHERE y.tenant_id = r.tenant_id AND y.id = r.config_id OFFSET 0) AS c ON true
WHERE  r.tenant_id = @tenant_id::uuid AND r.config_id = @config_id::uuid AND r.id >= @lower::uuid AND r.id < @upper::uuid
AND    (@pipeline::text = '' OR r.pipeline = @pipeline::text)
AND    (cardinality(@states::smallint[]) = 0 OR r.state = ANY(@states::smallint[]))
ORDER  BY r.id DESC
LIMIT  @most::int;

-- name: RunsBound :many
-- How far back a filter is applied in one page: the run that many runs back.
SELECT r.id FROM servo.runs r
WHERE  r.tenant_id = @tenant_id::uuid AND r.id >= @lower::uuid AND r.id < @upper::uuid
ORDER  BY r.id DESC
LIMIT  1 OFFSET @walk::int;

-- name: ConfigRunsBound :many
-- The same among the runs of one config.
SELECT r.id FROM servo.runs r
WHERE  r.tenant_id = @tenant_id::uuid AND r.config_id = @config_id::uuid AND r.id >= @lower::uuid AND r.id < @upper::uuid
ORDER  BY r.id DESC
LIMIT  1 OFFSET @walk::int;

-- name: RunsInStates :many
-- Runs that have not ended, or ended without success, the newest first. Scans the index of each such
-- state and the live runs, not the history.
SELECT n.id::uuid AS id, coalesce(w.name, '')::text AS workspace, coalesce(c.name, '')::text AS config
FROM   ((SELECT u.id, false AS live FROM unnest(@ended::smallint[]) AS s(state)
         CROSS  JOIN LATERAL (SELECT x.id FROM servo.runs x
                              WHERE  x.tenant_id = @tenant_id::uuid AND x.unsuccessful = s.state AND x.id >= @lower::uuid AND x.id < @upper::uuid
                              ORDER  BY x.id DESC LIMIT @walk_ended::int) AS u)
        UNION  ALL
        (SELECT l.run_id, true FROM servo.live_runs l
         WHERE  @live::bool AND l.tenant_id = @tenant_id::uuid AND l.run_id >= @lower::uuid AND l.run_id < @upper::uuid
         ORDER  BY l.run_id DESC LIMIT @walk_live::int)) AS n
JOIN   LATERAL (SELECT x.state, x.pipeline, x.workspace_id, x.config_id FROM servo.runs x
                WHERE x.tenant_id = @tenant_id::uuid AND x.id = n.id OFFSET 0) AS r ON true
LEFT   JOIN LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = @tenant_id::uuid AND x.id = r.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT y.name FROM servo.configs y WHERE y.tenant_id = @tenant_id::uuid AND y.id = r.config_id OFFSET 0) AS c ON true
WHERE  r.state = ANY(@states::smallint[]) AND n.live = (r.state < 10)
AND    (@workspace::text = '' OR w.name = @workspace::text)
AND    (@pipeline::text = '' OR r.pipeline = @pipeline::text)
ORDER  BY n.id DESC
LIMIT  @most::int;

-- name: RunsInStatesBound :many
-- How far back one page goes: the newest of the ids where a scan ends.
SELECT b.id::uuid AS id
FROM   ((SELECT u.id FROM unnest(@ended::smallint[]) AS s(state)
         CROSS  JOIN LATERAL (SELECT x.id FROM servo.runs x
                              WHERE  x.tenant_id = @tenant_id::uuid AND x.unsuccessful = s.state AND x.id >= @lower::uuid AND x.id < @upper::uuid
                              ORDER  BY x.id DESC LIMIT 1 OFFSET @walk::int) AS u)
        UNION  ALL
        (SELECT l.run_id FROM servo.live_runs l
         WHERE  @live::bool AND l.tenant_id = @tenant_id::uuid AND l.run_id >= @lower::uuid AND l.run_id < @upper::uuid
         ORDER  BY l.run_id DESC LIMIT 1 OFFSET @walk::int)) AS b
ORDER  BY b.id DESC
LIMIT  1;

-- name: ListRetries :many
-- The runs that retry one, the newest first.
SELECT sqlc.embed(r), coalesce(w.name, '')::text AS workspace, coalesce(c.name, '')::text AS config
FROM   servo.runs r
LEFT   JOIN LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = r.tenant_id AND x.id = r.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT y.name FROM servo.configs y WHERE y.tenant_id = r.tenant_id AND y.id = r.config_id OFFSET 0) AS c ON true
WHERE  r.tenant_id = @tenant_id::uuid AND r.parent_run_id = @parent::uuid AND r.id >= @lower::uuid AND r.id < @upper::uuid
AND    (@config::uuid = '00000000-0000-0000-0000-000000000000' OR r.config_id = @config::uuid)
AND    (@workspace::text = '' OR w.name = @workspace::text)
AND    (@pipeline::text = '' OR r.pipeline = @pipeline::text)
AND    (cardinality(@states::smallint[]) = 0 OR r.state = ANY(@states::smallint[]))
ORDER  BY r.id DESC
LIMIT  @most::int;

-- name: GetRun :one
SELECT sqlc.embed(r), coalesce(w.name, '')::text AS workspace, coalesce(c.name, '')::text AS config
FROM   servo.runs r
LEFT   JOIN LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = r.tenant_id AND x.id = r.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT y.name FROM servo.configs y WHERE y.tenant_id = r.tenant_id AND y.id = r.config_id OFFSET 0) AS c ON true
WHERE  r.tenant_id = @tenant_id::uuid AND r.id = @id::uuid;

-- name: ListTasks :many
-- The page first, then the queue tables of its tasks: five lookups for each task of the page, for any
-- size of the run. The page is selected in one of three ways: one task by its key; the tasks of the
-- run in the order of the plan; or, with a filter by state, from the rows in these states.
WITH page AS (
    SELECT c.id
    FROM   (SELECT t.id, t.ix, t.asset FROM servo.tasks t
            WHERE  t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid AND t.id = @task_id::uuid
            UNION ALL
            SELECT t.id, t.ix, t.asset FROM servo.tasks t
            WHERE  t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid
            AND    @task_id::uuid = '00000000-0000-0000-0000-000000000000' AND cardinality(@states::smallint[]) = 0
            UNION ALL
            SELECT t.id, t.ix, t.asset
            FROM   servo.task_states s
            JOIN   LATERAL (SELECT x.id, x.ix, x.asset FROM servo.tasks x
                            WHERE x.tenant_id = s.tenant_id AND x.run_id = s.run_id AND x.id = s.task_id OFFSET 0) AS t ON true
            WHERE  s.tenant_id = @tenant_id::uuid AND s.run_id = @run_id::uuid AND s.state = ANY(@states::smallint[])
            AND    cardinality(@states::smallint[]) > 0) AS c
    WHERE  c.ix > @after::int AND (@asset::text = '' OR c.asset = @asset::text)
    ORDER  BY c.ix
    LIMIT  @most::int
)
SELECT t.id, t.ix, t.asset, t.partition, t.pool, t.priority, t.created_at, t.finished_at, t.outcome, t.result, t.late_result,
       coalesce(s.state, 0)::smallint AS state, coalesce(s.since, t.created_at)::timestamptz AS since,
       coalesce(s.attempt, 0)::int AS attempt, coalesce(s.failures, 0)::int AS failures, coalesce(s.fan_outs, 0)::int AS fan_outs,
       coalesce(s.timeout_s, t.timeout_s)::int AS timeout_s, coalesce(s.unmet, 0)::int AS unmet, coalesce(s.cursor, '')::text AS cursor,
       coalesce(s.worker, '')::text AS worker, coalesce(s.cancel_requested, false)::bool AS cancel_requested,
       coalesce(s.started_at, '0001-01-01 00:00:00+00')::timestamptz AS started_at,
       coalesce(s.deadline, '0001-01-01 00:00:00+00')::timestamptz AS deadline,
       coalesce(greatest(s.expires_at, h.expires_at), '0001-01-01 00:00:00+00')::timestamptz AS expires_at,
       coalesce(s.due_at, '0001-01-01 00:00:00+00')::timestamptz AS due_at,
       coalesce(s.failure, 'null')::jsonb AS failure,
       coalesce(greatest(h.seen_at, p.updated_at), '0001-01-01 00:00:00+00')::timestamptz AS seen_at,
       (p.attempt IS NOT NULL)::bool AS reported, coalesce(p.fraction, 0)::real AS fraction,
       coalesce(p.phase, '')::text AS phase, coalesce(p.stage, '')::text AS stage, coalesce(p.stages, 0)::int AS stages,
       coalesce(p.records_extracted, 0)::bigint AS records_extracted, coalesce(p.records_transformed, 0)::bigint AS records_transformed,
       coalesce(p.records_loaded, 0)::bigint AS records_loaded, coalesce(p.bytes, 0)::bigint AS bytes,
       coalesce(p.eta, '0001-01-01 00:00:00+00')::timestamptz AS eta,
       coalesce(p.stage_since, '0001-01-01 00:00:00+00')::timestamptz AS stage_since,
       coalesce(p.updated_at, '0001-01-01 00:00:00+00')::timestamptz AS updated_at,
       coalesce(e.seconds, 0)::float8 AS usual_seconds
FROM   page
JOIN   LATERAL (SELECT x.tenant_id, x.run_id, x.id, x.ix, x.asset, x.partition, x.pool, x.priority, x.timeout_s, x.created_at, x.finished_at,
                       x.state, x.attempt, x.failures, x.fan_outs, x.cursor, x.outcome, x.result, x.failure, x.late_result
                FROM   servo.tasks x
                WHERE  x.tenant_id = @tenant_id::uuid AND x.run_id = @run_id::uuid AND x.id = page.id OFFSET 0) AS t ON true
LEFT   JOIN LATERAL (
    SELECT 1 AS state, q.since, 0 AS attempt, 0 AS failures, 0 AS fan_outs, q.timeout_s, q.unmet, NULL::text AS cursor,
           NULL::text AS worker, NULL::bool AS cancel_requested, NULL::timestamptz AS started_at, NULL::timestamptz AS deadline,
           NULL::timestamptz AS expires_at, NULL::timestamptz AS due_at, NULL::jsonb AS failure, NULL::bigint AS token
    FROM   servo.waiting q WHERE q.tenant_id = t.tenant_id AND q.run_id = t.run_id AND q.task_id = t.id
    UNION ALL
    SELECT 2, q.since, q.attempt, q.failures, q.fan_outs, q.timeout_s, 0, q.cursor, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM   servo.ready_q q WHERE q.tenant_id = t.tenant_id AND q.run_id = t.run_id AND q.task_id = t.id
    UNION ALL
    SELECT 3, q.since, q.attempt, q.failures, q.fan_outs, q.timeout_s, 0, q.cursor, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM   servo.pool_q q WHERE q.tenant_id = t.tenant_id AND q.run_id = t.run_id AND q.task_id = t.id
    UNION ALL
    SELECT CASE WHEN q.started_at IS NULL THEN 4 ELSE 5 END, q.since, q.attempt, q.failures, q.fan_outs, q.timeout_s, 0, q.cursor,
           q.worker, q.cancel_requested, q.started_at, q.deadline, q.expires_at, NULL, NULL, q.token
    FROM   servo.leases q WHERE q.tenant_id = t.tenant_id AND q.run_id = t.run_id AND q.task_id = t.id
    UNION ALL
    SELECT 6, q.since, q.attempt, q.failures, q.fan_outs, q.timeout_s, 0, q.cursor, NULL, NULL, NULL, NULL, NULL, q.due_at, q.failure, NULL
    FROM   servo.retry_q q WHERE q.tenant_id = t.tenant_id AND q.run_id = t.run_id AND q.task_id = t.id
    UNION ALL
    SELECT t.state, t.finished_at, t.attempt, t.failures, t.fan_outs, t.timeout_s, 0, t.cursor, NULL, NULL, NULL, NULL, NULL, NULL, t.failure, NULL
    WHERE  t.state IS NOT NULL
    OFFSET 0) AS s ON true
LEFT   JOIN LATERAL (SELECT b.seen_at, b.expires_at FROM servo.heartbeats b
                     WHERE b.tenant_id = t.tenant_id AND b.run_id = t.run_id AND b.task_id = t.id AND b.token = s.token OFFSET 0) AS h ON true
LEFT   JOIN LATERAL (SELECT b.attempt, b.updated_at, b.stage_since, b.eta, b.records_extracted, b.records_transformed, b.records_loaded,
                            b.bytes, b.fraction, b.stages, b.phase, b.stage
                     FROM   servo.attempt_progress b
                     WHERE  b.tenant_id = t.tenant_id AND b.run_id = t.run_id AND b.task_id = t.id AND b.attempt = s.attempt
                     AND    s.token IS NOT NULL OFFSET 0) AS p ON true
LEFT   JOIN LATERAL (SELECT d.seconds FROM servo.durations d
                     WHERE d.tenant_id = t.tenant_id AND d.asset = t.asset AND s.started_at IS NOT NULL OFFSET 0) AS e ON true
ORDER  BY t.ix;

-- name: TaskInputs :many
-- The tasks whose results a task gets as inputs: of its own run, and of earlier runs that executed
-- them. Tasks that were deleted with their run are omitted.
SELECT x.run_id::uuid AS run_id, x.task_id::uuid AS task_id, u.asset, u.partition
FROM   (SELECT t.run_id, unnest(t.upstream) AS task_id FROM servo.tasks t
        WHERE  t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid AND t.id = @task_id::uuid
        UNION ALL
        SELECT t.inherited[i.n], t.inherited[i.n + 1]
        FROM   servo.tasks t
        CROSS  JOIN LATERAL generate_series(1, cardinality(t.inherited), 2) AS i(n)
        WHERE  t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid AND t.id = @task_id::uuid) AS x
JOIN   LATERAL (SELECT y.asset, y.partition FROM servo.tasks y
                WHERE y.tenant_id = @tenant_id::uuid AND y.run_id = x.run_id AND y.id = x.task_id OFFSET 0) AS u ON true
ORDER  BY u.asset, u.partition;

-- name: UpstreamTasks :many
-- The upstreams of a task. The key of edges begins with the upstream, so this reads all edges of the
-- run; the states are read for the page only.
WITH page AS (
    SELECT t.tenant_id, t.run_id, t.id, t.ix, t.asset, t.partition, t.outcome, t.result
    FROM   servo.edges e
    JOIN   LATERAL (SELECT x.tenant_id, x.run_id, x.id, x.ix, x.asset, x.partition, x.outcome, x.result FROM servo.tasks x
                    WHERE x.tenant_id = e.tenant_id AND x.run_id = e.run_id AND x.id = e.upstream_id OFFSET 0) AS t ON true
    WHERE  e.tenant_id = @tenant_id::uuid AND e.run_id = @run_id::uuid AND e.task_id = @task_id::uuid AND t.ix > @after::int
    ORDER  BY t.ix
    LIMIT  @most::int
)
SELECT page.id, page.ix, page.asset, page.partition, coalesce(s.state, 0)::smallint AS state, page.outcome, page.result
FROM   page
LEFT   JOIN LATERAL (SELECT q.state FROM servo.task_states q
                     WHERE q.tenant_id = page.tenant_id AND q.run_id = page.run_id AND q.task_id = page.id OFFSET 0) AS s ON true
ORDER  BY page.ix;

-- name: RunEvents :many
-- In the order of the feed: transaction, position, ordinal. An event whose transaction is not
-- older than every running one is marked as unsettled: a transaction with a smaller id may still
-- commit, and its events must not be skipped. They sort last, and the reader stops before them.
SELECT (e.txid::text)::bigint AS tx, e.position, e.ordinal, (e.txid < pg_snapshot_xmin(pg_current_snapshot()))::bool AS settled,
       e.subject_id, e.recorded_at, e.version, e.schema, e.type, e.actor, e.trace, e.data
FROM   servo.run_events e
WHERE  e.tenant_id = @tenant_id::uuid AND e.run_id = @run_id::uuid
AND    (e.txid, e.position, e.ordinal) > ((@tx::text)::xid8, @position::bigint, @ordinal::int)
ORDER  BY e.txid, e.position, e.ordinal
LIMIT  @most::int;

-- name: RunPlanEvents :many
-- The events of a run's own stream that created its tasks.
SELECT e.type, e.schema, e.data
FROM   servo.run_events e
WHERE  e.tenant_id = @tenant_id::uuid AND e.run_id = @run_id::uuid AND e.subject_id = @run_id::uuid
AND    e.type IN ('run.created', 'run.tasks_added')
ORDER  BY e.version;

-- name: UnsuccessfulTasks :many
SELECT t.id FROM servo.tasks t WHERE t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid AND t.state > 10 ORDER BY t.id;

-- name: ListDeployments :many
SELECT d.id, d.workspace_id, w.name AS workspace, d.digest, d.created_at,
       coalesce(w.active_deployment_id = d.id, false)::bool AS active
FROM   servo.deployments d
JOIN   LATERAL (SELECT x.name, x.active_deployment_id FROM servo.workspaces x
                WHERE x.tenant_id = d.tenant_id AND x.id = d.workspace_id OFFSET 0) AS w ON true
WHERE  d.tenant_id = @tenant_id::uuid AND d.id < @upper::uuid AND (@workspace::text = '' OR w.name = @workspace::text)
ORDER  BY d.id DESC
LIMIT  @most::int;

-- name: GetDeployment :one
SELECT d.id, d.workspace_id, w.name AS workspace, d.digest, d.created_at,
       coalesce(w.active_deployment_id = d.id, false)::bool AS active
FROM   servo.deployments d
JOIN   servo.workspaces w ON w.tenant_id = d.tenant_id AND w.id = d.workspace_id
WHERE  d.tenant_id = @tenant_id::uuid AND d.id = @id::uuid;

-- name: GetWorkspace :one
SELECT w.id, w.name, w.active_deployment_id, w.version, w.created_at, w.channel
FROM   servo.workspaces w
WHERE  w.tenant_id = @tenant_id::uuid AND w.name = @name::text;

-- name: ListWorkspaces :many
SELECT w.id, w.name, w.active_deployment_id, w.version, w.created_at, w.channel
FROM   servo.workspaces w
WHERE  w.tenant_id = @tenant_id::uuid
ORDER  BY w.name
LIMIT  @most::int;

-- name: GetTenant :one
SELECT t.id, t.name, t.created_at, t.labels FROM servo.tenants t WHERE t.id = @tenant_id::uuid;
