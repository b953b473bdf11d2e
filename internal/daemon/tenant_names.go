package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

const (
	tenantKey     = "tenant"
	tenantNameKey = "tenant_name"
	// maxLoggedNames bounds what is remembered; past it everything is looked up again.
	maxLoggedNames = 10_000
	// loggedNameWait is how long a line of the log waits for a name: a database that does not answer, or
	// whose connections are all in use, must not stop what is logged.
	loggedNameWait = 200 * time.Millisecond
)

// tenantLookup finds a tenant by id; *store.Store does.
type tenantLookup interface {
	GetTenant(ctx context.Context, tenant id.Tenant) (store.TenantView, error)
}

// namedTenants is a log handler that adds the name of a tenant to each line that has its id.
// A tenant is never renamed, so what was found holds.
type namedTenants struct {
	slog.Handler

	names *loggedNames
	bound string // the name of the tenant that WithAttrs has set; "" is none
}

type loggedNames struct {
	lookup tenantLookup

	mu    sync.Mutex
	found map[uuid.UUID]string
}

func nameTenants(log *slog.Logger, lookup tenantLookup) *slog.Logger {
	return slog.New(&namedTenants{Handler: log.Handler(), names: &loggedNames{lookup: lookup, found: map[uuid.UUID]string{}}})
}

// Handle implements slog.Handler.
func (h *namedTenants) Handle(ctx context.Context, record slog.Record) error {
	name := h.bound
	record.Attrs(func(a slog.Attr) bool {
		if a.Key == tenantKey {
			name = h.names.of(ctx, a.Value)
		}
		return name == ""
	})
	if name != "" {
		record = record.Clone()
		record.AddAttrs(slog.String(tenantNameKey, name))
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h *namedTenants) WithAttrs(attrs []slog.Attr) slog.Handler {
	out := &namedTenants{Handler: h.Handler.WithAttrs(attrs), names: h.names, bound: h.bound}
	for _, a := range attrs {
		if a.Key == tenantKey {
			out.bound = h.names.of(context.Background(), a.Value)
		}
	}
	return out
}

// WithGroup implements slog.Handler.
func (h *namedTenants) WithGroup(name string) slog.Handler {
	return &namedTenants{Handler: h.Handler.WithGroup(name), names: h.names, bound: h.bound}
}

// of is the name of the tenant whose id a value is; "" if it is none, or cannot be found now.
func (n *loggedNames) of(ctx context.Context, value slog.Value) string {
	parsed, err := uuid.Parse(value.Resolve().String())
	if err != nil || parsed == uuid.Nil {
		return ""
	}
	n.mu.Lock()
	name, ok := n.found[parsed]
	n.mu.Unlock()
	if ok {
		return name
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loggedNameWait)
	defer cancel()
	tenant, err := n.lookup.GetTenant(ctx, id.Of[id.Tenant](parsed))
	if err != nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.found) >= maxLoggedNames {
		clear(n.found)
	}
	n.found[parsed] = tenant.Name
	return tenant.Name
}
