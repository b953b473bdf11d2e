-- The queue tables: one insert, one delete and one locking read for each, all by the
-- run and task of known rows. Reads that lock go in id order.
--
-- A queue table may have been empty when its statistics were collected, and full now. In a plain
-- join, the planner would scan the whole table and look up each row in the batch. So each statement
-- looks up row by row: the planner keeps LATERAL with OFFSET 0 or FOR UPDATE as it is written. The
-- found rows are accessed by their ctid, which does not change while a row is locked.

-- name: InsertWaiting :exec
INSERT INTO servo.waiting (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, needs, unmet, asset)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@task_ids::uuid[]), unnest(@sinces::timestamptz[]),
       unnest(@versions::int[]), unnest(@timeout_ss::int[]), unnest(@priorities::smallint[]), unnest(@dependents::bool[]),
       unnest(@pools::text[]), unnest(@needs::text[]), unnest(@unmets::int[]), unnest(@assets::text[]);

-- name: DeleteWaiting :exec
DELETE FROM servo.waiting
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
    JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.waiting q WHERE q.run_id = n.run_id AND q.task_id = n.task_id OFFSET 0) AS found ON true));

-- name: SweepWaiting :many
-- For a cancel: waits for transactions that move these tasks.
SELECT q.* FROM servo.waiting q WHERE q.run_id = ANY(@run_ids::uuid[]) ORDER BY q.run_id, q.task_id FOR UPDATE;

-- name: InsertReady :exec
INSERT INTO servo.ready_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, needs, attempt, failures, fruitless, deaths,
        fan_outs, cursor, rank, asset, divided)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@task_ids::uuid[]), unnest(@sinces::timestamptz[]),
       unnest(@versions::int[]), unnest(@timeout_ss::int[]), unnest(@priorities::smallint[]), unnest(@dependents::bool[]),
       unnest(@pools::text[]), unnest(@needs::text[]), unnest(@attempts::int[]), unnest(@failure_counts::int[]), unnest(@fruitlesses::int[]), unnest(@deaths::int[]),
       unnest(@fan_outs::int[]), unnest(@cursors::text[]), unnest(@ranks::bigint[]), unnest(@assets::text[]), unnest(@divideds::bool[]);

-- name: DeleteReady :exec
DELETE FROM servo.ready_q
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
    JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.ready_q q WHERE q.run_id = n.run_id AND q.task_id = n.task_id OFFSET 0) AS found ON true));

-- name: SweepReady :many
-- For a cancel: waits for transactions that move these tasks.
SELECT q.* FROM servo.ready_q q WHERE q.run_id = ANY(@run_ids::uuid[]) ORDER BY q.run_id, q.task_id FOR UPDATE;

-- name: InsertQueued :exec
INSERT INTO servo.pool_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, needs, attempt, failures, fruitless, deaths,
        fan_outs, cursor, rank, cost, asset, ready_at)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@task_ids::uuid[]), unnest(@sinces::timestamptz[]),
       unnest(@versions::int[]), unnest(@timeout_ss::int[]), unnest(@priorities::smallint[]), unnest(@dependents::bool[]),
       unnest(@pools::text[]), unnest(@needs::text[]), unnest(@attempts::int[]), unnest(@failure_counts::int[]), unnest(@fruitlesses::int[]), unnest(@deaths::int[]),
       unnest(@fan_outs::int[]), unnest(@cursors::text[]), unnest(@ranks::bigint[]),
       unnest(@costs::real[]), unnest(@assets::text[]), unnest(@ready_ats::timestamptz[]);

-- name: DeleteQueued :exec
DELETE FROM servo.pool_q
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
    JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.pool_q q WHERE q.run_id = n.run_id AND q.task_id = n.task_id OFFSET 0) AS found ON true));

-- name: SweepQueued :many
-- For a cancel: waits for transactions that move these tasks.
SELECT q.* FROM servo.pool_q q WHERE q.run_id = ANY(@run_ids::uuid[]) ORDER BY q.run_id, q.task_id FOR UPDATE;

