-- Admission: ready tasks by tenant and pool, and the shares of tenants in pools.

-- name: FoldSettlements :one
-- Folds the settlements of other transactions: tasks that became ready or left flight, and the real
-- duration of attempts. The mean of an asset gives recent attempts more weight. A tenant that begins
-- to wait, or is below its quota again, joins by the rule of fair.Join. Only the holder of the duty
-- writes shares, so the rows that are read here are current.
WITH gone AS (
    DELETE FROM servo.settlements
    WHERE  ctid = ANY (ARRAY(SELECT s.ctid FROM servo.settlements s ORDER BY s.id LIMIT @most::int))
    RETURNING tenant_id, pool, asset, left_by, ended, seconds, charged, arrived
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
), freed AS MATERIALIZED (
    SELECT DISTINCT g.tenant_id FROM gone g WHERE g.left_by > 0 OR g.pool = ''
), sums AS MATERIALIZED (
    SELECT n.tenant_id, n.pool, sum(n.left_by) AS left_by, sum(n.ended) AS ended, sum(n.seconds) AS seconds, sum(n.charged) AS charged,
           bool_or(n.arrived) AS arrived, bool_or(n.freed) AS freed
    FROM   (SELECT g.tenant_id, g.pool, g.left_by, g.ended, g.seconds, g.charged, g.arrived, g.left_by > 0 AS freed FROM gone g WHERE g.pool <> ''
            UNION ALL
            SELECT f.tenant_id, o.pool, 0, 0, 0, 0, false, true
            FROM   freed f
            JOIN   LATERAL (SELECT x.pool FROM servo.shares x WHERE x.tenant_id = f.tenant_id AND x.over_quota OFFSET 0) AS o ON true) AS n
    GROUP  BY n.tenant_id, n.pool
), fronts AS MATERIALIZED (
    SELECT p.pool, coalesce(c.clock, 0) AS clock, least(coalesce(c.clock, 0), h.even_at) AS front
    FROM   (SELECT DISTINCT m.pool FROM sums m) AS p
    LEFT   JOIN LATERAL (SELECT x.clock FROM servo.pool_clocks x WHERE x.pool = p.pool OFFSET 0) AS c ON true
    LEFT   JOIN LATERAL (SELECT x.even_at FROM servo.shares x WHERE x.pool = p.pool AND x.waits AND NOT x.over_quota
                         ORDER BY x.even_at, x.tenant_id LIMIT 1) AS h ON true
), written AS (
    INSERT INTO servo.shares AS s (tenant_id, pool, in_flight, even_at, waits, over_quota, served, tasks, updated_at)
    SELECT m.tenant_id, m.pool, coalesce(o.in_flight, 0) - m.left_by,
           CASE WHEN v.waits AND NOT v.over_quota AND NOT coalesce(o.waits AND NOT o.over_quota, false)
                THEN f.front + greatest(0, v.even_at - f.clock) ELSE v.even_at END,
           v.waits, v.over_quota, coalesce(o.served, 0) + m.seconds, coalesce(o.tasks, 0) + m.ended, servo.clock()
    FROM   sums m
    JOIN   fronts f ON f.pool = m.pool
    LEFT   JOIN LATERAL (SELECT x.fairness_weight FROM servo.tenants x WHERE x.id = m.tenant_id OFFSET 0) AS t ON true
    LEFT   JOIN LATERAL (SELECT * FROM servo.shares x WHERE x.tenant_id = m.tenant_id AND x.pool = m.pool OFFSET 0) AS o ON true
    JOIN   LATERAL (SELECT m.arrived OR coalesce(o.waits, false) AS waits, NOT m.freed AND coalesce(o.over_quota, false) AS over_quota,
                           coalesce(o.even_at, f.clock) - (m.charged - m.seconds) / coalesce(t.fairness_weight, 1) AS even_at) AS v ON true
    ORDER  BY m.tenant_id, m.pool
    ON CONFLICT (tenant_id, pool) DO UPDATE
    SET    in_flight = excluded.in_flight, even_at = excluded.even_at, waits = excluded.waits, over_quota = excluded.over_quota,
           served = excluded.served, tasks = excluded.tasks, updated_at = excluded.updated_at
)
SELECT count(*)::int AS folded FROM gone;

