-- name: LockClaims :exec
-- The repeat of a claim waits until the first try has committed or failed. The second lock is shared
-- by all claims: a transaction that turns dispatch off (LockSwitch) waits for the claims that have
-- read the switch, and later claims wait for it.
SELECT pg_advisory_xact_lock(key), pg_advisory_xact_lock_shared(hashtextextended('servo.switch.dispatch', 0))
FROM   (SELECT unnest(@keys::bigint[]) AS key ORDER BY 1) AS k;

-- name: LeasesOfClaims :many
SELECT q.* FROM servo.leases q WHERE q.claim_id = ANY(@claim_ids::uuid[]) ORDER BY q.token;

-- name: TakeQueued :many
-- The head of a queue. Skips locked rows. Returns no tasks while dispatch is off, and none of tenants
-- that may not use the pool: both are read once per statement. A worker of one tenant gets tasks of
-- that tenant only; the zero tenant means all. It gets tasks whose needs it serves, and none that this
-- transaction has taken for another claim.
SELECT p.* FROM servo.pool_q p
WHERE  p.pool = @pool::text AND NOT EXISTS (SELECT FROM servo.switches s WHERE s.name = 'dispatch' AND s.off)
AND    (@tenant_id::uuid = '00000000-0000-0000-0000-000000000000' OR p.tenant_id = @tenant_id::uuid)
AND    (@everything::bool OR p.needs = '' OR p.needs = ANY (@capabilities::text[])) AND p.task_id <> ALL (@taken::uuid[])
AND    coalesce(p.tenant_id = ANY ((SELECT a.accepts FROM servo.pools a WHERE a.name = @pool::text)::uuid[]), true)
ORDER  BY p.rank
LIMIT  @most::int FOR UPDATE SKIP LOCKED;

-- name: Assignments :many
-- What the workers of tasks get with their leases, and a new token for each. OFFSET 0 keeps each lookup as it
-- is written. In a plain join, the planner reads all tasks of the run and filters: equally cheap by
-- its estimates, but 10,000 rows for one.
SELECT n.nth::int AS nth, nextval('servo.fencing_token')::bigint AS token, t.ix, t.asset, t.partition, t.upstream, t.inherited, r.workspace_id, r.deployment_id, r.pipeline, r.parameters, r.trace, r.trigger_type, r.window_of
FROM   (SELECT unnest(@nths::int[]) AS nth, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
JOIN   LATERAL (SELECT t.ix, t.asset, t.partition, t.upstream, t.inherited FROM servo.tasks t
                WHERE t.tenant_id = n.tenant_id AND t.run_id = n.run_id AND t.id = n.task_id OFFSET 0) AS t ON true
JOIN   LATERAL (SELECT r.workspace_id, r.deployment_id, r.pipeline, r.parameters, r.trace, r.trigger_type, r.window_of FROM servo.runs r
                WHERE r.tenant_id = n.tenant_id AND r.id = n.run_id OFFSET 0) AS r ON true;

-- name: UpstreamResults :many
-- The results of the upstreams of claimed tasks: of each lease the smallest results first, as long as
-- they fit. The stored size of a value is known without reading it, so values that are far too large
-- are never decompressed. The stored size may be six times the size of the text, for one-digit
-- numbers.
SELECT s.nth::int AS nth, s.asset, s.partition, (CASE WHEN s.near AND s.length <= @most::bigint THEN s.result END)::jsonb AS result,
       coalesce(s.result IS NOT NULL AND NOT (s.near AND s.length <= @most::bigint), false)::bool AS omitted
FROM   (SELECT f.nth, f.asset, f.partition, f.result, f.stored <= 8 * @most::bigint AS near,
               sum(CASE WHEN f.stored <= 8 * @most::bigint THEN octet_length(f.result::text) END)
                   OVER (PARTITION BY f.lease ORDER BY f.stored, f.nth) AS length
        FROM   (SELECT n.nth, n.lease, t.asset, t.partition, t.result,
                       sum(pg_column_size(t.result)) OVER (PARTITION BY n.lease ORDER BY pg_column_size(t.result), n.nth) AS stored
                FROM   (SELECT unnest(@nths::int[]) AS nth, unnest(@leases::int[]) AS lease, unnest(@tenant_ids::uuid[]) AS tenant_id,
                               unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
                JOIN   LATERAL (SELECT u.asset, u.partition, u.result FROM servo.tasks u
                                WHERE u.tenant_id = n.tenant_id AND u.run_id = n.run_id AND u.id = n.task_id OFFSET 0) AS t ON true) AS f) AS s;

-- name: LatestResults :many
-- The task of each asset that has succeeded in a workspace, of the newest run. Tasks of fan-outs have
-- a partition and are excluded. The workspace is a condition on each candidate, since other
-- workspaces may have the same assets.
SELECT n.nth::int AS nth, t.run_id, t.id
FROM   (SELECT unnest(@nths::int[]) AS nth, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workspace_ids::uuid[]) AS workspace_id,
               unnest(@assets::text[]) AS asset) AS n
JOIN   LATERAL (SELECT u.run_id, u.id FROM servo.tasks u
                WHERE  u.tenant_id = n.tenant_id AND u.asset = n.asset AND u.state = 10 AND u.partition = ''
                AND    (SELECT r.workspace_id FROM servo.runs r WHERE r.tenant_id = u.tenant_id AND r.id = u.run_id) = n.workspace_id
                ORDER  BY u.run_id DESC
                LIMIT  1) AS t ON true;

-- name: LeasesOfClaimRange :many
-- The leases of a worker by earlier claims, to compare them with the tasks that it holds.
SELECT q.tenant_id, q.run_id, q.task_id, q.token
FROM   servo.leases q
WHERE  q.claim_id BETWEEN @first_id::uuid AND @last_id::uuid AND q.worker = @worker::text
LIMIT  @most::int;

-- name: UnstartedLeases :many
-- The leases that workers with this prefix hold and have not started. Leases have no index by
-- worker: a server executes this once, when it starts.
SELECT q.tenant_id, q.run_id, q.task_id, q.token
FROM   servo.leases q
WHERE  starts_with(q.worker, @prefix::text) AND q.started_at IS NULL
ORDER  BY q.run_id, q.task_id
LIMIT  @most::int;
