-- Configs and the ledger of their slots, under the engine's role.

-- name: UpsertConfigs :exec
INSERT INTO servo.configs AS c (tenant_id, id, workspace_id, name, version, pipeline, labels, spec, enabled, disabled_reason, paused_at, pause_note,
       moved_to, created_by, created_at, updated_at, deleted_at, decided_until, next_slot, due_at, zone_data, range_from, failures)
SELECT unnest(@tenant_ids::uuid[]), unnest(@ids::uuid[]), unnest(@workspace_ids::uuid[]), unnest(@names::text[]), unnest(@versions::int[]),
       unnest(@pipelines::text[]), unnest(@labels::text[])::jsonb, unnest(@specs::text[])::jsonb, unnest(@enableds::bool[]), unnest(@disabled_reasons::text[]),
       nullif(unnest(@paused_ats::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@pause_notes::text[]),
       nullif(unnest(@moved_tos::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@created_bys::text[]), unnest(@created_ats::timestamptz[]),
       unnest(@updated_ats::timestamptz[]), nullif(unnest(@deleted_ats::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@decided_untils::timestamptz[]),
       nullif(unnest(@next_slots::timestamptz[]), '0001-01-01 00:00:00+00'), nullif(unnest(@due_ats::timestamptz[]), '0001-01-01 00:00:00+00'),
       unnest(@zone_datas::text[]), nullif(unnest(@range_froms::timestamptz[]), '0001-01-01 00:00:00+00'), unnest(@failures::int[])
ON CONFLICT (tenant_id, id) DO UPDATE
SET    version = excluded.version, pipeline = excluded.pipeline, labels = excluded.labels, spec = excluded.spec, enabled = excluded.enabled,
       disabled_reason = excluded.disabled_reason, paused_at = excluded.paused_at, pause_note = excluded.pause_note, moved_to = excluded.moved_to,
       updated_at = excluded.updated_at, deleted_at = excluded.deleted_at, decided_until = excluded.decided_until, next_slot = excluded.next_slot,
       due_at = excluded.due_at, zone_data = excluded.zone_data, range_from = excluded.range_from, failures = excluded.failures;

-- name: MoveConfigs :exec
-- The next slots and last runs of locked configs after slots were decided.
UPDATE servo.configs c
SET    decided_until = n.decided_until, next_slot = nullif(n.next_slot, '0001-01-01 00:00:00+00'), due_at = nullif(n.due_at, '0001-01-01 00:00:00+00'),
       moved_to = CASE WHEN c.moved_to <= n.decided_until THEN NULL ELSE c.moved_to END,
       zone_data = n.zone_data, range_from = nullif(n.range_from, '0001-01-01 00:00:00+00'), failures = n.failures,
       last_slot = nullif(n.last_slot, '0001-01-01 00:00:00+00'), last_run_id = nullif(n.last_run_id, '00000000-0000-0000-0000-000000000000'),
       last_run_state = nullif(n.last_run_state, 0), last_run_at = nullif(n.last_run_at, '0001-01-01 00:00:00+00'),
       last_success_at = nullif(n.last_success_at, '0001-01-01 00:00:00+00'), covered_until = nullif(n.covered_until, '0001-01-01 00:00:00+00')
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id, unnest(@decided_untils::timestamptz[]) AS decided_until,
               unnest(@next_slots::timestamptz[]) AS next_slot, unnest(@due_ats::timestamptz[]) AS due_at, unnest(@zone_datas::text[]) AS zone_data,
               unnest(@range_froms::timestamptz[]) AS range_from, unnest(@failures::int[]) AS failures, unnest(@last_slots::timestamptz[]) AS last_slot,
               unnest(@last_run_ids::uuid[]) AS last_run_id, unnest(@last_run_states::smallint[]) AS last_run_state,
               unnest(@last_run_ats::timestamptz[]) AS last_run_at, unnest(@last_success_ats::timestamptz[]) AS last_success_at,
               unnest(@covered_untils::timestamptz[]) AS covered_until) AS n
WHERE  c.tenant_id = ANY (ARRAY[n.tenant_id]) AND c.id = n.id;

-- name: LockDueConfigs :many
-- The due configs, with the range of their last slot and the last success of the config that they
-- depend on. Skips locked rows.
SELECT c.tenant_id, c.id, c.workspace_id, c.name, c.version, c.spec, c.enabled, c.disabled_reason, c.paused_at, c.pause_note, c.moved_to,
       c.created_by, c.created_at, c.updated_at, c.deleted_at, c.decided_until, c.next_slot, c.due_at, c.zone_data, c.range_from,
       c.last_slot, c.last_run_id, c.last_run_state, c.last_run_at, c.last_success_at, c.failures, c.covered_until,
       w.name AS workspace, coalesce(r.outcome, 0)::smallint AS range_outcome, coalesce(r.reason, '')::text AS range_reason,
       coalesce(r.config_version, 0)::int AS range_version, r.run_id AS range_run_id, d.last_success_at AS dependency_success_at
FROM   (SELECT x.* FROM servo.configs x WHERE x.due_at <= @now::timestamptz ORDER BY x.due_at, x.id LIMIT @most::int FOR NO KEY UPDATE SKIP LOCKED) AS c
JOIN   LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = c.tenant_id AND x.id = c.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT x.outcome, x.reason, x.config_version, x.run_id FROM servo.slot_ranges x
                     WHERE x.tenant_id = c.tenant_id AND x.config_id = c.id AND x.from_at = c.range_from OFFSET 0) AS r ON true
LEFT   JOIN LATERAL (SELECT x.last_success_at FROM servo.configs x
                     WHERE x.tenant_id = c.tenant_id AND x.workspace_id = c.workspace_id AND x.name = c.depends_on AND x.deleted_at IS NULL OFFSET 0) AS d ON true;

-- name: LockConfigs :many
-- Configs by id, in the order of ids. Other transactions that decide about their slots wait.
SELECT c.tenant_id, c.id, c.workspace_id, c.name, c.version, c.spec, c.enabled, c.disabled_reason, c.paused_at, c.pause_note, c.moved_to,
       c.created_by, c.created_at, c.updated_at, c.deleted_at, c.decided_until, c.next_slot, c.due_at, c.zone_data, c.range_from,
       c.last_slot, c.last_run_id, c.last_run_state, c.last_run_at, c.last_success_at, c.failures, c.covered_until,
       w.name AS workspace, coalesce(r.outcome, 0)::smallint AS range_outcome, coalesce(r.reason, '')::text AS range_reason,
       coalesce(r.config_version, 0)::int AS range_version, r.run_id AS range_run_id, d.last_success_at AS dependency_success_at
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id ORDER BY 2) AS n
JOIN   LATERAL (SELECT x.* FROM servo.configs x WHERE x.tenant_id = n.tenant_id AND x.id = n.id FOR NO KEY UPDATE) AS c ON true
JOIN   LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = c.tenant_id AND x.id = c.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT x.outcome, x.reason, x.config_version, x.run_id FROM servo.slot_ranges x
                     WHERE x.tenant_id = c.tenant_id AND x.config_id = c.id AND x.from_at = c.range_from OFFSET 0) AS r ON true