-- name: RecountShares :exec
-- Counts the tasks in flight again. Settlements that are not folded yet will be subtracted later, so
-- they are added here; one statement sees one moment of both.
WITH counted AS (
    SELECT c.tenant_id, c.pool, sum(c.n)::int AS n
    FROM   (SELECT q.tenant_id, q.pool, count(*) AS n FROM servo.pool_q q GROUP BY 1, 2
            UNION ALL
            SELECT l.tenant_id, l.pool, count(*) FROM servo.leases l GROUP BY 1, 2
            UNION ALL
            SELECT s.tenant_id, s.pool, sum(s.left_by) FROM servo.settlements s WHERE s.pool <> '' GROUP BY 1, 2
            UNION ALL
            SELECT h.tenant_id, h.pool, 0 FROM servo.shares h WHERE h.in_flight <> 0) AS c
    GROUP  BY 1, 2
)
INSERT INTO servo.shares AS s (tenant_id, pool, in_flight, updated_at)
SELECT c.tenant_id, c.pool, c.n, servo.clock() FROM counted c ORDER BY c.tenant_id, c.pool
ON CONFLICT (tenant_id, pool) DO UPDATE
SET    in_flight = excluded.in_flight, updated_at = excluded.updated_at
WHERE  s.in_flight <> excluded.in_flight;

-- name: RenoteReady :exec
-- Inserts settlements again for the next fold: for tenants with ready tasks that are not marked as
-- waiting, with one index lookup for each tenant and pool, and for tenants whose quota was used up.
WITH RECURSIVE found AS (
    (SELECT q.tenant_id, q.pool FROM servo.ready_q q WHERE NOT q.held ORDER BY q.tenant_id, q.pool LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.pool
    FROM   found f
    JOIN   LATERAL (SELECT q.tenant_id, q.pool FROM servo.ready_q q
                    WHERE NOT q.held AND (q.tenant_id, q.pool) > (f.tenant_id, f.pool)
                    ORDER BY q.tenant_id, q.pool LIMIT 1) AS n ON true
)
INSERT INTO servo.settlements (tenant_id, pool, asset, left_by, ended, seconds, charged, arrived)
SELECT f.tenant_id, f.pool, '', 0, 0, 0, 0, true
FROM   found f
LEFT   JOIN LATERAL (SELECT x.waits FROM servo.shares x WHERE x.tenant_id = f.tenant_id AND x.pool = f.pool OFFSET 0) AS s ON true
WHERE  s.waits IS NOT TRUE
UNION ALL
SELECT DISTINCT s.tenant_id, '', '', 0, 0, 0::float8, 0::float8, false FROM servo.shares s WHERE s.over_quota;

-- name: ReadyPools :many
-- The pools with waiting tenants, and the given ones, or only those, with their own limit, the
-- queued tasks, and the capacity of their live workers. Claims admit the tasks of a pool with workers,
-- unless it is a push pool.
WITH RECURSIVE found AS (
    (SELECT s.pool FROM servo.shares s WHERE s.waits AND NOT s.over_quota ORDER BY s.pool LIMIT 1)
    UNION ALL
    SELECT n.pool
    FROM   found f
    JOIN   LATERAL (SELECT s.pool FROM servo.shares s WHERE s.waits AND NOT s.over_quota AND s.pool > f.pool ORDER BY s.pool LIMIT 1) AS n ON true
)
SELECT p.pool::text AS pool, coalesce(s.max_concurrency, -1)::int AS max_concurrency, coalesce(c.clock, 0)::float8 AS clock,
       (w.workers > 0 AND coalesce(s.url, '') = '')::bool AS by_claims, coalesce(c.claimed_at, '0001-01-01 00:00:00+00')::timestamptz AS claimed_at,
       w.workers::int AS workers, w.slots::int AS slots, w.sets::text[] AS sets, q.queued::int AS queued, f.in_flight::int AS in_flight
FROM   (SELECT f.pool FROM found f WHERE NOT @named_only::bool UNION SELECT unnest(@also::text[])) AS p
LEFT   JOIN LATERAL (SELECT x.max_concurrency, x.accepts, x.url FROM servo.pools x WHERE x.name = p.pool OFFSET 0) AS s ON true
LEFT   JOIN LATERAL (SELECT x.clock, x.claimed_at FROM servo.pool_clocks x WHERE x.pool = p.pool OFFSET 0) AS c ON true
JOIN   LATERAL (SELECT count(*) AS workers, coalesce(sum(x.slots), 0) AS slots,
                       coalesce(array_agg(DISTINCT x.capabilities), '{}') AS sets FROM servo.workers x
                WHERE x.pool = p.pool AND x.seen_at > servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @alive::float8)) AS w ON true
