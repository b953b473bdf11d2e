-- name: ListAssetPauses :many
SELECT p.asset, p.paused_at, p.paused_by, p.reason
FROM   servo.workspaces w
JOIN   LATERAL (SELECT * FROM servo.asset_pauses x WHERE x.tenant_id = w.tenant_id AND x.workspace_id = w.id OFFSET 0) AS p ON true
WHERE  w.tenant_id = @tenant_id::uuid AND w.name = @workspace::text
ORDER  BY p.asset
LIMIT  @most::int;
