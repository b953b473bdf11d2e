package api_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
)

func TestSearch(t *testing.T) {
	t.Parallel()
	g := twoTenants(t)
	configs, keys := servov1.NewConfigServiceClient(g.bundle.conn), servov1.NewKeyServiceClient(g.bundle.conn)
	made := map[string]*servov1.Run{}
	for _, tenant := range []string{"acme", "brick"} {
		answer, err := g.runs.TriggerRun(t.Context(), &servov1.TriggerRunRequest{Tenant: tenant, Pipeline: "single"})
		require.NoError(t, err)
		made[tenant] = answer.GetRun()
		_, err = configs.CreateConfig(t.Context(), &servov1.CreateConfigRequest{
			Tenant: tenant, Name: "singular-" + tenant, Spec: &servov1.ConfigSpec{Pipeline: "single", Trigger: &servov1.ConfigTrigger{Cron: "0 2 * * *"}},
		})
		require.NoError(t, err)
	}
	_, err := servov1.NewPoolServiceClient(g.bundle.conn).CreatePool(t.Context(), &servov1.CreatePoolRequest{Name: "quick", Kind: servov1.Pool_PULL})
	require.NoError(t, err)
	ci, err := keys.CreateKey(t.Context(), &servov1.CreateKeyRequest{Tenant: "acme", Name: "ci", Role: "viewer"})
	require.NoError(t, err)
	search := servov1.NewSearchServiceClient(g.conn)
	operator, viewer, admin := with(t.Context(), g.roleKey(t, access.Platform)), with(t.Context(), g.roleKey(t, access.Viewer)), with(t.Context(), g.roleKey(t, access.TenantAdmin))
	find := func(t *testing.T, by string, req *servov1.SearchRequest) (found []string) {
		t.Helper()
		ctx := operator
		switch by {
		case "viewer":
			ctx = viewer
		case "admin":
			ctx = admin
		}
		answer, err := search.Search(ctx, req)
		require.NoError(t, err)
		for _, f := range answer.GetFound() {
			found = append(found, strings.TrimSpace(f.GetKind()+" "+f.GetName()+" "+f.GetTenant()))
		}
		return found
	}
	run := func(tenant string) string { return made[tenant].GetId() }

	t.Run("an operator finds an id in every tenant, with its kind", func(t *testing.T) {
		t.Parallel()
		answer, err := search.Search(operator, &servov1.SearchRequest{Q: "  " + strings.ToUpper(run("brick")) + " "})
		require.NoError(t, err)
		require.False(t, answer.GetPartial())
		require.Len(t, answer.GetFound(), 1)
		require.Equal(t, []string{"run", "single", "brick", "default", run("brick"), made["brick"].GetState().String()}, []string{
			answer.GetFound()[0].GetKind(), answer.GetFound()[0].GetName(), answer.GetFound()[0].GetTenant(), answer.GetFound()[0].GetWorkspace(),
			answer.GetFound()[0].GetId(), answer.GetFound()[0].GetState(),
		})
		require.Equal(t, []string{"run single brick"}, find(t, "operator", &servov1.SearchRequest{Q: run("brick"), Tenant: "brick"}))
		require.Empty(t, find(t, "operator", &servov1.SearchRequest{Q: run("brick"), Tenant: "acme"}))
	})
	t.Run("a task is found with its run", func(t *testing.T) {
		t.Parallel()
		tasks, err := servov1.NewTaskServiceClient(g.bundle.conn).ListTasks(t.Context(), &servov1.ListTasksRequest{Tenant: "brick", Run: run("brick")})
		require.NoError(t, err)
		answer, err := search.Search(operator, &servov1.SearchRequest{Q: tasks.GetTasks()[0].GetId()})
		require.NoError(t, err)
		require.Len(t, answer.GetFound(), 1)
		require.Equal(t, "task", answer.GetFound()[0].GetKind())
		require.Equal(t, run("brick"), answer.GetFound()[0].GetRun())
		require.Empty(t, find(t, "viewer", &servov1.SearchRequest{Q: tasks.GetTasks()[0].GetId(), Tenant: "acme"}))
	})
	t.Run("a key of a tenant finds its own, and of others' nothing", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"run single acme"}, find(t, "viewer", &servov1.SearchRequest{Q: run("acme"), Tenant: "acme"}))
		require.Empty(t, find(t, "viewer", &servov1.SearchRequest{Q: run("brick"), Tenant: "acme"}))
		_, err := search.Search(viewer, &servov1.SearchRequest{Q: run("acme")})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		_, err = search.Search(viewer, &servov1.SearchRequest{Q: run("brick"), Tenant: "brick"})
		require.Equal(t, codes.NotFound, status.Code(err), "%v", err)
	})
	t.Run("what the caller may not read is not found", func(t *testing.T) {
		t.Parallel()
		made, err := servov1.NewEventServiceClient(g.bundle.conn).ListEvents(t.Context(), &servov1.ListEventsRequest{Tenant: "acme", Type: "key.created"})
		require.NoError(t, err)
		require.NotEmpty(t, made.GetEvents())
		for _, e := range made.GetEvents() {
			require.Empty(t, find(t, "viewer", &servov1.SearchRequest{Q: e.GetSubject(), Tenant: "acme"}))
			require.Len(t, find(t, "admin", &servov1.SearchRequest{Q: e.GetSubject(), Tenant: "acme"}), 1)
		}
	})
	t.Run("a name is found by its beginning, of all tenants", func(t *testing.T) {
		t.Parallel()
		require.ElementsMatch(t, []string{"config singular-acme acme", "config singular-brick brick", "pipeline single acme", "pipeline single brick"}, find(t, "operator", &servov1.SearchRequest{Q: "sing"}))
		require.Contains(t, find(t, "operator", &servov1.SearchRequest{Q: "bri"}), "tenant brick brick")
		require.Contains(t, find(t, "operator", &servov1.SearchRequest{Q: "qui"}), "pool quick")
		answer, err := search.Search(operator, &servov1.SearchRequest{Q: "nothing"})
		require.NoError(t, err)
		require.False(t, answer.GetPartial(), "there are few tenants")
		require.Empty(t, answer.GetFound())
	})
	t.Run("of one tenant its pipelines and assets too", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"config singular-acme acme", "pipeline single acme"}, find(t, "viewer", &servov1.SearchRequest{Q: "sing", Tenant: "acme"}))
		require.Contains(t, find(t, "viewer", &servov1.SearchRequest{Q: "scan", Tenant: "acme"}), "asset f/scan acme", "by its name without the namespace")
		require.Empty(t, find(t, "viewer", &servov1.SearchRequest{Q: "sing", Tenant: "acme", Workspace: "other"}))
		require.Equal(t, []string{"config singular-acme acme"}, find(t, "viewer", &servov1.SearchRequest{Q: "ULAR", Tenant: "acme"}), "a part is enough")
	})
	t.Run("a key is found by its name and by the id that people see, by who may read keys", func(t *testing.T) {
		t.Parallel()
		for _, q := range []string{ci.GetKey().GetId(), ci.GetKey().GetId()[:6], "sk_" + ci.GetKey().GetId(), "ci"} {
			require.Contains(t, find(t, "admin", &servov1.SearchRequest{Q: q, Tenant: "acme"}), "key ci acme", q)
			require.NotContains(t, find(t, "viewer", &servov1.SearchRequest{Q: q, Tenant: "acme"}), "key ci acme", q)
			require.Contains(t, find(t, "operator", &servov1.SearchRequest{Q: q}), "key ci acme", q)
			require.NotContains(t, find(t, "operator", &servov1.SearchRequest{Q: q, Tenant: "brick"}), "key ci acme", q)
		}
		answer, err := search.Search(admin, &servov1.SearchRequest{Q: ci.GetSecret(), Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, answer.GetFound(), 1)
		require.Equal(t, ci.GetKey().GetId(), answer.GetFound()[0].GetId())
		require.False(t, answer.GetCut())
	})
	t.Run("a key of one workspace names it, and finds what is in it", func(t *testing.T) {
		t.Parallel()
		held, err := keys.CreateKey(t.Context(), &servov1.CreateKeyRequest{Tenant: "acme", Name: "held", Role: "viewer", Workspace: "default"})
		require.NoError(t, err)
		ctx := with(t.Context(), held.GetSecret())
		_, err = search.Search(ctx, &servov1.SearchRequest{Q: run("acme"), Tenant: "acme"})
		require.Equal(t, codes.PermissionDenied, status.Code(err), "%v", err)
		answer, err := search.Search(ctx, &servov1.SearchRequest{Q: run("acme"), Tenant: "acme", Workspace: "default"})
		require.NoError(t, err)
		require.Len(t, answer.GetFound(), 1)
		answer, err = search.Search(ctx, &servov1.SearchRequest{Q: "default/sing", Tenant: "acme", Workspace: "default"})
		require.NoError(t, err)
		require.Empty(t, answer.GetFound(), "locks are for keys of the whole tenant")
	})
	t.Run("a text that is too short or too long is refused", func(t *testing.T) {
		t.Parallel()
		_, err := search.Search(operator, &servov1.SearchRequest{Q: "   "})
		requireRefused(t, err, codes.InvalidArgument, "q")
		_, err = search.Search(operator, &servov1.SearchRequest{Q: strings.Repeat("x", 201)})
		requireRefused(t, err, codes.InvalidArgument, "q")
	})
}