JOIN   LATERAL (SELECT count(*) AS queued FROM (SELECT FROM servo.pool_q x
                WHERE x.pool = p.pool AND coalesce(x.tenant_id = ANY (s.accepts), true) LIMIT @most_queued::int) AS y) AS q ON true
JOIN   LATERAL (SELECT coalesce(sum(x.in_flight), 0) AS in_flight FROM servo.shares x WHERE x.pool = p.pool AND x.in_flight <> 0) AS f ON true
ORDER  BY p.pool;

-- name: HeadShares :many
-- The tenants that are served next in each pool, up to a number for each pool, and their limits.
-- Tenants that may not use the pool are skipped. A tenant that is not zero is read alone.
SELECT f.tenant_id::uuid AS tenant_id, f.pool::text AS pool, f.even_at::float8 AS even_at, f.admitted::bigint AS admitted,
       t.max_concurrent_tasks, t.fairness_weight, h.in_flight::int AS tenant_in_flight, EXISTS (SELECT FROM servo.asset_pauses x WHERE x.tenant_id = f.tenant_id)::bool AS pauses
FROM   (SELECT unnest(@pools::text[]) AS pool, unnest(@mosts::int[]) AS most) AS n
LEFT   JOIN LATERAL (SELECT x.accepts FROM servo.pools x WHERE x.name = n.pool OFFSET 0) AS a ON true
JOIN   LATERAL (SELECT x.tenant_id, x.pool, x.even_at, x.admitted FROM servo.shares x
                WHERE x.pool = n.pool AND x.waits AND NOT x.over_quota AND coalesce(x.tenant_id = ANY (a.accepts), true)
                AND (@tenant_id::uuid = '00000000-0000-0000-0000-000000000000' OR x.tenant_id = @tenant_id::uuid)
                ORDER BY x.even_at, x.tenant_id LIMIT n.most) AS f ON true
JOIN   LATERAL (SELECT x.max_concurrent_tasks, x.fairness_weight FROM servo.tenants x WHERE x.id = f.tenant_id OFFSET 0) AS t ON true
JOIN   LATERAL (SELECT coalesce(sum(x.in_flight), 0) AS in_flight FROM servo.shares x WHERE x.tenant_id = f.tenant_id) AS h ON true
ORDER  BY f.pool, f.even_at, f.tenant_id;

-- name: AdmissionWork :one
-- Whether admission has work: three index lookups.
SELECT ((SELECT q.tenant_id FROM servo.ready_q q WHERE NOT q.held ORDER BY q.tenant_id, q.pool LIMIT 1) IS NOT NULL)::bool AS ready,
       ((SELECT s.id FROM servo.settlements s ORDER BY s.id LIMIT 1) IS NOT NULL)::bool AS notes,
       ((SELECT l.tenant_id FROM servo.live_runs l WHERE l.pending ORDER BY l.tenant_id LIMIT 1) IS NOT NULL)::bool AS starts;

-- name: TryAdmission :one
-- Takes the admission duty for this transaction without waiting, if tasks of these pools may be ready
-- and dispatch is on. A tenant begins to wait for a pool when a settlement is folded.
WITH work AS MATERIALIZED (
    SELECT (EXISTS (SELECT FROM unnest(@pools::text[]) AS p(pool)
                    JOIN LATERAL (SELECT x.tenant_id FROM servo.shares x
                                  WHERE x.pool = p.pool AND x.waits AND NOT x.over_quota ORDER BY x.even_at, x.tenant_id LIMIT 1) AS w ON true)
            OR (SELECT s.id FROM servo.settlements s ORDER BY s.id LIMIT 1) IS NOT NULL
               AND (SELECT q.tenant_id FROM servo.ready_q q WHERE NOT q.held ORDER BY q.tenant_id, q.pool LIMIT 1) IS NOT NULL)
           AND NOT EXISTS (SELECT FROM servo.switches s WHERE s.name = 'dispatch' AND s.off) AS waits
), duty AS MATERIALIZED (
    SELECT d.name FROM servo.duties d WHERE d.name = @duty::text AND (SELECT w.waits FROM work w) FOR NO KEY UPDATE SKIP LOCKED
)
SELECT (SELECT w.waits FROM work w)::bool AS waits, EXISTS (SELECT FROM duty)::bool AS held;

