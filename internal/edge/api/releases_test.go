package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
	"go.arco.dev/servo/internal/domain/access"
)

func TestReleasesAreIsolated(t *testing.T) {
	t.Parallel()
	g := setupGuarded(t)
	platform := with(t.Context(), g.roleKey(t, access.Platform))
	tenants, releases := servov1.NewTenantServiceClient(g.conn), servov1.NewReleaseServiceClient(g.conn)
	channels, deployments := servov1.NewReleaseChannelServiceClient(g.conn), servov1.NewDeploymentServiceClient(g.conn)
	_, err := tenants.CreateTenant(platform, &servov1.CreateTenantRequest{Name: "globex"})
	require.NoError(t, err)
	manifest := manifestOf(t, `{version: 1, assets: [{key: secret/recipe, exec: {command: [run]}}], pipelines: [{name: cook, select: ["secret/*"]}]}`)
	other := manifestOf(t, `{version: 1, assets: [{key: secret/sauce, exec: {command: [run]}}], pipelines: [{name: cook, select: ["secret/*"]}]}`)
	v1, err := releases.CreateRelease(platform, &servov1.CreateReleaseRequest{Name: "v1", Manifest: manifest})
	require.NoError(t, err)
	_, err = releases.CreateRelease(platform, &servov1.CreateReleaseRequest{Name: "v2", Manifest: other})
	require.NoError(t, err)
	_, err = channels.CreateReleaseChannel(platform, &servov1.CreateReleaseChannelRequest{Name: "stable", Release: "v1"})
	require.NoError(t, err)
	own, err := deployments.Deploy(platform, &servov1.DeployRequest{Tenant: "globex", Manifest: other})
	require.NoError(t, err)
	_, err = channels.FollowChannel(platform, &servov1.FollowChannelRequest{Tenant: "globex", Workspace: "default", Channel: "stable"})
	require.NoError(t, err)
	mine, err := g.deployments.ListDeployments(t.Context(), &servov1.ListDeploymentsRequest{Tenant: "acme"})
	require.NoError(t, err)
	acmeID := mine.GetDeployments()[0].GetId()

	acmeKey, _ := g.key(t, "acme", access.Settings{Role: access.TenantAdmin})
	globexKey, _ := g.key(t, "globex", access.Settings{Role: access.TenantAdmin})
	acme, globex := with(t.Context(), acmeKey), with(t.Context(), globexKey)

	t.Log("releases, channels, impact and diffs are read by the platform alone")
	for name, call := range map[string]func() error{
		"list": func() error { _, err := releases.ListReleases(globex, &servov1.ListReleasesRequest{}); return err },
		"get": func() error {
			_, err := releases.GetRelease(globex, &servov1.GetReleaseRequest{Release: v1.GetId()})
			return err
		},
		"diff": func() error {
			_, err := releases.DiffReleases(globex, &servov1.DiffReleasesRequest{Release: "v1", To: "v2"})
			return err
		},
		"check": func() error {
			_, err := releases.CheckRelease(globex, &servov1.CheckReleaseRequest{Release: "v1", Channel: "stable"})
			return err
		},
		"channel": func() error {
			_, err := channels.GetReleaseChannel(globex, &servov1.GetReleaseChannelRequest{Channel: "stable"})
			return err
		},
		"follow": func() error {
			_, err := channels.FollowChannel(globex, &servov1.FollowChannelRequest{Tenant: "globex", Workspace: "default"})
			return err
		},
	} {
		require.Equal(t, codes.PermissionDenied, codeOf(call()), name)
	}

	t.Log("a tenant reads its release through its workspace, and no other tenant's by id")
	list, err := tenants.ListWorkspaces(globex, &servov1.ListWorkspacesRequest{Tenant: "globex"})
	require.NoError(t, err)
	require.Equal(t, "v1", list.GetWorkspaces()[0].GetRelease())
	for name, deployment := range map[string]string{"a release": v1.GetId(), "a deployment": own.GetDeployment().GetId()} {
		_, err = deployments.GetDeployment(acme, &servov1.GetDeploymentRequest{Tenant: "acme", Deployment: deployment})
		require.Equal(t, codes.NotFound, codeOf(err), name)
		_, err = deployments.DiffDeployments(acme, &servov1.DiffDeploymentsRequest{Tenant: "acme", Deployment: acmeID, To: deployment})
		require.Equal(t, codes.NotFound, codeOf(err), name)
		_, err = deployments.DiffDeployments(acme, &servov1.DiffDeploymentsRequest{Tenant: "acme", Deployment: deployment, To: acmeID})
		require.Equal(t, codes.NotFound, codeOf(err), name)
		_, err = deployments.ActivateDeployment(acme, &servov1.ActivateDeploymentRequest{Tenant: "acme", Deployment: deployment})
		require.Equal(t, codes.NotFound, codeOf(err), name)
		_, err = deployments.CopyDeployment(acme, &servov1.CopyDeploymentRequest{Tenant: "acme", Deployment: deployment, To: "staging"})
		require.Equal(t, codes.NotFound, codeOf(err), name)
	}
	_, err = deployments.GetDeployment(acme, &servov1.GetDeploymentRequest{Tenant: "globex", Deployment: own.GetDeployment().GetId()})
	require.Contains(t, []codes.Code{codes.NotFound, codes.PermissionDenied}, codeOf(err))
}