-- name: InsertLeases :exec
INSERT INTO servo.leases (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, needs, attempt, failures, fruitless, deaths,
        fan_outs, cursor, token, claim_id, started_at, deadline, expires_at, due_at, cancel_requested, worker, cost, asset, ready_at, lease_ms, claim_cursor)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@task_ids::uuid[]), unnest(@sinces::timestamptz[]),
       unnest(@versions::int[]), unnest(@timeout_ss::int[]), unnest(@priorities::smallint[]), unnest(@dependents::bool[]),
       unnest(@pools::text[]), unnest(@needs::text[]), unnest(@attempts::int[]), unnest(@failure_counts::int[]), unnest(@fruitlesses::int[]), unnest(@deaths::int[]),
       unnest(@fan_outs::int[]), unnest(@cursors::text[]), unnest(@tokens::bigint[]), unnest(@claim_ids::uuid[]),
       nullif(unnest(@started_ats::timestamptz[]), '0001-01-01 00:00:00+00'),
       nullif(unnest(@deadlines::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@expires_ats::timestamptz[]),
       unnest(@due_ats::timestamptz[]), unnest(@cancel_requesteds::bool[]), unnest(@workers::text[]),
       unnest(@costs::real[]), unnest(@assets::text[]), unnest(@ready_ats::timestamptz[]), unnest(@lease_mss::int[]), unnest(@claim_cursors::text[]);

-- name: DeleteLeases :exec
DELETE FROM servo.leases
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
    JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.leases q WHERE q.run_id = n.run_id AND q.task_id = n.task_id OFFSET 0) AS found ON true));

-- name: SweepLeases :many
-- For a cancel: waits for transactions that move these tasks.
SELECT q.* FROM servo.leases q WHERE q.run_id = ANY(@run_ids::uuid[]) ORDER BY q.run_id, q.task_id FOR UPDATE;

-- name: InsertRetrying :exec
INSERT INTO servo.retry_q (tenant_id, run_id, task_id, since, version, timeout_s, priority, dependents, pool, needs, attempt, failures, fruitless, deaths,
        fan_outs, cursor, due_at, failure, asset)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@task_ids::uuid[]), unnest(@sinces::timestamptz[]),
       unnest(@versions::int[]), unnest(@timeout_ss::int[]), unnest(@priorities::smallint[]), unnest(@dependents::bool[]),
       unnest(@pools::text[]), unnest(@needs::text[]), unnest(@attempts::int[]), unnest(@failure_counts::int[]), unnest(@fruitlesses::int[]), unnest(@deaths::int[]),
       unnest(@fan_outs::int[]), unnest(@cursors::text[]), unnest(@due_ats::timestamptz[]),
       unnest(@failures::text[])::jsonb, unnest(@assets::text[]);

-- name: DeleteRetrying :exec
DELETE FROM servo.retry_q
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
    JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.retry_q q WHERE q.run_id = n.run_id AND q.task_id = n.task_id OFFSET 0) AS found ON true));

-- name: SweepRetrying :many
-- For a cancel: waits for transactions that move these tasks.
SELECT q.* FROM servo.retry_q q WHERE q.run_id = ANY(@run_ids::uuid[]) ORDER BY q.run_id, q.task_id FOR UPDATE;

-- name: UpdateWaiting :exec
UPDATE servo.waiting q
SET    unmet = n.unmet
FROM   (SELECT unnest(@unmets::int[]) AS unmet,
               unnest(ARRAY(
                   SELECT found.tid
                   FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS k
                   LEFT   JOIN LATERAL (SELECT l.ctid AS tid FROM servo.waiting l
                                        WHERE l.run_id = k.run_id AND l.task_id = k.task_id OFFSET 0) AS found ON true)) AS tid) AS n
WHERE  q.ctid = n.tid;

-- name: UpdateLeases :exec
-- expires_at, due_at and claim_cursor do not change: due_at is indexed, and only the reaper changes it.
UPDATE servo.leases q
SET    since = n.since, version = n.version, fruitless = n.fruitless, fan_outs = n.fan_outs, cursor = n.cursor, dependents = n.dependents,
       started_at = nullif(n.started_at, '0001-01-01 00:00:00+00'), deadline = nullif(n.deadline, '0001-01-01 00:00:00+00'),
       cancel_requested = n.cancel_requested, instance = n.instance
