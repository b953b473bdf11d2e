package api_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
)

func TestRunGraph(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made := b.trigger(t, "diamond")
	get := func(t *testing.T) *servov1.RunGraph {
		t.Helper()
		graph, err := b.runs.GetRunGraph(t.Context(), &servov1.GetRunGraphRequest{Tenant: "acme", Run: made.GetId()})
		require.NoError(t, err)
		return graph
	}
	lines := func(graph *servov1.RunGraph) (lines []string) {
		for _, n := range graph.GetNodes() {
			lines = append(lines, fmt.Sprint(n.GetIndex(), n.GetAsset(), " ", n.GetState()))
		}
		return lines
	}
	graph := get(t)
	require.Equal(t, []string{"0d/a READY", "1d/b PENDING", "2d/c PENDING", "3d/d PENDING"}, lines(graph))
	edges := map[string]bool{}
	for _, e := range graph.GetEdges() {
		edges[fmt.Sprint(e.GetFrom(), "→", e.GetTo())] = true
	}
	require.Equal(t, map[string]bool{"0→1": true, "0→2": true, "1→3": true, "2→3": true}, edges)
	require.Len(t, graph.GetGroups(), 4)
	last := graph.GetGroups()[3]
	require.Equal(t, "d/d", last.GetAsset())
	require.ElementsMatch(t, []string{"d/b", "d/c"}, last.GetUpstream())
	require.Equal(t, map[string]int32{"PENDING": 1}, last.GetStates())
	require.Equal(t, int32(1), last.GetTotal())
	require.Equal(t, made.GetId(), graph.GetRun().GetId())

	b.drain(t)
	graph = get(t)
	require.Equal(t, []string{"0d/a SUCCEEDED", "1d/b SUCCEEDED", "2d/c SUCCEEDED", "3d/d SUCCEEDED"}, lines(graph))
	require.Len(t, graph.GetEdges(), 4, "they outlive the run")
	for _, n := range graph.GetNodes() {
		require.NotNil(t, n.GetQueuedAt())
		require.NotNil(t, n.GetFinishedAt())
		require.False(t, n.GetStartedAt().AsTime().Before(n.GetQueuedAt().AsTime()))
		require.Equal(t, int32(1), n.GetAttempt())
		require.Equal(t, "SUCCESS", n.GetOutcome())
	}

	t.Run("an object of another tenant is not found", func(t *testing.T) {
		t.Parallel()
		_, err := b.runs.GetRunGraph(t.Context(), &servov1.GetRunGraphRequest{Tenant: "brick", Run: made.GetId()})
		requireRefused(t, err, codes.NotFound, "run")
		_, err = b.runs.GetRunGraph(t.Context(), &servov1.GetRunGraphRequest{Tenant: "acme", Run: uuid.NewString()})
		requireRefused(t, err, codes.NotFound, "run")
	})
}

func TestWhoAmI(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	ask := func(t *testing.T, key string) *servov1.Caller {
		t.Helper()
		who, err := servov1.NewKeyServiceClient(g.conn).WhoAmI(with(t.Context(), key), &servov1.WhoAmIRequest{})
		require.NoError(t, err)
		require.False(t, who.GetOpen())
		return who
	}
	t.Run("a key of a tenant gets its name, role, tenant and workspace", func(t *testing.T) {
		t.Parallel()
		key, made := g.key(t, "acme", access.Settings{Name: "ci", Role: access.Viewer, Workspace: "default"})
		who := ask(t, key)
		require.Equal(t, "key/ci viewer acme default", fmt.Sprint(who.GetActor(), " ", who.GetRole(), " ", who.GetTenant(), " ", who.GetWorkspace()))
		require.Contains(t, who.GetPermissions(), "RUNS_READ")
		require.NotContains(t, who.GetPermissions(), "RUNS_TRIGGER")
		require.Equal(t, made.ExpiresAt.IsZero(), who.GetExpiresAt() == nil)
	})
	t.Run("a platform key has no tenant, a worker has pools", func(t *testing.T) {
		t.Parallel()
		who := ask(t, g.roleKey(t, access.Platform))
		require.Equal(t, "platform", who.GetRole())
		require.Empty(t, who.GetTenant())
		require.Contains(t, who.GetPermissions(), "ADMIN")
		require.Equal(t, []string{"default"}, ask(t, g.roleKey(t, access.Worker)).GetPools())
	})
	t.Run("an open server reports that it is open", func(t *testing.T) {
		t.Parallel()
		who, err := servov1.NewKeyServiceClient(g.bundle.conn).WhoAmI(t.Context(), &servov1.WhoAmIRequest{})
		require.NoError(t, err)
		require.True(t, who.GetOpen())
		require.Equal(t, "open", who.GetActor())
	})
}
