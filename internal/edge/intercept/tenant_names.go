package intercept

import (
	"context"
	"strconv"
	"sync"

	"go.arco.dev/servo/internal/base/fault"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/tenant"
	"go.arco.dev/servo/internal/store"
)

// TenantNames maps names of tenants to ids and back. It caches what it finds, because tenants are
// neither renamed nor deleted. It does not cache that a tenant does not exist.
type TenantNames struct {
	store *store.Store

	mu     sync.RWMutex
	ids    map[string]id.Tenant
	names  map[id.Tenant]string
	atMost int
}

// maxTenantNames bounds the cache. Beyond it the cache is cleared.
const maxTenantNames = 100_000

// NewTenantNames creates an empty cache.
func NewTenantNames(s *store.Store) *TenantNames {
	return &TenantNames{store: s, ids: map[string]id.Tenant{}, names: map[id.Tenant]string{}, atMost: maxTenantNames}
}

// ID returns the id of a tenant.
func (n *TenantNames) ID(ctx context.Context, name string) (id.Tenant, error) {
	n.mu.RLock()
	found, ok := n.ids[name]
	n.mu.RUnlock()
	if ok {
		return found, nil
	}
	if tenant.ValidateName("tenant", name) != nil { // no tenant can have this name
		return id.Tenant{}, fault.New(fault.NotFound, "no tenant "+strconv.Quote(name), fault.Field("tenant"), fault.Remedy("check the name"))
	}
	found, err := n.store.TenantByName(ctx, name)
	if err != nil {
		return id.Tenant{}, err
	}
	n.keep(ctx, found, name)
	return found, nil
}

// Name returns the name of a tenant.
func (n *TenantNames) Name(ctx context.Context, of id.Tenant) (string, error) {
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

func (n *TenantNames) keep(ctx context.Context, of id.Tenant, name string) {
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
