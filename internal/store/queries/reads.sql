-- name: GetRun :one
SELECT sqlc.embed(r) FROM servo.runs r WHERE r.tenant_id = @tenant_id::uuid AND r.id = @id::uuid;

-- name: RunTasks :many
SELECT t.id, t.ix, t.asset, t.partition, s.state, s.since, s.attempt, s.failures, t.outcome, t.result, t.failure, t.late_result
FROM   servo.tasks t
JOIN   servo.task_states s ON s.tenant_id = t.tenant_id AND s.run_id = t.run_id AND s.task_id = t.id
WHERE  t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid
ORDER  BY t.ix;
