-- name: WriteLogs :many
-- Adds chunks to the logs of attempts whose leases are held, and counts the new bytes. An existing
-- chunk stays as it is. A chunk that was dropped, or is older than dropped chunks, is not inserted.
-- Returns the chunks whose leases are held, and then the logs that have become too long. Rows are
-- written in the order of their keys, chunks before attempt_logs, so that two servers with chunks of
-- one worker do not deadlock.
WITH held AS (
    SELECT n.nth, q.tenant_id, q.run_id, q.task_id, q.attempt, n.seq,
           coalesce(nullif(n.at, '0001-01-01 00:00:00+00'), servo.clock()) AS at, n.bytes, n.text, coalesce(b.dropped_seq, 0) AS dropped_seq
    FROM   (SELECT unnest(@nths::int[]) AS nth, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id,
                   unnest(@task_ids::uuid[]) AS task_id, unnest(@tokens::bigint[]) AS token, unnest(@seqs::bigint[]) AS seq,
                   unnest(@ats::timestamptz[]) AS at, unnest(@bytes::int[]) AS bytes, unnest(@texts::text[]) AS text) AS n
    JOIN   LATERAL (SELECT l.tenant_id, l.run_id, l.task_id, l.attempt FROM servo.leases l
                    WHERE l.tenant_id = n.tenant_id AND l.run_id = n.run_id AND l.task_id = n.task_id AND l.token = n.token OFFSET 0) AS q ON true
    LEFT   JOIN LATERAL (SELECT a.dropped_seq FROM servo.attempt_logs a
                         WHERE a.tenant_id = q.tenant_id AND a.run_id = q.run_id AND a.task_id = q.task_id AND a.attempt = q.attempt OFFSET 0) AS b ON true
), came AS (
    INSERT INTO servo.task_logs (tenant_id, run_id, task_id, attempt, seq, at, bytes, text)
    SELECT tenant_id, run_id, task_id, attempt, seq, at, bytes, text
    FROM   held
    WHERE  seq > dropped_seq
    ORDER  BY tenant_id, run_id, task_id, attempt, seq
    ON CONFLICT DO NOTHING
    RETURNING tenant_id, run_id, task_id, attempt, bytes
), booked AS (
    INSERT INTO servo.attempt_logs AS a (tenant_id, run_id, task_id, attempt, kept)
    SELECT tenant_id, run_id, task_id, attempt, sum(bytes + @overhead::int)
    FROM   came
    GROUP  BY tenant_id, run_id, task_id, attempt
    ORDER  BY tenant_id, run_id, task_id, attempt
    ON CONFLICT (tenant_id, run_id, task_id, attempt) DO UPDATE SET kept = a.kept + excluded.kept
    RETURNING tenant_id, run_id, task_id, attempt, kept
)
SELECT h.nth::int AS nth, h.tenant_id, h.run_id, h.task_id, h.attempt, false AS full FROM held h
UNION ALL
SELECT -1, b.tenant_id, b.run_id, b.task_id, b.attempt, true FROM booked b WHERE b.kept > @most::bigint;

-- name: TrimLogs :exec
-- Drops the middle of logs that have become too long: the range of chunks that are neither in the
-- first nor in the last @half bytes. WriteLogs has locked the rows of attempt_logs.
WITH middle AS MATERIALIZED ( -- found once for each log, before anything is deleted
    SELECT n.tenant_id, n.run_id, n.task_id, n.attempt, c.first, c.last
    FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id,
                   unnest(@task_ids::uuid[]) AS task_id, unnest(@attempts::int[]) AS attempt) AS n
    JOIN   LATERAL (SELECT min(m.seq) AS first, max(m.seq) AS last
                    FROM   (SELECT l.seq, sum(l.bytes + @overhead::int) OVER (ORDER BY l.seq) AS to_here,
                                   sum(l.bytes + @overhead::int) OVER (ORDER BY l.seq DESC) AS from_here
                            FROM   servo.task_logs l
                            WHERE  l.tenant_id = n.tenant_id AND l.run_id = n.run_id AND l.task_id = n.task_id AND l.attempt = n.attempt) AS m
                    WHERE  m.to_here > @half::bigint AND m.from_here > @half::bigint) AS c ON true
), dropped AS (
    DELETE FROM servo.task_logs d
    USING  middle x
    WHERE  d.tenant_id = ANY (ARRAY[x.tenant_id]) AND d.run_id = x.run_id AND d.task_id = x.task_id AND d.attempt = x.attempt
    AND    d.seq BETWEEN x.first AND x.last
    RETURNING d.tenant_id, d.run_id, d.task_id, d.attempt, d.seq, d.bytes
)
UPDATE servo.attempt_logs a
SET    kept = a.kept - x.freed, dropped_bytes = a.dropped_bytes + x.bytes, dropped_seq = greatest(a.dropped_seq, x.seq)
FROM   (SELECT tenant_id, run_id, task_id, attempt, sum(bytes + @overhead::int)::bigint AS freed, sum(bytes)::bigint AS bytes, max(seq) AS seq
        FROM dropped GROUP BY tenant_id, run_id, task_id, attempt) AS x
WHERE  a.tenant_id = ANY (ARRAY[x.tenant_id]) AND a.run_id = x.run_id AND a.task_id = x.task_id AND a.attempt = x.attempt;
