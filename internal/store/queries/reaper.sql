-- name: DueLeases :many
-- Candidates only: each is looked at again under its locks.
SELECT tenant_id, run_id, task_id FROM servo.leases WHERE due_at <= @now::timestamptz ORDER BY due_at LIMIT @most::int;

-- name: DueRetries :many
SELECT tenant_id, run_id, task_id FROM servo.retry_q WHERE due_at <= @now::timestamptz ORDER BY due_at LIMIT @most::int;

-- name: LockRetries :many
SELECT sqlc.embed(q)
FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
JOIN   servo.retry_q q ON q.run_id = n.run_id AND q.task_id = n.task_id
WHERE  q.due_at <= @now::timestamptz
ORDER  BY q.run_id, q.task_id
FOR    UPDATE OF q SKIP LOCKED;

-- name: ForgetHeartbeats :execrows
-- Heartbeats of leases that are over. A new attempt overwrites the one before it anyway.
DELETE FROM servo.heartbeats h
WHERE  h.expires_at <= @now::timestamptz
AND    NOT EXISTS (SELECT FROM servo.leases q WHERE q.run_id = h.run_id AND q.task_id = h.task_id AND q.token = h.token);

-- name: InsertCones :exec
INSERT INTO servo.cones (tenant_id, run_id)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[])
ON CONFLICT DO NOTHING;

-- name: DeleteCones :exec
DELETE FROM servo.cones WHERE run_id = ANY(@run_ids::uuid[]);

-- name: PendingCones :many
SELECT tenant_id, run_id FROM servo.cones ORDER BY run_id LIMIT @most::int;

-- name: Doomed :many
-- Waiting tasks of one run with an upstream that ended without success: the next layer of
-- a cone that was cut off.
SELECT sqlc.embed(w), e.upstream_id
FROM   servo.edges e
JOIN   LATERAL (SELECT t.id FROM servo.tasks t -- a probe for each edge, as in LeasesOfClaims
                WHERE t.tenant_id = e.tenant_id AND t.run_id = e.run_id AND t.id = e.upstream_id AND t.state > 10 OFFSET 0) AS t ON true
JOIN   servo.waiting w ON w.run_id = e.run_id AND w.task_id = e.task_id
WHERE  e.tenant_id = @tenant_id::uuid AND e.run_id = @run_id::uuid
LIMIT  @chunk::int;
