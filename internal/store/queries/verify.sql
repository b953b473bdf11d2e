-- The reads of verify, in one snapshot, for a chunk of runs or tenants at a time; and the writes of
-- repair to one run besides the statements of the write path. Whole rows are read by verify.go.

-- name: PlanByKey :exec
-- Lookups by key for a chunk of known rows, and scans along a key, with any statistics.
SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true);

-- name: PlanByScan :exec
-- Reads of whole tables: the planner's default settings.
SELECT set_config('enable_seqscan', 'on', true), set_config('enable_bitmapscan', 'on', true),
       set_config('enable_hashjoin', 'on', true), set_config('enable_mergejoin', 'on', true);

-- name: VerifySequences :one
-- The last allocated token and position. A sequence is not part of a snapshot: read after the snapshot
-- it is at or past all values in the snapshot.
SELECT coalesce(pg_sequence_last_value('servo.fencing_token'::regclass), 0)::bigint AS token,
       coalesce(pg_sequence_last_value('servo.event_position'::regclass), 0)::bigint AS position;

-- name: SampleRuns :many
SELECT r.tenant_id, r.id FROM servo.runs r WHERE (@all_tenants::bool OR r.tenant_id = @tenant_id::uuid) ORDER BY random() LIMIT @most::int;

-- name: VerifyEvents :many
-- Each stream by its versions, the run's own before those of its tasks. Neither positions nor
-- transaction ids order a stream: sessions cache positions, and a transaction may have its id long
-- before it gets the lock that orders it.
SELECT e.tenant_id, e.run_id, e.subject_id, e.position, e.version, e.recorded_at, e.schema, e.type, e.actor, e.trace, e.data
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS n
JOIN   servo.run_events e ON e.tenant_id = n.tenant_id AND e.run_id = n.id
ORDER  BY e.tenant_id, e.run_id, e.subject_id <> e.run_id, e.subject_id, e.version, e.position, e.ordinal;

-- name: VerifyOrphans :many
-- Rows without their run, counted for each table and run; the owner is the tenant with a run of that
-- id, if there is one.
WITH owned AS (
    SELECT 'run_events'::text AS source, x.tenant_id, x.run_id FROM servo.run_events x
    UNION ALL SELECT 'tasks', x.tenant_id, x.run_id FROM servo.tasks x
    UNION ALL SELECT 'edges', x.tenant_id, x.run_id FROM servo.edges x
    UNION ALL SELECT 'waiting', x.tenant_id, x.run_id FROM servo.waiting x
    UNION ALL SELECT 'ready_q', x.tenant_id, x.run_id FROM servo.ready_q x
    UNION ALL SELECT 'pool_q', x.tenant_id, x.run_id FROM servo.pool_q x
    UNION ALL SELECT 'leases', x.tenant_id, x.run_id FROM servo.leases x
    UNION ALL SELECT 'retry_q', x.tenant_id, x.run_id FROM servo.retry_q x
    UNION ALL SELECT 'live_runs', x.tenant_id, x.run_id FROM servo.live_runs x
    UNION ALL SELECT 'cones', x.tenant_id, x.run_id FROM servo.cones x
    UNION ALL SELECT 'partition_holds', x.tenant_id, x.run_id FROM servo.partition_holds x
    UNION ALL SELECT 'partition_waits', x.tenant_id, x.run_id FROM servo.partition_waits x
), orphan AS (
    SELECT x.source, x.tenant_id, x.run_id FROM owned x
    WHERE  (@all_tenants::bool OR x.tenant_id = @tenant_id::uuid)
    AND    NOT EXISTS (SELECT FROM servo.runs r WHERE r.tenant_id = x.tenant_id AND r.id = x.run_id)
)
SELECT o.source, o.tenant_id, o.run_id, o.lost, r.tenant_id AS owner
FROM   (SELECT source, tenant_id, run_id, count(*)::bigint AS lost FROM orphan GROUP BY source, tenant_id, run_id) AS o
LEFT   JOIN servo.runs r ON r.id = o.run_id
ORDER  BY o.tenant_id, o.run_id, o.source;

