-- The secret of the API, and the rate limits of tenants.

-- name: InstallationSecret :one
SELECT s.secret FROM servo.installation_secrets s WHERE s.name = @name::text;

-- name: LeaseRate :one
-- Leases calls of a rate limit to a server. Calls that passed before it had a lease always count. A
-- row of the next window comes from a server that read the clock later and committed first; a row of
-- any other window has expired.
INSERT INTO servo.rate_leases AS r (tenant_id, class, scope, window_at, leased, granted)
SELECT a.tenant_id, a.class, a.scope, a.window_at, a.debt + greatest(0, least(a.want, a.most - a.debt)), greatest(0, least(a.want, a.most - a.debt))
FROM   (SELECT @tenant_id::uuid AS tenant_id, @class::smallint AS class, @scope::text AS scope, @window_at::timestamptz AS window_at,
               @debt::int AS debt, @want::int AS want, @most::int AS most) AS a
ON CONFLICT (tenant_id, class, scope) DO UPDATE
SET    window_at = CASE WHEN r.window_at = @next_at::timestamptz THEN r.window_at ELSE excluded.window_at END,
       granted   = CASE WHEN r.window_at <> excluded.window_at AND r.window_at <> @next_at::timestamptz THEN excluded.granted
                        WHEN r.leased + excluded.leased <= @most::int THEN excluded.granted
                        WHEN r.leased + excluded.leased - excluded.granted < @most::int THEN excluded.granted - r.leased - excluded.leased + @most::int
                        ELSE 0 END,
       leased    = CASE WHEN r.window_at <> excluded.window_at AND r.window_at <> @next_at::timestamptz THEN excluded.leased
                        WHEN r.leased + excluded.leased <= @most::int THEN r.leased + excluded.leased
                        WHEN r.leased + excluded.leased - excluded.granted < @most::int THEN @most::int
                        ELSE r.leased + excluded.leased - excluded.granted END
WHERE  r.tenant_id = excluded.tenant_id
RETURNING r.window_at, r.leased, r.granted;

-- name: LockStreams :exec
-- One server at a time reports its streams of a tenant, so that the later of two reads the report of
-- the earlier.
SELECT pg_advisory_xact_lock(hashtextextended('servo.streams ' || @tenant::text, 0));

-- name: ReportStreams :one
WITH own AS (
    INSERT INTO servo.rate_streams AS r (tenant_id, holder, streams, expires_at)
    VALUES (@tenant_id::uuid, @holder::uuid, @streams::int, @expires_at::timestamptz)
    ON CONFLICT (tenant_id, holder) DO UPDATE SET streams = excluded.streams, expires_at = excluded.expires_at
)
SELECT coalesce(sum(o.streams), 0)::int AS others
FROM   servo.rate_streams o
WHERE  o.tenant_id = @tenant_id::uuid AND o.holder <> @holder::uuid AND o.expires_at > @now::timestamptz;

-- name: ForgetRateLeases :execrows
DELETE FROM servo.rate_leases WHERE window_at < @before::timestamptz;

-- name: ForgetRateStreams :execrows
DELETE FROM servo.rate_streams WHERE expires_at < @before::timestamptz;
