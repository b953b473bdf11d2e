package verify

import (
	"go.arco.dev/servo/internal/domain/access"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// Keys are entities with a fold of their own, like configs.
const kindKey tenant.Kind = "api key"

func (c *entityCheck) keyRow(got store.KeyRow) error {
	return entityRow(c, c.tables.keys, kindKey, got.TenantID, got.ID, got, func(en *entity) store.KeyRow { return wantKey(en.key) })
}

func wantKey(k access.Key) store.KeyRow {
	row := store.KeyRow{
		TenantID: k.Tenant.UUID, ID: k.ID.UUID, Version: k.Version, PublicID: k.Public, Name: k.Name, Role: string(k.Role), Workspace: textOrNull(k.Workspace),
		Pools: k.Pools, CreatedBy: k.CreatedBy, CreatedAt: k.CreatedAt, ExpiresAt: timeOrNull(k.ExpiresAt), ReplacedBy: textOrNull(k.ReplacedBy), RevokedAt: timeOrNull(k.RevokedAt),
	}
	if row.Pools == nil {
		row.Pools = []string{}
	}
	return row
}
