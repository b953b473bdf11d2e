-- Limits of runs: live runs, their locks, and the quotas of tenants.

-- name: InsertLiveRuns :exec
INSERT INTO servo.live_runs (tenant_id, run_id, workspace_id, created_at, due_at, limit_s, priority, pending, lock_key, locked_by, pipeline, config_id, wait_key,
                             late_at, breaches, turn)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@workspace_ids::uuid[]), unnest(@created_ats::timestamptz[]),
       nullif(unnest(@due_ats::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@limits::int[]), unnest(@priorities::smallint[]),
       unnest(@pendings::bool[]), unnest(@lock_keys::text[]), unnest(@locked_bys::text[]), unnest(@pipelines::text[]),
       nullif(unnest(@config_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@wait_keys::text[]),
       nullif(unnest(@late_ats::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@breaches::smallint[]), unnest(@turns::bigint[]);

-- name: InsertLocks :many
-- Takes locks that are free and that no run waits for: a waiting run is never overtaken. The insert
-- comes first: the run that holds a lock keeps it. Waits for the commit of a run that ends. Keys are
-- taken in their order, so that two batches do not deadlock.
INSERT INTO servo.live_runs (tenant_id, run_id, workspace_id, created_at, due_at, limit_s, priority, pending, lock_key, locked_by, pipeline, config_id,
                             late_at, breaches)
SELECT n.tenant_id, n.run_id, n.workspace_id, @now::timestamptz, n.due_at, n.limit_s, n.priority, false, n.lock_key, n.locked_by, n.pipeline,
       nullif(n.config_id, '00000000-0000-0000-0000-000000000000'), nullif(n.late_at, '0001-01-01 00:00:00+00'), n.breaches
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@workspace_ids::uuid[]) AS workspace_id,
               unnest(@due_ats::timestamptz[]) AS due_at, unnest(@limits::int[]) AS limit_s, unnest(@priorities::smallint[]) AS priority,
               unnest(@lock_keys::text[]) AS lock_key, unnest(@locked_bys::text[]) AS locked_by, unnest(@pipelines::text[]) AS pipeline,
               unnest(@config_ids::uuid[]) AS config_id, unnest(@late_ats::timestamptz[]) AS late_at, unnest(@breaches::smallint[]) AS breaches) AS n
WHERE  NOT EXISTS (SELECT FROM servo.live_runs q WHERE q.tenant_id = n.tenant_id AND q.wait_key = n.lock_key AND q.wait_key <> '')
ORDER  BY n.tenant_id, n.lock_key
ON CONFLICT DO NOTHING
RETURNING run_id;

-- name: LockHolders :many
-- The runs that hold locks, or get them next.
SELECT l.tenant_id::uuid AS tenant_id, l.lock_key::text AS lock_key, l.run_id::uuid AS run_id
FROM   (SELECT n.tenant_id, n.lock_key, coalesce(
               (SELECT x.run_id FROM servo.live_runs x WHERE x.tenant_id = n.tenant_id AND x.lock_key = n.lock_key AND x.lock_key <> ''),
               (SELECT x.run_id FROM servo.live_runs x WHERE x.tenant_id = n.tenant_id AND x.wait_key = n.lock_key AND x.wait_key <> ''
                ORDER BY x.turn, x.run_id LIMIT 1)) AS run_id
        FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@lock_keys::text[]) AS lock_key) AS n) AS l
WHERE  l.run_id IS NOT NULL;

-- name: LockTurns :many
-- The positions of new runs that wait for locks.
SELECT nextval('servo.lock_turns')::bigint AS turn FROM generate_series(1, @runs::int);

-- name: GiveLocks :many
-- Gives locks to those of the runs that are first in line for them. The rows of the runs are locked.
-- Keys are taken in the order of the arrays. The key stays in wait_key until the run starts: see
-- UpdateLiveRuns.
UPDATE servo.live_runs l
SET    lock_key = l.wait_key
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id) AS n
WHERE  l.tenant_id = ANY (ARRAY[n.tenant_id]) AND l.run_id = n.run_id AND l.wait_key <> ''
AND    NOT EXISTS (SELECT FROM servo.live_runs h WHERE h.tenant_id = n.tenant_id AND h.lock_key = l.wait_key AND h.lock_key <> '')
AND    NOT EXISTS (SELECT FROM servo.live_runs q WHERE q.tenant_id = n.tenant_id AND q.wait_key = l.wait_key AND q.wait_key <> ''
                   AND (q.turn, q.run_id) < (l.turn, l.run_id))
