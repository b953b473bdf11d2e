package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)

	t.Run("a tenant is made with a workspace, and read by its name", func(t *testing.T) {
		t.Parallel()
		made, err := b.tenants.CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "new-one"})
		require.NoError(t, err)
		require.Equal(t, "new-one", made.GetName())
		require.NotNil(t, made.GetCreatedAt())
		read, err := b.tenants.GetTenant(t.Context(), &servov1.GetTenantRequest{Tenant: "new-one"})
		require.NoError(t, err)
		require.True(t, proto.Equal(made, read))
		workspaces, err := b.tenants.ListWorkspaces(t.Context(), &servov1.ListWorkspacesRequest{Tenant: "new-one"})
		require.NoError(t, err)
		require.Len(t, workspaces.GetWorkspaces(), 1)
		require.Equal(t, "default", workspaces.GetWorkspaces()[0].GetName())
		require.Empty(t, workspaces.GetWorkspaces()[0].GetActiveDeployment())
	})

	t.Run("a name that is taken or makes no sense is refused", func(t *testing.T) {
		t.Parallel()
		_, err := b.tenants.CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "acme"})
		requireRefused(t, err, codes.AlreadyExists, "name")
		_, err = b.tenants.CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: "Acme!"})
		requireRefused(t, err, codes.InvalidArgument, "name")
		_, err = b.tenants.CreateWorkspace(t.Context(), &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "default"})
		requireRefused(t, err, codes.AlreadyExists, "name")
		_, err = b.tenants.CreateWorkspace(t.Context(), &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "-"})
		requireRefused(t, err, codes.InvalidArgument, "name")
	})

	t.Run("a further workspace has no deployment of its own yet", func(t *testing.T) {
		t.Parallel()
		made, err := b.tenants.CreateWorkspace(t.Context(), &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "staging"})
		require.NoError(t, err)
		require.Equal(t, "staging", made.GetName())
		list, err := b.tenants.ListWorkspaces(t.Context(), &servov1.ListWorkspacesRequest{Tenant: "acme"})
		require.NoError(t, err)
		active := map[string]bool{}
		for _, w := range list.GetWorkspaces() {
			active[w.GetName()] = w.GetActiveDeployment() != ""
		}
		require.Equal(t, map[string]bool{"default": true, "staging": false}, active)
		_, err = b.assets.ListAssets(t.Context(), &servov1.ListAssetsRequest{Tenant: "acme", Workspace: "staging"})
		requireRefused(t, err, codes.NotFound, "workspace")
	})
}

func TestListTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := []string{"acme", "brick"}
	for i := range 23 {
		name := fmt.Sprintf("t-%02d", i)
		want = append(want, name)
		_, err := b.tenants.CreateTenant(t.Context(), &servov1.CreateTenantRequest{Name: name})
		require.NoError(t, err)
	}
	for _, size := range []int32{0, 1, 7, 25, 100} {
		t.Run(fmt.Sprintf("pages of %d lead to the end and miss no tenant", size), func(t *testing.T) {
			t.Parallel()
			got := pages(t, func(token string) ([]string, string, error) {
				answer, err := b.tenants.ListTenants(t.Context(), &servov1.ListTenantsRequest{PageSize: size, PageToken: token})
				var names []string
				for _, tenant := range answer.GetTenants() {
					names = append(names, tenant.GetName())
				}
				if size == 0 {
					size = 20
				}
				require.LessOrEqual(t, len(names), int(size))
				return names, answer.GetNextPageToken(), err
			})
			require.Equal(t, want, got)
		})
	}
}

// pages reads a list to its end.
func pages(t testing.TB, read func(token string) (entries []string, next string, err error)) []string {
	t.Helper()
	var all []string
	for token := ""; ; {
		entries, next, err := read(token)
		require.NoError(t, err)
		all = append(all, entries...)
		if next == "" {
			return all
		}
		require.NotEmpty(t, entries, "a page with a next one has entries")
		token = next
	}
}

