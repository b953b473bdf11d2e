-- Reads of push workers through their presigned URLs.

-- name: UpstreamOf :one
-- One upstream of a task: of its own plan, or of an earlier run that executed it.
SELECT u.id, u.ix, u.asset, u.partition, coalesce(u.state, 0)::smallint AS state, u.outcome, u.result
FROM   servo.tasks t
JOIN   LATERAL (SELECT x.* FROM servo.tasks x
                WHERE x.tenant_id = t.tenant_id AND x.run_id = @upstream_run_id::uuid AND x.id = @upstream_id::uuid OFFSET 0) AS u
       ON u.id = ANY(t.upstream) OR u.id = ANY(t.inherited)
WHERE  t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid AND t.id = @task_id::uuid;
