-- Backfills for callers.

-- name: GetBackfill :one
SELECT b.*, w.name AS workspace
FROM   servo.backfills b
JOIN   servo.workspaces w ON w.tenant_id = b.tenant_id AND w.id = b.workspace_id
WHERE  b.tenant_id = @tenant_id::uuid AND b.id = @id::uuid;

-- name: ListBackfills :many
-- The newest first, without their sets, of which a list has no use.
SELECT b.tenant_id, b.id, b.workspace_id, b.version, b.state, b.reason, b.asset, b.settings, b.round, b.chunks, b.next_chunk, b.open_runs,
       b.total, b.completed, b.failed, b.skipped, b.round_failed, b.created_by, b.created_at, b.paused_at, b.finished_at, b.waits_for, w.name AS workspace
FROM   servo.backfills b
JOIN   servo.workspaces w ON w.tenant_id = b.tenant_id AND w.id = b.workspace_id
WHERE  b.tenant_id = @tenant_id::uuid AND b.id < @before::uuid
AND    (@workspace::text = '' OR w.name = @workspace::text) AND (@asset::text = '' OR b.asset = @asset::text)
AND    (cardinality(@states::smallint[]) = 0 OR b.state = ANY (@states::smallint[]))
ORDER  BY b.id DESC
LIMIT  @most::int;

-- name: ListBackfillRuns :many
-- The runs of a backfill, the newest first.
SELECT c.round, c.chunk, c.run_id, c.started_at, c.ended_at, c.failed, c.skipped, coalesce(r.state, 0)::smallint AS state, coalesce(r.total, 0)::int AS total,
       coalesce(r.remaining, 0)::int AS remaining, coalesce(r.succeeded, 0)::int AS succeeded_tasks, coalesce(r.failed, 0)::int AS failed_tasks
FROM   servo.backfill_chunks c
LEFT   JOIN servo.runs r ON r.tenant_id = c.tenant_id AND r.id = c.run_id
WHERE  c.tenant_id = @tenant_id::uuid AND c.backfill_id = @backfill_id::uuid AND (c.round, c.chunk) < (@before_round::int, @before_chunk::int)
ORDER  BY c.round DESC, c.chunk DESC
LIMIT  @most::int;

-- name: BackfillOfRun :one
SELECT c.backfill_id, c.round, c.chunk FROM servo.backfill_chunks c WHERE c.tenant_id = @tenant_id::uuid AND c.run_id = @run_id::uuid;
