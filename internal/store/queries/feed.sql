-- The feed: the log in the order of transactions, and its subscriptions.

-- name: EnterFeed :exec
-- The role of the engine, with plans that scan the indexes of the feed in their order and stop at the
-- limit, with any statistics.
SELECT set_config('role', 'servo_engine', true),
       set_config('jit', 'off', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true),
       set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true);

-- name: Feed :many
-- The events after a position, up to the oldest running transaction: no transaction with a smaller id
-- than the returned ones can still commit, so no event is skipped. Visibility and that bound come
-- from the same snapshot.
SELECT f.tx, f.position, f.ordinal, f.tenant_id, f.run_id, f.subject, f.version, f.recorded_at, f.schema, f.type, f.actor, f.trace, f.data
FROM   ((SELECT (e.txid::text)::bigint AS tx, e.position, e.ordinal, e.tenant_id, e.run_id, e.subject_id::text AS subject, e.version, e.recorded_at, e.schema, e.type, e.actor, e.trace, e.data
         FROM   servo.run_events e
         WHERE  e.txid >= (@tx::text)::xid8 AND e.txid < pg_snapshot_xmin(pg_current_snapshot())
         AND    (e.txid > (@tx::text)::xid8 OR (e.position, e.ordinal) > (@position::bigint, @ordinal::int))
         ORDER  BY e.txid, e.position, e.ordinal LIMIT @most::int)
        UNION ALL
        (SELECT (e.txid::text)::bigint, e.position, 1, e.tenant_id, '00000000-0000-0000-0000-000000000000'::uuid, e.subject_id::text, e.version, e.recorded_at, e.schema, e.type, e.actor, e.trace, e.data
         FROM   servo.entity_events e
         WHERE  e.txid >= (@tx::text)::xid8 AND e.txid < pg_snapshot_xmin(pg_current_snapshot())
         AND    (e.txid > (@tx::text)::xid8 OR (e.position, 1) > (@position::bigint, @ordinal::int))
         ORDER  BY e.txid, e.position LIMIT @most::int)
        UNION ALL
        (SELECT (e.txid::text)::bigint, e.position, 1, '00000000-0000-0000-0000-000000000000'::uuid, '00000000-0000-0000-0000-000000000000'::uuid, e.subject, e.version, e.recorded_at, e.schema, e.type, e.actor, e.trace, e.data
         FROM   servo.platform_events e
         WHERE  e.txid >= (@tx::text)::xid8 AND e.txid < pg_snapshot_xmin(pg_current_snapshot())
         AND    (e.txid > (@tx::text)::xid8 OR (e.position, 1) > (@position::bigint, @ordinal::int))
         ORDER  BY e.txid, e.position LIMIT @most::int)) AS f
ORDER  BY f.tx, f.position, f.ordinal
LIMIT  @most::int;

-- name: FeedNext :one
-- The time of the first event after a position, settled or not; the far future if there is none.
SELECT coalesce(min(f.recorded_at), '9999-12-31 00:00:00+00')::timestamptz AS recorded_at
FROM   ((SELECT e.recorded_at FROM servo.run_events e
         WHERE  e.txid >= (@tx::text)::xid8 AND (e.txid > (@tx::text)::xid8 OR (e.position, e.ordinal) > (@position::bigint, @ordinal::int)) ORDER BY e.txid LIMIT 1)
        UNION ALL
        (SELECT e.recorded_at FROM servo.entity_events e
         WHERE  e.txid >= (@tx::text)::xid8 AND (e.txid > (@tx::text)::xid8 OR (e.position, 1) > (@position::bigint, @ordinal::int)) ORDER BY e.txid LIMIT 1)
        UNION ALL
        (SELECT e.recorded_at FROM servo.platform_events e
         WHERE  e.txid >= (@tx::text)::xid8 AND (e.txid > (@tx::text)::xid8 OR (e.position, 1) > (@position::bigint, @ordinal::int)) ORDER BY e.txid LIMIT 1)) AS f;

-- name: FeedEnds :one
-- The end of the feed: the oldest running transaction, and the next that will begin.
SELECT (pg_snapshot_xmin(pg_current_snapshot())::text)::bigint AS settled, (pg_snapshot_xmax(pg_current_snapshot())::text)::bigint AS next;

-- name: FeedEpochs :many
SELECT e.epoch, e.from_tx, e.cluster FROM servo.feed_epochs e ORDER BY e.epoch;