-- name: VerifyRunIDs :many
-- Ids of runs of more than one tenant.
SELECT r.tenant_id, r.id
FROM   servo.runs r
WHERE  r.id IN (SELECT d.id FROM servo.runs d GROUP BY d.id HAVING count(*) > 1)
ORDER  BY r.id, r.tenant_id;

-- name: VerifyPositions :many
SELECT p.position::bigint AS position, count(*)::int AS events
FROM   (SELECT x.position FROM servo.run_event_rows x UNION ALL SELECT y.position FROM servo.entity_events y) AS p
GROUP  BY p.position
HAVING count(*) > 1;

-- name: VerifyClaimTokens :many
-- Tokens of more than one attempt.
SELECT (e.data ->> 'token')::text AS token, count(*)::int AS claims
FROM   servo.run_events e
WHERE  e.type = 'task.claimed'
GROUP  BY e.data ->> 'token'
HAVING count(*) > 1;

-- name: VerifyLeaseTokens :many
SELECT l.tenant_id, l.run_id, l.task_id, l.token
FROM   servo.leases l
WHERE  l.token IN (SELECT d.token FROM servo.leases d GROUP BY d.token HAVING count(*) > 1)
ORDER  BY l.token, l.run_id, l.task_id;

-- name: VerifyEntityEvents :many
SELECT e.tenant_id, e.subject_id AS run_id, e.subject_id, e.position, e.version, e.recorded_at, e.schema, e.type, e.actor, e.trace, e.data
FROM   servo.entity_events e
WHERE  e.tenant_id = ANY(@tenant_ids::uuid[])
ORDER  BY e.tenant_id, e.subject_id, e.version;

-- name: VerifyPlatformEvents :many
SELECT e.subject, e.position, e.version, e.recorded_at, e.schema, e.type, e.actor, e.data
FROM   servo.platform_events e
ORDER  BY e.subject, e.version;

-- name: VerifyLedger :many
-- Entries of the ledger that contradict the runs or each other. A slot is kept longer than its run,
-- whose partition may be deleted: a run is in the partition of the time when its slot was decided.
SELECT l.wrong::text AS wrong, l.tenant_id, l.config_id, l.at::timestamptz AS at, l.run_id
FROM   (SELECT 'run without slot' AS wrong, r.tenant_id, r.config_id, r.slot_at AS at, r.id AS run_id FROM servo.runs r
        WHERE  r.slot_at IS NOT NULL
        AND    NOT EXISTS (SELECT FROM servo.slots s
                           WHERE s.tenant_id = r.tenant_id AND s.config_id = r.config_id AND s.slot_at = r.slot_at AND s.run_id = r.id)
        UNION ALL
        SELECT 'slot without run', s.tenant_id, s.config_id, s.slot_at, s.run_id FROM servo.slots s
        WHERE  to_regclass('servo.runs_' || to_char(s.decided_at AT TIME ZONE 'UTC', 'YYYY_MM')) IS NOT NULL
        AND    NOT EXISTS (SELECT FROM servo.runs r
                           WHERE r.tenant_id = s.tenant_id AND r.id = s.run_id AND r.config_id = s.config_id AND r.slot_at = s.slot_at)
        UNION ALL
        SELECT 'slot in range', s.tenant_id, s.config_id, s.slot_at, s.run_id FROM servo.slot_ranges x
        JOIN   servo.slots s ON s.tenant_id = x.tenant_id AND s.config_id = x.config_id AND s.slot_at BETWEEN x.from_at AND x.to_at
        UNION ALL
        SELECT 'ranges overlap', o.tenant_id, o.config_id, o.from_at, '00000000-0000-0000-0000-000000000000'::uuid
        FROM   (SELECT x.tenant_id, x.config_id, x.from_at,
                       lag(x.to_at) OVER (PARTITION BY x.tenant_id, x.config_id ORDER BY x.from_at) AS before FROM servo.slot_ranges x) AS o
        WHERE  o.before >= o.from_at
        UNION ALL
        SELECT 'slot without config', s.tenant_id, s.config_id, s.slot_at, s.run_id FROM servo.slots s
        WHERE  NOT EXISTS (SELECT FROM servo.configs c WHERE c.tenant_id = s.tenant_id AND c.id = s.config_id)
        UNION ALL
        SELECT 'range without config', x.tenant_id, x.config_id, x.from_at, '00000000-0000-0000-0000-000000000000'::uuid FROM servo.slot_ranges x
        WHERE  NOT EXISTS (SELECT FROM servo.configs c WHERE c.tenant_id = x.tenant_id AND c.id = x.config_id)) AS l