LEFT   JOIN LATERAL (SELECT x.last_success_at FROM servo.configs x
                     WHERE x.tenant_id = c.tenant_id AND x.workspace_id = c.workspace_id AND x.name = c.depends_on AND x.deleted_at IS NULL OFFSET 0) AS d ON true;

-- name: LockFreeConfigs :many
-- The same, but skips locked rows.
SELECT c.tenant_id, c.id, c.workspace_id, c.name, c.version, c.spec, c.enabled, c.disabled_reason, c.paused_at, c.pause_note, c.moved_to,
       c.created_by, c.created_at, c.updated_at, c.deleted_at, c.decided_until, c.next_slot, c.due_at, c.zone_data, c.range_from,
       c.last_slot, c.last_run_id, c.last_run_state, c.last_run_at, c.last_success_at, c.failures, c.covered_until,
       w.name AS workspace, coalesce(r.outcome, 0)::smallint AS range_outcome, coalesce(r.reason, '')::text AS range_reason,
       coalesce(r.config_version, 0)::int AS range_version, r.run_id AS range_run_id, d.last_success_at AS dependency_success_at
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id ORDER BY 2) AS n
JOIN   LATERAL (SELECT x.* FROM servo.configs x WHERE x.tenant_id = n.tenant_id AND x.id = n.id FOR NO KEY UPDATE SKIP LOCKED) AS c ON true
JOIN   LATERAL (SELECT x.name FROM servo.workspaces x WHERE x.tenant_id = c.tenant_id AND x.id = c.workspace_id OFFSET 0) AS w ON true
LEFT   JOIN LATERAL (SELECT x.outcome, x.reason, x.config_version, x.run_id FROM servo.slot_ranges x
                     WHERE x.tenant_id = c.tenant_id AND x.config_id = c.id AND x.from_at = c.range_from OFFSET 0) AS r ON true
