-- Actions of operators: force-cancel, switches, pauses of assets.

-- name: HeartbeatSeen :many
-- The last heartbeats of leases. Their rows are not locked: a concurrent heartbeat counts as a later
-- one.
SELECT h.run_id, h.task_id, h.token, h.seen_at
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id, unnest(@task_ids::uuid[]) AS task_id) AS n
JOIN   LATERAL (SELECT b.run_id, b.task_id, b.token, b.seen_at FROM servo.heartbeats b
                WHERE b.tenant_id = n.tenant_id AND b.run_id = n.run_id AND b.task_id = n.task_id OFFSET 0) AS h ON true;

-- name: LockSwitch :exec
-- A transaction that changes a switch waits for the transactions that have read it, and excludes new
-- ones. These share this lock (LockClaims), so none of them acts on an outdated value.
SELECT pg_advisory_xact_lock(hashtextextended('servo.switch.' || @name::text, 0));

-- name: SwitchByName :many
-- One row, or none for a switch that was never changed.
SELECT s.* FROM servo.switches s WHERE s.name = @name::text;

-- name: UpsertSwitch :execrows
INSERT INTO servo.switches AS s (name, off, reason, changed_by, changed_at, version)
VALUES (@name::text, @off::bool, @reason::text, @changed_by::text, @now::timestamptz, @version::int)
ON CONFLICT (name) DO UPDATE
SET    off = excluded.off, reason = excluded.reason, changed_by = excluded.changed_by, changed_at = excluded.changed_at, version = excluded.version
WHERE  s.version = excluded.version - 1;

-- name: BusyTasks :many
-- Leased tasks, the oldest first, for an operator who waits for them. There is no index by age: up to
-- `looked` leases are read.
SELECT t.name AS tenant, q.run_id, q.task_id, q.asset, q.pool, q.worker, q.since, q.cancel_requested
FROM   (SELECT l.tenant_id, l.run_id, l.task_id, l.asset, l.pool, l.worker, l.since, l.cancel_requested
        FROM servo.leases l LIMIT @looked::int) AS q
JOIN   LATERAL (SELECT x.name FROM servo.tenants x WHERE x.id = q.tenant_id OFFSET 0) AS t ON true
ORDER  BY q.since, q.run_id, q.task_id
LIMIT  @most::int;

-- name: CountLeases :one
SELECT count(*)::int AS leased FROM (SELECT 1 FROM servo.leases LIMIT @most::int) AS q;

-- name: BumpWorkspace :execrows
UPDATE servo.workspaces SET version = @version::int
WHERE  tenant_id = @tenant_id::uuid AND id = @id::uuid AND version < @version::int;

-- name: InsertAssetPause :execrows
INSERT INTO servo.asset_pauses (tenant_id, workspace_id, asset, paused_at, paused_by, reason)
VALUES (@tenant_id::uuid, @workspace_id::uuid, @asset::text, @now::timestamptz, @paused_by::text, @reason::text)
ON CONFLICT DO NOTHING;

-- name: DeleteAssetPause :execrows
-- Waits for admission, which locks the row as long as it may hold tasks because of it.
DELETE FROM servo.asset_pauses WHERE tenant_id = @tenant_id::uuid AND workspace_id = @workspace_id::uuid AND asset = @asset::text;

-- name: ReleaseHeld :one
-- Releases the held tasks of one asset, with a settlement for admission. In the order of keys, as a
-- cancel locks them.
WITH free AS (
    SELECT q.run_id, q.task_id
    FROM   servo.ready_q q
    JOIN   LATERAL (SELECT t.asset FROM servo.tasks t
                    WHERE t.tenant_id = q.tenant_id AND t.run_id = q.run_id AND t.id = q.task_id OFFSET 0) AS t ON true
    JOIN   LATERAL (SELECT r.workspace_id FROM servo.runs r
                    WHERE r.tenant_id = q.tenant_id AND r.id = q.run_id OFFSET 0) AS r ON true
    WHERE  q.tenant_id = @tenant_id::uuid AND q.held AND t.asset = @asset::text AND r.workspace_id = @workspace_id::uuid
    ORDER  BY q.run_id, q.task_id
    FOR    UPDATE OF q
), released AS (
    UPDATE servo.ready_q q SET held = false, lacks_worker = false FROM free WHERE q.run_id = free.run_id AND q.task_id = free.task_id RETURNING q.tenant_id, q.pool
), noted AS (
    INSERT INTO servo.settlements (tenant_id, pool, asset, left_by, ended, seconds, charged, arrived)
    SELECT DISTINCT r.tenant_id, r.pool, '', 0, 0, 0::float8, 0::float8, true FROM released r
)
SELECT count(*)::int AS released FROM released;
