package verify_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/base/id"
	"go.arco.dev/servo/internal/domain/access"
)

// keys makes keys of a tenant and of the installation: some that are alive, one that was rotated
// and one that was revoked.
func (c *calendar) keys(t testing.TB) {
	t.Helper()
	meta := event.Meta{Actor: "ann"}
	for _, k := range []struct {
		owner id.Tenant
		life  time.Duration
		access.Settings
	}{
		{c.owner, 0, access.Settings{Name: "ci", Role: access.Developer, Workspace: "default"}},
		{c.owner, 720 * time.Hour, access.Settings{Name: "rotated", Role: access.Viewer}},
		{c.owner, 0, access.Settings{Name: "gone", Role: access.TenantAdmin}},
		{id.Tenant{}, 0, access.Settings{Name: "ops", Role: access.Platform}},
		{id.Tenant{}, 0, access.Settings{Name: "fleet", Role: access.Worker, Pools: []string{"default", "big"}}},
	} {
		_, _, err := c.CreateAPIKey(t.Context(), k.owner, k.Settings, k.life, meta)
		require.NoError(t, err)
	}
	_, _, _, err := c.RotateAPIKey(t.Context(), c.owner, "rotated", time.Hour, meta)
	require.NoError(t, err)
	_, err = c.RevokeAPIKey(t.Context(), c.owner, "gone", "lost", meta)
	require.NoError(t, err)
}
