-- name: TenantTotals :many
-- The sums of a tenant by day and labels: merged totals and deltas.
SELECT x.day, x.labels, sum(x.ended)::bigint AS ended, sum(x.succeeded)::bigint AS succeeded, sum(x.failed)::bigint AS failed,
       sum(x.timed_out)::bigint AS timed_out, sum(x.cancelled)::bigint AS cancelled, sum(x.started)::bigint AS started,
       sum(x.seconds)::float8 AS seconds, sum(x.breached)::bigint AS breached, sum(x.breaches)::bigint AS breaches
FROM   (SELECT t.day, t.labels, t.ended, t.succeeded, t.failed, t.timed_out, t.cancelled, t.started, t.seconds, t.breached, t.breaches
        FROM   servo.run_totals t WHERE t.tenant_id = @tenant_id::uuid AND t.day BETWEEN @from_day::date AND @to_day::date
        UNION ALL
        SELECT d.day, d.labels, d.ended, d.succeeded, d.failed, d.timed_out, d.cancelled, d.started, d.seconds, d.breached, d.breaches
        FROM   servo.run_deltas d WHERE d.tenant_id = @tenant_id::uuid AND d.day BETWEEN @from_day::date AND @to_day::date) AS x
GROUP  BY x.day, x.labels
ORDER  BY x.day, x.labels;

-- name: TenantHours :many
-- The sums of a tenant by hour: merged hours and deltas.
SELECT x.hour::timestamptz AS hour, sum(x.succeeded)::bigint AS succeeded, sum(x.failed)::bigint AS failed, sum(x.timed_out)::bigint AS timed_out,
       sum(x.cancelled)::bigint AS cancelled, sum(x.started)::bigint AS started, sum(x.seconds)::float8 AS seconds, sum(x.breaches)::bigint AS breaches,
       max(x.delay)::float8 AS delay
FROM   (SELECT h.hour, h.succeeded, h.failed, h.timed_out, h.cancelled, h.started, h.seconds, h.breaches, h.delay
        FROM   servo.run_hours h WHERE h.tenant_id = @tenant_id::uuid AND h.hour BETWEEN @from_hour::timestamptz AND @to_hour::timestamptz
        UNION ALL
        SELECT z.at, d.succeeded, d.failed, d.timed_out, d.cancelled, d.started, d.seconds, d.breaches, d.delay
        FROM   servo.run_deltas d
        CROSS  JOIN LATERAL (SELECT (d.day + make_interval(hours => d.hour)) AT TIME ZONE 'UTC' AS at) AS z
        WHERE  d.tenant_id = @tenant_id::uuid AND z.at BETWEEN @from_hour::timestamptz AND @to_hour::timestamptz) AS x
GROUP  BY x.hour
ORDER  BY x.hour;
