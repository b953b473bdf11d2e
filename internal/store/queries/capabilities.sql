-- The capabilities of workers, and tasks that none of them can run.
--
-- A worker is live if it was seen within `alive`. A pool without live workers accepts every task,
-- up to the length of a queue without workers: its first worker finds tasks.

-- name: SeeCapabilities :exec
-- In the order of the key, since two servers may write the same lists.
INSERT INTO servo.capability_sets AS c (digest, capabilities, seen_at)
SELECT n.digest, ARRAY(SELECT jsonb_array_elements_text(n.capabilities)), @now::timestamptz
FROM   (SELECT unnest(@digests::text[]) AS digest, unnest(@capabilities::text[])::jsonb AS capabilities ORDER BY 1) AS n
ON CONFLICT (digest) DO UPDATE SET seen_at = excluded.seen_at WHERE c.seen_at < excluded.seen_at - interval '1 minute';

-- name: CapabilitySets :many
SELECT c.digest, c.capabilities FROM servo.capability_sets c WHERE c.digest = ANY (@digests::text[]);

-- name: LivePoolSets :many
-- The capabilities of the live workers of the given pools, each list once.
SELECT w.pool, w.capabilities AS digest, count(*)::int AS workers
FROM   servo.workers w
WHERE  w.pool = ANY (@pools::text[]) AND w.seen_at > servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @alive::float8)
GROUP  BY w.pool, w.capabilities
ORDER  BY w.pool, w.capabilities;

-- name: HoldLacking :exec
-- Holds ready tasks that no live worker of their pool can run: those that the round has read, and of
-- each tenant, pool and capability those among the first tasks.
UPDATE servo.ready_q
SET    held = true, lacks_worker = true
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   (SELECT y.run_id, y.task_id
            FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@pools::text[]) AS pool, unnest(@needs::text[]) AS needs) AS n
            JOIN   LATERAL (SELECT x.run_id, x.task_id
                            FROM   (SELECT q.run_id, q.task_id, q.needs FROM servo.ready_q q
                                    WHERE q.tenant_id = n.tenant_id AND q.pool = n.pool AND NOT q.held ORDER BY q.rank LIMIT @most::int) AS x
                            WHERE  x.needs = n.needs) AS y ON true
            UNION
            SELECT unnest(@run_ids::uuid[]), unnest(@task_ids::uuid[])) AS k
    JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.ready_q q
                    WHERE q.run_id = k.run_id AND q.task_id = k.task_id FOR UPDATE SKIP LOCKED) AS found ON true));

-- name: WaitForDuty :exec
-- Waits for the current round of admission, and excludes the next one: the tasks that it has held
-- for lack of a worker are committed then.
SELECT d.name FROM servo.duties d WHERE d.name = @name::text FOR NO KEY UPDATE;

-- name: CapableTasks :many
-- Tasks that were held for lack of a worker, and that a live worker can now run, or whose pool has
-- no live worker any more.
WITH RECURSIVE lacking AS (
    (SELECT q.pool, q.needs FROM servo.ready_q q WHERE q.lacks_worker ORDER BY q.pool, q.needs LIMIT 1)
    UNION ALL
    SELECT n.pool, n.needs
    FROM   lacking l
    JOIN   LATERAL (SELECT q.pool, q.needs FROM servo.ready_q q
                    WHERE q.lacks_worker AND (q.pool, q.needs) > (l.pool, l.needs) ORDER BY q.pool, q.needs LIMIT 1) AS n ON true
), capable AS (
    SELECT l.pool, l.needs
    FROM   lacking l
    JOIN   LATERAL (SELECT coalesce(bool_or(w.capabilities = '' OR EXISTS (SELECT FROM servo.capability_sets c
                                            WHERE c.digest = w.capabilities AND l.needs = ANY (c.capabilities))), true) AS yes
                    FROM servo.workers w
                    WHERE w.pool = l.pool AND w.seen_at > servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @alive::float8)) AS c ON c.yes
)
SELECT q.tenant_id, q.run_id, q.task_id, q.pool
FROM   capable c
JOIN   LATERAL (SELECT * FROM servo.ready_q x
                WHERE x.lacks_worker AND x.pool = c.pool AND x.needs = c.needs LIMIT @most::int FOR UPDATE SKIP LOCKED) AS q ON true;

-- name: ReleaseReady :exec
UPDATE servo.ready_q
SET    held = false, lacks_worker = false
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
    JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.ready_q q WHERE q.run_id = n.run_id AND q.task_id = n.task_id OFFSET 0) AS found ON true));

-- name: QueuedWithoutWorker :many
-- Queued tasks that no live worker of their pool can run, of pools that have workers: candidates,
-- which are locked next.
SELECT q.tenant_id, q.run_id, q.task_id
FROM   (SELECT w.pool, bool_or(w.capabilities = '') AS everything, array_agg(DISTINCT w.capabilities) AS digests
        FROM servo.workers w
        WHERE w.seen_at > servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @alive::float8) GROUP BY w.pool) AS p
JOIN   LATERAL (SELECT x.tenant_id, x.run_id, x.task_id FROM servo.pool_q x
                WHERE x.pool = p.pool AND x.needs <> '' AND NOT EXISTS (SELECT FROM servo.capability_sets c
                      WHERE c.digest = ANY (p.digests) AND x.needs = ANY (c.capabilities)) LIMIT @most::int) AS q ON true
WHERE  NOT p.everything
ORDER  BY p.pool
LIMIT  @most::int;

-- name: LockQueued :many
SELECT q.*
FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id ORDER BY 1, 2) AS n
JOIN   LATERAL (SELECT * FROM servo.pool_q x
                WHERE x.run_id = n.run_id AND x.task_id = n.task_id
                OFFSET 0 FOR UPDATE SKIP LOCKED) AS q ON true;

-- name: UnservedNeeds :many
-- The needs of waiting tasks that no live worker of their pool serves: of held tasks, and of tasks
-- queued in pools without live workers. Tasks are counted up to `most` for each, and up to `looked`
-- queued tasks are read.
WITH RECURSIVE lacking AS (
    (SELECT q.pool, q.needs FROM servo.ready_q q WHERE q.lacks_worker ORDER BY q.pool, q.needs LIMIT 1)
    UNION ALL
    SELECT n.pool, n.needs
    FROM   lacking l
    JOIN   LATERAL (SELECT q.pool, q.needs FROM servo.ready_q q
                    WHERE q.lacks_worker AND (q.pool, q.needs) > (l.pool, l.needs) ORDER BY q.pool, q.needs LIMIT 1) AS n ON true
)
SELECT u.pool::text AS pool, u.needs::text AS needs, sum(u.tasks)::int AS tasks
FROM   (SELECT l.pool, l.needs, c.tasks
        FROM   lacking l
        JOIN   LATERAL (SELECT count(*) AS tasks FROM (SELECT FROM servo.ready_q q
                        WHERE q.lacks_worker AND q.pool = l.pool AND q.needs = l.needs LIMIT @most::int) AS x) AS c ON true
        UNION  ALL
        SELECT q.pool, q.needs, count(*)
        FROM   (SELECT x.pool, x.needs FROM servo.pool_q x ORDER BY x.pool, x.rank LIMIT @looked::int) AS q
        WHERE  NOT EXISTS (SELECT FROM servo.workers w
                           WHERE w.pool = q.pool AND w.seen_at > servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @alive::float8))
        GROUP  BY q.pool, q.needs) AS u
GROUP  BY u.pool, u.needs
ORDER  BY u.pool, u.needs;
