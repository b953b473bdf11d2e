-- Holds of partitions: one writer at a time (docs/adr/0049-partition-holds.md). Rounds of admission insert
-- them under the admission duty; the transaction that ends a task deletes its hold.

-- name: HoldsInTheWay :many
-- The partitions of tasks, and the hold that overlaps them, which may be their own. Holds do not overlap
-- each other, so the last one that begins before the end of the range is the only candidate. A task that
-- the transaction has just created has no row yet: its partitions are given.
SELECT n.nth::int AS nth, coalesce(r.workspace_id, n.workspace_id)::uuid AS workspace_id, coalesce(t.series, n.series)::text AS series,
       coalesce(t.first_ordinal, n.first)::bigint AS first, coalesce(t.last_ordinal, n.last)::bigint AS last,
       coalesce(h.run_id, '00000000-0000-0000-0000-000000000000')::uuid AS holder_run_id,
       coalesce(h.task_id, '00000000-0000-0000-0000-000000000000')::uuid AS holder_task_id
FROM   (SELECT unnest(@nths::int[]) AS nth, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id,
               unnest(@assets::text[]) AS asset, unnest(@workspace_ids::uuid[]) AS workspace_id, unnest(@series::text[]) AS series,
               unnest(@firsts::bigint[]) AS first, unnest(@lasts::bigint[]) AS last, unnest(@news::bool[]) AS new) AS n
LEFT   JOIN LATERAL (SELECT x.series, x.first_ordinal, x.last_ordinal FROM servo.tasks x
                     WHERE NOT n.new AND x.tenant_id = n.tenant_id AND x.run_id = n.run_id AND x.id = n.task_id OFFSET 0) AS t ON true
LEFT   JOIN LATERAL (SELECT x.workspace_id FROM servo.runs x WHERE NOT n.new AND x.tenant_id = n.tenant_id AND x.id = n.run_id OFFSET 0) AS r ON true
LEFT   JOIN LATERAL (SELECT x.run_id, x.task_id, x.last FROM servo.partition_holds x
                     WHERE x.tenant_id = n.tenant_id AND x.workspace_id = coalesce(r.workspace_id, n.workspace_id) AND x.asset = n.asset
                     AND x.series = coalesce(t.series, n.series) AND x.first <= coalesce(t.last_ordinal, n.last)
                     ORDER BY x.first DESC LIMIT 1) AS h ON h.last >= coalesce(t.first_ordinal, n.first)
WHERE  n.new OR t.first_ordinal IS NOT NULL
ORDER  BY n.nth;

-- name: WaitForHolds :many
-- Takes ready tasks out of the order until the holds in their way are released. The rows of the holds
-- are locked, so that their release happens afterwards and finds the waits. A hold that is being released
-- is skipped: its task stays in the order.
WITH asked AS MATERIALIZED (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id,
           unnest(@holder_run_ids::uuid[]) AS holder_run_id, unnest(@holder_task_ids::uuid[]) AS holder_task_id
), locked AS MATERIALIZED (
    SELECT h.tenant_id, h.run_id, h.task_id
    FROM   (SELECT DISTINCT a.tenant_id, a.holder_run_id, a.holder_task_id FROM asked a ORDER BY 1, 2, 3) AS n
    JOIN   LATERAL (SELECT x.tenant_id, x.run_id, x.task_id FROM servo.partition_holds x
                    WHERE x.tenant_id = n.tenant_id AND x.run_id = n.holder_run_id AND x.task_id = n.holder_task_id FOR KEY SHARE SKIP LOCKED) AS h ON true
), noted AS (
    INSERT INTO servo.partition_waits (tenant_id, run_id, task_id, holder_run_id, holder_task_id)
    SELECT a.tenant_id, a.run_id, a.task_id, a.holder_run_id, a.holder_task_id
    FROM   asked a
    JOIN   locked l ON l.tenant_id = a.tenant_id AND l.run_id = a.holder_run_id AND l.task_id = a.holder_task_id
    ON CONFLICT (run_id, task_id) DO UPDATE SET holder_run_id = excluded.holder_run_id, holder_task_id = excluded.holder_task_id
    RETURNING tenant_id, run_id, task_id
), held AS (
    UPDATE servo.ready_q
    SET    held = true
    WHERE  ctid = ANY (ARRAY(
        SELECT found.tid
        FROM   noted n
        JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.ready_q q WHERE q.run_id = n.run_id AND q.task_id = n.task_id OFFSET 0) AS found ON true))
)
SELECT n.task_id FROM noted n;

-- name: InsertHolds :exec
INSERT INTO servo.partition_holds (tenant_id, workspace_id, asset, series, first, last, run_id, task_id, held_at)
SELECT unnest(@tenant_ids::uuid[]), unnest(@workspace_ids::uuid[]), unnest(@assets::text[]), unnest(@series::text[]), unnest(@firsts::bigint[]),
       unnest(@lasts::bigint[]), unnest(@run_ids::uuid[]), unnest(@task_ids::uuid[]), @now::timestamptz;

