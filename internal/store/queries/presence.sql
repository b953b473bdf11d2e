-- Live servers and workers, and notices between servers. They belong to no tenant.

-- name: Notify :exec
-- A short transaction of its own: NOTIFY holds a lock of the whole cluster until its commit, so it
-- must not wait for the disk. A notice is only a hint and may be lost in a crash.
SELECT set_config('synchronous_commit', 'off', true), pg_notify('servo_wake', @payload::text);

-- name: RenewServer :one
-- Renews a server, and returns whether there are others.
WITH renewed AS (
    INSERT INTO servo.servers AS s (name, version, started_at, seen_at)
    VALUES (@name::text, @version::text, @started_at::timestamptz, @now::timestamptz)
    ON CONFLICT (name) DO UPDATE SET version = excluded.version, started_at = excluded.started_at, seen_at = excluded.seen_at
)
SELECT EXISTS (SELECT FROM servo.servers o WHERE o.name <> @name::text AND o.seen_at > @since::timestamptz) AS others;

-- name: RemoveServer :exec
DELETE FROM servo.servers WHERE name = @name::text;

-- name: Servers :many
SELECT s.name, s.version, s.started_at, s.seen_at FROM servo.servers s WHERE s.seen_at > @since::timestamptz ORDER BY s.name LIMIT @most::int;

-- name: SeeWorkers :exec
-- In the order of the key, so that two servers with the same workers do not deadlock.
INSERT INTO servo.workers AS w (name, pool, slots, capabilities, first_seen, seen_at)
SELECT n.name, n.pool, n.slots, n.capabilities, @now::timestamptz, @now::timestamptz
FROM   (SELECT unnest(@names::text[]) AS name, unnest(@pools::text[]) AS pool, unnest(@slots::int[]) AS slots,
               unnest(@capabilities::text[]) AS capabilities ORDER BY 2, 1) AS n
ON CONFLICT (pool, name) DO UPDATE
SET    slots = excluded.slots, capabilities = excluded.capabilities, seen_at = greatest(w.seen_at, excluded.seen_at),
       first_seen = CASE WHEN w.seen_at > @since::timestamptz THEN w.first_seen ELSE excluded.first_seen END;

-- name: SeeWorkersAgain :exec
-- Workers that sent a heartbeat to a server that has seen no claim of them.
UPDATE servo.workers w SET seen_at = @now::timestamptz
FROM   (SELECT o.pool, o.name FROM servo.workers o WHERE o.name = ANY(@names::text[]) ORDER BY o.pool, o.name FOR UPDATE) AS n
WHERE  w.pool = n.pool AND w.name = n.name AND w.seen_at < @now::timestamptz;

-- name: PoolCapacities :many
SELECT w.pool, count(*)::int AS workers, sum(w.slots)::bigint AS slots
FROM   servo.workers w
WHERE  w.seen_at > @since::timestamptz
GROUP  BY w.pool ORDER BY w.pool LIMIT @most::int;

-- name: Workers :many
-- A page of workers by name. Leases have no index by worker: up to `leases` are read.
SELECT w.name, array_agg(w.pool ORDER BY w.pool)::text[] AS pools, max(w.slots)::int AS slots,
       min(w.first_seen)::timestamptz AS first_seen, max(w.seen_at)::timestamptz AS seen_at, max(coalesce(l.held, 0))::int AS leases,
       coalesce(max(l.ends), '0001-01-01 00:00:00+00')::timestamptz AS leases_end_at,
       coalesce((SELECT c.capabilities FROM servo.capability_sets c WHERE c.digest = max(w.capabilities)), '{}')::text[] AS capabilities
FROM   servo.workers w
LEFT   JOIN (SELECT q.worker, count(*) AS held, max(greatest(q.expires_at, h.expires_at)) AS ends
             FROM   (SELECT x.worker, x.run_id, x.task_id, x.token, x.expires_at FROM servo.leases x LIMIT @leases::int) AS q
             LEFT   JOIN LATERAL (SELECT b.expires_at FROM servo.heartbeats b
                                  WHERE b.run_id = q.run_id AND b.task_id = q.task_id AND b.token = q.token OFFSET 0) AS h ON true
             GROUP  BY q.worker) AS l ON l.worker = w.name
WHERE  w.name > @after::text AND w.seen_at > @since::timestamptz AND (@pool::text = '' OR EXISTS
       (SELECT FROM servo.workers o WHERE o.pool = @pool::text AND o.name = w.name AND o.seen_at > @since::timestamptz))
GROUP  BY w.name ORDER BY w.name LIMIT @most::int;

-- name: ForgetWorkers :execrows
DELETE FROM servo.workers WHERE seen_at <= @since::timestamptz;

-- name: ForgetCapabilities :execrows
-- Lists that no worker of the last minutes has.
DELETE FROM servo.capability_sets c
WHERE  c.seen_at <= @since::timestamptz AND NOT EXISTS (SELECT FROM servo.workers w WHERE w.capabilities = c.digest);

-- name: ForgetServers :execrows
DELETE FROM servo.servers WHERE seen_at <= @since::timestamptz;