WHERE  (@all_tenants::bool OR l.tenant_id = @tenant_id::uuid)
ORDER  BY l.tenant_id, l.config_id, l.at, l.wrong;

-- name: VerifyEntityOrphans :many
SELECT o.source::text AS source, o.tenant_id, count(*)::bigint AS lost
FROM   (SELECT 'entity_events' AS source, x.tenant_id FROM servo.entity_events x
        UNION ALL
        SELECT 'workspaces', y.tenant_id FROM servo.workspaces y
        UNION ALL
        SELECT 'deployments', z.tenant_id FROM servo.deployments z
        UNION ALL
        SELECT 'asset_pauses', p.tenant_id FROM servo.asset_pauses p
        UNION ALL
        SELECT 'event_inbox', e.tenant_id FROM servo.event_inbox e
        UNION ALL
        SELECT 'templates', q.tenant_id FROM servo.templates q
        UNION ALL
        SELECT 'configs', c.tenant_id FROM servo.configs c
        UNION ALL
        SELECT 'alerts', l.tenant_id FROM servo.alerts l
        UNION ALL
        SELECT 'alert_channels', h.tenant_id FROM servo.alert_channels h
        UNION ALL
        SELECT 'subscriptions', u.tenant_id FROM servo.subscriptions u
        UNION ALL
        SELECT 'api_keys', k.tenant_id FROM servo.api_keys k
        UNION ALL
        SELECT 'backfills', b.tenant_id FROM servo.backfills b
        UNION ALL
        SELECT 'backfill_chunks', d.tenant_id FROM servo.backfill_chunks d
        UNION ALL
        SELECT 'audit_log', g.tenant_id FROM servo.audit_log g) AS o
WHERE  (@all_tenants::bool OR o.tenant_id = @tenant_id::uuid)
AND    o.tenant_id <> '00000000-0000-0000-0000-000000000000' -- the installation
AND    NOT EXISTS (SELECT FROM servo.tenants t WHERE t.id = o.tenant_id)
GROUP  BY o.source, o.tenant_id
ORDER  BY o.tenant_id, o.source;

-- name: ForeignRuns :many
-- Rows with the id of a run and another tenant. The tenant is the first column of every key, so this
-- reads whole partitions: repair executes it before it locks rows.
SELECT r.tenant_id FROM servo.runs r WHERE r.id = @run_id::uuid AND r.tenant_id <> @tenant_id::uuid;

-- name: ForeignTasks :many
SELECT t.tenant_id, t.id FROM servo.tasks t WHERE t.run_id = @run_id::uuid AND t.tenant_id <> @tenant_id::uuid;

-- name: ForeignEdges :many
SELECT e.tenant_id, e.upstream_id, e.task_id FROM servo.edges e WHERE e.run_id = @run_id::uuid AND e.tenant_id <> @tenant_id::uuid;

-- name: ForeignEvents :one
SELECT count(*)::int AS events FROM servo.run_events e WHERE e.run_id = @run_id::uuid AND e.tenant_id <> @tenant_id::uuid;

-- name: RepairRun :exec
-- Every column from the events. The row is updated in place, never replaced: other transactions wait
-- for its lock and must find it.
INSERT INTO servo.runs (tenant_id, id, workspace_id, deployment_id, parent_run_id, created_at, started_at, finished_at, version, total,
        remaining, succeeded, failed, skipped, cancelled, state, priority, timed_out, cancel_reason, pipeline, trigger_type,
        triggered_by, fingerprint, parameters, retry, trace, config_id, slot_at, labels, start_by, start_limit_s, late, window_of, released, divided, warned, quarantined)
