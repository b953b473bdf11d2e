-- name: EndedTasks :many
-- For the repeat of a report: how the task ended, and with which token.
SELECT t.tenant_id, t.run_id, t.id, t.token, t.state, t.outcome, t.late_result, coalesce(t.failure->>'code', '')::text AS code
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
JOIN   servo.tasks t ON t.tenant_id = n.tenant_id AND t.run_id = n.run_id AND t.id = n.task_id
WHERE  t.state IS NOT NULL;

-- name: TaskEvents :many
SELECT e.tenant_id, e.run_id, e.subject_id, e.version, e.recorded_at, e.type, e.schema, e.data
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
JOIN   servo.run_events e ON e.tenant_id = n.tenant_id AND e.run_id = n.run_id AND e.subject_id = n.task_id
ORDER  BY e.subject_id, e.version;

-- name: TaskAssets :many
-- The asset of each task: its retry policy decides about failures.
SELECT t.id, t.asset
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
JOIN   servo.tasks t ON t.tenant_id = n.tenant_id AND t.run_id = n.run_id AND t.id = n.task_id;
