-- The logs of attempts, under the role of their tenant.

-- name: ReadLogs :many
SELECT l.seq, l.at, l.text
FROM   servo.task_logs l
WHERE  l.tenant_id = @tenant_id::uuid AND l.run_id = @run_id::uuid AND l.task_id = @task_id::uuid AND l.attempt = @attempt::int
AND    l.seq > @after::bigint
ORDER  BY l.seq
LIMIT  @most::int;

-- name: DroppedLogs :one
SELECT a.dropped_bytes, a.dropped_seq
FROM   servo.attempt_logs a
WHERE  a.tenant_id = @tenant_id::uuid AND a.run_id = @run_id::uuid AND a.task_id = @task_id::uuid AND a.attempt = @attempt::int;
