-- Admission: what is ready, by tenant and pool, and what each tenant has of a pool.

-- name: FoldSettlements :exec
-- Takes in what other transactions have left for admission: tasks that are in flight no
-- longer, and what attempts have really taken. The mean of an asset leans to what was seen last.
WITH gone AS (
    DELETE FROM servo.settlements
    WHERE  id IN (SELECT s.id FROM servo.settlements s ORDER BY s.id LIMIT @most::int)
    RETURNING tenant_id, pool, asset, left_by, ended, seconds, charged
), known AS (
    INSERT INTO servo.durations AS d (tenant_id, asset, seconds, samples, updated_at)
    SELECT g.tenant_id, g.asset, sum(g.seconds) / sum(g.ended), sum(g.ended), servo.clock()
    FROM   gone g
    WHERE  g.ended > 0 AND g.asset <> ''
    GROUP  BY g.tenant_id, g.asset
    ORDER  BY g.tenant_id, g.asset
    ON CONFLICT (tenant_id, asset) DO UPDATE
    SET    seconds = d.seconds + (excluded.seconds - d.seconds) * (1 - power(0.8, least(excluded.samples, 100))),
           samples = d.samples + excluded.samples, updated_at = excluded.updated_at
)
INSERT INTO servo.shares AS s (tenant_id, pool, in_flight, deficit, served, tasks, updated_at)
SELECT g.tenant_id, g.pool, -sum(g.left_by), sum(g.charged - g.seconds), sum(g.seconds), sum(g.ended), servo.clock()
FROM   gone g
GROUP  BY g.tenant_id, g.pool
ORDER  BY g.tenant_id, g.pool
ON CONFLICT (tenant_id, pool) DO UPDATE
SET    in_flight = s.in_flight + excluded.in_flight, deficit = s.deficit + excluded.deficit, served = s.served + excluded.served,
       tasks = s.tasks + excluded.tasks, updated_at = excluded.updated_at;

-- name: RecountShares :exec
-- Counts anew what is in flight. What has left and is not folded in yet will be taken off when
-- it is, so it is added here; one statement sees one moment of both.
WITH counted AS (
    SELECT c.tenant_id, c.pool, sum(c.n)::int AS n
    FROM   (SELECT q.tenant_id, q.pool, count(*) AS n FROM servo.pool_q q GROUP BY 1, 2
            UNION ALL
            SELECT l.tenant_id, l.pool, count(*) FROM servo.leases l GROUP BY 1, 2
            UNION ALL
            SELECT s.tenant_id, s.pool, sum(s.left_by) FROM servo.settlements s GROUP BY 1, 2
            UNION ALL
            SELECT h.tenant_id, h.pool, 0 FROM servo.shares h WHERE h.in_flight <> 0) AS c
    GROUP  BY 1, 2
)
INSERT INTO servo.shares AS s (tenant_id, pool, in_flight, updated_at)
SELECT c.tenant_id, c.pool, c.n, servo.clock() FROM counted c ORDER BY c.tenant_id, c.pool
ON CONFLICT (tenant_id, pool) DO UPDATE
SET    in_flight = excluded.in_flight, updated_at = excluded.updated_at
WHERE  s.in_flight <> excluded.in_flight;

-- name: ReadyShares :many
-- Which tenants have ready tasks in which pools, a jump along the index for each, however many
-- tasks there are; with what bounds each tenant, and each pool: its own limit, what is queued,
-- and how many tasks the workers can hold that were seen lately.
WITH RECURSIVE found AS (
    (SELECT q.tenant_id, q.pool FROM servo.ready_q q WHERE NOT q.held ORDER BY q.tenant_id, q.pool LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.pool
    FROM   found f
    JOIN   LATERAL (SELECT q.tenant_id, q.pool FROM servo.ready_q q
                    WHERE NOT q.held AND (q.tenant_id, q.pool) > (f.tenant_id, f.pool)
                    ORDER BY q.tenant_id, q.pool LIMIT 1) AS n ON true
), rooms AS MATERIALIZED (
    SELECT p.pool, coalesce(s.max_concurrency, -1) AS max_concurrency, coalesce(c.clock, 0) AS clock, w.workers, w.slots, q.queued, f.in_flight
    FROM   (SELECT DISTINCT f.pool FROM found f) AS p
    LEFT   JOIN LATERAL (SELECT x.max_concurrency FROM servo.pools x WHERE x.name = p.pool OFFSET 0) AS s ON true
    LEFT   JOIN LATERAL (SELECT x.clock FROM servo.pool_clocks x WHERE x.pool = p.pool OFFSET 0) AS c ON true
    JOIN   LATERAL (SELECT count(*) AS workers, coalesce(sum(x.slots), 0) AS slots FROM servo.workers x
                    WHERE x.pool = p.pool AND x.seen_at > servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @alive::float8)) AS w ON true
    JOIN   LATERAL (SELECT count(*) AS queued FROM (SELECT FROM servo.pool_q x WHERE x.pool = p.pool LIMIT @most_queued::int) AS y) AS q ON true
    JOIN   LATERAL (SELECT coalesce(sum(x.in_flight), 0) AS in_flight FROM servo.shares x WHERE s.max_concurrency >= 0 AND x.pool = p.pool) AS f ON true
)
SELECT f.tenant_id::uuid AS tenant_id, f.pool::text AS pool, t.max_concurrent_tasks, t.fairness_weight, h.in_flight::int AS tenant_in_flight,
       EXISTS (SELECT FROM servo.asset_pauses x WHERE x.tenant_id = f.tenant_id)::bool AS pauses,
       coalesce(h.deficit, 0)::float8 AS deficit, coalesce(h.clock, 0)::float8 AS clock, coalesce(h.waits, false)::bool AS waits,
       r.max_concurrency::int AS pool_max_concurrency, r.clock::float8 AS pool_clock, r.workers::int AS pool_workers,
       r.slots::int AS pool_slots, r.queued::int AS pool_queued, r.in_flight::int AS pool_in_flight
