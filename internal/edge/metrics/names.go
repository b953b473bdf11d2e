package metrics

import (
	"context"
	"sync"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

// Lookup finds names by id; *store.Store does.
type Lookup interface {
	GetTenant(ctx context.Context, tenant id.Tenant) (store.TenantView, error)
	ListWorkspaces(ctx context.Context, tenant id.Tenant) ([]store.WorkspaceView, error)
}

// names caches the names of tenants and workspaces, which are never renamed. A name that cannot be read
// is replaced by the id for this scrape: a scrape does not fail because the database is unavailable.
type names struct {
	lookup Lookup

	mu         sync.Mutex
	tenants    map[id.Tenant]string
	workspaces map[id.Workspace]string
}

// maxNames bounds what is remembered; past it everything is asked again.
const maxNames = 10_000

func newNames(lookup Lookup) *names {
	return &names{lookup: lookup, tenants: map[id.Tenant]string{}, workspaces: map[id.Workspace]string{}}
}

func (n *names) tenant(ctx context.Context, tenant id.Tenant) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.tenants[tenant]; ok {
		return name
	}
	if ctx.Err() != nil {
		return tenant.String()
	}
	found, err := n.lookup.GetTenant(ctx, tenant)
	if err != nil {
		return tenant.String()
	}
	if len(n.tenants) >= maxNames {
		clear(n.tenants)
	}
	n.tenants[tenant] = found.Name
	return found.Name
}

func (n *names) workspace(ctx context.Context, tenant id.Tenant, workspace id.Workspace) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.workspaces[workspace]; ok {
		return name
	}
	if ctx.Err() == nil {
		if found, err := n.lookup.ListWorkspaces(ctx, tenant); err == nil {
			if len(n.workspaces) >= maxNames {
				clear(n.workspaces)
			}
			for _, w := range found {
				n.workspaces[w.ID] = w.Name
			}
		}
	}
	if name, ok := n.workspaces[workspace]; ok {
		return name
	}
	return workspace.String()
}
