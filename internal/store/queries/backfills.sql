-- Backfills: their rows, the runs of their chunks, and the work that is left.

-- name: InsertBackfill :exec
INSERT INTO servo.backfills (tenant_id, id, workspace_id, version, state, asset, settings, round, partitions, undone, chunks, next_chunk, open_runs, max_runs,
                             total, completed, failed, skipped, round_failed, created_by, created_at)
VALUES (@tenant_id::uuid, @id::uuid, @workspace_id::uuid, @version::int, @state::smallint, @asset::text, @settings::jsonb, 0, @partitions::jsonb, '{}', @chunks::int, 0, 0,
        @max_runs::int, @total::bigint, 0, 0, 0, 0, @created_by::text, @now::timestamptz);

-- name: LockBackfills :many
SELECT b.*
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id ORDER BY 1, 2) AS n
JOIN   LATERAL (SELECT * FROM servo.backfills x WHERE x.tenant_id = n.tenant_id AND x.id = n.id FOR NO KEY UPDATE) AS b ON true;

-- name: UpdateBackfill :execrows
-- The set of the round and what is undone are large: they are written when they change.
UPDATE servo.backfills b
SET    version = @version::int, state = @state::smallint, reason = @reason::text, round = @round::int, chunks = @chunks::int, next_chunk = @next_chunk::int,
       open_runs = @open_runs::int, completed = @completed::bigint, failed = @failed::bigint, skipped = @skipped::bigint, round_failed = @round_failed::bigint,
       paused_at = sqlc.narg('paused_at')::timestamptz, finished_at = sqlc.narg('finished_at')::timestamptz, waits_for = '',
       partitions = CASE WHEN @new_set::bool THEN @partitions::jsonb ELSE b.partitions END,
       undone = CASE WHEN @new_undone::bool THEN @undone::jsonb ELSE b.undone END
WHERE  b.tenant_id = @tenant_id::uuid AND b.id = @id::uuid AND b.version = @before::int;

-- name: BackfillWaits :exec
UPDATE servo.backfills SET waits_for = @waits_for::text WHERE tenant_id = @tenant_id::uuid AND id = @id::uuid AND waits_for <> @waits_for::text;

-- name: InsertBackfillChunk :exec
INSERT INTO servo.backfill_chunks (tenant_id, backfill_id, round, chunk, run_id, started_at)
VALUES (@tenant_id::uuid, @backfill_id::uuid, @round::int, @chunk::int, @run_id::uuid, @now::timestamptz);

-- name: EndBackfillChunk :execrows
UPDATE servo.backfill_chunks
SET    ended_at = @now::timestamptz, failed = @failed::bigint, skipped = @skipped::bigint
WHERE  tenant_id = @tenant_id::uuid AND backfill_id = @backfill_id::uuid AND round = @round::int AND chunk = @chunk::int AND run_id = @run_id::uuid AND ended_at IS NULL;

-- name: BackfillWork :one
-- Whether a backfill has work: two index lookups.
SELECT (EXISTS (SELECT FROM servo.backfills b WHERE b.state < 3 AND b.next_chunk < b.chunks AND b.open_runs < b.max_runs))::bool AS startable,
       (EXISTS (SELECT FROM servo.backfill_chunks c WHERE c.ended_at IS NULL))::bool AS open;

-- name: StartableBackfills :many
-- The backfills whose next run may start by their own limit, the oldest of each tenant first.
SELECT b.tenant_id, b.id
FROM   servo.backfills b
WHERE  b.state < 3 AND b.next_chunk < b.chunks AND b.open_runs < b.max_runs
ORDER  BY b.tenant_id, b.id
LIMIT  @most::int;

-- name: EndedChunks :many
-- Open chunks whose run has ended: it has no row among the live runs.
SELECT c.tenant_id, c.backfill_id, c.round, c.chunk, c.run_id
FROM   servo.backfill_chunks c
WHERE  c.ended_at IS NULL AND NOT EXISTS (SELECT FROM servo.live_runs l WHERE l.tenant_id = c.tenant_id AND l.run_id = c.run_id)
ORDER  BY c.tenant_id, c.backfill_id, c.round, c.chunk
LIMIT  @most::int;

-- name: ChunksToCancel :many
-- Live runs of cancelled backfills that no cancel has reached.
SELECT c.tenant_id, c.run_id, b.reason
FROM   servo.backfill_chunks c
JOIN   LATERAL (SELECT x.reason FROM servo.backfills x WHERE x.tenant_id = c.tenant_id AND x.id = c.backfill_id AND x.state = 12 OFFSET 0) AS b ON true
JOIN   LATERAL (SELECT x.state FROM servo.runs x WHERE x.tenant_id = c.tenant_id AND x.id = c.run_id AND x.state < 3 OFFSET 0) AS r ON true
WHERE  c.ended_at IS NULL
LIMIT  @most::int;

-- name: WorkspaceNames :many
SELECT w.id, w.name
FROM   (SELECT DISTINCT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS n
JOIN   LATERAL (SELECT x.id, x.name FROM servo.workspaces x WHERE x.tenant_id = n.tenant_id AND x.id = n.id OFFSET 0) AS w ON true;

-- name: BackfillFacts :one
-- What bounds the speed of a tenant's tasks: its quota, the capacity of live workers, and its part of
-- the weights that compete.
SELECT t.max_concurrent_tasks, (SELECT coalesce(sum(s.in_flight), 0) FROM servo.shares s WHERE s.tenant_id = t.id)::int AS in_flight,
       (SELECT coalesce(sum(w.slots), 0) FROM servo.workers w WHERE w.seen_at > servo.clock() - make_interval(0, 0, 0, 0, 0, 0, @alive::float8))::int AS capacity,
       (t.fairness_weight / (t.fairness_weight + (SELECT coalesce(sum(o.fairness_weight), 0) FROM servo.tenants o
        WHERE o.id <> t.id AND EXISTS (SELECT FROM servo.shares s WHERE s.tenant_id = o.id AND s.waits))))::float8 AS share
FROM   servo.tenants t
WHERE  t.id = @tenant_id::uuid;

-- name: AssetSeconds :many
SELECT d.asset, d.seconds FROM servo.durations d WHERE d.tenant_id = @tenant_id::uuid AND d.asset = ANY (@assets::text[]);
