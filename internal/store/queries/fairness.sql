-- name: ListShares :many
-- The shares of tenants in pools, for people: tenants that wait, have tasks in flight, or were served
-- recently. Each takes one index lookup, up to a number of each kind. Waiting tasks are counted for
-- the returned shares only. A given tenant is always included.
WITH RECURSIVE ready AS (
    (SELECT q.tenant_id, q.pool FROM servo.ready_q q WHERE NOT q.held ORDER BY q.tenant_id, q.pool LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.pool
    FROM   ready f
    JOIN   LATERAL (SELECT q.tenant_id, q.pool FROM servo.ready_q q
                    WHERE NOT q.held AND (q.tenant_id, q.pool) > (f.tenant_id, f.pool)
                    ORDER BY q.tenant_id, q.pool LIMIT 1) AS n ON true
), mine AS (
    (SELECT q.pool FROM servo.ready_q q WHERE NOT q.held AND q.tenant_id = @tenant_id::uuid ORDER BY q.pool LIMIT 1)
    UNION ALL
    SELECT n.pool
    FROM   mine f
    JOIN   LATERAL (SELECT q.pool FROM servo.ready_q q
                    WHERE NOT q.held AND q.tenant_id = @tenant_id::uuid AND q.pool > f.pool
                    ORDER BY q.pool LIMIT 1) AS n ON true
), walked AS MATERIALIZED (
    SELECT r.tenant_id, r.pool FROM ready r LIMIT @walk::int
), found AS (
    SELECT a.tenant_id, a.pool, bool_or(a.waits) AS waits, max(a.in_flight) AS in_flight
    FROM   (SELECT w.tenant_id, w.pool, true AS waits, 0 AS in_flight FROM walked w
            UNION ALL
            SELECT @tenant_id::uuid, m.pool, true, 0 FROM mine m
            UNION ALL
            (SELECT s.tenant_id, s.pool, false, s.in_flight FROM servo.shares s
             WHERE  s.in_flight <> 0 OR s.updated_at > (SELECT servo.clock() - interval '1 hour')
             ORDER  BY s.in_flight DESC LIMIT @walk::int)
            UNION ALL
            SELECT s.tenant_id, s.pool, false, s.in_flight FROM servo.shares s WHERE s.tenant_id = @tenant_id::uuid) AS a
    WHERE  @pool::text = '' OR a.pool = @pool::text
    GROUP  BY a.tenant_id, a.pool
), weighed AS (
    SELECT f.tenant_id, f.pool, f.waits, f.in_flight, t.name, t.fairness_weight, t.max_concurrent_tasks,
           sum(CASE WHEN f.waits OR f.in_flight > 0 THEN t.fairness_weight ELSE 0 END) OVER (PARTITION BY f.pool) AS pool_weight,
           sum(f.in_flight) OVER (PARTITION BY f.pool) AS pool_in_flight
    FROM   found f
    JOIN   LATERAL (SELECT x.name, x.fairness_weight, x.max_concurrent_tasks FROM servo.tenants x WHERE x.id = f.tenant_id OFFSET 0) AS t ON true
), shown AS (
    SELECT x.*, count(*) OVER () AS total FROM weighed x
    WHERE  @tenant_id::uuid = '00000000-0000-0000-0000-000000000000' OR x.tenant_id = @tenant_id::uuid
    ORDER  BY x.in_flight DESC, x.waits DESC, x.pool, x.name
    LIMIT  @most::int
)
SELECT f.pool::text AS pool, f.name, f.fairness_weight, f.max_concurrent_tasks, w.waiting::int AS waiting, f.waits::bool AS waits,
       f.in_flight::int AS in_flight, h.in_flight::int AS tenant_in_flight, coalesce(s.even_at, c.clock, 0)::float8 AS even_at,
       coalesce(s.waits AND NOT s.over_quota, false)::bool AS keeps, coalesce(c.clock, 0)::float8 AS pool_clock, coalesce(s.served, 0)::float8 AS served,
       coalesce(s.tasks, 0)::bigint AS tasks, f.pool_weight::float8 AS pool_weight, f.pool_in_flight::bigint AS pool_in_flight,
       (f.total > @most::int OR (SELECT count(*) FROM walked) = @walk::int)::bool AS more
FROM   shown f
LEFT   JOIN LATERAL (SELECT x.* FROM servo.shares x WHERE x.tenant_id = f.tenant_id AND x.pool = f.pool OFFSET 0) AS s ON true
LEFT   JOIN LATERAL (SELECT x.clock FROM servo.pool_clocks x WHERE x.pool = f.pool OFFSET 0) AS c ON true
JOIN   LATERAL (SELECT coalesce(sum(x.in_flight), 0) AS in_flight FROM servo.shares x WHERE x.tenant_id = f.tenant_id) AS h ON true
JOIN   LATERAL (SELECT count(*) AS waiting FROM (SELECT FROM servo.ready_q x
                WHERE x.tenant_id = f.tenant_id AND x.pool = f.pool AND NOT x.held LIMIT @most_waiting::int) AS y) AS w ON true
ORDER  BY f.pool, w.waiting DESC, f.in_flight DESC, f.name;