VALUES (@tenant_id::uuid, @id::uuid, @workspace_id::uuid, @deployment_id::uuid, sqlc.narg(parent_run_id)::uuid, @created_at::timestamptz,
        sqlc.narg(started_at)::timestamptz, sqlc.narg(finished_at)::timestamptz, @version::int, @total::int, @remaining::int,
        @succeeded::int, @failed::int, @skipped::int, @cancelled::int, @state::smallint, @priority::smallint, @timed_out::bool,
        @cancel_reason::text, @pipeline::text, @trigger_type::text, @triggered_by::text, @fingerprint::text,
        nullif(@parameters::text, '')::jsonb, nullif(@retry::text, '')::jsonb, @trace::text, sqlc.narg(config_id)::uuid,
        sqlc.narg(slot_at)::timestamptz, @labels::text, sqlc.narg(start_by)::timestamptz, @start_limit_s::int, @late::bool,
        nullif(@window_of::text, '')::jsonb, @released::bool, @divided::bool, @warned::bool, @quarantined::int)
ON CONFLICT (tenant_id, id) DO UPDATE
SET    workspace_id = excluded.workspace_id, deployment_id = excluded.deployment_id, parent_run_id = excluded.parent_run_id,
       created_at = excluded.created_at, started_at = excluded.started_at, finished_at = excluded.finished_at,
       version = excluded.version, total = excluded.total, remaining = excluded.remaining, succeeded = excluded.succeeded,
       failed = excluded.failed, skipped = excluded.skipped, cancelled = excluded.cancelled, state = excluded.state,
       priority = excluded.priority, timed_out = excluded.timed_out, cancel_reason = excluded.cancel_reason,
       pipeline = excluded.pipeline, trigger_type = excluded.trigger_type, triggered_by = excluded.triggered_by,
       fingerprint = excluded.fingerprint, parameters = excluded.parameters, retry = excluded.retry, trace = excluded.trace,
       config_id = excluded.config_id, slot_at = excluded.slot_at, labels = excluded.labels,
       start_by = excluded.start_by, start_limit_s = excluded.start_limit_s, late = excluded.late, window_of = excluded.window_of,
       released = excluded.released, divided = excluded.divided, warned = excluded.warned, quarantined = excluded.quarantined;

-- name: RepairTasks :exec
-- Whole rows, live (state 0) or ended. Wrong rows were deleted before.
INSERT INTO servo.tasks (tenant_id, run_id, id, created_at, finished_at, token, ix, timeout_s, version, attempt, failures, fan_outs, state,
        priority, late_result, asset, partition, pool, outcome, cursor, result, failure, upstream, inherited,
        series, first_ordinal, last_ordinal)
SELECT n.tenant_id, n.run_id, n.id, n.created_at, CASE WHEN n.state > 0 THEN n.finished_at END, CASE WHEN n.state > 0 THEN n.token END,
       n.ix, n.timeout_s, CASE WHEN n.state > 0 THEN n.version END, CASE WHEN n.state > 0 THEN n.attempt END,
       CASE WHEN n.state > 0 THEN n.failures END, CASE WHEN n.state > 0 THEN n.fan_outs END, nullif(n.state, 0), n.priority,
       n.late_result, n.asset, n.partition, n.pool, nullif(n.outcome, ''), nullif(n.cursor, ''), nullif(n.result, '')::jsonb,
       nullif(n.failure, '')::jsonb, nullif(n.upstream, '')::uuid[], nullif(n.inherited, '')::uuid[],
       n.series, nullif(n.first_ordinal, @no_ordinal::bigint), nullif(n.last_ordinal, @no_ordinal::bigint)
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@ids::uuid[]) AS id,
               unnest(@created_ats::timestamptz[]) AS created_at, unnest(@finished_ats::timestamptz[]) AS finished_at,
               unnest(@tokens::bigint[]) AS token, unnest(@ixs::int[]) AS ix, unnest(@timeouts::int[]) AS timeout_s,
               unnest(@versions::int[]) AS version, unnest(@attempts::int[]) AS attempt, unnest(@failure_counts::int[]) AS failures,
               unnest(@fan_outs::int[]) AS fan_outs, unnest(@states::smallint[]) AS state, unnest(@priorities::smallint[]) AS priority,
               unnest(@late_results::bool[]) AS late_result, unnest(@assets::text[]) AS asset, unnest(@partitions::text[]) AS partition,
               unnest(@pools::text[]) AS pool, unnest(@outcomes::text[]) AS outcome, unnest(@cursors::text[]) AS cursor,
               unnest(@results::text[]) AS result, unnest(@failures::text[]) AS failure, unnest(@upstreams::text[]) AS upstream,
               unnest(@inheritances::text[]) AS inherited, unnest(@series::text[]) AS series,
               unnest(@first_ordinals::bigint[]) AS first_ordinal, unnest(@last_ordinals::bigint[]) AS last_ordinal) AS n;

