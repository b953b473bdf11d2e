-- Schedule templates of tenants.

-- name: LockTemplate :one
-- A change or delete waits for transactions that save configs with the template.
SELECT x.* FROM servo.templates x WHERE x.tenant_id = @tenant_id::uuid AND x.name = @name::text FOR UPDATE;

-- name: ShareTemplates :many
-- A transaction that saves a config with a template locks the template.
SELECT x.name, x.cron FROM servo.templates x
WHERE  x.tenant_id = @tenant_id::uuid AND x.name = ANY (@names::text[])
ORDER  BY x.name FOR SHARE;

-- name: TemplateNames :many
SELECT x.name FROM servo.templates x WHERE x.tenant_id = @tenant_id::uuid ORDER BY x.name;

-- name: UpsertTemplate :exec
INSERT INTO servo.templates AS x (tenant_id, id, name, version, cron, description, changed_by, created_at, updated_at)
VALUES (@tenant_id::uuid, @id::uuid, @name::text, @version::int, @cron::text, @description::text, @changed_by::text, @created_at::timestamptz, @updated_at::timestamptz)
ON CONFLICT (tenant_id, id) DO UPDATE
SET    version = excluded.version, cron = excluded.cron, description = excluded.description, changed_by = excluded.changed_by, updated_at = excluded.updated_at;

-- name: DeleteTemplate :exec
DELETE FROM servo.templates x WHERE x.tenant_id = @tenant_id::uuid AND x.id = @id::uuid;

-- name: ConfigsOfTemplate :many
-- The configs that use a template, in the order in which they are locked.
SELECT c.tenant_id, c.id, c.name FROM servo.configs c
WHERE  c.tenant_id = @tenant_id::uuid AND c.template = @template::text AND c.deleted_at IS NULL
ORDER  BY c.id;