func TestDeployments(t *testing.T) {
	t.Parallel()
	const changed = `
version: 1
assets:
  - {key: d/a, exec: {command: [run, fast]}, tags: [daily], owners: [jo]}
  - {key: d/new, exec: {command: [run]}}
pipelines:
  - {name: diamond, select: [d/a], priority: 3}
`
	deploy := func(b *bundle, text string, dry bool) func(t *testing.T) *servov1.DeployResponse {
		return func(t *testing.T) *servov1.DeployResponse {
			t.Helper()
			answer, err := b.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: manifestOf(t, text), DryRun: dry})
			require.NoError(t, err)
			return answer
		}
	}
	summary := func(answer *servov1.DeployResponse) []string {
		var lines []string
		for _, c := range answer.GetChanges() {
			lines = append(lines, fmt.Sprint(c.GetAction(), " ", c.GetKind(), " ", c.GetName(), " ", c.GetFields()))
		}
		return lines
	}
	wantChanges := []string{
		"CHANGED asset d/a [exec]", "REMOVED asset d/b []", "REMOVED asset d/c []", "REMOVED asset d/d []", "ADDED asset d/new []",
		"REMOVED asset f/fetch []", "REMOVED asset f/join []", "REMOVED asset f/scan []", "REMOVED asset s/one []",
		"CHANGED pipeline diamond [max_execution overlap priority select]", "REMOVED pipeline fan []", "REMOVED pipeline single []",
	}

	t.Run("the same manifest again is the same deployment, and changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		again := deploy(b, manifestText, false)(t)
		require.True(t, again.GetUnchanged())
		require.Empty(t, again.GetChanges())
		list, err := b.deployments.ListDeployments(t.Context(), &servov1.ListDeploymentsRequest{Tenant: "acme"})
		require.NoError(t, err)
		require.Len(t, list.GetDeployments(), 1)
		require.Equal(t, again.GetDeployment().GetId(), list.GetDeployments()[0].GetId())
		require.Nil(t, list.GetDeployments()[0].GetManifest(), "lists leave it out")
		require.True(t, list.GetDeployments()[0].GetActive())
	})

	t.Run("a dry run lists the changes, and changes nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		dry := deploy(b, changed, true)(t)
		require.Empty(t, dry.GetDeployment().GetId())
		require.NotEmpty(t, dry.GetDeployment().GetDigest())
		require.False(t, dry.GetUnchanged())
		require.Equal(t, wantChanges, summary(dry))
		_, err := b.assets.GetAsset(t.Context(), &servov1.GetAssetRequest{Tenant: "acme", Asset: "d/new"})
		requireRefused(t, err, codes.NotFound, "asset")

		wet := deploy(b, changed, false)(t)
		require.Equal(t, wantChanges, summary(wet))
		require.True(t, wet.GetDeployment().GetActive())
		require.Equal(t, dry.GetDeployment().GetDigest(), wet.GetDeployment().GetDigest())

		back := deploy(b, manifestText, true)(t)
		require.NotEmpty(t, back.GetDeployment().GetId(), "it already exists")
		require.False(t, back.GetDeployment().GetActive())
	})

	t.Run("a deployment is read with its manifest", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		made := deploy(b, changed, false)(t).GetDeployment()
		read, err := b.deployments.GetDeployment(t.Context(), &servov1.GetDeploymentRequest{Tenant: "acme", Deployment: made.GetId()})
		require.NoError(t, err)
		require.True(t, proto.Equal(made, read))
		require.Equal(t, "default", read.GetWorkspace())
		require.Len(t, read.GetManifest().GetFields()["assets"].GetListValue().GetValues(), 2)
	})

	t.Run("mistakes of a manifest are reported with their place, all at once", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		bad, err := structpb.NewStruct(map[string]any{"version": 1, "assets": []any{
			map[string]any{"key": "a/b", "exec": map[string]any{"command": []any{"x"}}, "upstream": []any{"no/where"}},
			map[string]any{"key": "NO"},
		}})
		require.NoError(t, err)
		_, err = b.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: bad})
		p := problemOf(t, err)
		require.Equal(t, "INVALID_MANIFEST", p.GetCode())
		var fields []string
		for _, v := range p.GetViolations() {
			fields = append(fields, v.GetField())
		}
		require.Contains(t, fields, "assets[a/b].upstream[0]")
		require.Greater(t, len(fields), 1)
	})

	t.Run("a manifest of over a mebibyte does not travel in a request", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		big, err := structpb.NewStruct(map[string]any{"version": 1, "assets": strings.Repeat("a", 1<<20)})
		require.NoError(t, err)
		_, err = b.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Manifest: big})
		requireRefused(t, err, codes.ResourceExhausted, "manifest")
	})

	t.Run("a missing workspace or deployment, and one of another tenant, is not found", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		mine := deploy(b, manifestText, false)(t).GetDeployment().GetId()
		for _, dry := range []bool{true, false} {
			_, err := b.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Workspace: "moon", Manifest: manifestOf(t, manifestText), DryRun: dry})
			requireRefused(t, err, codes.NotFound, "workspace")
		}
		_, err := b.deployments.GetDeployment(t.Context(), &servov1.GetDeploymentRequest{Tenant: "brick", Deployment: mine})
		notMine := requireRefused(t, err, codes.NotFound, "deployment")
		unowned := uuid.NewString()
		_, err = b.deployments.GetDeployment(t.Context(), &servov1.GetDeploymentRequest{Tenant: "brick", Deployment: unowned})
		requireSame(t, notMine, mine, requireRefused(t, err, codes.NotFound, "deployment"), unowned)
		_, err = b.deployments.GetDeployment(t.Context(), &servov1.GetDeploymentRequest{Tenant: "acme", Deployment: "x"})
		requireRefused(t, err, codes.InvalidArgument, "deployment")
	})

	t.Run("lists go back to the first deployment", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		_, err := b.tenants.CreateWorkspace(t.Context(), &servov1.CreateWorkspaceRequest{Tenant: "acme", Name: "staging"})
		require.NoError(t, err)
		for i := range 5 {
			b.deploy(t, fmt.Sprintf("version: 1\nassets: [{key: a/n%d, exec: {command: [x]}}]", i))
		}
		_, err = b.deployments.Deploy(t.Context(), &servov1.DeployRequest{Tenant: "acme", Workspace: "staging", Manifest: manifestOf(t, manifestText)})
		require.NoError(t, err)
		list := func(workspace string) []string {
			return pages(t, func(token string) ([]string, string, error) {
				answer, err := b.deployments.ListDeployments(t.Context(), &servov1.ListDeploymentsRequest{Tenant: "acme", Workspace: workspace, PageSize: 2, PageToken: token})
				var ids []string
				for _, d := range answer.GetDeployments() {
					ids = append(ids, d.GetId())
				}
				return ids, answer.GetNextPageToken(), err
			})
		}
		all := list("")
		require.Len(t, all, 7)
		require.IsDecreasing(t, all)
		require.Equal(t, all[1:], list("default"))
		require.Equal(t, all[:1], list("staging"))
	})
}

// requireSame requires two problems to be equal except for the ids: a caller who asks for another tenant's
// object must not learn that it exists.
func requireSame(t testing.TB, a *servov1.Problem, idOfA string, b *servov1.Problem, idOfB string) {
	t.Helper()
	require.Equal(t, strings.ReplaceAll(prototext.Format(a), idOfA, idOfB), prototext.Format(b))
}
