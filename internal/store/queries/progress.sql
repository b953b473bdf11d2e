-- name: Heartbeat :many
-- Renews the leases that are still held with these tokens, each by its own duration or by that of the
-- heartbeat, and returns which tasks should stop. Only the renewal is written, in place. A short
-- heartbeat of a dispatcher does not shorten a renewal by the worker that it calls.
WITH alive AS (
    SELECT q.tenant_id, q.run_id, q.task_id, q.token, q.cancel_requested, coalesce(nullif(n.lease_ms, 0), q.lease_ms) AS lease_ms, n.now
    FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id,
                   unnest(@task_ids::uuid[]) AS task_id, unnest(@tokens::bigint[]) AS token, unnest(@lease_mss::int[]) AS lease_ms, @now::timestamptz AS now
            ORDER BY 2, 3) AS n
    JOIN   LATERAL (SELECT l.tenant_id, l.run_id, l.task_id, l.token, l.cancel_requested, l.lease_ms FROM servo.leases l
                    WHERE l.tenant_id = n.tenant_id AND l.run_id = n.run_id AND l.task_id = n.task_id AND l.token = n.token OFFSET 0) AS q ON true
), renewed AS (
    INSERT INTO servo.heartbeats AS h (tenant_id, run_id, task_id, token, seen_at, expires_at)
    SELECT tenant_id, run_id, task_id, token, now, now + lease_ms * interval '1 millisecond'
    FROM   alive
    ON CONFLICT (run_id, task_id) DO UPDATE
    SET    token = excluded.token, seen_at = excluded.seen_at,
           expires_at = CASE WHEN h.token = excluded.token THEN greatest(h.expires_at, excluded.expires_at) ELSE excluded.expires_at END
    WHERE  h.token <= excluded.token
)
SELECT tenant_id, run_id, task_id, token, cancel_requested FROM alive;