-- name: DropRuns :exec
DELETE FROM servo.runs r USING unnest(@tenant_ids::uuid[]) AS n(tenant_id) WHERE r.tenant_id = n.tenant_id AND r.id = @run_id::uuid;

-- name: DropLiveRuns :exec
-- Of any tenant: the correct row is inserted afterwards.
DELETE FROM servo.live_runs WHERE run_id = @run_id::uuid;

-- name: DropTasks :exec
DELETE FROM servo.tasks t
USING  (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@ids::uuid[]) AS id) AS n
WHERE  t.tenant_id = n.tenant_id AND t.run_id = n.run_id AND t.id = n.id;

-- name: DropEdges :exec
DELETE FROM servo.edges e
USING  (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@upstream_ids::uuid[]) AS upstream_id,
               unnest(@task_ids::uuid[]) AS task_id) AS n
WHERE  e.tenant_id = n.tenant_id AND e.run_id = n.run_id AND e.upstream_id = n.upstream_id AND e.task_id = n.task_id;

-- name: VerifyTotals :many
-- Sums of a tenant that differ from its runs and their breaches.
WITH kept AS (
    SELECT x.tenant_id, x.day, x.labels, sum(x.ended) AS ended, sum(x.succeeded) AS succeeded, sum(x.failed) AS failed, sum(x.timed_out) AS timed_out,
           sum(x.cancelled) AS cancelled, sum(x.started) AS started, sum(x.seconds) AS seconds, sum(x.breached) AS breached, sum(x.breaches) AS breaches
    FROM   (SELECT t.tenant_id, t.day, t.labels, t.ended, t.succeeded, t.failed, t.timed_out, t.cancelled, t.started, t.seconds, t.breached, t.breaches
            FROM   servo.run_totals t WHERE @all_tenants::bool OR t.tenant_id = @tenant_id::uuid
            UNION ALL
            SELECT d.tenant_id, d.day, d.labels, d.ended, d.succeeded, d.failed, d.timed_out, d.cancelled, d.started, d.seconds, d.breached, d.breaches
            FROM   servo.run_deltas d WHERE @all_tenants::bool OR d.tenant_id = @tenant_id::uuid) AS x
    GROUP  BY x.tenant_id, x.day, x.labels
), counted AS (
    SELECT y.tenant_id, y.day, y.labels, sum(y.ended) AS ended, sum(y.succeeded) AS succeeded, sum(y.failed) AS failed, sum(y.timed_out) AS timed_out,
           sum(y.cancelled) AS cancelled, sum(y.started) AS started, sum(y.seconds) AS seconds, sum(y.breached) AS breached, sum(y.breaches) AS breaches
    FROM   (SELECT r.tenant_id, (r.finished_at AT TIME ZONE 'UTC')::date AS day, r.labels, count(*) AS ended,
                   count(*) FILTER (WHERE r.state = 10) AS succeeded, count(*) FILTER (WHERE r.state = 11) AS failed,
                   count(*) FILTER (WHERE r.state = 12) AS timed_out, count(*) FILTER (WHERE r.state = 13) AS cancelled, count(r.started_at) AS started,
                   coalesce(sum(greatest(extract(epoch FROM r.finished_at - r.started_at), 0)), 0)::float8 AS seconds,
                   count(*) FILTER (WHERE r.late OR r.timed_out) AS breached, 0 AS breaches
            FROM   servo.runs r
            WHERE  r.state >= 10 AND r.finished_at IS NOT NULL AND (@all_tenants::bool OR r.tenant_id = @tenant_id::uuid)
            GROUP  BY 1, 2, 3
            UNION ALL
            SELECT e.tenant_id, (e.recorded_at AT TIME ZONE 'UTC')::date, r.labels, 0, 0, 0, 0, 0, 0, 0, 0, count(*)
            FROM   servo.run_events e
            JOIN   servo.runs r ON r.tenant_id = e.tenant_id AND r.id = e.run_id
            WHERE  e.type = 'run.breached' AND (@all_tenants::bool OR e.tenant_id = @tenant_id::uuid)
            GROUP  BY 1, 2, 3) AS y
    GROUP  BY y.tenant_id, y.day, y.labels
), compared AS (
    SELECT coalesce(k.tenant_id, t.tenant_id) AS tenant_id, coalesce(k.day, t.day) AS day, coalesce(k.labels, t.labels) AS labels, c.name,
           c.got, c.want
    FROM   kept k
    FULL   JOIN counted t ON t.tenant_id = k.tenant_id AND t.day = k.day AND t.labels = k.labels
    CROSS  JOIN LATERAL (SELECT unnest(ARRAY['ended', 'succeeded', 'failed', 'timed_out', 'cancelled', 'started', 'seconds', 'breached', 'breaches']) AS name,
                                unnest(ARRAY[k.ended, k.succeeded, k.failed, k.timed_out, k.cancelled, k.started, k.seconds, k.breached, k.breaches]::float8[]) AS got,
                                unnest(ARRAY[t.ended, t.succeeded, t.failed, t.timed_out, t.cancelled, t.started, t.seconds, t.breached, t.breaches]::float8[]) AS want) AS c
)
SELECT x.tenant_id::uuid AS tenant_id, x.day::text AS day, x.labels::text AS labels, x.name::text AS name,
       coalesce(x.got, 0)::float8 AS got, coalesce(x.want, 0)::float8 AS want
