-- name: AttemptProgress :many
-- The progress of the attempts of a task, the latest first.
SELECT attempt, updated_at, stage_since, eta, records_extracted, records_transformed, records_loaded, bytes, fraction, stages, phase, stage
FROM   servo.attempt_progress
WHERE  tenant_id = @tenant_id::uuid AND run_id = @run_id::uuid AND task_id = @task_id::uuid
ORDER  BY attempt DESC
LIMIT  @most::int;

-- name: AttemptStages :many
-- The stages of the attempts of a task, the latest first.
SELECT attempt, seq, started_at, phase, stage
FROM   servo.attempt_stages
WHERE  tenant_id = @tenant_id::uuid AND run_id = @run_id::uuid AND task_id = @task_id::uuid
ORDER  BY attempt DESC, seq DESC
LIMIT  @most::int;
