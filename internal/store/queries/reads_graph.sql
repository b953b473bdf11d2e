-- The graph of one run, under the role of its tenant, in one snapshot. All statements use the keys of
-- the run: their cost depends on the run only.

-- name: GraphLive :many
-- The states of the live tasks of a run.
SELECT q.task_id, q.state::smallint AS state, q.since::timestamptz AS since, q.attempt::int AS attempt, q.failures::int AS failures,
       coalesce(q.started_at, '0001-01-01 00:00:00+00')::timestamptz AS started_at,
       coalesce(q.failure->>'code', '')::text AS error, coalesce(p.fraction, 0)::real AS fraction
FROM   (SELECT w.task_id, 1 AS state, w.since, 0 AS attempt, 0 AS failures, NULL::timestamptz AS started_at, NULL::jsonb AS failure, NULL::bigint AS token
        FROM   servo.waiting w WHERE w.tenant_id = @tenant_id::uuid AND w.run_id = @run_id::uuid
        UNION ALL
        SELECT r.task_id, 2, r.since, r.attempt, r.failures, NULL, NULL, NULL FROM servo.ready_q r WHERE r.tenant_id = @tenant_id::uuid AND r.run_id = @run_id::uuid
        UNION ALL
        SELECT x.task_id, 3, x.since, x.attempt, x.failures, NULL, NULL, NULL FROM servo.pool_q x WHERE x.tenant_id = @tenant_id::uuid AND x.run_id = @run_id::uuid
        UNION ALL
        SELECT l.task_id, CASE WHEN l.started_at IS NULL THEN 4 ELSE 5 END, l.since, l.attempt, l.failures, l.started_at, NULL, l.token
        FROM   servo.leases l WHERE l.tenant_id = @tenant_id::uuid AND l.run_id = @run_id::uuid
        UNION ALL
        SELECT y.task_id, 6, y.since, y.attempt, y.failures, NULL, y.failure, NULL FROM servo.retry_q y WHERE y.tenant_id = @tenant_id::uuid AND y.run_id = @run_id::uuid) AS q
LEFT   JOIN LATERAL (SELECT b.fraction FROM servo.attempt_progress b
                     WHERE b.tenant_id = @tenant_id::uuid AND b.run_id = @run_id::uuid AND b.task_id = q.task_id AND b.attempt = q.attempt
                     AND   q.token IS NOT NULL OFFSET 0) AS p ON true;

-- name: GraphTasks :many
SELECT t.id, t.ix, t.asset, t.partition, t.pool, t.created_at, coalesce(t.state, 0)::smallint AS state, coalesce(t.outcome, '')::text AS outcome,
       coalesce(t.attempt, 0)::int AS attempt, coalesce(t.failures, 0)::int AS failures, t.finished_at, coalesce(t.failure->>'code', '')::text AS error
FROM   servo.tasks t
WHERE  t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid
ORDER  BY t.ix
LIMIT  @most::int;

-- name: GraphTimes :many
-- When tasks were last queued and last started. Of a run with very many events the rest is not read.
SELECT e.subject_id AS task_id,
       coalesce(max(e.recorded_at) FILTER (WHERE e.type = 'task.queued'), '0001-01-01 00:00:00+00')::timestamptz AS queued_at,
       coalesce(max(e.recorded_at) FILTER (WHERE e.type <> 'task.queued'), '0001-01-01 00:00:00+00')::timestamptz AS started_at
FROM   (SELECT x.subject_id, x.recorded_at, x.type, x.data FROM servo.run_events x
        WHERE  x.tenant_id = @tenant_id::uuid AND x.run_id = @run_id::uuid LIMIT @most::int) AS e
WHERE  e.type IN ('task.queued', 'task.started') OR e.type = 'task.claimed' AND (e.data->>'started')::bool
GROUP  BY e.subject_id;

-- name: GraphEdges :many
SELECT e.upstream_id, e.task_id FROM servo.edges e
WHERE  e.tenant_id = @tenant_id::uuid AND e.run_id = @run_id::uuid
LIMIT  @most::int;

-- name: GraphGroups :many
-- The tasks of a large run by asset and state.
SELECT g.asset, g.state::smallint AS state, count(*)::int AS tasks, min(g.ix)::int AS first
FROM   (SELECT t.asset, t.state, t.ix FROM servo.tasks t
        WHERE  t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid AND t.state IS NOT NULL
        UNION ALL
        SELECT t.asset, q.state, t.ix
        FROM   (SELECT w.task_id, 1 AS state FROM servo.waiting w WHERE w.tenant_id = @tenant_id::uuid AND w.run_id = @run_id::uuid
                UNION ALL
                SELECT r.task_id, 2 FROM servo.ready_q r WHERE r.tenant_id = @tenant_id::uuid AND r.run_id = @run_id::uuid
                UNION ALL
                SELECT x.task_id, 3 FROM servo.pool_q x WHERE x.tenant_id = @tenant_id::uuid AND x.run_id = @run_id::uuid
                UNION ALL
                SELECT l.task_id, CASE WHEN l.started_at IS NULL THEN 4 ELSE 5 END FROM servo.leases l WHERE l.tenant_id = @tenant_id::uuid AND l.run_id = @run_id::uuid
                UNION ALL
                SELECT y.task_id, 6 FROM servo.retry_q y WHERE y.tenant_id = @tenant_id::uuid AND y.run_id = @run_id::uuid) AS q
        JOIN   LATERAL (SELECT z.asset, z.ix FROM servo.tasks z
                        WHERE z.tenant_id = @tenant_id::uuid AND z.run_id = @run_id::uuid AND z.id = q.task_id OFFSET 0) AS t ON true) AS g
GROUP  BY g.asset, g.state
ORDER  BY min(g.ix);

-- name: GraphGroupEdges :many
-- Which assets of a large run wait for which, by the first of its edges.
SELECT DISTINCT u.asset AS upstream, t.asset
FROM   (SELECT x.upstream_id, x.task_id FROM servo.edges x
        WHERE  x.tenant_id = @tenant_id::uuid AND x.run_id = @run_id::uuid LIMIT @most::int) AS e
JOIN   LATERAL (SELECT z.asset FROM servo.tasks z WHERE z.tenant_id = @tenant_id::uuid AND z.run_id = @run_id::uuid AND z.id = e.upstream_id OFFSET 0) AS u ON true
JOIN   LATERAL (SELECT z.asset FROM servo.tasks z WHERE z.tenant_id = @tenant_id::uuid AND z.run_id = @run_id::uuid AND z.id = e.task_id OFFSET 0) AS t ON true;
