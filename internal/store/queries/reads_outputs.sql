-- Reads of versions, under the role of their tenant.

-- name: ListMaterializations :many
-- The versions of an asset, the newest first, without their details.
SELECT m.tenant_id, m.workspace_id, m.asset, m.token, m.id, m.version, m.state, m.gate, m.partition, m.series, m.first_ordinal, m.last_ordinal, m.run_id, m.attempt,
       m.deployment_id, m.format, m.path, m.rows, m.bytes, m.files, m.digest, m.schema_hash, m.started_at, m.committed_at, m.recorded_at,
       (EXISTS (SELECT FROM servo.pointers p WHERE p.tenant_id = m.tenant_id AND p.workspace_id = m.workspace_id AND p.asset = m.asset AND p.current = m.token))::bool AS is_current
FROM   servo.materializations m
WHERE  m.tenant_id = @tenant_id::uuid AND m.workspace_id = @workspace_id::uuid AND m.asset = @asset::text AND m.token < @before::bigint
ORDER  BY m.token DESC
LIMIT  @most::int;

-- name: ListPartitionMaterializations :many
SELECT m.tenant_id, m.workspace_id, m.asset, m.token, m.id, m.version, m.state, m.gate, m.partition, m.series, m.first_ordinal, m.last_ordinal, m.run_id, m.attempt,
       m.deployment_id, m.format, m.path, m.rows, m.bytes, m.files, m.digest, m.schema_hash, m.started_at, m.committed_at, m.recorded_at,
       (EXISTS (SELECT FROM servo.pointers p WHERE p.tenant_id = m.tenant_id AND p.workspace_id = m.workspace_id AND p.asset = m.asset AND p.current = m.token))::bool AS is_current
FROM   servo.materializations m
WHERE  m.tenant_id = @tenant_id::uuid AND m.workspace_id = @workspace_id::uuid AND m.asset = @asset::text AND m.partition = @partition::text AND m.token < @before::bigint
ORDER  BY m.token DESC
LIMIT  @most::int;

-- name: ListRunMaterializations :many
SELECT m.tenant_id, m.workspace_id, m.asset, m.token, m.id, m.version, m.state, m.gate, m.partition, m.series, m.first_ordinal, m.last_ordinal, m.run_id, m.attempt,
       m.deployment_id, m.format, m.path, m.rows, m.bytes, m.files, m.digest, m.schema_hash, m.started_at, m.committed_at, m.recorded_at,
       (EXISTS (SELECT FROM servo.pointers p WHERE p.tenant_id = m.tenant_id AND p.workspace_id = m.workspace_id AND p.asset = m.asset AND p.current = m.token))::bool AS is_current
FROM   servo.materializations m
WHERE  m.tenant_id = @tenant_id::uuid AND m.run_id = @run_id::uuid AND m.token < @before::bigint
ORDER  BY m.token DESC
LIMIT  @most::int;

-- name: GetMaterialization :one
SELECT m.*,
       (EXISTS (SELECT FROM servo.pointers p WHERE p.tenant_id = m.tenant_id AND p.workspace_id = m.workspace_id AND p.asset = m.asset AND p.current = m.token))::bool AS is_current
FROM   servo.materializations m
WHERE  m.tenant_id = @tenant_id::uuid AND m.workspace_id = @workspace_id::uuid AND m.asset = @asset::text AND m.token = @token::bigint;

-- name: MaterializationInputs :many
-- The versions that a version was made from.
SELECT i.input_asset, i.input_token
FROM   servo.materialization_inputs i
WHERE  i.tenant_id = @tenant_id::uuid AND i.workspace_id = @workspace_id::uuid AND i.asset = @asset::text AND i.token = @token::bigint
ORDER  BY 1, 2
LIMIT  @most::int;

-- name: MaterializationsMadeFrom :many
-- The versions that were made from a version.
SELECT i.asset, i.token
FROM   servo.materialization_inputs i
WHERE  i.tenant_id = @tenant_id::uuid AND i.workspace_id = @workspace_id::uuid AND i.input_asset = @asset::text AND i.input_token = @token::bigint
ORDER  BY 1, 2
LIMIT  @most::int;