FROM   compared x
WHERE  abs(coalesce(x.got, 0) - coalesce(x.want, 0)) > 0.001 + 1e-9 * abs(coalesce(x.want, 0))
ORDER  BY x.tenant_id, x.day, x.labels, x.name;

-- name: VerifyManifestDigests :many
-- The digests of all manifests, stored or referred to.
SELECT d.digest FROM servo.deployments d UNION SELECT r.digest FROM servo.releases r UNION SELECT m.digest FROM servo.manifests m ORDER BY 1;

-- name: VerifyPartitionEnds :many
-- The ends of tasks with partitions, of each asset and series in the order in which they ended.
SELECT t.tenant_id, r.workspace_id, t.asset, t.series, t.first_ordinal, t.last_ordinal, (t.state = 10)::bool AS succeeded
FROM   servo.tasks t
JOIN   servo.runs r ON r.tenant_id = t.tenant_id AND r.id = t.run_id
WHERE  (@all_tenants::bool OR t.tenant_id = @tenant_id::uuid) AND t.first_ordinal IS NOT NULL AND t.state IN (10, 11)
ORDER  BY t.tenant_id, r.workspace_id, t.asset, t.series, t.finished_at, t.token;

-- name: VerifyHolds :many
-- Holds that differ from the tasks in the queue tables, holds that overlap, and waits without a hold. A
-- ready task may have its hold: from an earlier admission.
WITH admitted AS MATERIALIZED (
    SELECT q.tenant_id, q.run_id, q.task_id, true AS holds FROM servo.pool_q q
    UNION ALL SELECT q.tenant_id, q.run_id, q.task_id, true FROM servo.leases q
    UNION ALL SELECT q.tenant_id, q.run_id, q.task_id, true FROM servo.retry_q q
    UNION ALL SELECT q.tenant_id, q.run_id, q.task_id, q.attempt > 0 FROM servo.ready_q q
), wanted AS MATERIALIZED (
    SELECT t.tenant_id, r.workspace_id, t.asset, t.series, t.first_ordinal AS first, t.last_ordinal AS last, t.run_id, t.id AS task_id, a.holds
    FROM   admitted a
    JOIN   servo.runs r ON r.tenant_id = a.tenant_id AND r.id = a.run_id AND r.divided
    JOIN   servo.tasks t ON t.tenant_id = a.tenant_id AND t.run_id = a.run_id AND t.id = a.task_id
    WHERE  t.first_ordinal IS NOT NULL AND (@all_tenants::bool OR a.tenant_id = @tenant_id::uuid)
), found AS MATERIALIZED (
    SELECT h.*, lag(h.last) OVER (PARTITION BY h.tenant_id, h.workspace_id, h.asset, h.series ORDER BY h.first) AS before
    FROM   servo.partition_holds h
    WHERE  @all_tenants::bool OR h.tenant_id = @tenant_id::uuid
)
SELECT w.tenant_id, w.run_id, w.task_id, 'missing'::text AS problem
FROM   wanted w
WHERE  w.holds AND NOT EXISTS (SELECT FROM found f WHERE f.tenant_id = w.tenant_id AND f.run_id = w.run_id AND f.task_id = w.task_id)
UNION ALL
SELECT f.tenant_id, f.run_id, f.task_id, 'surplus'
FROM   found f
WHERE  NOT EXISTS (SELECT FROM wanted w WHERE w.tenant_id = f.tenant_id AND w.run_id = f.run_id AND w.task_id = f.task_id AND w.workspace_id = f.workspace_id
                   AND w.asset = f.asset AND w.series = f.series AND w.first = f.first AND w.last = f.last)