FROM   found f
JOIN   rooms r ON r.pool = f.pool
JOIN   LATERAL (SELECT x.max_concurrent_tasks, x.fairness_weight FROM servo.tenants x WHERE x.id = f.tenant_id OFFSET 0) AS t ON true
JOIN   LATERAL (SELECT coalesce(sum(x.in_flight), 0) AS in_flight, max(x.deficit) FILTER (WHERE x.pool = f.pool) AS deficit,
                       max(x.clock) FILTER (WHERE x.pool = f.pool) AS clock, bool_or(x.waits) FILTER (WHERE x.pool = f.pool) AS waits
                FROM servo.shares x WHERE x.tenant_id = f.tenant_id) AS h ON true
ORDER  BY f.tenant_id, f.pool;

-- name: AdmissionWork :one
-- Whether there is anything to do at all, at the cost of three looks at the head of an index.
SELECT ((SELECT q.tenant_id FROM servo.ready_q q WHERE NOT q.held ORDER BY q.tenant_id, q.pool LIMIT 1) IS NOT NULL)::bool AS ready,
       ((SELECT s.id FROM servo.settlements s ORDER BY s.id LIMIT 1) IS NOT NULL)::bool AS notes,
       ((SELECT l.tenant_id FROM servo.live_runs l WHERE l.pending ORDER BY l.tenant_id LIMIT 1) IS NOT NULL)::bool AS starts;

-- name: TakeReady :many
-- The tasks that come next of each tenant and pool, without waiting for anybody, with what
-- their assets take by experience.
SELECT q.tenant_id, q.run_id, q.task_id, q.since, q.version, q.timeout_s, q.priority, q.dependents, q.pool,
       q.attempt, q.failures, q.fruitless, q.fan_outs, q.cursor, t.asset, coalesce(d.seconds, -1)::float8 AS seconds
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@pools::text[]) AS pool, unnest(@mosts::int[]) AS most) AS n
JOIN   LATERAL (SELECT r.* FROM servo.ready_q r
                WHERE r.tenant_id = n.tenant_id AND r.pool = n.pool AND NOT r.held
                ORDER BY r.rank LIMIT n.most FOR UPDATE SKIP LOCKED) AS q ON true
JOIN   LATERAL (SELECT t.asset FROM servo.tasks t
                WHERE t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.id = q.task_id OFFSET 0) AS t ON true
LEFT   JOIN LATERAL (SELECT x.seconds FROM servo.durations x WHERE x.tenant_id = q.tenant_id AND x.asset = t.asset OFFSET 0) AS d ON true;

-- name: PausedTasks :many
-- Those of the tasks whose asset is paused. The pauses stay as they are until the commit, so
-- that a resume comes before or after.
SELECT n.run_id::uuid AS run_id, n.task_id::uuid AS task_id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id,
               unnest(@assets::text[]) AS asset) AS n
JOIN   LATERAL (SELECT x.workspace_id FROM servo.runs x WHERE x.tenant_id = n.tenant_id AND x.id = n.run_id OFFSET 0) AS r ON true
JOIN   LATERAL (SELECT x.asset FROM servo.asset_pauses x
                WHERE x.tenant_id = n.tenant_id AND x.workspace_id = r.workspace_id AND x.asset = n.asset FOR KEY SHARE) AS p ON true;

-- name: HoldReady :exec
UPDATE servo.ready_q
SET    held = true
WHERE  ctid = ANY (ARRAY(
    SELECT found.tid
    FROM   (SELECT unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
    JOIN   LATERAL (SELECT q.ctid AS tid FROM servo.ready_q q WHERE q.run_id = n.run_id AND q.task_id = n.task_id OFFSET 0) AS found ON true));

-- name: ChargeShares :exec
INSERT INTO servo.shares AS s (tenant_id, pool, in_flight, deficit, clock, waits, updated_at)
SELECT unnest(@tenant_ids::uuid[]), unnest(@pools::text[]), unnest(@added::int[]), unnest(@deficits::float8[]), unnest(@clocks::float8[]),
       unnest(@waits::bool[]), @now::timestamptz
ON CONFLICT (tenant_id, pool) DO UPDATE
SET    in_flight = s.in_flight + excluded.in_flight, deficit = excluded.deficit, clock = excluded.clock, waits = excluded.waits, updated_at = excluded.updated_at;

-- name: SetPoolClocks :exec
INSERT INTO servo.pool_clocks AS c (pool, clock)
SELECT unnest(@pools::text[]), unnest(@clocks::float8[])
ON CONFLICT (pool) DO UPDATE SET clock = excluded.clock;

-- name: InsertSettlements :exec
INSERT INTO servo.settlements (tenant_id, pool, asset, left_by, ended, seconds, charged)
SELECT unnest(@tenant_ids::uuid[]), unnest(@pools::text[]), unnest(@assets::text[]), unnest(@left_bys::int[]), unnest(@endeds::int[]),
       unnest(@seconds::float8[]), unnest(@chargeds::float8[]);
