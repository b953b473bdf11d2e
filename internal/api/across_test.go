package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/access"
)

// twoTenants are acme and brick, both deployed.
func twoTenants(t testing.TB) *guarded {
	t.Helper()
	g := setupGuarded(t)
	_, err := g.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "brick", Manifest: manifestOf(t, manifestText)})
	require.NoError(t, err)
	return g
}

func TestRunsAcrossTenants(t *testing.T) {
	t.Parallel()
	g := twoTenants(t)
	var made []string // the newest first
	for i := range 6 {
		tenant := []string{"acme", "brick"}[i%2]
		answer, err := g.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: tenant, Pipeline: "single"})
		require.NoError(t, err)
		made = append([]string{tenant + " " + answer.GetRun().GetId()}, made...)
	}
	_, err := g.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: "brick", Pipeline: "diamond"})
	require.NoError(t, err)
	runs := servov1.NewRunServiceClient(g.conn)
	operator, viewer := with(t.Context(), g.roleKey(t, access.Platform)), with(t.Context(), g.roleKey(t, access.Viewer))

	t.Run("an operator sees the runs of all, the newest first, page by page", func(t *testing.T) {
		t.Parallel()
		found := pages(t, func(token string) ([]string, string, error) {
			answer, err := runs.ListRuns(operator, &servov1.ListRunsRequest{Pipeline: "single", PageSize: 2, PageToken: token})
			var ids []string
			for _, r := range answer.GetRuns() {
				ids = append(ids, r.GetTenant()+" "+r.GetId())
			}
			return ids, answer.GetNextPageToken(), err
		})
		require.Equal(t, made, found)
	})
	t.Run("a key of a tenant does not, and says which key does", func(t *testing.T) {
		t.Parallel()
		_, err := runs.ListRuns(viewer, &servov1.ListRunsRequest{})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		_, err = runs.ListRunningRuns(viewer, &servov1.ListRunningRunsRequest{})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		_, err = runs.ListLateRuns(viewer, &servov1.ListLateRunsRequest{})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
	})
	t.Run("what is of one tenant needs its name", func(t *testing.T) {
		t.Parallel()
		_, err := runs.ListRuns(operator, &servov1.ListRunsRequest{Config: "nightly"})
		requireRefused(t, err, codes.InvalidArgument, "config")
		_, err = runs.ListRuns(operator, &servov1.ListRunsRequest{ParentRun: made[0][6:]})
		requireRefused(t, err, codes.InvalidArgument, "parent_run")
		_, err = runs.ListRuns(operator, &servov1.ListRunsRequest{Tenant: "acme", Config: "nightly"})
		requireRefused(t, err, codes.NotFound, "config")
	})
	t.Run("running runs are those of all, or of the tenant that asks", func(t *testing.T) {
		t.Parallel()
		all, err := runs.ListRunningRuns(operator, &servov1.ListRunningRunsRequest{PageSize: 100})
		require.NoError(t, err)
		require.Len(t, all.GetRuns(), 7)
		mine, err := runs.ListRunningRuns(viewer, &servov1.ListRunningRunsRequest{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, mine.GetRuns(), 3)
		for _, r := range mine.GetRuns() {
			require.Equal(t, "acme", r.GetRun().GetTenant())
		}
		late, err := runs.ListLateRuns(operator, &servov1.ListLateRunsRequest{})
		require.NoError(t, err)
		require.Empty(t, late.GetRuns())
	})
}