-- name: FeedCluster :one
-- The system identifier of the cluster and its timeline.
SELECT ((SELECT c.system_identifier FROM pg_control_system() AS c)::text || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::text AS cluster;

-- name: LockFeedEpochs :exec
SELECT pg_advisory_xact_lock(hashtextextended('servo.feed_epochs', 0));

-- name: RaiseFeedEpoch :exec
INSERT INTO servo.feed_epochs (epoch, from_tx, cluster, raised_at, reason)
VALUES (@epoch::int, @from_tx::bigint, @cluster::text, servo.clock(), @reason::text);

-- name: NameFeedCluster :exec
UPDATE servo.feed_epochs SET cluster = @cluster::text WHERE epoch = @epoch::int;

-- name: SubscriptionsDue :many
-- The positions of due subscriptions: one index scan.
SELECT s.after_epoch, s.after_tx, s.after_position, s.after_ordinal FROM servo.subscriptions s WHERE s.due_at <= servo.clock() ORDER BY s.due_at LIMIT @most::int;

-- name: TakeSubscriptions :many
-- Leases due subscriptions.
UPDATE servo.subscriptions s
SET    due_at = @until::timestamptz, lease = s.lease + 1
FROM   (SELECT x.tenant_id, x.id FROM servo.subscriptions x
        WHERE x.due_at <= @now::timestamptz ORDER BY x.due_at LIMIT @most::int FOR UPDATE SKIP LOCKED) AS n
WHERE  s.tenant_id = ANY (ARRAY[n.tenant_id]) AND s.id = n.id
RETURNING s.tenant_id, s.id, s.version, s.name, s.url, s.types, s.workspace, s.pipeline, s.secret, s.created_by, s.created_at,
          s.after_epoch, s.after_tx, s.after_position, s.after_ordinal, s.lease, s.tries, s.failing_since;

-- name: MoveSubscriptions :execrows
-- The new positions and due times of subscriptions. A server that has lost its lease changes nothing.
UPDATE servo.subscriptions s
SET    after_epoch = n.epoch, after_tx = n.tx, after_position = n.position, after_ordinal = n.ordinal, due_at = n.due_at,
       delivered = s.delivered + n.delivered, delivered_at = CASE WHEN n.delivered > 0 THEN @now::timestamptz ELSE s.delivered_at END,
       tries = CASE WHEN n.delivered > 0 THEN 0 ELSE s.tries END,
       failing_since = CASE WHEN n.delivered > 0 THEN NULL ELSE s.failing_since END,
       error = CASE WHEN n.delivered > 0 THEN '' ELSE s.error END
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id, unnest(@leases::bigint[]) AS lease, unnest(@epochs::int[]) AS epoch,
               unnest(@txs::bigint[]) AS tx, unnest(@positions::bigint[]) AS position, unnest(@ordinals::int[]) AS ordinal, unnest(@delivered::bigint[]) AS delivered,
               unnest(@due_ats::timestamptz[]) AS due_at) AS n
WHERE  s.tenant_id = ANY (ARRAY[n.tenant_id]) AND s.id = n.id AND s.lease = n.lease AND s.due_at IS NOT NULL;

-- name: FailSubscription :execrows
-- A failed delivery. The position stays.
UPDATE servo.subscriptions s
SET    due_at = @due_at::timestamptz, tries = s.tries + 1, failing_since = coalesce(s.failing_since, @now::timestamptz), error = @error::text
WHERE  s.tenant_id = @tenant_id::uuid AND s.id = @id::uuid AND s.lease = @lease::bigint AND s.due_at IS NOT NULL;

-- name: RunOrigins :many
-- Workspace and pipeline of runs, for filters.
SELECT r.tenant_id, r.id, r.pipeline, w.name AS workspace
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS n
JOIN   LATERAL (SELECT x.tenant_id, x.id, x.pipeline, x.workspace_id FROM servo.runs x WHERE x.tenant_id = n.tenant_id AND x.id = n.id OFFSET 0) AS r ON true
JOIN   LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = r.tenant_id AND x.id = r.workspace_id OFFSET 0) AS w ON true;

-- name: CountSubscriptions :one
SELECT count(*)::int AS subscriptions FROM servo.subscriptions s WHERE s.tenant_id = @tenant_id::uuid AND s.deleted_at IS NULL;

-- name: InsertSubscription :exec
INSERT INTO servo.subscriptions (tenant_id, id, version, name, url, types, workspace, pipeline, secret, created_by, created_at,
                                 after_epoch, after_tx, after_position, after_ordinal, due_at)
VALUES (@tenant_id::uuid, @id::uuid, 1, @name::text, @url::text, @types::text[], @workspace::text, @pipeline::text, @secret::bytea,
        @created_by::text, @now::timestamptz, @after_epoch::int, @after_tx::bigint, @after_position::bigint, @after_ordinal::int, @now::timestamptz);

-- name: LockSubscription :one
SELECT s.tenant_id, s.id, s.version, s.name, s.url, s.types, s.workspace, s.pipeline, s.paused_at, s.pause_reason, s.created_by, s.created_at, s.deleted_at,
       s.after_epoch, s.after_tx, s.after_position, s.after_ordinal, s.lease, s.tries, s.failing_since
FROM   servo.subscriptions s
WHERE  s.tenant_id = @tenant_id::uuid AND s.name = @name::text AND s.deleted_at IS NULL
FOR NO KEY UPDATE;

-- name: UpdateSubscription :exec
-- The changes of an event. Ends a lease of the subscription.
UPDATE servo.subscriptions s
SET    version = @version::int, paused_at = sqlc.narg('paused_at')::timestamptz, pause_reason = @pause_reason::text, deleted_at = sqlc.narg('deleted_at')::timestamptz,
       due_at = sqlc.narg('due_at')::timestamptz, lease = s.lease + 1, tries = CASE WHEN @again::bool THEN 0 ELSE s.tries END,
       failing_since = CASE WHEN @again::bool THEN NULL ELSE s.failing_since END,
       after_epoch = @after_epoch::int, after_tx = @after_tx::bigint, after_position = @after_position::bigint, after_ordinal = @after_ordinal::int
WHERE  s.tenant_id = @tenant_id::uuid AND s.id = @id::uuid;

-- name: FarthestBehind :many
-- The active subscription that is farthest behind, if there is one.
SELECT s.after_tx, s.after_position, s.after_ordinal FROM servo.subscriptions s WHERE s.due_at IS NOT NULL ORDER BY s.after_tx, s.after_position, s.after_ordinal LIMIT 1;

-- name: FailingSubscriptions :one
SELECT count(*)::int AS failing FROM servo.subscriptions s WHERE s.due_at IS NOT NULL AND s.failing_since IS NOT NULL;
