-- Admission: what is ready, by tenant and pool, and what each tenant has of a pool.

-- name: ReadyShares :many
-- Which tenants have ready tasks in which pools: a jump along the index for each, however
-- many tasks there are.
WITH RECURSIVE found AS (
    (SELECT q.tenant_id, q.pool FROM servo.ready_q q WHERE NOT q.held ORDER BY q.tenant_id, q.pool LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.pool
    FROM   found f
    JOIN   LATERAL (SELECT q.tenant_id, q.pool FROM servo.ready_q q
                    WHERE NOT q.held AND (q.tenant_id, q.pool) > (f.tenant_id, f.pool)
                    ORDER BY q.tenant_id, q.pool LIMIT 1) AS n ON true
)
SELECT f.tenant_id::uuid AS tenant_id, f.pool::text AS pool FROM found f;

-- name: TakeReady :many
-- The tasks that come next of each tenant and pool, without waiting for anybody.
SELECT q.tenant_id, q.run_id, q.task_id, q.since, q.version, q.timeout_s, q.priority, q.dependents, q.pool,
       q.attempt, q.failures, q.fruitless, q.fan_outs, q.cursor, t.asset
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@pools::text[]) AS pool, unnest(@mosts::int[]) AS most) AS n
JOIN   LATERAL (SELECT r.* FROM servo.ready_q r
                WHERE r.tenant_id = n.tenant_id AND r.pool = n.pool AND NOT r.held
                ORDER BY r.rank LIMIT n.most FOR UPDATE SKIP LOCKED) AS q ON true
JOIN   LATERAL (SELECT t.asset FROM servo.tasks t
                WHERE t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.id = q.task_id OFFSET 0) AS t ON true;
