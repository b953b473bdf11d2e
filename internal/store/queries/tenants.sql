-- name: InsertTenant :exec
INSERT INTO servo.tenants (id, name, version, created_at, max_concurrent_tasks, max_queued_tasks, max_concurrent_runs, max_daily_runs,
                           max_run_duration_s, max_tasks_per_run, max_backfill_runs, fairness_weight, zone)
VALUES (@id::uuid, @name::text, @version::int, @now::timestamptz, @max_concurrent_tasks::int, @max_queued_tasks::int, @max_concurrent_runs::int,
        @max_daily_runs::int, @max_run_duration_s::int, @max_tasks_per_run::int, @max_backfill_runs::int, @fairness_weight::float8, @zone::text);

-- name: LockTenant :one
SELECT t.* FROM servo.tenants t WHERE t.id = @tenant_id::uuid FOR NO KEY UPDATE;

-- name: SetQuotas :execrows
-- The settlement makes admission read the tenant's shares again in every pool.
WITH noted AS (
    INSERT INTO servo.settlements (tenant_id, pool, asset, left_by, ended, seconds, charged) VALUES (@tenant_id::uuid, '', '', 0, 0, 0, 0)
)
UPDATE servo.tenants t
SET    version = @version::int, max_concurrent_tasks = @max_concurrent_tasks::int, max_queued_tasks = @max_queued_tasks::int,
       max_concurrent_runs = @max_concurrent_runs::int, max_daily_runs = @max_daily_runs::int,
       max_run_duration_s = @max_run_duration_s::int, max_tasks_per_run = @max_tasks_per_run::int,
       max_backfill_runs = @max_backfill_runs::int, fairness_weight = @fairness_weight::float8, zone = @zone::text
WHERE  t.id = @tenant_id::uuid;

-- name: InsertWorkspace :exec
INSERT INTO servo.workspaces (tenant_id, id, name, version, created_at)
VALUES (@tenant_id::uuid, @id::uuid, @name::text, @version::int, @now::timestamptz);

-- name: InsertDeployment :execrows
INSERT INTO servo.deployments (tenant_id, id, workspace_id, digest, version, created_at)
VALUES (@tenant_id::uuid, @id::uuid, @workspace_id::uuid, @digest::text, @version::int, @now::timestamptz)
ON CONFLICT (tenant_id, workspace_id, digest) DO NOTHING;

-- name: DeploymentByDigest :one
SELECT id FROM servo.deployments WHERE tenant_id = @tenant_id::uuid AND workspace_id = @workspace_id::uuid AND digest = @digest::text;

-- name: LockWorkspace :one
SELECT w.* FROM servo.workspaces w WHERE w.tenant_id = @tenant_id::uuid AND w.name = @name::text FOR NO KEY UPDATE;

-- name: ActivateDeployment :exec
UPDATE servo.workspaces SET active_deployment_id = @deployment_id::uuid, version = @version::int
WHERE  tenant_id = @tenant_id::uuid AND id = @id::uuid;

-- name: InsertEntityEvents :exec
INSERT INTO servo.entity_events (tenant_id, subject_id, version, recorded_at, schema, type, actor, trace, data)
SELECT unnest(@tenant_ids::uuid[]), unnest(@subject_ids::uuid[]), unnest(@versions::int[]), unnest(@recorded_ats::timestamptz[]),
       unnest(@schemas::smallint[]), unnest(@types::text[]), unnest(@actors::text[]), unnest(@traces::text[]), unnest(@datas::text[])::jsonb;

-- name: ActiveDeployments :many
SELECT w.tenant_id, t.name AS tenant, w.name, w.id AS workspace_id, w.active_deployment_id, w.channel, t.labels,
       t.max_queued_tasks, t.max_concurrent_runs, t.max_daily_runs, t.max_run_duration_s, t.max_tasks_per_run, t.max_backfill_runs, t.zone
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@names::text[]) AS name) AS n
JOIN   servo.workspaces w ON w.tenant_id = n.tenant_id AND w.name = n.name
JOIN   servo.tenants t ON t.id = w.tenant_id;

-- name: Deployments :many
-- Deployments of tenants, and releases: their ids come from runs and channels.
SELECT d.tenant_id, d.id, d.workspace_id, d.digest
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS n
JOIN   servo.deployments d ON d.tenant_id = n.tenant_id AND d.id = n.id
UNION ALL
SELECT m.tenant_id::uuid, r.id, '00000000-0000-0000-0000-000000000000'::uuid, r.digest
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS m
JOIN   servo.releases r ON r.id = m.id;

-- name: TenantByName :one
SELECT id FROM servo.tenants WHERE name = @name::text;

-- name: ListTenants :many
SELECT id, name, created_at, labels FROM servo.tenants WHERE name > @after::text ORDER BY name LIMIT @most::int;
