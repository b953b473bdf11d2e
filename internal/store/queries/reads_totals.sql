-- name: TenantTotals :many
-- The sums of a tenant by day and provider: what was merged, and what is not yet.
SELECT x.day, x.provider, sum(x.ended)::bigint AS ended, sum(x.succeeded)::bigint AS succeeded, sum(x.failed)::bigint AS failed,
       sum(x.timed_out)::bigint AS timed_out, sum(x.cancelled)::bigint AS cancelled, sum(x.started)::bigint AS started,
       sum(x.seconds)::float8 AS seconds, sum(x.breached)::bigint AS breached, sum(x.breaches)::bigint AS breaches
FROM   (SELECT t.day, t.provider, t.ended, t.succeeded, t.failed, t.timed_out, t.cancelled, t.started, t.seconds, t.breached, t.breaches
        FROM   servo.run_totals t WHERE t.tenant_id = @tenant_id::uuid AND t.day BETWEEN @from_day::date AND @to_day::date
        UNION ALL
        SELECT d.day, d.provider, d.ended, d.succeeded, d.failed, d.timed_out, d.cancelled, d.started, d.seconds, d.breached, d.breaches
        FROM   servo.run_deltas d WHERE d.tenant_id = @tenant_id::uuid AND d.day BETWEEN @from_day::date AND @to_day::date) AS x
GROUP  BY x.day, x.provider
ORDER  BY x.day, x.provider;
