package tenant_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"go.arco.dev/servo/internal/base/event"
	"go.arco.dev/servo/internal/domain/tenant"
)

func TestPauses(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	evolve := func(en tenant.Entity, body event.Body) tenant.Entity {
		t.Helper()
		next, err := en.Evolve(event.Event{Version: en.Version + 1, At: at, Body: body})
		require.NoError(t, err)
		return next
	}
	workspace := evolve(tenant.Entity{}, tenant.WorkspaceCreated{Name: "default"})
	one := evolve(workspace, tenant.AssetPaused{Asset: "a/b", Reason: "wrong prices", By: "ann"})
	two := evolve(one, tenant.AssetPaused{Asset: "a/c", By: "api"})
	resumed := evolve(two, tenant.AssetResumed{Asset: "a/b"})

	require.Equal(t, tenant.Pauses{"a/b": {At: at, By: "ann", Reason: "wrong prices"}}, one.Paused, "an earlier fold stays as it was")
	require.Equal(t, tenant.Pauses{"a/b": one.Paused["a/b"], "a/c": {At: at, By: "api"}}, two.Paused)
	require.Equal(t, tenant.Pauses{"a/c": {At: at, By: "api"}}, resumed.Paused)
	require.Empty(t, workspace.Paused)
}
