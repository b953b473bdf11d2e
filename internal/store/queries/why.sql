-- The rows that the loops would read now, without locks: no transaction waits for these reads or skips
-- rows because of them.

-- name: UnfoldedSettlements :many
-- The settlements that the next round of admission folds (FoldSettlements).
SELECT s.tenant_id, s.pool, sum(s.left_by)::int AS left_by, sum(s.charged - s.seconds)::float8 AS owed, bool_or(s.arrived)::bool AS arrived,
       bool_or(s.left_by > 0 OR s.pool = '')::bool AS freed
FROM   (SELECT * FROM servo.settlements x ORDER BY x.id LIMIT @most::int) AS s
GROUP  BY s.tenant_id, s.pool;

-- name: SharesOfTenants :many
-- The shares of tenants in each pool, whether they wait or not, and the given shares even if they have
-- no row yet.
SELECT n.tenant_id::uuid AS tenant_id, n.pool::text AS pool, (s.pool IS NOT NULL)::bool AS known, coalesce(s.even_at, 0)::float8 AS even_at, coalesce(s.admitted, 0)::bigint AS admitted,
       coalesce(s.waits, false)::bool AS waits, coalesce(s.over_quota, false)::bool AS over_quota, t.max_concurrent_tasks, t.fairness_weight,
       h.in_flight::int AS tenant_in_flight, EXISTS (SELECT FROM servo.asset_pauses x WHERE x.tenant_id = n.tenant_id)::bool AS pauses
FROM   (SELECT m.tenant_id, x.pool
        FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id) AS m
        JOIN   LATERAL (SELECT y.pool FROM servo.shares y WHERE y.tenant_id = m.tenant_id OFFSET 0) AS x ON true
        UNION
        SELECT unnest(@key_tenants::uuid[]), unnest(@key_pools::text[])) AS n
LEFT   JOIN LATERAL (SELECT x.* FROM servo.shares x WHERE x.tenant_id = n.tenant_id AND x.pool = n.pool OFFSET 0) AS s ON true
JOIN   LATERAL (SELECT x.max_concurrent_tasks, x.fairness_weight FROM servo.tenants x WHERE x.id = n.tenant_id OFFSET 0) AS t ON true
JOIN   LATERAL (SELECT coalesce(sum(x.in_flight), 0) AS in_flight FROM servo.shares x WHERE x.tenant_id = n.tenant_id) AS h ON true;

-- name: LookReady :many
-- The tasks that a round reads (TakeReady), and which of them it would hold (PausedTasks).
SELECT q.tenant_id, q.run_id, q.task_id, q.since, q.version, q.timeout_s, q.priority, q.dependents, q.pool, q.needs,
       q.attempt, q.failures, q.fruitless, q.deaths, q.fan_outs, q.cursor, t.asset, coalesce(d.seconds, -1)::float8 AS seconds,
       (n.pauses AND EXISTS (SELECT FROM servo.runs r
                             JOIN servo.asset_pauses p ON p.tenant_id = r.tenant_id AND p.workspace_id = r.workspace_id
                             WHERE r.tenant_id = q.tenant_id AND r.id = q.run_id AND p.asset = t.asset))::bool AS paused
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@pools::text[]) AS pool, unnest(@mosts::int[]) AS most,
               unnest(@pauses::bool[]) AS pauses) AS n
JOIN   LATERAL (SELECT r.* FROM servo.ready_q r
                WHERE r.tenant_id = n.tenant_id AND r.pool = n.pool AND NOT r.held
                ORDER BY r.rank LIMIT n.most) AS q ON true
JOIN   LATERAL (SELECT t.asset FROM servo.tasks t
                WHERE t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.id = q.task_id OFFSET 0) AS t ON true
LEFT   JOIN LATERAL (SELECT x.seconds FROM servo.durations x WHERE x.tenant_id = q.tenant_id AND x.asset = t.asset OFFSET 0) AS d ON true;

-- name: LookOldest :many
-- The oldest ready tasks (TakeOldest), and which of them a round would hold.
SELECT q.tenant_id, q.run_id, q.task_id, q.since, q.version, q.timeout_s, q.priority, q.dependents, q.pool, q.needs,
       q.attempt, q.failures, q.fruitless, q.deaths, q.fan_outs, q.cursor, t.asset, coalesce(d.seconds, -1)::float8 AS seconds,
       (n.pauses AND EXISTS (SELECT FROM servo.runs r
                             JOIN servo.asset_pauses p ON p.tenant_id = r.tenant_id AND p.workspace_id = r.workspace_id
                             WHERE r.tenant_id = q.tenant_id AND r.id = q.run_id AND p.asset = t.asset))::bool AS paused
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@pools::text[]) AS pool, unnest(@mosts::int[]) AS most,
               unnest(@pauses::bool[]) AS pauses) AS n