FROM   (SELECT unnest(@sinces::timestamptz[]) AS since, unnest(@versions::int[]) AS version,
               unnest(@fruitlesses::int[]) AS fruitless, unnest(@fan_outs::int[]) AS fan_outs, unnest(@cursors::text[]) AS cursor,
               unnest(@dependents::bool[]) AS dependents,
               unnest(@started_ats::timestamptz[]) AS started_at, unnest(@deadlines::timestamptz[]) AS deadline,
               unnest(@cancel_requesteds::bool[]) AS cancel_requested, unnest(@instances::text[]) AS instance,
               unnest(ARRAY(
                   SELECT found.tid
                   FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS k
                   LEFT   JOIN LATERAL (SELECT l.ctid AS tid FROM servo.leases l
                                        WHERE l.run_id = k.run_id AND l.task_id = k.task_id OFFSET 0) AS found ON true)) AS tid) AS n
WHERE  q.ctid = n.tid;

-- name: RescheduleLeases :exec
-- The reaper's next check of leases that were renewed, or whose deadline has become earlier.
UPDATE servo.leases q
SET    expires_at = n.expires_at, due_at = n.due_at
FROM   (SELECT unnest(@expires_ats::timestamptz[]) AS expires_at, unnest(@due_ats::timestamptz[]) AS due_at,
               unnest(ARRAY(
                   SELECT found.tid
                   FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS k
                   LEFT   JOIN LATERAL (SELECT l.ctid AS tid FROM servo.leases l
                                        WHERE l.run_id = k.run_id AND l.task_id = k.task_id OFFSET 0) AS found ON true)) AS tid) AS n
WHERE  q.ctid = n.tid;

-- name: LockLeases :many
-- The heartbeat of a worker counts as the expiry of its lease if it is later.
SELECT q.*, coalesce(h.expires_at, '0001-01-01 00:00:00+00')::timestamptz AS heartbeat_expires_at
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id
        ORDER BY 2, 3) AS n
JOIN   LATERAL (SELECT * FROM servo.leases l
                WHERE l.tenant_id = n.tenant_id AND l.run_id = n.run_id AND l.task_id = n.task_id FOR UPDATE) AS q ON true
LEFT   JOIN LATERAL (SELECT b.expires_at FROM servo.heartbeats b
                     WHERE b.run_id = q.run_id AND b.task_id = q.task_id AND b.token = q.token OFFSET 0) AS h ON true;

-- name: LockLeasesOnly :many
SELECT q.*
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id
        ORDER BY 2, 3) AS n
JOIN   LATERAL (SELECT * FROM servo.leases l
                WHERE l.tenant_id = n.tenant_id AND l.run_id = n.run_id AND l.task_id = n.task_id FOR UPDATE) AS q ON true;

-- name: Dependents :many
-- The tasks that wait for these tasks. Rows of waiting change under the lock of their run only, which
-- is held: they need no lock of their own.
SELECT e.upstream_id, w.*
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
JOIN   LATERAL (SELECT d.run_id, d.upstream_id, d.task_id FROM servo.edges d
                WHERE d.tenant_id = n.tenant_id AND d.run_id = n.run_id AND d.upstream_id = n.task_id OFFSET 0) AS e ON true
JOIN   LATERAL (SELECT * FROM servo.waiting q WHERE q.run_id = e.run_id AND q.task_id = e.task_id OFFSET 0) AS w ON true
ORDER  BY w.run_id, w.task_id, e.upstream_id;

-- name: Cone :many
-- A chunk of the waiting tasks downstream of these tasks, at any distance, each once.
WITH RECURSIVE cone AS (
    SELECT n.tenant_id, n.run_id, e.task_id
    FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
    JOIN   LATERAL (SELECT d.task_id FROM servo.edges d
                    WHERE d.tenant_id = n.tenant_id AND d.run_id = n.run_id AND d.upstream_id = n.task_id OFFSET 0) AS e ON true
    UNION
    SELECT c.tenant_id, c.run_id, e.task_id
    FROM   cone c
    JOIN   LATERAL (SELECT d.task_id FROM servo.edges d
                    WHERE d.tenant_id = c.tenant_id AND d.run_id = c.run_id AND d.upstream_id = c.task_id OFFSET 0) AS e ON true
)
SELECT w.*
FROM   cone c
JOIN   LATERAL (SELECT * FROM servo.waiting q WHERE q.run_id = c.run_id AND q.task_id = c.task_id OFFSET 0) AS w ON true
ORDER  BY w.run_id, w.task_id
LIMIT  @chunk::int;
