-- The reasons why a task or run has not run yet, under the role of its tenant.

-- name: UnmetUpstream :many
-- Upstream tasks that have not succeeded, in the order of the plan. The rows of tasks show which have,
-- so the states are read for the page only.
WITH page AS (
    SELECT t.tenant_id, t.run_id, t.id, t.ix, t.asset, t.partition, t.outcome
    FROM   servo.edges e
    JOIN   LATERAL (SELECT x.tenant_id, x.run_id, x.id, x.ix, x.asset, x.partition, x.outcome, x.state FROM servo.tasks x
                    WHERE x.tenant_id = e.tenant_id AND x.run_id = e.run_id AND x.id = e.upstream_id OFFSET 0) AS t ON true
    WHERE  e.tenant_id = @tenant_id::uuid AND e.run_id = @run_id::uuid AND e.task_id = @task_id::uuid AND t.state IS DISTINCT FROM 10
    ORDER  BY t.ix
    LIMIT  @most::int
)
SELECT page.id, page.ix, page.asset, page.partition, coalesce(s.state, 0)::smallint AS state, page.outcome
FROM   page
LEFT   JOIN LATERAL (SELECT q.state FROM servo.task_states q
                     WHERE q.tenant_id = page.tenant_id AND q.run_id = page.run_id AND q.task_id = page.id OFFSET 0) AS s ON true
ORDER  BY page.ix;

-- name: PauseOfAsset :many
-- One row, or none.
SELECT p.asset, p.paused_at, p.paused_by, p.reason
FROM   servo.asset_pauses p
WHERE  p.tenant_id = @tenant_id::uuid AND p.workspace_id = @workspace_id::uuid AND p.asset = @asset::text;

-- name: WhereTasksAre :many
-- The number of tasks of a run in each state, with the task that has been in it longest.
SELECT w.state::smallint AS state, w.tasks::int AS tasks, w.task_id::uuid AS task_id
FROM   (SELECT 1 AS state, count(*) AS tasks, (array_agg(q.task_id ORDER BY q.since, q.task_id))[1] AS task_id
        FROM servo.waiting q WHERE q.tenant_id = @tenant_id::uuid AND q.run_id = @run_id::uuid
        UNION ALL
        SELECT 2, count(*), (array_agg(q.task_id ORDER BY q.since, q.task_id))[1]
        FROM servo.ready_q q WHERE q.tenant_id = @tenant_id::uuid AND q.run_id = @run_id::uuid
        UNION ALL
        SELECT 3, count(*), (array_agg(q.task_id ORDER BY q.since, q.task_id))[1]
        FROM servo.pool_q q WHERE q.tenant_id = @tenant_id::uuid AND q.run_id = @run_id::uuid
        UNION ALL
        SELECT CASE WHEN q.started_at IS NULL THEN 4 ELSE 5 END, count(*), (array_agg(q.task_id ORDER BY q.since, q.task_id))[1]
        FROM servo.leases q WHERE q.tenant_id = @tenant_id::uuid AND q.run_id = @run_id::uuid GROUP BY 1
        UNION ALL
        SELECT 6, count(*), (array_agg(q.task_id ORDER BY q.since, q.task_id))[1]
        FROM servo.retry_q q WHERE q.tenant_id = @tenant_id::uuid AND q.run_id = @run_id::uuid) AS w
WHERE  w.tasks > 0
ORDER  BY w.state;
