-- name: Overdue :one
-- Which kinds of rows are due: seven index lookups.
SELECT coalesce((SELECT l.due_at FROM servo.leases l ORDER BY l.due_at LIMIT 1) <= servo.clock(), false)::bool AS leases,
       coalesce((SELECT q.due_at FROM servo.retry_q q ORDER BY q.due_at LIMIT 1) <= servo.clock(), false)::bool AS retries,
       ((SELECT c.run_id FROM servo.cones c ORDER BY c.run_id LIMIT 1) IS NOT NULL)::bool AS cones,
       coalesce((SELECT x.due_at FROM servo.live_runs x WHERE x.due_at IS NOT NULL ORDER BY x.due_at LIMIT 1) <= servo.clock(), false)::bool AS runs,
       coalesce((SELECT x.late_at FROM servo.live_runs x WHERE x.late_at IS NOT NULL ORDER BY x.late_at LIMIT 1) < servo.clock(), false)::bool AS late,
       ((SELECT d.id FROM servo.run_deltas d ORDER BY d.id LIMIT 1) IS NOT NULL)::bool AS deltas,
       ((SELECT d.id FROM servo.partition_deltas d ORDER BY d.id LIMIT 1) IS NOT NULL)::bool AS partitions;

-- name: DueLeases :many
-- Candidates only: each is checked again under its locks.
SELECT tenant_id, run_id, task_id FROM servo.leases WHERE due_at <= @now::timestamptz ORDER BY due_at LIMIT @most::int;

-- name: DueRetries :many
SELECT tenant_id, run_id, task_id FROM servo.retry_q WHERE due_at <= @now::timestamptz ORDER BY due_at LIMIT @most::int;

-- name: LockRetries :many
SELECT q.*
FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id ORDER BY 1, 2) AS n
JOIN   LATERAL (SELECT * FROM servo.retry_q r
                WHERE r.run_id = n.run_id AND r.task_id = n.task_id
                OFFSET 0 FOR UPDATE SKIP LOCKED) AS q ON true
WHERE  q.due_at <= @now::timestamptz; -- outside, or the planner would choose the index of due times in place of the key

-- name: ForgetHeartbeats :execrows
-- Heartbeats of ended leases. A new attempt overwrites the previous one anyway.
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
SELECT e.upstream_id, w.*
FROM   servo.edges e
JOIN   LATERAL (SELECT t.id FROM servo.tasks t -- a lookup for each edge, as in LeasesOfClaims
                WHERE t.tenant_id = e.tenant_id AND t.run_id = e.run_id AND t.id = e.upstream_id AND t.state > 10 OFFSET 0) AS t ON true
JOIN   LATERAL (SELECT * FROM servo.waiting q WHERE q.run_id = e.run_id AND q.task_id = e.task_id OFFSET 0) AS w ON true
WHERE  e.tenant_id = @tenant_id::uuid AND e.run_id = @run_id::uuid
LIMIT  @chunk::int;
