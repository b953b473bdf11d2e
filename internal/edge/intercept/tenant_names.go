package api

import (
	"context"
	"sync"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// tenantNames finds tenants by name and names by id. A tenant is never renamed or removed,
// so what was found once holds; what was not found may be made at any moment, and is not
// remembered.
type tenantNames struct {
	store *store.Store

	mu     sync.RWMutex
	ids    map[string]id.Tenant
	names  map[id.Tenant]string
	atMost int
}

// maxTenantNames bounds what is remembered. Past it everything is forgotten and asked again.
const maxTenantNames = 100_000

func newTenantNames(s *store.Store) *tenantNames {
	return &tenantNames{store: s, ids: map[string]id.Tenant{}, names: map[id.Tenant]string{}, atMost: maxTenantNames}
}

// id finds a tenant by its name.
func (n *tenantNames) id(ctx context.Context, name string) (id.Tenant, error) {
	n.mu.RLock()
	found, ok := n.ids[name]
	n.mu.RUnlock()
	if ok {
		return found, nil
	}
	if tenant.ValidateName("tenant", name) != nil { // nobody can have it
		return id.Tenant{}, fault.New(fault.NotFound, "no tenant of this name", fault.Field("tenant"), fault.Remedy("check the name"))
	}
	found, err := n.store.TenantByName(ctx, name)
	if err != nil {
		return id.Tenant{}, err
	}
	n.keep(ctx, found, name)
	return found, nil
}

// name finds the name of a tenant.
func (n *tenantNames) name(ctx context.Context, of id.Tenant) (string, error) {
	n.mu.RLock()
	found, ok := n.names[of]
	n.mu.RUnlock()
	if ok {
		return found, nil
	}
	view, err := n.store.GetTenant(ctx, of)
	if err != nil {
		return "", err
	}
	n.keep(ctx, of, view.Name)
	return view.Name, nil
}

func (n *tenantNames) keep(ctx context.Context, of id.Tenant, name string) {
	if store.Uncommitted(ctx) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.names) >= n.atMost {
		clear(n.ids)
		clear(n.names)
	}
	n.ids[name], n.names[of] = of, name
}
