package daemon

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/store"
)

type fakeTenants map[id.Tenant]string

func (f fakeTenants) GetTenant(_ context.Context, tenant id.Tenant) (store.TenantView, error) {
	name, ok := f[tenant]
	if !ok {
		return store.TenantView{}, errors.New("no such tenant")
	}
	return store.TenantView{Name: name}, nil
}

func TestLogNamesTenants(t *testing.T) {
	t.Parallel()
	acme := id.Of[id.Tenant](uuid.MustParse("01a1de05-1020-7000-b9b9-668e0aad8a59"))
	var out bytes.Buffer
	log := nameTenants(slog.New(slog.NewTextHandler(&out, nil)), fakeTenants{acme: "acme"})
	line := func(write func()) string {
		out.Reset()
		write()
		return out.String()
	}
	for name, write := range map[string]func(){
		"an id":           func() { log.Info("run ended", "tenant", acme) },
		"an id as text":   func() { log.Info("run ended", slog.String("tenant", acme.String())) },
		"of the logger":   func() { log.With("tenant", acme).Info("run ended") },
		"beside a logger": func() { log.With("from", "server").Info("run ended", "tenant", acme) },
	} {
		require.Contains(t, line(write), "tenant_name=acme", name)
		require.Contains(t, line(write), "tenant="+acme.String(), name)
	}
	for name, write := range map[string]func(){
		"a name":         func() { log.Info("call", "tenant", "acme") },
		"nothing":        func() { log.Info("call") },
		"no such tenant": func() { log.Info("call", "tenant", uuid.New()) },
	} {
		require.NotContains(t, line(write), "tenant_name", name)
	}
}