-- name: WriteProgress :many
-- Writes changed progress of attempts whose leases are held, and returns which tasks should stop.
-- Progress shows that the worker is alive: a lease whose last heartbeat is older than a quarter of its
-- duration is renewed, the others are not. Another server may change an existing row meanwhile: the
-- current row, under its lock, decides whether a stage is new. Of more than 100 stages the first 51
-- and the last 49 are kept; the 51st also represents the dropped ones.
WITH alive AS (
    SELECT q.tenant_id, q.run_id, q.task_id, q.token, q.attempt, q.cancel_requested, q.lease_ms, n.now, n.phase, n.stage, n.fraction,
           n.records_extracted, n.records_transformed, n.records_loaded, n.bytes, n.eta,
           coalesce(h.seen_at, '-infinity') < n.now - q.lease_ms * interval '0.25 milliseconds' AS silent,
           (p.phase, p.stage, p.fraction, p.records_extracted, p.records_transformed, p.records_loaded, p.bytes, p.eta) IS DISTINCT FROM
           (n.phase, n.stage, n.fraction, n.records_extracted, n.records_transformed, n.records_loaded, n.bytes, n.eta) AS changed
    FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id,
                   unnest(@task_ids::uuid[]) AS task_id, unnest(@tokens::bigint[]) AS token, @now::timestamptz AS now,
                   unnest(@phases::text[]) AS phase, unnest(@stages::text[]) AS stage, unnest(@fractions::real[]) AS fraction,
                   unnest(@records_extracteds::bigint[]) AS records_extracted, unnest(@records_transformeds::bigint[]) AS records_transformed,
                   unnest(@records_loadeds::bigint[]) AS records_loaded, unnest(@bytes::bigint[]) AS bytes,
                   nullif(unnest(@etas::timestamptz[]), '0001-01-01 00:00:00+00') AS eta
            ORDER BY 2, 3) AS n
    JOIN   LATERAL (SELECT l.tenant_id, l.run_id, l.task_id, l.token, l.attempt, l.cancel_requested, l.lease_ms FROM servo.leases l
                    WHERE l.tenant_id = n.tenant_id AND l.run_id = n.run_id AND l.task_id = n.task_id AND l.token = n.token OFFSET 0) AS q ON true
    LEFT   JOIN LATERAL (SELECT b.seen_at FROM servo.heartbeats b
                         WHERE b.run_id = q.run_id AND b.task_id = q.task_id AND b.token = q.token OFFSET 0) AS h ON true
    LEFT   JOIN LATERAL (SELECT x.phase, x.stage, x.fraction, x.records_extracted, x.records_transformed, x.records_loaded, x.bytes, x.eta
                         FROM servo.attempt_progress x
                         WHERE x.tenant_id = q.tenant_id AND x.run_id = q.run_id AND x.task_id = q.task_id AND x.attempt = q.attempt OFFSET 0) AS p ON true
), renewed AS (
    INSERT INTO servo.heartbeats AS h (tenant_id, run_id, task_id, token, seen_at, expires_at)
    SELECT tenant_id, run_id, task_id, token, now, now + lease_ms * interval '1 millisecond'
    FROM   alive
    WHERE  silent
    ON CONFLICT (run_id, task_id) DO UPDATE
    SET    token = excluded.token, seen_at = excluded.seen_at, expires_at = excluded.expires_at
    WHERE  h.token <= excluded.token
), written AS (
    INSERT INTO servo.attempt_progress AS p (tenant_id, run_id, task_id, attempt, updated_at, stage_since, eta,
           records_extracted, records_transformed, records_loaded, bytes, fraction, stages, phase, stage)
    SELECT tenant_id, run_id, task_id, attempt, now, now, eta,
           records_extracted, records_transformed, records_loaded, bytes, fraction, (phase <> '' OR stage <> '')::int, phase, stage
    FROM   alive
    WHERE  changed
    ON CONFLICT (tenant_id, run_id, task_id, attempt) DO UPDATE
    SET    updated_at = excluded.updated_at, eta = excluded.eta, records_extracted = excluded.records_extracted,
           records_transformed = excluded.records_transformed, records_loaded = excluded.records_loaded, bytes = excluded.bytes,
           fraction = excluded.fraction, phase = excluded.phase, stage = excluded.stage,
           stages = p.stages + ((p.phase, p.stage) IS DISTINCT FROM (excluded.phase, excluded.stage))::int,
           stage_since = CASE WHEN (p.phase, p.stage) IS DISTINCT FROM (excluded.phase, excluded.stage) THEN excluded.stage_since ELSE p.stage_since END
    RETURNING p.tenant_id, p.run_id, p.task_id, p.attempt, p.stage_since, p.stages, p.phase, p.stage
), entered AS (
    INSERT INTO servo.attempt_stages (tenant_id, run_id, task_id, attempt, seq, started_at, phase, stage)
    SELECT tenant_id, run_id, task_id, attempt, stages, stage_since, phase, stage
    FROM   written
    WHERE  stage_since = @now::timestamptz AND stages > 0
    ON CONFLICT DO NOTHING
), dropped AS (
    DELETE FROM servo.attempt_stages d
    USING  (SELECT tenant_id, run_id, task_id, attempt, stages FROM written WHERE stage_since = @now::timestamptz AND stages > 100 OFFSET 0) AS x
    WHERE  d.tenant_id = ANY (ARRAY[x.tenant_id]) AND d.run_id = x.run_id AND d.task_id = x.task_id AND d.attempt = x.attempt
    AND    d.seq = x.stages - 49
)
SELECT tenant_id, run_id, task_id, token, cancel_requested FROM alive;

-- name: PoolsOfLeases :many
-- The pools of leases that are held with these tokens, for a caller with access to some pools only. A
-- lease stays in its pool.
SELECT n.nth::int AS nth, q.pool
FROM   (SELECT unnest(@nths::int[]) AS nth, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id,
               unnest(@task_ids::uuid[]) AS task_id, unnest(@tokens::bigint[]) AS token) AS n
JOIN   LATERAL (SELECT l.pool FROM servo.leases l
                WHERE l.tenant_id = n.tenant_id AND l.run_id = n.run_id AND l.task_id = n.task_id AND l.token = n.token OFFSET 0) AS q ON true;