LEFT   JOIN LATERAL (SELECT x.last_success_at FROM servo.configs x
                     WHERE x.tenant_id = c.tenant_id AND x.workspace_id = c.workspace_id AND x.name = c.depends_on AND x.deleted_at IS NULL OFFSET 0) AS d ON true;

-- name: ConfigIDs :many
-- The ids of configs by their names.
SELECT c.tenant_id, c.workspace_id, c.name, c.id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@workspace_ids::uuid[]) AS workspace_id, unnest(@names::text[]) AS name) AS n
JOIN   LATERAL (SELECT x.* FROM servo.configs x
                WHERE x.tenant_id = n.tenant_id AND x.workspace_id = n.workspace_id AND x.name = n.name AND x.deleted_at IS NULL OFFSET 0) AS c ON true;

-- name: Listeners :many
-- Configs that fire when others succeed.
SELECT c.tenant_id, c.id, n.id::uuid AS source_id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@ids::uuid[]) AS id) AS n
JOIN   LATERAL (SELECT x.workspace_id, x.name FROM servo.configs x WHERE x.tenant_id = n.tenant_id AND x.id = n.id OFFSET 0) AS s ON true
JOIN   LATERAL (SELECT x.tenant_id, x.id FROM servo.configs x
                WHERE x.tenant_id = n.tenant_id AND x.workspace_id = s.workspace_id AND x.after_config = s.name AND x.deleted_at IS NULL
                AND   x.enabled AND x.paused_at IS NULL OFFSET 0) AS c ON true;

-- name: NextDue :one
-- When the next config is due; the far future if none is. Two more index lookups show whether results
-- of runs and external events wait.
SELECT coalesce((SELECT c.due_at FROM servo.configs c WHERE c.due_at IS NOT NULL ORDER BY c.due_at LIMIT 1), '9999-12-31 00:00:00+00')::timestamptz AS due_at,
       ((SELECT r.id FROM servo.config_results r ORDER BY r.id LIMIT 1) IS NOT NULL)::bool AS results,
       ((SELECT e.id FROM servo.event_inbox e WHERE e.done_at IS NULL ORDER BY e.received_at, e.id LIMIT 1) IS NOT NULL)::bool AS events;

-- name: LiveOfConfigs :many
-- How many runs of configs have not ended, and how many of those wait for their lock.
SELECT n.config_id::uuid AS config_id, l.live::int AS live, l.behind::int AS behind
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@config_ids::uuid[]) AS config_id) AS n
JOIN   LATERAL (SELECT count(*) AS live, count(*) FILTER (WHERE x.wait_key <> '') AS behind FROM servo.live_runs x
                WHERE x.tenant_id = n.tenant_id AND x.config_id = n.config_id) AS l ON true;

-- name: WaitingOfConfigs :many
-- The runs of configs that wait for their lock, up to a number of each.
SELECT n.config_id::uuid AS config_id, l.run_id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@config_ids::uuid[]) AS config_id) AS n
JOIN   LATERAL (SELECT x.run_id FROM servo.live_runs x
                WHERE x.tenant_id = n.tenant_id AND x.config_id = n.config_id AND x.wait_key <> '' LIMIT @most::int) AS l ON true;

-- name: InsertSlots :exec
-- partitions are lists as text, one on each line
INSERT INTO servo.slots (tenant_id, config_id, slot_at, run_id, decided_at, decided_by, partitions)
SELECT unnest(@tenant_ids::uuid[]), unnest(@config_ids::uuid[]), unnest(@slot_ats::timestamptz[]), unnest(@run_ids::uuid[]), @now::timestamptz, @decided_by::text,
       string_to_array(nullif(unnest(@partitions::text[]), ''), E'\n');