UNION ALL
SELECT f.tenant_id, f.run_id, f.task_id, 'overlap' FROM found f WHERE f.before >= f.first
UNION ALL
SELECT x.tenant_id, x.run_id, x.task_id, 'wait'
FROM   servo.partition_waits x
WHERE  (@all_tenants::bool OR x.tenant_id = @tenant_id::uuid)
AND    (NOT EXISTS (SELECT FROM found f WHERE f.tenant_id = x.tenant_id AND f.run_id = x.holder_run_id AND f.task_id = x.holder_task_id)
        OR NOT EXISTS (SELECT FROM servo.ready_q q WHERE q.tenant_id = x.tenant_id AND q.run_id = x.run_id AND q.task_id = x.task_id))
ORDER  BY 1, 2, 3, 4;

-- name: VerifyPointers :many
-- Pointers that name a version which is not promoted, or that are behind a promoted one.
SELECT p.tenant_id, p.workspace_id, p.asset, p.partition, p.current AS token, coalesce(m.state, 'missing')::text AS found
FROM   servo.pointers p
LEFT   JOIN servo.materializations m ON m.tenant_id = p.tenant_id AND m.workspace_id = p.workspace_id AND m.asset = p.asset AND m.token = p.current
WHERE  (@all_tenants::bool OR p.tenant_id = @tenant_id::uuid) AND p.current > 0 AND (m.state IS NULL OR m.state <> 'PROMOTED')
UNION  ALL
SELECT m.tenant_id, m.workspace_id, m.asset, m.partition, m.token, 'highest ' || coalesce(p.highest, 0)
FROM   servo.materializations m
LEFT   JOIN servo.pointers p ON p.tenant_id = m.tenant_id AND p.workspace_id = m.workspace_id AND p.asset = m.asset AND p.partition = m.partition
WHERE  (@all_tenants::bool OR m.tenant_id = @tenant_id::uuid) AND m.state = 'PROMOTED' AND NOT m.detail ? 'partitions' AND (p.highest IS NULL OR p.highest < m.token);

-- name: DropMaterializations :exec
DELETE FROM servo.materializations m
USING  (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS n
WHERE  m.tenant_id = n.tenant_id AND m.id = n.id;
