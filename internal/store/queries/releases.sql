-- Releases, channels and the ends of their runs.

-- name: InsertRelease :exec
INSERT INTO servo.releases (id, name, digest, note, version, created_at)
VALUES (@id::uuid, @name::text, @digest::text, @note::text, 1, @now::timestamptz);

-- name: ReleaseByName :one
-- A release by its name or id.
SELECT r.* FROM servo.releases r WHERE r.deleted_at IS NULL AND (r.name = @name::text OR r.id::text = @name::text)
ORDER BY (r.name = @name::text) DESC LIMIT 1;

-- name: LockRelease :one
SELECT r.* FROM servo.releases r WHERE r.id = @id::uuid AND r.deleted_at IS NULL FOR UPDATE;

-- name: ShareRelease :one
-- Keeps a release from being deleted until this transaction ends.
SELECT r.* FROM servo.releases r WHERE r.id = @id::uuid AND r.deleted_at IS NULL FOR KEY SHARE;

-- name: DeleteRelease :execrows
UPDATE servo.releases SET version = @version::int, deleted_at = @now::timestamptz WHERE id = @id::uuid;

-- name: ListReleases :many
-- The newest first, older than a release.
SELECT r.* FROM servo.releases r WHERE r.deleted_at IS NULL AND r.id < @upper::uuid ORDER BY r.id DESC LIMIT @most::int;

-- name: ReleasesByID :many
SELECT r.* FROM servo.releases r WHERE r.id = ANY (@ids::uuid[]);

-- name: InsertReleaseChannel :exec
INSERT INTO servo.release_channels (name, current_id, is_default, rollout, version, created_at, updated_at)
VALUES (@name::text, sqlc.narg('current_id')::uuid, false, '', 0, @now::timestamptz, @now::timestamptz);

-- name: LockReleaseChannel :one
SELECT c.* FROM servo.release_channels c WHERE c.name = @name::text FOR UPDATE;

-- name: ShareReleaseChannel :one
-- Keeps a channel from being deleted until this transaction ends.
SELECT c.* FROM servo.release_channels c WHERE c.name = @name::text FOR KEY SHARE;

-- name: UpdateReleaseChannel :execrows
UPDATE servo.release_channels
SET    current_id = sqlc.narg('current_id')::uuid, is_default = @is_default::bool, rollout = @rollout::text, version = @version::int, updated_at = @now::timestamptz
WHERE  name = @name::text;

-- name: DeleteReleaseChannel :execrows
DELETE FROM servo.release_channels WHERE name = @name::text;

-- name: ReleaseChannels :many
SELECT c.* FROM servo.release_channels c WHERE c.name = ANY (@names::text[]);

-- name: AllReleaseChannels :many
SELECT c.* FROM servo.release_channels c ORDER BY c.name;

-- name: FollowingTenants :many
-- The tenants with workspaces that follow a channel.
SELECT DISTINCT t.id, t.name, t.labels FROM servo.workspaces w JOIN servo.tenants t ON t.id = w.tenant_id WHERE w.channel = @channel::text;

-- name: CountFollowers :one
SELECT count(*)::bigint AS workspaces FROM servo.workspaces w WHERE w.channel = @channel::text;

-- name: FollowingConfigs :many
-- The active configs of all workspaces that follow a channel.
SELECT c.tenant_id, t.name AS tenant, w.name AS workspace, c.id, c.name, c.spec
FROM   servo.workspaces w
JOIN   servo.tenants t ON t.id = w.tenant_id
JOIN   servo.configs c ON c.tenant_id = w.tenant_id AND c.workspace_id = w.id
WHERE  w.channel = @channel::text AND c.deleted_at IS NULL AND c.enabled
ORDER  BY c.tenant_id, c.id;

-- name: WorkspaceConfigs :many
-- The active configs of a workspace.
SELECT c.id, c.name, c.spec FROM servo.configs c
WHERE  c.tenant_id = @tenant_id::uuid AND c.workspace_id = @workspace_id::uuid AND c.deleted_at IS NULL AND c.enabled;

-- name: TenantsWithLabel :many
SELECT t.id, t.name FROM servo.tenants t
WHERE  t.labels <> '' AND t.labels::jsonb ->> @key::text = @value::text AND t.id > @after::uuid
ORDER  BY t.id LIMIT @most::int;

-- name: FollowChannel :execrows
UPDATE servo.workspaces SET channel = @channel::text, version = @version::int WHERE tenant_id = @tenant_id::uuid AND id = @id::uuid;

-- name: SetTenantLabels :execrows
UPDATE servo.tenants t SET labels = @labels::text, version = @version::int WHERE t.id = @tenant_id::uuid;

-- name: InsertReleaseEnds :exec
INSERT INTO servo.release_ends (tenant_id, workspace_id, run_id, release_id, config_id, created_at, state)
SELECT unnest(@tenant_ids::uuid[]), unnest(@workspace_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@release_ids::uuid[]), unnest(@config_ids::uuid[]),
       unnest(@created_ats::timestamptz[]), unnest(@states::smallint[]);