-- name: UpsertSlotRanges :exec
-- A range that continues the one before it is in the same row.
INSERT INTO servo.slot_ranges AS r (tenant_id, config_id, from_at, to_at, slots, outcome, reason, config_version, run_id, decided_at, decided_by)
SELECT unnest(@tenant_ids::uuid[]), unnest(@config_ids::uuid[]), unnest(@from_ats::timestamptz[]), unnest(@to_ats::timestamptz[]), unnest(@slots::bigint[]),
       unnest(@outcomes::smallint[]), unnest(@reasons::text[]), unnest(@config_versions::int[]),
       nullif(unnest(@run_ids::uuid[]), '00000000-0000-0000-0000-000000000000'), @now::timestamptz, @decided_by::text
ON CONFLICT (tenant_id, config_id, from_at) DO UPDATE
SET    to_at = excluded.to_at, slots = r.slots + excluded.slots, decided_at = excluded.decided_at, decided_by = excluded.decided_by;

-- name: InsertConfigResults :exec
INSERT INTO servo.config_results (tenant_id, config_id, run_id, state, ended_at)
SELECT unnest(@tenant_ids::uuid[]), unnest(@config_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@states::smallint[]), @now::timestamptz;

-- name: TakeConfigResults :many
-- The results of runs for their configs, the oldest first.
DELETE FROM servo.config_results
WHERE  id = ANY (ARRAY(SELECT r.id FROM servo.config_results r ORDER BY r.id LIMIT @most::int FOR UPDATE SKIP LOCKED))
RETURNING id, tenant_id, config_id, run_id, state, ended_at, after_id;

-- name: ClaimedRuns :many
-- Those of the ended runs of which a worker has claimed a task.
SELECT n.run_id::uuid AS run_id
FROM   (SELECT unnest(@tenant_ids::uuid[]) AS tenant_id, unnest(@run_ids::uuid[]) AS run_id) AS n
JOIN   LATERAL (SELECT 1 FROM servo.tasks t WHERE t.tenant_id = n.tenant_id AND t.run_id = n.run_id AND t.attempt > 0 LIMIT 1) AS c ON true;

-- name: LeaveConfigResults :exec
-- Results that were deleted and have to wait, with their old ids.
INSERT INTO servo.config_results (id, tenant_id, config_id, run_id, state, ended_at, after_id) OVERRIDING SYSTEM VALUE
SELECT unnest(@ids::bigint[]), unnest(@tenant_ids::uuid[]), unnest(@config_ids::uuid[]), unnest(@run_ids::uuid[]), unnest(@states::smallint[]),
       unnest(@ended_ats::timestamptz[]), nullif(unnest(@after_ids::uuid[]), '00000000-0000-0000-0000-000000000000');

-- name: ConfigsOfOtherZoneData :many
-- Configs whose next slot was computed with other zone data: older, or any.
SELECT c.tenant_id, c.id FROM servo.configs c
WHERE  c.zone_data <> @zone_data::text AND (@newer::bool OR c.zone_data < @zone_data::text) AND c.deleted_at IS NULL AND (c.tenant_id, c.id) > (@after_tenant::uuid, @after_id::uuid)
ORDER  BY c.tenant_id, c.id LIMIT @most::int;

-- name: ConfigDependents :many
-- The first configs that run after another one of the workspace, or depend on it.
SELECT x.name FROM servo.configs x
WHERE  x.tenant_id = @tenant_id::uuid AND x.workspace_id = @workspace_id::uuid AND x.deleted_at IS NULL AND x.name <> @name::text
AND    (x.after_config = @name::text OR x.depends_on = @name::text)
ORDER  BY x.name LIMIT @most::int;

-- name: ConfigEdges :many
-- Which configs of a workspace run after others, or depend on them.
SELECT x.name, coalesce(x.after_config, '')::text AS after_config, coalesce(x.depends_on, '')::text AS depends_on FROM servo.configs x
WHERE  x.tenant_id = @tenant_id::uuid AND x.workspace_id = @workspace_id::uuid AND x.deleted_at IS NULL
AND    (x.after_config IS NOT NULL OR x.depends_on IS NOT NULL);

-- name: ConfigNames :many
-- For suggestions after a wrong name.
SELECT x.name FROM servo.configs x
WHERE  x.tenant_id = @tenant_id::uuid AND x.workspace_id = @workspace_id::uuid AND x.deleted_at IS NULL
ORDER  BY x.name LIMIT @most::int;
