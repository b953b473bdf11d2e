-- name: ListAssetPauses :many
SELECT p.asset, p.paused_at, p.paused_by, p.reason
FROM   servo.workspaces w
JOIN   LATERAL (SELECT * FROM servo.asset_pauses x WHERE x.tenant_id = w.tenant_id AND x.workspace_id = w.id OFFSET 0) AS p ON true
WHERE  w.tenant_id = @tenant_id::uuid AND w.name = @workspace::text
ORDER  BY p.asset
LIMIT  @most::int;

-- name: TenantUsage :one
-- The use of a tenant's quotas, each counted up to `most`.
SELECT (SELECT coalesce(sum(s.in_flight), 0) FROM servo.shares s WHERE s.tenant_id = @tenant_id::uuid)::bigint AS in_flight,
       ((SELECT count(*) FROM (SELECT 1 FROM servo.ready_q q WHERE q.tenant_id = @tenant_id::uuid AND NOT q.held LIMIT @most::int) AS f)
        + (SELECT count(*) FROM (SELECT 1 FROM servo.ready_q q WHERE q.tenant_id = @tenant_id::uuid AND q.held LIMIT @most::int) AS h))::bigint AS ready,
       (SELECT count(*) FROM (SELECT 1 FROM servo.live_runs l WHERE l.tenant_id = @tenant_id::uuid AND NOT l.pending LIMIT @most::int) AS l)::bigint AS live,
       (SELECT count(*) FROM (SELECT 1 FROM servo.live_runs p WHERE p.tenant_id = @tenant_id::uuid AND p.pending LIMIT @most::int) AS p)::bigint AS pending,
       (SELECT count(*) FROM (SELECT 1 FROM servo.runs r WHERE r.tenant_id = @tenant_id::uuid AND r.id >= @day::uuid LIMIT @most::int) AS r)::bigint AS today;
