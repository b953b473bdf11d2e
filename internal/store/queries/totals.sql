-- Promises about runs, and sums of ended runs.

-- name: LateRuns :many
-- Runs that should have begun by now. Candidates only: each is checked again under its lock.
SELECT l.tenant_id, l.run_id FROM servo.live_runs l WHERE l.late_at < @now::timestamptz ORDER BY l.late_at LIMIT @most::int;

-- name: BegunInTime :many
-- Which of these runs had a task that was started in time.
SELECT n.run_id::uuid AS run_id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@start_bys::timestamptz[]) AS start_by) AS n
JOIN   LATERAL (SELECT FROM servo.run_events e
                WHERE e.tenant_id = n.tenant_id AND e.run_id = n.run_id AND e.recorded_at <= n.start_by
                AND   (e.type = 'task.started' OR e.type = 'task.claimed' AND (e.data->>'started')::bool)
                LIMIT 1) AS begun ON true;

-- name: LookedLate :exec
-- The start of these runs needs no other check.
UPDATE servo.live_runs l
SET    late_at = NULL, breaches = n.breaches
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@breaches::smallint[]) AS breaches) AS n
WHERE  l.tenant_id = ANY (ARRAY[n.tenant_id]) AND l.run_id = n.run_id;

-- name: InsertRunDeltas :exec
-- The additions of one transaction to the totals.
INSERT INTO servo.run_deltas (tenant_id, day, hour, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches, delay)
SELECT unnest(@tenant_ids::uuid[]), @day::date, @hour::smallint, unnest(@label_sets::text[]), unnest(@endeds::int[]), unnest(@succeededs::int[]),
       unnest(@faileds::int[]), unnest(@timed_outs::int[]), unnest(@cancelleds::int[]), unnest(@starteds::int[]), unnest(@seconds::float8[]),
       unnest(@breacheds::int[]), unnest(@breaches::int[]), unnest(@delays::float8[]);