JOIN   LATERAL (SELECT o.*
                FROM   generate_series(0, 10) AS l
                JOIN   LATERAL (SELECT r.* FROM servo.ready_q r
                                WHERE r.tenant_id = n.tenant_id AND r.pool = n.pool AND NOT r.held
                                AND   r.rank >= l * 9007199254740992 AND r.rank < (l + 1) * 9007199254740992
                                ORDER BY r.rank LIMIT n.most) AS o ON true
                ORDER  BY o.since LIMIT n.most) AS q ON true
JOIN   LATERAL (SELECT t.asset FROM servo.tasks t
                WHERE t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.id = q.task_id OFFSET 0) AS t ON true
LEFT   JOIN LATERAL (SELECT x.seconds FROM servo.durations x WHERE x.tenant_id = q.tenant_id AND x.asset = t.asset OFFSET 0) AS d ON true;

-- name: ReadyPlace :one
-- Whether a ready task is held, the number of tasks of its tenant before it in its pool, and the
-- number of tasks of any priority that are ready longer.
SELECT q.held, q.lacks_worker, (SELECT count(*) FROM (SELECT FROM servo.ready_q o
                                      WHERE o.tenant_id = q.tenant_id AND o.pool = q.pool AND NOT o.held AND o.rank < q.rank
                                      LIMIT @most::int) AS x)::int AS ahead,
       (SELECT count(*) FROM (SELECT FROM generate_series(0, 10) AS l
                              JOIN LATERAL (SELECT FROM servo.ready_q o
                                            WHERE o.tenant_id = q.tenant_id AND o.pool = q.pool AND NOT o.held AND o.rank >= l * 9007199254740992
                                            AND   o.rank < l * 9007199254740992 + q.rank % 9007199254740992
                                            LIMIT @most::int) AS r ON true
                              LIMIT @most::int) AS x)::int AS older
FROM   servo.ready_q q
WHERE  q.tenant_id = @tenant_id::uuid AND q.run_id = @run_id::uuid AND q.task_id = @task_id::uuid;

-- name: QueuePlace :one
-- The number of tasks of all tenants before a queued one in its pool.
SELECT (SELECT count(*) FROM (SELECT FROM servo.pool_q o WHERE o.pool = q.pool AND o.rank < q.rank LIMIT @most::int) AS x)::int AS ahead
FROM   servo.pool_q q
WHERE  q.tenant_id = @tenant_id::uuid AND q.run_id = @run_id::uuid AND q.task_id = @task_id::uuid;

-- name: PoolWorkers :one
-- The live workers of a pool, their capacity, and the tasks of any pool that they hold. Leases have no
-- index by worker: up to `leases` are read.
SELECT count(*)::int AS workers, coalesce(sum(w.slots), 0)::int AS slots, coalesce(sum(least(w.slots, coalesce(h.held, 0))), 0)::int AS busy
FROM   servo.workers w
LEFT   JOIN (SELECT q.worker, count(*) AS held FROM (SELECT x.worker FROM servo.leases x LIMIT @leases::int) AS q GROUP BY q.worker) AS h
       ON h.worker = w.name
WHERE  w.pool = @pool::text AND w.seen_at > @since::timestamptz;

-- name: LookRuns :many
-- Runs without a lock (LockRunsForCount).
SELECT r.*
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS n
JOIN   LATERAL (SELECT * FROM servo.runs x WHERE x.tenant_id = n.tenant_id AND x.id = n.id OFFSET 0) AS r ON true;

-- name: StartPlace :one
-- The number of runs of its tenant that start before a waiting run, in the order of NextRuns.
SELECT (SELECT count(*) FROM (SELECT FROM servo.live_runs o
                              WHERE o.tenant_id = l.tenant_id AND o.pending
                              AND (o.priority > l.priority OR o.priority = l.priority AND o.run_id < l.run_id) LIMIT @most::int) AS x)::int AS ahead
FROM   servo.live_runs l
WHERE  l.tenant_id = @tenant_id::uuid AND l.run_id = @run_id::uuid;