RETURNING l.run_id;

-- name: ReturnLocks :exec
-- Releases the locks of GiveLocks in this transaction, for runs that do not start after all.
UPDATE servo.live_runs l
SET    lock_key = ''
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id) AS n
WHERE  l.tenant_id = ANY (ARRAY[n.tenant_id]) AND l.run_id = n.run_id AND l.wait_key <> '';

-- name: UpdateLiveRuns :exec
-- A run starts, with the lock that it has waited for, or waits after all, or is being cancelled.
UPDATE servo.live_runs l
SET    pending = n.pending, breaches = n.breaches, due_at = nullif(n.due_at, '0001-01-01 00:00:00+00'),
       lock_key = CASE WHEN n.starts AND l.wait_key <> '' THEN l.wait_key ELSE l.lock_key END,
       wait_key = CASE WHEN n.starts THEN '' ELSE l.wait_key END
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@pendings::bool[]) AS pending,
               unnest(@starts::bool[]) AS starts, unnest(@breaches::smallint[]) AS breaches, unnest(@due_ats::timestamptz[]) AS due_at) AS n
WHERE  l.tenant_id = ANY (ARRAY[n.tenant_id]) AND l.run_id = n.run_id;

-- name: DeleteLiveRuns :exec
DELETE FROM servo.live_runs
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id) AS n
    JOIN   LATERAL (SELECT l.ctid AS tid FROM servo.live_runs l WHERE l.tenant_id = n.tenant_id AND l.run_id = n.run_id OFFSET 0) AS found ON true));

-- name: LiveRuns :many
-- Live runs whose runs are locked.
SELECT l.tenant_id, l.run_id, l.limit_s, l.pending, l.lock_key, l.locked_by, l.wait_key
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id) AS n
JOIN   LATERAL (SELECT * FROM servo.live_runs x WHERE x.tenant_id = n.tenant_id AND x.run_id = n.run_id OFFSET 0) AS l ON true;

-- name: DueRuns :many
SELECT l.tenant_id, l.run_id, l.limit_s, l.pipeline, r.deployment_id
FROM   (SELECT * FROM servo.live_runs x WHERE x.due_at <= @now::timestamptz ORDER BY x.due_at LIMIT @most::int) AS l
JOIN   LATERAL (SELECT y.deployment_id FROM servo.runs y WHERE y.tenant_id = l.tenant_id AND y.id = l.run_id OFFSET 0) AS r ON true;

-- name: WaitingTenants :many
-- Tenants with runs that wait for their start, from one to the next along the index.
WITH RECURSIVE jump AS (
    (SELECT l.tenant_id FROM servo.live_runs l WHERE l.pending ORDER BY l.tenant_id LIMIT 1)
    UNION ALL
    SELECT (SELECT l.tenant_id FROM servo.live_runs l WHERE l.pending AND l.tenant_id > j.tenant_id ORDER BY l.tenant_id LIMIT 1)
    FROM   jump j
    WHERE  j.tenant_id IS NOT NULL
)
SELECT j.tenant_id::uuid AS tenant_id FROM jump j WHERE j.tenant_id IS NOT NULL;

-- name: NextRuns :many
-- The runs of each tenant that start next: by priority, then by age. A run that waits for a
-- lock is skipped while another run holds the lock or is before it in line.
SELECT l.tenant_id, l.run_id, l.wait_key
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@mosts::int[]) AS most) AS n
JOIN   LATERAL (SELECT x.tenant_id, x.run_id, x.wait_key FROM servo.live_runs x
                WHERE x.tenant_id = n.tenant_id AND x.pending
                AND   (x.wait_key = '' OR NOT EXISTS (SELECT FROM servo.live_runs h
                       WHERE h.tenant_id = x.tenant_id AND h.lock_key = x.wait_key AND h.lock_key <> '')
                       AND NOT EXISTS (SELECT FROM servo.live_runs q
                       WHERE q.tenant_id = x.tenant_id AND q.wait_key = x.wait_key AND q.wait_key <> '' AND (q.turn, q.run_id) < (x.turn, x.run_id)))
                ORDER BY x.priority DESC, x.run_id LIMIT n.most) AS l ON true;

