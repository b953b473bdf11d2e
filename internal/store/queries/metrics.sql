-- Counts of live rows for metrics: up to a bound in each table, so that the cost does not grow with
-- the queues.

-- name: TenantDepths :many
-- Live tasks of the tenants that have the most, and of all together.
SELECT d.tenant_id::uuid AS tenant_id, d.pending::int AS pending, d.ready::int AS ready, d.queued::int AS queued, d.dispatched::int AS dispatched,
       d.running::int AS running, d.retry_wait::int AS retry_wait,
       d.all_pending::int AS all_pending, d.all_ready::int AS all_ready, d.all_queued::int AS all_queued, d.all_dispatched::int AS all_dispatched,
       d.all_running::int AS all_running, d.all_retry_wait::int AS all_retry_wait
FROM   (SELECT c.tenant_id, c.pending, c.ready, c.queued, c.dispatched, c.running, c.retry_wait, c.tasks,
               sum(c.pending) OVER () AS all_pending, sum(c.ready) OVER () AS all_ready, sum(c.queued) OVER () AS all_queued,
               sum(c.dispatched) OVER () AS all_dispatched, sum(c.running) OVER () AS all_running, sum(c.retry_wait) OVER () AS all_retry_wait
        FROM   (SELECT s.tenant_id, count(*) AS tasks, count(*) FILTER (WHERE s.state = 1) AS pending, count(*) FILTER (WHERE s.state = 2) AS ready,
                       count(*) FILTER (WHERE s.state = 3) AS queued, count(*) FILTER (WHERE s.state = 4) AS dispatched,
                       count(*) FILTER (WHERE s.state = 5) AS running, count(*) FILTER (WHERE s.state = 6) AS retry_wait
                FROM   ((SELECT w.tenant_id, 1 AS state FROM servo.waiting w LIMIT @most::int)
                        UNION ALL (SELECT q.tenant_id, 2 FROM servo.ready_q q LIMIT @most::int)
                        UNION ALL (SELECT q.tenant_id, 3 FROM servo.pool_q q LIMIT @most::int)
                        UNION ALL (SELECT q.tenant_id, CASE WHEN q.started_at IS NULL THEN 4 ELSE 5 END FROM servo.leases q LIMIT @most::int)
                        UNION ALL (SELECT q.tenant_id, 6 FROM servo.retry_q q LIMIT @most::int)) AS s
                GROUP  BY s.tenant_id) AS c) AS d
ORDER  BY d.tasks DESC, d.tenant_id
LIMIT  @tenants::int;

-- name: QuotaUsages :many
-- The use of tenants' quotas, those closest to a limit first.
SELECT u.tenant_id::uuid AS tenant_id, u.quota::text AS quota, u.used::bigint AS used, u.quota_limit::int AS quota_limit
FROM   (SELECT c.tenant_id, c.quota, c.used,
               CASE c.quota WHEN 'max_concurrent_tasks' THEN t.max_concurrent_tasks
                            WHEN 'max_queued_tasks' THEN t.max_queued_tasks ELSE t.max_concurrent_runs END AS quota_limit
        FROM   (SELECT f.tenant_id, 'max_concurrent_tasks' AS quota, count(*) AS used
                FROM   ((SELECT q.tenant_id FROM servo.pool_q q LIMIT @most::int) UNION ALL (SELECT q.tenant_id FROM servo.leases q LIMIT @most::int)) AS f
                GROUP  BY f.tenant_id
                UNION ALL
                SELECT b.tenant_id, 'max_queued_tasks', count(*) FROM (SELECT q.tenant_id FROM servo.ready_q q LIMIT @most::int) AS b GROUP BY b.tenant_id
                UNION ALL
                SELECT r.tenant_id, 'max_concurrent_runs', count(*)
                FROM   (SELECT l.tenant_id FROM servo.live_runs l WHERE NOT l.pending LIMIT @most::int) AS r GROUP BY r.tenant_id) AS c
        JOIN   LATERAL (SELECT x.max_concurrent_tasks, x.max_queued_tasks, x.max_concurrent_runs FROM servo.tenants x
                        WHERE x.id = c.tenant_id OFFSET 0) AS t ON true) AS u
WHERE  u.quota_limit > 0
ORDER  BY u.used::float8 / u.quota_limit DESC, u.tenant_id, u.quota
LIMIT  @usages::int;

-- name: LiveRunCounts :one
SELECT (SELECT count(*) FROM (SELECT FROM servo.live_runs l WHERE NOT l.pending LIMIT @most::int) AS q)::int AS running,
       (SELECT count(*) FROM (SELECT FROM servo.live_runs l WHERE l.pending LIMIT @most::int) AS q)::int AS pending,
       (SELECT count(*) FROM (SELECT FROM servo.live_runs l WHERE l.lock_key <> '' LIMIT @most::int) AS q)::int AS locks;

-- name: AlertCounts :many
-- Open alerts of all tenants, by kind.
SELECT q.kind, count(*)::int AS open
FROM   (SELECT a.kind FROM servo.alerts a WHERE a.resolved_at IS NULL LIMIT @most::int) AS q
GROUP  BY q.kind;

-- name: MessagesWaiting :one
-- Undelivered messages about alerts.
SELECT count(*)::int AS waiting FROM (SELECT FROM servo.alert_deliveries d WHERE d.due_at IS NOT NULL LIMIT @most::int) AS q;

-- name: NearestLock :many
-- The lock whose run is timed out next, if it is among the first that are.
SELECT l.created_at, l.due_at::timestamptz AS due_at
FROM   (SELECT x.created_at, x.due_at, x.lock_key FROM servo.live_runs x
        WHERE x.due_at IS NOT NULL ORDER BY x.due_at LIMIT @most::int) AS l
WHERE  l.lock_key <> ''
ORDER  BY l.due_at
LIMIT  1;