-- name: MergeRunDeltas :one
-- Merges unlocked deltas, the oldest first, by day and by hour. Rows are locked in the order of their
-- keys, the totals before the hours, the hours of all tenants together first.
WITH taken AS (
    DELETE FROM servo.run_deltas
    WHERE  id = ANY (ARRAY(SELECT d.id FROM servo.run_deltas d ORDER BY d.id LIMIT @most::int FOR UPDATE SKIP LOCKED))
    RETURNING tenant_id, day, hour, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches, delay
), merged AS (
    INSERT INTO servo.run_totals AS t (tenant_id, day, labels, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
    SELECT x.tenant_id, x.day, x.labels, sum(x.ended), sum(x.succeeded), sum(x.failed), sum(x.timed_out), sum(x.cancelled), sum(x.started),
           sum(x.seconds), sum(x.breached), sum(x.breaches)
    FROM   taken x
    GROUP  BY x.tenant_id, x.day, x.labels
    ORDER  BY x.tenant_id, x.day, x.labels
    ON CONFLICT (tenant_id, day, labels_key) DO UPDATE
    SET    ended = t.ended + excluded.ended, succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed,
           timed_out = t.timed_out + excluded.timed_out, cancelled = t.cancelled + excluded.cancelled, started = t.started + excluded.started,
           seconds = t.seconds + excluded.seconds, breached = t.breached + excluded.breached, breaches = t.breaches + excluded.breaches
    RETURNING 1
), hours AS (
    INSERT INTO servo.run_hours AS h (tenant_id, hour, succeeded, failed, timed_out, cancelled, started, seconds, breaches, delay)
    SELECT y.owner, y.hour, sum(y.succeeded), sum(y.failed), sum(y.timed_out), sum(y.cancelled), sum(y.started), sum(y.seconds), sum(y.breaches), max(y.delay)
    FROM   (SELECT unnest(ARRAY['00000000-0000-0000-0000-000000000000', x.tenant_id]::uuid[]) AS owner,
                   (x.day + make_interval(hours => x.hour)) AT TIME ZONE 'UTC' AS hour,
                   x.succeeded, x.failed, x.timed_out, x.cancelled, x.started, x.seconds, x.breaches, x.delay
            FROM   taken x
            WHERE  (SELECT count(*) FROM merged) > 0) AS y
    GROUP  BY y.owner, y.hour
    ORDER  BY y.owner, y.hour
    ON CONFLICT (tenant_id, hour) DO UPDATE
    SET    succeeded = h.succeeded + excluded.succeeded, failed = h.failed + excluded.failed, timed_out = h.timed_out + excluded.timed_out,
           cancelled = h.cancelled + excluded.cancelled, started = h.started + excluded.started, seconds = h.seconds + excluded.seconds,
           breaches = h.breaches + excluded.breaches, delay = greatest(h.delay, excluded.delay)
)
SELECT count(*)::int AS taken FROM taken;

-- name: TodayTotals :one
-- The outcomes of today's runs, and the number of live runs, up to most.
SELECT coalesce(sum(x.ended), 0)::bigint AS ended, coalesce(sum(x.failed + x.timed_out), 0)::bigint AS failed,
       coalesce(sum(x.started), 0)::bigint AS started, coalesce(sum(x.seconds), 0)::float8 AS seconds, coalesce(sum(x.breaches), 0)::bigint AS breaches,
       (SELECT count(*) FROM (SELECT FROM servo.live_runs l WHERE l.pending LIMIT @most::int) AS q)::bigint AS pending,
       (SELECT count(*) FROM (SELECT FROM servo.live_runs l WHERE NOT l.pending LIMIT @most::int) AS q)::bigint AS running
FROM   (SELECT t.ended, t.failed, t.timed_out, t.started, t.seconds, t.breaches FROM servo.run_totals t
        WHERE  t.day = @day::date
        UNION ALL
        SELECT d.ended, d.failed, d.timed_out, d.started, d.seconds, d.breaches FROM servo.run_deltas d
        WHERE  d.day = @day::date) AS x;

-- name: AllHours :many
-- The sums of all tenants by hour: merged hours and deltas.
SELECT x.hour::timestamptz AS hour, sum(x.succeeded)::bigint AS succeeded, sum(x.failed)::bigint AS failed, sum(x.timed_out)::bigint AS timed_out,
       sum(x.cancelled)::bigint AS cancelled, sum(x.started)::bigint AS started, sum(x.seconds)::float8 AS seconds, sum(x.breaches)::bigint AS breaches,
       max(x.delay)::float8 AS delay
FROM   (SELECT h.hour, h.succeeded, h.failed, h.timed_out, h.cancelled, h.started, h.seconds, h.breaches, h.delay
        FROM   servo.run_hours h WHERE h.tenant_id = '00000000-0000-0000-0000-000000000000'::uuid AND h.hour BETWEEN @from_hour::timestamptz AND @to_hour::timestamptz
        UNION ALL
        SELECT z.at, d.succeeded, d.failed, d.timed_out, d.cancelled, d.started, d.seconds, d.breaches, d.delay
        FROM   servo.run_deltas d
        CROSS  JOIN LATERAL (SELECT (d.day + make_interval(hours => d.hour)) AT TIME ZONE 'UTC' AS at) AS z
        WHERE  z.at BETWEEN @from_hour::timestamptz AND @to_hour::timestamptz) AS x
GROUP  BY x.hour
ORDER  BY x.hour;

-- name: ForgetHours :execrows
DELETE FROM servo.run_hours h
USING (
    SELECT o.tenant_id, o.hour FROM servo.run_hours o WHERE o.hour < @before::timestamptz
    ORDER  BY o.hour LIMIT @most::int FOR UPDATE SKIP LOCKED
) AS old
WHERE  h.tenant_id = old.tenant_id AND h.hour = old.hour;
