-- name: InsertRuns :exec
INSERT INTO servo.runs (tenant_id, id, workspace_id, deployment_id, parent_run_id, created_at, started_at, version,
                        total, remaining, state, priority, pipeline, trigger_type, triggered_by, fingerprint, parameters, retry, trace, config_id, slot_at,
                        labels, start_by, start_limit_s, late, window_of, released, divided)
SELECT unnest(@tenant_ids::uuid[]), unnest(@ids::uuid[]), unnest(@workspace_ids::uuid[]), unnest(@deployment_ids::uuid[]),
       nullif(unnest(@parent_run_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), @now::timestamptz,
       nullif(unnest(@started_ats::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@versions::int[]),
       unnest(@totals::int[]), unnest(@totals::int[]), unnest(@states::smallint[]), unnest(@priorities::smallint[]),
       unnest(@pipelines::text[]), unnest(@trigger_types::text[]), unnest(@triggered_bys::text[]), unnest(@fingerprints::text[]),
       nullif(unnest(@parameters::text[]), '')::jsonb, nullif(unnest(@retries::text[]), '')::jsonb, unnest(@traces::text[]),
       nullif(unnest(@config_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), nullif(unnest(@slot_ats::timestamptz[]), '0001-01-01 00:00:00+00'),
       unnest(@label_sets::text[]), nullif(unnest(@start_bys::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@start_limits::int[]), unnest(@lates::bool[]),
       nullif(unnest(@windows::text[]), '')::jsonb, unnest(@releaseds::bool[]), unnest(@divideds::bool[]);

-- name: InsertTasks :exec
-- upstreams and inheritances are arrays as text, since arrays of arrays must be rectangles
INSERT INTO servo.tasks (tenant_id, run_id, id, created_at, ix, timeout_s, priority, asset, partition, pool, upstream, inherited,
                         series, first_ordinal, last_ordinal)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@ids::uuid[]), @now::timestamptz, unnest(@ixs::int[]),
       unnest(@timeouts::int[]), unnest(@priorities::smallint[]), unnest(@assets::text[]), unnest(@partitions::text[]), unnest(@pools::text[]),
       nullif(unnest(@upstreams::text[]), '')::uuid[], nullif(unnest(@inheritances::text[]), '')::uuid[],
       unnest(@series::text[]), nullif(unnest(@first_ordinals::bigint[]), @no_ordinal::bigint), nullif(unnest(@last_ordinals::bigint[]), @no_ordinal::bigint);

-- name: InsertEdges :exec
INSERT INTO servo.edges (tenant_id, run_id, upstream_id, task_id)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@upstream_ids::uuid[]), unnest(@task_ids::uuid[]);

-- name: LockRunsForUpdate :many
-- The strongest mode, for a cancel: it excludes every move backward and every end.
SELECT r.*
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id ORDER BY 2) AS n
JOIN   LATERAL (SELECT * FROM servo.runs x WHERE x.tenant_id = n.tenant_id AND x.id = n.id FOR UPDATE) AS r ON true;

-- name: LockRunsForCount :many
-- For transactions that may end a task: excludes other changes of the counters until the commit.
SELECT r.*
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id ORDER BY 2) AS n
JOIN   LATERAL (SELECT * FROM servo.runs x WHERE x.tenant_id = n.tenant_id AND x.id = n.id FOR NO KEY UPDATE) AS r ON true;

-- name: LockRunsForMove :many
-- For a move backward without an end: excludes a cancel only.
SELECT r.*
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id ORDER BY 2) AS n
JOIN   LATERAL (SELECT * FROM servo.runs x WHERE x.tenant_id = n.tenant_id AND x.id = n.id FOR KEY SHARE) AS r ON true;