-- name: MergeReleaseEnds :one
-- Merges unlocked ends, the oldest first. A run belongs to the rollout of its workspace's channel if it was
-- created since that started. Rows are locked in the order of their keys.
WITH taken AS (
    DELETE FROM servo.release_ends
    WHERE  id = ANY (ARRAY(SELECT e.id FROM servo.release_ends e ORDER BY e.id LIMIT @most::int FOR UPDATE SKIP LOCKED))
    RETURNING tenant_id, workspace_id, run_id, release_id, config_id, created_at, state
), coded AS (
    SELECT x.tenant_id, x.config_id, x.release_id,
           CASE WHEN c.rollout ->> 'to' = x.release_id::text AND x.created_at >= (c.rollout ->> 'started_at')::timestamptz
                THEN (c.rollout ->> 'id')::uuid ELSE '00000000-0000-0000-0000-000000000000'::uuid END AS rollout_id,
           CASE x.state WHEN 10 THEN '' WHEN 12 THEN 'TIMED_OUT' ELSE coalesce(nullif(f.code, ''), 'UNKNOWN') END AS error
    FROM   taken x
    LEFT   JOIN LATERAL (SELECT y.channel FROM servo.workspaces y WHERE y.tenant_id = x.tenant_id AND y.id = x.workspace_id OFFSET 0) AS w ON true
    LEFT   JOIN LATERAL (SELECT nullif(y.rollout, '')::jsonb AS rollout FROM servo.release_channels y WHERE y.name = w.channel OFFSET 0) AS c ON true
    LEFT   JOIN LATERAL (SELECT y.failure ->> 'code' AS code FROM servo.tasks y
                         WHERE x.state = 11 AND y.tenant_id = x.tenant_id AND y.run_id = x.run_id AND y.state = 11
                         ORDER BY y.finished_at, y.ix LIMIT 1) AS f ON true
), merged AS (
    INSERT INTO servo.release_totals AS t (tenant_id, config_id, release_id, rollout_id, error, runs)
    SELECT z.tenant_id, z.config_id, z.release_id, z.rollout_id, z.error, count(*)
    FROM   coded z
    GROUP  BY 1, 2, 3, 4, 5
    ORDER  BY 1, 2, 3, 4, 5
    ON CONFLICT (tenant_id, config_id, release_id, rollout_id, error) DO UPDATE SET runs = t.runs + excluded.runs
)
SELECT count(*)::int AS taken FROM taken;

-- name: RolloutEvidence :one
-- Ended and failed runs on the new release since the rollout started, and of the same configs on the old one.
WITH new AS (
    SELECT n.tenant_id, n.config_id, n.error, n.runs FROM servo.release_totals n WHERE n.release_id = @new_id::uuid AND n.rollout_id = @rollout_id::uuid
), old AS (
    SELECT o.error, o.runs FROM (SELECT DISTINCT new.tenant_id, new.config_id FROM new) AS k
    JOIN   servo.release_totals o ON o.tenant_id = k.tenant_id AND o.config_id = k.config_id AND o.release_id = @old_id::uuid
)
SELECT (SELECT coalesce(sum(new.runs), 0) FROM new)::bigint AS new_ended, (SELECT coalesce(sum(new.runs), 0) FROM new WHERE new.error <> '')::bigint AS new_failed,
       (SELECT coalesce(sum(old.runs), 0) FROM old)::bigint AS old_ended, (SELECT coalesce(sum(old.runs), 0) FROM old WHERE old.error <> '')::bigint AS old_failed;

-- name: RolloutFailures :many
-- The failed runs of a rollout by tenant and error, most first.
SELECT t.name AS tenant, n.error, sum(n.runs)::bigint AS runs
FROM   servo.release_totals n
JOIN   servo.tenants t ON t.id = n.tenant_id
WHERE  n.release_id = @new_id::uuid AND n.rollout_id = @rollout_id::uuid AND n.error <> ''
GROUP  BY t.name, n.error
ORDER  BY sum(n.runs) DESC, t.name, n.error
LIMIT  @most::int;

-- name: ReleaseTotals :many
-- Ended runs of releases by error.
SELECT n.release_id, n.error, sum(n.runs)::bigint AS runs FROM servo.release_totals n WHERE n.release_id = ANY (@ids::uuid[]) GROUP BY 1, 2 ORDER BY 1, 2;

-- name: ForgetReleaseTotals :execrows
-- Deletes the totals of releases that no channel uses, some at a time.
DELETE FROM servo.release_totals n
USING (
    SELECT o.tenant_id, o.config_id, o.release_id, o.rollout_id, o.error FROM servo.release_totals o
    WHERE  o.release_id <> ALL (@kept::uuid[])
    LIMIT  @most::int
) AS gone
WHERE  n.tenant_id = gone.tenant_id AND n.config_id = gone.config_id AND n.release_id = gone.release_id AND n.rollout_id = gone.rollout_id AND n.error = gone.error;

-- name: PlatformEventsOf :many
-- The events of a subject, the newest first.
SELECT e.version, e.recorded_at, e.schema, e.type, e.actor, e.data FROM servo.platform_events e WHERE e.subject = @subject::text ORDER BY e.version DESC LIMIT @most::int;

-- name: ReleaseWork :one
-- Whether a rollout is rolling, and whether ends of runs wait: two lookups in small tables.
SELECT EXISTS (SELECT FROM servo.release_channels c WHERE c.rollout <> '' AND c.rollout::jsonb ->> 'state' = 'ROLLING') AS rolling,
       ((SELECT e.id FROM servo.release_ends e ORDER BY e.id LIMIT 1) IS NOT NULL)::bool AS ended;
