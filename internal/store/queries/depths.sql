-- Counts over all tenants for operators. Each count stops at `most`, so that the cost does not grow
-- with the queue.

-- name: QueueDepths :one
SELECT (SELECT count(*) FROM (SELECT FROM servo.waiting LIMIT @most::int) AS q)::int AS pending,
       (SELECT count(*) FROM (SELECT FROM servo.ready_q LIMIT @most::int) AS q)::int AS ready,
       (SELECT count(*) FROM (SELECT FROM servo.pool_q LIMIT @most::int) AS q)::int AS queued,
       l.dispatched::int AS dispatched, l.running::int AS running,
       (SELECT count(*) FROM (SELECT FROM servo.retry_q LIMIT @most::int) AS q)::int AS retry_wait
FROM   (SELECT count(*) FILTER (WHERE q.started_at IS NULL) AS dispatched, count(q.started_at) AS running
        FROM   (SELECT x.started_at FROM servo.leases x LIMIT @most::int) AS q) AS l;

-- name: QueuedByPool :many
-- From one pool to the next along the index, so that a long queue hides no other.
WITH RECURSIVE pools AS (
    (SELECT q.pool FROM servo.pool_q q ORDER BY q.pool LIMIT 1)
    UNION ALL
    SELECT n.pool
    FROM   pools p
    JOIN   LATERAL (SELECT q.pool FROM servo.pool_q q WHERE q.pool > p.pool ORDER BY q.pool LIMIT 1) AS n ON true
)
SELECT p.pool::text AS pool, c.tasks::int AS tasks
FROM   pools p
JOIN   LATERAL (SELECT count(*) AS tasks FROM (SELECT FROM servo.pool_q q WHERE q.pool = p.pool LIMIT @most::int) AS x) AS c ON true
LIMIT  @pools::int;

-- name: LeasedByPool :many
-- There are as many leases as workers have capacity, without an index by pool: up to `most` are read.
SELECT q.pool, count(*)::int AS tasks FROM (SELECT l.pool FROM servo.leases l LIMIT @most::int) AS q GROUP BY q.pool ORDER BY q.pool LIMIT @pools::int;

-- name: Duties :many
-- The duty of backfills is held only while a backfill has work, and is returned only then.
SELECT d.name, d.holder, d.epoch, coalesce(nullif(r.expires_at, '-infinity'), '0001-01-01 00:00:00+00')::timestamptz AS expires_at
FROM   servo.duties d
JOIN   servo.duty_renewals r ON r.name = d.name
WHERE  d.name <> 'backfills' OR r.expires_at > servo.clock()
ORDER  BY d.name;