-- name: Roots :many
-- Tasks that wait for the start of their run only. The run is locked.
SELECT w.*
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id) AS n
JOIN   LATERAL (SELECT * FROM servo.waiting q WHERE q.run_id = n.run_id OFFSET 0) AS w ON true
JOIN   LATERAL (SELECT t.id FROM servo.tasks t
                WHERE t.tenant_id = n.tenant_id AND t.run_id = n.run_id AND t.id = w.task_id AND t.upstream IS NULL OFFSET 0) AS t ON true
WHERE  w.tenant_id = n.tenant_id;

-- name: TenantQuotas :many
SELECT t.id, t.max_queued_tasks, t.max_concurrent_runs, t.max_daily_runs, t.max_run_duration_s, t.max_tasks_per_run, t.max_backfill_runs, t.zone
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id) AS n
JOIN   LATERAL (SELECT * FROM servo.tenants x WHERE x.id = n.tenant_id OFFSET 0) AS t ON true;

-- name: LockTenants :many
-- A transaction counts runs and acts on the count under this lock.
SELECT t.id, t.max_queued_tasks, t.max_concurrent_runs, t.max_daily_runs, t.max_run_duration_s, t.max_tasks_per_run, t.max_backfill_runs, t.zone
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id ORDER BY 1) AS n
JOIN   LATERAL (SELECT * FROM servo.tenants x WHERE x.id = n.tenant_id FOR NO KEY UPDATE) AS t ON true;

-- name: CountUsage :many
-- The runs and tasks of tenants, each counted up to a limit; 0 counts nothing.
SELECT n.tenant_id::uuid AS tenant_id,
       (SELECT count(*) FROM (SELECT FROM servo.live_runs l WHERE l.tenant_id = n.tenant_id LIMIT n.lives) AS x)::int AS live,
       (SELECT count(*) FROM (SELECT FROM servo.live_runs l WHERE l.tenant_id = n.tenant_id AND NOT l.pending LIMIT n.runnings) AS x)::int AS running,
       ((SELECT count(*) FROM (SELECT FROM servo.ready_q q WHERE q.tenant_id = n.tenant_id AND NOT q.held LIMIT n.queueds) AS x)
        + (SELECT count(*) FROM (SELECT FROM servo.ready_q q WHERE q.tenant_id = n.tenant_id AND q.held LIMIT n.queueds) AS x))::int AS queued,
       (SELECT count(*) FROM (SELECT FROM servo.runs r
                              WHERE r.tenant_id = n.tenant_id AND r.id >= n.day_from AND r.id < n.day_until LIMIT n.dailies) AS x)::int AS daily,
       (SELECT count(*) FROM (SELECT FROM servo.backfill_chunks c
                              WHERE c.tenant_id = n.tenant_id AND c.ended_at IS NULL LIMIT n.backfills) AS x)::int AS backfills
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@lives::int[]) AS lives, unnest(@runnings::int[]) AS runnings,
               unnest(@queueds::int[]) AS queueds, unnest(@dailies::int[]) AS dailies, unnest(@backfills::int[]) AS backfills,
               unnest(@day_froms::uuid[]) AS day_from, unnest(@day_untils::uuid[]) AS day_until) AS n;

-- name: ForgetTriggerKeys :exec
-- Keys of triggers that created no run: the same key may be used again.
DELETE FROM servo.idempotency_keys k
USING  (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@keys::text[]) AS key) AS n
WHERE  k.tenant_id = ANY (ARRAY[n.tenant_id]) AND k.key = n.key;

-- name: RepointTriggerKeys :exec
-- Keys of triggers that were answered with the run that holds their lock.
UPDATE servo.idempotency_keys k
SET    run_id = n.run_id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@keys::text[]) AS key, unnest(@run_ids::uuid[]) AS run_id) AS n
WHERE  k.tenant_id = ANY (ARRAY[n.tenant_id]) AND k.key = n.key;
