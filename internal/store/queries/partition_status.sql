-- The status of partitions.

-- name: InsertPartitionDeltas :exec
-- The ends of tasks with partitions. Tasks without any write nothing.
INSERT INTO servo.partition_deltas (tenant_id, workspace_id, asset, series, first, last, succeeded)
SELECT t.tenant_id, n.workspace_id, t.asset, t.series, t.first_ordinal, t.last_ordinal, n.succeeded
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id,
               unnest(@workspace_ids::uuid[]) AS workspace_id, unnest(@succeededs::bool[]) AS succeeded) AS n
JOIN   LATERAL (SELECT * FROM servo.tasks x WHERE x.tenant_id = n.tenant_id AND x.run_id = n.run_id AND x.id = n.task_id OFFSET 0) AS t ON true
WHERE  t.first_ordinal IS NOT NULL;

-- name: SeriesWithDeltas :many
-- The series of the oldest deltas, in the order in which they are locked.
SELECT DISTINCT d.tenant_id, d.workspace_id, d.asset, d.series
FROM   (SELECT * FROM servo.partition_deltas x ORDER BY x.id LIMIT @most::int) AS d
ORDER  BY 1, 2, 3, 4;

-- name: InsertPartitionSeries :exec
INSERT INTO servo.partition_series (tenant_id, workspace_id, asset, series)
SELECT unnest(@tenant_ids::uuid[]), unnest(@workspace_ids::uuid[]), unnest(@assets::text[]), unnest(@series::text[])
ON CONFLICT DO NOTHING;

-- name: LockPartitionSeries :many
-- Series that another transaction folds are skipped.
SELECT s.tenant_id, s.workspace_id, s.asset, s.series
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workspace_ids::uuid[]) AS workspace_id, unnest(@assets::text[]) AS asset,
               unnest(@series::text[]) AS series) AS n
JOIN   LATERAL (SELECT * FROM servo.partition_series x WHERE x.tenant_id = n.tenant_id AND x.workspace_id = n.workspace_id AND x.asset = n.asset
                AND x.series = n.series FOR UPDATE SKIP LOCKED) AS s ON true;

-- name: TakePartitionDeltas :many
-- Deletes the deltas of locked series and returns them in the order of their ids.
WITH taken AS (
    DELETE FROM servo.partition_deltas d
    USING  (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workspace_ids::uuid[]) AS workspace_id, unnest(@assets::text[]) AS asset,
                   unnest(@series::text[]) AS series) AS n
    WHERE  d.tenant_id = n.tenant_id AND d.workspace_id = n.workspace_id AND d.asset = n.asset AND d.series = n.series
    RETURNING d.*
)
SELECT t.id, t.tenant_id, t.workspace_id, t.asset, t.series, t.first, t.last, t.succeeded FROM taken t ORDER BY t.id;

-- name: StatusBuckets :many
-- The rows of some buckets of locked series.
SELECT s.tenant_id, s.workspace_id, s.asset, s.series, s.bucket, s.succeeded::text AS succeeded, s.failed::text AS failed
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workspace_ids::uuid[]) AS workspace_id, unnest(@assets::text[]) AS asset,
               unnest(@series::text[]) AS series, unnest(@buckets::bigint[]) AS bucket) AS n
JOIN   LATERAL (SELECT * FROM servo.partition_status x WHERE x.tenant_id = n.tenant_id AND x.workspace_id = n.workspace_id AND x.asset = n.asset
                AND x.series = n.series AND x.bucket = n.bucket OFFSET 0) AS s ON true;

-- name: InsertPartitionStatus :exec
-- Writes buckets of locked series; tenant and key are those of the series.
INSERT INTO servo.partition_status AS s (tenant_id, workspace_id, asset, series, bucket, succeeded, failed)
SELECT unnest(@tenant_ids::uuid[]), unnest(@workspace_ids::uuid[]), unnest(@assets::text[]), unnest(@series::text[]), unnest(@buckets::bigint[]),
       unnest(@succeededs::text[])::int8multirange, unnest(@faileds::text[])::int8multirange
ON CONFLICT (tenant_id, workspace_id, asset, series, bucket) DO UPDATE SET succeeded = excluded.succeeded, failed = excluded.failed;

-- name: StatusOfAsset :many
-- The status of an asset: its rows, and then the deltas that no merger has folded, in order.
SELECT s.series, s.succeeded::text AS succeeded, s.failed::text AS failed, 0::bigint AS delta, 0::bigint AS first, 0::bigint AS last, false AS success
FROM   servo.partition_status s
WHERE  s.tenant_id = @tenant_id::uuid AND s.workspace_id = @workspace_id::uuid AND s.asset = @asset::text
UNION  ALL
SELECT d.series, '{}', '{}', d.id, d.first, d.last, d.succeeded
FROM   servo.partition_deltas d
WHERE  d.tenant_id = @tenant_id::uuid AND d.workspace_id = @workspace_id::uuid AND d.asset = @asset::text
ORDER  BY 4;

-- name: PartitionEnds :many
-- How the tasks of an ended run ended, by their partitions.
SELECT t.series, t.first_ordinal, t.last_ordinal, coalesce(t.state, 0)::smallint AS state
FROM   servo.tasks t
WHERE  t.tenant_id = @tenant_id::uuid AND t.run_id = @run_id::uuid AND t.first_ordinal IS NOT NULL;

-- name: RunningPartitions :many
-- Partitions of an asset with a task in a queue or with a worker.
SELECT t.series, t.first_ordinal, t.last_ordinal
FROM   (SELECT l.tenant_id, l.run_id, l.task_id FROM servo.leases l WHERE l.tenant_id = @tenant_id::uuid AND l.asset = @asset::text
        UNION ALL
        SELECT q.tenant_id, q.run_id, q.task_id FROM servo.pool_q q WHERE q.tenant_id = @tenant_id::uuid AND q.asset = @asset::text) AS n
JOIN   LATERAL (SELECT x.workspace_id FROM servo.runs x WHERE x.tenant_id = n.tenant_id AND x.id = n.run_id OFFSET 0) AS r ON r.workspace_id = @workspace_id::uuid
JOIN   LATERAL (SELECT * FROM servo.tasks x WHERE x.tenant_id = n.tenant_id AND x.run_id = n.run_id AND x.id = n.task_id AND x.first_ordinal IS NOT NULL OFFSET 0) AS t ON true;