-- name: ReleaseHolds :exec
-- Deletes the holds and the waits of tasks that end. It waits for a round that has locked a hold.
WITH ended AS MATERIALIZED (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id
), waits AS (
    DELETE FROM servo.partition_waits
    WHERE  ctid = ANY (ARRAY(
        SELECT found.tid
        FROM   ended n
        JOIN   LATERAL (SELECT w.ctid AS tid FROM servo.partition_waits w
                        WHERE w.tenant_id = n.tenant_id AND w.run_id = n.run_id AND w.task_id = n.task_id OFFSET 0) AS found ON true))
)
DELETE FROM servo.partition_holds
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   ended n
    JOIN   LATERAL (SELECT h.ctid AS tid FROM servo.partition_holds h
                    WHERE h.tenant_id = n.tenant_id AND h.run_id = n.run_id AND h.task_id = n.task_id OFFSET 0) AS found ON true));

-- name: ReopenWaiting :many
-- Returns the tasks that waited for these holds to the order of admission. It is a statement of its own
-- after ReleaseHolds, so that it sees the waits of a round that ReleaseHolds has waited for.
WITH ended AS MATERIALIZED (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id
), gone AS (
    DELETE FROM servo.partition_waits
    WHERE  ctid = ANY (ARRAY(
        SELECT found.tid
        FROM   ended n
        JOIN   LATERAL (SELECT w.ctid AS tid FROM servo.partition_waits w
                        WHERE w.tenant_id = n.tenant_id AND w.holder_run_id = n.run_id AND w.holder_task_id = n.task_id OFFSET 0) AS found ON true))
    RETURNING tenant_id, run_id, task_id
), open AS (
    UPDATE servo.ready_q
    SET    held = false
    WHERE  ctid = ANY (ARRAY(
        SELECT found.tid
        FROM   (SELECT g.run_id, g.task_id FROM gone g ORDER BY g.run_id, g.task_id) AS n
        JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.ready_q q
                        WHERE q.run_id = n.run_id AND q.task_id = n.task_id AND NOT q.lacks_worker FOR UPDATE) AS found ON true))
    RETURNING tenant_id, pool
)
SELECT DISTINCT o.tenant_id, o.pool FROM open o;

-- name: RepairHolds :exec
-- Writes the holds of a run's tasks again, except those that another task has. Called with the duty, so
-- that no round reads meanwhile.
WITH live AS MATERIALIZED (
    SELECT q.task_id, true AS holds FROM servo.pool_q q WHERE q.run_id = @run_id::uuid
    UNION ALL SELECT q.task_id, true FROM servo.leases q WHERE q.run_id = @run_id::uuid
    UNION ALL SELECT q.task_id, true FROM servo.retry_q q WHERE q.run_id = @run_id::uuid
    UNION ALL SELECT q.task_id, q.attempt > 0 FROM servo.ready_q q WHERE q.run_id = @run_id::uuid
)
INSERT INTO servo.partition_holds (tenant_id, workspace_id, asset, series, first, last, run_id, task_id, held_at)
SELECT t.tenant_id, r.workspace_id, t.asset, t.series, t.first_ordinal, t.last_ordinal, t.run_id, t.id, servo.clock()
FROM   live l
JOIN   servo.runs r ON r.tenant_id = @tenant_id::uuid AND r.id = @run_id::uuid
JOIN   servo.tasks t ON t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid AND t.id = l.task_id
WHERE  l.holds AND t.first_ordinal IS NOT NULL
AND    NOT EXISTS (SELECT FROM servo.partition_holds h WHERE h.tenant_id = t.tenant_id AND h.workspace_id = r.workspace_id AND h.asset = t.asset
                   AND h.series = t.series AND h.first <= t.last_ordinal AND h.last >= t.first_ordinal);

-- name: DropHolds :many
-- Deletes the holds and the waits of a run, and the waits for it. Tasks that waited are in the order of
-- admission again: those whose partitions are held wait again.
WITH waits AS (
    DELETE FROM servo.partition_waits w
    WHERE  w.tenant_id = @tenant_id::uuid AND (w.run_id = @run_id::uuid OR w.holder_run_id = @run_id::uuid)
    RETURNING w.run_id, w.task_id
), holds AS (
    DELETE FROM servo.partition_holds h WHERE h.tenant_id = @tenant_id::uuid AND h.run_id = @run_id::uuid
), open AS (
    UPDATE servo.ready_q q SET held = false FROM waits w WHERE q.run_id = w.run_id AND q.task_id = w.task_id AND NOT q.lacks_worker RETURNING q.tenant_id, q.pool
)
SELECT DISTINCT o.tenant_id, o.pool FROM open o;
