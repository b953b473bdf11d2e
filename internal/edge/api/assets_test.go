package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	servov1 "go.arco.dev/servo/gen/servo/v1"
)

func TestAssets(t *testing.T) {
	t.Parallel()
	b := setup(t)
	list := func(t *testing.T, size int32, expressions ...string) []string {
		t.Helper()
		return pages(t, func(token string) ([]string, string, error) {
			answer, err := b.assets.ListAssets(t.Context(), &servov1.ListAssetsRequest{Tenant: "acme", Select: expressions, PageSize: size, PageToken: token})
			var keys []string
			for _, a := range answer.GetAssets() {
				keys = append(keys, a.GetKey())
			}
			return keys, answer.GetNextPageToken(), err
		})
	}

	t.Run("assets are listed by key, page by page", func(t *testing.T) {
		t.Parallel()
		want := []string{"d/a", "d/b", "d/c", "d/d", "f/fetch", "f/join", "f/scan", "s/one"}
		for size := range int32(10) {
			require.Equal(t, want, list(t, size))
		}
	})

	t.Run("a selection selects", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"d/a", "d/b"}, list(t, 1, "+d/b"))
		require.Equal(t, []string{"d/a", "s/one"}, list(t, 1, "tag:daily", "s/*"))
	})

	t.Run("a selection of nothing is refused, with what may have been meant", func(t *testing.T) {
		t.Parallel()
		_, err := b.assets.ListAssets(t.Context(), &servov1.ListAssetsRequest{Tenant: "acme", Select: []string{"d/a", "f/scam"}})
		require.Contains(t, requireRefused(t, err, codes.InvalidArgument, "select[1]").GetMessage(), "f/scan")
		_, err = b.assets.ListAssets(t.Context(), &servov1.ListAssetsRequest{Tenant: "acme", Select: []string{"!"}})
		requireRefused(t, err, codes.InvalidArgument, "select[0]")
	})

	t.Run("an asset is read with its neighbours and its code", func(t *testing.T) {
		t.Parallel()
		a, err := b.assets.GetAsset(t.Context(), &servov1.GetAssetRequest{Tenant: "acme", Asset: "d/a"})
		require.NoError(t, err)
		require.Equal(t, []string{"d/b", "d/c"}, a.GetDownstream())
		require.Equal(t, []string{"daily"}, a.GetTags())
		require.Equal(t, []string{"jo"}, a.GetOwners())
		require.Equal(t, "default", a.GetPool())
		require.Equal(t, time.Hour, a.GetTimeout().AsDuration())
		require.Equal(t, []string{"run"}, a.GetCode().GetExec().GetCommand())
		require.Equal(t, map[string]string{"A": "b"}, a.GetCode().GetExec().GetEnv())

		c, err := b.assets.GetAsset(t.Context(), &servov1.GetAssetRequest{Tenant: "acme", Asset: "d/c"})
		require.NoError(t, err)
		require.Equal(t, []string{"d/a"}, c.GetUpstream())
		require.Equal(t, "http://localhost/c", c.GetCode().GetHttp().GetUrl())
		require.Equal(t, "POST", c.GetCode().GetHttp().GetMethod())

		d, err := b.assets.GetAsset(t.Context(), &servov1.GetAssetRequest{Tenant: "acme", Asset: "d/d"})
		require.NoError(t, err)
		require.Equal(t, "dee", d.GetCode().GetGo().GetHandler())
	})

	t.Run("a missing asset is not found, with a suggestion", func(t *testing.T) {
		t.Parallel()
		_, err := b.assets.GetAsset(t.Context(), &servov1.GetAssetRequest{Tenant: "acme", Asset: "f/scam"})
		require.Contains(t, requireRefused(t, err, codes.NotFound, "asset").GetMessage(), "f/scan")
	})

	t.Run("a tenant without a deployment is asked to deploy", func(t *testing.T) {
		t.Parallel()
		_, err := b.assets.ListAssets(t.Context(), &servov1.ListAssetsRequest{Tenant: "brick"})
		require.Contains(t, requireRefused(t, err, codes.NotFound, "workspace").GetRemedy(), "deploy")
		_, err = b.assets.ListPipelines(t.Context(), &servov1.ListPipelinesRequest{Tenant: "acme", Workspace: "moon"})
		requireRefused(t, err, codes.NotFound, "workspace")
	})

	t.Run("pipelines are listed with their parameters", func(t *testing.T) {
		t.Parallel()
		names := pages(t, func(token string) ([]string, string, error) {
			answer, err := b.assets.ListPipelines(t.Context(), &servov1.ListPipelinesRequest{Tenant: "acme", PageSize: 1, PageToken: token})
			require.Len(t, answer.GetPipelines(), 1)
			return []string{answer.GetPipelines()[0].GetName()}, answer.GetNextPageToken(), err
		})
		require.Equal(t, []string{"diamond", "fan", "single"}, names)
		answer, err := b.assets.ListPipelines(t.Context(), &servov1.ListPipelinesRequest{Tenant: "acme"})
		require.NoError(t, err)
		diamond, single := answer.GetPipelines()[0], answer.GetPipelines()[2]
		require.Equal(t, 2*time.Hour, diamond.GetMaxExecution().AsDuration())
		require.Equal(t, int32(7), single.GetPriority())
		require.Equal(t, []string{"s/one"}, single.GetSelect())
		require.Len(t, single.GetParameters(), 2)
		day := single.GetParameters()[0]
		require.Equal(t, "day string today", day.GetName()+" "+day.GetType()+" "+day.GetDefault().GetStringValue())
		require.Len(t, day.GetEnum(), 2)
		require.Nil(t, single.GetParameters()[1].GetDefault())
	})
}
