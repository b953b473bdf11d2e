-- name: ListShares :many
-- What each tenant has of each pool, for people: whoever waits, has tasks in flight, or was
-- served lately.
WITH RECURSIVE ready AS (
    (SELECT q.tenant_id, q.pool FROM servo.ready_q q WHERE NOT q.held ORDER BY q.tenant_id, q.pool LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.pool
    FROM   ready f
    JOIN   LATERAL (SELECT q.tenant_id, q.pool FROM servo.ready_q q
                    WHERE NOT q.held AND (q.tenant_id, q.pool) > (f.tenant_id, f.pool)
                    ORDER BY q.tenant_id, q.pool LIMIT 1) AS n ON true
), found AS (
    SELECT r.tenant_id, r.pool FROM ready r
    UNION
    SELECT s.tenant_id, s.pool FROM servo.shares s WHERE s.in_flight <> 0 OR s.updated_at > servo.clock() - interval '1 hour'
)
SELECT f.pool::text AS pool, t.name, t.fairness_weight, t.max_concurrent_tasks, w.waiting::int AS waiting,
       coalesce(s.in_flight, 0)::int AS in_flight, h.in_flight::int AS tenant_in_flight, coalesce(s.deficit, 0)::float8 AS deficit,
       coalesce(s.clock, 0)::float8 AS clock, coalesce(c.clock, 0)::float8 AS pool_clock, coalesce(s.served, 0)::float8 AS served,
       coalesce(s.tasks, 0)::bigint AS tasks
FROM   found f
JOIN   LATERAL (SELECT x.name, x.fairness_weight, x.max_concurrent_tasks FROM servo.tenants x WHERE x.id = f.tenant_id OFFSET 0) AS t ON true
LEFT   JOIN LATERAL (SELECT x.* FROM servo.shares x WHERE x.tenant_id = f.tenant_id AND x.pool = f.pool OFFSET 0) AS s ON true
LEFT   JOIN LATERAL (SELECT x.clock FROM servo.pool_clocks x WHERE x.pool = f.pool OFFSET 0) AS c ON true
JOIN   LATERAL (SELECT coalesce(sum(x.in_flight), 0) AS in_flight FROM servo.shares x WHERE x.tenant_id = f.tenant_id) AS h ON true
JOIN   LATERAL (SELECT count(*) AS waiting FROM (SELECT FROM servo.ready_q x
                WHERE x.tenant_id = f.tenant_id AND x.pool = f.pool AND NOT x.held LIMIT @most_waiting::int) AS y) AS w ON true
WHERE  (@pool::text = '' OR f.pool = @pool::text)
ORDER  BY f.pool, w.waiting DESC, coalesce(s.in_flight, 0) DESC, t.name
LIMIT  @most::int;
