-- Handoff: admission and lease in the transaction that makes a task ready, if no other task waits.
-- The statements are sent together (see readHandoff), each with a snapshot of its own: those after the
-- first see what was committed before it had its locks.

-- name: HoldHandoff :one
-- Takes the admission duty for this transaction, and the locks of the given claims, as far as they are
-- free: a handoff waits for no lock.
WITH duty AS MATERIALIZED (
    SELECT d.name FROM servo.duties d WHERE d.name = @duty::text FOR NO KEY UPDATE SKIP LOCKED
)
SELECT EXISTS (SELECT FROM duty)::bool AS held,
       pg_try_advisory_xact_lock_shared(hashtextextended('servo.switch.dispatch', 0))::bool AS dispatches,
       ARRAY(SELECT pg_try_advisory_xact_lock(k.key) FROM unnest(@keys::bigint[]) WITH ORDINALITY AS k(key, nth) ORDER BY k.nth)::bool[] AS claims;

-- name: HandoffShares :many
-- Reads the bounds of the given tenants in the given pools, and of the pools, as ReadyPools and
-- HeadShares do, without tenants that may not use the pool; and whether tasks wait for the pool. The
-- backlog is searched among most_ready tenants and pools; with more, every pool counts as backlogged.
WITH RECURSIVE ready AS (
    (SELECT q.tenant_id, q.pool, 1 AS nth FROM servo.ready_q q WHERE NOT q.held ORDER BY q.tenant_id, q.pool LIMIT 1)
    UNION ALL
    SELECT n.tenant_id, n.pool, r.nth + 1
    FROM   ready r
    JOIN   LATERAL (SELECT q.tenant_id, q.pool FROM servo.ready_q q
                    WHERE NOT q.held AND (q.tenant_id, q.pool) > (r.tenant_id, r.pool)
                    ORDER BY q.tenant_id, q.pool LIMIT 1) AS n ON true
    WHERE  r.nth < @most_ready::int
), wanted AS (
    SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@pools::text[]) AS pool
), rooms AS MATERIALIZED (
    SELECT p.pool, s.accepts, coalesce(s.max_concurrency, -1) AS max_concurrency, coalesce(c.clock, 0) AS clock, w.workers, w.slots, w.sets, q.queued, f.in_flight
    FROM   (SELECT DISTINCT n.pool FROM wanted n) AS p
    LEFT   JOIN LATERAL (SELECT x.max_concurrency, x.accepts FROM servo.pools x WHERE x.name = p.pool OFFSET 0) AS s ON true
    LEFT   JOIN LATERAL (SELECT x.clock FROM servo.pool_clocks x WHERE x.pool = p.pool OFFSET 0) AS c ON true
    JOIN   LATERAL (SELECT count(*) AS workers, coalesce(sum(x.slots), 0) AS slots,
                       coalesce(array_agg(DISTINCT x.capabilities), '{}') AS sets FROM servo.workers x
                    WHERE x.pool = p.pool AND x.seen_at > servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @alive::float8)) AS w ON true
    JOIN   LATERAL (SELECT count(*) AS queued FROM (SELECT FROM servo.pool_q x
                    WHERE x.pool = p.pool AND coalesce(x.tenant_id = ANY (s.accepts), true) LIMIT @most_queued::int) AS y) AS q ON true
    JOIN   LATERAL (SELECT coalesce(sum(x.in_flight), 0) AS in_flight FROM servo.shares x WHERE x.pool = p.pool AND x.in_flight <> 0) AS f ON true
)
SELECT n.tenant_id::uuid AS tenant_id, n.pool::text AS pool, t.max_concurrent_tasks, t.fairness_weight, h.in_flight::int AS tenant_in_flight,
       EXISTS (SELECT FROM servo.asset_pauses x WHERE x.tenant_id = n.tenant_id)::bool AS pauses,
       coalesce(h.even_at, r.clock)::float8 AS even_at,
       r.max_concurrency::int AS pool_max_concurrency, r.clock::float8 AS pool_clock, r.workers::int AS pool_workers,
       r.slots::int AS pool_slots, r.sets::text[] AS pool_sets, r.queued::int AS pool_queued, r.in_flight::int AS pool_in_flight,
       EXISTS (SELECT FROM ready x WHERE x.pool = n.pool AND coalesce(x.tenant_id = ANY (r.accepts), true) OR x.nth = @most_ready::int)::bool AS backlog,
       EXISTS (SELECT FROM servo.switches s WHERE s.name = 'dispatch' AND s.off)::bool AS dispatch_off
FROM   wanted n
JOIN   rooms r ON r.pool = n.pool AND coalesce(n.tenant_id = ANY (r.accepts), true)
JOIN   LATERAL (SELECT x.max_concurrent_tasks, x.fairness_weight FROM servo.tenants x WHERE x.id = n.tenant_id OFFSET 0) AS t ON true
JOIN   LATERAL (SELECT coalesce(sum(x.in_flight), 0) AS in_flight, max(x.even_at) FILTER (WHERE x.pool = n.pool) AS even_at
                FROM servo.shares x WHERE x.tenant_id = n.tenant_id) AS h ON true
ORDER  BY n.tenant_id, n.pool;

-- name: HandoffTasks :many
-- Reads a fencing token for each task and the expected duration of its asset.
SELECT n.nth::int AS nth, nextval('servo.fencing_token')::bigint AS token, coalesce(d.seconds, -1)::float8 AS seconds
FROM   (SELECT unnest(@nths::int[]) AS nth, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@assets::text[]) AS asset) AS n
LEFT   JOIN LATERAL (SELECT x.seconds FROM servo.durations x WHERE x.tenant_id = n.tenant_id AND x.asset = n.asset OFFSET 0) AS d ON true;

-- name: ClaimsWithLeases :many
-- Reads which of the claims hold leases: they are repeats, and look themselves.
SELECT DISTINCT q.claim_id FROM servo.leases q WHERE q.claim_id = ANY(@claim_ids::uuid[]);