-- name: UpdateRuns :exec
-- tenant = ANY (ARRAY[x]) equals tenant = x, but prevents a merge join: with statistics from an empty
-- table the planner would otherwise scan the whole index for each batch.
UPDATE servo.runs r
SET    version = n.version, total = n.total, remaining = n.remaining, succeeded = n.succeeded, failed = n.failed,
       skipped = n.skipped, cancelled = n.cancelled, state = n.state, timed_out = n.timed_out, late = n.late, cancel_reason = n.cancel_reason,
       warned = n.warned, quarantined = n.quarantined,
       started_at = nullif(n.started_at, '0001-01-01 00:00:00+00'), finished_at = nullif(n.finished_at, '0001-01-01 00:00:00+00')
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id, unnest(@versions::int[]) AS version,
               unnest(@totals::int[]) AS total, unnest(@remainings::int[]) AS remaining, unnest(@succeededs::int[]) AS succeeded,
               unnest(@faileds::int[]) AS failed, unnest(@skippeds::int[]) AS skipped, unnest(@cancelleds::int[]) AS cancelled,
               unnest(@states::smallint[]) AS state, unnest(@timed_outs::bool[]) AS timed_out, unnest(@lates::bool[]) AS late,
               unnest(@cancel_reasons::text[]) AS cancel_reason, unnest(@warneds::bool[]) AS warned, unnest(@quarantineds::int[]) AS quarantined,
               unnest(@started_ats::timestamptz[]) AS started_at, unnest(@finished_ats::timestamptz[]) AS finished_at) AS n
WHERE  r.tenant_id = ANY (ARRAY[n.tenant_id]) AND r.id = n.id;

-- name: EndTasks :exec
-- One statement for a whole batch of finished tasks. Their queue rows are locked; the
-- guard makes it visible if one had ended before.
UPDATE servo.tasks t
SET    state = n.state, outcome = n.outcome, version = n.version, attempt = n.attempt, failures = n.failures, fan_outs = n.fan_outs,
       token = n.token, finished_at = n.finished_at, late_result = n.late_result, cursor = nullif(n.cursor, ''),
       result = nullif(n.result, '')::jsonb, failure = nullif(n.failure, '')::jsonb
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@ids::uuid[]) AS id,
               unnest(@states::smallint[]) AS state, unnest(@outcomes::text[]) AS outcome, unnest(@versions::int[]) AS version,
               unnest(@attempts::int[]) AS attempt, unnest(@failure_counts::int[]) AS failures, unnest(@fan_outs::int[]) AS fan_outs,
               unnest(@tokens::bigint[]) AS token, unnest(@finished_ats::timestamptz[]) AS finished_at,
               unnest(@late_results::bool[]) AS late_result, unnest(@cursors::text[]) AS cursor,
               unnest(@results::text[]) AS result, unnest(@failures::text[]) AS failure) AS n
WHERE  t.tenant_id = ANY (ARRAY[n.tenant_id]) AND t.run_id = n.run_id AND t.id = n.id AND t.state IS NULL;

-- name: InsertRunEvents :exec
-- Packed by the store: one row for each run of the transaction.
INSERT INTO servo.run_event_rows (tenant_id, run_id, recorded_at, events)
SELECT unnest(@tenant_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@recorded_ats::timestamptz[]), unnest(@events::text[])::jsonb;

-- name: InsertIdempotencyKeys :many
-- The insert comes first: an existing key wins, and the caller gets its run.
INSERT INTO servo.idempotency_keys (tenant_id, key, digest, run_id, created_at)
SELECT tenant_id, key, digest, run_id, @now::timestamptz
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@keys::text[]) AS key,
               unnest(@digests::text[]) AS digest, unnest(@run_ids::uuid[]) AS run_id) AS n
ORDER  BY tenant_id, key
ON CONFLICT DO NOTHING
RETURNING tenant_id, key;

-- name: IdempotencyKeys :many
SELECT k.tenant_id, k.key, k.digest, k.run_id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@keys::text[]) AS key) AS n
JOIN   servo.idempotency_keys k ON k.tenant_id = n.tenant_id AND k.key = n.key;

-- name: ExistingRuns :many
-- Which of these runs exist, after a commit whose answer was lost.
SELECT r.id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS n
JOIN   servo.runs r ON r.tenant_id = n.tenant_id AND r.id = n.id;

-- name: ForgetIdempotencyKeys :execrows
DELETE FROM servo.idempotency_keys WHERE created_at < @before::timestamptz;
