-- Versions of outputs and their pointers.

-- name: OutputTasks :many
-- What the versions of tasks are checked against before their completion: the tenant in their paths, and the code.
SELECT n.nth::int AS nth, t.asset, t.partition, t.series, t.first_ordinal, t.last_ordinal, r.workspace_id, r.deployment_id, o.name AS tenant
FROM   (SELECT unnest(@nths::int[]) AS nth, unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
JOIN   LATERAL (SELECT * FROM servo.tasks x WHERE x.tenant_id = n.tenant_id AND x.run_id = n.run_id AND x.id = n.task_id OFFSET 0) AS t ON true
JOIN   LATERAL (SELECT * FROM servo.runs x WHERE x.tenant_id = n.tenant_id AND x.id = n.run_id OFFSET 0) AS r ON true
JOIN   LATERAL (SELECT * FROM servo.tenants x WHERE x.id = n.tenant_id OFFSET 0) AS o ON true;

-- name: LockPointers :many
-- Creates the pointers that are missing, and locks the others, both by key. A pointer that another transaction
-- creates at the same time is in neither part: the caller asks again.
WITH n AS (
    SELECT DISTINCT k.tenant_id, k.workspace_id, k.asset, k.partition
    FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workspace_ids::uuid[]) AS workspace_id, unnest(@assets::text[]) AS asset,
                   unnest(@partitions::text[]) AS partition) AS k
), made AS (
    INSERT INTO servo.pointers (tenant_id, workspace_id, asset, partition)
    SELECT n.tenant_id, n.workspace_id, n.asset, n.partition FROM n ORDER BY n.tenant_id, n.workspace_id, n.asset, n.partition
    ON CONFLICT DO NOTHING
    RETURNING tenant_id, workspace_id, asset, partition, current, highest
)
SELECT made.tenant_id, made.workspace_id, made.asset, made.partition, made.current, made.highest FROM made
UNION ALL
SELECT p.tenant_id, p.workspace_id, p.asset, p.partition, p.current, p.highest
FROM   (SELECT n.tenant_id, n.workspace_id, n.asset, n.partition FROM n ORDER BY n.tenant_id, n.workspace_id, n.asset, n.partition) AS o
JOIN   LATERAL (SELECT * FROM servo.pointers x WHERE x.tenant_id = o.tenant_id AND x.workspace_id = o.workspace_id AND x.asset = o.asset
                AND x.partition = o.partition FOR UPDATE) AS p ON true;

-- name: InsertMaterializations :exec
-- Versions with the versions that they were made from, which are found by their tasks.
WITH made AS (
    INSERT INTO servo.materializations (tenant_id, workspace_id, asset, token, id, state, gate, partition, series, first_ordinal, last_ordinal, run_id, attempt,
                                        deployment_id, format, path, rows, bytes, files, digest, schema_hash, detail, started_at, committed_at, recorded_at)
    SELECT unnest(@tenant_ids::uuid[]), unnest(@workspace_ids::uuid[]), unnest(@assets::text[]), unnest(@tokens::bigint[]), unnest(@ids::uuid[]),
           unnest(@states::text[]), unnest(@gates::text[]), unnest(@partitions::text[]), unnest(@series::text[]),
           nullif(unnest(@first_ordinals::bigint[]), @no_ordinal::bigint), nullif(unnest(@last_ordinals::bigint[]), @no_ordinal::bigint),
           nullif(unnest(@run_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@attempts::int[]),
           nullif(unnest(@deployment_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), unnest(@formats::text[]), unnest(@paths::text[]),
           unnest(@rows::bigint[]), unnest(@bytes::bigint[]), unnest(@files::int[]), unnest(@digests::text[]), unnest(@schema_hashes::text[]),
           unnest(@details::text[])::jsonb, nullif(unnest(@started_ats::timestamptz[]), '0001-01-01 00:00:00+00'),
           nullif(unnest(@committed_ats::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@recorded_ats::timestamptz[])
)
INSERT INTO servo.materialization_inputs (tenant_id, workspace_id, asset, token, input_asset, input_token)
SELECT n.tenant_id, n.workspace_id, n.asset, n.token, m.asset, m.token
FROM   (SELECT unnest(@input_tenant_ids::uuid[]) AS tenant_id, unnest(@input_workspace_ids::uuid[]) AS workspace_id, unnest(@input_of_assets::text[]) AS asset,
               unnest(@input_of_tokens::bigint[]) AS token, unnest(@input_ids::uuid[]) AS id) AS n
JOIN   LATERAL (SELECT x.asset, x.token, x.workspace_id FROM servo.materializations x WHERE x.tenant_id = n.tenant_id AND x.id = n.id OFFSET 0) AS m ON m.workspace_id = n.workspace_id
ON CONFLICT DO NOTHING;

-- name: MovePointers :exec
-- Pointers that this transaction has locked.
UPDATE servo.pointers p
SET    current = n.current, highest = n.highest, changed_at = @now::timestamptz
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workspace_ids::uuid[]) AS workspace_id, unnest(@assets::text[]) AS asset,
               unnest(@partitions::text[]) AS partition, unnest(@currents::bigint[]) AS current, unnest(@highests::bigint[]) AS highest) AS n
WHERE  p.tenant_id = ANY (ARRAY[n.tenant_id]) AND p.workspace_id = n.workspace_id AND p.asset = n.asset AND p.partition = n.partition;