-- name: TakeReady :many
-- The next tasks of each tenant and pool, with the usual duration of their assets. Skips locked
-- rows.
SELECT q.tenant_id, q.run_id, q.task_id, q.since, q.version, q.timeout_s, q.priority, q.dependents, q.pool, q.needs,
       q.attempt, q.failures, q.fruitless, q.deaths, q.fan_outs, q.cursor, q.asset, q.divided, coalesce(d.seconds, -1)::float8 AS seconds
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@pools::text[]) AS pool, unnest(@mosts::int[]) AS most) AS n
JOIN   LATERAL (SELECT r.* FROM servo.ready_q r
                WHERE r.tenant_id = n.tenant_id AND r.pool = n.pool AND NOT r.held
                ORDER BY r.rank LIMIT n.most FOR UPDATE SKIP LOCKED) AS q ON true
LEFT   JOIN LATERAL (SELECT x.seconds FROM servo.durations x WHERE x.tenant_id = q.tenant_id AND x.asset = q.asset OFFSET 0) AS d ON true;

-- name: TakeOldest :many
-- The oldest ready tasks of each tenant and pool, of any priority: the first tasks of each priority,
-- and the oldest of these.
SELECT q.tenant_id, q.run_id, q.task_id, q.since, q.version, q.timeout_s, q.priority, q.dependents, q.pool, q.needs,
       q.attempt, q.failures, q.fruitless, q.deaths, q.fan_outs, q.cursor, q.asset, q.divided, coalesce(d.seconds, -1)::float8 AS seconds
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@pools::text[]) AS pool, unnest(@mosts::int[]) AS most) AS n
JOIN   LATERAL (SELECT o.*
                FROM   generate_series(0, 10) AS l
                JOIN   LATERAL (SELECT r.* FROM servo.ready_q r
                                WHERE r.tenant_id = n.tenant_id AND r.pool = n.pool AND NOT r.held
                                AND   r.rank >= l * 9007199254740992 AND r.rank < (l + 1) * 9007199254740992
                                ORDER BY r.rank LIMIT n.most FOR UPDATE SKIP LOCKED) AS o ON true
                ORDER  BY o.since LIMIT n.most) AS q ON true
LEFT   JOIN LATERAL (SELECT x.seconds FROM servo.durations x WHERE x.tenant_id = q.tenant_id AND x.asset = q.asset OFFSET 0) AS d ON true;

-- name: PausedTasks :many
-- Those of the tasks whose asset is paused. The pauses are locked until the commit, so that a resume
-- happens before or after.
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
-- Executed after the tasks were moved: a share waits if ready tasks are left, including tasks that
-- another transaction has locked. Tasks that become ready meanwhile leave a settlement.
INSERT INTO servo.shares AS s (tenant_id, pool, in_flight, admitted, even_at, over_quota, waits, updated_at)
SELECT n.tenant_id, n.pool, n.added, n.added, n.even_at, n.over_quota,
       EXISTS (SELECT FROM servo.ready_q q WHERE q.tenant_id = n.tenant_id AND q.pool = n.pool AND NOT q.held), @now::timestamptz
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@pools::text[]) AS pool, unnest(@added::int[]) AS added,
               unnest(@even_ats::float8[]) AS even_at, unnest(@over_quotas::bool[]) AS over_quota) AS n
ON CONFLICT (tenant_id, pool) DO UPDATE
SET    in_flight = s.in_flight + excluded.in_flight, admitted = s.admitted + excluded.admitted, even_at = excluded.even_at, over_quota = excluded.over_quota, waits = excluded.waits,
       updated_at = excluded.updated_at;

-- name: SetPoolClocks :exec
INSERT INTO servo.pool_clocks AS c (pool, clock, claimed_at)
SELECT unnest(@pools::text[]), unnest(@clocks::float8[]), CASE WHEN @by_claims::bool THEN @now::timestamptz ELSE '0001-01-01 00:00:00+00' END
ON CONFLICT (pool) DO UPDATE SET clock = excluded.clock, claimed_at = greatest(c.claimed_at, excluded.claimed_at);

-- name: InsertSettlements :exec
INSERT INTO servo.settlements (tenant_id, pool, asset, left_by, ended, seconds, charged, arrived)
SELECT unnest(@tenant_ids::uuid[]), unnest(@pools::text[]), unnest(@assets::text[]), unnest(@left_bys::int[]), unnest(@endeds::int[]),
       unnest(@seconds::float8[]), unnest(@chargeds::float8[]), unnest(@arriveds::bool[]);
