-- Promises about runs, and the sums of those that have ended.

-- name: LateRuns :many
-- Runs that should have begun by now. Candidates only: each is looked at again under its lock.
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
-- Nobody needs to look again.
UPDATE servo.live_runs l
SET    late_at = NULL, breaches = n.breaches
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@breaches::smallint[]) AS breaches) AS n
WHERE  l.tenant_id = ANY (ARRAY[n.tenant_id]) AND l.run_id = n.run_id;

-- name: InsertRunDeltas :exec
-- What one transaction adds to the totals.
INSERT INTO servo.run_deltas (tenant_id, day, provider, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
SELECT unnest(@tenant_ids::uuid[]), @day::date, unnest(@providers::text[]), unnest(@endeds::int[]), unnest(@succeededs::int[]),
       unnest(@faileds::int[]), unnest(@timed_outs::int[]), unnest(@cancelleds::int[]), unnest(@starteds::int[]), unnest(@seconds::float8[]),
       unnest(@breacheds::int[]), unnest(@breaches::int[]);

-- name: MergeRunDeltas :one
-- Takes what nobody else takes, the oldest first, and adds it up. The totals are locked in the
-- order of their key.
WITH taken AS (
    DELETE FROM servo.run_deltas
    WHERE  id = ANY (ARRAY(SELECT d.id FROM servo.run_deltas d ORDER BY d.id LIMIT @most::int FOR UPDATE SKIP LOCKED))
    RETURNING tenant_id, day, provider, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches
), merged AS (
    INSERT INTO servo.run_totals AS t (tenant_id, day, provider, ended, succeeded, failed, timed_out, cancelled, started, seconds, breached, breaches)
    SELECT x.tenant_id, x.day, x.provider, sum(x.ended), sum(x.succeeded), sum(x.failed), sum(x.timed_out), sum(x.cancelled), sum(x.started),
           sum(x.seconds), sum(x.breached), sum(x.breaches)
    FROM   taken x
    GROUP  BY x.tenant_id, x.day, x.provider
    ORDER  BY x.tenant_id, x.day, x.provider
    ON CONFLICT (tenant_id, day, provider) DO UPDATE
    SET    ended = t.ended + excluded.ended, succeeded = t.succeeded + excluded.succeeded, failed = t.failed + excluded.failed,
           timed_out = t.timed_out + excluded.timed_out, cancelled = t.cancelled + excluded.cancelled, started = t.started + excluded.started,
           seconds = t.seconds + excluded.seconds, breached = t.breached + excluded.breached, breaches = t.breaches + excluded.breaches
)
SELECT count(*)::int AS taken FROM taken;

-- name: TodayTotals :one
-- What has become of the runs of today, and how many have not ended, no further than most.
SELECT coalesce(sum(x.ended), 0)::bigint AS ended, coalesce(sum(x.failed + x.timed_out), 0)::bigint AS failed,
       coalesce(sum(x.started), 0)::bigint AS started, coalesce(sum(x.seconds), 0)::float8 AS seconds, coalesce(sum(x.breaches), 0)::bigint AS breaches,
       (SELECT count(*) FROM (SELECT FROM servo.live_runs l WHERE l.pending LIMIT @most::int) AS q)::bigint AS pending,
       (SELECT count(*) FROM (SELECT FROM servo.live_runs l WHERE NOT l.pending LIMIT @most::int) AS q)::bigint AS running
FROM   (SELECT t.ended, t.failed, t.timed_out, t.started, t.seconds, t.breaches FROM servo.run_totals t
        WHERE  t.day = @day::date
        UNION ALL
        SELECT d.ended, d.failed, d.timed_out, d.started, d.seconds, d.breaches FROM servo.run_deltas d
        WHERE  d.day = @day::date) AS x;
