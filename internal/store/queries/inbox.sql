-- External events and the configs that listen to them.

-- name: InsertEvent :execrows
-- A concurrent insert of the same key waits here, and finds that the key exists.
INSERT INTO servo.event_inbox (tenant_id, id, workspace_id, name, dedupe_key, parameters, reason, version, sent_by, received_at, listeners)
VALUES (@tenant_id::uuid, @id::uuid, @workspace_id::uuid, @name::text, @dedupe_key::text, (@parameters::text)::jsonb, @reason::text, @version::int, @sent_by::text,
        @received_at::timestamptz, @listeners::int)
ON CONFLICT (workspace_id, name, dedupe_key) DO NOTHING;

-- name: EventByKey :one
SELECT e.* FROM servo.event_inbox e
WHERE  e.tenant_id = @tenant_id::uuid AND e.workspace_id = @workspace_id::uuid AND e.name = @name::text AND e.dedupe_key = @dedupe_key::text;

-- name: CountEventListeners :one
SELECT count(*)::int FROM servo.configs c
WHERE  c.tenant_id = @tenant_id::uuid AND c.workspace_id = @workspace_id::uuid AND c.on_event = @name::text AND c.deleted_at IS NULL
AND    c.enabled AND c.paused_at IS NULL;

-- name: SomeEventListeners :many
SELECT x.name, x.spec FROM servo.configs x
WHERE  x.tenant_id = @tenant_id::uuid AND x.workspace_id = @workspace_id::uuid AND x.on_event = @name::text AND x.deleted_at IS NULL
AND    x.enabled AND x.paused_at IS NULL
ORDER  BY x.tenant_id, x.workspace_id, x.on_event, x.id LIMIT @most::int;

-- name: TakeEvents :many
-- The oldest unfinished external events. Skips locked rows.
SELECT e.* FROM servo.event_inbox e
WHERE  e.done_at IS NULL
ORDER  BY e.received_at, e.id LIMIT @most::int FOR UPDATE SKIP LOCKED;

-- name: EventListeners :many
-- The next configs that listen to each external event, after the last one that has had its run.
-- External events without a listener return no row.
SELECT n.event_id::uuid AS event_id, c.tenant_id, c.id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@event_ids::uuid[]) AS event_id, unnest(@workspace_ids::uuid[]) AS workspace_id,
               unnest(@names::text[]) AS name, unnest(@afters::uuid[]) AS after_id) AS n
JOIN   LATERAL (SELECT x.tenant_id, x.id FROM servo.configs x
                WHERE x.tenant_id = n.tenant_id AND x.workspace_id = n.workspace_id AND x.on_event = n.name AND x.id > n.after_id AND x.deleted_at IS NULL
                AND   x.enabled AND x.paused_at IS NULL
                ORDER BY x.tenant_id, x.workspace_id, x.on_event, x.id LIMIT @most::int) AS c ON true;

-- name: UpdateEvents :exec
-- The progress of locked external events.
UPDATE servo.event_inbox e
SET    version = n.version, after_id = nullif(n.after_id, '00000000-0000-0000-0000-000000000000'), runs = n.runs, skipped = n.skipped::jsonb,
       done_at = nullif(n.done_at, '0001-01-01 00:00:00+00')
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id, unnest(@versions::int[]) AS version, unnest(@afters::uuid[]) AS after_id,
               unnest(@runs::int[]) AS runs, unnest(@skipped::text[]) AS skipped, unnest(@done_ats::timestamptz[]) AS done_at) AS n
WHERE  e.tenant_id = ANY (ARRAY[n.tenant_id]) AND e.id = n.id;

-- name: ForgetEvents :execrows
-- The oldest finished external events whose keys have expired.
DELETE FROM servo.event_inbox e
WHERE  (e.tenant_id, e.id) IN (SELECT x.tenant_id, x.id FROM servo.event_inbox x WHERE x.done_at IS NOT NULL AND x.received_at < @before::timestamptz
                               ORDER BY x.received_at LIMIT @most::int FOR UPDATE SKIP LOCKED);
